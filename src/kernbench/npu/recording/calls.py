"""Which calls of helper functions led to a core's rows.

A row names the line it comes from. Where that line is in a helper, the line that called it matters as much. It stays
the same while one call of the helper lasts, so a core notes it only where another function goes on with the rows.
"""

from array import array
from bisect import bisect_right
from types import CodeType, FrameType

from kernbench.result.finding import Place
from kernbench.safety.places import SiteTable

__kernbench_internal__ = True


class Calls:
    """The chains of calls of one core, each with the first row that it led to. `root` is what calls kernels."""

    def __init__(self, sites: SiteTable, root: CodeType):
        self._sites = sites
        self._root = root
        self._firsts, self._chains = array("q"), array("q")
        self._known: list[tuple[int, ...]] = []
        # by the instructions in memory that call: see SiteTable, which keeps them alive
        self._numbers: dict[tuple[int, ...], int] = {}

    def note(self, frame: FrameType, row: int) -> None:
        """From `row` on rows come from the function that runs in `frame`."""
        root, callers, caller = self._root, [], frame.f_back
        while caller is not None and (code := caller.f_code) is not root:
            callers.append(id(code) + caller.f_lasti)
            caller = caller.f_back
        key = tuple(callers)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._known)
            self._known.append(self._sites.callers(frame))
        self._firsts.append(row)
        self._chains.append(number)

    def to(self, row: int) -> tuple[Place, ...]:
        """The lines whose calls led to a row, innermost first; none for a line of the kernel itself."""
        at = bisect_right(self._firsts, row) - 1
        return tuple(self._sites.places[n] for n in self._known[self._chains[at]]) if at >= 0 else ()
