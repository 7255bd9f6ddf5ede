"""How long ago sectors were touched before: by the same CTA, or by anybody in the launch.

Each sector of global memory remembers how many sectors the launch had touched when it was last touched, and whether the
launch has stored to it. What a CTA touched itself lies in a table of its own, with its own count: sectors that it
touched longer than `OWN_REACH` bytes ago are dropped, as no cache of an SM would still have them.
"""

from typing import NamedTuple

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Flag, Int, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.recording.recording import OWN_REACH, SECTOR, Int32s

# sectors of its own that a CTA remembers
_REACH = OWN_REACH // SECTOR
_FIRST_CAPACITY = 1 << 8
_SPREAD = 0x9E3779B1
# of what is remembered of a sector, the bit that says that it was stored to, and the others, which count touches
_STORED, _TIMES = 1 << 31, (1 << 31) - 1


class Touching(NamedTuple):
    """What compiled surveys write: for each sector when it was touched last (0: never) and whether it was stored to;
    the tables of CTAs.

    `keys` and `times` are hash tables, a row for each CTA of a batch; `used` and `clocks` how much of each is filled,
    and how many sectors each CTA has touched. `clock` counts those of the launch.
    """

    last: UInt32s
    clock: Int64s
    keys: Int32s
    times: UInt32s
    used: Int64s
    clocks: Int64s


# the same as it is passed
GivenTouching = tuple[UInt32s, Int64s, Int32s, UInt32s, Int64s, Int64s]


@part
def touching_of(given: GivenTouching) -> Touching:
    """What is passed, by name."""
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
    """A CTA touches some sectors, or stores to them; the columns of `reuse` grow by what is known of them.

    What does not go through the cache of an SM is not found there, and does not come there.
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
    """Where a sector is looked for first in a table."""
    return ((sector * _SPREAD) >> 8) & (capacity - 1)


@part
def _touch_own(keys: Int32s, times: UInt32s, used: Int64s, clocks: Int64s, cta: Int, sector: Int) -> int:
    """How many sectors ago a CTA touched this one, 0: not within its reach; and remember that it does now."""
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
    """Copy what CTAs still remember to new tables."""
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
    """When each sector of global memory was touched last, of a whole launch."""

    def __init__(self) -> None:
        self.last: UInt32s = np.zeros(0, np.uint32)
        self.clock: Int64s = np.zeros(1, np.int64)

    def grow(self, nbytes: int) -> None:
        """Global memory has so many bytes."""
        sectors = -(-nbytes // SECTOR)
        if sectors > len(self.last):
            # large arrays of zeros take memory where they are written
            grown = np.zeros(max(sectors, 2 * len(self.last)), np.uint32)
            grown[: len(self.last)] = self.last
            self.last = grown


class BatchReuse:
    """What each CTA of a batch touched."""

    def __init__(self, whole: GlobalReuse, ctas: int):
        self._whole = whole
        self._keys: Int32s = np.zeros((ctas, _FIRST_CAPACITY), np.int32)
        self._times: UInt32s = np.zeros((ctas, _FIRST_CAPACITY), np.uint32)
        self._used: Int64s = np.zeros(ctas, np.int64)
        self._clocks: Int64s = np.zeros(ctas, np.int64)
        # how full the fullest table is at most
        self._bound = 0

    def touching(self, memory: int, more: int) -> GivenTouching:
        """The tables, with room for `more` sectors of each CTA; global memory has `memory` bytes."""
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
