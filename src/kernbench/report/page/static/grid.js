// The mesh as a picture: PEs and links coloured by use, over the whole run or wave by wave.

// A message's wave is one more than the latest wave its sender had received when it sent: what must come after what.
function wavesOf(messages, links) {
  const events = [];
  for (let k = 0; messages && k < messages.link.length; k++) {
    const message = {
      link: links[messages.link[k]],
      start: messages.start[k],
      finish: Math.max(messages.sent[k], messages.received[k]),
      wave: 0,
    };
    if (message.link) events.push([message.start, 1, message], [message.finish, 0, message]);
  }
  events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const clock = new Map();
  const waves = [];
  for (const [, sends, message] of events) {
    if (!sends) {
      clock.set(message.link.to, Math.max(clock.get(message.link.to) || 0, message.wave));
      continue;
    }
    message.wave = 1 + (clock.get(message.link.from) || 0);
    const wave = waves[message.wave - 1] || (waves[message.wave - 1] = { from: Infinity, to: 0, messages: [] });
    wave.from = Math.min(wave.from, message.start);
    wave.to = Math.max(wave.to, message.finish);
    wave.messages.push(message);
  }
  return waves;
}

const linkColour = (share) => `color-mix(in srgb, var(--link-high) ${(100 * share).toFixed(1)}%, var(--link-low))`;

const CELL = 44,
  SPACE = 22;

class MeshView {
  constructor(run, line, messages, seen) {
    const mesh = run.views.mesh;
    this.line = line;
    this.seen = seen;
    this.rows = mesh.cube[0];
    this.columns = mesh.cube[1];
    this.pes = mesh.pes.map(([cube, pe, ...place]) => ({
      cube,
      pe,
      key: `cube ${cube} PE ${pe}`,
      ...this.centre(place),
    }));
    const at = new Map(this.pes.map((pe) => [pe.key, pe]));
    this.links = mesh.links.map(([c, p, direction, d, q, hops]) => ({
      name: `cube ${c} PE ${p} ${direction} to cube ${d} PE ${q}`,
      from: `cube ${c} PE ${p}`,
      to: `cube ${d} PE ${q}`,
      hops,
    }));
    this.at = at;
    this.lanesOf = new Map();
    for (const lane of line.lanes) {
      const key = lane.group === "links" ? lane.name : lane.group;
      this.lanesOf.set(key, [...(this.lanesOf.get(key) || []), lane]);
    }
    this.waves = wavesOf(messages, this.links);
    this.ranks = new Map(
      Object.entries(run.views.placement || {}).map(([rank, [cube, pe]]) => [`cube ${cube} PE ${pe}`, rank]),
    );
    this.kinds = [
      ...new Set(
        this.pes.flatMap((pe) =>
          (this.lanesOf.get(pe.key) || []).filter((lane) => lane.count).map((lane) => lane.kind),
        ),
      ),
    ];
    this.kind = this.kinds.includes("gemm") ? "gemm" : this.kinds[0];
    this.wave = 0;
    this.follow = false;
    this.build();
  }

  centre([cubeRow, cubeColumn, row, column]) {
    const wide = this.columns * CELL + 2 * SPACE,
      tall = this.rows * CELL + 2 * SPACE;
    return {
      cubeRow,
      cubeColumn,
      x: cubeColumn * wide + SPACE + (column + 0.5) * CELL,
      y: cubeRow * tall + SPACE + (row + 0.5) * CELL,
    };
  }

  build() {
    const wide = this.columns * CELL + 2 * SPACE,
      tall = this.rows * CELL + 2 * SPACE;
    const right = Math.max(...this.pes.map((pe) => (pe.cubeColumn + 1) * wide)),
      bottom = Math.max(...this.pes.map((pe) => (pe.cubeRow + 1) * tall));
    const cubes = [...new Map(this.pes.map((pe) => [pe.cube, pe])).values()];
    const frames = cubes.map((pe) =>
      draw("rect", {
        x: pe.cubeColumn * wide + 4,
        y: pe.cubeRow * tall + 4,
        width: wide - 8,
        height: tall - 8,
        rx: 4,
        fill: "none",
        stroke: "var(--line)",
      }),
    );
    const names = cubes.map((pe) =>
      draw("text", { class: "cube", x: pe.cubeColumn * wide + 9, y: pe.cubeRow * tall + 16 }, `cube ${pe.cube}`),
    );
    this.linkMarks = this.links
      .filter((link) => this.at.has(link.from) && this.at.has(link.to))
      .map((link) => {
        const title = draw("title");
        return {
          link,
          title,
          mark: draw("path", { d: this.way(link), fill: "none", "stroke-linecap": "round" }, title),
        };
      });
    this.peMarks = this.pes.map((pe) => {
      const title = draw("title"),
        label = draw("text", { x: pe.x, y: pe.y + 3.5, "text-anchor": "middle" });
      const mark = draw("rect", { x: pe.x - 13, y: pe.y - 11, width: 26, height: 22, rx: 3 }, title);
      return { pe, title, label, mark };
    });
    const box = `0 0 ${right} ${bottom}`;
    // on a phone it scrolls, rather than shrink until nobody can read it
    this.svg = draw(
      "svg",
      {
        viewBox: box,
        width: Math.min(760, Math.max(right, Math.min(1.7 * right, 620))),
        role: "img",
        "aria-label": "the mesh: PEs and links coloured by use",
        style: { minWidth: `${Math.min(right, 560)}px` },
      },
      frames,
      this.linkMarks.map((one) => one.mark),
      names,
      this.peMarks.map((one) => [one.mark, one.label]),
    );
    this.told = el("p", { class: "note", role: "status", "aria-live": "polite" });
    this.most = el("span");
    this.update();
  }

  // Both directions of a pair lie side by side; a link over several hops bends around what it passes.
  way(link) {
    const a = this.at.get(link.from),
      b = this.at.get(link.to);
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const ux = (b.x - a.x) / length,
      uy = (b.y - a.y) / length,
      side = 4;
    const x0 = a.x + ux * 13 - uy * side,
      y0 = a.y + uy * 13 + ux * side,
      x1 = b.x - ux * 15 - uy * side,
      y1 = b.y - uy * 15 + ux * side;
    const barb = (to) => `${x1 - ux * 5 - to * uy * 3},${y1 - uy * 5 + to * ux * 3}`;
    const head = `M${barb(1)}L${x1},${y1}L${barb(-1)}`;
    const bend = link.hops > 1 ? 12 + 0.08 * length : 0;
    return `M${x0},${y0}Q${(x0 + x1) / 2 - uy * bend},${(y0 + y1) / 2 + ux * bend} ${x1},${y1}${head}`;
  }

  use(key, kind, from, to) {
    const lanes = (this.lanesOf.get(key) || []).filter((lane) => kind === null || lane.kind === kind);
    if (!lanes.length || to <= from) return 0;
    return lanes.reduce((sum, lane) => sum + busyBetween(this.line, lane, from, to), 0) / (lanes.length * (to - from));
  }

  update() {
    const wave = this.wave ? this.waves[this.wave - 1] : null;
    const from = wave ? wave.from : 0,
      to = wave ? wave.to : this.line.total;
    const carried = new Map();
    for (const message of wave ? wave.messages : [])
      carried.set(message.link.name, (carried.get(message.link.name) || 0) + 1);
    for (const { pe, title, label, mark } of this.peMarks) {
      const works = this.lanesOf.has(pe.key);
      const share = this.use(pe.key, this.kind, from, to);
      const colour = ramp(share);
      mark.setAttribute("fill", works ? rgb(colour) : "none");
      mark.setAttribute("stroke", works ? "var(--quiet)" : "var(--line)");
      label.textContent = this.ranks.get(pe.key) ?? "";
      label.style.fill = colour[1] > 120 ? "#10151a" : "#ffffff";
      const rank = this.ranks.has(pe.key) ? `, rank ${this.ranks.get(pe.key)}` : "";
      title.textContent = `${pe.key}${rank}: ${works ? `${this.kind} busy ${percent(share)}` : "did nothing"}`;
    }
    const shares = new Map(this.linkMarks.map(({ link }) => [link, this.use(link.name, null, from, to)]));
    const busiest = Math.max(0, ...shares.values());
    for (const { link, title, mark } of this.linkMarks) {
      const share = shares.get(link);
      const on = wave ? carried.has(link.name) : share > 0;
      mark.style.stroke = on ? linkColour(busiest ? share / busiest : 0) : "var(--line)";
      mark.setAttribute("stroke-width", on ? 1.6 + 2.4 * (busiest ? share / busiest : 0) : 1);
      const count = wave ? `, ${counted(carried.get(link.name) || 0, "message", "messages")} of this wave` : "";
      title.textContent = `${link.name}: sending ${percent(share)}${count}`;
    }
    this.most.textContent = `${percent(busiest)} (the busiest here)`;
    this.told.textContent = wave
      ? `wave ${this.wave} of ${this.waves.length}: ${moment(this.line, from)} to ${moment(this.line, to)}, ` +
        `${counted(wave.messages.length, "message", "messages")}; links that carry it are coloured`
      : `whole run, ${extent(this.line, this.line.total)}; numbers in PEs are ranks`;
    if (wave && this.follow) this.seen(from, to);
  }

  step(to) {
    this.wave = Math.max(0, Math.min(this.waves.length, to));
    this.slider.value = this.wave;
    this.update();
  }
}

function meshPart(run, line, messages, seen) {
  const view = new MeshView(run, line, messages, seen);
  view.slider = el("input", {
    type: "range",
    min: 0,
    max: view.waves.length,
    value: 0,
    step: 1,
    "aria-label": "wave; 0 is the whole run",
    oninput: () => view.step(Number(view.slider.value)),
  });
  let playing = 0;
  const play = button("play", () => {
    if (playing) {
      clearInterval(playing);
      playing = 0;
      play.textContent = "play";
      return;
    }
    play.textContent = "stop";
    playing = setInterval(() => {
      view.step(view.wave >= view.waves.length ? 1 : view.wave + 1);
    }, 350);
  });
  const follow = el("input", {
    type: "checkbox",
    onchange: () => {
      view.follow = follow.checked;
      view.update();
    },
  });
  const waves = view.waves.length
    ? [
        button("◀", () => view.step(view.wave - 1), { "aria-label": "wave before" }),
        view.slider,
        button("▶", () => view.step(view.wave + 1), { "aria-label": "next wave" }),
        play,
        el("label", null, follow, "timeline follows"),
      ]
    : null;
  const scale = el("span", {
    class: "ramp",
    style: { background: `linear-gradient(90deg, ${RAMP.map(rgb).join(",")})` },
  });
  const links = el("span", {
    class: "ramp",
    style: { background: "linear-gradient(90deg, var(--link-low), var(--link-high))" },
  });
  page.views.push(view);
  return el(
    "div",
    { class: "mesh" },
    el(
      "div",
      { class: "tools" },
      choice(
        "engine",
        [view.kind, ...view.kinds.filter((kind) => kind !== view.kind)].map((kind) => [kind, kind]),
        (kind) => {
          view.kind = kind;
          view.update();
        },
      ),
      waves,
    ),
    el("div", { class: "picture scroll" }, view.svg),
    view.told,
    el(
      "p",
      { class: "note" },
      el("span", { class: "key" }, "PE: idle", scale, "busy all the time"),
      el("span", { class: "key" }, "link, sending: 0", links, view.most),
      view.waves.length ? "A message belongs to the wave after the last one its sender had received." : "",
    ),
  );
}
