"""`kernbench npu test`: the cases of test classes, with their C++ sources as they are."""

from ast import literal_eval
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kernbench.cli.output.console import FOUND, check_targets, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.common.errors import BenchError
from kernbench.npu.scene.cases import Case, cases_of, files_in
from kernbench.report.text.findings import findings_text
from kernbench.result.run import Run, write_bytes
from kernbench.safety.budget import Budget

if TYPE_CHECKING:
    from kernbench.npu.scene.running import Outcome


def run_scenes(
    path: Annotated[Path, typer.Argument(help="a folder or a file with @scene_test classes")],
    case: Annotated[
        list[str] | None, typer.Option(help="a case by name, or all; without it those that are not manual")
    ] = None,
    platform: Annotated[str, typer.Option(help="a2a3 or a5; without it the first that a case names")] = "",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="a parameter of the cases, as batch=2; for cases that are too large"),
    ] = None,
    max_seconds: Annotated[float, typer.Option(help="seconds a kernel may go without an operation")] = 20.0,
    trace: Annotated[Path | None, typer.Option(help="write the swimlane of the last timed case, for Perfetto")] = None,
    json: JSON = None,
) -> None:
    """Is each case right, is it safe, how long does it take? Sources are compiled here and run as they are.

    The modules of the test framework that the files import are provided. Findings name the C++ line.
    """
    # greenlet is needed to launch, not to list commands
    from kernbench.npu.scene.running import run_case

    check_targets({"--json": json, "--trace": trace})
    wanted = [_change(one) for one in changes or []]
    found = [c for file in files_in(path) for c in cases_of(file, platform, case or [], dict(wanted))]
    if not found:
        left = "" if case else " that is not manual; --case all runs every one"
        raise BenchError(f"{path} has no case for {platform or 'a chip'}{left}")
    outcomes = [run_case(one, Budget(seconds=max_seconds)) for one in found]
    console = results()
    for outcome in outcomes:
        if outcome.run is not None and outcome.run.findings:
            console.print(findings_text(outcome.run.findings))
    console.print(_table(outcomes))
    good = sum(outcome.is_good for outcome in outcomes)
    console.print(f"{good} of {len(outcomes)} right and safe")
    timed = [o.run for o in outcomes if o.run is not None and o.run.timeline is not None]
    if trace is not None and timed:
        write_trace(trace, timed[-1])
    write_document(json, "npu test", {"path": str(path), "cases": [_data(outcome) for outcome in outcomes]})
    if good < len(outcomes):
        raise typer.Exit(FOUND)


def _change(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BenchError(f"--set {text}: name=value is wanted")
    try:
        return name, literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _table(outcomes: "list[Outcome]") -> Table:
    table = Table()
    for name in ("case", "chip", "right", "safe", "time", ""):
        table.add_column(name)
    for outcome in outcomes:
        table.add_row(*_row(outcome))
    return table


def _row(outcome: "Outcome") -> tuple[str, ...]:
    case, run, time = outcome.case, outcome.run, outcome.time_ps
    if run is None:
        return (case.title, case.chip, "-", "-", "-", outcome.refusal)
    right = "-" if case.skips_golden else "no" if outcome.wrong or not run.outputs else "yes"
    shown = f"{time / 1_000_000:,.2f} us" if time is not None else "-"
    return (case.title, case.chip, right, "yes" if run.safe else "no", shown, outcome.wrong or _kinds(outcome))


def _kinds(outcome: "Outcome") -> str:
    findings = outcome.run.findings if outcome.run is not None else ()
    return ", ".join(dict.fromkeys(f.kind for f in findings))


def _data(outcome: "Outcome") -> dict[str, object]:
    run, case = outcome.run, outcome.case
    return {
        "case": case.title,
        "file": str(case.file),
        "chip": case.chip,
        "right": None if run is None or case.skips_golden else not outcome.wrong and bool(run.outputs),
        "safe": None if run is None else run.safe,
        "time_ps": outcome.time_ps,
        "wrong": outcome.wrong,
        "refusal": outcome.refusal,
        "findings": [] if run is None else [_finding(case, f.kind, str(f.where), f.message) for f in run.findings],
    }


def _finding(case: Case, kind: str, where: str, message: str) -> dict[str, str]:
    return {"kind": kind, "where": where, "message": message}


def write_trace(file: Path, run: Run) -> None:
    """The swimlane of a timed run."""
    from kernbench.report import trace_bytes

    assert run.timeline is not None
    write_bytes(file, trace_bytes(run.timeline))
    results().print(f"wrote {file}: open it at ui.perfetto.dev")
