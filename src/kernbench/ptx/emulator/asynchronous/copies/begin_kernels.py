"""Compiled loops over operations that begin: locate their ends, and detect faults, of which there are usually none."""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Flag, Int, Int32s, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.clusters import find_shared
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP

# rows of located ends: the CTA, the offset in its shared memory, the offset in the batch's, and the CTA's limit there
CTA, OFFSET, START, LIMIT = range(4)
ENDS = 4


@kernel
def find_ends(
    addresses: UInt64s, lanes: Int64s, ctas: Int, ranks: Int, size: Int, stride: Int, found: Int64s
) -> np.uint64:
    """Locate shared addresses of lanes, in clusters of `ranks` CTAs; returns the bitwise or of all addresses.

    Each CTA has `stride` bytes in the memory of the batch, `size` of which may be used; an end outside has a limit of
    -1.
    """
    bits = np.uint64(0)
    for i in range(lanes.size):
        bits |= addresses[i]
        cta, offset = find_shared(addresses[i], lanes[i], ctas, ranks)
        origin = max(cta, np.int64(0)) * stride
        found[CTA, i], found[OFFSET, i], found[START, i] = cta, offset, origin + offset
        found[LIMIT, i] = origin + size if cta >= 0 and offset < size else np.int64(-1)
    return bits


@kernel
def are_same(words: UInt64s, addresses: UInt64s, base: Int, nbytes: Int) -> Flag:
    """Whether memory, which begins at address `base`, holds the same bytes at all addresses, all aligned to 64."""
    first: Int = np.int64(addresses[0]) - base
    for i in range(addresses.size):
        start = np.int64(addresses[i]) - base
        if start < 0 or start % 64 or start + nbytes > 8 * words.size:
            return False
        for k in range(nbytes // 8):
            if words[start // 8 + k] != words[first // 8 + k]:
                return False
    return True


@kernel
def part_starts(starts: Int64s, limits: Int64s, stride: Int, origins: Int64s, offsets: Int64s) -> None:
    """The first byte of each end's CTA, and the end's offset there.

    The offset is beyond all memory if the end is outside.
    """
    for i in range(starts.size):
        origins[i] = starts[i] // stride * stride
        offsets[i] = starts[i] - origins[i] + (stride if limits[i] < 0 else 0)


@kernel
def are_refused(points: Int64s, element: Int, unit: Int, stores: bool) -> Flag:
    """Whether an innermost coordinate, times `element`, is no multiple of `unit`, or a store begins before a tensor."""
    for i in range(points.shape[0]):
        if points[i, 0] * element % unit:
            return True
        for d in range(points.shape[1] if stores else 0):
            if points[i, d] < 0:
                return True
    return False


@kernel
def all_shown(
    slots: Int64s, lanes: Int64s, homes: Int64s, opened: Int64s, clocks: Int32s, guards: Int, moments: Int
) -> Flag:
    """Whether lanes know a warp's clock for each mbarrier by their warps' clocks; all mbarriers are of their own CTAs.

    The warp and the clock are in columns of `opened`. False if that needs a closer look.
    """
    ctas = clocks.shape[0]
    for i in range(slots.size):
        warp, slot = lanes[i] // WARP, slots[i]
        cta, inside = warp % ctas, warp // ctas
        if slot < 0 or homes[slot] != cta:
            return False
        guard = opened[slot, guards]
        if guard < 0 or (guard != inside and clocks[cta, inside, guard] < opened[slot, moments]):
            return False
    return True


@kernel
def have_neighbours(lanes: Int64s) -> Flag:
    """Whether two consecutive lanes are of one warp."""
    found = False
    for i in range(1, lanes.size):
        found = found or lanes[i] // WARP == lanes[i - 1] // WARP
    return found


@kernel
def find_distinct(lanes: Int64s, keys: Int64s, chosen: Int64s) -> int:
    """The first of each warp's operations with equal keys; returns their number, -1 if lanes are not sorted."""
    count, first = 0, 0
    for i in range(lanes.size):
        if i > 0 and lanes[i] < lanes[i - 1]:
            return -1
        if i > 0 and lanes[i] // WARP != lanes[i - 1] // WARP:
            first = count
        new = True
        for k in range(first, count):
            new = new and not _are_equal(keys, chosen[k], i)
        if new:
            chosen[count] = i
            count += 1
    return count


@part
def _are_equal(keys: Int64s, one: Int, other: Int) -> Flag:
    same = True
    for d in range(keys.shape[1]):
        same = same and keys[one, d] == keys[other, d]
    return same


@kernel
def find_repeated(lanes: Int64s, starts: Int64s, coordinates: Int64s, runs: Int64s) -> int:
    """For each operation the index of its run of consecutive equal operations of a warp; returns the number of runs."""
    count = 0
    for i in range(lanes.size):
        same = i > 0 and lanes[i] // WARP == lanes[i - 1] // WARP and starts[i] == starts[i - 1]
        if not same or not _are_equal(coordinates, i, i - 1):
            count += 1
        runs[i] = count - 1
    return count


@kernel
def find_legal(starts: Int64s, limits: Int64s, chosen: Int64s, length: Int, found: Int64s) -> int:
    """Ranges of one length that end before their limits: starts, lengths and operations; returns their number."""
    count = 0
    for op in chosen:
        if starts[op] + length <= limits[op]:
            found[0, count], found[1, count], found[2, count] = starts[op], length, op
            count += 1
    return count
