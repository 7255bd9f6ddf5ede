"""The verdict of one run in a few lines: right, safe, and what was measured."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from kernbench.report.text.findings import finding_text, formal_text
from kernbench.result.comparison import Comparison
from kernbench.result.finding import rank_ranges
from kernbench.result.run import Run

YES, NO, NOT_ASKED = ("yes", "green"), ("NO", "bold red"), ("not asked", "dim")


def answer(value: bool | None) -> Text:
    """A question's answer in its colour."""
    word, style = NOT_ASKED if value is None else (YES if value else NO)
    return Text(word, style=style)


def run_text(title: str, run: Run) -> RenderableType:
    """The text of one run: verdicts, errors by rank, findings."""
    head = Text(title, style="bold")
    head.append("   right: ").append_text(answer(run.right))
    head.append("   safe: ").append_text(answer(run.safe))
    counted = f", {run.metrics['commands']:,} commands" if "commands" in run.metrics else ""
    head.append(f"   {run.status}{counted}", style="dim")
    parts: list[RenderableType] = [head]
    if "part" in run.views:
        parts.append(part_text(run.views["part"]))
    parts.extend(comparison_text(c) for c in run.comparison or [])
    parts.extend(finding_text(f) for f in run.findings)
    if run.formal:
        parts.append(formal_text(run))
    if run.right is not True:
        parts.extend(Text(f"  note: {hint}", style="yellow") for hint in run.views.get("hints", []))
    return Group(*parts)


def part_text(part: Mapping[str, int]) -> Text:
    """The note that only a part of a grid was run."""
    return Text(
        f"  {part['run']:,} of {part['of']:,} blocks were run, and the answers are about these: the others are taken "
        "as not run, so races with them and what they would have written are not known",
        style="yellow",
    )


def comparison_text(comparison: Comparison) -> RenderableType:
    """The golden's verdict on one output."""
    text = Text(f"  {comparison}", style="" if comparison.passed else "red")
    wrong = [r for r in comparison.ranks if not r.passed]
    if wrong:
        text.append(f"\n  {rank_ranges(r.rank for r in wrong)} wrong:", style="red")
        for rank in wrong:
            text.append(
                f"\n    rank {rank.rank}: {rank.wrong:,} of {rank.elements:,} elements, furthest out of tolerance at "
                f"{list(rank.worst_index)}; largest error {rank.max_abs:.3g}, relative L2 {rank.relative_l2:.3g}"
            )
    return text
