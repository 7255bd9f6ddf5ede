"""`kernbench run`: run a bundled bench or a file, and report whether it is right and safe."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kernbench.bench.running.orders import CHEAP
from kernbench.cli.arguments.completion import benches, panels
from kernbench.cli.arguments.options import (
    BLOCKS,
    DTYPE,
    HTML,
    JOBS,
    MACHINE,
    SCHEDULE,
    SEED,
    SETTINGS,
    SHAPES,
    STRICT,
    schedule_of,
)
from kernbench.cli.arguments.request import Request, chosen, parse_settings
from kernbench.cli.commands.algorithms import rank
from kernbench.cli.commands.report import write_page
from kernbench.cli.output.acknowledge import BASELINE, REASON, WRITE_BASELINE, known_findings, print_acknowledged
from kernbench.cli.output.console import FOUND, RIGHT_AND_SAFE, check_targets, errors, progress, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.cli.output.inside import DUMP, FIRST_WRONG, STOP_AT, check_first_wrong, check_options, stop_and_print
from kernbench.common.errors import BenchError, OtherHardwareError
from kernbench.report import (
    formal_text,
    launches_table,
    no_time_text,
    printed_text,
    run_text,
    runs_table,
    tasks_text,
    time_text,
    times_text,
    trace_bytes,
)
from kernbench.report.text.first_wrong import first_wrong_text
from kernbench.result.run import Run, write_bytes
from kernbench.safety.jobs import allow
from kernbench.targets.registry import listed

MAYBE = Annotated[
    str | None,
    typer.Argument(
        metavar="BENCH",
        help="A bench's name, or the path of a .py file that defines one; none with --kernels.",
        autocompletion=benches,
    ),
]
PLATFORM = Annotated[
    str | None,
    typer.Option(
        "--panel",
        "-p",
        metavar="NAME",
        help="One panel; without it all run. With --kernels the platform: sim, a2a3sim, a5sim.",
        autocompletion=panels,
    ),
]
DEVICE = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="Where it runs: emulator or cuda; short for --set device=..."),
]
SIZE = Annotated[
    str | None, typer.Option("--size", metavar="NAME", help="One of the bench's sizes, instead of the panels' own.")
]
ALL = Annotated[
    bool, typer.Option("--all-algorithms", help="Run every algorithm that does a panel's job, and rank them by time.")
]
STEPS = Annotated[
    int | None,
    typer.Option(
        "--max-steps",
        metavar="N",
        help="Commands one program may dispatch before it is stopped; without it they follow the size of the work.",
        min=1,
    ),
]
SECONDS = Annotated[
    float | None,
    typer.Option("--max-seconds", metavar="S", help="Seconds one program may go without a command.", min=0.01),
]
TOTAL = Annotated[
    float | None,
    typer.Option(
        "--max-total-seconds", metavar="S", help="Seconds of computing that a whole launch may take.", min=0.01
    ),
]
# the targets that support folders of kernels
_FOLDERS = " or ".join(row.name for row in listed() if row.folders)
TRACE = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write a Perfetto trace of the (last) run's timeline to this file."),
]
KERNELS = Annotated[
    Path | None,
    typer.Option(
        "--kernels",
        "-k",
        metavar="FOLDER",
        help=f"A folder of {_FOLDERS} kernels with their orchestration; needs --golden.",
    ),
]
GOLDEN = Annotated[
    Path | None,
    typer.Option(
        "--golden",
        "-g",
        metavar="FILE",
        help="The file with cases, inputs, reference and tolerance for --kernels.",
    ),
]
CASE = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="NAME", help="With --kernels: a case of the golden file, or all."),
]

SENSITIVITY = Annotated[
    bool,
    typer.Option("--sensitivity", help="Time large launches again, too, for what higher rates and advice would save."),
]

EXACT = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Compute with the hardware's own bits where a target must be asked for them, as it takes longer.",
    ),
]


def run(
    name: MAYBE = None,
    panel: PLATFORM = None,
    kernels: KERNELS = None,
    golden: GOLDEN = None,
    case: CASE = None,
    settings: SETTINGS = None,
    seed: SEED = 0,
    dtype: DTYPE = None,
    machine: MACHINE = None,
    device: DEVICE = None,
    shapes_only: SHAPES = False,
    size: SIZE = None,
    all_algorithms: ALL = False,
    schedule: SCHEDULE = "canonical",
    max_steps: STEPS = None,
    max_seconds: SECONDS = None,
    max_total_seconds: TOTAL = None,
    json: JSON = None,
    trace: TRACE = None,
    html: HTML = None,
    baseline: BASELINE = None,
    write_baseline: WRITE_BASELINE = None,
    reason: REASON = "",
    stop_at: STOP_AT = None,
    dump: DUMP = None,
    first_wrong: FIRST_WRONG = False,
    strict: STRICT = False,
    sensitivity: SENSITIVITY = False,
    exact: EXACT = False,
    blocks: BLOCKS = None,
    jobs: JOBS = 0,
) -> None:
    """Run a bench: is it right, is it safe, how fast is it and why.

    Exit code 0 if every run is right and safe, 1 on findings or a wrong result, 2 on misuse.
    """
    bench, panels = chosen(name, panel, kernels, golden, case or [])
    values = parse_settings(bench, settings or [], machine, dtype=dtype, device=device)
    files = {"--json": json, "--trace": trace, "--html": html, "--write-baseline": write_baseline, "--dump": dump}
    check_targets(files, replaces="--write-baseline")
    check_options(stop_at, dump)
    allow(jobs)
    known = known_findings(baseline, write_baseline, reason)
    options: dict[str, object] = {"seed": seed, "shapes_only": shapes_only, "size": size, "baseline": known}
    options |= {"first_wrong": first_wrong, "strict": strict, "sensitivity": sensitivity, "exact": exact}
    options |= {"schedule": schedule_of(schedule), "budget": _limits(max_steps, max_seconds, max_total_seconds)}
    request = Request(bench, panels, values, {**options, "blocks": blocks})
    if first_wrong:
        check_first_wrong(stop_at, shapes_only, all_algorithms)
    if all_algorithms:
        _check_one_run(trace)
        raise typer.Exit(rank(request, json, html))
    if stop_at is not None:
        _stop(request, stop_at, dump, json)
    runs = _run_all(request)
    good = _print_runs(request, runs)
    print_acknowledged(runs, known, write_baseline, reason)
    _write_files(bench.name, runs, json, trace, html)
    raise typer.Exit(RIGHT_AND_SAFE if good else FOUND)


def _limits(steps: int | None, seconds: float | None, total_seconds: float | None) -> dict[str, float]:
    """The limits that are given."""
    given = {"steps": steps, "seconds": seconds, "total_seconds": total_seconds}
    return {name: limit for name, limit in given.items() if limit is not None}


def _write_files(
    bench: str, runs: list[tuple[str, Run]], json: Path | None, trace: Path | None, html: Path | None
) -> None:
    """Write the files that are asked for."""
    if trace is not None:
        _write_trace(trace, runs)
    if html is not None:
        write_page(html, bench, runs)
    write_document(json, "run", lambda: {"bench": bench, "runs": [r.to_dict() for _, r in runs]})


def _check_one_run(trace: Path | None) -> None:
    if trace is not None:
        raise BenchError("--trace shows one run: choose an algorithm with --set instead of --all-algorithms")


def _stop(request: Request, stop_at: str, dump: Path | None, json: Path | None) -> None:
    """Run one panel until its stopping point; does not return."""
    if len(request.panels) != 1:
        names = ", ".join(map(str, request.panels))
        raise BenchError(f"--stop-at looks inside one run: choose a panel (or --case) of {request.bench.name}: {names}")
    panel = request.panels[0]
    title, strict = request.title(panel), request.options["strict"]
    stop_and_print(stop_at, dump, json, "run", title, lambda stopper: request.run(panel, stop=stopper), strict)


def _run_all(request: Request) -> list[tuple[str, Run]]:
    """Each panel's title and run; panels that need other hardware are only named, unless all do."""
    runs: list[tuple[str, Run]] = []
    elsewhere: list[tuple[str, OtherHardwareError]] = []
    with progress(len(request.panels)) as bar:
        for panel in request.panels:
            title = request.title(panel)
            bar.update(bar.task_ids[0], description=title)
            try:
                runs.append((title, request.run(panel, timed=True, second_order=CHEAP)))
            except OtherHardwareError as error:
                elsewhere.append((title, error))
            bar.advance(bar.task_ids[0])
    if not runs:
        raise elsewhere[0][1]
    for title, why in elsewhere:
        errors().print(f"{title} was not run: {why}", soft_wrap=True)
    return runs


def _print_runs(request: Request, runs: list[tuple[str, Run]]) -> bool:
    """Print the verdicts with explanations; whether all runs are right and safe."""
    console = results()
    console.print(runs_table(f"{request.bench.name}: {request.bench.summary}", runs, console.width))
    good = [r for _, r in runs if r.ok and (request.shapes_only or r.right is not None)]
    # runs on a GPU are not checked for safety
    asked = "right and safe" if all(r.safe is not None for _, r in runs) else "right"
    console.print(f"{len(good)} of {len(runs)} " + ("safe" if request.shapes_only else asked))
    if untimed := no_time_text(runs):
        console.print(untimed, soft_wrap=True)
    if len(runs) == 1:
        _print_time(console, runs[0][1])
    elif times := times_text(runs):
        console.print(times, soft_wrap=True)
    for title, result in runs:
        _print_run(console, title, result)
    left = any(r.views["first_wrong"]["wrong"] is not None for _, r in runs if "first_wrong" in r.views)
    return len(good) == len(runs) and not left


def _print_time(console: Console, result: Run) -> None:
    console.print(time_text(result), soft_wrap=True)
    if (tasks := tasks_text(result)) is not None:
        console.print(tasks)


def _print_run(console: Console, title: str, result: Run) -> None:
    """Print the launches of a run, its printed output, and what is wrong with it."""
    if result.launches:
        console.print(launches_table(title, result))
    if "printf" in result.views:
        console.print(printed_text(title, result), soft_wrap=True)
    if not result.ok:
        console.print(run_text(title, result), highlight=False, soft_wrap=True)
    elif result.formal:
        console.print(f"{title}:", formal_text(result), highlight=False, soft_wrap=True)
    if "first_wrong" in result.views:
        console.print(first_wrong_text(title, result), highlight=False, soft_wrap=True)
    if "order_note" in result.views:
        errors().print(f"note: {title}: {result.views['order_note']}", soft_wrap=True)
    if "outside_seconds" in result.views:
        note = f"note: launch of {title} took {result.views['outside_seconds']:g} s outside its kernels; "
        errors().print(f"{note}--max-seconds ends kernels, and not what is around them", soft_wrap=True)


def _write_trace(file: Path, runs: list[tuple[str, Run]]) -> None:
    timed = [(title, r.timeline) for title, r in runs if r.timeline is not None]
    if not timed:
        errors().print("no trace written: no run is right and safe, so none has a time")
        return
    title, line = timed[-1]
    write_bytes(file, trace_bytes(line))
    errors().print(f"trace of {title} written to {file}; open it in the Perfetto UI", soft_wrap=True)
