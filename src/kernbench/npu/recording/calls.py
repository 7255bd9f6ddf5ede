"""The calls of helper functions that led to a core's rows.

A row has the line that it comes from. If that line is in a helper, the line of the call matters as much. It stays
the same during one call of the helper, so a core records it only when the rows come from another function.
"""

from array import array
from bisect import bisect_right
from types import CodeType, FrameType

from kernbench.result.finding import SourceLocation
from kernbench.safety.source_locations import SiteTable

__kernbench_internal__ = True


class Calls:
    """The call chains of one core, each with the first row that it led to. `root` is the function that calls
    kernels.
    """

    def __init__(self, sites: SiteTable, root: CodeType):
        self._sites = sites
        self._root = root
        self._firsts, self._chains = array("q"), array("q")
        self._known: list[tuple[int, ...]] = []
        # by the addresses of the call instructions: see SiteTable, which keeps their code alive
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

    def to(self, row: int) -> tuple[SourceLocation, ...]:
        """The lines whose calls led to a row, innermost first; none for a line of the kernel itself."""
        at = bisect_right(self._firsts, row) - 1
        return tuple(self._sites.locations[n] for n in self._known[self._chains[at]]) if at >= 0 else ()
