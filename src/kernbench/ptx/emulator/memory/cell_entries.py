"""Entering accesses in the shadow cells: an access is compared with the cells of its words, and then stored there.

A read is compared with the writes of its word, a write with writes and reads. An earlier access that happens before the
new one, or is morally strong with it, is fine; anything else goes into the report as a suspect.

A new access replaces an older one of the same kind if it *covers* it: everything ordered after the new one is ordered
after the old one, and everything that conflicts with the old one conflicts with the new one. So nothing is lost
(`_covers`, and the order between the two). Otherwise both are kept as long as there are cells.

Four words that share one line (see `cells`) continue to do so if the fast path suffices for all of them. Nearly all
accesses take the fast path in `note_read` and `note_write`, which are inlined into the loops: one load of each cell,
one comparison with the warp's floor. The slow path is compiled once (`_look`, `read_slowly`, `_write_slowly`).

Names below: `mine` is the new access as a cell without its bytes, `touched` the accessed bytes of the word, `line` the
line of the word's cells, `position` the access's position in the instruction, `lane` and `warp` its thread.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Flag, Int, Int64s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import inlined, kernel, part, prefetch
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.cells import (
    ALONE,
    APART,
    BLIND_UPDATE,
    CTA,
    EARLIER_READ,
    EARLIER_STRONG,
    FLOOR,
    GROUP,
    INSIDE,
    LANES,
    MIXED,
    NUMBER,
    NUMBER_MASK,
    NUMBER_SHIFT,
    OWN,
    RACE_CODE,
    READ,
    SCOPE,
    SEEN,
    SITE_SHIFT,
    STAMP,
    STORE,
    STRONG,
    STRONG_WRITE,
    SUSPECTS,
    WRITE,
    ShadowArrays,
    by_thread,
    covers_line,
    head_line,
    line_of,
    morally_strong,
    ordered,
    outlived,
    plainly_unordered,
    settled,
    unfold,
    who,
)


@part
def _suspect(position: Int, cell: Int, mask: Int, seen: Int, seen_mask: Int, report: Int64s) -> None:
    row = SUSPECTS + report[RACE_CODE, 0]
    if row < report.shape[0]:
        report[row, 0] = position
        report[row, 1] = cell
        report[row, 2] = mask
        report[row, 3] = seen
        report[row, 4] = seen_mask
    report[RACE_CODE, 0] += 1


@part
def _seer(line: Int, touched: Int, lane: Int, warp: Int, shadow: ShadowArrays) -> tuple[Int, Int]:
    """A read that observed the last strong write, with its lanes: the own lane's read if there is one.

    Everything that happens after such a read also happens after the write: observing a strong write by a strong read in
    its scope orders the two, although the reader acquires nothing else from the writer without an acquire.
    """
    cells, lanes, number = shadow.cells, shadow.lanes, shadow.table[warp, NUMBER]
    seen_mask: Int
    seen, seen_mask = np.int64(0), np.int64(0)
    for column in range(READ, EARLIER_READ + 1):
        read = np.int64(cells[line, column])
        if read & SEEN and read & touched == touched:
            seen, seen_mask = read, who(read, np.int64(lanes[line, LANES + column]), touched)
            if ((read >> NUMBER_SHIFT) & NUMBER_MASK) - 1 == number and (seen_mask >> lane) & 1:
                seen_mask = np.int64(1) << lane
                break
    return seen, seen_mask


@kernel
def _look(
    line: Int,
    column: Int,
    cell: Int,
    touched: Int,
    position: Int,
    lane: Int,
    warp: Int,
    shadow: ShadowArrays,
    report: Int64s,
) -> None:
    """Decide on an access that the fast path leaves open.

    It is ordered, or observed by a read that is, or a suspect.
    """
    mask = who(cell, np.int64(shadow.lanes[line, LANES + column]), touched)
    if ordered(cell, mask, lane, warp, shadow):
        return
    seen: Int
    seen_mask: Int
    seen, seen_mask = np.int64(0), np.int64(0)
    if column == STRONG_WRITE or (column == EARLIER_STRONG and cell & SEEN):
        seen, seen_mask = _seer(line, touched, lane, warp, shadow)
        if seen and ordered(seen, seen_mask, lane, warp, shadow):
            return
    if ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1 == shadow.table[warp, NUMBER]:
        mask &= ~(np.int64(1) << lane)
    _suspect(position, cell, mask, seen, seen_mask, report)


@part
def _enter(line: Int, column: Int, mine: Int, touched: Int, lane: Int, cells: UInt64s, lanes: UInt32s) -> None:
    """Store an access in a cell, merged with those of other lanes of its warp in the same epoch."""
    last = np.int64(cells[line, column])
    held = np.int64(lanes[line, LANES + column])
    bit = np.int64(1) << lane
    # another epoch or another strength: do not merge
    if last == 0 or (last ^ mine) & (STAMP | STRONG):
        cells[line, column] = np.uint64(mine | touched)
        lanes[line, LANES + column] = np.uint32(bit)
        return
    before = last & 15
    flags = last & (MIXED | SEEN)
    if not flags & MIXED and (before == touched or held == bit):
        # every lane of the mask has accessed all the bytes
        held |= bit
    else:
        # lanes differ in their bytes: from now on the cell has the last lane of each byte instead of a mask
        spread = np.int64(0)
        for byte in range(4):
            owner = (held >> (8 * byte)) & 31 if flags & MIXED else _lowest(held)
            spread |= (lane if touched & (1 << byte) else owner) << (8 * byte)
        held = spread
        flags |= MIXED
    cells[line, column] = np.uint64(mine | flags | before | touched)
    lanes[line, LANES + column] = np.uint32(held)


@part
def _lowest(mask: Int) -> int:
    lane = 0
    while lane < 31 and not (mask >> lane) & 1:
        lane += 1
    return lane


@part
def _move(line: Int, source: Int, target: Int, cells: UInt64s, lanes: UInt32s) -> None:
    cells[line, target] = cells[line, source]
    lanes[line, LANES + target] = lanes[line, LANES + source]
    cells[line, source] = 0


@part
def _covers(cell: Int, mine: Int, touched: Int) -> Flag:
    """Whether a new access covers an older one that happens before it.

    It conflicts with everything that one conflicts with.
    """
    return not (cell & 15) & ~touched and (mine & STRONG) <= (cell & STRONG) and not cell & ~mine & SEEN


@part
def _room(line: Int, column: Int, mine: Int, touched: Int, lane: Int, warp: Int, shadow: ShadowArrays) -> None:
    """Free `column` by moving its access to the next column, if possible one that the new access does not cover."""
    cells, lanes = shadow.cells, shadow.lanes
    # an access of the same epoch and strength is merged with: move it to the front
    for other in range(column, column + 2):
        cell = np.int64(cells[line, other])
        if cell and not (cell ^ mine) & (STAMP | STRONG):
            if other > column:
                held, beside = cells[line, other], lanes[line, LANES + other]
                _move(line, column, other, cells, lanes)
                cells[line, column], lanes[line, LANES + column] = held, beside
            return
    # drop an access that happens before the new one and is covered by it
    cell = np.int64(cells[line, column])
    if _covers(cell, mine, touched) and not plainly_unordered(cell, warp, shadow):
        mask = who(cell, np.int64(lanes[line, LANES + column]), 15)
        if ordered(cell, mask, lane, warp, shadow):
            return
    _move(line, column, column + 1, cells, lanes)


# prefetch distance in accesses: that many take about as long as a memory access
AHEAD = 12


@inlined
def fetch(start: np.uint64, shadow: ShadowArrays) -> None:
    """Prefetch the line of an access, and that of its head.

    The words of a tile are far apart in memory and in no cache, and the processor cannot predict the next. Without
    prefetching, entering an access is mostly waiting for its line.
    """
    cells = shadow.cells
    word = (np.int64(start) - np.int64(cells[cells.shape[0] - 1, 0])) >> 2
    head = head_line(word, shadow.lanes)
    prefetch(cells, head, 0)
    prefetch(cells, line_of(word, head, shadow.lanes), 0)


@inlined
def note_read(
    start: np.uint64,
    length: np.uint64,
    lane_number: Int,
    position: Int,
    shadow: ShadowArrays,
    site: Int,
    scope: Int,
    report: Int64s,
) -> None:
    """Enter a read, and report writes that may race with it."""
    cells, lanes, table = shadow.cells, shadow.lanes, shadow.table
    offset, span = np.int64(start) - np.int64(cells[cells.shape[0] - 1, 0]), np.int64(length)
    warp, lane = lane_number // WARP, lane_number % WARP
    bit = np.int64(1) << lane
    floor, warps, number = table[warp, FLOOR], table[table.shape[0] - 1, 0], table[warp, NUMBER]
    first, known = number - table[warp, INSIDE], shadow.clocks[table[warp, CTA], table[warp, INSIDE]]
    touched = 15 if span >= 4 else ((1 << span) - 1) << (offset & 3)
    mine = table[warp, OWN] | (scope << SCOPE) | (site << SITE_SHIFT)
    word, last_word = offset >> 2, (offset + span + 3) >> 2
    while word < last_word:
        head = head_line(word, lanes)
        line = line_of(word, head, lanes)
        folded = lanes[head, APART] == 0
        whole = covers_line(folded, line, head, last_word - word, lanes)
        if folded and not whole:
            unfold(head, cells, lanes)
        write, last = np.int64(cells[line, WRITE]), np.int64(cells[line, READ])
        strong = np.int64(cells[line, STRONG_WRITE]) | np.int64(cells[line, EARLIER_STRONG])
        conflict = write & touched and not settled(
            write, np.int64(lanes[line, LANES + WRITE]), number, bit, floor, first, warps, known
        )
        # Cases by frequency: one more lane of the last reading warp; a read after the last one; alternation with
        # another warp on the same bytes.
        more = strong == 0 and (last ^ mine) & (STAMP | STRONG) == 0 and last & (15 | MIXED) == touched
        later = (strong == 0 and not more) and (
            last == 0
            or (
                last & STRONG == scope << SCOPE
                and not last & 15 & ~touched
                and outlived(last, np.int64(lanes[line, LANES + READ]), warp, bit, table, known)
            )
        )
        turn = strong == 0 and scope == 0 and last & 15 == touched
        if whole and (conflict or not (more or later or turn)):
            unfold(head, cells, lanes)
            whole = False
        if conflict:
            _look(line, np.int64(WRITE), write, touched, position, lane, warp, shadow, report)
        if more:
            lanes[line, LANES + READ] |= np.uint32(bit)
        elif later:
            cells[line, READ] = np.uint64(mine | touched)
            lanes[line, LANES + READ] = np.uint32(bit)
        elif turn:
            take_turns(line, mine | touched, bit, cells, lanes)
        else:
            read_slowly(line, mine, touched, position, lane, warp, shadow, report)
        word += GROUP if whole else 1


@inlined
def take_turns(line: Int, mine: Int, bit: Int, cells: UInt64s, lanes: UInt32s) -> None:
    """Another warp reads what one has read: keep the last two."""
    earlier = np.int64(cells[line, EARLIER_READ])
    held = np.int64(lanes[line, LANES + EARLIER_READ])
    cells[line, EARLIER_READ] = cells[line, READ]
    lanes[line, LANES + EARLIER_READ] = lanes[line, LANES + READ]
    together = earlier and (earlier ^ mine) & (STAMP | STRONG | MIXED | 15) == 0
    cells[line, READ] = np.uint64(mine)
    lanes[line, LANES + READ] = np.uint32(bit | held) if together else np.uint32(bit)


@kernel
def read_slowly(
    line: Int, mine: Int, touched: Int, position: Int, lane: Int, warp: Int, shadow: ShadowArrays, report: Int64s
) -> None:
    """Enter a read of a word with strong accesses, or with reads of other bytes."""
    scope = (mine >> SCOPE) & 3
    cells, lanes, table, clusters = shadow.cells, shadow.lanes, shadow.table, shadow.clusters
    for column in range(STRONG_WRITE, EARLIER_STRONG + 1):
        other = np.int64(cells[line, column])
        if other & touched and not morally_strong(other, scope, warp, table, clusters):
            _look(line, column, other, touched, position, lane, warp, shadow, report)
    label = mine
    if scope and morally_strong(np.int64(cells[line, STRONG_WRITE]), scope, warp, table, clusters):
        label |= SEEN
    last = np.int64(cells[line, READ])
    if last and (last ^ mine) & (STAMP | STRONG):
        mask = who(last, np.int64(lanes[line, LANES + READ]), 15)
        if ordered(last, mask, lane, warp, shadow):
            # it happens after what the earlier read observed
            label |= last & SEEN
        _room(line, READ, label, touched, lane, warp, shadow)
    _enter(line, READ, label, touched, lane, cells, lanes)


@inlined
def note_write(
    start: np.uint64,
    length: np.uint64,
    lane_number: Int,
    position: Int,
    same: bool,
    shadow: ShadowArrays,
    site: Int,
    scope: Int,
    kind: Int,
    report: Int64s,
) -> None:
    """Enter a write, and report accesses that may race with it.

    Writing the value that is there already does not race with another thread's write. It does race with a copy, whose
    arrival so far is a matter of timing.
    """
    cells, lanes, table = shadow.cells, shadow.lanes, shadow.table
    offset, span = np.int64(start) - np.int64(cells[cells.shape[0] - 1, 0]), np.int64(length)
    warp, lane = lane_number // WARP, lane_number % WARP
    bit = np.int64(1) << lane
    floor, warps, number = table[warp, FLOOR], table[table.shape[0] - 1, 0], table[warp, NUMBER]
    first, known = number - table[warp, INSIDE], shadow.clocks[table[warp, CTA], table[warp, INSIDE]]
    touched = 15 if span >= 4 else ((1 << span) - 1) << (offset & 3)
    mine = table[warp, OWN] | (scope << SCOPE) | (site << SITE_SHIFT)
    word, last_word = offset >> 2, (offset + span + 3) >> 2
    alike: Int = np.int64(0)
    while word < last_word:
        head = head_line(word, lanes)
        line = line_of(word, head, lanes)
        folded = lanes[head, APART] == 0
        whole = covers_line(folded, line, head, last_word - word, lanes)
        if folded and not whole:
            unfold(head, cells, lanes)
        # plain: everything there happens before this write and is covered by it, so the other cells are cleared
        plain = scope == 0
        for column in range(EARLIER_READ + 1):
            other = np.int64(cells[line, column])
            if other == 0:
                continue
            plain &= (
                settled(other, np.int64(lanes[line, LANES + column]), number, bit, floor, first, warps, known)
                and not other & 15 & ~touched
            )
            if plain and column != WRITE:
                cells[line, column] = 0
        if whole and not plain:
            unfold(head, cells, lanes)
            whole = False
        if plain:
            cells[line, WRITE] = np.uint64(mine | touched)
            lanes[line, LANES + WRITE] = np.uint32(bit)
        else:
            alike_there, access = np.int64(same), np.int64(kind)
            _write_slowly(line, mine, touched, position, alike_there, lane, warp, access, shadow, report)
        # four words whose only access is this write share a line again
        alike = int(plain) if line == head else alike + int(plain)
        if alike == GROUP and not whole and lanes[lanes.shape[0] - 1, ALONE] == 0:
            lanes[head, APART] = 0
        word += GROUP if whole else 1


@kernel
def _write_slowly(
    line: Int,
    mine: Int,
    touched: Int,
    position: Int,
    same: Int,
    lane: Int,
    warp: Int,
    kind: Int,
    shadow: ShadowArrays,
    report: Int64s,
) -> None:
    """Enter a write of a word with accesses that the fast path cannot order."""
    scope = (mine >> SCOPE) & 3
    cells, lanes, table, clusters = shadow.cells, shadow.lanes, shadow.table, shadow.clusters
    for column in range(EARLIER_READ + 1):
        other = np.int64(cells[line, column])
        # two threads that write the same value do not conflict; an asynchronous operation may write it at any time
        exempt = (column < READ and same and by_thread(other, table)) or morally_strong(
            other, scope, warp, table, clusters
        )
        if other & touched and not exempt:
            _look(line, column, other, touched, position, lane, warp, shadow, report)
        if scope == 0 and column != WRITE and not other & 15 & ~touched:
            cells[line, column] = 0
    if scope:
        _enter_strong(line, mine, touched, lane, warp, kind, shadow)
    else:
        _keep_apart(line, mine, touched, same, lane, cells, lanes)
        _enter(line, WRITE, mine, touched, lane, cells, lanes)


@part
def _keep_apart(line: Int, mine: Int, touched: Int, same: Int, lane: Int, cells: UInt64s, lanes: UInt32s) -> None:
    """Before a weak write: keep the last write, with its site, if the new one does not cover it.

    This keeps both if warps write halves of words. If another lane of the same warp wrote at another site, their race
    is in the report already, unless both wrote the same value: later accesses are compared with the new one.
    """
    last, earlier = np.int64(cells[line, WRITE]), np.int64(cells[line, EARLIER_STRONG])
    others, free = last & 15 & ~touched, earlier & SEEN or not earlier & STRONG
    if (last ^ mine) & STAMP:
        if others and free:
            _move(line, WRITE, EARLIER_STRONG, cells, lanes)
    elif (last ^ mine) >> SITE_SHIFT:
        alone = np.int64(lanes[line, LANES + WRITE]) == np.int64(1) << lane and not last & MIXED
        if not others and (alone or not same):
            cells[line, WRITE] = 0
        elif earlier == 0 or earlier & SEEN:
            _move(line, WRITE, EARLIER_STRONG, cells, lanes)


@part
def _enter_strong(line: Int, mine: Int, touched: Int, lane: Int, warp: Int, kind: Int, shadow: ShadowArrays) -> None:
    """Enter a strong write: earlier reads have not observed the new last write; an update has observed the old one."""
    cells, lanes = shadow.cells, shadow.lanes
    last = np.int64(cells[line, STRONG_WRITE])
    if last and kind == BLIND_UPDATE and _keeps_apart(line, last, mine, touched, warp, shadow):
        _room(line, STRONG_WRITE, mine, touched, lane, warp, shadow)
        cells[line, STRONG_WRITE] &= np.uint64(~np.uint64(SEEN))
        if cells[line, EARLIER_STRONG]:
            cells[line, EARLIER_STRONG] |= np.uint64(SEEN)
    elif last:
        if np.int64(cells[line, EARLIER_STRONG]) & SEEN:
            # every read that observed the last one has observed this one, too
            cells[line, EARLIER_STRONG] = 0
        if not last & 15 & ~touched and _replaces(line, last, mine, touched, lane, warp, kind, shadow):
            cells[line, STRONG_WRITE] = 0
        else:
            _room(line, STRONG_WRITE, mine, touched, lane, warp, shadow)
    _enter(line, STRONG_WRITE, mine, touched, lane, cells, lanes)
    for column in range(READ, EARLIER_READ + 1):
        cells[line, column] &= np.uint64(~np.uint64(SEEN))


@part
def _keeps_apart(line: Int, last: Int, mine: Int, touched: Int, warp: Int, shadow: ShadowArrays) -> Flag:
    """Whether the last strong write stays beside a blind update: not ordered by it, and not observed by any read."""
    cells = shadow.cells
    earlier, reads = np.int64(cells[line, EARLIER_STRONG]), np.int64(cells[line, READ] | cells[line, EARLIER_READ])
    if (last ^ touched) & 15 or (earlier and not earlier & SEEN) or reads & SEEN:
        return False
    return morally_strong(last, (mine >> SCOPE) & 3, warp, shadow.table, shadow.clusters)


@part
def _replaces(
    line: Int, last: Int, mine: Int, touched: Int, lane: Int, warp: Int, kind: Int, shadow: ShadowArrays
) -> Flag:
    """Whether a strong write replaces the last one: it or its thread observed that, so later accesses are covered."""
    if kind != STORE and morally_strong(last, (mine >> SCOPE) & 3, warp, shadow.table, shadow.clusters):
        if _covers(last, mine, touched):
            return True
        mask = who(last, np.int64(shadow.lanes[line, LANES + STRONG_WRITE]), 15)
        return not ordered(last, mask, lane, warp, shadow)
    seen, seen_mask = _seer(line, touched, lane, warp, shadow)
    return seen != 0 and _covers(last, mine, touched) and ordered(seen, seen_mask, lane, warp, shadow)
