"""Shadow cells: who last wrote and read each word of memory, and whether a new access is ordered after them.

A cell is one 64-bit word: bytes touched (4 bits), scope of a strong access (2, see `order`), several lanes with bytes
of their own (1), a read that saw the last strong write (1), clock of the warp (20), number of the warp in the grid plus
one (20), number of the instruction (16, see `AccessSites`). A 4-byte word of memory has five: the last weak write, two
strong writes, two reads; a weak write of other bytes or of another instruction than the last may stand for the
earlier strong one. The bit of a read that saw the last strong write says of the earlier strong one that the last one
updated it. Beside each lies who of the warp it was: a mask of lanes, or a lane for each byte. Together they fill a line
of 64 bytes, `cells` with eight columns, and `lanes` over the same memory with sixteen.

Two accesses of which one writes race unless one happens before the other, or both are strong and the scope of each
holds the other's thread. A strong write that changes what the last one left has seen it, so it takes its place. One
that gives nobody what it replaced (a reduction, an atomic whose result is not used) might as well have come first, so
its own thread has seen nothing: the other stays beside it, and who sees the last one by a strong read has seen both.

Order: `clocks[cta, w, u]` is the last clock of warp u that all lanes of warp w of the same CTA have seen, and its own
clock where u = w; a warp's clock advances whenever one of its lanes releases. `table` holds for each warp of the batch
its CTA in the batch, its number in the CTA and in the grid, its clock and number as a cell has them, a clock up to
which it is ordered after all warps of its CTA (with it nearly every access is settled by one comparison), the clock up
to which its lanes know of each other, and its row in `known`, which is what it has acquired of the clocks of other
CTAs. The last row holds the number of warps in a CTA, the number of actors in a CTA, and where among these
what is known of single lanes begins (-1: nowhere). `peers[warp, lane]` is what a lane knows of the others of its warp
beyond that, `peers[warp, 32]` when lanes last arrived on an mbarrier alone. `clusters` numbers the cluster of each CTA
of the grid, and is empty without clusters. Kernels are given all of these together, as `shadow`. What single lanes
have acquired is not looked at here: what is not settled is written to the report, for `checks` to decide.
"""

from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes.compiled import inlined, kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.room import sparse_zeros
from kernbench.ptx.emulator.program.access_order import CLUSTER_SCOPE, GPU_SCOPE

# as in access.CODES
_RACE = 3
# rows of a report before the suspects: position, the other's cell and lanes, and those of a read that saw it
SUSPECTS = 5
SUSPECT = 5

# the columns of a word, and where the lanes of the first lie in the view by 32 bits
WRITE, STRONG_WRITE, EARLIER_STRONG, READ, EARLIER_READ = range(5)
CELLS = 8
LANES = 10
CTA, INSIDE, NUMBER, OWN, FLOOR, MET, KNOWN = range(7)
TABLE = 7
_SCOPE = 4
STRONG = 3 << _SCOPE
_MIXED = 1 << 6
_SEEN = 1 << 7
CLOCK_SHIFT = 8
NUMBER_SHIFT = 28
SITE_SHIFT = 48
CLOCK_LIMIT = (1 << 20) - 1
NUMBER_MASK = (1 << 20) - 1
# clock and warp of a cell
STAMP = ((1 << 40) - 1) << CLOCK_SHIFT
WARP_LIMIT = NUMBER_MASK - 1
# what an access that changes memory is: a store, an update whose thread sees what it replaces, or one that does not
STORE, UPDATE, BLIND_UPDATE = 0, 1, 2


def decode(cell: int) -> tuple[int, int, int]:
    """Site, number of the warp in the grid, and clock of a cell's access."""
    return cell >> SITE_SHIFT, ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1, (cell >> CLOCK_SHIFT) & CLOCK_LIMIT


def scope_of(cell: int) -> int:
    """The scope of a cell's access, 0 if it is weak."""
    return (cell >> _SCOPE) & 3


def stamp(clock: Any, number: Any) -> Any:
    """Clock and number of a warp as cells hold them."""
    return (clock.astype(np.int64) << CLOCK_SHIFT) | ((number.astype(np.int64) + 1) << NUMBER_SHIFT)


@kernel
def part_from(cells: Any, lanes: Any, rows: Any, clocks: Any) -> None:
    """Lanes have ended: give what they did at their last clocks a clock that nobody ever knows.

    `rows` has for the number of a warp its row in `clocks`, or -1; that has for each lane its last clock, or 0. What
    other lanes did at that clock in the same cell is dropped: whatever races with it races with an ended lane, too.
    """
    for word in range(cells.shape[0] - 1):
        for column in range(EARLIER_READ + 1):
            cell = np.int64(cells[word, column])
            number = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
            if number < 0 or number >= rows.size or rows[number] < 0:
                continue
            ends, clock = clocks[rows[number]], (cell >> CLOCK_SHIFT) & CLOCK_LIMIT
            held, left = np.int64(lanes[word, LANES + column]), np.int64(0)
            if cell & _MIXED:
                for byte in range(4):
                    if cell & (1 << byte) and ends[(held >> (8 * byte)) & 31] == clock:
                        left |= 1 << byte
                cell = cell & ~np.int64(15) | left
            else:
                for lane in range(WARP):
                    if (held >> lane) & 1 and ends[lane] == clock:
                        left |= np.int64(1) << lane
                held = left
            if left:
                cells[word, column] = np.uint64(cell | (np.int64(CLOCK_LIMIT) << CLOCK_SHIFT))
                lanes[word, LANES + column] = np.uint32(held)


def new_cells(words: int, first_byte: int = 0) -> tuple[Any, Any]:
    """The cells of memory from a byte on, each word on a line of its own, and the lanes beside them, in the same place.

    A line more at the end holds the first byte.
    """
    room = sparse_zeros((words + 2) * CELLS)
    skipped = -(room.ctypes.data // 8) % CELLS
    cells = room[skipped : skipped + (words + 1) * CELLS].reshape(words + 1, CELLS)
    cells[-1, 0] = first_byte
    return cells, cells.view(np.uint32)


@part
def who(cell: Any, lanes: Any, touched: Any) -> Any:
    """The lanes of a cell's access that touched some bytes, as a mask."""
    if not cell & _MIXED:
        return lanes
    found = np.int64(0)
    for byte in range(4):
        if cell & touched & (1 << byte):
            found |= np.int64(1) << ((lanes >> (8 * byte)) & 31)
    return found


@part
def knows_lane(clock: Any, mask: Any, known: Any, arrivals: Any) -> Any:
    """Whether `known` of single lanes (a clock times 32, plus a lane) covers what the lanes of `mask` did at `clock`.

    One lane is remembered for a warp; of others that told of themselves as well, it is taken as known.
    """
    if clock > known >> 5:
        return False
    return _late(clock, mask & ~(np.int64(1) << (known & 31)), arrivals) == 0


@part
def _late(clock: Any, mask: Any, clocks: Any) -> Any:
    """The lanes of `mask` whose clocks have not come to `clock`."""
    late = np.int64(0)
    for lane in range(WARP):
        if (mask >> lane) & 1 and clocks[lane] < clock:
            late |= np.int64(1) << lane
    return late


@part
def _by_thread(cell: Any, table: Any) -> Any:
    """Whether a thread made the access of `cell`, and not an operation beside the threads."""
    last = table.shape[0] - 1
    return (((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1) % table[last, 1] < table[last, 0]


@kernel
def _ordered(cell: Any, mask: Any, lane: Any, warp: Any, shadow: Any) -> Any:
    """Whether what the lanes of `mask` did in `cell` is known to all lanes of `warp`, or to this one from its warp."""
    table, clocks, peers, known = shadow[2], shadow[3], shadow[4], shadow[5]
    number = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
    clock = (cell >> CLOCK_SHIFT) & CLOCK_LIMIT
    cta, inside = table[warp, CTA], table[warp, INSIDE]
    last = table.shape[0] - 1
    if number == table[warp, NUMBER]:
        rest = mask & ~(np.int64(1) << lane)
        if rest == 0 or clock <= table[warp, MET]:
            return True
        if peers.shape[0] > 1:
            rest = _late(clock, rest, peers[warp, lane])
        # a lane that arrived on an mbarrier for which the whole warp has waited since
        own = table[last, 2]
        return rest == 0 or (own >= 0 and knows_lane(clock, rest, clocks[cta, inside, own + inside], peers[warp, WARP]))
    first = table[warp, NUMBER] - inside
    if first <= number < first + table[last, 1]:
        column = number - first
        if clock <= clocks[cta, inside, column]:
            return True
        lanes, warps = table[last, 2], table[last, 0]
        if lanes < 0 or column >= warps:
            return False
        them = warp + (column - inside) * (last // warps)
        return knows_lane(clock, mask, clocks[cta, inside, lanes + column], peers[them, WARP])
    row = table[warp, KNOWN]
    if row < 0 or clock <= known[row, number]:
        return row >= 0
    return _by_thread(cell, table) and knows_far_lane(clock, mask, known[row], number + table[last, 2], table[last, 2])


@part
def knows_far_lane(clock: Any, mask: Any, known: Any, place: Any, lanes: Any) -> Any:
    """As `knows_lane`, of a warp of another CTA: what is known of one of its lanes is at a place of `known`."""
    if lanes < 0 or place >= known.size:
        return False
    return clock <= known[place] >> 5 and mask == np.int64(1) << (known[place] & 31)


@part
def _plainly_unordered(cell: Any, warp: Any, shadow: Any) -> Any:
    """Whether a warp plainly knows nothing of another one's access: most often that saves the call of `_ordered`."""
    table, clocks = shadow[2], shadow[3]
    number = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
    inside, last = table[warp, INSIDE], table.shape[0] - 1
    column = number - table[warp, NUMBER] + inside
    if column < 0 or column >= table[last, 1]:
        return table[warp, KNOWN] < 0
    clock = (cell >> CLOCK_SHIFT) & CLOCK_LIMIT
    return column != inside and table[last, 2] < 0 and clock > clocks[table[warp, CTA], inside, column]


@inlined
def _settled(cell: Any, lanes: Any, number: Any, bit: Any, floor: Any, first: Any, warps: Any) -> Any:
    """Whether an access is plainly ordered before one of a lane: long ago in the same CTA, or by the lane itself."""
    theirs = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
    long_ago = ((cell >> CLOCK_SHIFT) & CLOCK_LIMIT) <= floor and first <= theirs < first + warps
    return long_ago or (theirs == number and lanes == bit and not cell & _MIXED)


@part
def _morally_strong(cell: Any, scope: Any, warp: Any, table: Any, clusters: Any) -> Any:
    """Whether a cell's access and one of `scope` by a warp are strong, and each in the scope of the other."""
    theirs = (cell >> _SCOPE) & 3
    if theirs == 0 or scope == 0:
        return False
    if theirs == GPU_SCOPE and scope == GPU_SCOPE:
        return True
    columns = table[table.shape[0] - 1, 1]
    number = (((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1) // columns
    mine = table[warp, NUMBER] // columns
    if number == mine:
        return True
    return (
        clusters.size > 0 and theirs >= CLUSTER_SCOPE and scope >= CLUSTER_SCOPE and clusters[number] == clusters[mine]
    )


@part
def _suspect(position: Any, cell: Any, mask: Any, seen: Any, seen_mask: Any, report: Any) -> None:
    row = SUSPECTS + report[_RACE, 0]
    if row < report.shape[0]:
        report[row, 0] = position
        report[row, 1] = cell
        report[row, 2] = mask
        report[row, 3] = seen
        report[row, 4] = seen_mask
    report[_RACE, 0] += 1


@part
def _seer(word: Any, touched: Any, lane: Any, warp: Any, shadow: Any) -> Any:
    """A read that saw the last strong write, and its lanes: the lane's own if there is one."""
    cells, lanes, number = shadow[0], shadow[1], shadow[2][warp, NUMBER]
    seen, seen_mask = np.int64(0), np.int64(0)
    for column in range(READ, EARLIER_READ + 1):
        read = np.int64(cells[word, column])
        if read & _SEEN and read & touched == touched:
            seen, seen_mask = read, who(read, np.int64(lanes[word, LANES + column]), touched)
            if ((read >> NUMBER_SHIFT) & NUMBER_MASK) - 1 == number and (seen_mask >> lane) & 1:
                seen_mask = np.int64(1) << lane
                break
    return seen, seen_mask


@kernel
def _look(
    word: Any, column: Any, cell: Any, touched: Any, position: Any, lane: Any, warp: Any, shadow: Any, report: Any
) -> None:
    """An access that is not plainly settled: it is ordered, or was seen by a read that is, or it is a suspect."""
    mask = who(cell, np.int64(shadow[1][word, LANES + column]), touched)
    if _ordered(cell, mask, lane, warp, shadow):
        return
    seen, seen_mask = np.int64(0), np.int64(0)
    if column == STRONG_WRITE or (column == EARLIER_STRONG and cell & _SEEN):
        seen, seen_mask = _seer(word, touched, lane, warp, shadow)
        if seen and _ordered(seen, seen_mask, lane, warp, shadow):
            return
    if ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1 == shadow[2][warp, NUMBER]:
        mask &= ~(np.int64(1) << lane)
    _suspect(position, cell, mask, seen, seen_mask, report)


@part
def _enter(word: Any, column: Any, mine: Any, touched: Any, lane: Any, cells: Any, lanes: Any) -> None:
    """Put an access in a cell, together with what lanes of its warp did there at the same clock."""
    last = np.int64(cells[word, column])
    held = np.int64(lanes[word, LANES + column])
    bit = np.int64(1) << lane
    if last == 0 or (last ^ mine) & (STAMP | STRONG):
        cells[word, column] = np.uint64(mine | touched)
        lanes[word, LANES + column] = np.uint32(bit)
        return
    before = last & 15
    flags = last & (_MIXED | _SEEN)
    if not flags & _MIXED and (before == touched or held == bit):
        held |= bit
    else:
        spread = np.int64(0)
        for byte in range(4):
            owner = (held >> (8 * byte)) & 31 if flags & _MIXED else _lowest(held)
            spread |= (lane if touched & (1 << byte) else owner) << (8 * byte)
        held = spread
        flags |= _MIXED
    cells[word, column] = np.uint64(mine | flags | before | touched)
    lanes[word, LANES + column] = np.uint32(held)


@part
def _lowest(mask: Any) -> Any:
    lane = 0
    while lane < 31 and not (mask >> lane) & 1:
        lane += 1
    return lane


@part
def _move(word: Any, source: Any, target: Any, cells: Any, lanes: Any) -> None:
    cells[word, target] = cells[word, source]
    lanes[word, LANES + target] = lanes[word, LANES + source]
    cells[word, source] = 0


@part
def _covers(cell: Any, mine: Any, touched: Any) -> Any:
    """Whether a new access stands for an older one before it: it conflicts with whatever that one does."""
    return not (cell & 15) & ~touched and (mine & STRONG) <= (cell & STRONG) and not cell & ~mine & _SEEN


@part
def _room(word: Any, column: Any, mine: Any, touched: Any, lane: Any, warp: Any, shadow: Any) -> None:
    """Make room in `column`, keeping what is there in the next one, if possible of what nothing covers."""
    cells, lanes = shadow[0], shadow[1]
    for place in range(column, column + 2):
        cell = np.int64(cells[word, place])
        if cell and not (cell ^ mine) & (STAMP | STRONG):
            if place > column:
                held, beside = cells[word, place], lanes[word, LANES + place]
                _move(word, column, place, cells, lanes)
                cells[word, column], lanes[word, LANES + column] = held, beside
            return
    cell = np.int64(cells[word, column])
    if _covers(cell, mine, touched) and not _plainly_unordered(cell, warp, shadow):
        mask = who(cell, np.int64(lanes[word, LANES + column]), 15)
        if _ordered(cell, mask, lane, warp, shadow):
            return
    _move(word, column, column + 1, cells, lanes)


@inlined
def note_read(
    start: Any,
    length: Any,
    lane_number: Any,
    position: Any,
    shadow: Any,
    site: Any,
    scope: Any,
    report: Any,
) -> None:
    """Enter a read and note writes that may race with it."""
    cells, lanes, table = shadow[0], shadow[1], shadow[2]
    place, span = np.int64(start) - np.int64(cells[cells.shape[0] - 1, 0]), np.int64(length)
    warp, lane = lane_number // WARP, lane_number % WARP
    bit = np.int64(1) << lane
    floor, warps, number = table[warp, FLOOR], table[table.shape[0] - 1, 0], table[warp, NUMBER]
    first = number - table[warp, INSIDE]
    touched = 15 if span >= 4 else ((1 << span) - 1) << (place & 3)
    mine = table[warp, OWN] | (scope << _SCOPE) | (site << SITE_SHIFT)
    for word in range(place >> 2, (place + span + 3) >> 2):
        write = np.int64(cells[word, WRITE])
        strong = np.int64(cells[word, STRONG_WRITE]) | np.int64(cells[word, EARLIER_STRONG])
        if write & touched and not _settled(
            write, np.int64(lanes[word, LANES + WRITE]), number, bit, floor, first, warps
        ):
            _look(word, np.int64(WRITE), write, touched, position, lane, warp, shadow, report)
        last = np.int64(cells[word, READ])
        if strong == 0 and (last ^ mine) & (STAMP | STRONG) == 0 and last & (15 | _MIXED) == touched:
            lanes[word, LANES + READ] |= np.uint32(bit)
        elif strong == 0 and (
            last == 0
            or (
                last & STRONG == scope << _SCOPE
                and not last & 15 & ~touched
                and _settled(last, np.int64(lanes[word, LANES + READ]), number, bit, floor, first, warps)
            )
        ):
            cells[word, READ] = np.uint64(mine | touched)
            lanes[word, LANES + READ] = np.uint32(bit)
        elif strong == 0 and scope == 0 and last & 15 == touched:
            _take_turns(word, mine | touched, bit, cells, lanes)
        else:
            _read_slowly(word, mine, touched, position, lane, warp, np.int64(scope), shadow, report)


@inlined
def _take_turns(word: Any, mine: Any, bit: Any, cells: Any, lanes: Any) -> None:
    """Another warp reads what one has read: the last two are kept."""
    earlier = np.int64(cells[word, EARLIER_READ])
    held = np.int64(lanes[word, LANES + EARLIER_READ])
    cells[word, EARLIER_READ] = cells[word, READ]
    lanes[word, LANES + EARLIER_READ] = lanes[word, LANES + READ]
    together = earlier and (earlier ^ mine) & (STAMP | STRONG | _MIXED | 15) == 0
    cells[word, READ] = np.uint64(mine)
    lanes[word, LANES + READ] = np.uint32(bit | held) if together else np.uint32(bit)


@kernel
def _read_slowly(
    word: Any, mine: Any, touched: Any, position: Any, lane: Any, warp: Any, scope: Any, shadow: Any, report: Any
) -> None:
    """Enter a read of a word that has strong writes, or strong reads, or reads of other bytes."""
    cells, lanes, table, clusters = shadow[0], shadow[1], shadow[2], shadow[6]
    for column in range(STRONG_WRITE, EARLIER_STRONG + 1):
        other = np.int64(cells[word, column])
        if other & touched and not _morally_strong(other, scope, warp, table, clusters):
            _look(word, column, other, touched, position, lane, warp, shadow, report)
    label = mine
    if scope and _morally_strong(np.int64(cells[word, STRONG_WRITE]), scope, warp, table, clusters):
        label |= _SEEN
    last = np.int64(cells[word, READ])
    if last and (last ^ mine) & (STAMP | STRONG):
        mask = who(last, np.int64(lanes[word, LANES + READ]), 15)
        if _ordered(last, mask, lane, warp, shadow):
            # it comes after what that one saw
            label |= last & _SEEN
        _room(word, READ, label, touched, lane, warp, shadow)
    _enter(word, READ, label, touched, lane, cells, lanes)


@inlined
def note_write(
    start: Any,
    length: Any,
    lane_number: Any,
    position: Any,
    same: Any,
    shadow: Any,
    site: Any,
    scope: Any,
    kind: Any,
    report: Any,
) -> None:
    """Enter a write and note what may race with it.

    Writing what is there already races with no write of a thread; what a copy has brought by now is luck.
    """
    cells, lanes, table = shadow[0], shadow[1], shadow[2]
    place, span = np.int64(start) - np.int64(cells[cells.shape[0] - 1, 0]), np.int64(length)
    warp, lane = lane_number // WARP, lane_number % WARP
    bit = np.int64(1) << lane
    floor, warps, number = table[warp, FLOOR], table[table.shape[0] - 1, 0], table[warp, NUMBER]
    first = number - table[warp, INSIDE]
    touched = 15 if span >= 4 else ((1 << span) - 1) << (place & 3)
    mine = table[warp, OWN] | (scope << _SCOPE) | (site << SITE_SHIFT)
    for word in range(place >> 2, (place + span + 3) >> 2):
        plain = scope == 0
        for column in range(EARLIER_READ + 1):
            other = np.int64(cells[word, column])
            if other == 0:
                continue
            plain &= (
                _settled(other, np.int64(lanes[word, LANES + column]), number, bit, floor, first, warps)
                and not other & 15 & ~touched
            )
            if plain and column != WRITE:
                cells[word, column] = 0
        if plain:
            cells[word, WRITE] = np.uint64(mine | touched)
            lanes[word, LANES + WRITE] = np.uint32(bit)
        else:
            _write_slowly(
                word,
                mine,
                touched,
                position,
                np.int64(same),
                lane,
                warp,
                np.int64(scope),
                np.int64(kind),
                shadow,
                report,
            )


@kernel
def _write_slowly(
    word: Any,
    mine: Any,
    touched: Any,
    position: Any,
    same: Any,
    lane: Any,
    warp: Any,
    scope: Any,
    kind: Any,
    shadow: Any,
    report: Any,
) -> None:
    """Enter a write of a word where something is not plainly before it."""
    cells, lanes, table, clusters = shadow[0], shadow[1], shadow[2], shadow[6]
    for column in range(EARLIER_READ + 1):
        other = np.int64(cells[word, column])
        exempt = (column < READ and same and _by_thread(other, table)) or _morally_strong(
            other, scope, warp, table, clusters
        )
        if other & touched and not exempt:
            _look(word, column, other, touched, position, lane, warp, shadow, report)
        if scope == 0 and column != WRITE and not other & 15 & ~touched:
            cells[word, column] = 0
    if scope:
        _enter_strong(word, mine, touched, lane, warp, kind, shadow)
    else:
        _keep_apart(word, mine, touched, same, lane, cells, lanes)
        _enter(word, WRITE, mine, touched, lane, cells, lanes)


@part
def _keep_apart(word: Any, mine: Any, touched: Any, same: Any, lane: Any, cells: Any, lanes: Any) -> None:
    """Before a weak write: what the last one did that this does not stand for is kept, with its own instruction.

    None is lost where warps write halves of words. Where another lane of the same warp wrote at another instruction,
    its race with this write is in the report already, unless both write the same: whoever looks next meets this one.
    """
    last, earlier = np.int64(cells[word, WRITE]), np.int64(cells[word, EARLIER_STRONG])
    others, free = last & 15 & ~touched, earlier & _SEEN or not earlier & STRONG
    if (last ^ mine) & STAMP:
        if others and free:
            _move(word, WRITE, EARLIER_STRONG, cells, lanes)
    elif (last ^ mine) >> SITE_SHIFT:
        alone = np.int64(lanes[word, LANES + WRITE]) == np.int64(1) << lane and not last & _MIXED
        if not others and (alone or not same):
            cells[word, WRITE] = 0
        elif earlier == 0 or earlier & _SEEN:
            _move(word, WRITE, EARLIER_STRONG, cells, lanes)


@part
def _enter_strong(word: Any, mine: Any, touched: Any, lane: Any, warp: Any, kind: Any, shadow: Any) -> None:
    """A strong write: what reads before saw is no longer the last; an update has seen what it replaces."""
    cells, lanes = shadow[0], shadow[1]
    last = np.int64(cells[word, STRONG_WRITE])
    if last and kind == BLIND_UPDATE and _keeps_apart(word, last, mine, touched, warp, shadow):
        _room(word, STRONG_WRITE, mine, touched, lane, warp, shadow)
        cells[word, STRONG_WRITE] &= np.uint64(~np.uint64(_SEEN))
        if cells[word, EARLIER_STRONG]:
            cells[word, EARLIER_STRONG] |= np.uint64(_SEEN)
    elif last:
        if np.int64(cells[word, EARLIER_STRONG]) & _SEEN:
            # whoever saw the last one saw this one, too
            cells[word, EARLIER_STRONG] = 0
        if not last & 15 & ~touched and _replaces(word, last, mine, touched, lane, warp, kind, shadow):
            cells[word, STRONG_WRITE] = 0
        else:
            _room(word, STRONG_WRITE, mine, touched, lane, warp, shadow)
    _enter(word, STRONG_WRITE, mine, touched, lane, cells, lanes)
    for column in range(READ, EARLIER_READ + 1):
        cells[word, column] &= np.uint64(~np.uint64(_SEEN))


@part
def _keeps_apart(word: Any, last: Any, mine: Any, touched: Any, warp: Any, shadow: Any) -> Any:
    """Whether the last strong write stays beside an update that it does not order, and that nobody's read has seen."""
    cells = shadow[0]
    earlier, reads = np.int64(cells[word, EARLIER_STRONG]), np.int64(cells[word, READ] | cells[word, EARLIER_READ])
    if (last ^ touched) & 15 or (earlier and not earlier & _SEEN) or reads & _SEEN:
        return False
    return _morally_strong(last, (mine >> _SCOPE) & 3, warp, shadow[2], shadow[6])


@part
def _replaces(word: Any, last: Any, mine: Any, touched: Any, lane: Any, warp: Any, kind: Any, shadow: Any) -> Any:
    """Whether whatever comes after a strong write comes after the last one too, as it or its thread has seen that."""
    if kind != STORE and _morally_strong(last, (mine >> _SCOPE) & 3, warp, shadow[2], shadow[6]):
        if _covers(last, mine, touched):
            return True
        mask = who(last, np.int64(shadow[1][word, LANES + STRONG_WRITE]), 15)
        return not _ordered(last, mask, lane, warp, shadow)
    seen, seen_mask = _seer(word, touched, lane, warp, shadow)
    return seen != 0 and _covers(last, mine, touched) and _ordered(seen, seen_mask, lane, warp, shadow)
