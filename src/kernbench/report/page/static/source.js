// The critical path beside the kernel's source: what each line is charged.

function pathByLine(line) {
  const { path } = line;
  const spent = new Map();
  for (let k = 0; k < path.start.length; k++) {
    const site = path.site[k];
    const held = spent.get(site) || { site, time: 0, ran: 0, waits: new Map() };
    held.time += path.lag[k] + path.length[k];
    held.ran += path.length[k];
    const why = path.waits[path.waited_for[k]];
    held.waits.set(why, (held.waits.get(why) || 0) + 1);
    spent.set(site, held);
  }
  return spent;
}

function sourcePart(run, line, view) {
  const spent = pathByLine(line);
  const files = new Map();
  for (const [site, held] of spent) {
    const place = line.sites[site];
    if (!place) continue;
    const file = files.get(place.file) || { time: 0, lines: new Map() };
    file.time += held.time;
    const before = file.lines.get(place.line);
    file.lines.set(place.line, before ? { ...before, time: before.time + held.time } : held);
    files.set(place.file, file);
  }
  const ordered = [...files].sort((a, b) => b[1].time - a[1].time);
  const listings = ordered.map(([file, held]) => listing(run, line, view, file, held));
  return el(
    "div",
    { class: "columns path" },
    el("div", null, listings),
    el("div", null, kindsTable(run, line), stretches(run, line, view)),
  );
}

function listing(run, line, view, file, held) {
  const source = run.sources[file];
  const name = (source && source.name) || file;
  const title = el("div", { class: "filename" }, `${name}: ${percent(held.time / line.total)} of the time`);
  const parts = source ? source.parts : [...held.lines].map(([number, one]) => [number, [line.sites[one.site].text]]);
  const rows = [];
  let before = 0;
  for (const [first, texts] of parts) {
    texts.forEach((text, i) => {
      const number = first + i;
      const near = [0, -1, 1, -2, 2, -3, 3].some((by) => held.lines.has(number + by));
      if (!near) return;
      if (before && number !== before + 1) rows.push(el("div", { class: "gap" }, "⋯"));
      before = number;
      rows.push(sourceRow(line, view, number, text, held.lines.get(number)));
    });
  }
  return [
    title,
    el("div", { class: "source code", tabindex: 0, role: "region", "aria-label": `critical path in ${name}` }, rows),
  ];
}

function sourceRow(line, view, number, text, held) {
  const share = held ? held.time / line.total : 0;
  const why = held
    ? [...held.waits]
        .sort((a, b) => b[1] - a[1])
        .map(([wait, times]) => `${wait} ${times} times`)
        .join(", ")
    : "";
  const row = el(
    "div",
    {
      class: held ? "row hot" : "row",
      title: held
        ? `ran ${extent(line, held.ran)}, waited ${extent(line, held.time - held.ran)}; last waited for: ${why}`
        : null,
    },
    el("span", { class: "share" }, held ? percent(share) : ""),
    el("span", { class: "heat" }, held ? el("i", { style: { width: `${Math.max(2, 100 * share)}%` } }) : null),
    held
      ? el(
          "button",
          { type: "button", "aria-label": `line ${number}, ${percent(share)}: show its spans in the timeline` },
          number,
        )
      : el("span", { class: "quiet", style: { textAlign: "right", paddingRight: "10px" } }, number),
    el("span", null, text),
  );
  if (held) {
    view.sourceRows.set(held.site, row);
    row.querySelector("button").addEventListener("click", () => {
      const on = row.getAttribute("aria-current") !== "true";
      row
        .closest(".path")
        .querySelectorAll('[aria-current="true"]')
        .forEach((other) => other.removeAttribute("aria-current"));
      if (on) row.setAttribute("aria-current", "true");
      view.showLine(on ? held.site : -1);
    });
  }
  return row;
}

function kindsTable(run, line) {
  const kinds = Object.entries(run.metrics.critical_path_ps || {}).sort((a, b) => b[1] - a[1]);
  if (!kinds.length) return null;
  const total = run.metrics.time_ps || line.total;
  const rows = kinds.map(([name, ps]) => [name, meter(ps / total), duration(ps), percent(ps / total)]);
  return [
    el("h3", null, "by what the time went to"),
    table(
      [
        ["work", 0],
        ["", 0],
        ["time", 1],
        ["share", 1],
      ],
      rows,
    ),
  ];
}

// Steps of the path by lane and line: how often it came through, how long it stayed, and where it stayed longest.
function stretches(run, line, view) {
  const { path } = line;
  const found = new Map();
  let last = null;
  for (let k = 0; k < path.start.length; k++) {
    const key = `${path.lane[k]} ${path.site[k]} ${path.name[k]}`;
    const held = found.get(key) || {
      lane: path.lane[k],
      site: path.site[k],
      name: path.names[path.name[k]],
      time: 0,
      visits: 0,
      longest: -1,
      waits: new Map(),
    };
    found.set(key, held);
    const length = path.lag[k] + path.length[k];
    const wait = path.waits[path.waited_for[k]];
    held.time += length;
    held.visits += last === held ? 0 : 1;
    held.waits.set(wait, (held.waits.get(wait) || 0) + length);
    if (length > held.longest) {
      held.longest = length;
      held.start = path.start[k] - path.lag[k];
    }
    last = held;
  }
  const rows = [...found.values()]
    .sort((a, b) => b.time - a.time)
    .slice(0, 14)
    .map((one) => {
      const lane = line.lanes[one.lane],
        site = line.sites[one.site];
      const [wait] = [...one.waits].sort((a, b) => b[1] - a[1])[0];
      const go = button(
        one.name,
        () => {
          view.reveal(one.start, one.longest, one.lane);
          view.box.scrollIntoView({ block: "center" });
        },
        { "aria-label": `${one.name}: show the longest of ${lane.group} ${lane.name} in the timeline` },
      );
      return [
        [go, el("div", { class: "quiet" }, site ? shortPlace(run, site).split("/").pop() : "")],
        [lane.name, el("div", { class: "quiet" }, lane.group)],
        whole(one.visits),
        [extent(line, one.time), el("div", { class: "quiet" }, percent(one.time / line.total))],
        wait,
      ];
    });
  const heads = [
    ["what, line", 0],
    ["lane", 0],
    ["visits", 1],
    ["time, share", 1],
    ["mostly after", 0],
  ];
  return [el("h3", null, "by lane; a name shows its longest span"), el("div", { class: "scroll" }, table(heads, rows, { class: "tight path-lanes" }))];
}
