"""Log of a program's queue calls in a process of its own, and of the lines, types and patterns first used between two
calls: enough to reconstruct the order in which a single process would have met them.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.result.finding import SourceLocation
from kernbench.result.recording import HandleType, Tables
from kernbench.safety.source_locations import SiteTable

# a send in a direction, with its pieces; a receive from one; a wait for a request, by its number
SEND, RECEIVE, WAIT = 0, 1, 2
# lookup key of a pattern in tables: shape, strides in elements, bytes of an element
Key = tuple[tuple[int, ...], tuple[int, ...] | None, int]


@dataclass(frozen=True)
class Met:
    """Lines, types and patterns that were first used after `call` calls, in order."""

    call: int
    sites: list[SourceLocation]
    types: list[HandleType]
    patterns: list[Key]


class Noted(NamedTuple):
    """Calls as rows of kind, what and pieces; `what` is the number of a direction, or of the request awaited."""

    rows: Array
    directions: list[str]


@dataclass
class Calls:
    """The calls of one program since the launch was divided, each logged when it is done.

    Requests are numbered in the order they were made, outstanding ones of before first. The program has tables of
    its own, which begin with the entries known to all.
    """

    tables: Tables
    sites: SiteTable
    # kind, what and pieces of each
    made: list[tuple[int, int, int]] = field(default_factory=list)
    met: list[Met] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _directions: dict[str, int] = field(default_factory=dict)
    _requests: int = 0
    _known: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        self._known = self._sizes()

    def under_way(self, request: object) -> None:
        """Register a request that was made before."""
        self._number(request)

    def sent(self, request: object, direction: str, pieces: int) -> None:
        """Log the begin of a send."""
        self._number(request)
        self._note(SEND, self._direction(direction), pieces)

    def posted(self, request: object, direction: str) -> None:
        """Log the begin of a receive."""
        self._number(request)
        self._note(RECEIVE, self._direction(direction))

    def waited(self, request: object) -> None:
        """Log a finished wait of the program for a request."""
        self._note(WAIT, self._numbers[id(request)])

    def settle(self) -> None:
        """Record the table entries since the last call."""
        before, now = self._known, self._sizes()
        if now != before:
            tables = self.tables
            patterns = list(tables.pattern_numbers)[before[2] :]
            met = Met(len(self.made), tables.sites[before[0] :], tables.types[before[1] :], patterns)
            self.met.append(met)
            self._known = now

    def _number(self, request: object) -> None:
        # an id may be reused after its request is gone: nothing waits for that any more
        self._numbers[id(request)] = self._requests
        self._requests += 1

    def _direction(self, name: str) -> int:
        return self._directions.setdefault(name, len(self._directions))

    def _note(self, kind: int, what: int, pieces: int = 0) -> None:
        # new table entries belong before this call
        self.settle()
        self.made.append((kind, what, pieces))

    def noted(self) -> Noted:
        """All calls."""
        return Noted(np.array(self.made, np.int32).reshape(-1, 3), list(self._directions))

    def _sizes(self) -> tuple[int, int, int]:
        return len(self.tables.sites), len(self.tables.types), len(self.tables.patterns)
