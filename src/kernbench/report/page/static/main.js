// The page: runs as tabs, each drawn when it is first looked at.

const held = JSON.parse(document.getElementById("data").textContent);
const page = {
  runs: held.runs,
  kinds: held.kinds,
  problems: [],
  charts: [],
  views: [],
  timelines: [],
  overviews: [],
  pending: [],
  serial: 0,
  busyBetween,
  later: (action) => page.pending.push(new Promise((done) => requestAnimationFrame(() => done(action())))),
};
window.kernbench = page;
window.addEventListener("error", (event) => page.problems.push(event.message));
window.addEventListener("unhandledrejection", (event) => page.problems.push(String(event.reason)));

async function showRun(run, panel) {
  // what needs no unpacking is there at once
  panel.append(section("Verdict", null, () => verdictPart(run)));
  if (Array.isArray(run.launches) && run.launches.length)
    panel.append(section("Launches", null, () => launchesPart(run)));
  if (run.findings.length) panel.append(section("Findings", null, () => findingsPart(run)));
  if (run.formal_notes.length) panel.append(section("Formal findings", null, () => formalPart(run)));
  if (Array.isArray(run.views.acknowledged) && run.views.acknowledged.length)
    panel.append(section("Acknowledged findings", null, () => acknowledgedPart(run)));
  // what is wrong comes before all that explains it
  if (run.right === false) showErrors(run, panel);
  if (isNumber(run.metrics.time_ps) && run.metrics.time_ps > 0 && run.metrics.floors_ps)
    panel.append(section("Limits: where the time goes", null, () => limitsPart(run)));
  if (rowsOf(run.metrics.advice).length || rowsOf(run.metrics.changes).length)
    panel.append(section("Advice", null, () => advicePart(run)));
  if (rowsOf(run.views.by_source).length)
    panel.append(section("Source: where the warps spend their cycles", null, () => hotSourcePart(run)));
  if (rowsOf(run.views.stalls).length)
    panel.append(section("Lines: what warps waited for", null, () => stallsPart(run)));
  const line = run.timeline ? await decodeTimeline(run.timeline) : null;
  if (line) for (const site of line.sites) site.short = (run.sources[site.file] || {}).name;
  const messages = run.views.messages
    ? await columns(run.views.messages, ["link", "start", "sent", "received"]).catch((error) => {
        page.problems.push(`messages: ${error}`);
        return null;
      })
    : null;
  const view = line && line.start.length ? timelineSections(run, line, panel) : null;
  if (view && line.path.start.length) panel.append(section("Critical path", null, () => sourcePart(run, line, view)));
  const { views } = run;
  if (view && views.mesh && views.mesh.pes.length)
    panel.append(section("Mesh", null, () => meshPart(run, line, messages, (from, to) => view.setView(from, to))));
  if (Array.isArray(views.tasks) && views.tasks.length)
    panel.append(section("Task graph", null, () => tasksPart(run, line, view && ((from, to) => view.around(from, to)))));
  if (views.pipeline) panel.append(section("Barrier pipeline", null, () => pipelinePart(views.pipeline)));
  const counts = countsOf(run);
  if (counts.single.length || counts.tables.length || counts.launches.length)
    panel.append(section("What the kernel did", null, () => countsPart(run)));
  if (run.right !== false) showErrors(run, panel);
  if (views.printf) panel.append(section("Printed by the kernel", null, () => printedPart([views.printf].flat())));
  panel.append(section("How it was run", null, () => originPart(run)));
  await Promise.all(page.pending.splice(0));
}

function showErrors(run, panel) {
  if ((run.comparison || []).some((one) => one.error_map))
    panel.append(section("Error against the golden", null, () => errorsPart(run)));
}

const MOST_PRINTED = 1000;

function printedPart(lines) {
  const more = lines.length - MOST_PRINTED;
  return [
    el(
      "pre",
      { class: "scroll" },
      lines
        .slice(0, MOST_PRINTED)
        .map((line) => String(line).replace(/\n?$/, "\n"))
        .join(""),
    ),
    more > 0 ? el("p", { class: "note" }, `and ${whole(more)} lines more`) : null,
  ];
}

function timelineSections(run, line, panel) {
  let overview = null;
  const { view, parts } = timelinePart(run, line, () => overview.paint());
  overview = new Overview(view);
  page.timelines.push(view);
  page.overviews.push(overview);
  panel.append(
    section(line.unit === "ps" ? "Timeline" : "Timeline (order, no time)", null, (part) => {
      part.append(overview.canvas, overviewNote(line, overview), ...parts.flat(Infinity).filter(Boolean));
      page.later(() => {
        view.paint();
        overview.paint();
      });
    }),
  );
  // how much of an order somebody fills says nothing of how busy he was
  if (line.unit === "ps")
    panel.append(
      section("Engines", null, () =>
        el(
          "div",
          { class: "columns" },
          el("div", { class: "scroll" }, enginesTable(run, line)),
          el("div", { class: "scroll" }, ratesTable(run.metrics)),
        ),
      ),
    );
  if (line.counters.length) panel.append(section("Counters over time", null, (part) => countersPart(line, part)));
  return view;
}

const overviewNote = (line, overview) =>
  el(
    "p",
    { class: "note" },
    line.unit === "ps"
      ? "How busy each kind of engine was, from 0 to 100 % of all its lanes. "
      : "How many lanes of a kind are in use at a step: order, no time. ",
    overview.left > 0 ? `${overview.left} kinds with less to do are left out. ` : "",
    el("span", { class: "screen" }, "Drag for a range, click to go there."),
  );

function originPart(run) {
  const shown = (value) =>
    value === null ? "none" : typeof value === "object" ? JSON.stringify(value).replaceAll(",", ", ") : String(value);
  const rows = (object) =>
    Object.entries(object).flatMap(([key, value]) => [
      el("dt", null, key.replaceAll("_", " ")),
      el(
        "dd",
        null,
        value !== null && typeof value === "object" && !Array.isArray(value)
          ? Object.entries(value)
              .map(([name, one]) => `${name} ${shown(one)}`)
              .join(", ") || "none"
          : shown(value),
      ),
    ]);
  const numbers = Object.fromEntries(Object.entries(run.metrics).filter(([, value]) => typeof value !== "object"));
  const outputs = Object.entries(run.outputs || {}).map(
    ([name, one]) => `${name} ${one && one.shape ? `${shown(one.shape)} ${one.dtype}` : shown(one)}`,
  );
  return [
    el("dl", null, rows(run.origin), rows({ outputs: outputs.join(", ") || "none" })),
    el("details", { class: "screen" }, el("summary", null, "all numbers"), el("dl", null, rows(numbers))),
  ];
}

// Tabs

const tabs = [];

function addTab(name, fill) {
  const number = tabs.length;
  const panel = el("div", {
    role: "tabpanel",
    id: `panel-${number}`,
    "aria-labelledby": `tab-${number}`,
    tabindex: -1,
    hidden: true,
  });
  const tab = el(
    "button",
    {
      type: "button",
      role: "tab",
      id: `tab-${number}`,
      "aria-controls": panel.id,
      "aria-selected": false,
      tabindex: -1,
      onclick: () => select(number),
      onkeydown: (event) => turn(event, number),
    },
    name,
  );
  // tabs are not printed
  panel.append(el("h2", { class: "paper", "aria-hidden": true }, name));
  tabs.push({ tab, panel, fill, made: null });
}

function turn(event, number) {
  const to = { ArrowRight: number + 1, ArrowLeft: number - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const next = (to + tabs.length) % tabs.length;
  select(next);
  tabs[next].tab.focus();
}

function select(number) {
  tabs.forEach(({ tab, panel }, i) => {
    tab.setAttribute("aria-selected", i === number);
    tab.tabIndex = i === number ? 0 : -1;
    panel.hidden = i !== number;
  });
  document
    .querySelectorAll("[data-run]")
    .forEach((row) => row.setAttribute("aria-current", Number(row.dataset.run) === number));
  const chosen = tabs[number];
  chosen.made =
    chosen.made ||
    Promise.resolve(chosen.fill(chosen.panel)).catch((error) => {
      page.problems.push(error.stack || String(error));
      chosen.panel.append(el("p", { class: "bad" }, `This run cannot be drawn: ${error.message}`));
    });
  return chosen.made;
}

// Light and dark

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const toggle = document.getElementById("theme");
  toggle.textContent = theme === "dark" ? "light" : "dark";
  toggle.setAttribute("aria-label", `use ${toggle.textContent} colours`);
  page.timelines.forEach((view) => {
    view.classify();
    view.paint();
  });
  page.overviews.forEach((one) => one.paint());
  page.charts.forEach((one) => one.redraw(false, true));
}

function begin() {
  const prefers = window.matchMedia("(prefers-color-scheme: dark)");
  let theme = prefers.matches ? "dark" : "light";
  document
    .getElementById("theme")
    .addEventListener("click", () => setTheme((theme = theme === "dark" ? "light" : "dark")));
  prefers.addEventListener("change", () => setTheme((theme = prefers.matches ? "dark" : "light")));
  // on paper nothing can be opened
  let opened = [];
  window.addEventListener("beforeprint", () => {
    page.timelines.forEach((view) => view.forPaper(true));
    setTheme("light");
    opened = [...document.querySelectorAll("details:not([open], .folded)")];
    opened.forEach((one) => one.setAttribute("open", ""));
  });
  window.addEventListener("afterprint", () => {
    page.timelines.forEach((view) => view.forPaper(false));
    setTheme(theme);
    opened.splice(0).forEach((one) => one.removeAttribute("open"));
  });
  setTheme(theme);
  if (held.compare.length)
    addTab("comparison", (panel) => {
      panel.append(
        ...held.compare.map((one) =>
          section(`${one.title} ${one.names.join(" and ")}`.trim(), null, () => comparePart(one)),
        ),
      );
    });
  held.runs.forEach((run) => addTab(run.title, (panel) => showRun(run, panel)));
  const list = el(
    "div",
    { role: "tablist", "aria-label": "runs", hidden: tabs.length < 2 },
    tabs.map(({ tab }) => tab),
  );
  document.getElementById("runs").append(list, ...tabs.map(({ panel }) => panel));
  document.querySelectorAll("[data-run] a").forEach((link) =>
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const number = Number(link.closest("[data-run]").dataset.run);
      select(number);
      tabs[number].tab.focus();
    }),
  );
  page.select = select;
  page.ready = select(held.first).then(() => {
    page.opened = performance.now();
  });
}

begin();
