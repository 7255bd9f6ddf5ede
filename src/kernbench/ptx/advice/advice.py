"""Advice: what could be saved in a timed launch, where, how much, and how sure. It is no finding: the launch is right.

Each mend is timed: the launch again, without the fault. What saves most comes first; what a kernel may not allow counts
for less. Savings below a hundredth of the time are not reported.
"""

from collections.abc import Iterator

from kernbench.ptx.advice.accesses import accesses
from kernbench.ptx.advice.mend import Launch, Mend, Sure
from kernbench.ptx.advice.several import several
from kernbench.ptx.advice.units import units
from kernbench.ptx.advice.waits import waits
from kernbench.ptx.advice.whole import whole
from kernbench.ptx.time.changes import Again
from kernbench.ptx.time.sources import Source, source_lines
from kernbench.result.reading import Data

WORTH = 0.01
# how much a saving counts when advice is ranked
_COUNTS = {Sure.SURE: 1.0, Sure.LIKELY: 0.8, Sure.AT_MOST: 0.5}
# of changes of one kind that differ by how much they ask for, the least that saves this share of the most
ENOUGH = 0.9
# what asks for a larger change is worth saying if it saves so many times what the smaller one does
CLEARLY = 1.05
_PS = 1e12

Timed = tuple[Mend, float]


def advise(again: Again) -> list[Data]:
    """All advice for a launch, the most useful first."""
    launch = Launch(again.sampled(), again.time)
    mends = [*accesses(launch), *whole(launch), *units(launch), *several(launch), *waits(launch)]
    timed = launch.again.saved(*(mend.given for mend in mends if mend.seconds is None))
    rest = iter(timed)
    factor = again.time.seconds / launch.again.time.seconds
    found = [(mend, next(rest) * factor if mend.seconds is None else mend.seconds) for mend in mends]
    lines = source_lines(again.recording.text)
    worth = [
        _data(mend, seconds, lines.get(mend.line))
        for mend, seconds in _chosen(found)
        if seconds >= again.time.seconds * WORTH
    ]
    return sorted(worth, key=lambda one: (-one["worth_ps"], one["kind"], one["line"] or 0))


def _chosen(found: list[Timed]) -> Iterator[Timed]:
    """Of several ways to mend the same, the smallest change that is enough; and larger ones that save clearly more."""
    same: dict[tuple[str, str], list[Timed]] = {}
    best: dict[str, float] = {}
    for mend, seconds in found:
        same.setdefault((mend.kind, mend.message), []).append((mend, seconds))
        if mend.beyond != mend.kind:
            best[mend.kind] = max(best.get(mend.kind, 0.0), seconds)
    for several_ways in same.values():
        most = max(seconds for _, seconds in several_ways)
        mend, seconds = next(one for one in several_ways if one[1] >= ENOUGH * most)
        if not mend.beyond or seconds > CLEARLY * best.get(mend.beyond, 0.0):
            yield mend, seconds


def _data(mend: Mend, seconds: float, source: Source | None) -> Data:
    """As plain data; `source` is that of the line, if the PTX names it."""
    found: Data = {"kind": mend.kind, "line": mend.line or None, "message": mend.message}
    found |= {"cost_ps": round(seconds * _PS), "sure": str(mend.sure), "hint": mend.hint}
    found["worth_ps"] = round(seconds * _COUNTS[mend.sure] * _PS)
    if source is not None:
        found["source"] = source.data()
    return found
