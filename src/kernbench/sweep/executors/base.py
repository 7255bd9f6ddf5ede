"""What an executor of a sweep has to offer, and how much one point may take."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from kernbench.sweep.planning.plan import Group, Items, Plan, Position
from kernbench.sweep.planning.points import Judged, Row, functional_pass
from kernbench.sweep.planning.supply import Supply

Done = tuple[Position, Row]


@dataclass(frozen=True)
class Limits:
    """What one point may take: seconds (of the functional pass, and of each timing), and bytes of memory."""

    seconds: float | None = None
    memory: int | None = None


class Executor(Protocol):
    """Runs the points that a supply hands out."""

    @property
    def workers(self) -> int:
        """How many parts are worked on at once."""

    def results(self, plan: Plan, supply: Supply) -> Generator[list[Done], None, None]:
        """What came out of the points, some at a time, in any order; nothing about once a second while there is none.

        Every point that was handed out is given back once, whatever becomes of it. `plan` has no values of its own, so
        that it travels light.
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
        """The group after its pass; the one before it is let go first, so that there is room for one."""
        if self._judged is None or not self.holds(plan, group):
            self._key = self._judged = None
            self._judged = Judged(group, functional_pass(plan, group))
            self._key = _key(plan, group)
        return self._judged


def _key(plan: Plan, group: Group) -> tuple[Plan, Items, Items]:
    return plan, tuple(group.settings.items()), tuple(group.shapes.items())
