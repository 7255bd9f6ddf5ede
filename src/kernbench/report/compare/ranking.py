"""Several ways to solve one problem, fastest first, and why the first wins: where the others lose time."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from kernbench.report.text.verdict import answer
from kernbench.report.time.explanation import distance, duration
from kernbench.result.reading import Fields
from kernbench.result.run import Run

_CAUSES = 3
# fraction of the slower time below which differences are not reported
_WORTH_SAYING = 0.01


class Contender(NamedTuple):
    """A way to solve the problem: its name, its idea, its run, or why it does not run here."""

    name: str
    idea: str
    run: Run | None
    refusal: str = ""

    @property
    def time(self) -> int | None:
        """Picoseconds, on the machine or measured on a GPU; None without a time."""
        if self.run is None:
            return None
        measured = self.run.metrics.get("gpu_time_ns")
        return self.run.metrics.get("time_ps") if measured is None else measured * 1000


def ranked(contenders: Sequence[Contender]) -> list[Contender]:
    """Fastest first; those without a time last."""
    return sorted(contenders, key=lambda c: (c.time is None, c.time or 0, c.name))


def ranking_table(title: str, contenders: Sequence[Contender]) -> Table:
    """One row per contender, fastest first."""
    table = Table(title=title, title_justify="left")
    far, ratio, _ = distance(one.run for one in contenders if one.run is not None)
    for name in ("", "algorithm", "right", "safe", "time", "x best", far, "most of the time"):
        table.add_column(name, justify="right" if name in ("", "time", "x best", far) else "left", no_wrap=True)
    table.columns[-1].no_wrap = False
    best = ranked(contenders)[0].time
    for rank, one in enumerate(ranked(contenders), 1):
        if one.run is None:
            table.add_row("", one.name, "", "", "", "", "", Text(one.refusal, style="dim"))
            continue
        table.add_row(
            "" if one.time is None else str(rank),
            one.name,
            answer(one.run.right),
            answer(one.run.safe),
            "" if one.time is None else duration(one.time),
            "" if one.time is None or not best else f"{one.time / best:.2f}",
            _number(one.run.metrics.get(ratio)),
            _causes(one.run),
        )
    return table


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _causes(run: Run) -> str:
    causes = time_by_cause(run.metrics)
    total = sum(causes.values())
    largest = sorted(causes.items(), key=lambda item: -item[1])[:_CAUSES]
    return ", ".join(f"{name} {100 * time / total:.0f} %" for name, time in largest) if total else ""


def time_by_cause(metrics: Fields) -> dict[str, int]:
    """The whole time: the binding floor under its engine's name, and the causes of the gap above it."""
    if "time_ps" not in metrics:
        return {}
    bound = metrics["bound"]
    return {f"{bound} floor": metrics["floors_ps"][bound], **metrics.get("gap_ps", {})}


def ranking_text(contenders: Sequence[Contender], reference: str) -> Text:
    """The idea of the fastest, and where the reference and the runner-up lose time against it."""
    timed = [c for c in ranked(contenders) if c.time is not None]
    text = Text()
    if not timed:
        good = any(c.run is not None and c.run.ok for c in contenders)
        why = "runs here have no time" if good else "no algorithm is right and safe here, so none has a time"
        return text.append(f"{why}\n")
    best = timed[0]
    text.append(f"{best.name} wins: {best.idea}\n", style="bold")
    rivals = {c.name: c for c in timed[1:2]} | {c.name: c for c in timed[1:] if c.name == reference}
    for rival in rivals.values():
        text.append(f"  {_against(best, rival)}\n")
    return text


def _against(best: Contender, rival: Contender) -> str:
    """The difference in time, and its causes."""
    assert best.run is not None
    assert rival.run is not None
    ours, theirs = time_by_cause(best.run.metrics), time_by_cause(rival.run.metrics)
    saved = {name: theirs.get(name, 0) - ours.get(name, 0) for name in theirs | ours}
    worth = {name: time for name, time in saved.items() if abs(time) >= _WORTH_SAYING * sum(theirs.values())}
    ordered = sorted(worth.items(), key=lambda item: -item[1])
    gains = ", ".join(f"{name} {duration(time)}" for name, time in ordered if time > 0)
    costs = ", ".join(f"{name} {duration(-time)}" for name, time in reversed(ordered) if time < 0)
    text = f"{(rival.time or 0) / max(1, best.time or 0):.2f} times as fast as {rival.name}"
    if gains:
        text += f", which spends more on {gains}"
    return text + (f" and less on {costs}" if costs else "")
