"""The log of a batch: what its warps execute, a row for each step or event of many warps at once.

Rows name a set of warps with how many lanes of each are active; sets come back again and again. What an event has for
each warp lies in a pool: one row of it where it is the same for all warps of the set.
"""

from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes, Mask
from kernbench.ptx.recording.recording import Int32s, UInt8s
from kernbench.ptx.recording.survey import COLUMNS, REUSE

# `CHANGED`: what warps did last in a loop that may wait has changed memory
STEP, EVENT, TURN, CHANGED = range(4)
# columns of a row: what it is, the block, instruction or loop, the set, the kind, and where the pools have its rows
# (-1: nowhere), with 1 where each warp has a row of its own
WHAT, NUMBER, SET, KIND, DATA, SPREAD, REUSED, REUSE_SPREAD = range(8)
_ROWS = 8192
_NOTHING: UInt8s = np.zeros(0, np.uint8)
_NO_WARPS: Int32s = np.zeros(0, np.int32)


class WarpSet(NamedTuple):
    """Warps `first` to `first + many`, or those of `warps`; active lanes of each, or 32 where there are none."""

    first: int
    many: int
    warps: Int32s
    lanes: UInt8s


@kernel
def count_lanes(mask: Bools, counts: UInt8s) -> None:
    """The active lanes of each warp."""
    for warp in range(len(counts)):
        found = 0
        for lane in range(WARP):
            found += mask[warp * WARP + lane]
        counts[warp] = found


class Pool:
    """Rows of numbers, taken one piece after the other."""

    def __init__(self, columns: int):
        self._rows: Int32s = np.empty((1024, columns), np.int32)
        self.used = 0

    def room(self, count: int) -> Int32s:
        """Room for some rows behind those that are used; `used` moves on by what is kept of them."""
        if self.used + count > len(self._rows):
            grown = np.empty((max(2 * len(self._rows), self.used + count), self._rows.shape[1]), np.int32)
            grown[: self.used] = self._rows[: self.used]
            self._rows = grown
        return self._rows[self.used : self.used + count]

    @property
    def rows(self) -> Int32s:
        """All that are used."""
        return self._rows[: self.used]

    @property
    def nbytes(self) -> int:
        """Bytes taken."""
        return int(self._rows.nbytes)


class LogParts(NamedTuple):
    """A log as compiled loops read it. Set s has `set_count[s]` warps from `set_first[s]` on, or where `set_warps[s]`
    is not negative those of `warps` there; where `set_lanes[s]` is not negative `lanes` there, else 32 lanes each.
    """

    rows: Int64s
    set_first: Int64s
    set_count: Int64s
    set_warps: Int64s
    set_lanes: Int64s
    warps: Int32s
    lanes: UInt8s
    data: Int32s
    reuse: Int32s

    def given(self) -> "GivenLog":
        """The same as it is passed."""
        sets = self.set_first, self.set_count, self.set_warps, self.set_lanes
        return self.rows, *sets, self.warps, self.lanes, self.data, self.reuse


# the same as it is passed
GivenLog = tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Int32s, UInt8s, Int32s, Int32s]


@part
def log_of(given: GivenLog) -> LogParts:
    """What is passed, by name."""
    return LogParts(given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7], given[8])


class Log:
    """The log of one batch while it runs."""

    def __init__(self) -> None:
        self._recent: list[tuple[int, int, int, int, int, int, int, int]] = []
        self._rows: list[Int64s] = []
        self._sets: list[WarpSet] = []
        self._last: tuple[Lanes | None, int] = (None, -1)
        self._set_bytes = 0
        self.data = Pool(COLUMNS)
        self.reuse = Pool(REUSE)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, about."""
        rows = _ROWS * 64 * (len(self._rows) + 1)
        return rows + self._set_bytes + self.data.nbytes + self.reuse.nbytes

    def of_lanes(self, lanes: Lanes) -> int:
        """The set of some lanes; the same again for the same object."""
        if self._last[0] is not lanes:
            self._last = lanes, self._new_set(lanes)
        return self._last[1]

    def _new_set(self, lanes: Lanes) -> int:
        counts = _NOTHING
        if lanes.mask is not None:
            counts = np.empty(lanes.warp_count, np.uint8)
            count_lanes(lanes.mask, counts)
        if lanes.warps is None:
            return self.add_set(WarpSet(lanes.first, lanes.last - lanes.first, _NO_WARPS, counts))
        return self.add_set(WarpSet(0, len(lanes.warps), lanes.warps.astype(np.int32), counts))

    def of_mask(self, warps: Array, mask: Mask | None, run: bool) -> int:
        """The set of the warps of a window, with the lanes of a mask; `run` says that they follow each other."""
        counts = _NOTHING
        if mask is not None:
            counts = np.empty(len(warps), np.uint8)
            count_lanes(mask, counts)
        if run:
            return self.add_set(WarpSet(int(warps[0]), len(warps), _NO_WARPS, counts))
        return self.add_set(WarpSet(0, len(warps), warps.astype(np.int32), counts))

    def add_set(self, warps: WarpSet) -> int:
        """The number of a new set."""
        self._sets.append(warps)
        self._set_bytes += 128 + warps.warps.nbytes + warps.lanes.nbytes
        return len(self._sets) - 1

    def add(
        self,
        what: int,
        number: int,
        of: int,
        kind: int = 0,
        data: int = -1,
        spread: int = 0,
        reuse: int = -1,
        reuse_spread: int = 0,
    ) -> bool:
        """One more row; whether a piece has become full, so that memory should be looked at."""
        self._recent.append((what, number, of, kind, data, spread, reuse, reuse_spread))
        if len(self._recent) < _ROWS:
            return False
        self._close_piece()
        return True

    def _close_piece(self) -> None:
        if self._recent:
            self._rows.append(np.array(self._recent, np.int64))
            self._recent = []

    def closed(self) -> LogParts:
        """All of it."""
        self._close_piece()
        sets = self._sets
        rows = np.concatenate(self._rows) if self._rows else np.zeros((0, 8), np.int64)
        return LogParts(
            rows,
            np.array([s.first for s in sets], np.int64),
            np.array([s.many for s in sets], np.int64),
            _starts([len(s.warps) for s in sets]),
            _starts([len(s.lanes) for s in sets]),
            np.concatenate([_NO_WARPS, *(s.warps for s in sets)]),
            np.concatenate([_NOTHING, *(s.lanes for s in sets)]),
            self.data.rows,
            self.reuse.rows,
        )


def _starts(lengths: list[int]) -> Int64s:
    """Where pieces of these lengths begin, one after the other; -1 for those that are empty."""
    sizes = np.array(lengths, np.int64)
    found: Int64s = np.where(sizes > 0, np.cumsum(sizes) - sizes, -1)
    return found
