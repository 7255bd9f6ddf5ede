// Painting lanes of spans on a canvas. Every pixel column of a lane shows exactly how long each kind of span ran in it,
// from running sums and binary search, so the cost of a picture depends on its pixels, not on the spans.

const ROW = 17,
  AXIS = 22,
  CLASSES = 8;
// more arrows than this hide what they point at
const MOST_FLOWS = 160;

class TimelinePainting {
  paint() {
    const began = performance.now();
    const width = this.box.clientWidth;
    if (!width) return;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const { canvas } = this;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(this.height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(this.height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${this.height}px`;
    }
    this.ratio = ratio;
    this.gutter = Math.min(170, Math.round(width * 0.28));
    this.width = width;
    this.colours = {
      ground: css("--ground"),
      panel: css("--panel"),
      ink: css("--ink"),
      quiet: css("--quiet"),
      line: css("--line"),
      accent: css("--accent"),
    };
    const context = canvas.getContext("2d", { alpha: false });
    this.paintSpans(context);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paintOver(context);
    this.drawn = performance.now() - began;
  }

  // Rows of the picture: place in `rows` and distance from the top.
  visible() {
    const top = this.box.scrollTop;
    const first = Math.max(0, Math.floor(top / ROW));
    const rows = [];
    for (let k = first; k < this.rows.length; k++) {
      const y = AXIS + k * ROW - top;
      if (y > this.height) break;
      rows.push([this.rows[k], y]);
    }
    return rows;
  }

  paintSpans(context) {
    const { canvas, ratio } = this;
    const image = context.createImageData(canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(word(this.colours.ground));
    const palette = [...PALETTE, css("--other")].map(word);
    if (this.site >= 0 || this.hits) {
      palette[0] = word(this.colours.accent);
      palette[CLASSES - 1] = word(this.colours.line);
    }
    const left = Math.round(this.gutter * ratio);
    for (const [row, y] of this.visible()) {
      if (!row.lane) continue;
      this.paintLane(
        row.lane,
        pixels,
        canvas.width,
        left,
        Math.round((y + 2) * ratio),
        Math.round((y + ROW - 2) * ratio),
        palette,
      );
    }
    // drawn, not put: printers replay what was drawn
    const sheet = new OffscreenCanvas(canvas.width, canvas.height);
    sheet.getContext("2d").putImageData(image, 0, 0);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(sheet, 0, 0);
  }

  paintLane(lane, pixels, stride, left, top, bottom, palette) {
    const { start, reach, finish, busy } = this.line;
    const end = lane.first + lane.count;
    // time busy before `at`, of the spans up to `j`, which begin before it
    const before = (j, at) => (j === lane.first ? 0 : busy[j] - busy[lane.first] - Math.max(0, reach[j - 1] - at));
    const perPixel = (this.to - this.from) / (stride - left);
    const sums = this.sumsOf(lane);
    const share = new Float64Array(CLASSES);
    const limit = pixels.length / stride;
    let i = search(reach, this.from, lane.first, end),
      j = search(start, this.from, lane.first, end, true);
    let done = before(j, this.from);
    for (let x = left; x < stride && i < end; x++) {
      const t0 = this.from + (x - left) * perPixel,
        t1 = t0 + perPixel;
      i = gallop(reach, t0, i, end, false);
      if (i >= end) break;
      j = gallop(start, t1, j, end, true);
      const now = before(j, t1),
        filled = (now - done) / perPixel;
      done = now;
      if (start[i] >= t1) continue;
      const a = (i - lane.first) * CLASSES,
        b = (j - lane.first) * CLASSES;
      let sum = 0;
      for (let c = 0; c < CLASSES; c++) share[c] = sums[b + c] - sums[a + c];
      if (start[i] < t0) share[this.classOf(i)] -= t0 - start[i];
      if (finish[j - 1] > t1) share[this.classOf(j - 1)] -= finish[j - 1] - t1;
      for (let c = 0; c < CLASSES; c++) sum += share[c] = Math.max(0, share[c]);
      // colours share what is filled as their times do; the smallest span leaves a pixel
      const scale = sum > 0 ? ((bottom - top) * Math.min(1, filled)) / sum : 0;
      let y = bottom - 1,
        reached = 0;
      for (let c = 0; c < CLASSES; c++) {
        if (share[c] <= 0) continue;
        reached += share[c] * scale;
        const stop = bottom - Math.max(1, Math.round(reached));
        for (; y >= stop && y >= 0; y--) if (y < limit) pixels[y * stride + x] = palette[c];
      }
      if (y === bottom - 1 && y >= 0 && y < limit) pixels[y * stride + x] = palette[this.classOf(i)];
    }
  }

  paintOver(context) {
    const rows = this.visible();
    this.paintLabels(context, rows);
    context.save();
    context.beginPath();
    context.rect(this.gutter, AXIS, this.width - this.gutter, this.height - AXIS);
    context.clip();
    for (const [row, y] of rows) if (row.lane) this.paintNames(context, row.lane, y);
    if (this.showFlows) this.paintFlows(context, rows);
    if (this.showPath) this.paintPath(context);
    this.paintChosen(context);
    context.restore();
    this.paintAxis(context);
  }

  x(at) {
    return this.gutter + ((at - this.from) / (this.to - this.from)) * (this.width - this.gutter);
  }

  time(x) {
    return this.from + ((x - this.gutter) / (this.width - this.gutter)) * (this.to - this.from);
  }

  paintLabels(context, rows) {
    const { ground, panel, ink, quiet, line } = this.colours;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const [row, y] of rows) {
      context.fillStyle = row.lane ? ground : panel;
      context.fillRect(0, y, row.lane ? this.gutter : this.width, ROW);
      context.fillStyle = row.lane ? quiet : ink;
      const text = row.lane ? row.lane.name : row.group;
      context.fillText(fitted(context, text, this.gutter - (row.lane ? 18 : 10)), row.lane ? 14 : 6, y + ROW / 2);
    }
    context.fillStyle = line;
    context.fillRect(this.gutter - 1, 0, 1, this.height);
  }

  // Spans that are wide enough are told apart and named.
  paintNames(context, lane, y) {
    const { line } = this;
    const end = lane.first + lane.count;
    const i0 = search(line.reach, this.from, lane.first, end);
    const i1 = search(line.start, this.to, i0, end, true);
    if ((i1 - i0) * 4 > this.width) return;
    context.font = "10.5px system-ui, sans-serif";
    for (let i = i0; i < i1; i++) {
      const a = Math.max(this.gutter, this.x(line.start[i])),
        b = Math.min(this.width, this.x(line.finish[i]));
      context.fillStyle = this.colours.ground;
      if (b - a > 3) context.fillRect(b - 1, y + 2, 1, ROW - 4);
      if (b - a < 26) continue;
      const plain = this.site < 0 && !this.hits;
      context.fillStyle = plain ? "#10151a" : this.classOf(i) ? this.colours.ink : this.colours.ground;
      context.fillText(fitted(context, line.names[line.name[i]], b - a - 6), a + 3, y + ROW / 2 + 0.5);
    }
  }

  paintPath(context) {
    const { path } = this.line;
    const first = Math.max(0, search(path.start, this.from, 0, path.start.length) - 1);
    const last = search(path.start, this.to, first, path.start.length);
    const top = this.box.scrollTop;
    context.fillStyle = context.strokeStyle = this.colours.ink;
    context.lineWidth = 1;
    const edge = new Map();
    let before = null;
    context.beginPath();
    for (let k = first; k < last; k++) {
      const row = this.rowOf.get(this.line.lanes[path.lane[k]]);
      if (row === undefined) {
        before = null;
        continue;
      }
      const y = AXIS + row * ROW - top + ROW - 3;
      const a = this.x(path.start[k]),
        b = Math.max(a + 1, this.x(path.start[k] + path.length[k]));
      if (before && before.y !== y && last - first < 3000) {
        context.moveTo(before.x, before.y);
        context.lineTo(a, y);
      }
      before = { x: b, y: y + 1 };
      if (b <= (edge.get(row) ?? -1)) continue;
      edge.set(row, b);
      context.fillRect(a, y, b - a, 2.5);
    }
    context.globalAlpha = 0.55;
    context.stroke();
    context.globalAlpha = 1;
  }

  paintFlows(context, rows) {
    const { flows, lanes, start, finish } = this.line;
    if (this.laneAt === undefined) {
      this.laneAt = new Int32Array(start.length);
      lanes.forEach((lane, number) => this.laneAt.fill(number, lane.first, lane.first + lane.count));
    }
    const shown = [];
    for (let k = 0; k < flows.source.length && shown.length <= MOST_FLOWS; k++) {
      const a = flows.source[k],
        b = flows.target[k];
      if (finish[b] >= this.from && start[a] <= this.to) shown.push([a, b]);
    }
    if (shown.length > MOST_FLOWS || !rows.length) return;
    context.strokeStyle = this.colours.accent;
    context.globalAlpha = 0.6;
    context.beginPath();
    for (const [a, b] of shown) {
      const from = this.rowOf.get(lanes[this.laneAt[a]]),
        to = this.rowOf.get(lanes[this.laneAt[b]]);
      if (from === undefined || to === undefined) continue;
      const ya = AXIS + from * ROW - this.box.scrollTop + ROW / 2,
        yb = AXIS + to * ROW - this.box.scrollTop + ROW / 2;
      const xa = this.x(finish[a]),
        xb = this.x(finish[b]);
      context.moveTo(xa, ya);
      context.bezierCurveTo(xa + 12, ya, xb - 12, yb, xb, yb);
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  paintChosen(context) {
    if (this.chosen === null) return;
    const lane = this.laneOf(this.chosen);
    const row = this.rowOf.get(lane);
    if (row === undefined) return;
    const a = this.x(this.line.start[this.chosen]),
      b = Math.max(a + 2, this.x(this.line.finish[this.chosen]));
    context.strokeStyle = this.colours.ink;
    context.lineWidth = 2;
    context.strokeRect(a, AXIS + row * ROW - this.box.scrollTop + 1, b - a, ROW - 2);
  }

  paintAxis(context) {
    const { ground, quiet, line } = this.colours;
    context.fillStyle = ground;
    context.fillRect(0, 0, this.width, AXIS);
    context.fillStyle = line;
    context.fillRect(0, AXIS - 1, this.width, 1);
    context.font = "11px system-ui, sans-serif";
    const span = this.to - this.from;
    const wanted = Math.max(2, (this.width - this.gutter) / 110);
    const step = Math.max(this.line.unit === "ps" ? 0 : 1, niceStep(span / wanted));
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = this.x(at);
      context.fillStyle = line;
      context.fillRect(x, AXIS - 6, 1, 6);
      context.fillStyle = quiet;
      const text = moment(this.line, at, step);
      if (x + 3 + context.measureText(text).width < this.width) context.fillText(text, x + 3, AXIS / 2 - 1);
    }
    context.fillStyle = quiet;
    context.fillText(
      fitted(
        context,
        this.line.unit === "ps" ? `${extent(this.line, span)} shown` : "order, no time",
        this.gutter - 10,
      ),
      6,
      AXIS / 2 - 1,
    );
  }
}

// As `search`, from a place near the answer.
function gallop(values, limit, from, end, equal) {
  let step = 1,
    low = from,
    high = from;
  while (high < end && !(equal ? values[high] >= limit : values[high] > limit)) {
    low = high + 1;
    high += step;
    step *= 2;
  }
  return search(values, limit, low, Math.min(high, end), equal);
}

// A colour as the 32 bits of a pixel.
function word(colour) {
  const [r, g, b] = colour.match(/[0-9a-f]{2}/gi).map((two) => parseInt(two, 16));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const keep = Math.max(0, Math.floor((text.length * width) / context.measureText(text).width) - 1);
  return keep ? `${text.slice(0, keep)}…` : "";
}
