"""`kernbench check`: all benches of a folder, right and safe or not; for build servers, as JUnit XML."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kernbench.bench.collection import Case, check_files, python_files
from kernbench.cli.acknowledge import BASELINE, REASON, WRITE_BASELINE, known_findings, tell_acknowledged
from kernbench.cli.document import JSON, write_document
from kernbench.cli.options import SCHEDULE, SEED, schedule_of
from kernbench.cli.output import FOUND, RIGHT_AND_SAFE, check_targets, errors, results
from kernbench.common.errors import BenchError
from kernbench.report import run_text
from kernbench.report.junit import junit_xml
from kernbench.result.run import write_bytes

FOLDER = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of bench files, or one file.")]
JUNIT = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdicts to this file as JUnit XML.")
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
) -> None:
    """Run every panel of every bench in a folder: a line for each, and what is wrong with those that fail.

    A bench file is one that makes a bench when it is imported; other files are not imported. Exit code 0 if all are
    right and safe, 1 if not, 2 on misuse.
    """
    check_targets({"--junit": junit, "--json": json, "--write-baseline": write_baseline}, replaces="--write-baseline")
    known = known_findings(baseline, write_baseline, reason)
    looked = python_files(folder)
    cases: list[Case] = []
    try:
        for case in check_files(looked, seed, schedule_of(schedule), known):
            _tell(case)
            cases.append(case)
    except KeyboardInterrupt:
        errors().print(f"stopped: {sum(case.passed for case in cases)} of {len(cases)} right and safe until here")
        raise
    if not cases:
        raise BenchError(
            f"{folder} has no bench: {_count(len(looked), 'Python file')} looked at; a file defines one with "
            "bench = Bench(...); see kernbench new"
        )
    files = {case.file for case in cases}
    good = sum(case.passed for case in cases)
    found = f"{_count(len(files), 'bench file')} among {_count(len(looked), 'Python file')}"
    results().print(f"{good} of {len(cases)} right and safe; {found}", soft_wrap=True)
    tell_acknowledged([(case.panel, case.run) for case in cases if case.run is not None], known, write_baseline, reason)
    if junit is not None:
        write_bytes(junit, junit_xml(cases))
    write_document(json, "check", _data(cases, len(looked), len(files)))
    raise typer.Exit(RIGHT_AND_SAFE if good == len(cases) else FOUND)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _data(cases: list[Case], looked: int, files: int) -> dict[str, Any]:
    """All cases; `run` is the place of its run in `runs`."""
    ran = [case for case in cases if case.run is not None]
    numbers = {id(case): number for number, case in enumerate(ran)}
    rows = [
        {"file": str(case.file), "panel": case.panel, "passed": case.passed, "seconds": round(case.seconds, 3)}
        | {"refused": case.error or None, "run": numbers.get(id(case))}
        for case in cases
    ]
    runs = [case.run.to_dict() for case in ran if case.run is not None]
    return {"python_files": looked, "bench_files": files, "cases": rows, "runs": runs}


def _tell(case: Case) -> None:
    console = results()
    verdict = "ok" if case.passed else "FAILED"
    console.print(f"{verdict:6} {case.file}::{case.panel}  {case.seconds:.2f} s", soft_wrap=True)
    if case.passed:
        return
    if case.run is None:
        console.print(case.error, soft_wrap=True)
    else:
        console.print(run_text(case.panel, case.run), highlight=False, soft_wrap=True)
