// Finding spans by name or line, and telling of one span what is known: its line, what it waited for, what waited for it.

class TimelineSpans extends TimelinePainting {
  // Mark the spans whose name or source line holds the text; no text marks none.
  find(text) {
    const wanted = text.trim().toLowerCase();
    const { line } = this;
    this.hits = null;
    this.hitOrder = null;
    if (wanted) {
      const names = line.names.map((name) => name.toLowerCase().includes(wanted));
      const sites = line.sites.map((site) => `${placeName(site)} ${site.text}`.toLowerCase().includes(wanted));
      this.hits = { text: text.trim(), names, sites, count: 0, time: 0 };
      for (let i = 0; i < line.start.length; i++)
        if (this.isHit(i)) {
          this.hits.count++;
          this.hits.time += line.finish[i] - line.start[i];
        }
    }
    this.classify();
    this.redraw();
  }

  isHit(i) {
    return this.hits.names[this.line.name[i]] || this.hits.sites[this.line.site[i]];
  }

  // The next (or previous) span that was found, in order of time, on the lanes that are shown.
  nextHit(direction) {
    if (!this.hits || !this.hits.count) return;
    const { line } = this;
    if (!this.hitOrder) {
      const found = [];
      for (const { lane } of this.rows)
        for (let i = lane ? lane.first : 0; lane && i < lane.first + lane.count; i++) if (this.isHit(i)) found.push(i);
      this.hitOrder = found.sort((a, b) => line.start[a] - line.start[b] || a - b);
    }
    const order = this.hitOrder;
    if (!order.length) return;
    const at = this.chosen === null ? -1 : order.indexOf(this.chosen);
    const next = at < 0 ? (direction > 0 ? 0 : order.length - 1) : (at + direction + order.length) % order.length;
    const i = order[next];
    this.reveal(line.start[i], line.finish[i] - line.start[i], this.laneNumber(i));
    this.choose(i, `${whole(next + 1)} of ${whole(order.length)} found: `);
  }

  laneNumber(i) {
    return this.line.lanes.findIndex((lane) => i >= lane.first && i < lane.first + lane.count);
  }

  laneOf(i) {
    return this.line.lanes[this.laneNumber(i)];
  }

  // The span of a step of the critical path, or null.
  spanOfStep(k) {
    const { path, lanes, start } = this.line;
    const lane = lanes[path.lane[k]];
    const end = lane.first + lane.count;
    for (let i = search(start, path.start[k], lane.first, end, true); i < end && start[i] === path.start[k]; i++)
      if (this.line.finish[i] === path.start[k] + path.length[k]) return i;
    return null;
  }

  // The step of the critical path that a span is, or -1.
  stepOfSpan(i) {
    const { path, start } = this.line;
    const lane = this.laneNumber(i);
    const first = search(path.start, start[i], 0, path.start.length, true);
    for (let k = first; k < path.start.length && path.start[k] === start[i]; k++)
      if (path.lane[k] === lane && this.spanOfStep(k) === i) return k;
    return -1;
  }

  // What this span waited for last, spans with an arrow to it, and those it has an arrow to.
  neighbours(i) {
    const { waits, flows } = this.line;
    const { source, target } = flows;
    const distance = waits ? waits.after[i] : 0;
    const from = distance ? [i - distance] : [],
      to = [];
    for (let k = 0; k < source.length; k++) {
      if (target[k] === i && source[k] !== i - distance) from.push(source[k]);
      if (source[k] === i) to.push(target[k]);
    }
    return { from, to };
  }

  brief(i) {
    const { line } = this;
    const lane = this.laneOf(i);
    return [
      el("b", null, line.names[line.name[i]]),
      ` on ${lane.group}, ${lane.name}: from ${moment(line, line.start[i], 1)} `,
      `for ${extent(line, line.finish[i] - line.start[i])}`,
    ];
  }

  // What held a span back, as far as the timeline knows it.
  waits(i) {
    const { line } = this;
    const lane = this.laneOf(i);
    const free = i > lane.first ? line.reach[i - 1] : 0;
    const idle = line.start[i] - free;
    const told = [];
    const step = this.stepOfSpan(i);
    if (step >= 0) {
      const why = line.path.waits[line.path.waited_for[step]];
      const lag = line.path.lag[step] ? `, ${extent(line, line.path.lag[step])} after it` : "";
      told.push(`Step ${whole(step + 1)} of ${whole(line.path.start.length)} of the critical path; waited last for: ${why}${lag}.`);
    } else if (line.waits) told.push(`Waited last for: ${line.waits.kinds[line.waits.kind[i]]}.`);
    if (idle > 0) told.push(`Its lane was idle for ${extent(line, idle)} before.`);
    else if (i > lane.first) told.push("It began as soon as its lane was free.");
    return told.join(" ");
  }

  goTo(i) {
    const { line } = this;
    return button(`${line.names[line.name[i]]} on ${this.laneOf(i).group}, ${this.laneOf(i).name}`, () => {
      this.reveal(line.start[i], line.finish[i] - line.start[i], this.laneNumber(i));
      this.choose(i);
      this.box.focus();
    });
  }

  // All that is known of the chosen span, below the timeline.
  describe(i, lead) {
    if (i === null) return this.detail.replaceChildren();
    const { line } = this;
    const site = line.sites[line.site[i]];
    const { from, to } = this.neighbours(i);
    const few = (spans) => spans.slice(0, 4).map((span) => [" ", this.goTo(span)]);
    return this.detail.replaceChildren(
      el("div", null, lead || "", this.brief(i), ". ", this.waits(i)),
      from.length ? el("div", null, "after:", few(from)) : "",
      to.length ? el("div", null, "before:", few(to)) : "",
      el(
        "div",
        { class: "tools" },
        el("code", null, placeName(site)),
        button("spans of this line", () => this.showLine(line.site[i])),
        this.sourceRows.has(line.site[i])
          ? button("its line on the critical path", () => this.sourceRows.get(line.site[i]).scrollIntoView({ block: "center" }))
          : null,
      ),
      site ? snippet(this.run, site, 1) : "",
    );
  }
}
