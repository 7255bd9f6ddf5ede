"""Undefined bytes of registers: which bytes for each lane, and which warps have any.

Most callers need only the latter.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.forms import Forms
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.lanes.slots import numbers_of
from kernbench.ptx.emulator.lanes.window import WORD, Window
from kernbench.ptx.text.types import TYPES

# a register's bank and row
Key = tuple[str, int]
# set in addition to one bit for each undefined byte: the value is computed, not a plain copy of memory
COMPUTED = np.uint32(1 << 31)


class Typed(Protocol):
    """A register, as far as its width is concerned."""

    @property
    def type(self) -> str:
        """Its type."""


def whole_of(register: Typed) -> Any:
    """The bits of a register that is undefined as a whole."""
    return np.uint32((1 << TYPES[register.type].nbytes) - 1)


class Registers(tuple[Key, ...]):
    """Registers that are looked up together repeatedly."""

    @cached_property
    def numbers(self) -> Int64s:
        """The registers' numbers."""
        return numbers_of(self)


class Flags:
    """For each register that may be undefined.

    A bit for each warp that may have undefined bits, and bits for each lane.

    A register that has never been set is undefined as a whole. Rows with bits for each lane are made only when lanes
    begin to differ, or when somebody reads them. Warps that never use a register keep its bit, which nobody reads.
    """

    def __init__(self, lanes: int):
        self._lanes = lanes
        self.forms = Forms(lanes)
        warps = -(-lanes // WARP)
        self._words = -(-warps // WORD)
        # by register number: a bit for each warp, and whether the register has a row
        self._warps: UInt64s = np.zeros((0, self._words), np.uint64)
        self._has_row: Bools = np.zeros(0, bool)
        self._rows: dict[Key, Array] = {}
        # whether any register has ever been undefined
        self._some = False
        self._begun: Sequence[tuple[Key, int]] = ()

    def begin(self, registers: Sequence[tuple[Key, int]], numbers: Int64s) -> None:
        """Make registers, with their numbers, undefined in all lanes, each with its bits."""
        if registers:
            self._make_room(int(numbers.max()))
            self._warps[numbers] = ~np.uint64(0)
            self._begun, self._some = registers, True

    def known(self, window: Window, keys: Registers) -> bool:
        """Whether any of the registers may be undefined in a warp of a window."""
        return self._some and _is_any(self._warps, keys.numbers, window.warp_words)

    def get(self, window: Window, key: Key) -> Array | None:
        """A register's undefined bits at the positions of a window, None if it is defined everywhere."""
        if not self._some or not _is_any(self._warps, _numbers_of_one(key), window.warp_words):
            return None
        return self._row(key)[window.index]

    def forms_of(self, window: Window, key: Key) -> UInt64s | None:
        """The forms of a register at the positions of a window, None if it is defined everywhere."""
        bits = self.get(window, key)
        return None if bits is None else self.forms.get(window, key, bits != 0)

    def put(
        self, window: Window, key: Key, bits: Array | None, mask: Mask | None, forms: UInt64s | None = None
    ) -> None:
        """Set a register's undefined bits at the active positions, and its forms; None makes it defined."""
        number = int(_numbers_of_one(key)[0])
        if bits is None and mask is None and key not in self._rows:
            _define(self._warps, self._has_row, _numbers_of_one(key), window.warp_words)
            return
        if not self._is_followed(key):
            if bits is None or not (bits if mask is None else bits[mask]).any():
                return
            self._make_room(number)
        if bits is not None:
            self.forms.put(window, key, forms, mask)
        row = self._row(key)
        if mask is None:
            row[window.index] = 0 if bits is None else bits
            undefined = bits is not None and bits.any()
        else:
            row[window.lane_numbers[mask]] = 0 if bits is None else bits[mask]
            undefined = row[window.index].any()
        words = self._warps[number, : len(window.warp_words)]
        if undefined:
            words |= window.warp_words
            self._some = True
        else:
            words &= ~window.warp_words

    def define(self, window: Window, keys: Registers, mask: Mask | None) -> None:
        """Make registers defined at the active positions."""
        if not self._some:
            return
        if mask is None:
            if not _define(self._warps, self._has_row, keys.numbers, window.warp_words):
                return
        elif not self.known(window, keys):
            return
        for key in keys:
            self.put(window, key, None, mask)

    def _make_room(self, number: int) -> None:
        """Grow the arrays up to a register number."""
        more = number + 1 - len(self._warps)
        if more > 0:
            self._warps = np.concatenate((self._warps, np.zeros((more, self._words), np.uint64)))
            self._has_row = np.concatenate((self._has_row, np.zeros(more, bool)))

    @cached_property
    def _whole(self) -> dict[Key, int]:
        """The bits of each register that was undefined from the beginning."""
        return dict(self._begun)

    def _row(self, key: Key) -> Array:
        """The undefined bits of a register in all lanes."""
        row = self._rows.get(key)
        if row is None:
            number = int(_numbers_of_one(key)[0])
            warps = np.unpackbits(self._warps[number].astype("<u8").view(np.uint8), bitorder="little").astype(bool)
            bits = np.uint32(self._whole.get(key, 0)) | COMPUTED
            row = self._rows[key] = np.where(np.repeat(warps, WARP)[: self._lanes], bits, np.uint32(0))
            self._has_row[number] = True
        return row

    def _is_followed(self, key: Key) -> bool:
        """Whether a register has ever been undefined."""
        return key in self._rows or key in self._whole

    def keep(self, rows: dict[str, list[int]], lanes: Array, kept: dict[Key, Array]) -> None:
        """Save the undefined bits of registers, by bank and row, at some lanes."""
        for key in _keys(rows):
            if self._is_followed(key):
                kept.setdefault(key, np.zeros(self._lanes, np.uint32))[lanes] = self._row(key)[lanes]
            elif key in kept:
                kept[key][lanes] = 0

    def restore(self, rows: dict[str, list[int]], lanes: Array, kept: dict[Key, Array]) -> None:
        """Restore the bits that `keep` saved; registers without saved bits become defined."""
        for key in _keys(rows):
            if self._is_followed(key):
                self._row(key)[lanes] = kept[key][lanes] if key in kept else 0
                self.forms.forget(key, lanes)
                if key in kept:
                    self._warps[_numbers_of_one(key)] = ~np.uint64(0)


@lru_cache(1 << 14)
def _numbers_of_one(key: Key) -> Int64s:
    return numbers_of((key,))


def _keys(rows: dict[str, list[int]]) -> list[Key]:
    return [(bank, row) for bank, numbers in rows.items() for row in numbers]


@kernel
def _is_any(warps: UInt64s, numbers: Int64s, here: UInt64s) -> bool:
    """Whether a bit of the warps is set for any of the registers; registers beyond the array have none."""
    for i in range(numbers.size):
        if numbers[i] < warps.shape[0]:
            for word in range(here.size):
                if warps[numbers[i], word] & here[word]:
                    return True
    return False


@kernel
def _define(warps: UInt64s, has_row: Bools, numbers: Int64s, here: UInt64s) -> bool:
    """Clear bits of warps in registers; if one of these has a row and a bit set, change nothing and return True."""
    for i in range(numbers.size):
        if numbers[i] < warps.shape[0] and has_row[numbers[i]]:
            for word in range(here.size):
                if warps[numbers[i], word] & here[word]:
                    return True
    for i in range(numbers.size):
        if numbers[i] < warps.shape[0]:
            for word in range(here.size):
                warps[numbers[i], word] &= ~here[word]
    return False
