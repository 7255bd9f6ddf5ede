"""Source places: which line of somebody's kernel is calling, found fast enough to be kept for every command.

A module of kernbench that kernels call into sets `__kernbench_internal__ = True`; its frames are passed over, so the
place is the innermost line that is not ours.
"""

import sys
from types import CodeType

from kernbench.result.finding import Place


class SiteTable:
    """Numbers each kernel line that is met; `places[number]` is the line.

    A line is looked up by code object and instruction offset, which costs two dictionary reads; the line number itself
    is decoded once. The table keeps the code objects alive, so that their identities stay theirs.
    """

    def __init__(self, places: list[Place]):
        self.places = places
        self._numbers: dict[tuple[int, int], int] = {}
        self._by_place: dict[Place, int] = {}
        self._codes: dict[int, CodeType] = {}

    def here(self) -> int:
        """The number of the kernel line that is calling now."""
        frame = sys._getframe(2)
        while "__kernbench_internal__" in frame.f_globals:
            back = frame.f_back
            if back is None:
                break
            frame = back
        code = frame.f_code
        key = (id(code), frame.f_lasti)
        number = self._numbers.get(key)
        if number is None:
            number = self._add(key, code, frame.f_lineno or code.co_firstlineno)
        return number

    def place_here(self) -> Place:
        """The kernel line that is calling now."""
        return self.places[self.here()]

    def _add(self, key: tuple[int, int], code: CodeType, line: int) -> int:
        place = Place(code.co_filename, line, code.co_name)
        number = self._by_place.get(place)
        if number is None:
            number = self._by_place[place] = len(self.places)
            self.places.append(place)
        self._codes[key[0]] = code
        self._numbers[key] = number
        return number
