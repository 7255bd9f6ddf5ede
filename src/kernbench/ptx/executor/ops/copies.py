"""cp.async: the bytes are moved at once, and their words belong to nobody until the copies were waited for."""

import numpy as np

from kernbench.ptx.executor.ops.clocks import EVERY_BYTE, PENDING
from kernbench.ptx.executor.ops.flow import suspect
from kernbench.ptx.executor.ops.layout import (
    ADDRESSES,
    ALIVE,
    BLOCK,
    CONTENTS,
    COPIES,
    COPIES_AT,
    COPY,
    DIVERGED,
    GROUPS,
    GROUPS_AT,
    LAUNCH,
    NOW,
    NUMBER,
    OPERANDS,
    RACE,
    RECORD_BYTES,
    REGISTERS,
    ROOM,
    SHARED,
    SHARED_WRITES,
)
from kernbench.ptx.executor.ops.loads_stores import GLOBAL_BASE, addresses_of, global_array, shared_rows
from kernbench.ptx.executor.ops.shadow import READ, WRITE, is_written_alone, note_shared
from kernbench.ptx.executor.ops.views import Int, ints_at, lowest, numbers_at, words_at

# words that a warp may copy at once, and groups of copies
MOST_COPIES, MOST_GROUPS = 1 << 16, 64


def begin_copy(warp: Int, record: Int, mask: Int, size: Int, limited: Int, wide: Int) -> Int:
    """cp.async: the address in shared memory, that in global memory, the bytes to read (if limited), an offset.

    The immediate is the offset of the address in shared memory, the last operand that of the other one.
    """
    w = numbers_at(warp)
    reads = readers(warp, record, mask, size) if limited else mask
    if reads < 0:
        return suspect(warp, record, COPY)
    row = warp + 8 * ADDRESSES
    if reads:
        find_sources(warp, record, reads)
        if global_array(warp, record, row, reads, size, READ) == 0:
            return 0
    addresses_of(warp, record, 0, mask, wide)
    if shared_rows(warp, record, row, mask, size, WRITE) == 0:
        return 0
    if not is_written_alone(warp, row, mask, size) and not note_shared(warp, row, mask, size, WRITE, 0):
        return suspect(warp, record, RACE)
    if w[COPIES] + 32 * (size >> 2) > MOST_COPIES:
        return suspect(warp, record, ROOM)
    deliver(warp, record, mask, reads, size)
    return record + RECORD_BYTES


def readers(warp: Int, record: Int, mask: Int, size: Int) -> Int:
    """The lanes that read, as the others fill with zeros; -1 if one reads a part."""
    left = words_at(numbers_at(warp)[REGISTERS] + words_at(record + OPERANDS)[2])
    found, parts = mask, np.int64(0)
    for lane in range(32):
        if left[lane] == 0:
            found &= ~(1 << lane)
        elif left[lane] < size:
            parts |= mask & (1 << lane)
    return -1 if parts else found


def find_sources(warp: Int, record: Int, reads: Int) -> None:
    """The global address of each lane; lanes that do not read get that of the first that does."""
    origin = numbers_at(numbers_at(warp)[REGISTERS] + words_at(record + OPERANDS)[1])
    row, offset = numbers_at(warp + 8 * ADDRESSES), ints_at(record + OPERANDS)[3]
    first = origin[lowest(reads)] + offset
    for lane in range(32):
        row[lane] = origin[lane] + offset if reads >> lane & 1 else first


def deliver(warp: Int, record: Int, mask: Int, reads: Int, size: Int) -> None:
    """Move the words, which belong to nobody until they are waited for."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    sources = numbers_at(w[REGISTERS] + words_at(record + OPERANDS)[1])
    writes, base, listed = words_at(b[SHARED_WRITES]), b[SHARED], numbers_at(w[COPIES_AT])
    contents = numbers_at(b[LAUNCH])[CONTENTS] - GLOBAL_BASE + ints_at(record + OPERANDS)[3]
    stamp = (PENDING << 16) | EVERY_BYTE | (w[NUMBER] << 6)
    row = numbers_at(warp + 8 * ADDRESSES)
    for lane in range(32):
        if mask >> lane & 1:
            target, word = words_at(base + row[lane]), row[lane] >> 2
            for number in range(size >> 2):
                target[number] = words_at(contents + sources[lane])[number] if reads >> lane & 1 else np.uint32(0)
                writes[word + number] = stamp | lane
                listed[w[COPIES]] = word + number
                w[COPIES] += 1


def commit(warp: Int, record: Int, mask: Int) -> Int:
    """cp.async.commit_group: a group of all copies since the last one."""
    w = numbers_at(warp)
    if mask != w[ALIVE]:
        return suspect(warp, record, DIVERGED)
    if w[GROUPS] >= MOST_GROUPS:
        return suspect(warp, record, ROOM)
    numbers_at(w[GROUPS_AT])[w[GROUPS]] = w[COPIES]
    w[GROUPS] += 1
    return record + RECORD_BYTES


def wait(warp: Int, record: Int, mask: Int, keep: Int) -> Int:
    """cp.async.wait_group: all groups but the last `keep` are complete; all copies, if it is negative."""
    w = numbers_at(warp)
    if mask != w[ALIVE]:
        return suspect(warp, record, DIVERGED)
    groups = numbers_at(w[GROUPS_AT])
    done = w[GROUPS] - keep if keep >= 0 else w[GROUPS]
    end = w[COPIES] if keep < 0 else 0
    if done > 0 and keep >= 0:
        end = groups[done - 1]
    complete(warp, end)
    done = max(done, 0)
    for number in range(done, w[GROUPS]):
        groups[number - done] = groups[number] - end
    w[GROUPS] -= done
    return record + RECORD_BYTES


def complete(warp: Int, end: Int) -> None:
    """The words of the first copies are written by the lanes that began them, now."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    listed, writes = numbers_at(w[COPIES_AT]), words_at(b[SHARED_WRITES])
    now = w[NOW] << 16
    for number in range(end):
        word = listed[number]
        writes[word] = (writes[word] & 0xFFFF) | now
    for number in range(end, w[COPIES]):
        listed[number - end] = listed[number]
    w[COPIES] -= end
