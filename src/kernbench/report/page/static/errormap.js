// Where an output is off: the largest error of each block of it, in units of what is allowed there.

// Wrong elements, from just beyond the tolerance to the worst (or no number at all).
const WRONG = [
  [255, 205, 160],
  [140, 30, 0],
];
const beyond = (share) =>
  WRONG[0].map((low, k) => Math.round(low + (Number.isFinite(share) ? Math.min(1, share) : 1) * (WRONG[1][k] - low)));

const tolerances = (value) =>
  value > 1 ? `${whole(Number(digits(value, 3)))} times the tolerance` : `${measure(value)} of the tolerance`;

// A picture of the blocks, whose pixels the browser enlarges.
function errorCanvas(values, rows, across, largest, worst) {
  const top = Math.min(1, largest) || 1;
  const canvas = el("canvas", { width: across, height: rows, tabindex: 0, role: "img" });
  canvas.style.aspectRatio = `2 / ${Math.max(0.1, Math.min(1, (2 * rows) / across))}`;
  canvas.style.minHeight = `${Math.min(180, 18 * rows)}px`;
  const sheet = new OffscreenCanvas(across, rows);
  const image = new ImageData(across, rows);
  values.forEach((value, i) =>
    image.data.set([...(value <= 1 ? ramp(value / top) : beyond(Math.log10(value) / worst)), 255], 4 * i),
  );
  sheet.getContext("2d").putImageData(image, 0, 0);
  canvas.getContext("2d").drawImage(sheet, 0, 0);
  return canvas;
}

// Numbers of rows or columns along an edge of the picture; `size` elements make one of its `count` blocks.
function errorAxis(count, size, most, style) {
  const step = niceStep(Math.max(1, most / Math.min(6, Math.max(1, count))));
  const marks = [];
  for (let at = 0; at < most; at += step)
    marks.push(el("span", { style: { [style]: `${(100 * at) / (count * size)}%` } }, whole(at)));
  return el("div", { class: style === "left" ? "across" : "down", "aria-hidden": true }, marks);
}

// The block that holds the worst element: no number is worse than any number.
function worstBlock(values) {
  let at = 0;
  values.forEach((value, i) => {
    if (Number.isNaN(values[at])) return;
    if (Number.isNaN(value) || value > values[at]) at = i;
  });
  return at;
}

async function errorMap(host, one) {
  const map = one.error_map;
  const values = await column(map.values);
  const [rows, across] = map.values.shape;
  const largest = values.reduce((most, value) => (Number.isFinite(value) ? Math.max(most, value) : most), 0);
  const worst = Math.log10(Math.max(10, largest));
  const canvas = errorCanvas(values, rows, across, largest, worst);
  const at = worstBlock(values);
  const range = (k, size, most) => (size === 1 ? `${k}` : `${k * size}-${Math.min(most, (k + 1) * size) - 1}`);
  const place = (i) => {
    const r = Math.floor(i / across),
      c = i % across;
    const error = Number.isFinite(values[i]) ? tolerances(values[i]) : "no number";
    return `rows ${range(r, map.block[0], map.shape[0])}, columns ${range(c, map.block[1], map.shape[1])}: largest error ${error}`;
  };
  canvas.setAttribute("aria-label", `errors of ${one.name} by block; the worst: ${place(at)}`);
  const told = el("p", { class: "status", role: "status" }, `Worst block: ${place(at)}.`);
  const mark = el("i", {
    class: "worst",
    style: { left: `${(100 * ((at % across) + 0.5)) / across}%`, top: `${(100 * (Math.floor(at / across) + 0.5)) / rows}%` },
  });
  canvas.addEventListener("pointermove", (event) => {
    const c = Math.max(0, Math.min(across - 1, Math.floor((event.offsetX / canvas.clientWidth) * across))),
      r = Math.max(0, Math.min(rows - 1, Math.floor((event.offsetY / canvas.clientHeight) * rows)));
    told.textContent = `${place(r * across + c)[0].toUpperCase()}${place(r * across + c).slice(1)}.`;
  });
  host.append(
    el("h3", null, `${one.name} (${one.dtype})`),
    el("p", { class: one.passed ? "" : "bad" }, worstText(one)),
    el(
      "div",
      { class: "axes" },
      errorAxis(rows, map.block[0], map.shape[0], "top"),
      el("div", { class: "plot" }, canvas, mark),
      errorAxis(across, map.block[1], map.shape[1], "left"),
    ),
    errorLegend(map, values, largest, worst),
    told,
  );
  if (one.ranks.length > 1) host.append(ranksTable(one));
}

function worstText(one) {
  const exact = (value) => (isNumber(value) ? digits(value, 6) : String(value));
  const wrong = one.wrong ? `${whole(one.wrong)} of ${whole(one.elements)} elements are out of tolerance. ` : "";
  if (!Array.isArray(one.worst_index) || !one.worst_index.length) return wrong;
  const off = Math.abs(one.actual - one.expected);
  return (
    `${wrong}Worst element [${one.worst_index.join(", ")}]: ${exact(one.actual)}, golden ${exact(one.expected)}` +
    (isNumber(off) ? `, off by ${measure(off)} where ${measure(one.tolerance)} is allowed.` : ".")
  );
}

function errorLegend(map, values, largest, worst) {
  const scale = (colours) =>
    el("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${colours.map(rgb).join(",")})` } });
  const bad = largest > 1 || values.some((value) => !Number.isFinite(value));
  return el(
    "p",
    { class: "note" },
    `Rows are all axes but the last, ${whole(map.shape[0])}; columns the last, ${whole(map.shape[1])}; `,
    `a block is ${map.block.join(" x ")} elements; the ring is round the worst. `,
    el("span", { class: "key" }, "error: 0", scale(RAMP), `${measure(Math.min(1, largest) || 1)} of the tolerance`),
    bad
      ? el("span", { class: "key" }, "wrong: 1", scale(WRONG), `${whole(Number(digits(10 ** worst, 3)))} times it or more, or no number`)
      : null,
  );
}

function ranksTable(one) {
  const rows = one.ranks.map((rank) => [
    whole(rank.rank),
    measure(rank.max_abs),
    measure(rank.relative_l2),
    `[${rank.worst_index.join(", ")}]`,
    rank.wrong ? el("b", { class: "bad" }, whole(rank.wrong)) : "0",
    whole(rank.elements),
  ]);
  return el(
    "details",
    { open: !one.passed },
    el("summary", null, "by rank"),
    el(
      "div",
      { class: "scroll" },
      table(
        [
          ["rank", 1],
          ["largest error", 1],
          ["relative L2", 1],
          ["worst at", 0],
          ["wrong", 1],
          ["elements", 1],
        ],
        rows,
      ),
    ),
  );
}

function errorsPart(run) {
  const held = run.comparison.filter((one) => one.error_map);
  return el(
    "div",
    { class: "columns" },
    held.map((one) => {
      const host = el("div", { class: "errormap" });
      page.pending.push(errorMap(host, one).catch((error) => page.problems.push(`error map: ${error}`)));
      return host;
    }),
  );
}
