"""Source places: which line of somebody's kernel is calling, found fast enough to be kept for every command.

A module of kernbench that kernels call into sets `__kernbench_internal__ = True`; its frames are passed over, so the
place is the innermost line that is not ours.
"""

from sys import _getframe
from traceback import walk_tb
from types import CodeType, FrameType

from kernbench.result.finding import Place


class SiteTable:
    """Numbers each kernel line that is met; `places[number]` is the line.

    A line is looked up by where its instruction lies in memory, one dictionary read: CPython keeps a code object's
    instructions inside it, so no two of them share an address. Frames are walked and the line number is decoded only
    the first time. The table keeps the code objects alive, so that their addresses stay theirs.
    """

    def __init__(self, places: list[Place]):
        self.places = places
        self._numbers: dict[int, int] = {}
        self._by_line: dict[Place, int] = {}
        self._codes: list[CodeType] = []

    def copied(self, lines: list[Place]) -> "SiteTable":
        """A table that knows the same, for a copy of its lines."""
        copy = SiteTable(lines)
        copy._numbers, copy._by_line, copy._codes = self._numbers.copy(), self._by_line.copy(), self._codes.copy()
        return copy

    def become(self, other: "SiteTable") -> None:
        """Have what another has, and share it."""
        vars(self).update(vars(other))

    def here(self, depth: int = 2) -> int:
        """The number of the kernel line that is calling now: at best `depth` frames away, else further out."""
        frame = _getframe(depth)
        number = self._numbers.get(id(frame.f_code) + frame.f_lasti)
        return self._outside(frame) if number is None else number

    def _outside(self, frame: FrameType) -> int:
        """The number of the innermost line from `frame` on that is not ours; ours never get a number of their own."""
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
        """The numbers of the lines that called the function of `frame`, innermost first, up to the first of ours."""
        found: list[int] = []
        # where ours are innermost, the function is the first that is not
        outer: FrameType | None = frame
        while outer is not None and _is_internal(outer):
            outer = outer.f_back
        while outer is not None and (outer := outer.f_back) is not None and not _is_internal(outer):
            found.append(self._outside(outer))
        return tuple(found)

    def callers_here(self) -> tuple[Place, ...]:
        """The lines that called the function of the kernel line that is calling now, innermost first."""
        return tuple(self.places[number] for number in self.callers(_getframe(1)))

    def place_here(self) -> Place:
        """The kernel line that is calling now."""
        return self.places[self.here()]

    def _add(self, code: CodeType, line: int | None) -> int:
        place = Place(code.co_filename, line or code.co_firstlineno, code.co_name)
        number = self._by_line.get(place)
        if number is None:
            number = self._by_line[place] = len(self.places)
            self.places.append(place)
        return number


def _is_internal(frame: FrameType) -> bool:
    return "__kernbench_internal__" in frame.f_globals


def raised_at(error: BaseException) -> Place | None:
    """The innermost line of an exception's traceback that is not ours."""
    places = [
        Place(frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in walk_tb(error.__traceback__)
        if not _is_internal(frame)
    ]
    return places[-1] if places else None
