// The three answers.

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
    : run.views.compared
      ? comparedByProgram(run.views.compared)
    : run.status === "finished"
      ? "no golden was asked"
      : `the run did not finish: ${run.status}`;
  const kinds = [...new Set(run.findings.map((one) => one.kind))];
  const safe = run.findings.length
    ? `${run.findings.length} ${run.findings.length === 1 ? "finding" : "findings"}: ${kinds.join(", ")}`
    : run.checked.length
      ? run.status === "finished" ? "nothing was found" : `nothing was found; ${run.status}`
      : "no check ran";
  const known = Array.isArray(run.views.acknowledged) ? run.views.acknowledged.length : 0;
  return el(
    "div",
    { class: "verdict" },
    answerCard("right?", run.right, [right, run.right === true ? null : hintsOf(run)]),
    answerCard("safe?", run.safe, [
      safe,
      run.formal.length ? el("div", null, `${counted(run.formal.length, "formal finding", "formal findings")} not counted`) : null,
      known ? el("div", null, `${known} acknowledged ${known === 1 ? "finding" : "findings"} not counted`) : null,
      run.checked.length
        ? el(
            "details",
            null,
            el("summary", null, `${counted(run.checked.length, "check", "checks")} ran`),
            el("div", { class: "quiet" }, run.checked.join(", ")),
          )
        : null,
    ]),
    fastCard(run),
  );
}

// what the program of a kernel compared after its launches
function comparedByProgram({ times, wrong }) {
  const failed = Array.isArray(wrong) ? [...new Set(wrong)] : [];
  return el(
    "div",
    { class: failed.length ? "bad" : "" },
    `the program compared results ${counted(times, "time", "times")} after its launches: `,
    failed.length ? `wrong at ${failed.join(", ")}` : "right each time",
  );
}

// what is likely wrong with the arguments
function hintsOf(run) {
  const hints = Array.isArray(run.views.hints) ? run.views.hints : [];
  return hints.map((hint) => el("div", null, `note: ${hint}`));
}

function fastCard(run) {
  const { metrics } = run;
  const measured = isNumber(metrics.gpu_time_ns);
  const time = measured ? metrics.gpu_time_ns * 1000 : metrics.time_ps;
  const question = el("div", { class: "question" }, "how fast?");
  if (!isNumber(time))
    return el(
      "div",
      null,
      question,
      el("div", { class: "answer quiet" }, "no time"),
      el("div", { class: "why" }, String(run.untimed)),
    );
  const lines = [];
  if (measured) lines.push("measured on the GPU");
  if (isNumber(metrics.limit_ratio))
    lines.push(`${digits(metrics.limit_ratio, 3)} × the physical limit (${metrics.limit})`);
  if (isNumber(metrics.floor_ratio))
    lines.push(`${digits(metrics.floor_ratio, 3)} × the floor of the work it does (${metrics.bound})`);
  if (typeof metrics.limited_by === "string") lines.push(`bound by ${metrics.limited_by}`);
  const repeats = metrics.repeats;
  if (repeats && isNumber(repeats.count))
    lines.push(`${duration(time * repeats.count)} for ${repeats.count} ${repeats.of}`);
  const all = metrics.in_all;
  const launches = Array.isArray(run.launches) ? run.launches.length : 0;
  if (all && all.launches > 1)
    lines.push(
      `launch ${all.longest}${all.site ? ` (${all.site})` : ""}, which takes longest of ${whole(all.launches)}; ` +
        `${duration(all.time_ps)} for all of them`,
    );
  else if (launches) lines.push(`${launches} launches, one after the other`);
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

// Launches, where a run is of several

function launchesPart(run) {
  let begin = 0;
  const rows = run.launches.map((launch) => {
    const { metrics } = launch;
    const time = isNumber(metrics.gpu_time_ns) ? metrics.gpu_time_ns * 1000 : metrics.time_ps;
    const from = begin;
    if (isNumber(time)) begin += time;
    const count = isNumber(metrics.commands) ? metrics.commands : metrics.warp_instructions;
    return [
      String(launch.origin.kernel || "kernel"),
      launch.status,
      isNumber(count) ? whole(count) : "",
      isNumber(time) ? duration(from) : "",
      isNumber(time) ? duration(time) : "",
      Object.keys(launch.outputs).join(", "),
      ([...new Set(launch.findings.map((one) => one.kind))].join(", ") || "none") +
        (launch.formal.length ? ` (${launch.formal.length} formal)` : ""),
    ];
  });
  const head = [
    ["launch", 0],
    ["ended", 0],
    ["commands", 1],
    ["begins", 1],
    ["time", 1],
    ["outputs", 0],
    ["findings", 0],
  ];
  return el("div", { class: "scroll" }, table(head, rows));
}
