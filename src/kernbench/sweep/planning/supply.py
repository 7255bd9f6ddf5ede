"""Distributes the open points of a plan in parts: neither points nor results are ever all in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from kernbench.sweep.planning.plan import Group, Plan, Position

# a group with at most this many points left is not divided: another worker would have to run the kernel again
SMALL = 64
# points of a part, after which a worker asks for more
LARGEST = 512
# target seconds of a part, once the time of points is known
_AIM = 0.5
Claim = Callable[[list[Position]], list[Position]]


@dataclass(frozen=True)
class Part:
    """Some points of one functional pass. `careful`: each result is sent at once, as a point may crash."""

    choice: Position
    group: Group
    positions: list[Position]
    careful: bool = False

    def rest(self, done: int, careful: bool) -> "Part":
        """This part without its first points."""
        group = Group(self.group.settings, self.group.shapes, self.group.rates[done:])
        return Part(self.choice, group, self.positions[done:], careful)


@dataclass
class _Open:
    """A functional pass with points that are not all taken."""

    choice: Position
    positions: Iterator[Position]
    left: int
    workers: set[int] = field(default_factory=set)


class Supply:
    """The parts of a plan, generated when a worker asks.

    `claim` is given points and returns those that are to be run now. A worker stays with the group whose kernel it has
    run; it joins another's large group when all groups have been begun. `passes` limits how many groups are begun.
    """

    def __init__(self, plan: Plan, claim: Claim, passes: int | None = None):
        self._plan, self._claim = plan, claim
        self._choices = plan.choices()
        self._open: list[_Open] = []
        self._passes = passes
        self.size = 8

    def take(self, worker: int) -> Part | None:
        """The next part for a worker; None when there is nothing left for it."""
        while True:
            group = self._group_for(worker)
            if group is None:
                return None
            positions = list(islice(group.positions, self.size))
            group.left -= len(positions)
            if group.left <= 0:
                self._open.remove(group)
            claimed = self._claim(positions)
            if claimed:
                if self._passes is not None and not group.workers:
                    self._passes -= 1
                group.workers.add(worker)
                return Part(group.choice, self._plan.group(claimed), claimed)
            # skip quickly over what is done already
            self.size = min(LARGEST, 2 * self.size)

    def learn(self, points: int, seconds: float) -> None:
        """Record the time of this many points: the next part should take about half a second."""
        self.size = max(1, min(LARGEST, int(_AIM * points / max(seconds, 1e-6))))

    def _group_for(self, worker: int) -> _Open | None:
        own = next((group for group in self._open if worker in group.workers), None)
        if own is not None:
            return own
        fresh = next((group for group in self._open if not group.workers), None) or self._begun()
        return fresh or max((g for g in self._open if g.left > SMALL), key=lambda g: g.left, default=None)

    def _begun(self) -> _Open | None:
        if self._passes == 0:
            return None
        choice = next(self._choices, None)
        if choice is None:
            return None
        self._open.append(_Open(choice, self._plan.positions(choice), self._plan.in_group()))
        return self._open[-1]
