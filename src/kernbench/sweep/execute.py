"""Running a plan: points are handed out a part at a time, and every result is kept at once, so that nothing is lost."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from kernbench.sweep.executors import Done, Executor
from kernbench.sweep.planning.plan import Plan, Position
from kernbench.sweep.planning.points import Row
from kernbench.sweep.planning.supply import Supply

# seconds before another look at points that another sweep is at
_FIRST_LOOK, _LAST_LOOK = 0.1, 5.0


class Ledger(Protocol):
    """Who keeps what a sweep has done, and knows what is left; several sweeps may share one."""

    def claim(self, positions: list[Position]) -> list[Position]:
        """Those of the points that are to be run now, by us and nobody else."""

    def keep(self, done: list[Done]) -> None:
        """Keep results; nothing given is a sign of life."""

    @property
    def held(self) -> int:
        """How many points asked for since the last `forget_held` another sweep was at."""

    def forget_held(self) -> None:
        """Begin to count anew."""


class Collected:
    """A ledger in memory: `rows`, in the order they came, each with the values that were swept."""

    def __init__(self, plan: Plan, take: Callable[[Row], None] | None = None):
        self.rows: list[Row] = []
        self._plan, self._take = plan, take or self.rows.append
        self.held = 0

    def claim(self, positions: list[Position]) -> list[Position]:
        """All of them."""
        return positions

    def keep(self, done: list[Done]) -> None:
        """Keep results as rows."""
        for position, row in done:
            self._take(self._plan.point(position) | row)

    def forget_held(self) -> None:
        """Nobody else is at any point."""


def run_sweep(plan: Plan, executor: Executor, ledger: Ledger, passes: int | None = None) -> None:
    """Run every point that `ledger` has not; wait for those that another sweep is at, and run what that leaves.

    With `passes`, stop after the points of so many functional passes.
    """
    look = _FIRST_LOOK
    while True:
        ledger.forget_held()
        begin = time.monotonic()
        with closing(executor.results(plan.light(), Supply(plan, ledger.claim, passes))) as results:
            for done in results:
                ledger.keep(done)
        if not ledger.held or passes is not None:
            return
        # looking through a large plan takes a while itself
        time.sleep(max(look, time.monotonic() - begin) if look > _FIRST_LOOK else look)
        look = min(_LAST_LOOK, 2 * look)


def in_order(plan: Plan, rows: list[Row]) -> list[Row]:
    """The rows in the order of the plan's values, the first key slowest, whichever came first."""
    axes = dict(zip(plan.keys, plan.axes, strict=True))
    return sorted(rows, key=lambda row: [axes[key].index(str(row[key])) or 0 for key in plan.keys])
