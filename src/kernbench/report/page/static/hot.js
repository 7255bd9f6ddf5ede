// The source as a GPU profiler shows it: what share of all warp cycles each line has, by what warps waited for. A line
// opens to its waits, what it moved, the functions inlined there, and its lines of the kernel's text.

// rows further away than this from a line with cycles are left out
const AROUND = 3;
// of causes, those with most cycles have a colour of their own
const COLOURED = PALETTE.length;

function hotSourcePart(run) {
  const files = new Map();
  for (const row of rowsOf(run.views.by_source)) {
    if (!row.source || !isNumber(row.share)) continue;
    const file = files.get(row.source.file) || { share: 0, lines: new Map() };
    file.share += row.share;
    file.lines.set(row.source.line, row);
    files.set(row.source.file, file);
  }
  const colours = coloursOfWaits(files);
  const ordered = [...files].sort((a, b) => b[1].share - a[1].share);
  return [
    el(
      "div",
      { class: "legend" },
      [...colours].map(([name, colour]) => el("span", null, el("i", { class: "swatch", style: { background: colour } }), name)),
    ),
    ordered.map(([file, held]) => hotListing(run, file, held, colours)),
  ];
}

function coloursOfWaits(files) {
  const spent = new Map();
  for (const { lines } of files.values())
    for (const row of lines.values())
      for (const [name, share] of Object.entries(row.waits || {}))
        if (isNumber(share)) spent.set(name, (spent.get(name) || 0) + share);
  const dearest = [...spent].sort((a, b) => b[1] - a[1]).slice(0, COLOURED);
  return new Map(dearest.map(([name], number) => [name, PALETTE[number]]));
}

function hotListing(run, file, held, colours) {
  const source = (run.sources || {})[file];
  const name = String((source && source.name) || file);
  const most = Math.max(...[...held.lines.values()].map((row) => row.share));
  const texts = new Map();
  for (const [first, lines] of source ? source.parts : []) lines.forEach((text, i) => texts.set(first + i, text));
  // without the file, what was kept of its lines
  for (const [number, row] of held.lines) if (!texts.has(number)) texts.set(number, String(row.text || ""));
  const near = (number) => [...held.lines.keys()].some((line) => Math.abs(line - number) <= AROUND);
  const rows = [];
  let before = 0;
  for (const number of [...texts.keys()].sort((a, b) => a - b).filter(near)) {
    if (before && number !== before + 1) rows.push(el("div", { class: "gap" }, "⋯"));
    before = number;
    rows.push(hotRow(run, number, texts.get(number), held.lines.get(number), most, colours));
  }
  return [
    el("div", { class: "filename" }, `${name}: ${percent(held.share)} of the warp cycles`),
    el("div", { class: "source code stacked", tabindex: 0, role: "region", "aria-label": `warp cycles in ${name}` }, rows),
  ];
}

function hotRow(run, number, text, row, most, colours) {
  const cells = [
    el("span", { class: "share" }, row ? percent(row.share) : ""),
    el("span", { class: "heat" }, row ? stackedBar(row, most, colours) : null),
    el("span", { class: "number" }, number),
    el("span", null, text),
  ];
  if (!row) return el("div", { class: "row" }, cells);
  return el("details", null, el("summary", { class: "row hot" }, cells), hotDetail(run, row));
}

const stackedBar = (row, most, colours) =>
  Object.entries(row.waits || {})
    .filter(([, share]) => isNumber(share))
    .sort((a, b) => b[1] - a[1])
    .map(([name, share]) =>
      el("i", { style: { width: `${(100 * share) / most}%`, background: colours.get(name) || "var(--quiet)" } }),
    );

function hotDetail(run, row) {
  const waits = Object.entries(row.waits || {})
    .filter(([, share]) => isNumber(share) && share >= 0.0005)
    .sort((a, b) => b[1] - a[1])
    .map(([name, share]) => `${name} ${percent(share)}`);
  const frames = (frames) => rowsOf(frames).map((one) => `${String(one.file).split("/").pop()}:${one.line} ${percent(one.share)}`);
  const facts = [
    ["warps", waits.join(", ")],
    ["issued", isNumber(row.issued) ? `${whole(row.issued)} instructions` : ""],
    ["global memory", row.bytes ? [quantity(row.bytes, "B"), efficiency(row.coalescing, "coalesced")].join("") : ""],
    ["shared memory", row.shared_bytes ? [quantity(row.shared_bytes, "B"), efficiency(row.bank_efficiency, "of its passes over the banks are needed")].join("") : ""],
    ["inlined there", frames(row.inner).join(", ")],
    ["called at", frames(row.callers).join(", ")],
    ["part of the time", isNumber(row.time_ps) ? duration(row.time_ps) : ""],
  ].filter(([, value]) => value);
  const known = new Map(rowsOf(run.views.stalls).map((one) => [one.line, one]));
  const instructions = (Array.isArray(row.lines) ? row.lines : []).map((line) => known.get(line)).filter(Boolean);
  return el(
    "div",
    { class: "detail" },
    facts.map(([name, value]) => el("div", null, el("span", { class: "quiet" }, `${name}: `), value)),
    instructions.map((one) =>
      el("div", { class: "code" }, el("span", { class: "quiet" }, `text ${one.line}  ${percent(one.share)}  `), String(one.text || "")),
    ),
  );
}

const efficiency = (share, word) => (isNumber(share) && share < 0.995 ? `, ${percent(share, 0)} ${word}` : "");
