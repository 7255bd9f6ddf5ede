// What the time is made of: the binding floor, and the gap above it by cause.

function limitsPart(run) {
  const { metrics } = run;
  const total = metrics.time_ps;
  const bound = metrics.bound;
  const pieces = [[`${bound} floor`, metrics.floors_ps[bound], "var(--accent)"]];
  const causes = Object.entries(metrics.gap_ps || {})
    .filter(([, ps]) => ps > 0)
    .sort((a, b) => b[1] - a[1]);
  causes.forEach(([name, ps], i) => pieces.push([name, ps, i + 1 < PALETTE.length ? PALETTE[i + 1] : "var(--other)"]));
  const known = pieces.reduce((sum, [, ps]) => sum + ps, 0);
  if (known < total) pieces.push([causes.length ? "other" : "above the floor", total - known, "var(--other)"]);
  const bar = el(
    "div",
    {
      class: "bar",
      role: "img",
      "aria-label": `time by cause: ${pieces.map(([name, ps]) => `${name} ${percent(ps / total)}`).join(", ")}`,
    },
    pieces.map(([name, ps, colour], i) =>
      el(
        "span",
        {
          style: {
            width: `${(100 * ps) / total}%`,
            background: colour,
            color: i ? null : "var(--ground)",
            padding: ps / total < 0.08 ? "0" : null,
          },
          title: `${name}: ${duration(ps)}`,
        },
        ps / total < 0.08 ? "" : `${name} ${percent(ps / total, 0)}`,
      ),
    ),
  );
  const rows = pieces.map(([name, ps, colour]) => [
    [el("i", { class: "swatch", style: { background: colour } }), name],
    duration(ps),
    percent(ps / total),
    (run.explained || {})[name] || "",
  ]);
  rows.push([el("b", null, "time"), el("b", null, duration(total)), "", ""]);
  return [
    bar,
    marksOf(metrics, total),
    el("h3", null, "time by cause"),
    table(
      [
        ["cause", 0],
        ["time", 1],
        ["share", 1],
        [rows.some((row) => /\bit\b/.test(row[3])) ? `what it means; it: what binds, ${bound}` : "what it means", 0],
      ],
      rows,
      { class: "causes" },
    ),
    el(
      "div",
      { class: "columns" },
      el("div", { class: "scroll" }, el("h3", null, "floors and limits"), floorsTable(metrics, total)),
      sensitivity(metrics),
    ),
  ];
}

function marksOf(metrics, total) {
  const marks = [];
  if (metrics.limits_ps && isNumber(metrics.limits_ps[metrics.limit]))
    marks.push([
      `physical limit: ${metrics.limit} ${duration(metrics.limits_ps[metrics.limit])}`,
      metrics.limits_ps[metrics.limit],
      0,
    ]);
  marks.push([`achieved ${duration(total)}`, total, 15]);
  return el(
    "div",
    { class: "marks" },
    marks.map(([text, ps, top]) => {
      const share = Math.min(1, ps / total);
      const style =
        share > 0.6
          ? {
              right: `${100 - 100 * share}%`,
              borderLeft: "0",
              borderRight: "1.5px solid var(--ink)",
              padding: "1px 4px 0 0",
              paddingTop: `${top}px`,
            }
          : { left: `${100 * share}%`, paddingTop: `${top}px` };
      return el("span", { style }, text);
    }),
  );
}

function floorsTable(metrics, total) {
  const limits = Object.entries(metrics.limits_ps || {}).map(([name, ps]) => [name, "physical limit", ps]);
  const floors = Object.entries(metrics.floors_ps).map(([name, ps]) => [name, "floor of the work done", ps]);
  const rows = [...limits, ...floors]
    .sort((a, b) => b[2] - a[2])
    .map(([name, what, ps]) => [name, what, duration(ps), ps ? digits(total / ps, 3) : ""]);
  return table(
    [
      ["of", 0],
      ["kind", 0],
      ["time", 1],
      ["run is × this", 1],
    ],
    rows,
  );
}

function sensitivity(metrics) {
  const gains = Object.entries(metrics.sensitivity || {})
    .filter(([, gain]) => gain >= 0.001)
    .sort((a, b) => b[1] - a[1]);
  if (!gains.length) return null;
  return el(
    "div",
    null,
    el("h3", null, "what 10 % more of a rate would save"),
    table(
      [
        ["of", 0],
        ["saves", 1],
      ],
      gains.map(([name, gain]) => [name === "dispatch" ? "dispatch, if it were free" : name, percent(gain)]),
    ),
  );
}
