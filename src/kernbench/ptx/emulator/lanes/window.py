"""Windows: the rows of a set of warps. A run of warps accesses registers in place, a list of warps by copies.

Operations read `rows[slot]` and write through `put`, which leaves inactive lanes alone. On a run of warps that are all
active an operation may also write to `rows[slot]` directly.

The rest of a batch, such as memory and barriers, is unknown here: `WindowOf` takes the type of the batch, so that an
instruction with a window of a whole batch can reach all of it. Where only rows matter, `Window` suffices.
"""

from functools import cached_property, lru_cache
from typing import Generic, Protocol, TypeVar

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.native.entry import begin_of
from kernbench.ptx.emulator.lanes.arrays import UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes, Mask, Warps
from kernbench.ptx.emulator.lanes.remembered import numbers_of
from kernbench.ptx.emulator.lanes.slots import ARGUMENT_BYTES, BANKS, RegisterSlot, SlotTable

# bases of a window for machine code: the banks, then constants, parameter values, and slots that are not registers
CONSTANT = len(BANKS)
ARGUMENT = CONSTANT + 1
OUTSIDE = ARGUMENT + 1
# warps per 64-bit word
WORD = 64
# windows of at most this many lanes cache masks by value, and how many masks
REMEMBERED = 2048
_MASKS = 1 << 8


class Storage(Protocol):
    """What a window needs from its batch."""

    table: SlotTable
    # the register rows of all lanes, by bank
    banks: dict[str, Array]
    # parameter values, a row of bytes each
    arguments: Array

    def row(self, slot: int) -> Array:
        """The whole row of a slot: one entry for each lane, or a zero-dimensional constant."""


class Rows(Protocol):
    """The rows of a window by slot."""

    def __getitem__(self, slot: int, /) -> Array:
        """The row of a slot: one entry for each position, or a zero-dimensional constant."""


# covariant: a window of a batch can be used wherever one of a base of the batch is wanted
BatchT = TypeVar("BatchT", bound=Storage, covariant=True)
AnyBatch = TypeVar("AnyBatch", bound=Storage)


class WindowOf(Generic[BatchT]):
    """The rows of some warps of a batch, independent of any mask."""

    # whether writing to its rows writes to the batch
    in_place = False

    def __init__(self, batch: BatchT, lanes: Lanes):
        self.batch = batch
        self.size = lanes.positions
        self.warps, self.lane_numbers = numbers_of(lanes)
        self._table: SlotTable = batch.table
        self._scratch: dict[tuple[str, int], Array] = {}
        # the same by slot, for the most frequent requests
        self._blanks: dict[int, Array] = {}
        self.rows: Rows = ()
        # results for the last mask, and for small masks by their bytes: see `leaders`
        self._last: tuple[Mask | None, Array, Array] | None = None
        self._leaders: dict[bytes | None, tuple[Array, Array]] = {}
        # results of `bases`, by outside slots
        self.known_bases: dict[tuple[int, ...], Array] = {}
        # the index of its positions in a row of the whole batch
        self.index: slice | Warps = self.lane_numbers

    def scratch(self, dtype: str, number: int = 0) -> Array:
        """An array with one entry for each position, the same object for the same `dtype` and `number`."""
        found = self._scratch.get((dtype, number))
        if found is None:
            found = self._scratch[dtype, number] = np.zeros(self.size, dtype)
        return found

    def blank(self, slot: int, number: int = 0) -> Array:
        """Scratch of the slot's type, for results that `put` then writes."""
        if number:
            return self.scratch(self._table.slots[slot].dtype, number)
        found = self._blanks.get(slot)
        if found is None:
            found = self._blanks[slot] = self.scratch(self._table.slots[slot].dtype)
        return found

    def leaders(self, mask: Mask | None) -> tuple[Array, Array]:
        """The position of the first active lane of each warp that has one, and these warps.

        Returns the same arrays again for the same mask.
        """
        if self.size > REMEMBERED:
            return self._leaders_of_many(mask)
        key = None if mask is None else mask.tobytes()
        found = self._leaders.get(key)
        if found is None:
            if len(self._leaders) >= _MASKS:
                self._leaders.clear()
            chosen = np.arange(0, self.size, WARP) if key is None else first_lanes(key)[0]
            found = self._leaders[key] = chosen, self.warps[chosen // WARP]
        return found

    def singles(self, mask: Mask | None) -> Array | None:
        """The positions of active lanes if no warp has two of them; None if one may have."""
        if mask is None or self.size > REMEMBERED:
            return None
        found, alone = first_lanes(mask.tobytes())
        return found if alone else None

    def _leaders_of_many(self, mask: Mask | None) -> tuple[Array, Array]:
        if self._last is None or self._last[0] is not mask or self._is_register(mask):
            found = np.arange(0, self.size, WARP) if mask is None else _first_lanes(mask)
            self._last = mask, found, self.warps[found // WARP]
        return self._last[1:]

    def _is_register(self, mask: Mask | None) -> bool:
        """Whether a mask is a view of a predicate register, whose content may have changed."""
        bank = self.batch.banks["bool"]
        return mask is not None and mask.base is not None and mask.base is (bank if bank.base is None else bank.base)

    @cached_property
    def warp_words(self) -> UInt64s:
        """A bit for each of its warps, in as many 64-bit words as needed."""
        words = [0] * (int(self.warps.max()) // WORD + 1)
        for warp in self.warps.tolist():
            words[warp // WORD] |= 1 << warp % WORD
        return np.array(words, np.uint64)

    @cached_property
    def layout(self) -> Array:
        """For machine code: address of the first row and row stride of each bank, then the number of positions."""
        raise NotImplementedError

    def bases(self, outside: tuple[int, ...]) -> Array:
        """For machine code: the number of positions; then for each base its address, its row stride, and an index mask.

        A mask of zero means that the first entries stand for all positions. Bases are the banks, one at address 0,
        parameter values, and the rows of `outside` slots, which do not move.
        """
        raise NotImplementedError

    def put(self, slot: int, values: Array, mask: Mask | None) -> None:
        """Write `values` (one for each position, or one for all) to the active lanes of a register."""
        raise NotImplementedError

    def put_blank(self, slot: int, values: Array, mask: Mask | None) -> None:
        """As `put`, for values computed into `blank(slot)`."""
        self.put(slot, values, mask)


class RunWindow(WindowOf[BatchT]):
    """A window of a run of warps: rows are slices of the batch's rows."""

    in_place = True

    def __init__(self, batch: BatchT, lanes: Lanes):
        super().__init__(batch, lanes)
        part = self.index = slice(lanes.first * WARP, lanes.last * WARP)
        self.rows = _Slices(batch, part)
        # keeps alive the rows that bases point to
        self._spread: list[Array] = []

    @cached_property
    def layout(self) -> Array:
        """Addresses of the rows; banks do not move while the batch lives."""
        found: list[int] = []
        first = int(self.lane_numbers[0])
        for bank in BANKS:
            rows = self.batch.banks[bank]
            found += (begin_of(rows) + first * rows.itemsize, rows.strides[0])
        return np.array([*found, self.size], np.int64)

    def bases(self, outside: tuple[int, ...]) -> Array:
        """Addresses of the rows; the same array for the same slots."""
        found = self.known_bases.get(outside)
        if found is None:
            found = self.known_bases[outside] = self._based(outside)
        return found

    def _based(self, outside: tuple[int, ...]) -> Array:
        layout = self.layout.tolist()
        numbers = [layout[-1]]
        for begin, gap in zip(layout[:-1:2], layout[1:-1:2], strict=True):
            numbers += [begin, gap, -1]
        numbers += [0, 1, 0, begin_of(self.batch.arguments), ARGUMENT_BYTES, 0]
        rows = [self.rows[slot] for slot in outside]
        spread = [row if row.ndim else np.full(WARP, row) for row in rows]
        for row, held in zip(rows, spread, strict=True):
            numbers += [begin_of(held), 0, -1 if row.ndim else 0]
        self._spread += spread
        return np.array(numbers, np.int64)

    def put(self, slot: int, values: Array, mask: Mask | None) -> None:
        """Write `values` to the active lanes of a register."""
        row = self.rows[slot]
        if mask is None:
            row[...] = values
        elif values.shape == row.shape and row.ndim == 1 and values.dtype == row.dtype:
            blend(row, values, mask)
        else:
            row[mask] = values[mask] if values.ndim == row.ndim else values

    def put_blank(self, slot: int, values: Array, mask: Mask | None) -> None:
        """As `put`, for values computed into `blank(slot)`, which have the row's shape and type."""
        if mask is None:
            self.rows[slot][...] = values
        else:
            blend(self.rows[slot], values, mask)


class _Slices(dict[int, Array]):
    """Rows of a run of lanes, sliced on first use.

    Programs have thousands of slots, and launches have many windows that each run a part of the program.
    """

    def __init__(self, batch: Storage, part: slice):
        super().__init__()
        self._batch, self._banks, self._slots = batch, batch.banks, batch.table.slots
        self._part = part

    def __missing__(self, slot: int) -> Array:
        spec = self._slots[slot]
        if isinstance(spec, RegisterSlot):
            found: Array = self._banks[spec.bank][spec.row, self._part]
        else:
            row = self._batch.row(slot)
            found = row[self._part] if row.ndim else row
        self[slot] = found
        return found


class ListWindow(WindowOf[BatchT]):
    """A window of a list of warps: rows are gathered when read and scattered when written."""

    def __init__(self, batch: BatchT, lanes: Lanes):
        super().__init__(batch, lanes)
        self.rows = _Gathered(batch, self.lane_numbers)

    def put(self, slot: int, values: Array, mask: Mask | None) -> None:
        """Write `values` to the active lanes of a register."""
        row = self.batch.row(slot)
        if mask is None:
            row[self.lane_numbers] = values
        else:
            row[self.lane_numbers[mask]] = values[mask] if values.ndim else values


class _Gathered:
    """Rows of listed lanes, copied on each access."""

    def __init__(self, batch: Storage, lanes: Warps):
        self._batch = batch
        self._lanes = lanes

    def __getitem__(self, slot: int) -> Array:
        row = self._batch.row(slot)
        return row[self._lanes] if row.ndim else row


def _first_lanes(mask: Mask) -> Array:
    """The position of the first active lane of each warp that has one."""
    rows = mask.reshape(-1, WARP)
    found: Array = (np.arange(len(rows)) * WARP + rows.argmax(axis=1))[rows.any(axis=1)]
    return found


@lru_cache(1 << 11)
def first_lanes(mask: bytes) -> tuple[Array, bool]:
    """As `_first_lanes`, for a mask given by its bytes, and whether these are all its active lanes; read-only."""
    given: Mask = np.frombuffer(mask, bool)
    found = _first_lanes(given)
    return found, len(found) == np.count_nonzero(given)


@kernel
def blend(target: Array, values: Array, mask: Mask) -> None:
    """target = values where mask."""
    for i in range(target.size):
        target[i] = values[i] if mask[i] else target[i]


def window_of(batch: AnyBatch, lanes: Lanes) -> WindowOf[AnyBatch]:
    """The window of the warps of a set of lanes."""
    return RunWindow(batch, lanes) if lanes.warps is None else ListWindow(batch, lanes)


# a window whose batch does not matter
Window = WindowOf[Storage]
