"""Races: who touched each word last, as a stamp, and whether that happened before an access.

A stamp says when and by whom: in global memory the number of the block (upper half), and in both memories the
warp's time (16 bits), which bytes of the word (4), the warp (6) and the lane (6). Several warps or lanes are MANY. A
time of a warp goes on at each barrier, and when its lanes meet; what happened before the last barrier of the block is
ordered for all its warps, and what a warp did before it met is ordered for its lanes. What else is ordered vector
clocks say (`ops.clocks`), in programs that need them. A stamp that stands for several accesses is never earlier than
one of them, and names MANY if they differ: so a test may call ordered accesses a suspect, and never the reverse.

Global memory has stamps for rows of 128 bytes, for accesses of a warp that cover whole rows, and for words.
"""

import numpy as np

from kernbench.ptx.executor.ops.clocks import EVERY_BYTE, IDS, MANY, PENDING, is_id_known, known_to, united
from kernbench.ptx.executor.ops.layout import (
    BLOCK,
    CLOCKED,
    CONTENTS,
    DIRTY,
    EPOCH,
    FIRST_ROW,
    FIRST_SERIAL,
    FLOOR,
    KNOWN_FLOOR,
    LAUNCH,
    LOG,
    LOGGED,
    MET,
    NOW,
    NUMBER,
    ROW_READS,
    ROW_SAVED,
    ROW_WORDS,
    ROW_WRITES,
    SERIAL,
    SHARED_READS,
    SHARED_WRITES,
    STATES,
    THREADS,
    WARPS,
    WORD_READS,
    WORD_UPDATES,
    WORD_WRITES,
)
from kernbench.ptx.executor.ops.views import Flag, Int, bytes_at, halves_at, longs_at, look, numbers_at, swap, words_at

# what an access knows: its block, its vector clock (0 without), the times before which it and the whole block know all
# accesses, and when its warp last met
Moment = tuple[Int, Int, Int, Int, Int]
# kinds of accesses; those of rows of matrices are made by other lanes than give the addresses
READ, WRITE, SPREAD, UPDATE, SPREAD_WRITE = range(5)
# instead of a lane: any that update a word of shared memory
UPDATED = 62
# bytes and words of a row; words of an entry of the log: the row's offset, its bytes and their states
ROW_BYTES, ROW_WORDS_COUNT, ENTRY_WORDS = 128, 32, 33
GLOBAL_BASE = 0x1000_0000_0000
# a row that a thread is saving
BUSY = -1
# the code of a lane for whole rows, by the logarithm of the bytes of each lane
_EVEN = 32


def is_ordered(stamp: Int, mine: Int, first: Int, floor: Int, met: Int) -> Flag:
    """Whether the access of a stamp happened before mine."""
    if stamp < first << 32:
        return True
    if stamp >> 32 != mine >> 32:
        return False
    time = stamp >> 16 & 0xFFFF
    if time < floor:
        return True
    if stamp >> 6 & 63 != mine >> 6 & 63:
        return False
    return time < met or (stamp & 63 == mine & 63 and stamp & 63 != MANY)


def is_clear(stamp: Int, mine: Int, first: Int, floor: Int, met: Int) -> Flag:
    """Whether the access of a stamp is ordered, or to other bytes."""
    return stamp & mine & EVERY_BYTE == 0 or is_ordered(stamp, mine, first, floor, met)


def joined(stamp: Int, mine: Int, first: Int, floor: Int, met: Int) -> Int:
    """A stamp for an earlier access and mine."""
    if stamp < first << 32:
        return mine
    both = mine | (stamp & EVERY_BYTE)
    if stamp >> 32 != mine >> 32:
        # of several blocks: never ordered in this launch
        return (first << 32) | 0xFFFF0000 | (both & EVERY_BYTE) | (MANY << 6) | MANY
    time = stamp >> 16 & 0xFFFF
    if time < floor:
        return both
    if time == PENDING:
        # nothing in this launch is ordered after it
        return stamp | mine & EVERY_BYTE
    if stamp >> 6 & 63 != mine >> 6 & 63:
        return both | (MANY << 6) | MANY
    return both if time < met or stamp & 63 == mine & 63 else both | MANY


def note_global(warp: Int, entry: Int, row: Int, mask: Int, nbytes: Int, kind: Int, same: Int) -> Flag:
    """Enter an access of lanes to global memory; False if something unordered touched one of its words.

    Lanes of `same` write what is there already, which is no race with another thread's write.
    """
    w, e, given = numbers_at(warp), numbers_at(entry), numbers_at(row)
    b = numbers_at(w[BLOCK])
    first, threads = numbers_at(b[LAUNCH])[FIRST_SERIAL], numbers_at(b[LAUNCH])[THREADS]
    floor, met = b[FLOOR], w[MET]
    moment = first, floor, met, threads
    base = (b[SERIAL] << 32) | (w[NOW] << 16) | (w[NUMBER] << 6)
    if mask == 0xFFFFFFFF and nbytes >= 4 and kind != UPDATE and given[0] & (ROW_BYTES - 1) == 0 and steps(row, nbytes):
        lanes = _EVEN + nbytes
        at = (given[0] >> 7) - e[FIRST_ROW]
        return note_rows(entry, at, nbytes >> 2, base | EVERY_BYTE | lanes, first, floor, met, kind, threads)
    good: Flag = True
    for lane in range(32):
        if mask >> lane & 1:
            address = given[lane]
            at = (address >> 7) - e[FIRST_ROW]
            mine = base | lane
            if nbytes >= 4:
                mine |= EVERY_BYTE
            else:
                mine |= ((1 << nbytes) - 1) << (12 + (address & 3))
            alike = np.int64(kind == WRITE) & (same >> lane)
            good = good and note_words(entry, at, (address >> 2) & 31, nbytes, mine, moment, kind, alike)
    return good


def steps(row: Int, nbytes: Int) -> Flag:
    """Whether 32 addresses follow each other without gaps."""
    given = numbers_at(row)
    different = np.int64(0)
    for lane in range(32):
        different |= given[lane] - (given[0] + lane * nbytes)
    return different == 0


def enter_stamp(at: Int, mine: Int, first: Int, floor: Int, met: Int, threads: Int, plainly: bool) -> Int:
    """Enter an access in the stamp at an address, which several threads may do; returns what was there.

    A stamp of an access that must be ordered before it (not `plainly`) and is not stays. Of two threads that enter
    accesses in two stamps, and then look at the other's, one sees the other's access.
    """
    word = numbers_at(at)
    old = word[0]
    while threads > 1:
        if not plainly and not is_clear(old, mine, first, floor, met):
            return old
        seen = swap(at, old, joined(old, mine, first, floor, met))
        if seen == old:
            return old
        old = seen
    if plainly or is_clear(old, mine, first, floor, met):
        word[0] = joined(old, mine, first, floor, met)
    return old


def note_rows(
    entry: Int, at: Int, count: Int, mine: Int, first: Int, floor: Int, met: Int, kind: Int, threads: Int
) -> Flag:
    """Enter an access of a warp that covers whole rows."""
    e = numbers_at(entry)
    own, other = e[ROW_READS], e[ROW_WRITES]
    if kind == WRITE:
        own, other = e[ROW_WRITES], e[ROW_READS]
    for number in range(at, at + count):
        old = enter_stamp(own + 8 * number, mine, first, floor, met, threads, kind != WRITE)
        if kind == WRITE and not is_ordered(old, mine, first, floor, met):
            return False
        if not is_ordered(look(other + 8 * number), mine, first, floor, met):
            return False
        if not is_ordered(look(e[ROW_WORDS] + 8 * number), mine, first, floor, met):
            return False
    return True


def note_words(
    entry: Int,
    at: Int,
    inside: Int,
    nbytes: Int,
    mine: Int,
    moment: tuple[Int, Int, Int, Int],
    kind: Int,
    alike: Int,
) -> Flag:
    """Enter a lane's access to some words of a row; writes of what is there already are `alike`.

    `moment` has the first serial number of the launch, the times before which all accesses are ordered, for the block
    and for the warp, and how many threads there are.
    """
    e = numbers_at(entry)
    first, floor, met, threads = moment
    enter_stamp(e[ROW_WORDS] + 8 * at, mine, first, floor, met, threads, True)
    if not is_ordered(look(e[ROW_WRITES] + 8 * at), mine, first, floor, met):
        return False
    if kind != READ and not is_ordered(look(e[ROW_READS] + 8 * at), mine, first, floor, met):
        return False
    own = e[WORD_READS] if kind == READ else e[WORD_WRITES]
    if kind == UPDATE:
        own = e[WORD_UPDATES]
    begin = ROW_WORDS_COUNT * at + inside
    for word in range(begin, begin + max(1, nbytes >> 2)):
        old = enter_stamp(own + 8 * word, mine, first, floor, met, threads, kind != WRITE or alike & 1 == 1)
        written = old if kind == WRITE else look(e[WORD_WRITES] + 8 * word)
        if not is_clear(written, mine, first, floor, met) and not alike & 1:
            return False
        if kind != READ and not is_clear(look(e[WORD_READS] + 8 * word), mine, first, floor, met):
            return False
        if kind != UPDATE and not is_clear(look(e[WORD_UPDATES] + 8 * word), mine, first, floor, met):
            return False
    return True


def save_rows(launch: Int, entry: Int, row: Int, mask: Int, nbytes: Int) -> None:
    """Keep what rows contain before the launch writes them for the first time, and mark them as written."""
    given = numbers_at(row)
    for lane in range(32):
        if mask >> lane & 1:
            save_range(launch, entry, given[lane], nbytes)


def save_range(launch: Int, entry: Int, low: Int, nbytes: Int) -> None:
    """The same for a range of addresses."""
    words, e = numbers_at(launch), numbers_at(entry)
    saved, epoch, dirty = numbers_at(e[ROW_SAVED]), words[EPOCH], bytes_at(words[DIRTY])
    for part in range(low >> 7, ((low + nbytes - 1) >> 7) + 1):
        at = part - e[FIRST_ROW]
        if saved[at] != epoch and (words[THREADS] == 1 or is_mine_to_save(e[ROW_SAVED] + 8 * at, epoch)):
            offset = (part << 7) - GLOBAL_BASE
            dirty[offset >> 8] = 1
            keep_row(launch, offset)
            if words[THREADS] > 1:
                swap(e[ROW_SAVED] + 8 * at, BUSY, epoch)
            saved[at] = epoch


def is_mine_to_save(at: Int, epoch: Int) -> Flag:
    """Whether this thread saves a row; else it waits until another one has."""
    seen = look(at)
    while seen != epoch:
        if seen != BUSY:
            before = swap(at, seen, BUSY)
            if before == seen:
                return True
        seen = look(at)
    return False


def keep_row(launch: Int, offset: Int) -> None:
    """Append a row to the log."""
    words = numbers_at(launch)
    out = longs_at(words[LOG] + 8 * ENTRY_WORDS * words[LOGGED])
    words[LOGGED] += 1
    contents, states = longs_at(words[CONTENTS] + offset), longs_at(words[STATES] + offset)
    out[0] = offset
    for number in range(16):
        out[1 + number] = contents[number]
        out[17 + number] = states[number]


def latest_of(stamps: Int, row: Int, mask: Int, count: Int) -> Int:
    """The greatest stamp of the words that lanes access."""
    given = numbers_at(row)
    found = np.uint32(0)
    if mask == 0xFFFFFFFF and steps(row, 4 * count):
        run = words_at(stamps + (given[0] & ~3))
        for number in range(32 * count):
            found = max(found, run[number])
        return np.int64(found)
    held = words_at(stamps)
    for lane in range(32):
        if mask >> lane & 1:
            for number in range(count):
                found = max(found, held[(given[lane] >> 2) + number])
    return np.int64(found)


def moment_of(warp: Int, mask: Int) -> Moment:
    """What lanes of a warp know now."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    known = known_to(warp, mask) if b[CLOCKED] else np.int64(0)
    return w[BLOCK], known, w[KNOWN_FLOOR], b[FLOOR], w[MET]


def is_written_alone(warp: Int, row: Int, mask: Int, nbytes: Int) -> Flag:
    """Enter a write of words whose accesses are all ordered before, each by one lane; False if it is not so."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    count, limit = nbytes >> 2, w[KNOWN_FLOOR] << 16
    if count == 0:
        return False
    mine = w[NOW] << 16 | w[NUMBER] << 6 | EVERY_BYTE
    if latest_of(b[SHARED_WRITES], row, mask, count) >= limit and not are_ordered(
        warp, b[SHARED_WRITES], row, mask, count
    ):
        return False
    if latest_of(b[SHARED_READS], row, mask, count) >= limit:
        if not are_ordered(warp, b[SHARED_READS], row, mask, count):
            return False
        stamp_words(b[SHARED_READS], row, mask, count, 0, 0)
    stamp_words(b[SHARED_WRITES], row, mask, count, mine, 1)
    if are_apart(b[SHARED_WRITES], row, mask, count):
        return True
    # several lanes write one word: what they write decides. What was there before is ordered
    stamp_words(b[SHARED_WRITES], row, mask, count, 0, 0)
    return False


def are_ordered(warp: Int, stamps: Int, row: Int, mask: Int, count: Int) -> Flag:
    """Whether vector clocks order the accesses to all words of lanes before theirs."""
    w = numbers_at(warp)
    if numbers_at(w[BLOCK])[CLOCKED] == 0:
        return False
    moment, held, given = moment_of(warp, mask), words_at(stamps), numbers_at(row)
    last: Int = np.int64(-1)
    # of the own warp's lanes what they did before they met
    mine = w[NUMBER] << 6 | MANY
    for lane in range(32):
        if mask >> lane & 1:
            for number in range(count):
                stamp = np.int64(held[(given[lane] >> 2) + number])
                if stamp >> 6 != last:
                    if not is_before(stamp, mine, moment):
                        return False
                    last = stamp >> 6
    return True


def is_read_plainly(warp: Int, row: Int, mask: Int, nbytes: Int, kind: Int) -> Flag:
    """Enter a read of words whose writes are all ordered before; False if it is not so.

    Where others have read them since the last barrier, all are MANY, if there are no vector clocks; in a block of one
    warp, which may order its lanes by itself, that would be too coarse.
    """
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    count, limit = nbytes >> 2, w[KNOWN_FLOOR] << 16
    if count == 0:
        return False
    if latest_of(b[SHARED_WRITES], row, mask, count) >= limit and not are_ordered(
        warp, b[SHARED_WRITES], row, mask, count
    ):
        return False
    mine = (w[NOW] << 16) | EVERY_BYTE
    if latest_of(b[SHARED_READS], row, mask, count) >= limit:
        if b[CLOCKED] == 0 and b[WARPS] > 1:
            stamp_words(b[SHARED_READS], row, mask, count, mine | (MANY << 6) | MANY, 0)
            return True
        if not are_ordered(warp, b[SHARED_READS], row, mask, count):
            return False
    mine |= w[NUMBER] << 6
    if kind == SPREAD:
        stamp_words(b[SHARED_READS], row, mask, count, mine | MANY, 0)
        return True
    stamp_words(b[SHARED_READS], row, mask, count, mine, 1)
    if not are_apart(b[SHARED_READS], row, mask, count):
        stamp_words(b[SHARED_READS], row, mask, count, mine | MANY, 0)
    return True


def stamp_words(stamps: Int, row: Int, mask: Int, count: Int, stamp: Int, lanes: Int) -> None:
    """Give the words that lanes access a stamp, with the lane in it where it is asked for."""
    given = numbers_at(row)
    if mask == 0xFFFFFFFF and steps(row, 4 * count):
        run = words_at(stamps + (given[0] & ~3))
        for lane in range(32):
            for number in range(count):
                run[lane * count + number] = stamp | lane * lanes
        return
    held = words_at(stamps)
    for lane in range(32):
        if mask >> lane & 1:
            for number in range(count):
                held[(given[lane] >> 2) + number] = stamp | lane * lanes


def are_apart(stamps: Int, row: Int, mask: Int, count: Int) -> Flag:
    """Whether each word has the stamp of the lane that accessed it: no other one did afterwards."""
    held, given = words_at(stamps), numbers_at(row)
    if mask == 0xFFFFFFFF and steps(row, 4 * count):
        return True
    shared: Int = 0
    for lane in range(32):
        if mask >> lane & 1:
            for number in range(count):
                shared |= (np.int64(held[(given[lane] >> 2) + number]) ^ lane) & 63
    return shared == 0


def note_shared(warp: Int, row: Int, mask: Int, nbytes: Int, kind: Int, same: Int) -> Flag:
    """Enter an access of lanes to shared memory; False if something unordered touched one of its words.

    Lanes of `same` write what is there already, which is no race with another thread's write.
    """
    w, given = numbers_at(warp), numbers_at(row)
    b = numbers_at(w[BLOCK])
    writes, reads = words_at(b[SHARED_WRITES]), words_at(b[SHARED_READS])
    moment = moment_of(warp, mask)
    base = (w[NOW] << 16) | (w[NUMBER] << 6)
    count = max(1, nbytes >> 2)
    for lane in range(32):
        if mask >> lane & 1:
            word = given[lane] >> 2
            mine = base | EVERY_BYTE | who_of(kind, lane)
            if nbytes < 4:
                mine = base | who_of(kind, lane) | ((1 << nbytes) - 1) << (12 + (given[lane] & 3))
            for number in range(count):
                written, read = np.int64(writes[word + number]), np.int64(reads[word + number])
                if not may_follow_write(written, mine, moment, kind, same >> lane & 1):
                    return False
                if kind in (WRITE, UPDATE, SPREAD_WRITE):
                    if read & mine & EVERY_BYTE and not is_before(read, mine, moment):
                        return False
                    writes[word + number] = with_mine(written, mine, moment)
                else:
                    reads[word + number] = with_mine(read, mine, moment)
    return True


def who_of(kind: Int, lane: Int) -> Int:
    """The lane in a stamp: rows of matrices are accessed by others, and updates are in no order."""
    if kind in (SPREAD, SPREAD_WRITE):
        return MANY
    return UPDATED if kind == UPDATE else lane


def may_follow_write(written: Int, mine: Int, moment: Moment, kind: Int, alike: Int) -> Flag:
    """Whether an access is no race with an earlier write, of which there is the stamp."""
    time = written >> 16
    if kind == UPDATE and time >= moment[2] and written & 63 != UPDATED:
        # later updates would not see that write any more
        return False
    if written & mine & EVERY_BYTE == 0 or is_before(written, mine, moment):
        return True
    if time >= IDS:
        return False
    if kind == UPDATE:
        return written & 63 == UPDATED
    return kind == WRITE and alike == 1 and written & 63 != UPDATED


def is_before(stamp: Int, mine: Int, moment: Moment) -> Flag:
    """Whether an access to shared memory happened before mine."""
    block, known, floor, _, met = moment
    time, who = stamp >> 16, stamp >> 6 & 63
    if time < floor:
        return True
    if time >= IDS:
        return known != 0 and time != PENDING and is_id_known(block, time, known, mine >> 6 & 63, met)
    if who != mine >> 6 & 63:
        return known != 0 and who < 32 and time < np.int64(halves_at(known)[who])
    return time < met or (stamp & 63 == mine & 63 and stamp & 63 < UPDATED)


def with_mine(stamp: Int, mine: Int, moment: Moment) -> Int:
    """A stamp for an earlier access to shared memory and mine."""
    _, known, _, ground, met = moment
    time, both = stamp >> 16, mine | (stamp & EVERY_BYTE)
    if time < ground:
        # before the last barrier, and so ordered for the whole block
        return mine
    if time == PENDING:
        return stamp | both
    if known != 0:
        return joined_by_clock(stamp, mine, moment)
    if stamp >> 6 & 63 != mine >> 6 & 63:
        return of_updates(stamp, mine) if are_updates(stamp, mine) else both | (MANY << 6) | MANY
    return both if time < met or stamp & 63 == mine & 63 else both | MANY


def are_updates(stamp: Int, mine: Int) -> Flag:
    """Whether two accesses to shared memory are updates, which are no race with each other."""
    return stamp & 63 == UPDATED and mine & 63 == UPDATED and stamp >> 16 < IDS


def of_updates(stamp: Int, mine: Int) -> Int:
    """A stamp for updates by several warps."""
    return max(stamp >> 16, mine >> 16) << 16 | (stamp | mine) & EVERY_BYTE | MANY << 6 | UPDATED


def joined_by_clock(stamp: Int, mine: Int, moment: Moment) -> Int:
    """The same where vector clocks say what is ordered."""
    both = mine | (stamp & EVERY_BYTE)
    if is_before(stamp, mine, moment):
        return both
    if are_updates(stamp, mine):
        return of_updates(stamp, mine)
    if stamp >> 16 >= IDS or stamp >> 6 & 63 != mine >> 6 & 63:
        return united(moment[0], stamp, mine)
    return both | MANY
