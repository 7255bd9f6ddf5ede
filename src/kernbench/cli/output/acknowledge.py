"""Acknowledged findings on the command line: reads and writes baselines, and reports what did not count."""

from pathlib import Path
from typing import Annotated

import typer

from kernbench.cli.output.console import errors, results
from kernbench.common.errors import BenchError
from kernbench.report.text.acknowledged import acknowledged_text, marks_text
from kernbench.result.acknowledged import Entry, read_baseline, unmet
from kernbench.result.acknowledged import write_baseline as write_file
from kernbench.result.run import Run

BASELINE = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="A file of known findings, each with a reason; they do not count."),
]
WRITE_BASELINE = Annotated[
    Path | None,
    typer.Option(
        "--write-baseline", metavar="FILE", help="Write the findings of this run to a baseline; needs --reason."
    ),
]
REASON = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why the findings of --write-baseline are acknowledged.")
]


def known_findings(baseline: Path | None, write: Path | None, reason: str) -> list[Entry]:
    """The entries of a baseline; refuses to write one without a reason."""
    if write is not None and not reason.strip():
        raise BenchError("--write-baseline needs a reason: --reason 'why these findings do no harm'")
    if reason and write is None:
        raise BenchError("--reason is for --write-baseline FILE")
    if write is not None and write.exists():
        # only an existing baseline may be overwritten
        read_baseline(write)
    return read_baseline(baseline) if baseline is not None else []


def print_acknowledged(runs: list[tuple[str, Run]], known: list[Entry], write: Path | None, reason: str) -> None:
    """Print what did not count and why, unused baseline entries, and how to acknowledge the remaining findings."""
    console = results()
    for title, run in runs:
        # findings that are being written to a baseline need no comment
        for text in (acknowledged_text(title, run), None if write is not None else marks_text(run)):
            if text:
                console.print(text, soft_wrap=True)
    for entry in unmet([run for _, run in runs], known):
        errors().print(f"the baseline's {entry.kind} {entry.fingerprint} ({entry.where}) was not met", soft_wrap=True)
    if write is not None:
        findings = [finding for _, run in runs for finding in run.findings]
        count = write_file(write, findings, reason, known)
        things = "finding" if count == 1 else "findings"
        errors().print(f"{count} {things} acknowledged, from now on with --baseline {write}", soft_wrap=True)
