// The task graph of an npu run laid out in time: when each task was ready, when it ran, and what it waited for.

const TASK_ROW = 16,
  TASK_AXIS = 20,
  MOST_TASKS = 1200;

// Ticks of a time axis of `wide` units of drawing: where, and what is written there.
function axisTicks(total, wide) {
  const step = niceStep(Math.max(1, total / Math.max(2, wide / 110)));
  const ticks = [];
  for (let at = 0; at <= total; at += step) ticks.push([at, duration(at, step)]);
  return ticks;
}

function taskEdges(shown, rowOf, x, middle) {
  return shown.flatMap((task, row) =>
    (task.after || [])
      .filter((other) => rowOf.has(other))
      .map((other) => {
        const binding = task.waited_for === other;
        const a = x(shown[rowOf.get(other)].finish_ps),
          b = x(task.start_ps),
          ya = middle(rowOf.get(other)),
          yb = middle(row);
        return draw("path", {
          d: `M${a},${ya}C${a + 10},${ya} ${b - 10},${yb} ${b},${yb}`,
          fill: "none",
          stroke: binding ? "var(--accent)" : "var(--other)",
          "stroke-width": binding ? 1.8 : 0.7,
        });
      }),
  );
}

function taskText(task) {
  const times = [
    `ready ${duration(task.ready_ps)}`,
    `started ${duration(task.start_ps)}`,
    `finished ${duration(task.finish_ps)}`,
  ];
  const reason = `${task.reason}${isNumber(task.waited_for) ? ` of task ${task.waited_for}` : ""}`;
  const path = task.on_path_ps > 0 ? `; ${duration(task.on_path_ps)} of the critical path` : "";
  return `${task.name}, task ${task.task}: ${times.join(", ")}; started only then because: ${reason}${path}; ${task.where || ""}`;
}

function taskBar(task, y, x, fill, tell) {
  const ready = isNumber(task.ready_ps) ? task.ready_ps : task.start_ps;
  const width = Math.max(1.5, x(task.finish_ps) - x(task.start_ps));
  return draw(
    "g",
    { onclick: () => tell(task) },
    draw("title", null, taskText(task)),
    draw("rect", { x: 0, y: y - TASK_ROW / 2, width: x(0) + 900, height: TASK_ROW, fill: "transparent" }),
    draw("text", { x: 4, y: y + 3.5 }, `${task.task} ${String(task.name).slice(0, 20)}`),
    draw("rect", {
      x: x(ready),
      y: y - 1,
      width: Math.max(0, x(task.start_ps) - x(ready)),
      height: 2,
      fill: "var(--quiet)",
    }),
    draw("rect", { x: x(task.start_ps), y: y - 5, width, height: 10, rx: 1, fill }),
    task.on_path_ps > 0
      ? draw("rect", { x: x(task.start_ps), y: y + 4, width, height: 2.5, fill: "var(--ink)" })
      : null,
  );
}

function tasksPart(run, line, show) {
  const all = run.views.tasks.filter((task) => isNumber(task.start_ps) && isNumber(task.finish_ps));
  const shown = all.slice(0, MOST_TASKS);
  const total = Math.max(1, (line && line.total) || 0, ...all.map((task) => task.finish_ps));
  const names = [...new Set(all.map((task) => task.name))];
  const colour = (name) => (names.indexOf(name) < PALETTE.length ? PALETTE[names.indexOf(name)] : "var(--other)");
  const width = 1200,
    left = 150;
  const x = (ps) => left + ((width - left - 50) * ps) / total;
  const rowOf = new Map(shown.map((task, row) => [task.task, row]));
  const middle = (row) => TASK_AXIS + row * TASK_ROW + TASK_ROW / 2;
  const bottom = TASK_AXIS + shown.length * TASK_ROW + 4;
  const told = el("p", { class: "status screen", role: "status" }, "Click a task to see why it started when it did.");
  const tell = (task) => {
    told.textContent = taskText(task);
    if (show) show(task.start_ps, task.finish_ps);
  };
  const grid = axisTicks(total, width - left).map(([at, text]) => [
    draw("line", { x1: x(at), x2: x(at), y1: TASK_AXIS - 4, y2: bottom, stroke: "var(--line)", "stroke-width": 0.6 }),
    draw("text", { x: x(at) + 2, y: TASK_AXIS - 6 }, text),
  ]);
  const picture = draw(
    "svg",
    { viewBox: `0 0 ${width} ${bottom}`, role: "img", "aria-label": `${all.length} tasks over ${duration(total)}` },
    grid,
    taskEdges(shown, rowOf, x, middle),
    shown.map((task, row) => taskBar(task, middle(row), x, colour(task.name), tell)),
  );
  return el(
    "div",
    { class: "tasks" },
    tasksLegend(names, colour),
    el("div", { class: "picture", tabindex: 0, role: "region", "aria-label": "task graph" }, picture),
    told,
    el(
      "p",
      { class: "note" },
      all.length > shown.length ? `The first ${whole(shown.length)} of ${whole(all.length)} tasks. ` : "",
      "A thin line before a task is its wait from ready to start; a blue edge is the dependence it waited for last, ",
      "grey ones came sooner; a foot means the critical path ran through the task.",
    ),
    reasonsTable(all),
    el(
      "details",
      { class: "screen" },
      el("summary", null, "tasks as a table"),
      el("div", { class: "scroll" }, tasksTable(all)),
    ),
  );
}

function tasksLegend(names, colour) {
  const known = names.slice(0, PALETTE.length).map((name) => [colour(name), name]);
  if (names.length > PALETTE.length) known.push(["var(--other)", `${names.length - PALETTE.length} other names`]);
  return el(
    "div",
    { class: "legend" },
    known.map(([fill, name]) => el("span", null, el("i", { class: "swatch", style: { background: fill } }), name)),
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
  const cut = tasks.length > rows.length ? `The first ${whole(rows.length)} of ${whole(tasks.length)} tasks.` : "";
  const made = table(
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
  return [cut ? el("p", { class: "note" }, cut) : null, made];
}
