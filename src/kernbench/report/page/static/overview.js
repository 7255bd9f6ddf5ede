// The whole run at a glance, above the timeline: how busy each kind of engine was, and which part the timeline shows.

const STRIP = 22,
  STRIPS = 8,
  BINS = 400;

class Overview {
  constructor(view) {
    this.view = view;
    const { line } = view;
    const kinds = kindsOf(line);
    this.left = kinds.length - STRIPS;
    const bins = Math.min(BINS, Math.max(1, Math.round(line.total)));
    const width = line.total / bins;
    this.strips = kinds.slice(0, STRIPS).map(({ kind, lanes, busy }) => ({
      kind,
      count: lanes.length,
      mean: busy / (lanes.length * line.total),
      shares: Float64Array.from({ length: bins }, (_, k) => {
        let sum = 0;
        for (const lane of lanes) if (lane.count) sum += busyBetween(line, lane, k * width, (k + 1) * width);
        return Math.min(1, sum / (width * lanes.length));
      }),
    }));
    this.height = this.strips.length * STRIP + 1;
    const told = this.strips.map(({ kind, mean }) => `${kind} ${percent(mean, 0)}`).join(", ");
    this.canvas = el("canvas", {
      class: "overview",
      role: "img",
      "aria-label": line.unit === "ps" ? `how busy engines were over time; on the whole: ${told}` : "lanes in use over the order of events",
    });
    this.listen();
    onResize(this.canvas, () => this.paint());
  }

  paint() {
    const { canvas, view } = this;
    const width = canvas.clientWidth;
    if (!width) return;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(this.height * ratio);
    canvas.style.height = `${this.height}px`;
    this.width = width;
    this.gutter = Math.min(170, Math.round(width * 0.28));
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.strips.forEach((strip, number) => this.paintStrip(context, strip, number * STRIP));
    this.paintWindow(context);
    context.fillStyle = css("--line");
    context.fillRect(this.gutter - 1, 0, 1, this.height);
    view.overviewDrawn = true;
  }

  paintStrip(context, strip, y) {
    const wide = (this.width - this.gutter) / strip.shares.length;
    context.fillStyle = css("--line");
    context.fillRect(0, y + STRIP - 1, this.width, 1);
    context.fillStyle = css("--accent");
    strip.shares.forEach((share, k) => {
      const high = share > 0 ? Math.max(1, share * (STRIP - 5)) : 0;
      context.fillRect(this.gutter + k * wide, y + STRIP - 1 - high, wide + 0.4, high);
    });
    const mean = this.view.line.unit === "ps" ? percent(strip.mean, strip.mean < 0.1 ? 1 : 0) : "";
    const room = context.measureText("100 %").width + 12;
    context.fillStyle = css("--ink");
    context.fillText(fitted(context, `${strip.kind} × ${strip.count}`, this.gutter - room - 8), 6, y + STRIP / 2);
    context.fillStyle = css("--quiet");
    context.textAlign = "right";
    context.fillText(mean, this.gutter - 8, y + STRIP / 2);
    context.textAlign = "left";
  }

  // What the timeline does not show is veiled.
  paintWindow(context) {
    const { from, to, line } = this.view;
    const x = (at) => this.gutter + ((this.width - this.gutter) * at) / Math.max(1, line.total);
    const [a, b] = this.picking || (from <= 0 && to >= line.total ? [0, line.total] : [from, to]);
    context.globalAlpha = 0.62;
    context.fillStyle = css("--ground");
    context.fillRect(this.gutter, 0, x(a) - this.gutter, this.height);
    context.fillRect(x(b), 0, this.width - x(b), this.height);
    context.globalAlpha = 1;
    if (a <= 0 && b >= line.total) return;
    context.strokeStyle = css("--ink");
    context.lineWidth = 1.5;
    context.strokeRect(x(a), 0.75, Math.max(2, x(b) - x(a)), this.height - 1.5);
  }

  time(x) {
    const share = (x - this.gutter) / (this.width - this.gutter);
    return Math.max(0, Math.min(1, share)) * this.view.line.total;
  }

  // A drag takes a range, a click moves the view there, the pointer tells.
  listen() {
    const { canvas, view } = this;
    let began = null;
    canvas.addEventListener("pointerdown", (event) => {
      began = event.offsetX;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (began === null) return this.tell(event);
      const ends = [this.time(began), this.time(event.offsetX)].sort((a, b) => a - b);
      this.picking = Math.abs(event.offsetX - began) > 3 ? ends : null;
      return this.paint();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (began === null) return;
      began = null;
      const half = (view.to - view.from) / 2,
        at = this.time(event.offsetX);
      const [from, to] = this.picking || [at - half, at + half];
      this.picking = null;
      view.setView(from, to);
    });
    canvas.addEventListener("pointercancel", () => {
      began = this.picking = null;
      this.paint();
    });
  }

  tell(event) {
    const strip = this.strips[Math.floor(event.offsetY / STRIP)];
    if (!strip || event.offsetX < this.gutter) return;
    const { line } = this.view;
    const at = this.time(event.offsetX);
    const share = strip.shares[Math.min(strip.shares.length - 1, Math.floor((at / line.total) * strip.shares.length))];
    const lanes = counted(strip.count, "lane", "lanes");
    this.view.status.textContent =
      `${strip.kind} (${lanes}): ${percent(share, 0)} ${line.unit === "ps" ? "busy" : "in use"} around ${moment(line, at, line.total / 1000)}`;
  }
}
