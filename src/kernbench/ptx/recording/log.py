"""The log of a batch: what its warps execute, one row for each step or event of many warps.

A row names a set of warps with the number of active lanes of each; sets are shared by many rows. The data of an event
is in a pool: one row if all warps of the set have the same, else one row per warp.
"""

from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes, Mask
from kernbench.ptx.recording.recording import Int32s, UInt8s
from kernbench.ptx.recording.survey import COLUMNS, REUSE

# `CHANGED`: the last access of warps in a wait loop has changed memory
STEP, EVENT, TURN, CHANGED = range(4)
# columns of a row: what it is; the block, instruction or loop; the set; the kind; the first row in each pool (-1:
# none), followed by 1 if each warp has a row of its own
WHAT, NUMBER, SET, KIND, DATA, SPREAD, REUSED, REUSE_SPREAD = range(8)
_ROWS = 8192
_NOTHING: UInt8s = np.zeros(0, np.uint8)
_NO_WARPS: Int32s = np.zeros(0, np.int32)


class WarpSet(NamedTuple):
    """Warps `first` to `first + many`, or `warps`; `lanes` has the active lanes of each, empty if all have 32."""

    first: int
    many: int
    warps: Int32s
    lanes: UInt8s


@kernel
def count_lanes(mask: Bools, counts: UInt8s) -> None:
    """Count the active lanes of each warp."""
    for warp in range(len(counts)):
        found = 0
        for lane in range(WARP):
            found += mask[warp * WARP + lane]
        counts[warp] = found


class Pool:
    """A growing array of rows, allocated from the front."""

    def __init__(self, columns: int):
        self._rows: Int32s = np.empty((1024, columns), np.int32)
        self.used = 0

    def room(self, count: int) -> Int32s:
        """Unused rows after the used ones; the caller adds to `used` what it keeps."""
        if self.used + count > len(self._rows):
            grown = np.empty((max(2 * len(self._rows), self.used + count), self._rows.shape[1]), np.int32)
            grown[: self.used] = self._rows[: self.used]
            self._rows = grown
        return self._rows[self.used : self.used + count]

    @property
    def rows(self) -> Int32s:
        """The used rows."""
        return self._rows[: self.used]

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return int(self._rows.nbytes)


class LogParts(NamedTuple):
    """A log as arrays for compiled loops.

    Set s has `set_count[s]` warps from `set_first[s]` on, or, if `set_warps[s]` is not negative, those in `warps` from
    there on. If `set_lanes[s]` is not negative, `lanes` has the active lanes from there on, else all have 32.
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
        """The log as a tuple."""
        sets = self.set_first, self.set_count, self.set_warps, self.set_lanes
        return self.rows, *sets, self.warps, self.lanes, self.data, self.reuse


# a log as it is passed to compiled loops
GivenLog = tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Int32s, UInt8s, Int32s, Int32s]


@part
def log_of(given: GivenLog) -> LogParts:
    """The log of a tuple."""
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
        """Approximate number of bytes allocated."""
        rows = _ROWS * 64 * (len(self._rows) + 1)
        return rows + self._set_bytes + self.data.nbytes + self.reuse.nbytes

    def of_lanes(self, lanes: Lanes) -> int:
        """The set of some lanes, cached for the same object."""
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
        """The set of the warps of a window, with the lanes of a mask; `run` says that the warps are consecutive."""
        counts = _NOTHING
        if mask is not None:
            counts = np.empty(len(warps), np.uint8)
            count_lanes(mask, counts)
        if run:
            return self.add_set(WarpSet(int(warps[0]), len(warps), _NO_WARPS, counts))
        return self.add_set(WarpSet(0, len(warps), warps.astype(np.int32), counts))

    def add_set(self, warps: WarpSet) -> int:
        """Add a set; returns its number."""
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
        """Add a row; returns True when a chunk is full, and the memory limit should be checked."""
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
        """The whole log."""
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
    """The offsets of consecutive pieces with these lengths; -1 for empty ones."""
    sizes = np.array(lengths, np.int64)
    found: Int64s = np.where(sizes > 0, np.cumsum(sizes) - sizes, -1)
    return found
