"""Windows: the rows of a set of warps. A run of warps sees its registers in place; a list of warps by copies.

Operations read `rows[slot]` and write through `put`, which leaves inactive lanes alone. On a run of warps that are
all active an operation may also write `rows[slot]` directly.

What else a batch has, its memory and its barriers, is not known here: `WindowOf` takes the type of the batch, so that
an instruction which is given a window of a whole batch reaches all of it. Where only rows matter, a `Window` will do.
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

# bases of a window for machine code: banks first, then constants, values of parameters, and what is not a register
CONSTANT = len(BANKS)
ARGUMENT = CONSTANT + 1
OUTSIDE = ARGUMENT + 1
# warps that have a bit in one word
WORD = 64
# lanes of windows that remember masks by value, and how many of them each
REMEMBERED = 2048
_MASKS = 1 << 8


class Storage(Protocol):
    """What a window needs of its batch."""

    table: SlotTable
    # the register rows of all lanes, by bank
    banks: dict[str, Array]
    # values of the kernel's parameters, a row of bytes each
    arguments: Array

    def row(self, slot: int) -> Array:
        """The whole row of a slot: one entry a lane, or none for a constant."""


class Rows(Protocol):
    """The rows of a window by slot."""

    def __getitem__(self, slot: int, /) -> Array:
        """The row of a slot: one entry a position, or none for a constant."""


# a window of a batch is one of whatever the batch can stand for
BatchT = TypeVar("BatchT", bound=Storage, covariant=True)
AnyBatch = TypeVar("AnyBatch", bound=Storage)


class WindowOf(Generic[BatchT]):
    """The rows of some warps of a batch, whatever their mask."""

    # whether what is written to its rows is written to the batch
    in_place = False

    def __init__(self, batch: BatchT, lanes: Lanes):
        self.batch = batch
        self.size = lanes.positions
        self.warps, self.lane_numbers = numbers_of(lanes)
        self._table: SlotTable = batch.table
        self._scratch: dict[tuple[str, int], Array] = {}
        # the same by slot, of those that are asked for most
        self._blanks: dict[int, Array] = {}
        self.rows: Rows = ()
        # what was found of the last mask that was asked about, and of small ones by their bytes: see `leaders`
        self._last: tuple[Mask | None, Array, Array] | None = None
        self._leaders: dict[bytes | None, tuple[Array, Array]] = {}
        # what `bases` gave, by outside slots
        self.known_bases: dict[tuple[int, ...], Array] = {}
        # where its positions lie in a row of the whole batch
        self.index: slice | Warps = self.lane_numbers

    def scratch(self, dtype: str, number: int = 0) -> Array:
        """An array of one entry a position, the same each time for the same `dtype` and `number`."""
        found = self._scratch.get((dtype, number))
        if found is None:
            found = self._scratch[dtype, number] = np.zeros(self.size, dtype)
        return found

    def blank(self, slot: int, number: int = 0) -> Array:
        """Scratch of the slot's type, to compute what `put` then writes."""
        if number:
            return self.scratch(self._table.slots[slot].dtype, number)
        found = self._blanks.get(slot)
        if found is None:
            found = self._blanks[slot] = self.scratch(self._table.slots[slot].dtype)
        return found

    def leaders(self, mask: Mask | None) -> tuple[Array, Array]:
        """The position of the first active lane of each warp that has one, and these warps; the same arrays again for
        the same mask.
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
        """The positions of active lanes if no warp has two of them; None where one may have."""
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
        """Whether a mask is a predicate itself, and may be another one by now."""
        bank = self.batch.banks["bool"]
        return mask is not None and mask.base is not None and mask.base is (bank if bank.base is None else bank.base)

    @cached_property
    def warp_words(self) -> UInt64s:
        """Numbers of 64 bits, as many as it needs, that have the bit of each of its warps set."""
        words = [0] * (int(self.warps.max()) // WORD + 1)
        for warp in self.warps.tolist():
            words[warp // WORD] |= 1 << warp % WORD
        return np.array(words, np.uint64)

    @cached_property
    def layout(self) -> Array:
        """For machine code: of each bank where its first row begins and the bytes between rows; then the positions."""
        raise NotImplementedError

    def bases(self, outside: tuple[int, ...]) -> Array:
        """For machine code: the positions; then of each base where it begins, the bytes between its rows, and a number
        that positions are combined with: no bit of it is set where its first entries stand for all.

        Bases are the banks, one that begins at address 0, values of parameters, and the rows of `outside` slots, which
        stay as they are.
        """
        raise NotImplementedError

    def put(self, slot: int, values: Array, mask: Mask | None) -> None:
        """Write `values` (one a position, or one for all) to the active lanes of a register."""
        raise NotImplementedError

    def put_blank(self, slot: int, values: Array, mask: Mask | None) -> None:
        """As `put`, of what was computed into `blank(slot)`."""
        self.put(slot, values, mask)


class RunWindow(WindowOf[BatchT]):
    """A run of warps: rows are slices of the batch's."""

    in_place = True

    def __init__(self, batch: BatchT, lanes: Lanes):
        super().__init__(batch, lanes)
        part = self.index = slice(lanes.first * WARP, lanes.last * WARP)
        self.rows = _Slices(batch, part)
        # rows that were made for bases
        self._spread: list[Array] = []

    @cached_property
    def layout(self) -> Array:
        """Where the rows lie; banks stay where they are as long as there is a batch."""
        found: list[int] = []
        first = int(self.lane_numbers[0])
        for bank in BANKS:
            rows = self.batch.banks[bank]
            found += (begin_of(rows) + first * rows.itemsize, rows.strides[0])
        return np.array([*found, self.size], np.int64)

    def bases(self, outside: tuple[int, ...]) -> Array:
        """Where rows lie; the same array each time for the same slots."""
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
        """As `put`, of what was computed into `blank(slot)`: it has the shape and the type of the row."""
        if mask is None:
            self.rows[slot][...] = values
        else:
            blend(self.rows[slot], values, mask)


class _Slices(dict[int, Array]):
    """Rows of a run of lanes, each made when it is first asked for: programs have thousands, and launches many windows
    of which most run a part of the program.
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
    """A list of warps: rows are gathered when read and scattered when written."""

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
    """Rows of listed lanes, copied when asked for."""

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
    """As `_first_lanes`, of a mask given by its bytes, and whether these are all active lanes; nobody writes to it."""
    given: Mask = np.frombuffer(mask, bool)
    found = _first_lanes(given)
    return found, len(found) == np.count_nonzero(given)


@kernel
def blend(target: Array, values: Array, mask: Mask) -> None:
    """target = values where mask."""
    for i in range(target.size):
        target[i] = values[i] if mask[i] else target[i]


def window_of(batch: AnyBatch, lanes: Lanes) -> WindowOf[AnyBatch]:
    """The window of a set of lanes' warps."""
    return RunWindow(batch, lanes) if lanes.warps is None else ListWindow(batch, lanes)


# where a window's rows are all that matters
Window = WindowOf[Storage]
