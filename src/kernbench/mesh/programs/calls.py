"""What a program asks of its queues while it runs in a process of its own, and which lines, types and patterns it met
between two such calls: enough to find out later in which order one process would have met them.
"""

from dataclasses import dataclass, field

from kernbench.result.finding import Place
from kernbench.result.recording import HandleType, Tables
from kernbench.safety.places import SiteTable

# a send in a direction, with its pieces; a receive from one; a wait for a request, by its number
SEND, RECEIVE, WAIT = range(3)
Call = tuple[int, str | int, int]
# a pattern as tables look for it: shape, strides in elements, bytes of an element
Key = tuple[tuple[int, ...], tuple[int, ...] | None, int]


@dataclass(frozen=True)
class Met:
    """Lines, types and patterns that were first met after `call` calls, in their order."""

    call: int
    sites: list[Place]
    types: list[HandleType]
    patterns: list[Key]


@dataclass
class Calls:
    """The calls of one program since it was divided, each noted when it is done.

    Requests are numbered in the order they were made, those that were under way before first. The program has tables of
    its own, which begin with what was known to all.
    """

    tables: Tables
    sites: SiteTable
    made: list[Call] = field(default_factory=list)
    met: list[Met] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _requests: int = 0
    _known: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        self._known = self._sizes()

    def under_way(self, request: object) -> None:
        """A request that was made before."""
        self._number(request)

    def sent(self, request: object, direction: str, pieces: int) -> None:
        """A send began."""
        self._number(request)
        self._note((SEND, direction, pieces))

    def posted(self, request: object, direction: str) -> None:
        """A receive began."""
        self._number(request)
        self._note((RECEIVE, direction, 0))

    def waited(self, request: object) -> None:
        """A request is done, and the program has waited for it."""
        self._note((WAIT, self._numbers[id(request)], 0))

    def settle(self) -> None:
        """Keep what was met since the last call."""
        before, now = self._known, self._sizes()
        if now != before:
            tables = self.tables
            patterns = list(tables.pattern_numbers)[before[2] :]
            met = Met(len(self.made), tables.sites[before[0] :], tables.types[before[1] :], patterns)
            self.met.append(met)
            self._known = now

    def _number(self, request: object) -> None:
        # a number may be that of an older request, which is gone: nobody waits for that any more
        self._numbers[id(request)] = self._requests
        self._requests += 1

    def _note(self, call: Call) -> None:
        # what was met so far was met before this call was done
        self.settle()
        self.made.append(call)

    def _sizes(self) -> tuple[int, int, int]:
        return len(self.tables.sites), len(self.tables.types), len(self.tables.patterns)
