// Numbers as people read them.

const TIMES = [
  ["s", 1e12],
  ["ms", 1e9],
  ["us", 1e6],
  ["ns", 1e3],
  ["ps", 1],
];
const PREFIXES = [
  ["P", 1e15],
  ["T", 1e12],
  ["G", 1e9],
  ["M", 1e6],
  ["k", 1e3],
  ["", 1],
];

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const digits = (value, count) => String(Number(value.toPrecision(count)));

// A time; with `step`, with as many digits as tell two times apart that are `step` apart.
function duration(ps, step) {
  if (!isNumber(ps)) return "";
  const size = Math.abs(ps);
  const [unit, scale] = TIMES.find(([, s]) => size >= s) || TIMES[TIMES.length - 1];
  if (!step) return `${digits(ps / scale, 4)} ${unit}`;
  const places = Math.max(0, Math.min(9, Math.ceil(Math.log10(scale / step))));
  return `${(ps / scale).toFixed(places)} ${unit}`;
}

// A position on a timeline: a time, or where only order is known a step.
const moment = (line, at, step) =>
  line.unit === "ps" ? duration(at, step) : `step ${Math.round(at).toLocaleString("en")}`;
const extent = (line, length) =>
  line.unit === "ps" ? duration(length) : `${Math.round(length).toLocaleString("en")} steps`;

const percent = (share, places = 1) => (isNumber(share) ? `${(100 * share).toFixed(places)} %` : "");
const whole = (value) => (isNumber(value) ? value.toLocaleString("en") : String(value));

function quantity(value, unit) {
  if (!isNumber(value)) return String(value);
  const [prefix, scale] = PREFIXES.find(([, s]) => Math.abs(value) >= s) || PREFIXES[PREFIXES.length - 1];
  return `${digits(value / scale, 3)} ${prefix}${unit}`;
}

const measure = (value) => (isNumber(value) ? (value === 0 ? "0" : digits(value, 3)) : String(value));

const counted = (count, one, many) => `${whole(count)} ${count === 1 ? one : many}`;

function rankRanges(ranks) {
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  const runs = [];
  for (const rank of sorted) {
    const last = runs[runs.length - 1];
    if (last && last[1] === rank - 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  return `${sorted.length === 1 ? "rank" : "ranks"} ${runs.map(([a, b]) => (a === b ? a : `${a}-${b}`)).join(", ")}`;
}

// Steps of 1, 2 or 5 times a power of ten, at least `least` apart.
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least) || 10 * power;
}

// Colours that people tell apart whatever their eyes (Okabe and Ito), and a scale that grows in lightness (cividis).
const PALETTE = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#f0e442", "#7aa6ff"];
const RAMP = [
  [0, 32, 77],
  [65, 77, 107],
  [124, 123, 120],
  [188, 175, 111],
  [255, 234, 70],
];

function ramp(share) {
  const at = Math.max(0, Math.min(1, share)) * (RAMP.length - 1);
  const i = Math.min(RAMP.length - 2, Math.floor(at));
  return RAMP[i].map((low, k) => Math.round(low + (at - i) * (RAMP[i + 1][k] - low)));
}
const rgb = (triple) => `rgb(${triple.join(",")})`;
