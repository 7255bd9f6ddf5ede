"""The interface of executors, and the limits of one point."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from kernbench.sweep.planning.plan import Group, Items, Plan, Position
from kernbench.sweep.planning.points import Judged, Row, functional_pass
from kernbench.sweep.planning.supply import Supply

Done = tuple[Position, Row]


@dataclass(frozen=True)
class Limits:
    """Limits of one point: seconds (of the functional pass, and of each timing), and bytes of memory."""

    seconds: float | None = None
    memory: int | None = None


class Executor(Protocol):
    """Runs the points of a supply."""

    @property
    def workers(self) -> int:
        """How many parts are processed at once."""

    def results(self, plan: Plan, supply: Supply) -> Generator[list[Done], None, None]:
        """Results of points, several at a time, in any order; an empty list about once a second while there are none.

        Every point taken is returned once, whatever happens to it. `plan` has no values of its own, so
        that it is small to send.
        """


class Passes:
    """The last functional pass of a process, kept for the next part of the same group."""

    def __init__(self) -> None:
        self._key: tuple[Plan, Items, Items] | None = None
        self._judged: Judged | None = None

    def holds(self, plan: Plan, group: Group) -> bool:
        """Whether the group's pass is the one that is kept."""
        return self._key == _key(plan, group)

    def judged(self, plan: Plan, group: Group) -> Judged:
        """The group after its pass; the previous one is dropped first, to limit memory."""
        if self._judged is None or not self.holds(plan, group):
            self._key = self._judged = None
            self._judged = Judged(group, functional_pass(plan, group))
            self._key = _key(plan, group)
        return self._judged


def _key(plan: Plan, group: Group) -> tuple[Plan, Items, Items]:
    return plan, tuple(group.settings.items()), tuple(group.shapes.items())
