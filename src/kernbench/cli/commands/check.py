"""`kernbench check`: are all benches of a folder right and safe? With JUnit XML for build servers."""

import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from kernbench.bench.checking.check import PANEL_SECONDS, Conditions, check_files
from kernbench.bench.discovery.collection import Case, python_files
from kernbench.cli.arguments.options import RAY, SCHEDULE, SEED, STRICT, memory_limit, schedule_of
from kernbench.cli.output.acknowledge import BASELINE, REASON, WRITE_BASELINE, known_findings, print_acknowledged
from kernbench.cli.output.console import FOUND, INTERRUPTED, RIGHT_AND_SAFE, check_targets, errors, results
from kernbench.cli.output.document import JSON, STDOUT, write_document
from kernbench.common.errors import BenchError
from kernbench.report import formal_text, run_text
from kernbench.report.export.junit import junit_xml
from kernbench.result.reading import Data
from kernbench.result.run import write_bytes

FOLDER = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of bench files, or one file.")]
JUNIT = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdicts to this file as JUnit XML.")
]
JOBS = Annotated[
    int, typer.Option("--jobs", "-j", metavar="N", help="Files that run at once; 0: one for each processor.", min=0)
]
LIMIT = Annotated[
    float,
    typer.Option(
        "--max-seconds", "--limit", metavar="S", help="Seconds that one panel may take before it has failed.", min=0.1
    ),
]
MEMORY = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Memory that the process of a bench may have, as 4GiB; without it a share of all.",
    ),
]
# the option's earlier name, before it was the same as that of `sweep`
GIB = Annotated[
    float | None, typer.Option("--memory", metavar="GIB", help="--max-memory in GiB.", hidden=True, min=0.1)
]


def check(
    folder: FOLDER,
    junit: JUNIT = None,
    json: JSON = None,
    seed: SEED = 0,
    schedule: SCHEDULE = "canonical",
    baseline: BASELINE = None,
    write_baseline: WRITE_BASELINE = None,
    reason: REASON = "",
    jobs: JOBS = 0,
    limit: LIMIT = PANEL_SECONDS,
    max_memory: MEMORY = None,
    memory: GIB = None,
    ray: RAY = None,
    strict: STRICT = False,
) -> None:
    """Run every panel of every bench in a folder: a line for each, and what is wrong with those that fail.

    A bench file is one that makes a bench when it is imported; other files are not imported. Each file runs in a
    process of its own, with limits: one that crashes or never ends has failed, and the others still run; with --ray on
    the nodes of a cluster, where the folder lies at the same path. Exit code 0 if all are right and safe, 1 if not, 2
    on misuse, 130 if it was interrupted.
    """
    check_targets({"--junit": junit, "--json": json, "--write-baseline": write_baseline}, replaces="--write-baseline")
    # independent of changes of the working folder by a bench
    junit, json, write_baseline = _absolute(junit), _absolute(json), _absolute(write_baseline)
    known = known_findings(baseline, write_baseline, reason)
    looked = python_files(folder)
    bytes_each = memory_limit(max_memory) if memory is None else int(memory * (1 << 30))
    drawn = json is not None
    how = Conditions(seed, schedule_of(schedule), known, jobs, limit, bytes_each, timelines=drawn, strict=strict)
    cases, whole = _checked(looked, how, ray)
    if whole and not cases:
        raise BenchError(
            f"{folder} has no bench: {_count(len(looked), 'Python file')} looked at; a file defines one with "
            "bench = Bench(...); see kernbench new"
        )
    files = {case.file for case in cases}
    good = sum(case.passed for case in cases)
    found = f"{_count(len(files), 'bench file')} among {_count(len(looked), 'Python file')}"
    if not whole:
        errors().print("stopped: what was not finished until here is in no count and in no file", soft_wrap=True)
    results().print(f"{good} of {len(cases)} right and safe; {found}", soft_wrap=True)
    ran = [(case.panel, case.run) for case in cases if case.run is not None]
    print_acknowledged(ran, known, write_baseline if whole else None, reason)
    if junit is not None:
        write_bytes(junit, junit_xml(cases))
    write_document(json, "check", {**_data(cases, len(looked), len(files)), "interrupted": not whole})
    raise typer.Exit(INTERRUPTED if not whole else RIGHT_AND_SAFE if good == len(cases) else FOUND)


def _absolute(target: Path | None) -> Path | None:
    return target if target is None or target == STDOUT else target.absolute()


def _checked(files: list[Path], how: Conditions, ray: str | None) -> tuple[list[Case], bool]:
    """The cases of files, printed as they come, and whether these are all: the check may be interrupted."""
    cases: list[Case] = []
    try:
        with _stopped_by_signals(), _coming(files, how, ray) as coming:
            for case in coming:
                _print_case(case)
                cases.append(case)
    except KeyboardInterrupt:
        return cases, False
    return cases, True


@contextmanager
def _coming(files: list[Path], how: Conditions, ray: str | None) -> Iterator[Iterator[Case]]:
    """The cases from this machine, or from a cluster."""
    if ray is None:
        with closing(check_files(files, how)) as cases:
            yield cases
        return
    # imported only for this option
    from kernbench.bench.checking.nodes import check_files_on
    from kernbench.bench.cluster import Cluster, refuse_jobs

    refuse_jobs(how.jobs)
    with Cluster(ray) as cluster, closing(check_files_on(cluster, files, how)) as cases:
        yield cases


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Inside this context, signals of a build server or a closed terminal end the command like Ctrl-C: it cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _data(cases: list[Case], looked: int, files: int) -> Data:
    """All cases; `run` is the index of its run in `runs`."""
    ran = [case for case in cases if case.run is not None]
    numbers = {id(case): number for number, case in enumerate(ran)}
    rows = [
        {"file": str(case.file), "panel": case.panel, "passed": case.passed, "seconds": round(case.seconds, 3)}
        | {"refused": case.error or None, "output": case.output or None, "run": numbers.get(id(case))}
        for case in cases
    ]
    runs = [case.run.to_dict() for case in ran if case.run is not None]
    return {"python_files": looked, "bench_files": files, "cases": rows, "runs": runs}


def _print_case(case: Case) -> None:
    console = results()
    verdict = "ok" if case.passed else "FAILED"
    console.print(f"{verdict:6} {case.file}::{case.panel}  {case.seconds:.2f} s", soft_wrap=True)
    if case.passed:
        if case.run is not None and case.run.formal:
            console.print(formal_text(case.run), highlight=False, soft_wrap=True)
        return
    if case.run is None:
        console.print(case.error, soft_wrap=True)
    else:
        console.print(run_text(case.panel, case.run), highlight=False, soft_wrap=True)
    if case.output:
        console.print("  it printed:\n" + indent(case.output, "    "), soft_wrap=True)
