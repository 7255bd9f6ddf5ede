// The timeline: what is shown of it, and what hands and keys do to it.

class TimelineView extends TimelineSpans {
  constructor(run, line, seen) {
    super();
    this.run = run;
    this.line = line;
    this.seen = seen;
    this.from = 0;
    this.to = Math.max(1, line.total);
    this.colourBy = "name";
    this.chosen = null;
    this.site = -1;
    this.showPath = true;
    this.showFlows = true;
    this.filter = "";
    this.hits = null;
    this.sourceRows = new Map();
    this.onlyPath = false;
    this.drawn = 0;
    this.keysId = `timeline-keys-${page.serial++}`;
    this.canvas = el("canvas", { role: "img", "aria-label": "timeline: spans of every lane" });
    this.spacer = el("div");
    this.box = el(
      "div",
      {
        class: "lanes",
        tabindex: 0,
        role: "application",
        "aria-label": "timeline",
        "aria-describedby": this.keysId,
      },
      this.canvas,
      this.spacer,
    );
    this.status = el("div", { class: "status" });
    this.detail = el("div", { class: "detail", role: "status", "aria-live": "polite" });
    this.cut = el("p", { class: "note paper" });
    this.legend = el("div", { class: "legend" });
    this.classify();
    this.layout();
    this.listen();
  }

  // What is shown

  // Names (or lines) with most time get a colour each, the rest share one; a chosen line stands alone.
  classify() {
    const { line } = this;
    const keys = this.colourBy === "site" ? line.site : line.name;
    // "waits for 'full' phase 3" and "waits for 'empty' phase 0" are both waits
    const labels = this.colourBy === "site" ? line.sites.map(placeName) : line.names.map((name) => name.split(" '")[0]);
    const spent = new Map();
    for (let i = 0; i < keys.length; i++)
      spent.set(labels[keys[i]], (spent.get(labels[keys[i]]) || 0) + line.finish[i] - line.start[i]);
    const order = [...spent.keys()].sort((a, b) => spent.get(b) - spent.get(a));
    const places = new Map(order.slice(0, CLASSES - 1).map((label, place) => [label, place]));
    this.keys = keys;
    this.table = Uint8Array.from(labels, (label) => places.get(label) ?? CLASSES - 1);
    this.sums = new Map();
    let entries = order.slice(0, CLASSES - 1).map((label, place) => [PALETTE[place], label]);
    if (order.length >= CLASSES) entries.push(["var(--other)", `${order.length - CLASSES + 1} others`]);
    if (this.hits) {
      const told = `${counted(this.hits.count, "span holds", "spans hold")} “${this.hits.text}”`;
      entries = [
        ["var(--accent)", `${told}, ${extent(line, this.hits.time)} in all`],
        ["var(--line)", "all else"],
      ];
    } else if (this.site >= 0)
      entries = [
        ["var(--accent)", `${placeName(line.sites[this.site])} ${line.sites[this.site].text}`],
        ["var(--line)", "all else (Escape shows its colours)"],
      ];
    this.legend.replaceChildren(
      ...entries.map(([colour, name]) =>
        el("span", null, el("i", { class: "swatch", style: { background: colour } }), name),
      ),
    );
  }

  classOf(i) {
    if (this.hits) return this.isHit(i) ? 0 : CLASSES - 1;
    if (this.site >= 0) return this.line.site[i] === this.site ? 0 : CLASSES - 1;
    return this.table[this.keys[i]];
  }

  // Running sums of time by class, of one lane, made when it is first looked at.
  sumsOf(lane) {
    let sums = this.sums.get(lane);
    if (sums) return sums;
    sums = new Float64Array((lane.count + 1) * CLASSES);
    for (let k = 0, i = lane.first; k < lane.count; k++, i++) {
      const here = k * CLASSES;
      for (let c = 0; c < CLASSES; c++) sums[here + CLASSES + c] = sums[here + c];
      sums[here + CLASSES + this.classOf(i)] += this.line.finish[i] - this.line.start[i];
    }
    this.sums.set(lane, sums);
    return sums;
  }

  layout() {
    const wanted = this.filter.toLowerCase();
    const onPath = new Set(this.line.path.lane);
    this.rows = [];
    this.hitOrder = null;
    let group = null;
    for (const [number, lane] of this.line.lanes.entries()) {
      if (this.onlyPath && !onPath.has(number)) continue;
      if (!lane.count || !`${lane.group} ${lane.name}`.toLowerCase().includes(wanted)) continue;
      if (lane.group !== group) this.rows.push({ group: (group = lane.group) });
      this.rows.push({ lane });
    }
    this.rowOf = new Map(this.rows.map((row, place) => [row.lane, place]));
    this.height = Math.max(AXIS + 3 * ROW, Math.min(AXIS + this.rows.length * ROW + 2, this.paper ? 900 : 560));
    this.box.style.height = `${this.height + 2}px`;
    this.spacer.style.height = `${Math.max(0, this.rows.length * ROW + AXIS - this.height)}px`;
  }

  // On paper nothing scrolls: more rows fit, and what does not is told.
  forPaper(on) {
    this.paper = on;
    this.layout();
    const fit = Math.floor((this.height - AXIS) / ROW);
    const all = this.rows.length;
    this.cut.textContent = all > fit ? `${whole(fit)} of ${whole(all)} rows are printed; choose lanes to print others.` : "";
  }

  setView(from, to) {
    const total = Math.max(1, this.line.total);
    const least = this.line.unit === "ps" ? 10 : 2;
    const length = Math.max(Math.min(least, total), Math.min(total, to - from));
    this.from = Math.max(0, Math.min(total - length, from));
    this.to = this.from + length;
    this.redraw();
    this.seen(this.from, this.to);
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.setView(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(share) {
    const by = share * (this.to - this.from);
    this.setView(this.from + by, this.to + by);
  }

  showLine(site) {
    this.site = site;
    this.classify();
    this.redraw();
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint();
    });
  }

  // Looking at one span

  spanAt(x, y) {
    const row = this.rows[Math.floor((y - AXIS + this.box.scrollTop) / ROW)];
    if (!row || !row.lane || y < AXIS || x < this.gutter) return null;
    const { lane } = row;
    const reachOf = (this.to - this.from) / (this.width - this.gutter);
    const t0 = this.time(x) - reachOf,
      t1 = t0 + 2 * reachOf;
    const end = lane.first + lane.count;
    const i0 = search(this.line.reach, t0, lane.first, end);
    const i1 = search(this.line.start, t1, i0, end, true);
    let best = null;
    for (let i = i0; i < Math.min(i1, i0 + 500); i++) {
      if (this.line.finish[i] < t0) continue;
      if (best === null || this.line.finish[i] - this.line.start[i] > this.line.finish[best] - this.line.start[best])
        best = i;
    }
    return best;
  }

  tell(i) {
    if (i === null) return;
    const site = this.line.sites[this.line.site[i]];
    const text = site ? `  ${placeName(site)}  ${site.text}` : "";
    this.status.replaceChildren(...this.brief(i), el("code", null, text));
  }

  choose(i, lead) {
    this.chosen = i;
    this.describe(i, lead);
    this.redraw();
  }

  // The next step of the critical path (or the one before) comes into view; from a chosen span on it, its neighbour.
  follow(direction) {
    const { path } = this.line;
    if (!path.start.length) return;
    const here = this.chosen === null ? -1 : this.stepOfSpan(this.chosen);
    const now = here >= 0 ? here : (this.at ?? (direction > 0 ? -1 : path.start.length));
    this.at = Math.max(0, Math.min(path.start.length - 1, now + direction));
    this.reveal(path.start[this.at], path.length[this.at], path.lane[this.at]);
    const span = this.spanOfStep(this.at);
    if (span !== null) return this.choose(span);
    this.choose(null);
    return this.detail.replaceChildren(...this.stepText(this.at));
  }

  // A step that is no span of its own (spans may be folded).
  stepText(k) {
    const { path, sites } = this.line;
    const site = sites[path.site[k]];
    return [
      el("b", null, path.names[path.name[k]]),
      `, ${extent(this.line, path.length[k])}. Step ${k + 1} of ${path.start.length} of the critical path; `,
      `waited last for: ${path.waits[path.waited_for[k]]}.`,
      site ? snippet(this.run, site, 1) : "",
    ];
  }

  around(from, to) {
    const margin = Math.max(0.25 * (to - from), this.line.total / 2000);
    this.setView(from - margin, to + margin);
  }

  reveal(start, length, lane) {
    const row = this.rowOf.get(this.line.lanes[lane]);
    if (row !== undefined) this.box.scrollTop = Math.max(0, row * ROW - this.height / 2);
    const margin = Math.max(length * 2, this.line.total / 2000);
    this.setView(start - margin, start + length + margin);
  }

  // Hands on it

  listen() {
    const { box, canvas } = this;
    const pointers = new Map();
    let moved = false;
    onResize(box, () => this.redraw());
    box.addEventListener("scroll", () => this.redraw());
    box.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event.offsetX);
      moved = false;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) return this.tell(this.spanAt(event.offsetX, event.offsetY));
      const before = [...pointers.values()].map((x) => this.time(x));
      const last = pointers.get(event.pointerId);
      if (Math.abs(event.offsetX - last) < 2 && !moved) return undefined;
      moved = true;
      pointers.set(event.pointerId, event.offsetX);
      return this.drag(before, [...pointers.values()]);
    });
    const lift = (event) => {
      if (pointers.delete(event.pointerId) && !moved && event.type === "pointerup")
        this.choose(this.spanAt(event.offsetX, event.offsetY));
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("dblclick", (event) => {
      const i = this.spanAt(event.offsetX, event.offsetY);
      if (i === null) return;
      const length = Math.max(1, this.line.finish[i] - this.line.start[i]);
      this.setView(this.line.start[i] - length, this.line.finish[i] + length);
    });
  }

  // Keep the moments that were under the fingers under the fingers.
  drag(before, after) {
    if (after.length === 1) {
      const by = before[0] - this.time(after[0]);
      return this.setView(this.from + by, this.to + by);
    }
    const apart = after[1] - after[0];
    if (Math.abs(apart) < 8) return undefined;
    const perPixel = Math.abs((before[1] - before[0]) / apart);
    const from = before[0] - (after[0] - this.gutter) * perPixel;
    return this.setView(from, from + perPixel * (this.width - this.gutter));
  }

  wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY * 0.004), this.time(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan((event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX) / this.width);
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowLeft: () => this.pan(-0.2),
      ArrowRight: () => this.pan(0.2),
      ArrowUp: () => {
        this.box.scrollTop -= 2 * ROW;
      },
      ArrowDown: () => {
        this.box.scrollTop += 2 * ROW;
      },
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      _: () => this.zoom(2),
      0: () => this.setView(0, this.line.total),
      Home: () => this.setView(0, this.to - this.from),
      End: () => this.setView(this.line.total, this.line.total + this.to - this.from),
      n: () => this.follow(1),
      p: () => this.follow(-1),
      "/": () => this.finder.focus(),
      Escape: () => {
        this.choose(null);
        this.showLine(-1);
      },
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

const placeName = (site) => (site ? `${site.short || site.file}:${site.line}` : "");

function timelinePart(run, line, seen) {
  const view = new TimelineView(run, line, seen);
  const relay = () => {
    view.layout();
    view.redraw();
  };
  const toggle = (name, key) => {
    const made = button(
      name,
      () => {
        view[key] = !view[key];
        made.setAttribute("aria-pressed", view[key]);
        relay();
      },
      { "aria-pressed": view[key] },
    );
    return made;
  };
  const lanes = el("input", {
    type: "search",
    placeholder: "gemm, PE 3, …",
    "aria-label": "lanes whose name holds",
    oninput: () => {
      view.filter = lanes.value;
      relay();
    },
  });
  view.finder = spanFinder(view);
  const path = line.path.start.length > 0;
  const tools = el(
    "div",
    { class: "tools", role: "group", "aria-label": "timeline tools" },
    button("−", () => view.zoom(2), { "aria-label": "zoom out" }),
    button("+", () => view.zoom(0.5), { "aria-label": "zoom in" }),
    button("◀", () => view.pan(-0.5), { "aria-label": "earlier" }),
    button("▶", () => view.pan(0.5), { "aria-label": "later" }),
    button("whole run", () => view.setView(0, line.total)),
    path ? [toggle("critical path", "showPath"), toggle("only its lanes", "onlyPath")] : null,
    path ? [button("step before", () => view.follow(-1)), button("next step", () => view.follow(1))] : null,
    line.flows.source.length ? toggle("arrows", "showFlows") : null,
    colourChoice(view),
    el("label", null, "lanes", lanes),
    el("label", null, "spans", view.finder),
  );
  const fold = line.folded ? el("p", { class: "note" }, line.folded) : null;
  return { view, parts: [tools, view.legend, view.box, view.cut, view.status, view.detail, keysNote(view), fold] };
}

function colourChoice(view) {
  const options = [
    ["name", "operation"],
    ["site", "kernel line"],
  ];
  return choice("colour by", options, (value) => {
    view.colourBy = value;
    view.classify();
    view.redraw();
  });
}

// Typing marks spans; Enter goes to the next, shift and Enter to the one before.
function spanFinder(view) {
  const made = el("input", {
    type: "search",
    placeholder: "name or line text",
    "aria-label": "spans whose name or source line holds; Enter goes to the next",
    oninput: () => view.find(made.value),
    onkeydown: (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      view.nextHit(event.shiftKey ? -1 : 1);
    },
  });
  return made;
}

function keysNote(view) {
  const key = (...names) => names.flatMap((name) => [el("kbd", null, name), " "]);
  const path = view.line.path.start.length;
  return el(
    "p",
    { class: "note keys", id: view.keysId },
    key("←", "→"),
    "pan, ",
    key("+", "−"),
    "zoom, ",
    key("0"),
    "whole run, ",
    key("↑", "↓"),
    "lanes, ",
    path ? [key("n", "p"), "along the critical path (the line below lanes), "] : null,
    key("/"),
    "find spans, ",
    "click a span for its line and what it waited for, ",
    "drag to pan, ctrl+wheel or two fingers to zoom, double click to go to a span. ",
    view.line.unit === "ps"
      ? "The height of a column is the share of its time in which the lane was busy."
      : "Positions are the order of events: lengths here are no time.",
  );
}
