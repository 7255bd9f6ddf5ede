"""Compiled loads and stores: one pass over the active lanes moves data and checks bounds, alignment and state.

Faults are counted in `report`: for each of `CODES` the number of lanes and the first position; kernels return the total
number of faults. Groups of arguments are plain tuples, whose type numba infers in half the time that a named tuple
takes; the kernels name their parts (`addressing_of`, `moved_of`).
"""

from typing import NamedTuple

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Bytes, Flag, Int, Int64s, UInt32s, UInt64s, Word, Words
from kernbench.ptx.emulator.lanes.compiled import inlined, kernel, part
from kernbench.ptx.emulator.memory.arena import POISON, TRACKED, UNWRITTEN, WRITTEN
from kernbench.ptx.emulator.memory.cell_entries import AHEAD, fetch, note_read, note_write
from kernbench.ptx.emulator.memory.cells import STORE, SUSPECT, Shadow, named

OUTSIDE, MISALIGNED, UNINITIALISED, RACE, READ_ONLY = range(5)
CODES = ("out-of-bounds", "misaligned", "uninitialised-read", "race", "read-only")

# "scope" of a load that counts as a read later, or never
UNSEEN = -1
# flag of a noted position: the store wrote the value that was there already
SAME = 1 << 62

_POISON = np.uint64(POISON * 0x0101_0101_0101_0101)
_WRITTEN = np.uint64(WRITTEN * 0x0101_0101_0101_0101)
_UNWRITTEN = np.uint64(UNWRITTEN * 0x0101_0101_0101_0101)
_TRACKED = np.uint64(TRACKED * 0x0101_0101_0101_0101)
_PAGE = np.uint64(8)
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)


class Addressing(NamedTuple):
    """How positions access one space: at `addresses + offset - window`, which must be below `size`.

    `origins` has the offset of each lane's own part of the space's array (a CTA's shared memory, a thread's local
    memory), and is empty for global memory.
    """

    addresses: UInt64s
    offset: np.uint64
    window: np.uint64
    size: np.uint64
    origins: UInt64s


class Moved(NamedTuple):
    """What an access moves: registers of a `bank` (rows over lanes); `rows` are those of a vector's elements.

    `lanes` has the lane of each position, `mask` which positions are active; empty means all.
    """

    bank: Words
    rows: Int64s
    lanes: Int64s
    mask: Bools


# the same two as plain tuples
GivenAddressing = tuple[UInt64s, np.uint64, np.uint64, np.uint64, UInt64s]
Moving = tuple[Words, Int64s, Int64s, Bools]


@part
def addressing_of(given: GivenAddressing) -> Addressing:
    """Name the parts of an addressing."""
    return Addressing(given[0], given[1], given[2], given[3], given[4])


@part
def moved_of(given: Moving) -> Moved:
    """Name the parts of what is moved."""
    return Moved(given[0], given[1], given[2], given[3])


def new_report(suspects: int = 0, cleared: bool = True) -> Int64s:
    """An empty report: per code, the number of lanes and the first position; then rows for suspected races.

    The latter are written before they are counted, so they need not be `cleared`.
    """
    if cleared:
        return np.zeros((len(CODES) + suspects, SUSPECT), np.int64)
    report = np.empty((len(CODES) + suspects, SUSPECT), np.int64)
    report[: len(CODES)] = 0
    return report


@part
def _count(report: Int64s, code: int, position: int) -> None:
    if report[code, 0] == 0:
        report[code, 1] = position
    report[code, 0] += 1


@part
def _shift_of(itemsize: int) -> np.uint64:
    """The logarithm of a word's size in bytes."""
    shift = np.uint64(0)
    while (1 << shift) < itemsize:
        shift += np.uint64(1)
    return shift


@part
def _total(report: Int64s) -> Int:
    total = 0
    for code in range(len(CODES)):
        total += report[code, 0]
    return total


@inlined
def _fill(
    memory: Words,
    word: np.uint64,
    bank: Words,
    lane: np.uint64,
    rows: Int64s,
    first: np.uint64,
    second: np.uint64,
    third: np.uint64,
    fourth: np.uint64,
) -> None:
    """Load a lane's registers from consecutive words; the rows of the usual vectors are passed in."""
    bank[first, lane] = memory[word]
    if rows.size == 4:
        bank[second, lane] = memory[word + _ONE]
        bank[third, lane] = memory[word + _TWO]
        bank[fourth, lane] = memory[word + _THREE]
    else:
        for k in range(1, rows.size):
            bank[rows[k], lane] = memory[word + np.uint64(k)]


@part
def _flaw(state: Words, word: np.uint64, count: int, written: Word, tracked: Word, unwritten: Word) -> int:
    """The fault of reading some words, by their states; negative if there is none."""
    trouble = -1
    for k in range(count):
        found = state[word + np.uint64(k)] & ~tracked
        if (found & unwritten) != unwritten:
            return OUTSIDE
        if found != written:
            trouble = UNINITIALISED
    return trouble


@part
def _is_run(to: Moved) -> bool:
    """Whether all positions are active and their lanes are consecutive; lanes always ascend."""
    many = to.lanes.size
    return many > 0 and to.mask.size == 0 and to.lanes[many - 1] - to.lanes[0] == many - 1


@part
def _load_run(
    memory: Words, state: Words, at: Addressing, to: Moved, shift: np.uint64, written: Word, checked: bool
) -> Int:
    """Load the first lanes of a run, up to the first fault; returns their number, nearly always all.

    The loop does the minimum per lane; what is the same for all lanes is computed before. States are only compared if
    `checked`.
    """
    bank, rows, addresses = to.bank, to.rows, at.addresses
    span = np.uint64(rows.size) << shift
    odd, last, by = span - _ONE, at.size - span, at.offset - at.window
    if at.origins.size > 0 or at.size < span or at.window & odd or (rows.size != 1 and rows.size != 4):
        return 0
    lane, many, i = np.uint64(to.lanes[0]), np.uint64(to.lanes.size), np.uint64(0)
    first = np.uint64(rows[0])
    if rows.size == 1:
        while i < many:
            start = addresses[i] + by
            if (start & odd) or start > last or (checked and state[start >> shift] != written):
                break
            bank[first, lane + i] = memory[start >> shift]
            i += _ONE
        return np.int64(i)
    second, third, fourth = np.uint64(rows[1]), np.uint64(rows[2]), np.uint64(rows[3])
    while i < many:
        start = addresses[i] + by
        word = start >> shift
        if (start & odd) or start > last:
            break
        if checked and (
            state[word] != written
            or state[word + _ONE] != written
            or state[word + _TWO] != written
            or state[word + _THREE] != written
        ):
            break
        bank[first, lane + i] = memory[word]
        bank[second, lane + i] = memory[word + _ONE]
        bank[third, lane + i] = memory[word + _TWO]
        bank[fourth, lane + i] = memory[word + _THREE]
        i += _ONE
    return np.int64(i)


@kernel
def load(memory: Words, where: GivenAddressing, moved: Moving, report: Int64s) -> Int:
    """Unchecked load: addresses outside the space, or misaligned, read as poison."""
    at, to = addressing_of(where), moved_of(moved)
    bank, rows = to.bank, to.rows
    shift = _shift_of(memory.itemsize)
    span = np.uint64(rows.size) << shift
    odd, last, too_small = span - np.uint64(1), at.size - span, at.size < span
    own = at.origins.size > 0
    masked = to.mask.size > 0
    # rows of the usual vectors, looked up once
    first, second = np.uint64(rows[0]), np.uint64(rows[1 % rows.size])
    third, fourth = np.uint64(rows[2 % rows.size]), np.uint64(rows[3 % rows.size])
    poison = memory.dtype.type(_POISON)
    done = _load_run(memory, memory, at, to, shift, poison, False) if _is_run(to) else 0
    for i in range(done, to.lanes.size):
        if masked and not to.mask[i]:
            continue
        lane = np.uint64(to.lanes[i])
        address = at.addresses[i] + at.offset
        start = address - at.window
        if too_small or (address & odd) or start > last:
            _count(report, OUTSIDE, i)
            for k in range(rows.size):
                bank[rows[k], lane] = poison
            continue
        if own:
            start += at.origins[lane]
        _fill(memory, start >> shift, bank, lane, rows, first, second, third, fourth)
    return _total(report)


@kernel
def store(memory: Words, dirty: Bools, where: GivenAddressing, moved: Moving, report: Int64s) -> Int:
    """Unchecked store: writes outside the space, or misaligned, are dropped."""
    at, what = addressing_of(where), moved_of(moved)
    bank, rows = what.bank, what.rows
    shift = _shift_of(memory.itemsize)
    span = np.uint64(rows.size) << shift
    own = at.origins.size > 0
    masked = what.mask.size > 0
    for i in range(what.lanes.size):
        if masked and not what.mask[i]:
            continue
        lane = what.lanes[i]
        address = at.addresses[i] + at.offset
        start = address - at.window
        if at.size < span or (address & (span - np.uint64(1))) or start > at.size - span:
            _count(report, OUTSIDE, i)
            continue
        if own:
            start += at.origins[lane]
        else:
            dirty[start >> _PAGE] = True
        word = start >> shift
        for k in range(rows.size):
            memory[word + np.uint64(k)] = bank[rows[k], lane]
    return _total(report)


@kernel
def checked_load(
    memory: Words, state: Words, where: GivenAddressing, moved: Moving, report: Int64s, noted: Int64s, starts: UInt64s
) -> Int:
    """Checked load: outside or misaligned reads as poison; unwritten memory reads as it is, and is reported.

    Positions whose reads must be entered in the shadow, and their offsets, go to `noted` and `starts`; the last entry
    of `noted` is their number.
    """
    many = 0
    at, to = addressing_of(where), moved_of(moved)
    bank, rows = to.bank, to.rows
    shift = _shift_of(memory.itemsize)
    span = np.uint64(rows.size) << shift
    odd, last, too_small = span - np.uint64(1), at.size - span, at.size < span
    own = at.origins.size > 0
    masked = to.mask.size > 0
    # rows of the usual vectors, looked up once
    first, second = np.uint64(rows[0]), np.uint64(rows[1 % rows.size])
    third, fourth = np.uint64(rows[2 % rows.size]), np.uint64(rows[3 % rows.size])
    kind = memory.dtype.type
    poison, written, tracked, unwritten = kind(_POISON), kind(_WRITTEN), kind(_TRACKED), kind(_UNWRITTEN)
    done = _load_run(memory, state, at, to, shift, written, True) if _is_run(to) else 0
    for i in range(done, to.lanes.size):
        if masked and not to.mask[i]:
            continue
        lane = np.uint64(to.lanes[i])
        address = at.addresses[i] + at.offset
        start = address - at.window
        trouble = -1
        racing = False
        if too_small or (address & odd) or start > last:
            trouble = MISALIGNED if address & odd else OUTSIDE
        else:
            if own:
                start += at.origins[lane]
            word = start >> shift
            low = high = state[word]
            for k in range(1, rows.size):
                found = state[word + np.uint64(k)]
                low &= found
                high |= found
            # nearly always every byte is written, and none is watched for races
            if low != written or high != written:
                racing = (high & tracked) != 0
                trouble = _flaw(state, word, rows.size, written, tracked, unwritten)
        if trouble >= 0:
            _count(report, trouble, i)
            if trouble != UNINITIALISED:
                for k in range(rows.size):
                    bank[rows[k], lane] = poison
                continue
        _fill(memory, start >> shift, bank, lane, rows, first, second, third, fourth)
        if racing:
            noted[many], starts[many] = i, start
            many += 1
    noted[noted.size - 1] = many
    return _total(report)


@kernel
def checked_store(
    memory: Words,
    state: Words,
    dirty: Bools,
    where: GivenAddressing,
    moved: Moving,
    report: Int64s,
    noted: Int64s,
    starts: UInt64s,
) -> Int:
    """Checked store: writes outside or misaligned are dropped; bytes become written.

    Positions to enter go to `noted` and `starts` as in `checked_load`, with `SAME` if the value does not change.
    """
    many = 0
    at, what = addressing_of(where), moved_of(moved)
    bank, rows = what.bank, what.rows
    shift = _shift_of(memory.itemsize)
    span = np.uint64(rows.size) << shift
    own = at.origins.size > 0
    masked = what.mask.size > 0
    kind = memory.dtype.type
    written, tracked, unwritten = kind(_WRITTEN), kind(_TRACKED), kind(_UNWRITTEN)
    for i in range(what.lanes.size):
        if masked and not what.mask[i]:
            continue
        lane = what.lanes[i]
        address = at.addresses[i] + at.offset
        start = address - at.window
        trouble = -1
        racing = False
        if address & (span - np.uint64(1)):
            trouble = MISALIGNED
        elif at.size < span or start > at.size - span:
            trouble = OUTSIDE
        else:
            if own:
                start += at.origins[lane]
            else:
                dirty[start >> _PAGE] = True
            word = start >> shift
            for k in range(rows.size):
                found = state[word + np.uint64(k)]
                racing |= (found & tracked) != 0
                if (found & unwritten) != unwritten:
                    trouble = OUTSIDE
        if trouble >= 0:
            _count(report, trouble, i)
            continue
        word = start >> shift
        same = True
        for k in range(rows.size):
            same &= memory[word + np.uint64(k)] == bank[rows[k], lane]
            memory[word + np.uint64(k)] = bank[rows[k], lane]
            state[word + np.uint64(k)] |= written
        if racing:
            noted[many], starts[many] = i | (SAME if same else 0), start
            many += 1
    noted[noted.size - 1] = many
    return _total(report)


@kernel
def deliver(memory: UInt32s, targets: Int64s, words: UInt32s) -> Flag:
    """Unchecked: write the words that copies bring to memory, if all lanes have a target there; returns whether."""
    for i in range(targets.size):
        if targets[i] < 0:
            return False
    for i in range(targets.size):
        for k in range(words.shape[0]):
            memory[targets[i] + k] = words[k, i]
    return True


@kernel
def may_deliver(state: UInt32s, targets: Int64s, addresses: UInt64s, last: np.uint64, count: Int) -> Flag:
    """Whether all lanes copy `count` words to existing memory, at addresses up to `last`."""
    unwritten = np.uint32(_UNWRITTEN)
    for i in range(targets.size):
        if targets[i] < 0 or addresses[i] > last:
            return False
        for k in range(count):
            if (state[targets[i] + k] & unwritten) != unwritten:
                return False
    return True


@kernel
def checked_deliver(
    memory: UInt32s, state: UInt32s, targets: Int64s, words: UInt32s, noted: Int64s, starts: UInt64s
) -> None:
    """Checked: as `deliver`, if `may_deliver`; positions to enter are noted as in `checked_store`."""
    many = 0
    written, tracked = np.uint32(_WRITTEN), np.uint32(_TRACKED)
    for i in range(targets.size):
        same, racing = True, False
        for k in range(words.shape[0]):
            word, value = targets[i] + k, words[k, i]
            racing |= (state[word] & tracked) != 0
            same &= memory[word] == value
            memory[word] = value
            state[word] |= written
        if racing:
            noted[many], starts[many] = i | (SAME if same else 0), 4 * targets[i]
            many += 1
    noted[noted.size - 1] = many


@kernel
def note_reads(
    noted: Int64s,
    starts: UInt64s,
    span: np.uint64,
    lanes: Int64s,
    report: Int64s,
    shadow: Shadow,
    site: Int,
    scope: Int,
) -> Int:
    """Enter the noted reads of a load in the shadow, and count races."""
    arrays, many = named(shadow), noted[noted.size - 1]
    for k in range(many):
        i = noted[k]
        if k + AHEAD < many:
            fetch(starts[k + AHEAD], arrays)
        note_read(starts[k], span, lanes[i], i, arrays, site, scope, report)
    return _total(report)


@kernel
def note_writes(
    noted: Int64s,
    starts: UInt64s,
    span: np.uint64,
    lanes: Int64s,
    report: Int64s,
    shadow: Shadow,
    site: Int,
    scope: Int,
    kind: Int,
) -> Int:
    """Enter the noted writes of a store in the shadow, and count races."""
    arrays, many = named(shadow), noted[noted.size - 1]
    for k in range(many):
        i = noted[k] & ~SAME
        if k + AHEAD < many:
            fetch(starts[k + AHEAD], arrays)
        note_write(starts[k], span, lanes[i], i, noted[k] & SAME != 0, arrays, site, scope, kind, report)
    return _total(report)


@kernel
def announce_store(
    state: Bytes,
    addresses: UInt64s,
    size: np.uint64,
    origins: UInt64s,
    span: np.uint64,
    lanes: Int64s,
    mask: Bools,
    report: Int64s,
    shadow: Shadow,
    site: Int,
    scope: Int,
) -> Int:
    """A write to shared memory may happen at any time from now on: count races with it; nothing is written."""
    arrays = named(shadow)
    masked = mask.size > 0
    for i in range(lanes.size):
        if masked and not mask[i]:
            continue
        start = addresses[i]
        if size < span or (start & (span - np.uint64(1))) or start > size - span:
            continue
        start += origins[lanes[i]]
        if state[start]:
            note_write(start, span, lanes[i], i, False, arrays, site, scope, STORE, report)
    return _total(report)


@kernel
def enter_loads(
    state: Bytes,
    addresses: UInt64s,
    window: np.uint64,
    size: np.uint64,
    origins: UInt64s,
    span: np.uint64,
    lanes: Int64s,
    mask: Bools,
    report: Int64s,
    shadow: Shadow,
    site: Int,
) -> Int:
    """Earlier loads count as reads from now on: count races with them; nothing is read."""
    arrays = named(shadow)
    own = origins.size > 0
    for i in range(lanes.size):
        start = addresses[i] - window
        if not mask[i] or size < span or (addresses[i] & (span - np.uint64(1))) or start > size - span:
            continue
        if own:
            start += origins[lanes[i]]
        if state[start] & _TRACKED:
            note_read(start, span, lanes[i], i, arrays, site, 0, report)
    return _total(report)


@kernel
def survey_spaces(addresses: UInt64s, offset: np.uint64, mask: Bools, codes: Bytes) -> tuple[int, int, int]:
    """The space of each generic address in `codes` (0 global, 1 local, 2 shared), and the number of lanes in each."""
    masked = mask.size > 0
    outside, local, shared = 0, 0, 0
    for i in range(addresses.size):
        if masked and not mask[i]:
            codes[i] = 3
            continue
        window = (addresses[i] + offset) >> np.uint64(44)
        if window == np.uint64(2):
            codes[i] = 1
            local += 1
        elif window == np.uint64(3):
            codes[i] = 2
            shared += 1
        else:
            codes[i] = 0
            outside += 1
    return outside, local, shared
