"""A finding as text: what, where with the source around it, who else is involved, and what to do next."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kernbench.result.finding import KINDS, Finding, SourceLocation, rank_ranges
from kernbench.result.launches import formal_by_kernel
from kernbench.result.run import Run


def findings_text(findings: Iterable[Finding]) -> RenderableType:
    """All findings, one after another."""
    return Group(*(finding_text(f) for f in findings))


def finding_text(finding: Finding) -> RenderableType:
    """One finding."""
    text = Text()
    if finding.where is not None:
        text.append(f"{finding.where}: ", style="bold")
    text.append(finding.kind, style="bold red")
    text.append(f"  {_who(finding)}\n", style="dim")
    text.append(f"  {KINDS[finding.kind].meaning}\n", style="dim")
    for line in finding.message.splitlines():
        text.append(f"  {line}\n")
    if finding.where is not None:
        _source(text, finding.where)
    for other in finding.others:
        location = f"{other.where} in {other.where.function}" if other.where else "unknown location"
        text.append(f"  {other.role}: {location}\n", style="yellow")
        if other.where is not None:
            _source(text, other.where, around=0)
    if finding.blame is not None:
        text.append(f"  {finding.blame}\n", style="bold")
    if finding.hint and not finding.is_compilers:
        text.append("  next: ", style="bold green")
        text.append(f"{finding.hint}\n")
    return text


def formal_text(run: Run) -> RenderableType:
    """The formal findings of a run, as one note for each kernel: a line for each finding, with its remedy."""
    notes = formal_by_kernel(run)
    return Group(*(_formal_note(kernel if len(notes) > 1 else "", found) for kernel, found in notes))


def _formal_note(kernel: str, findings: Sequence[Finding]) -> Text:
    text = Text(f"  formal{f', in {kernel}' if kernel else ''}: ", style="bold yellow")
    text.append("breaks the rules, and changes no result on hardware that exists (--strict makes it count)\n")
    for finding in findings:
        where = f"{finding.where}: " if finding.where is not None else ""
        text.append(f"    {where}{finding.kind}: {finding.message}{_times(finding)}\n")
        if finding.blame is not None:
            text.append(f"      {finding.blame}\n")
        if finding.hint and not finding.is_compilers:
            text.append(f"      next: {finding.hint}\n", style="dim")
    text.rstrip()
    return text


def kinds_text(run: Run) -> str:
    """The kinds of a run's findings for a table, and how many are formal."""
    formal = f" ({len(run.formal)} formal)" if run.formal else ""
    return (", ".join(sorted({finding.kind for finding in run.findings})) or "none") + formal


def _times(finding: Finding) -> str:
    return f" ({finding.count} times)" if finding.count > 1 else ""


def _who(finding: Finding) -> str:
    ranks = rank_ranges(finding.ranks) if finding.ranks else ""
    times = f"{finding.count} times" if finding.count > 1 else ""
    return ", ".join(part for part in (ranks, times) if part)


def _source(text: Text, location: SourceLocation, around: int = 2) -> None:
    for number, line in location.context(around):
        marker, style = ("->", "bold") if number == location.line else ("  ", "dim")
        text.append(f"  {marker} {number:5d} | {line}\n", style=style)
