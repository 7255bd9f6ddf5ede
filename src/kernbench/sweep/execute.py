"""Runs a plan: points are distributed in parts, and every result is stored at once, so that nothing is lost."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from kernbench.sweep.executors import Done, Executor
from kernbench.sweep.planning.plan import Plan, Position
from kernbench.sweep.planning.points import Row
from kernbench.sweep.planning.supply import Supply

# seconds between checks for points that another sweep is working on
_FIRST_LOOK, _LAST_LOOK = 0.1, 5.0


class Ledger(Protocol):
    """Stores the results of a sweep, and knows what is left; several sweeps may share one."""

    def claim(self, positions: list[Position]) -> list[Position]:
        """The points of these that are to be run now, by this sweep only."""

    def keep(self, done: list[Done]) -> None:
        """Store results; an empty list renews the lease."""

    @property
    def held(self) -> int:
        """How many requested points since the last `forget_held` another sweep was working on."""

    def forget_held(self) -> None:
        """Reset the count."""


class Collected:
    """A ledger in memory: `rows`, in order of arrival, each with the swept values."""

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
        """No other sweep works on any point."""


def run_sweep(plan: Plan, executor: Executor, ledger: Ledger, passes: int | None = None) -> None:
    """Run every point that `ledger` does not have; wait for points of other sweeps, and run those they leave.

    With `passes`, stop after the points of that many functional passes.
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
        # iterating over a large plan takes a while itself
        time.sleep(max(look, time.monotonic() - begin) if look > _FIRST_LOOK else look)
        look = min(_LAST_LOOK, 2 * look)


def in_order(plan: Plan, rows: list[Row]) -> list[Row]:
    """The rows in the order of the plan's values, the first key slowest."""
    axes = dict(zip(plan.keys, plan.axes, strict=True))
    return sorted(rows, key=lambda row: [axes[key].index(str(row[key])) or 0 for key in plan.keys])
