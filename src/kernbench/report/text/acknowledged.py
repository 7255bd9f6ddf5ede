"""Acknowledged findings as text, and comments that would acknowledge the remaining ones."""

from rich.text import Text

from kernbench.result.acknowledged import mark_for
from kernbench.result.finding import Finding, SourceLocation
from kernbench.result.run import Run, Status


def acknowledged_text(title: str, run: Run) -> Text:
    """The acknowledged findings of a run, a line each; empty if there are none."""
    text = Text()
    for row in run.views.get("acknowledged", []):
        location = row["finding"]["where"]
        where = f"{SourceLocation(location['file'], location['line'])}: " if location else ""
        kind, by = row["finding"]["kind"], row["by"]
        text.append(f"{where}{kind} of {title} is acknowledged ({by}): {row['reason']}\n", "dim")
    text.rstrip()
    return text


def marks_text(run: Run) -> Text:
    """The comments that would acknowledge the findings of a run that finished."""
    if run.status is not Status.FINISHED:
        return Text()
    marks = dict.fromkeys(_comment(finding) for finding in run.findings if finding.where is not None)
    text = Text()
    if marks:
        text.append("known and harmless? A comment at the line acknowledges it, with a reason:\n", "dim")
        text.append("\n".join(f"  {mark} REASON" for mark in marks), "dim")
    return text


def _comment(finding: Finding) -> str:
    """The mark as a comment in the language of its line."""
    python = finding.where is not None and finding.where.file.endswith(".py")
    return f"{'#' if python else '//'} {mark_for(finding)}"
