// Counters over time (uPlot), and how busy each kind of engine was.

function enginesTable(run, line) {
  const rows = kindsOf(line).map(({ kind, lanes }) => {
    const shares = lanes.map((lane) => busyBetween(line, lane, 0, line.total) / line.total);
    const mean = shares.reduce((a, b) => a + b, 0) / shares.length;
    return [
      kind,
      whole(lanes.length),
      meter(mean),
      percent(mean),
      percent(Math.min(...shares)),
      percent(Math.max(...shares)),
    ];
  });
  return table(
    [
      ["engine", 0],
      ["lanes", 1],
      ["busy", 0],
      ["mean", 1],
      ["least", 1],
      ["most", 1],
    ],
    rows,
  );
}

const RATE_UNITS = { gemm: "FLOP/s", math: "op/s", exp: "exp/s" };

function ratesTable(metrics) {
  const rates = Object.entries(metrics.rates || {}).filter(([, rate]) => rate.peak);
  if (!rates.length) return null;
  const rows = rates.map(([name, rate]) => {
    const unit = RATE_UNITS[name] || "B/s";
    return [
      name,
      quantity(rate.achieved, unit),
      quantity(rate.peak, unit),
      meter(Math.min(1, rate.achieved / rate.peak)),
      percent(rate.achieved / rate.peak),
    ];
  });
  return [
    el("h3", null, "achieved against peak"),
    table(
      [
        ["rate", 0],
        ["achieved", 1],
        ["peak", 1],
        ["", 0],
        ["of peak", 1],
      ],
      rows,
    ),
  ];
}

// A chart that is as wide as its place and takes the colours of the page.
function chart(host, options, data) {
  const axis = {
    stroke: () => css("--quiet"),
    grid: { stroke: () => css("--line"), width: 1 },
    ticks: { stroke: () => css("--line") },
    font: "11px system-ui",
  };
  const made = new uPlot(
    {
      width: Math.max(240, host.clientWidth || 600),
      height: 190,
      ...options,
      axes: options.axes.map((one) => ({ ...axis, ...one })),
    },
    data,
    host,
  );
  onResize(host, () => {
    if (host.clientWidth && host.clientWidth !== made.width)
      made.setSize({ width: host.clientWidth, height: made.height });
  });
  page.charts.push(made);
  return made;
}

function timeAxis(line) {
  return { values: (_, ticks) => ticks.map((at) => (line.unit === "ps" ? duration(at) : whole(at))), space: 70 };
}

async function counterChart(host, line, counter) {
  const { times, values } = await columns(counter, ["times", "values"]);
  const at = new Float64Array(times.length + 2),
    held = new Float64Array(times.length + 2);
  times.forEach((step, k) => {
    at[k + 1] = at[k] + step;
    held[k + 1] = values[k];
  });
  at[times.length + 1] = Math.max(line.total, at[times.length]);
  held[times.length + 1] = held[times.length];
  host.replaceChildren();
  return chart(
    host,
    {
      height: 150,
      scales: {
        x: { time: false, range: [0, Math.max(1, line.total)] },
        y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high * 1.1)] },
      },
      axes: [timeAxis(line), { size: 54 }],
      series: [
        {
          label: line.unit === "ps" ? "time" : "step",
          value: (_, v) => (v === null || v === undefined ? "" : moment(line, v)),
        },
        {
          label: counter.name,
          stroke: () => css("--accent"),
          width: 1.5,
          paths: uPlot.paths.stepped({ align: 1 }),
          points: { show: false },
          value: (_, v) => (v === null || v === undefined ? "" : whole(v)),
        },
      ],
    },
    [at, held],
  );
}

function countersPart(line, part) {
  const host = el("div");
  const show = (number) =>
    counterChart(host, line, line.counters[number]).catch((error) => page.problems.push(String(error)));
  // the one that changed most often says most
  const changes = (i) => (line.counters[i].times || {}).count || 0;
  const order = line.counters.map((_, i) => i).sort((a, b) => changes(b) - changes(a) || a - b);
  part.append(
    el(
      "div",
      { class: "tools" },
      choice(
        "counter",
        order.map((i) => [i, line.counters[i].name]),
        show,
      ),
    ),
    host,
  );
  page.later(() => show(order[0]));
}
