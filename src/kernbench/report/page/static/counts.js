// What a run counted: instructions, operations, bytes. Numbers that other parts show are not told again.

const COUNTED = {
  instructions_by_kind: "thread instructions by kind",
  commands_by_engine: "commands by engine",
  operations: "operations",
  bytes: "bytes by space",
};
const AMOUNTS = [
  "thread_instructions",
  "warp_instructions",
  "commands",
  "tasks",
  "blocks",
  "flops",
  "load_bytes",
  "store_bytes",
  "send_bytes",
  "scratch_peak_bytes",
];
const MOST_COUNTED = 14;

const amount = (name, value) =>
  /bytes/.test(name) ? quantity(value, "B") : name === "flops" ? quantity(value, "FLOP") : whole(value);

function countsOf({ metrics }) {
  const single = AMOUNTS.filter((name) => isNumber(metrics[name])).map((name) => [
    name.replace(/_bytes$/, "").replaceAll("_", " "),
    amount(name, metrics[name]),
  ]);
  const tables = Object.entries(COUNTED)
    .map(([key, title]) => {
      const held = metrics[key] !== null && typeof metrics[key] === "object" ? metrics[key] : {};
      const rows = Object.entries(held).filter(([, value]) => isNumber(value) && value > 0);
      return { key, title, rows: rows.sort((a, b) => b[1] - a[1]) };
    })
    .filter(({ rows }) => rows.length);
  const launches = Array.isArray(metrics.launches_ps) ? metrics.launches_ps : [];
  return { single, tables, launches };
}

function countsPart(run) {
  const { single, tables, launches } = countsOf(run);
  const heads = [
    ["of", 0],
    ["", 0],
    ["amount", 1],
  ];
  return el(
    "div",
    { class: "columns three" },
    launches.length ? launchesTable(launches) : null,
    single.length ? el("div", null, el("h3", null, "in all"), table([heads[0], heads[2]], single)) : null,
    tables.map(({ key, title, rows }) => {
      const most = rows[0][1];
      const shown = rows.slice(0, MOST_COUNTED);
      const cells = shown.map(([name, value]) => [name.replace(".", " "), meter(value / most), amount(key, value)]);
      return el(
        "div",
        { class: "scroll" },
        el("h3", null, title),
        table(heads, cells),
        rows.length > shown.length ? el("p", { class: "note" }, `and ${rows.length - shown.length} kinds more`) : null,
      );
    }),
  );
}

// All launches of the run, of which the other parts show the last.
function launchesTable(launches) {
  const rows = launches.slice(0, 100).map(([kernel, ps], i) => [whole(i + 1), String(kernel), duration(ps)]);
  rows.push(["", el("b", null, "all"), el("b", null, duration(launches.reduce((sum, [, ps]) => sum + ps, 0)))]);
  const heads = [
    ["launch", 1],
    ["kernel", 0],
    ["time", 1],
  ];
  return el("div", { class: "scroll" }, el("h3", null, "launches"), table(heads, rows));
}
