// The task graph of an npu run laid out in time: when each task was ready, when it ran, and what it waited for.

const TASK_ROW = 16,
  MOST_TASKS = 1200;

function tasksPart(run, line) {
  const all = run.views.tasks.filter((task) => isNumber(task.start_ps) && isNumber(task.finish_ps));
  const shown = all.slice(0, MOST_TASKS);
  const total = Math.max(1, (line && line.total) || 0, ...all.map((task) => task.finish_ps));
  const names = [...new Set(all.map((task) => task.name))];
  const colour = (name) => (names.indexOf(name) < PALETTE.length ? PALETTE[names.indexOf(name)] : "var(--other)");
  const width = 900,
    left = 150;
  const x = (ps) => left + ((width - left - 10) * ps) / total;
  const rowOf = new Map(shown.map((task, row) => [task.task, row]));
  const middle = (row) => row * TASK_ROW + TASK_ROW / 2;
  const edges = shown.flatMap((task, row) =>
    (task.after || [])
      .filter((other) => rowOf.has(other))
      .map((other) => {
        const binding = task.waited_for === other;
        const before = shown[rowOf.get(other)];
        const a = x(before.finish_ps),
          b = x(task.start_ps),
          ya = middle(rowOf.get(other)),
          yb = middle(row);
        return draw("path", {
          d: `M${a},${ya}C${a + 10},${ya} ${b - 10},${yb} ${b},${yb}`,
          fill: "none",
          stroke: binding ? "var(--accent)" : "var(--line)",
          "stroke-width": binding ? 1.6 : 1,
        });
      }),
  );
  const bars = shown.map((task, row) => {
    const times = [
      `ready ${duration(task.ready_ps)}`,
      `started ${duration(task.start_ps)}`,
      `finished ${duration(task.finish_ps)}`,
    ];
    const reason = `${task.reason}${isNumber(task.waited_for) ? ` of task ${task.waited_for}` : ""}`;
    const told = `${task.name}, task ${task.task}: ${times.join(", ")}; ${reason}; ${task.where}`;
    return draw(
      "g",
      null,
      draw("title", null, told),
      draw("text", { x: 4, y: middle(row) + 3.5 }, `${task.task} ${String(task.name).slice(0, 20)}`),
      draw("rect", {
        x: x(task.ready_ps || task.start_ps),
        y: middle(row) - 1,
        width: Math.max(0, x(task.start_ps) - x(task.ready_ps || task.start_ps)),
        height: 2,
        fill: "var(--quiet)",
      }),
      draw("rect", {
        x: x(task.start_ps),
        y: middle(row) - 5,
        width: Math.max(1.5, x(task.finish_ps) - x(task.start_ps)),
        height: 10,
        rx: 1,
        fill: colour(task.name),
      }),
    );
  });
  const picture = draw(
    "svg",
    {
      viewBox: `0 0 ${width} ${shown.length * TASK_ROW + 4}`,
      width,
      role: "img",
      "aria-label": `${all.length} tasks over ${duration(total)}`,
    },
    edges,
    bars,
  );
  const legend = el(
    "div",
    { class: "legend" },
    names
      .slice(0, PALETTE.length)
      .map((name) => el("span", null, el("i", { class: "swatch", style: { background: colour(name) } }), name)),
  );
  const cut = all.length > shown.length ? `The first ${whole(shown.length)} of ${whole(all.length)} tasks. ` : "";
  return el(
    "div",
    { class: "tasks" },
    legend,
    el("div", { class: "picture", tabindex: 0, role: "region", "aria-label": "task graph" }, picture),
    el(
      "p",
      { class: "note" },
      `${cut}A thin line is the wait from ready to start; a blue edge is the dependence that a task waited for last. ` +
        `${duration(total)} in all.`,
    ),
    el(
      "div",
      { class: "columns" },
      reasonsTable(all),
      el("details", null, el("summary", null, "tasks as a table"), el("div", { class: "scroll" }, tasksTable(all))),
    ),
  );
}

function reasonsTable(tasks) {
  const reasons = new Map();
  for (const task of tasks) {
    const held = reasons.get(task.reason) || { count: 0, waited: 0 };
    held.count++;
    held.waited += Math.max(0, task.start_ps - (isNumber(task.ready_ps) ? task.ready_ps : task.start_ps));
    reasons.set(task.reason, held);
  }
  const rows = [...reasons]
    .sort((a, b) => b[1].count - a[1].count)
    .map(([reason, held]) => [reason, whole(held.count), duration(held.waited)]);
  return el(
    "div",
    null,
    el("h3", null, "why tasks started only when they did"),
    table(
      [
        ["reason", 0],
        ["tasks", 1],
        ["from ready to start", 1],
      ],
      rows,
    ),
  );
}

function tasksTable(tasks) {
  const rows = tasks
    .slice(0, 300)
    .map((task) =>
      [
        task.task,
        task.name,
        task.blocks,
        duration(task.ready_ps),
        duration(task.start_ps),
        duration(task.finish_ps),
        task.reason,
        task.waited_for,
        task.where,
      ].map((cell) => (cell === null || cell === undefined ? "" : String(cell))),
    );
  return table(
    [
      ["task", 1],
      ["name", 0],
      ["blocks", 1],
      ["ready", 1],
      ["start", 1],
      ["finish", 1],
      ["reason", 0],
      ["of task", 1],
      ["submitted at", 0],
    ],
    rows,
  );
}

// The barrier pipeline of a PTX launch: roles, rings of mbarriers, who completes them and who waits. Order, not time.

const HOW = { arrive: "arrivals of", commit: "commits of", bytes: "copies begun by", wait: "" };

function pipelinePart(view) {
  const users = (title, held) =>
    el(
      "div",
      null,
      el("div", { class: "quiet" }, title),
      held.length
        ? held.map((user) =>
            el("div", { title: user.text }, `${HOW[user.how] ?? user.how} ${user.role}, line ${user.line}`),
          )
        : el("div", { class: "bad" }, "nobody"),
    );
  const waits = (wait) => {
    const [first, last] = wait.phases;
    const passed = wait.phases.length
      ? `phase${first === last ? "" : `s ${first} to`} ${last}, ${wait.parked} of ${wait.passed} had to wait`
      : "";
    return [passed, wait.stuck_in.length ? `STUCK in phase ${wait.stuck_in.join(", ")}` : ""]
      .filter(Boolean)
      .join("; ");
  };
  const stage = (held) => {
    const stuck = Object.values(held.waits).some((wait) => wait.stuck_in.length);
    return el(
      "div",
      { class: stuck ? "stage stuck" : "stage" },
      el("code", null, held.barrier),
      el(
        "div",
        null,
        `${held.completed} phases${held.bytes.length ? `, ${held.bytes.map(whole).join(" or ")} bytes each` : ""}`,
      ),
      Object.entries(held.waits).map(([role, wait]) =>
        el("div", { class: wait.stuck_in.length ? "bad" : "quiet" }, `${role}: ${waits(wait)}`),
      ),
    );
  };
  return [
    el(
      "p",
      { class: "note" },
      `${view.block}, in logical order: nothing here is time.`,
      view.complete ? null : " Only its beginning was followed.",
    ),
    el(
      "div",
      { class: "legend" },
      view.roles.map((role) => el("span", null, role.name)),
    ),
    view.rings.map((ring, number) => [
      el(
        "h3",
        null,
        `ring ${number}: ${counted(ring.stages.length, "mbarrier", "stages")}, ` +
          `${counted(ring.arrivals, "arrival", "arrivals")} a phase`,
      ),
      el(
        "div",
        { class: "ring" },
        users("completed by", ring.completed_by),
        el("div", { class: "stages" }, ring.stages.map(stage)),
        users("waited on by", ring.waited_on_by),
      ),
    ]),
  ];
}
