"""Enters accesses to tensor memory without faults in its cells, by one compiled loop for all warps.

An access has no fault if its columns belong to one allocation, are written if required, and earlier accesses are
ordered before it. A *unit* is checked and entered as a whole: warps with the same address, or the warps of a region. A
loop stops at the first unit with a fault, and enters nothing of it.
"""

import numpy as np

from kernbench.ptx.emulator.checks.asynchronous.descriptors import first_unwritten
from kernbench.ptx.emulator.checks.asynchronous.tensor_cells import (
    CLOCK,
    CLOCKS,
    COLUMNS,
    GROUPS,
    LOAD,
    NUMBER,
    NUMBERS,
    SITE,
    STORE,
    WARP_SHIFT,
    ordered,
)
from kernbench.ptx.emulator.checks.happens_before.near_rows import join_rows, take_rows
from kernbench.ptx.emulator.lanes.arrays import Bytes, Flag, Int, Int32s, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.shadow_kernels import describe
from kernbench.ptx.emulator.memory.tiles import spread
from kernbench.ptx.numerics.matrix.descriptors import PIECE

# knowledge: the vector clocks of warps, and the first tensor memory column in them; the row of each lane, and the rows;
# what warps knew at their last fence, and whether that counts; the counters of begun and of complete operations
GivenKnowledge = tuple[Int32s, int, Int64s, Int32s, Int64s, bool, Int64s, Int64s]
# the memory: cells, and the allocation of each column
GivenTensor = tuple[UInt64s, Int32s]
# an access: its kind, the number of its site, whether it writes
GivenAccess = tuple[int, int, bool]
# knowledge of lanes: the vector clocks of warps, the clocks at which their lanes met, the row of each lane, and the
# rows, the number of each CTA's first actor, and the first column of single lanes in a vector clock
GivenLanes = tuple[Int32s, Int64s, Int64s, Int32s, Int64s, int]
# shared memory: the states of its bytes, the stride between CTAs, the copy that wrote each 16 bytes, and the swizzles
# of copies
GivenShared = tuple[Bytes, int, Int32s, Int64s]
# a tile that all operations use: its base, the filled bytes of each 16, the expected swizzle (negative: any), its runs,
# and sampled pieces
GivenTile = tuple[int, int, int, Int64s, Int64s, Int64s]


@part
def _learn(warp: Int, knowledge: GivenKnowledge, room: Int64s) -> None:
    """What a warp knows of the warps of its CTA: their three counters (see `TensorOrder`), and their clocks."""
    clocks, first, near_of, near = knowledge[0], knowledge[1], knowledge[2], knowledge[3]
    known, fences, done = knowledge[4], knowledge[5], knowledge[7]
    ctas, warps = clocks.shape[0], clocks.shape[1]
    cta, inside = warp % ctas, warp // ctas
    for other in range(warps):
        room[3, other] = clocks[cta, inside, other]
        for family in range(3):
            column = family * warps + other
            room[family, other] = known[cta, inside, column] if fences else clocks[cta, inside, first + column]
    for lane in range(warp * WARP, (warp + 1) * WARP):
        row = near_of[lane]
        if row >= 0:
            for other in range(warps):
                room[3, other] = max(room[3, other], near[row, other])
                for family in range(0 if fences else 3):
                    room[family, other] = max(room[family, other], near[row, first + family * warps + other])
    room[3, inside] = clocks[cta, inside, inside]
    room[1, inside], room[2, inside] = done[1, warp], done[2, warp]


@part
def _is_allocated(owner: Int32s, cta: Int, first: Int, last: Int) -> Flag:
    """Whether columns belong to one allocation."""
    if last > COLUMNS or first >= COLUMNS or owner[cta, first] == 0:
        return False
    others = 0
    for column in range(first + 1, last):
        if owner[cta, column] != owner[cta, first]:
            others += 1
    return others == 0


@part
def _fine(
    warp: Int, groups: Int, first: Int, last: Int, filled: Flag, access: GivenAccess, tensor: GivenTensor, room: Int64s
) -> Flag:
    """Whether a warp's access to columns of groups of sixteen lanes (as bits) has no fault."""
    what, writes, cells = access[0], access[2], tensor[0]
    ctas = cells.shape[0]
    cta, inside = warp % ctas, warp // ctas
    if not _is_allocated(tensor[1], cta, first, last):
        return False
    # neighbours usually hold the same
    fine = np.int64(0)
    for group in range(GROUPS):
        if groups >> group & 1 == 0:
            continue
        for column in range(first, last):
            here = cells[cta, group, column]
            if filled and here[0] == 0:
                return False
            for which in range(3 if writes else 1):
                cell = np.int64(here[which])
                if cell == 0 or cell == fine:
                    continue
                if not ordered(cell, what, not writes, inside, room, room[3]):
                    return False
                fine = cell
    return True


@part
def _enter(
    warp: Int, groups: Int, first: Int, last: Int, access: GivenAccess, tensor: GivenTensor, knowledge: GivenKnowledge
) -> None:
    """Enter a warp's access."""
    what, site, writes = access[0], access[1], access[2]
    cells, clocks, begun = tensor[0], knowledge[0], knowledge[6]
    ctas = cells.shape[0]
    cta, inside = warp % ctas, warp // ctas
    number = begun[1 if what == LOAD else 2 if what == STORE else 0, warp] & NUMBERS
    clock = np.int64(clocks[cta, inside, inside]) & CLOCKS
    mine = np.uint64(what | inside << WARP_SHIFT | number << NUMBER | clock << CLOCK | site << SITE)
    for group in range(GROUPS):
        if groups >> group & 1 == 0:
            continue
        for column in range(first, last):
            here = cells[cta, group, column]
            if writes:
                here[0] = mine
                here[1] = np.uint64(0)
                here[2] = np.uint64(0)
            elif what == LOAD:
                here[1] = mine
            else:
                here[2] = mine


@kernel
def count_operations(lanes: Int64s, site: int, begun: Int64s, last: Int64s) -> None:
    """Count operations that lanes begin, and keep lane and site of each warp's last one."""
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        begun[0, warp] += 1
        last[0, warp], last[1, warp] = lanes[i], site


@part
def _is_brought(start: Int, tile: GivenTile, shared: GivenShared) -> Flag:
    """Whether all bytes of a tile are written, and none by a copy with another swizzle."""
    filled, swizzle, samples = tile[1], tile[2], tile[5]
    state, copies, swizzles = shared[0], shared[2], shared[3]
    if first_unwritten(state, start, tile[3], tile[4], filled) >= 0:
        return False
    if swizzle >= 0:
        for k in range(samples.size):
            number = swizzles[copies[(start + samples[k]) // PIECE]]
            if number != 0 and number != swizzle:
                return False
    return True


@kernel
def survey_products(
    lanes: Int64s,
    who: tuple[int, int, Int64s, Int64s],
    known: GivenLanes,
    shared: GivenShared,
    left: GivenTile,
    right: GivenTile,
    knowledge: Int32s,
    found: Int64s,
    left_ranges: Int64s,
    right_ranges: Int64s,
) -> bool:
    """Whether the tiles of products that lanes have begun, all with the same descriptors, have no fault.

    `who` has the site as in cells, the first tensor memory column in a vector clock, the numbers of operations that
    warps have begun, and an empty array. If there is no fault, `knowledge` and `found` become the contents of `Begun`,
    with further rows for columns of actors, their clocks, CTAs and numbers; the ranges of A and B become those of
    `Ranges`. A tile without runs is skipped.
    """
    clocks, size = known[0], shared[1]
    first, begun = who[1], who[2]
    ctas = clocks.shape[0]
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        start = warp % ctas * size
        if left[3].size > 0 and not _is_brought(start + left[0], left, shared):
            return False
        if not _is_brought(start + right[0], right, shared):
            return False
        found[4, i], found[5, i], found[6, i], found[7, i] = first + warp // ctas, begun[0, warp], warp % ctas, i
    take_rows(clocks, known[1], lanes, knowledge)
    join_rows(knowledge, lanes, known[2], known[3])
    describe(lanes, found[4], found[5], who[3], who[0], clocks, known[4], known[5], knowledge, found)
    if left[3].size > 0:
        spread(found[6], found[7], left[0], left[3], left[4], size, 0, left_ranges)
    spread(found[6], found[7], right[0], right[3], right[4], size, 0, right_ranges)
    return True


@kernel
def enter_regions(
    start: int,
    regions: Int64s,
    warps: Int64s,
    access: GivenAccess,
    tensor: GivenTensor,
    knowledge: GivenKnowledge,
    room: Int64s,
) -> int:
    """Enter accesses of warps to regions from `start` on; returns the first with a fault, else their number.

    A region is the bits of groups, the first and last + 1 column, and whether it must be written before. Nothing is
    entered if several warps of a CTA might write the same cell.
    """
    ctas = tensor[1].shape[0]
    count: int = regions.shape[0]
    for number in range(start, count):
        groups, first, last, filled = regions[number, 0], regions[number, 1], regions[number, 2], regions[number, 3]
        if access[2] and warps[0] // ctas != warps[warps.size - 1] // ctas:
            return number
        for i in range(warps.size):
            _learn(warps[i], knowledge, room)
            if not _fine(warps[i], groups, first, last, filled != 0, access, tensor, room):
                return number
        for i in range(warps.size):
            _enter(warps[i], groups, first, last, access, tensor, knowledge)
    return count


@part
def _groups(quarter: Int, lane: Int, lanes: Int) -> Int:
    """The groups of sixteen lanes of some lanes of a quarter, as bits."""
    first, last = lane // 16, (lane + lanes + 15) // 16
    return ((1 << (last - first)) - 1) << (2 * quarter + first)


@part
def _merge(rows: Int64s, source: Int, size: Int, width: Int) -> None:
    """Merge pairs of sorted runs of `width` values of one row into the other row."""
    target = 1 - source
    for begin in range(0, size, 2 * width):
        middle, end = min(begin + width, size), min(begin + 2 * width, size)
        left, right = begin, middle
        for at in range(begin, end):
            if right >= end or (left < middle and rows[source, left] < rows[source, right]):
                rows[target, at] = rows[source, left]
                left += 1
            else:
                rows[target, at] = rows[source, right]
                right += 1


@kernel
def sort_moves(warps: Int64s, addresses: Int64s, ctas: int, lanes: int, order: Int64s) -> Flag:
    """Sort loads or stores of `lanes` lanes by quarter and address; False if a warp accesses another quarter.

    `order` gets the keys, with the quarter above the address, and the positions.
    """
    size, in_order = warps.size, True
    for i in range(size):
        quarter, lane = warps[i] // ctas % 4, addresses[i] >> 16
        if lane // 32 != quarter or lane % 32 + lanes > 32:
            return False
        # the position is packed below the 34-bit key: one number to sort, and no two are equal
        order[0, i] = (quarter << 32 | addresses[i]) << 29 | i
        if i > 0 and order[0, i] < order[0, i - 1]:
            in_order = False
    row, width = 0, 1
    while not in_order and width < size:
        _merge(order, row, size, width)
        row, width = 1 - row, 2 * width
    for i in range(size):
        one = order[row, i]
        order[0, i], order[1, i] = one >> 29, one & (1 << 29) - 1
    return True


@kernel
def begin_moves(
    warps: Int64s,
    addresses: Int64s,
    what: tuple[Int64s, int, Int64s, bool],
    order: Int64s,
    access: GivenAccess,
    tensor: GivenTensor,
    knowledge: GivenKnowledge,
    room: Int64s,
) -> int:
    """Count loads or stores that warps begin, sort them, and enter them.

    `what` has spans and lanes, an array that also gets each warp's count unless it is empty, and whether to enter them.
    Returns -1 if a warp accesses lanes that are not its own, else the result of `enter_moves`.
    """
    begun, family, last = knowledge[6], 2 if access[2] else 1, what[2]
    for i in range(warps.size):
        begun[family, warps[i]] += 1
        if last.size > 0:
            last[warps[i]] = begun[family, warps[i]]
    if not sort_moves(warps, addresses, tensor[1].shape[0], what[1], order):
        return -1
    if not what[3]:
        return 0
    entered: int = enter_moves(0, order, what[0], what[1], warps, access, tensor, knowledge, room)
    return entered


@kernel
def publish(warps: Int64s, first: int, done: Int64s, clocks: Int32s) -> None:
    """Release the completed loads and stores of warps, whose columns begin after `first`."""
    ctas, count = clocks.shape[0], clocks.shape[1]
    for i in range(warps.size):
        cta, inside = warps[i] % ctas, warps[i] // ctas
        for family in range(1, 3):
            clocks[cta, inside, first + family * count + inside] = done[family, warps[i]]


@kernel
def note_commits(lanes: Int64s, first: int, first_lane: int, begun: Int64s, clocks: Int32s, rows: Int32s) -> None:
    """Add to the rows of committing lanes their own clocks, and the operations that their warps have begun."""
    ctas = clocks.shape[0]
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        cta, inside = warp % ctas, warp // ctas
        rows[i, first_lane + inside] = clocks[cta, inside, inside] * WARP + lanes[i] % WARP
        rows[i, first + inside] = begun[0, warp]


@kernel
def hold_commits(
    slots: Int64s, owners: Int64s, lanes: Int64s, homes: Int64s, ctas: int, rows: Int32s, held: Int32s
) -> None:
    """Add the rows of commits to the mbarriers of their own CTAs on which they arrive."""
    for i in range(slots.size):
        slot, owner = slots[i], owners[i]
        if homes[slot] == lanes[owner] // WARP % ctas:
            for column in range(rows.shape[1]):
                if rows[owner, column] > held[slot, column]:
                    held[slot, column] = rows[owner, column]


@kernel
def enter_moves(
    start: int,
    order: Int64s,
    spans: Int64s,
    lanes: int,
    warps: Int64s,
    access: GivenAccess,
    tensor: GivenTensor,
    knowledge: GivenKnowledge,
    room: Int64s,
) -> int:
    """Enter sorted loads or stores of warps from `start` on.

    Returns the begin of the first unit with a fault, else all.

    Each accesses `lanes` lanes, and spans of columns from its address on.
    """
    ctas, begin = tensor[1].shape[0], start
    while begin < warps.size:
        key, end = order[0, begin], begin
        while end < warps.size and order[0, end] == key:
            end += 1
        if access[2] and warps[order[1, begin]] // ctas != warps[order[1, end - 1]] // ctas:
            return begin
        groups, column = _groups(key >> 32, key >> 16 & 31, lanes), key & 0xFFFF
        for i in range(begin, end):
            warp = warps[order[1, i]]
            _learn(warp, knowledge, room)
            for span in range(spans.shape[0]):
                first, last = column + spans[span, 0], column + spans[span, 1]
                if not _fine(warp, groups, first, last, not access[2], access, tensor, room):
                    return begin
        for i in range(begin, end):
            for span in range(spans.shape[0]):
                first, last = column + spans[span, 0], column + spans[span, 1]
                _enter(warps[order[1, i]], groups, first, last, access, tensor, knowledge)
        begin = end
    return begin
