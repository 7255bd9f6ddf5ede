// Two runs side by side: what changed, by how much, and where on the critical path.

function comparePart(held) {
  const [a, b] = held.names;
  const verdicts = table([["", 0], [a, 0], [b, 0]], held.answers.map(([name, x, y]) => [name, x, y]));
  const numbers = table([["", 0], [a, 1], [b, 1], ["change", 1]], held.numbers.map((row) => [row.name, row.a, row.b, changed(row.change)]));
  return [
    el("p", null, held.summary),
    held.warnings.map((text) => el("p", { class: "note bad" }, text)),
    el("div", { class: "columns" }, el("div", { class: "scroll" }, verdicts), el("div", { class: "scroll" }, numbers)),
    held.settings.length ? el("details", { open: true }, el("summary", null, "what differs in how they were run"), el("div", { class: "scroll" }, table([["", 0], [a, 0], [b, 0]], held.settings))) : null,
    held.causes.length ? [el("h3", null, "time by cause"), changeTable(a, b, held.causes)] : null,
    held.kinds.length ? [el("h3", null, "critical path by what it was spent on"), changeTable(a, b, held.kinds)] : null,
    held.lines.length ? [el("h3", null, "critical path by kernel line"), changeTable(a, b, held.lines)] : null,
  ];
}

const changed = (text) => el("span", { class: text.startsWith("+") ? "bad" : text.startsWith("-") ? "good" : "quiet" }, text);

function changeTable(a, b, rows) {
  const most = Math.max(1, ...rows.map((row) => Math.abs(row.b_ps - row.a_ps)));
  const bar = (row) => {
    const by = row.b_ps - row.a_ps;
    return draw("svg", { width: 140, height: 10, role: "img", "aria-label": row.change }, draw("rect", { x: 69.5, y: 0, width: 1, height: 10, fill: "var(--quiet)" }),
      draw("rect", { x: by < 0 ? 70 + (70 * by) / most : 70, y: 1, width: (70 * Math.abs(by)) / most, height: 8, fill: by < 0 ? "var(--good)" : "var(--bad)" }));
  };
  const cells = rows.map((row) => [row.text ? [row.name, " ", el("code", { class: "quiet" }, row.text)] : row.name, duration(row.a_ps) || "0", duration(row.b_ps) || "0", changed(row.change), bar(row)]);
  return el("div", { class: "scroll" }, table([["", 0], [a, 1], [b, 1], ["change", 1], ["less | more", 0]], cells));
}
