"""Forms of undefined values: from which unknown numbers a value was made by sums and differences.

A value is a defined number plus unknown ones, each what a register or a word of memory held that nobody had set. Its
*form* is the sum of the latter, with a random number for each, modulo a prime: the form of a sum is the sum of the
forms, and a value of which the form is 0 is defined, whatever the unknown numbers are. Two forms that differ as sums
are the same number once in 10**18 times. The prime is of no special form, so no program adds a number to itself as many
times.

The halves of a number of 64 bits have forms of their own, which depend on the whole number: a carry goes from one half
to the other.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import UInt64s
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.window import Window

# the largest prime below pi * 2**59
_PRIME = np.uint64(0x1921FB54442D1835)
_ONE = np.uint64(1)
# in addition to the form of a half
_LOW, _HIGH = np.uint64(1 << 62), np.uint64(1 << 63)
# numbers that a program computes get other random numbers than those that count
_COMPUTED = np.uint64(0x8C51B3E9F2D70A64)


class Forms:
    """The forms of registers: for each key a row for all lanes, 0 where none has been needed yet.

    A form counts only where the register is undefined.
    """

    def __init__(self, lanes: int):
        self._lanes = lanes
        self._rows: dict[tuple[str, int], UInt64s] = {}
        self._last = 0

    def new(self, count: int) -> UInt64s:
        """Forms of numbers of which nothing is known."""
        self._last += count
        return _random(np.arange(self._last - count, self._last, dtype=np.uint64))

    def get(self, window: Window, key: tuple[str, int], undefined: Mask) -> UInt64s:
        """The forms of a register where it is undefined, at the positions of a window; 0 elsewhere."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = np.zeros(self._lanes, np.uint64)
        lanes = window.lane_numbers[undefined & (row[window.index] == 0)]
        if lanes.size:
            row[lanes] = self.new(lanes.size)
        found: UInt64s = np.where(undefined, row[window.index], np.uint64(0))
        return found

    def put(self, window: Window, key: tuple[str, int], forms: UInt64s | None, mask: Mask | None) -> None:
        """Set the forms of a register at the active positions; None where nothing is known."""
        if forms is None and key not in self._rows:
            return
        row = self._rows.setdefault(key, np.zeros(self._lanes, np.uint64))
        if mask is None:
            row[window.index] = 0 if forms is None else forms
        else:
            row[window.lane_numbers[mask]] = 0 if forms is None else forms[mask]

    def forget(self, key: tuple[str, int], lanes: UInt64s) -> None:
        """Nothing is known any more of a register in some lanes."""
        if key in self._rows:
            self._rows[key][lanes] = 0


def added(one: UInt64s, other: UInt64s) -> UInt64s:
    """The forms of sums."""
    total = _whole(one) + _whole(other)
    found: UInt64s = np.where(total >= _PRIME, total - _PRIME, total)
    return found


def subtracted(one: UInt64s, other: UInt64s) -> UInt64s:
    """The forms of differences."""
    return added(one, (_PRIME - _whole(other)) % _PRIME)


def halves(forms: UInt64s, numbers: UInt64s) -> tuple[UInt64s, UInt64s]:
    """The forms of the lower and upper half of numbers of 64 bits."""
    both = added(forms, _random(numbers ^ _COMPUTED))
    return both | _LOW, both | _HIGH


def joined(low: UInt64s, high: UInt64s, numbers: UInt64s) -> UInt64s:
    """The forms of numbers of 64 bits with these halves; 0 where they are not the halves of one number."""
    both = low ^ _LOW
    same = (both == high ^ _HIGH) & (both < _PRIME)
    found: UInt64s = np.where(same, subtracted(np.where(same, both, _ONE), _random(numbers ^ _COMPUTED)), np.uint64(0))
    return found


def _whole(forms: UInt64s) -> UInt64s:
    """Forms of halves as forms of numbers."""
    return np.where(forms >= _LOW, _random(forms), forms)


def _random(numbers: UInt64s) -> UInt64s:
    """A form for each number, the same for the same one."""
    found = numbers + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ found >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ found >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return (found ^ found >> np.uint64(31)) % (_PRIME - _ONE) + _ONE
