// Lines of a kernel with what warps waited for there, and advice: what a change would save, and where.

const rowsOf = (value) => (Array.isArray(value) ? value.filter((row) => row && typeof row === "object") : []);

function linePlace(run, row) {
  const parts = [];
  const { source } = row;
  if (source && source.file) {
    const known = (run.sources || {})[source.file];
    const name = String((known && known.name) || source.file);
    parts.push(el("span", { title: name }, `${name.split("/").pop()}:${source.line}`));
  }
  if (isNumber(row.line)) parts.push(`${parts.length ? ", " : ""}text ${row.line}`);
  return parts;
}

function advicePart(run) {
  const { metrics } = run;
  const advice = rowsOf(metrics.advice).map((one) => [
    String(one.kind || ""),
    linePlace(run, one),
    duration(one.cost_ps),
    isNumber(one.cost_ps) && isNumber(metrics.time_ps) ? percent(one.cost_ps / metrics.time_ps) : "",
    [String(one.message || ""), el("div", { class: "quiet" }, String(one.hint || ""))],
    String(one.sure || ""),
  ]);
  const changes = rowsOf(metrics.changes).map((one) => [
    String(one.what || ""),
    percent(one.saves),
    String(one.needs || ""),
  ]);
  return [
    advice.length
      ? el(
          "div",
          { class: "scroll" },
          table(
            [
              ["advice", 0],
              ["where", 0],
              ["saves", 1],
              ["share", 1],
              ["what", 0],
              ["sure", 0],
            ],
            advice,
            { class: "advice" },
          ),
        )
      : null,
    changes.length
      ? table(
          [
            ["change", 0],
            ["saves", 1],
            ["needs", 0],
          ],
          changes,
        )
      : null,
    metrics.advice_note ? el("p", { class: "quiet" }, String(metrics.advice_note)) : null,
  ];
}

// As a GPU profiler shows them: warp cycles by line, and what each line's accesses use of what they touch.
function stallsPart(run) {
  const shown = rowsOf(run.views.stalls).filter((row) => !(row.share < 0.0005));
  const rows = shown.map((row) => {
    const waits = Object.entries(row.waits || {})
      .filter(([, share]) => isNumber(share) && share >= 0.0005)
      .sort((a, b) => b[1] - a[1]);
    return [
      [...linePlace(run, row), el("div", { class: "code" }, String(row.text || ""))],
      isNumber(row.share) ? meter(row.share) : "",
      percent(row.share),
      isNumber(row.issued) ? whole(row.issued) : "",
      waits
        .slice(0, 4)
        .map(([name, share]) => `${name} ${percent(share)}`)
        .join(", "),
      isNumber(row.bytes) ? quantity(row.bytes + (row.shared_bytes || 0), "B") : "",
      percent(row.coalescing, 0),
      percent(row.bank_efficiency, 0),
    ];
  });
  return el(
    "div",
    { class: "scroll" },
    table(
      [
        ["line", 0],
        ["", 0],
        ["of warp cycles", 1],
        ["issued", 1],
        ["warps waited for", 0],
        ["moved", 1],
        ["coalesced", 1],
        ["of banks", 1],
      ],
      rows,
      { class: "tight stalls" },
    ),
  );
}
