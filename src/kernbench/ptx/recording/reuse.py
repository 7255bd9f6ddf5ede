"""Reuse distances of sectors: since the last touch by the same CTA, or by any CTA of the launch.

For each sector of global memory there is a time, the number of sectors that the launch had touched when it was last
touched, and a flag for whether the launch has stored to it. A CTA's own touches are in a table of its own, with its own
count. Sectors it touched longer than `OWN_REACH` bytes ago are dropped, as no L1 would still hold them.
"""

from typing import NamedTuple

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Flag, Int, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.recording.recording import OWN_REACH, SECTOR, Int32s

# sectors that a CTA remembers
_REACH = OWN_REACH // SECTOR
_FIRST_CAPACITY = 1 << 8
_SPREAD = 0x9E3779B1
# in the entry of a sector: the bit for "stored to", and the bits of its time
_STORED, _TIMES = 1 << 31, (1 << 31) - 1


class Touching(NamedTuple):
    """State of reuse tracking, as compiled surveys update it.

    `last` has the time of the last touch of each sector (0: never) and the stored bit; `clock` counts the launch's
    touches. `keys` and `times` are hash tables, a row for each CTA of a batch; `used` is how full each is, and `clocks`
    counts the touches of each CTA.
    """

    last: UInt32s
    clock: Int64s
    keys: Int32s
    times: UInt32s
    used: Int64s
    clocks: Int64s


# the state as it is passed to compiled loops
GivenTouching = tuple[UInt32s, Int64s, Int32s, UInt32s, Int64s, Int64s]


@part
def touching_of(given: GivenTouching) -> Touching:
    """The state of a tuple."""
    return Touching(given[0], given[1], given[2], given[3], given[4], given[5])


@part
def _log2(value: Int) -> int:
    found = 0
    while value > 1:
        value >>= 1
        found += 1
    return found


@part
def touch(touching: Touching, sectors: Int64s, count: Int, cta: Int, cached: Flag, stores: Flag, reuse: Int32s) -> None:
    """A CTA touches some sectors, or stores to them; adds the result to the columns of `reuse`.

    Accesses that bypass the cache of an SM (not `cached`) neither look up nor update the CTA's own table.
    """
    last, size = touching.last, len(touching.last)
    for i in range(count):
        sector = sectors[i]
        if sector < 0 or sector >= size:
            continue
        touching.clock[0] += 1
        known = np.int64(last[sector])
        now, before, own = touching.clock[0], known & _TIMES, 0
        if cached:
            own = _touch_own(touching.keys[cta], touching.times[cta], touching.used, touching.clocks, cta, sector)
        if own > 0:
            reuse[0] += 1
            reuse[2] += _log2(own * SECTOR)
        elif before > 0:
            reuse[1] += 1
            reuse[3] += _log2(((now - before) & _TIMES) * SECTOR)
        stored = known & _STORED
        if stores:
            reuse[4] += stored >> 31
            stored = np.int64(_STORED)
        last[sector] = np.uint32(stored | (now & _TIMES))


@part
def _slot(sector: Int, capacity: Int) -> Int:
    """The first slot of a sector in a hash table."""
    return ((sector * _SPREAD) >> 8) & (capacity - 1)


@part
def _touch_own(keys: Int32s, times: UInt32s, used: Int64s, clocks: Int64s, cta: Int, sector: Int) -> int:
    """The distance in sectors to the CTA's last touch of this sector, 0 if beyond its reach; records the touch."""
    clocks[cta] += 1
    now, capacity = clocks[cta], len(keys)
    slot = _slot(sector, capacity)
    while keys[slot] != 0 and keys[slot] != sector + 1:
        slot = (slot + 1) & (capacity - 1)
    distance = now - np.int64(times[slot]) if keys[slot] != 0 else _REACH + 1
    used[cta] += keys[slot] == 0
    keys[slot] = sector + 1
    times[slot] = np.uint32(now)
    return distance if distance <= _REACH else 0


@kernel
def _rebuild(keys: Int32s, times: UInt32s, used: Int64s, clocks: Int64s, new_keys: Int32s, new_times: UInt32s) -> None:
    """Copy the entries within reach to new tables."""
    capacity = new_keys.shape[1]
    for cta in range(keys.shape[0]):
        used[cta] = 0
        for old in range(keys.shape[1]):
            if keys[cta, old] == 0 or clocks[cta] - np.int64(times[cta, old]) > _REACH:
                continue
            slot = _slot(np.int64(keys[cta, old]) - 1, capacity)
            while new_keys[cta, slot] != 0:
                slot = (slot + 1) & (capacity - 1)
            new_keys[cta, slot], new_times[cta, slot] = keys[cta, old], times[cta, old]
            used[cta] += 1


class GlobalReuse:
    """The time of the last touch of each sector of global memory, for a whole launch."""

    def __init__(self) -> None:
        self.last: UInt32s = np.zeros(0, np.uint32)
        self.clock: Int64s = np.zeros(1, np.int64)

    def grow(self, nbytes: int) -> None:
        """Global memory now has `nbytes` bytes."""
        sectors = -(-nbytes // SECTOR)
        if sectors > len(self.last):
            # large arrays of zeros take physical memory only where they are written
            grown = np.zeros(max(sectors, 2 * len(self.last)), np.uint32)
            grown[: len(self.last)] = self.last
            self.last = grown


class BatchReuse:
    """The own touches of each CTA of a batch."""

    def __init__(self, whole: GlobalReuse, ctas: int):
        self._whole = whole
        self._keys: Int32s = np.zeros((ctas, _FIRST_CAPACITY), np.int32)
        self._times: UInt32s = np.zeros((ctas, _FIRST_CAPACITY), np.uint32)
        self._used: Int64s = np.zeros(ctas, np.int64)
        self._clocks: Int64s = np.zeros(ctas, np.int64)
        # upper bound of entries in the fullest table
        self._bound = 0

    def touching(self, memory: int, more: int) -> GivenTouching:
        """The state, with room for `more` sectors of each CTA; global memory has `memory` bytes."""
        self._whole.grow(memory)
        self._bound += more
        if 4 * self._bound > 3 * self._keys.shape[1]:
            self._bound = int(self._used.max()) + more
            if 4 * self._bound > 3 * self._keys.shape[1]:
                self._make_room(more)
        whole = self._whole
        return whole.last, whole.clock, self._keys, self._times, self._used, self._clocks

    def _make_room(self, more: int) -> None:
        capacity = self._keys.shape[1]
        needed = min(int(self._used.max()), _REACH) + more
        while 2 * needed > capacity:
            capacity *= 2
        keys, times = np.zeros((len(self._used), capacity), np.int32), np.zeros((len(self._used), capacity), np.uint32)
        _rebuild(self._keys, self._times, self._used, self._clocks, keys, times)
        self._keys, self._times = keys, times
        self._bound = int(self._used.max()) + more
