"""Compiled loops over lanes for threads' copies (cp.async): their destinations, which are complete, and their data.

Words of registers are [words of a lane, lanes]. A target is the index of the first 4-byte word that a lane's copy fills
in the shared memory of the batch, -1 if invalid.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Flag, Int, Int32s, Int64s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.clusters import find_shared
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.memory.arena import WRITTEN

_WRITTEN = np.uint32(WRITTEN * 0x0101_0101)
# words of memory and their states (empty if not checked); each lane's address, the offset added to it, and the size of
# memory
Source = tuple[UInt32s, UInt32s, UInt64s, np.uint64, np.uint64]
# each lane's shared address, and the layout of shared memory: CTAs of the batch, ranks of a cluster, the stride between
# CTAs, and the usable bytes
Target = tuple[UInt64s, int, int, int, int]
# words [words of a lane, lanes], targets and groups of copies, and the lanes that copy anything
Taken = tuple[UInt32s, Int64s, Int64s, Bools]


@kernel
def find_targets(
    addresses: UInt64s, lanes: Int64s, ctas: Int, ranks: Int, stride: Int, size: Int, nbytes: Int, targets: Int64s
) -> None:
    """The target of each lane's copy of `nbytes` bytes; the address may name another CTA of the cluster.

    Each CTA has `stride` bytes in the memory of the batch, `size` of which may be used.
    """
    for i in range(lanes.size):
        cta, offset = find_shared(addresses[i], lanes[i], ctas, ranks)
        targets[i] = -1
        if cta >= 0 and offset <= size - nbytes and offset % nbytes == 0:
            targets[i] = (cta * stride + offset) // 4


@kernel
def take_copies(
    source: Source, left: UInt32s, target: Target, lanes: Int64s, committed: Int64s, taken: Taken
) -> tuple[Int, Flag]:
    """Read what lanes copy, if none has a fault: how many copy anything, and whether neighbours share an address.

    Each lane copies all its words, or none if `left` is zero for it; an empty `left` means all. Returns -1 if a lane
    copies a part, or from memory that is invalid, misaligned, unwritten, or watched.
    """
    memory, states, origins, offset, size = source
    addresses, ctas, ranks, stride, room = target
    words, targets, groups, whole = taken
    nbytes = np.uint64(4 * words.shape[0])
    many, repeated = 0, False
    for i in range(lanes.size):
        whole[i] = left.size == 0 or left[i] >= nbytes
        start = origins[i] + offset
        if not whole[i]:
            if left[i] != 0:
                return -1, False
            for k in range(words.shape[0]):
                words[k, i] = 0
        elif start & (nbytes - np.uint64(1)) or size < nbytes or start > size - nbytes:
            return -1, False
        else:
            many += 1
            word = start >> np.uint64(2)
            for k in range(words.shape[0]):
                if states.size > 0 and states[word + np.uint64(k)] != _WRITTEN:
                    return -1, False
                words[k, i] = memory[word + np.uint64(k)]
        cta, shared = find_shared(addresses[i], lanes[i], ctas, ranks)
        targets[i] = -1
        if cta >= 0 and shared <= room - 4 * words.shape[0] and shared % (4 * words.shape[0]) == 0:
            targets[i] = (cta * stride + shared) // 4
        groups[i] = committed[lanes[i]]
        repeated = repeated or (i > 0 and addresses[i] == addresses[i - 1])
    return many, repeated


@kernel
def take_words(bank: UInt32s, rows: Int64s, lanes: Int64s, words: UInt32s) -> None:
    """Read registers of lanes."""
    for k in range(rows.size):
        row = rows[k]
        for i in range(lanes.size):
            words[k, i] = bank[row, lanes[i]]


@kernel
def clear_words(bank: UInt32s, rows: Int64s, lanes: Int64s) -> None:
    """Set some registers of lanes to zero."""
    for k in range(rows.size):
        row = rows[k]
        for i in range(lanes.size):
            bank[row, lanes[i]] = 0


@kernel
def find_done(groups: Int64s, lanes: Int64s, limit: Int64s, done: Bools) -> int:
    """Which copies belong to groups below the limits of their lanes; returns their number."""
    count = 0
    for i in range(lanes.size):
        done[i] = groups[i] < limit[lanes[i]]
        count += done[i]
    return count


# lanes, addresses, targets, words [words of a lane, lanes] and groups of copies
Arrays = tuple[Int64s, UInt64s, Int64s, UInt32s, Int64s]


@kernel
def part_copies(chosen: Bools, given: Arrays, those: Arrays, others: Arrays) -> None:
    """Split copies into `those` that are chosen and the `others`, keeping their order."""
    first, second = 0, 0
    for i in range(chosen.size):
        if chosen[i]:
            _take(given, i, those, first)
            first += 1
        else:
            _take(given, i, others, second)
            second += 1


@part
def _take(given: Arrays, i: int, to: Arrays, j: int) -> None:
    to[0][j], to[1][j], to[2][j], to[4][j] = given[0][i], given[1][i], given[2][i], given[4][i]
    for k in range(given[3].shape[0]):
        to[3][k, j] = given[3][k, i]


@kernel
def mark_words(marks: Int32s, targets: Int64s, count: int, mark: Int) -> int:
    """Set the marks of `count` words from each target on; returns how many words that are."""
    marked = 0
    for i in range(targets.size):
        if targets[i] >= 0:
            marked += count
            for k in range(count):
                marks[targets[i] + k] = mark
    return marked
