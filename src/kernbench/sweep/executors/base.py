"""What a place to run a sweep has to offer."""

from collections.abc import Iterator
from typing import Protocol

from kernbench.sweep.plan import Group, Plan
from kernbench.sweep.points import Row, run_group


class Executor(Protocol):
    """Times groups of points; a plan it is given has no groups of its own, so that it travels light."""

    @property
    def workers(self) -> int:
        """How many groups are worked on at once."""

    def rows(self, plan: Plan, work: list[Group]) -> Iterator[Row]:
        """The rows of all groups, each as soon as it is there."""


def group_rows(plan: Plan, group: Group) -> list[Row]:
    """All rows of a group: what a worker elsewhere hands back."""
    return list(run_group(plan, group))
