// Two runs side by side: what changed, by how much, and where on the critical path.

function comparePart(held) {
  const [a, b] = held.names;
  const answers = held.answers.map(([name, x, y]) => [name, x, y, ""]);
  const numbers = held.numbers.map((row) => [row.name, row.a, row.b, changed(row.change, row.cost)]);
  return [
    el("p", null, el("b", null, held.summary)),
    held.warnings.map((text) => el("p", { class: "note bad" }, text)),
    el(
      "div",
      { class: "columns" },
      el(
        "div",
        { class: "scroll" },
        table(
          [
            ["", 0],
            [a, 1],
            [b, 1],
            ["change", 1],
          ],
          [...answers, ...numbers],
        ),
      ),
      held.settings.length
        ? el(
            "div",
            { class: "scroll" },
            el("h3", null, "what differs in how they were run"),
            table(
              [
                ["", 0],
                [a, 0],
                [b, 0],
              ],
              held.settings,
            ),
          )
        : null,
    ),
    shares("time by cause", a, b, held.causes),
    shares("critical path by what it was spent on", a, b, held.kinds),
    shares("critical path by kernel line", a, b, held.lines),
  ];
}

// More of a cost is bad; of other things, who knows.
const changed = (text, cost) =>
  el(
    "span",
    { class: text === "=" ? "quiet" : !cost ? "" : text.startsWith("+") ? "bad" : text.startsWith("-") ? "good" : "" },
    text,
  );

function shares(title, a, b, all) {
  if (!all.length) return null;
  const rows = all.filter((row) => row.a_ps !== row.b_ps);
  const equal = all.length - rows.length;
  if (!rows.length) return [el("h3", null, title), el("p", { class: "note" }, "the same in both")];
  const most = Math.max(1, ...rows.map((row) => Math.abs(row.b_ps - row.a_ps)));
  const bar = (row) => {
    const by = row.b_ps - row.a_ps;
    return draw(
      "svg",
      { width: 140, height: 10, role: "img", "aria-label": row.change },
      draw("rect", { x: 69.5, y: 0, width: 1, height: 10, fill: "var(--quiet)" }),
      draw("rect", {
        x: by < 0 ? 70 + (70 * by) / most : 70,
        y: 1,
        width: (70 * Math.abs(by)) / most,
        height: 8,
        fill: by < 0 ? "var(--good)" : "var(--bad)",
      }),
    );
  };
  const cells = rows.map((row) => [
    row.text ? [row.name, " ", el("code", { class: "quiet" }, row.text)] : row.name,
    duration(row.a_ps),
    duration(row.b_ps),
    changed(row.change, true),
    bar(row),
  ]);
  return [
    el("h3", null, title),
    el(
      "div",
      { class: "scroll" },
      table(
        [
          ["", 0],
          [a, 1],
          [b, 1],
          ["change", 1],
          ["less | more", 0],
        ],
        cells,
      ),
    ),
    equal ? el("p", { class: "note" }, `${equal} more are equal`) : null,
  ];
}
