// The three answers, the findings, and what the time is made of.

const ANSWERS = { true: ["yes", "good"], false: ["NO", "bad"], null: ["not asked", "quiet"] };

function answerCard(question, value, why) {
  const [word, colour] = ANSWERS[String(value)];
  return el(
    "div",
    null,
    el("div", { class: "question" }, question),
    el("div", { class: `answer ${colour}` }, word),
    el("div", { class: "why" }, why),
  );
}

function verdictPart(run) {
  const compared = run.comparison || [];
  const right = compared.length
    ? compared.map((one) =>
        el(
          "div",
          { class: one.passed ? "" : "bad" },
          one.passed
            ? `${one.name}: largest error ${measure(one.max_abs)}, relative L2 ${measure(one.relative_l2)}`
            : `${one.name}: ${one.reason}`,
        ),
      )
    : run.status === "finished"
      ? "no golden was asked"
      : `the run did not finish: ${run.status}`;
  const kinds = [...new Set(run.findings.map((one) => one.kind))];
  const safe = run.findings.length
    ? `${run.findings.length} ${run.findings.length === 1 ? "finding" : "findings"}: ${kinds.join(", ")}`
    : run.checked.length
      ? `nothing found; ${run.status}`
      : "no check ran";
  const known = Array.isArray(run.views.acknowledged) ? run.views.acknowledged.length : 0;
  return el(
    "div",
    { class: "verdict" },
    answerCard("right?", run.right, right),
    answerCard("safe?", run.safe, [
      safe,
      known ? el("div", null, `${known} acknowledged ${known === 1 ? "finding" : "findings"} not counted`) : null,
      run.checked.length ? el("div", { class: "quiet" }, `checked: ${run.checked.join(", ")}`) : null,
    ]),
    fastCard(run),
  );
}

function fastCard(run) {
  const { metrics } = run;
  const measured = isNumber(metrics.gpu_time_ns);
  const time = measured ? metrics.gpu_time_ns * 1000 : metrics.time_ps;
  const question = el("div", { class: "question" }, "how fast?");
  if (!isNumber(time)) {
    const why =
      run.right === false
        ? "a wrong result gets no time"
        : run.safe === false
          ? "an unsafe run gets no time"
          : run.timeline && run.timeline.unit === "order"
            ? "this target has an order, and no time"
            : "no time was asked, or this target has none";
    return el("div", null, question, el("div", { class: "answer quiet" }, "no time"), el("div", { class: "why" }, why));
  }
  const lines = [];
  if (measured) lines.push("measured on the GPU");
  if (isNumber(metrics.limit_ratio))
    lines.push(`${digits(metrics.limit_ratio, 3)} × the physical limit (${metrics.limit})`);
  if (isNumber(metrics.floor_ratio))
    lines.push(`${digits(metrics.floor_ratio, 3)} × the floor of its work; bound by ${metrics.bound}`);
  const repeats = metrics.repeats;
  if (repeats && isNumber(repeats.count))
    lines.push(`${duration(time * repeats.count)} for ${repeats.count} ${repeats.of}`);
  if (Array.isArray(metrics.launches_ps)) {
    const all = metrics.launches_ps.reduce((sum, [, ps]) => sum + ps, 0);
    lines.push(`the last of ${metrics.launches_ps.length} launches, ${duration(all)} in all`);
  }
  return el(
    "div",
    null,
    question,
    el("div", { class: "answer" }, duration(time)),
    el(
      "div",
      { class: "why" },
      lines.map((text) => el("div", null, text)),
    ),
  );
}

// Findings

function snippet(run, place, around) {
  const source = run.sources[place.file];
  const lines = [];
  for (const [first, texts] of source ? source.parts : []) {
    texts.forEach((text, i) => {
      if (Math.abs(first + i - place.line) <= around) lines.push([first + i, text]);
    });
  }
  if (!lines.length && place.text) lines.push([place.line, place.text]);
  return el(
    "div",
    { class: "snippet code" },
    lines.map(([number, text]) =>
      el("div", { class: number === place.line ? "row here" : "row" }, el("span", { class: "no" }, number), text),
    ),
  );
}

function placeBlock(run, role, place, around) {
  if (!place) return el("div", { class: "place" }, el("div", { class: "filename" }, `${role}: place unknown`));
  const title = `${role}: ${shortPlace(run, place)}${place.function ? ` in ${place.function}` : ""}`;
  return el("div", { class: "place" }, el("div", { class: "filename" }, title), snippet(run, place, around));
}

const shortPlace = (run, place) => `${(run.sources[place.file] || {}).name || place.file}:${place.line}`;

function findingCard(run, one, note) {
  const who = [one.ranks.length ? rankRanges(one.ranks) : "", one.count > 1 ? `${whole(one.count)} times` : ""]
    .filter(Boolean)
    .join(", ");
  const places = [
    one.where ? placeBlock(run, "here", one.where, 3) : null,
    ...one.others.map((other) => placeBlock(run, other.role, other.where, 1)),
  ];
  return el(
    "div",
    { class: note ? "finding known" : "finding" },
    el("div", null, el("span", { class: "kind" }, one.kind), who ? el("span", { class: "quiet" }, `  ${who}`) : null),
    el("div", { class: "quiet" }, page.kinds[one.kind] || ""),
    note ? el("p", null, el("b", null, "acknowledged: "), note) : null,
    el("pre", { class: "message" }, one.message),
    el("div", { class: "places" }, places),
    one.hint && !note ? el("p", null, el("b", null, "next: "), one.hint) : null,
  );
}

const findingsPart = (run) => run.findings.map((one) => findingCard(run, one, ""));

// Findings that somebody answers for, in the source or in a baseline file; they do not count.
const acknowledgedPart = (run) =>
  run.views.acknowledged.map((row) => findingCard(run, row.finding, `${row.reason} (${row.by})`));

// Limits

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
  ]);
  rows.push([el("b", null, "time"), el("b", null, duration(total)), ""]);
  return [
    bar,
    marksOf(metrics, total),
    el(
      "div",
      { class: "columns" },
      el(
        "div",
        null,
        el("h3", null, "time by cause"),
        table(
          [
            ["cause", 0],
            ["time", 1],
            ["share", 1],
          ],
          rows,
        ),
      ),
      el("div", null, el("h3", null, "floors and limits"), floorsTable(metrics, total)),
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
      ["", 0],
      ["", 0],
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
    el("h3", null, "what 10 % more would save (dispatch: if free)"),
    table(
      [
        ["of", 0],
        ["saves", 1],
      ],
      gains.map(([name, gain]) => [name, percent(gain)]),
    ),
  );
}
