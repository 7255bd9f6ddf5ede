// Where an output is off: the largest error of each block of it, in units of what is allowed there.

// Wrong elements, from just beyond the tolerance to the worst (or no number at all).
const WRONG = [
  [255, 205, 160],
  [140, 30, 0],
];
const beyond = (share) =>
  WRONG[0].map((low, k) => Math.round(low + (Number.isFinite(share) ? Math.min(1, share) : 1) * (WRONG[1][k] - low)));

async function errorMap(host, one) {
  const map = one.error_map;
  const values = await column(map.values);
  const [rows, across] = map.values.shape;
  const largest = values.reduce((most, value) => (Number.isFinite(value) ? Math.max(most, value) : most), 0);
  const top = Math.min(1, largest) || 1;
  const canvas = el("canvas", {
    width: across,
    height: rows,
    role: "img",
    "aria-label": `errors of ${one.name} by block; the largest is ${measure(largest)} of the tolerance`,
  });
  canvas.style.aspectRatio = `2 / ${Math.max(0.1, Math.min(1, (2 * rows) / across))}`;
  const sheet = new OffscreenCanvas(across, rows);
  const image = new ImageData(across, rows);
  const worst = Math.log10(Math.max(10, largest));
  values.forEach((value, i) =>
    image.data.set([...(value <= 1 ? ramp(value / top) : beyond(Math.log10(value) / worst)), 255], 4 * i),
  );
  sheet.getContext("2d").putImageData(image, 0, 0);
  canvas.getContext("2d").drawImage(sheet, 0, 0);
  const told = el(
    "p",
    { class: "status", role: "status" },
    `${whole(map.shape[0])} rows x ${whole(map.shape[1])} columns, in blocks of ${map.block.join(" x ")}`,
  );
  canvas.addEventListener("pointermove", (event) => {
    const c = Math.min(across - 1, Math.floor((event.offsetX / canvas.clientWidth) * across)),
      r = Math.min(rows - 1, Math.floor((event.offsetY / canvas.clientHeight) * rows));
    const range = (k, size, most) => `${k * size}-${Math.min(most, (k + 1) * size) - 1}`;
    const place = `rows ${range(r, map.block[0], map.shape[0])}, columns ${range(c, map.block[1], map.shape[1])}`;
    told.textContent = `${place}: largest error ${measure(values[r * across + c])} of the tolerance`;
  });
  const scale = el("span", {
    class: "ramp",
    style: { background: `linear-gradient(90deg, ${RAMP.map(rgb).join(",")})` },
  });
  host.append(
    el("h3", null, `${one.name} (${one.dtype})`),
    canvas,
    told,
    el(
      "p",
      { class: "note" },
      "0",
      scale,
      `${measure(top)} of the tolerance`,
      largest > 1 || values.some((v) => !Number.isFinite(v))
        ? [
            " ; wrong: 1",
            el("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${WRONG.map(rgb).join(",")})` } }),
            `${measure(10 ** worst)} times it or more`,
          ]
        : null,
    ),
  );
  if (one.ranks.length > 1) host.append(ranksTable(one));
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
