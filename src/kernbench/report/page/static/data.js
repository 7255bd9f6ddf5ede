// Columns back to typed arrays, and a timeline as the views need it.

const ARRAYS = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  i8: BigInt64Array,
  u8: BigUint64Array,
  f4: Float32Array,
  f8: Float64Array,
};

async function column(packed) {
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const values = new ARRAYS[packed.type](await new Response(stream).arrayBuffer());
  return packed.type.endsWith("8") && packed.type !== "f8" ? Float64Array.from(values, Number) : values;
}

async function columns(held, keys) {
  const values = await Promise.all(keys.map((key) => column(held[key])));
  return Object.fromEntries(keys.map((key, i) => [key, values[i]]));
}

// What lanes of many engines have in common: "dma 1" and "dma 0" are dma, all links are links.
function kindOf(group, name) {
  if (group === "links") return "links";
  if (/^send [NSEW]$/.test(name)) return "send";
  return name.replace(/:.*$/, "").replace(/\d+/g, "").replace(/\s+/g, " ").trim() || name;
}

async function decodeTimeline(saved) {
  const held = await columns(saved, ["per_lane", "name", "site", "start", "length"]);
  const count = held.name.length;
  const start = new Float64Array(count),
    finish = new Float64Array(count),
    reach = new Float64Array(count);
  const busy = new Float64Array(count + 1);
  const lanes = [];
  let total = 0,
    next = 0;
  saved.lanes.forEach(([group, name], number) => {
    const first = next;
    let at = 0,
      furthest = 0;
    for (next = first; next < first + held.per_lane[number]; next++) {
      at += held.start[next];
      start[next] = at;
      finish[next] = at + held.length[next];
      // lanes may hold spans within spans: only what is new counts as busy
      busy[next + 1] = busy[next] + Math.max(0, finish[next] - Math.max(at, furthest));
      furthest = Math.max(furthest, finish[next]);
      reach[next] = furthest;
    }
    total = Math.max(total, furthest);
    lanes.push({ group, name, first, count: held.per_lane[number], kind: kindOf(group, name) });
  });
  const path = await columns(saved.path, ["lane", "name", "site", "waited_for", "lag", "start", "length"]);
  const waits = saved.waits ? { kinds: saved.waits.kinds, ...(await columns(saved.waits, ["kind", "after"])) } : null;
  const flows = await columns(saved.flows, ["source", "target"]);
  return {
    unit: saved.unit,
    names: saved.names,
    sites: saved.sites,
    counters: saved.counters,
    folded: saved.folded,
    lanes,
    name: held.name,
    site: held.site,
    start,
    finish,
    reach,
    busy,
    total,
    flows,
    waits,
    path: { ...path, names: saved.path.names, waits: saved.path.waits },
  };
}

// First place in [low, high) where the ascending `values` are beyond `limit` (above it, or with `equal` not below it).
function search(values, limit, low, high, equal) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (equal ? values[middle] >= limit : values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

// How long a lane is busy before a moment. Of the spans that begin before it, the furthest covers all that lies beyond.
function busyBefore(line, lane, at) {
  const j = search(line.start, at, lane.first, lane.first + lane.count, true);
  return j === lane.first ? 0 : line.busy[j] - line.busy[lane.first] - Math.max(0, line.reach[j - 1] - at);
}

// How long a lane is busy between two moments.
const busyBetween = (line, lane, from, to) => busyBefore(line, lane, to) - busyBefore(line, lane, from);

// Lanes by kind, those with most to do first.
function kindsOf(line) {
  const kinds = new Map();
  for (const lane of line.lanes) {
    // when launches ran is no engine's work
    if (lane.group === "launches") continue;
    if (!kinds.has(lane.kind)) kinds.set(lane.kind, { kind: lane.kind, lanes: [], busy: 0 });
    const held = kinds.get(lane.kind);
    held.lanes.push(lane);
    held.busy += busyBetween(line, lane, 0, line.total);
  }
  return [...kinds.values()]
    .filter((held) => held.busy > 0)
    .sort((a, b) => b.busy / b.lanes.length - a.busy / a.lanes.length);
}
