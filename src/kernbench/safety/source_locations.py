"""Source locations: the kernel line that is calling now, found fast enough to be recorded for every command.

A module of kernbench that kernels call into sets `__kernbench_internal__ = True`. Its frames are skipped, so the
location is the innermost line outside of it.
"""

import os
from sys import _getframe
from types import CodeType, FrameType

from kernbench.common.errors import traced
from kernbench.result.finding import SourceLocation

_PYTHON = os.path.dirname(os.__file__) + os.sep


class SiteTable:
    """Numbers each kernel line on first use; `locations[number]` is the line.

    The key of a line is the address of its bytecode instruction, one dictionary lookup: CPython stores the instructions
    inside the code object, so no two share an address. Frames are walked and the line number is decoded only the first
    time. The table keeps the code objects alive, so that no address is reused.
    """

    def __init__(self, locations: list[SourceLocation]):
        self.locations = locations
        self._numbers: dict[int, int] = {}
        self._by_line: dict[SourceLocation, int] = {}
        self._codes: list[CodeType] = []

    def copied(self, lines: list[SourceLocation]) -> "SiteTable":
        """A copy of the table, for a copy of its list of lines."""
        copy = SiteTable(lines)
        copy._numbers, copy._by_line, copy._codes = self._numbers.copy(), self._by_line.copy(), self._codes.copy()
        return copy

    def become(self, other: "SiteTable") -> None:
        """Take over another table's state, and share it from then on."""
        vars(self).update(vars(other))

    def here(self, depth: int = 2) -> int:
        """The number of the kernel line that is calling now: at least `depth` frames out."""
        frame = _getframe(depth)
        number = self._numbers.get(id(frame.f_code) + frame.f_lasti)
        return self._outside(frame) if number is None else number

    def _outside(self, frame: FrameType) -> int:
        """The number of the innermost line from `frame` outwards that is not internal.

        Internal lines are not numbered.
        """
        while _is_internal(frame) and frame.f_back is not None:
            frame = frame.f_back
        key = id(frame.f_code) + frame.f_lasti
        number = self._numbers.get(key)
        if number is None:
            number = self._add(frame.f_code, frame.f_lineno)
            if not _is_internal(frame):
                self._codes.append(frame.f_code)
                self._numbers[key] = number
        return number

    def callers(self, frame: FrameType) -> tuple[int, ...]:
        """The numbers of the lines that called the function of `frame`, innermost first, up to an internal one."""
        found: list[int] = []
        # if the innermost frames are internal, start at the first that is not
        outer: FrameType | None = frame
        while outer is not None and _is_internal(outer):
            outer = outer.f_back
        while outer is not None and (outer := outer.f_back) is not None and not _is_internal(outer):
            found.append(self._outside(outer))
        return tuple(found)

    def callers_here(self) -> tuple[SourceLocation, ...]:
        """The call stack of the kernel line that is calling now, innermost first."""
        return tuple(self.locations[number] for number in self.callers(_getframe(1)))

    def location_here(self) -> SourceLocation:
        """The kernel line that is calling now."""
        return self.locations[self.here()]

    def _add(self, code: CodeType, line: int | None) -> int:
        location = SourceLocation(code.co_filename, line or code.co_firstlineno, code.co_name)
        number = self._by_line.get(location)
        if number is None:
            number = self._by_line[location] = len(self.locations)
            self.locations.append(location)
        return number


def _is_internal(frame: FrameType) -> bool:
    return "__kernbench_internal__" in frame.f_globals


def raised_at(error: BaseException) -> SourceLocation | None:
    """The innermost line of an exception's traceback that is not internal."""
    locations = [
        SourceLocation(frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traced(error)
        if not _is_internal(frame)
    ]
    return locations[-1] if locations else None


def is_installed(file: str) -> bool:
    """Whether a source file belongs to Python itself or to an installed package."""
    return "site-packages" in file or file.startswith((_PYTHON, "<frozen"))
