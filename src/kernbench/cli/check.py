"""`kernbench check`: all benches of a folder, right and safe or not; for build servers, as JUnit XML."""

from pathlib import Path
from typing import Annotated

import typer

from kernbench.bench.collection import Case, bench_files, check_files
from kernbench.cli.output import FOUND, RIGHT_AND_SAFE, results
from kernbench.common.errors import BenchError
from kernbench.report import run_text
from kernbench.report.junit import junit_xml
from kernbench.result.run import write_bytes

FOLDER = Annotated[Path, typer.Argument(help="A folder of bench files, or one file.")]
JUNIT = Annotated[Path | None, typer.Option("--junit", help="Write the verdicts to this file as JUnit XML.")]
SEED = Annotated[int, typer.Option(help="Seed of the inputs.", min=0)]
SCHEDULE = Annotated[str, typer.Option(help="Order in which programs take turns: canonical, reversed or a seed.")]


def check(folder: FOLDER, junit: JUNIT = None, seed: SEED = 0, schedule: SCHEDULE = "canonical") -> None:
    """Run every panel of every bench in a folder: a line for each, and what is wrong with those that fail.

    Exit code 0 if all are right and safe, 1 if not, 2 on misuse.
    """
    if junit is not None and (junit.is_dir() or not junit.parent.is_dir()):
        raise BenchError(f"--junit {junit}: there is no folder {junit.parent} to write it to, or it is one itself")
    files = bench_files(folder)
    if not files:
        raise BenchError(f"{folder} has no bench: a file defines one with bench = Bench(...); see kernbench new")
    cases = []
    for case in check_files(files, seed, int(schedule) if schedule.isdecimal() and schedule.isascii() else schedule):
        _tell(case)
        cases.append(case)
    good = sum(case.passed for case in cases)
    results().print(f"{good} of {len(cases)} right and safe")
    if junit is not None:
        write_bytes(junit, junit_xml(cases))
    raise typer.Exit(RIGHT_AND_SAFE if good == len(cases) else FOUND)


def _tell(case: Case) -> None:
    console = results()
    verdict = "ok" if case.passed else "FAILED"
    console.print(f"{verdict:6} {case.file}::{case.panel}  {case.seconds:.2f} s", soft_wrap=True)
    if case.passed:
        return
    if case.run is None:
        console.print(f"  {case.error}", soft_wrap=True)
    else:
        console.print(run_text(case.panel, case.run), highlight=False, soft_wrap=True)
