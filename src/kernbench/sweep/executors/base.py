"""What a place to run a sweep has to offer."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

from kernbench.result.run import Run
from kernbench.sweep.plan import Group, Items, Plan
from kernbench.sweep.points import Refusal, Row, functional_pass, time_points


class Executor(Protocol):
    """Times groups of points; a plan it is given has no groups of its own, so that it travels light."""

    @property
    def workers(self) -> int:
        """How many groups are worked on at once."""

    def rows(self, plan: Plan, work: list[Group]) -> Iterator[Row]:
        """The rows of all groups, each as soon as it is there."""


def group_rows(plan: Plan, group: Group) -> list[Row]:
    """All rows of a group: what a worker elsewhere hands back. The last pass is kept for the group's next part."""
    return list(time_points(plan, group, _last_pass(plan, tuple(group.settings.items()), tuple(group.shapes.items()))))


@lru_cache(maxsize=1)
def _last_pass(plan: Plan, settings: Items, shapes: Items) -> Run | Refusal:
    return functional_pass(plan, Group(dict(settings), dict(shapes), ()))
