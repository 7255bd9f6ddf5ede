"""A GPU's file with the figures that were measured, and a page that says what was fitted from what, and how well."""

import os
from collections.abc import Iterator
from pathlib import Path

from kernbench.common.errors import MachineError
from kernbench.ptx.machine import MEASURED, SOURCES, Figure, Gpu, load

from .fit import Fit, fit
from .results import Results, ResultsError, read
from .steps import Fitted

TITLE = "# Figures of GPUs, and what they were measured with"
METHOD = """
`make calibrate` on a machine with a GPU runs the microbenchmarks of `benchmarks/calibration`, fits the figures of the
GPU's file from them, and writes that file and this page. It changes nothing of the card: clocks are as they are, and
the clock an SM had is kept beside every sample.

- **A microbenchmark** is a loop between two readings of the SM's clock. It is launched with two counts of turns, 30
  times each; a cost is the difference of the two medians by the difference of turns, so that readings, launches and
  tails cancel. Rates of the whole GPU are taken from events in the same way. Every kernel is checked for being right
  and safe on the emulator at a small size (`python -m benchmarks.calibration check`).
- **A fit** takes what earlier ones found as given: latencies of pipes first, then what loops cost, shared memory,
  barriers, memory, copies, tensor cores, bandwidth, launches, clocks. No figure is changed twice. Where rows are
  missing, the file keeps what it had, with its source.
- **The range** of a figure spans the estimates it is the median of, and at least the middle half of the launches. The
  *residual* is how far the worst row lies from the fit.

The decision is [ADR 39](adr/0039-gpu-figures-have-sources.md).

## What a model is held to

Microbenchmarks give figures; no kernel does. The kernels that a model of time is held to are apart, in
`benchmarks/truth`: decode attention, chunk output, other kernels of this project, and PTX that Triton and nvcc 13.0
made of sources beside it, from one wave to many. Six may be looked at while a model is made (`split = "tuning"` in
`points.toml`); the others were held out until they were compared once. `python -m benchmarks.truth OUT.jsonl` measures
them: L2 flushed before each launch, 20 launches to warm up, the median of 100, the clock right after.
"""
NOTHING = """
## Not measured yet

No GPU has been measured with these microbenchmarks yet: all figures of the four files are published by others or
assumed, but for two rates of the H200's memory, at which decode kernels and a copy were measured before. `kernbench
machine show h200` shows each with its range and source.
"""


def calibrated(results: Results) -> str:
    """With what figures were measured, in words for the file."""
    machine = results.machine
    return f"driver {machine['driver'] or machine['cuda_of_driver']}, ptxas {machine['ptxas'] or 'of the driver'}"


def accepted(gpu: Gpu, found: Fit) -> tuple[dict[str, Figure], dict[str, str]]:
    """Figures that the file may have; and, of the others, what is wrong."""
    keys = {name: key for name, key, _ in gpu.entries()}
    good: dict[str, Figure] = {}
    wrong = dict(found.missing)
    for one in found.fitted:
        figure = one.figure()
        if keys[one.name].unit == "bytes":
            value, low, high = (float(round(part)) for part in (figure, figure.low, figure.high))
            figure = Figure(value, low, high, MEASURED, one.benchmark)
        try:
            read = keys[one.name].read(figure)
            assert isinstance(read, Figure)
            good[one.name] = read
        except MachineError as error:
            wrong[one.name] = f"{float(figure):g} {error}; allowed: {keys[one.name].allowed}"
    return good, wrong


def table(gpu: Gpu, found: Fit, good: dict[str, Figure]) -> Iterator[str]:
    """A row for each figure that was measured, beside what the file had."""
    yield "| figure | was | measured | range | residual | rows | from |"
    yield "|---|---|---|---|---|---|---|"
    units = {name: key.unit for name, key, _ in gpu.entries()}
    for one in found.fitted:
        if one.name in good:
            yield _row(one, good[one.name], gpu.figures()[one.name], units[one.name])


def _row(one: Fitted, now: Figure, before: Figure, unit: str) -> str:
    contradicted = not before.low <= now <= before.high and before.source != MEASURED
    mark = f" **outside {before.low:g} to {before.high:g}**" if contradicted else ""
    cells = (
        f"`{one.name}`",
        f"{before:g} ({before.source})",
        f"{now:g} {unit}{mark}",
        f"{now.low:g} to {now.high:g}",
        f"{one.residual:.1%}",
        str(one.points),
        one.benchmark,
    )
    return f"| {' | '.join(cells)} |"


def page(gpu: Gpu, results: Results | None, found: Fit | None) -> str:
    """The page; without results it says that there are none."""
    if results is None or found is None:
        return f"{TITLE}\n{METHOD}{NOTHING}\n{sources(gpu)}"
    good, wrong = accepted(gpu, found)
    about = f"## {gpu.name}: {results.machine['gpu']}, {calibrated(results)}"
    parts = [
        TITLE,
        METHOD,
        about,
        "",
        *table(gpu, found, good),
        "",
        sources(gpu.with_figures(good, calibrated(results))),
    ]
    if wrong or results.failed:
        parts += ["## What was not fitted", "", *(f"- `{name}`: {why}" for name, why in wrong.items())]
        parts += [f"- `{row['benchmark']}` {row['parameters']}: {row['error']}" for row in results.failed]
    return "\n".join(parts).rstrip() + "\n"


def sources(gpu: Gpu) -> str:
    """How many figures of a GPU come from where."""
    rows = [f"| {source} | {SOURCES[source]} | {count} |" for source, count in gpu.sources().items()]
    head = f"Where the {len(gpu.figures())} figures of `{gpu.name}` come from:"
    return "\n".join([head, "", "| source | which means | figures |", "|---|---|---|", *rows, ""])


def fit_files(results: Path, machine: Path, out: Path) -> Fit:
    """Fit the figures of a GPU's file from results, and write the file and the page; nothing where results are bad."""
    gpu, measured = load(machine), read(results)
    if gpu.name not in measured.machine["gpu"].lower():
        raise ResultsError(f"{results}: measured on {measured.machine['gpu']}, but {machine} describes {gpu.name}")
    found = fit(measured, gpu)
    good, _ = accepted(gpu, found)
    text = page(gpu, measured, found)
    head = _comment(machine)
    _replace(machine, head + gpu.with_figures(good, calibrated(measured)).to_toml())
    _replace(out, text)
    return found


def _comment(machine: Path) -> str:
    """The first line of a file where it is a comment of its own."""
    first = machine.read_text(encoding="utf-8").splitlines(keepends=True)[0]
    return first if first.startswith("# ") and not first.startswith("# A GPU") else ""


def _replace(path: Path, text: str) -> None:
    """The whole file or nothing."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
