// The barrier pipeline of a PTX launch: roles, rings of mbarriers, who completes them and who waits. Order, not time.

const HOW = { arrive: "arrivals of", commit: "commits of", bytes: "copies begun by", wait: "" };

// Who did it, and at which instruction.
function pipelineUsers(title, held) {
  return el(
    "div",
    { class: "users" },
    el("div", { class: "quiet" }, title),
    held.length
      ? held.map((user) =>
          el(
            "div",
            null,
            `${HOW[user.how] ?? user.how} ${user.role}, line ${user.line}`.trim(),
            el("code", { class: "quiet", title: user.text }, String(user.text || "")),
          ),
        )
      : el("div", { class: "bad" }, "nobody"),
  );
}

// How the waits of one role went; a phase before the first is passed at once, by the barrier as it was made.
function waitText(wait) {
  const told = [];
  const [first, last] = wait.phases;
  if (wait.fresh) told.push("passed at once as the barrier was new");
  if (wait.phases.length && last >= 0) {
    const from = Math.max(0, first);
    told.push(from === last ? `phase ${last}` : `phases ${from} to ${last}`);
  }
  if (wait.passed)
    told.push(wait.parked ? `${whole(wait.parked)} of ${counted(wait.passed, "look", "looks")} had to wait` : "never had to wait");
  if (wait.stuck_in.length) told.push(`STUCK in phase ${wait.stuck_in.join(", ")}`);
  return told.join(", ");
}

function pipelineStage(held) {
  const stuck = Object.values(held.waits).some((wait) => wait.stuck_in.length);
  const bytes = held.bytes.length ? `, ${held.bytes.map(whole).join(" or ")} bytes each` : "";
  return el(
    "div",
    { class: stuck ? "stage stuck" : "stage" },
    el("code", null, held.barrier),
    el("div", null, `${counted(held.completed, "phase", "phases")} completed${bytes}`),
    Object.entries(held.waits).map(([role, wait]) =>
      el("div", { class: wait.stuck_in.length ? "bad" : "quiet" }, `${role}: ${waitText(wait)}`),
    ),
  );
}

function pipelinePart(view) {
  return [
    el(
      "p",
      { class: "note" },
      `${view.block}, in logical order: nothing here is time.`,
      view.complete ? null : " Only its beginning was followed.",
    ),
    el("div", { class: "roles" }, "roles: ", view.roles.map((role) => el("span", null, role.name))),
    view.rings.map((ring, number) =>
      el(
        "div",
        { class: "ring", role: "group", "aria-label": `ring ${number}` },
        el(
          "h3",
          null,
          `ring ${number}: ${counted(ring.stages.length, "mbarrier", "mbarriers")}, ` +
            `${counted(ring.arrivals, "arrival", "arrivals")} a phase`,
        ),
        pipelineUsers("completed by", ring.completed_by),
        el("div", { class: "arrow", "aria-hidden": true }, "→"),
        el("div", { class: "stages" }, ring.stages.map(pipelineStage)),
        el("div", { class: "arrow", "aria-hidden": true }, "→"),
        pipelineUsers("waited on by", ring.waited_on_by),
      ),
    ),
  ];
}
