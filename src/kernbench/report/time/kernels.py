"""Where the predicted time of a program goes: its kernels by time, those that take most explained."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from kernbench.report.time.explanation import time_text
from kernbench.result.run import Run

# kernels that are explained in text, and the least share of the time that is worth it
_MOST, _LEAST = 3, 0.05


def longest_kernels(runs: Sequence[tuple[str, Run]]) -> list[tuple[str, Run, float]]:
    """The kernels of a program that take most of its predicted time, longest first, with their shares of it.

    Runs without the time of all their launches (`in_all`) are left out.
    """
    timed = [(title, run, int(run.metrics["in_all"]["time_ps"])) for title, run in runs if "in_all" in run.metrics]
    total = sum(time for *_, time in timed) or 1
    return sorted([(title, run, time / total) for title, run, time in timed], key=lambda one: -one[2])


def kernels_text(runs: Sequence[tuple[str, Run]]) -> Iterator[tuple[Run, Text]]:
    """The explanations of the kernels that take most, each with its run; the last says how many others there are."""
    ranked = longest_kernels(runs)
    shown = [one for one in ranked[:_MOST] if one[2] >= _LEAST]
    left = len(ranked) - len(shown)
    rest = 1 - sum(share for *_, share in shown)
    for number, (title, run, share) in enumerate(shown, 1):
        text = Text(f"{title}: {100 * share:.0f} % of the time predicted for the program\n", style="bold")
        text.append_text(time_text(run))
        if left and number == len(shown):
            others = f"{left} more kernel{'s' * (left > 1)}, {100 * rest:.0f} % of the time"
            text.append(f"{others}: kernbench exec --time --html FILE has them all\n")
        yield run, text
