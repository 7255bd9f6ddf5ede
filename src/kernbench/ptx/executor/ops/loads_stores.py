"""Loads and stores of global and shared memory, with their checks.

The common case is tested for all lanes together: one array holds all addresses, all of it is written, and no access of
this block since its last barrier touched the words. Everything else is looked at lane by lane, or is a suspect.
"""

import numpy as np

from kernbench.ptx.executor.ops.flow import suspect
from kernbench.ptx.executor.ops.layout import (
    ACCESS_WORDS,
    ACCESSES,
    ADDRESSES,
    ARRAY_COUNT,
    ARRAY_WORDS,
    ARRAYS,
    BLOCK,
    BOUNDS,
    CONTENTS,
    DEFINED,
    FLAGS,
    HIGH,
    IMMEDIATE,
    IS_MEANT,
    LAST_ARRAY,
    LAUNCH,
    LOW,
    MEANT,
    MEANT_HIGH,
    MEANT_LOW,
    MISALIGNED,
    NO_SUSPECT,
    NONCOHERENT,
    OPERANDS,
    RACE,
    READERS_AT,
    READING,
    RECORD_BYTES,
    REGISTERS,
    SHARED,
    SHARED_HIGH,
    SHARED_LOW,
    SHARED_STATES,
    SITE,
    SPACE,
    STATES,
    TRACKED,
    UNWRITTEN,
)
from kernbench.ptx.executor.ops.shadow import (
    READ,
    SPREAD,
    SPREAD_WRITE,
    UPDATE,
    WRITE,
    is_read_plainly,
    is_written_alone,
    note_global,
    note_shared,
    save_rows,
)
from kernbench.ptx.executor.ops.views import (
    Flag,
    Int,
    bytes_at,
    halves_at,
    ints_at,
    longs_at,
    lowest,
    numbers_at,
    words_at,
)

# states of a byte: written, and watched for races (`emulator.memory.arena`)
WRITTEN, STATE_BITS = 3, 0x7F
GLOBAL_BASE = 0x1000_0000_0000


def addresses_of(warp: Int, record: Int, operand: Int, mask: Int, wide: Int) -> Int:
    """The address of each lane, in a row of 64 bits; lanes that do not take part get that of the first that does."""
    w = numbers_at(warp)
    row = w[REGISTERS] + words_at(record + OPERANDS)[operand]
    offset = numbers_at(record + IMMEDIATE)[0]
    out = numbers_at(warp + 8 * ADDRESSES)
    if wide:
        given = numbers_at(row)
        for lane in range(32):
            out[lane] = given[lane] + offset
    else:
        narrow = ints_at(row)
        for lane in range(32):
            out[lane] = np.int64(narrow[lane]) + offset
    if mask != 0xFFFFFFFF:
        first = out[lowest(mask)]
        for lane in range(32):
            out[lane] = out[lane] if mask >> lane & 1 else first
    return warp + 8 * ADDRESSES


def least(row: Int) -> Int:
    """The least of 32 numbers."""
    given = numbers_at(row)
    found = given[0]
    for lane in range(32):
        found = min(found, given[lane])
    return found


def most(row: Int) -> Int:
    """The greatest of 32 numbers."""
    given = numbers_at(row)
    found = given[0]
    for lane in range(32):
        found = max(found, given[lane])
    return found


def is_odd(row: Int, nbytes: Int) -> Flag:
    """Whether one of 32 addresses is no multiple of a power of two."""
    given = numbers_at(row)
    found = given[0]
    for lane in range(32):
        found |= given[lane]
    return (found & (nbytes - 1)) != 0


def steps_evenly(row: Int, nbytes: Int) -> Flag:
    """Whether 32 addresses follow each other without gaps."""
    given = numbers_at(row)
    first = given[0]
    different = np.int64(0)
    for lane in range(32):
        different |= given[lane] - (first + lane * nbytes)
    return different == 0


def array_of(launch: Int, access: Int, low: Int, high: Int) -> Int:
    """The entry of the array that holds the addresses from low to high, 0 if none does."""
    a = numbers_at(access)
    if a[IS_MEANT] & MEANT and (low < a[MEANT_LOW] or high > a[MEANT_HIGH]):
        return 0
    last = a[LAST_ARRAY]
    if last:
        found = numbers_at(last)
        if low >= found[LOW] and high <= found[HIGH]:
            return last
    words = numbers_at(launch)
    entry = words[ARRAYS]
    for _ in range(words[ARRAY_COUNT]):
        found = numbers_at(entry)
        if low >= found[LOW] and high <= found[HIGH]:
            a[LAST_ARRAY] = entry
            return entry
        entry += 8 * ARRAY_WORDS
    return 0


def are_written(states: Int, row: Int, mask: Int, nbytes: Int) -> Flag:
    """Whether all bytes at the lanes' offsets from `states` on are written."""
    given = numbers_at(row)
    bad = np.uint32(0)
    if mask == 0xFFFFFFFF and nbytes >= 4 and steps_evenly(row, nbytes):
        run = words_at(states + given[0])
        for number in range(8 * nbytes):
            bad |= (run[number] & np.uint32(0x7F7F7F7F)) ^ np.uint32(0x03030303)
        return bad == 0
    for lane in range(32):
        if mask >> lane & 1:
            if nbytes >= 4:
                words = words_at(states + given[lane])
                for number in range(nbytes >> 2):
                    bad |= (words[number] & np.uint32(0x7F7F7F7F)) ^ np.uint32(0x03030303)
            else:
                at = bytes_at(states + given[lane])
                for number in range(nbytes):
                    bad |= np.uint32((at[number] & np.uint8(STATE_BITS)) ^ np.uint8(WRITTEN))
    return bad == 0


def mark_written(states: Int, row: Int, mask: Int, nbytes: Int) -> None:
    """The bytes at the lanes' offsets are written from now on."""
    given = numbers_at(row)
    if mask == 0xFFFFFFFF and nbytes >= 4 and steps_evenly(row, nbytes):
        run = words_at(states + given[0])
        for number in range(8 * nbytes):
            run[number] = (run[number] & np.uint32(0x80808080)) | np.uint32(0x03030303)
        return
    for lane in range(32):
        if mask >> lane & 1:
            if nbytes >= 4:
                words = words_at(states + given[lane])
                for number in range(nbytes >> 2):
                    words[number] = (words[number] & np.uint32(0x80808080)) | np.uint32(0x03030303)
            else:
                at = bytes_at(states + given[lane])
                for number in range(nbytes):
                    at[number] = (at[number] & np.uint8(0x80)) | np.uint8(WRITTEN)


def global_array(warp: Int, record: Int, row: Int, mask: Int, nbytes: Int, kind: Int) -> Int:
    """The array of a global access that has no fault; 0 after a suspect."""
    launch = numbers_at(numbers_at(warp)[BLOCK])[LAUNCH]
    access = numbers_at(launch)[ACCESSES] + 8 * ACCESS_WORDS * numbers_at(record + SITE)[0]
    if is_odd(row, nbytes):
        return suspect(warp, record, MISALIGNED)
    entry = array_of(launch, access, least(row), most(row) + nbytes)
    if entry == 0:
        return suspect(warp, record, BOUNDS)
    states = numbers_at(launch)[STATES] - GLOBAL_BASE
    why = global_fault(entry, access, states, row, mask, nbytes, kind)
    flags = numbers_at(entry)[FLAGS]
    if why == NO_SUSPECT and kind != READ:
        save_rows(launch, entry, row, mask, nbytes)
        if not flags & DEFINED:
            mark_written(states, row, mask, nbytes)
    if why == NO_SUSPECT and kind != WRITE and flags & TRACKED:
        why = np.int64(NO_SUSPECT) if note_global(warp, entry, row, mask, nbytes, kind, 0) else np.int64(RACE)
    if why != NO_SUSPECT:
        return suspect(warp, record, why)
    return entry


def global_fault(entry: Int, access: Int, states: Int, row: Int, mask: Int, nbytes: Int, kind: Int) -> Int:
    """What is suspect of an access inside an array, races aside."""
    flags = numbers_at(entry)[FLAGS]
    if kind != WRITE and not flags & DEFINED and not are_written(states, row, mask, nbytes):
        return np.int64(UNWRITTEN)
    stale = flags & TRACKED and numbers_at(access)[IS_MEANT] & NONCOHERENT
    return np.int64(SPACE) if stale or (kind != READ and not flags & TRACKED) else np.int64(NO_SUSPECT)


def load_global(warp: Int, record: Int, mask: Int, size: Int, bank: Int, count: Int, wide: Int) -> Int:
    """ld of `count` elements of `size` bytes into registers of `bank` bytes; the last operand is the address."""
    row = addresses_of(warp, record, count, mask, wide)
    if global_array(warp, record, row, mask, size * count, READ) == 0:
        return 0
    base = numbers_at(numbers_at(numbers_at(warp)[BLOCK])[LAUNCH])[CONTENTS] - GLOBAL_BASE
    move_in(warp, record, row, mask, base, size, bank, count)
    return record + RECORD_BYTES


def move_in(warp: Int, record: Int, row: Int, mask: Int, base: Int, size: Int, bank: Int, count: Int) -> None:
    """Elements from memory at the lanes' addresses, relative to a base, to registers."""
    given = numbers_at(row)
    registers, operands = numbers_at(warp)[REGISTERS], words_at(record + OPERANDS)
    for number in range(count):
        target = registers + operands[number]
        if size == 4 and bank == 4:
            out4 = words_at(target)
            if mask == 0xFFFFFFFF:
                for lane in range(32):
                    out4[lane] = words_at(base + given[lane])[number]
            else:
                for lane in range(32):
                    if mask >> lane & 1:
                        out4[lane] = words_at(base + given[lane])[number]
        else:
            for lane in range(32):
                if mask >> lane & 1:
                    save(target, lane, bank, element(base + given[lane], number, size))


def element(at: Int, number: Int, size: Int) -> Int:
    """An element of some bytes."""
    if size == 1:
        return np.uint64(bytes_at(at)[number])
    if size == 2:
        return np.uint64(halves_at(at)[number])
    if size == 4:
        return np.uint64(words_at(at)[number])
    return longs_at(at)[number]


def save(at: Int, number: Int, size: Int, value: Int) -> None:
    """Store an element of some bytes."""
    if size == 1:
        bytes_at(at)[number] = value
    elif size == 2:
        halves_at(at)[number] = value
    elif size == 4:
        words_at(at)[number] = value
    else:
        longs_at(at)[number] = value


def store_global(warp: Int, record: Int, mask: Int, size: Int, bank: Int, count: Int, wide: Int) -> Int:
    """st of `count` elements of `size` bytes from registers of `bank` bytes; the last operand is the address."""
    row = addresses_of(warp, record, count, mask, wide)
    entry = global_array(warp, record, row, mask, size * count, WRITE)
    if entry == 0:
        return 0
    base = numbers_at(numbers_at(numbers_at(warp)[BLOCK])[LAUNCH])[CONTENTS] - GLOBAL_BASE
    if note_global(warp, entry, row, mask, size * count, WRITE, 0):
        put(warp, record, row, mask, base, size, bank, count)
        return record + RECORD_BYTES
    # perhaps they write what is there already
    same = move_out(warp, record, row, mask, base, size, bank, count)
    if not note_global(warp, entry, row, mask, size * count, WRITE, same):
        return suspect(warp, record, RACE)
    return record + RECORD_BYTES


def put(warp: Int, record: Int, row: Int, mask: Int, base: Int, size: Int, bank: Int, count: Int) -> None:
    """Elements from registers to memory at the lanes' addresses, each of which is one lane's alone."""
    given = numbers_at(row)
    registers, operands = numbers_at(warp)[REGISTERS], words_at(record + OPERANDS)
    even = mask == 0xFFFFFFFF and steps_evenly(row, size * count)
    for number in range(count):
        source = registers + operands[number]
        if size == 4 and even:
            target, words = words_at(base + given[0]), words_at(source)
            for lane in range(32):
                target[lane * count + number] = words[lane]
        elif size == 4:
            words = words_at(source)
            for lane in range(32):
                if mask >> lane & 1:
                    words_at(base + given[lane])[number] = words[lane]
        else:
            for lane in range(32):
                if mask >> lane & 1:
                    save(base + given[lane], number, size, element(source, lane, bank))


def move_out(warp: Int, record: Int, row: Int, mask: Int, base: Int, size: Int, bank: Int, count: Int) -> Int:
    """Elements from registers to memory at the lanes' addresses, relative to a base, lane after lane.

    Returns the lanes that stored what was there already.
    """
    given = numbers_at(row)
    registers, operands = numbers_at(warp)[REGISTERS], words_at(record + OPERANDS)
    same: Int = 0
    for lane in range(32):
        if mask >> lane & 1:
            different: Int = np.uint64(0)
            for number in range(count):
                value = element(registers + operands[number], lane, bank)
                different |= element(base + given[lane], number, size) ^ value
                save(base + given[lane], number, size, value)
            same |= np.int64(different == np.uint64(0)) << lane
    return same


def shared_rows(warp: Int, record: Int, row: Int, mask: Int, nbytes: Int, kind: Int) -> Int:
    """Whether a shared access has no fault, races of writes aside; else it is a suspect."""
    b = numbers_at(numbers_at(warp)[BLOCK])
    access = numbers_at(b[LAUNCH])[ACCESSES] + 8 * ACCESS_WORDS * numbers_at(record + SITE)[0]
    why = shared_fault(access, b[SHARED_STATES], row, mask, nbytes, kind)
    if why == NO_SUSPECT and kind != READ and kind != SPREAD and b[READING]:
        why = np.int64(RACE) if are_being_read(b[READERS_AT], row, mask, nbytes) else np.int64(NO_SUSPECT)
    if why == NO_SUSPECT and kind == WRITE:
        mark_written(b[SHARED_STATES], row, mask, nbytes)
    elif why == NO_SUSPECT and (kind == UPDATE or not is_read_plainly(warp, row, mask, nbytes, kind)):
        why = np.int64(NO_SUSPECT) if note_shared(warp, row, mask, nbytes, kind, 0) else np.int64(RACE)
    if why != NO_SUSPECT:
        return suspect(warp, record, why)
    return 1


def are_being_read(readers: Int, row: Int, mask: Int, nbytes: Int) -> Flag:
    """Whether an operation of a warpgroup in flight reads one of the pieces at the lanes' offsets."""
    given, counts = numbers_at(row), bytes_at(readers)
    found = np.uint8(0)
    for lane in range(32):
        if mask >> lane & 1:
            found |= counts[given[lane] >> 4] | counts[given[lane] + nbytes - 1 >> 4]
    return found != np.uint8(0)


def shared_fault(access: Int, states: Int, row: Int, mask: Int, nbytes: Int, kind: Int) -> Int:
    """What is suspect of a shared access, races aside."""
    a = numbers_at(access)
    if is_odd(row, nbytes):
        return np.int64(MISALIGNED)
    if least(row) < a[SHARED_LOW] or most(row) + nbytes > a[SHARED_HIGH]:
        return np.int64(BOUNDS)
    if kind == WRITE:
        return np.int64(NO_SUSPECT) if are_known(states, row, mask, nbytes) else np.int64(BOUNDS)
    return np.int64(NO_SUSPECT) if are_written(states, row, mask, nbytes) else np.int64(UNWRITTEN)


def are_known(states: Int, row: Int, mask: Int, nbytes: Int) -> Flag:
    """Whether all bytes at the lanes' offsets belong to a variable."""
    given = numbers_at(row)
    known = np.uint32(0x01010101)
    if mask == 0xFFFFFFFF and nbytes >= 4 and steps_evenly(row, nbytes):
        run = words_at(states + given[0])
        for number in range(8 * nbytes):
            known &= run[number]
        return known == np.uint32(0x01010101)
    for lane in range(32):
        if mask >> lane & 1:
            if nbytes >= 4:
                words = words_at(states + given[lane])
                for number in range(nbytes >> 2):
                    known &= words[number]
            else:
                at = bytes_at(states + given[lane])
                for number in range(nbytes):
                    known &= np.uint32(at[number]) | np.uint32(0x01010100)
    return known == np.uint32(0x01010101)


def load_shared(warp: Int, record: Int, mask: Int, size: Int, bank: Int, count: Int, wide: Int) -> Int:
    """ld.shared."""
    row = addresses_of(warp, record, count, mask, wide)
    if shared_rows(warp, record, row, mask, size * count, READ) == 0:
        return 0
    base = numbers_at(numbers_at(warp)[BLOCK])[SHARED]
    move_in(warp, record, row, mask, base, size, bank, count)
    return record + RECORD_BYTES


def store_shared(warp: Int, record: Int, mask: Int, size: Int, bank: Int, count: Int, wide: Int) -> Int:
    """st.shared."""
    row = addresses_of(warp, record, count, mask, wide)
    if shared_rows(warp, record, row, mask, size * count, WRITE) == 0:
        return 0
    base = numbers_at(numbers_at(warp)[BLOCK])[SHARED]
    if is_written_alone(warp, row, mask, size * count):
        put(warp, record, row, mask, base, size, bank, count)
        return record + RECORD_BYTES
    same = move_out(warp, record, row, mask, base, size, bank, count)
    if not note_shared(warp, row, mask, size * count, WRITE, same):
        return suspect(warp, record, RACE)
    return record + RECORD_BYTES


def load_matrices(warp: Int, record: Int, mask: Int, count: Int, transposed: Int, wide: Int) -> Int:
    """ldmatrix of 8 x 8 elements of 16 bits: lane 8 j + i gives the address of row i of matrix j."""
    if mask != 0xFFFFFFFF:
        return suspect(warp, record, SPACE)
    row = addresses_of(warp, record, count, mask, wide)
    given = numbers_at(row)
    for lane in range(8 * count, 32):
        given[lane] = given[lane & (8 * count - 1)]
    if shared_rows(warp, record, row, (1 << (8 * count)) - 1, 16, SPREAD) == 0:
        return 0
    base = numbers_at(numbers_at(warp)[BLOCK])[SHARED]
    registers, operands = numbers_at(warp)[REGISTERS], words_at(record + OPERANDS)
    for matrix in range(count):
        out = words_at(registers + operands[matrix])
        if transposed:
            for lane in range(32):
                low = halves_at(base + given[8 * matrix + 2 * (lane & 3)])[lane >> 2]
                high = halves_at(base + given[8 * matrix + 2 * (lane & 3) + 1])[lane >> 2]
                out[lane] = np.uint32(low) | np.uint32(high) << 16
        else:
            for line in range(8):
                source = words_at(base + given[8 * matrix + line])
                for part in range(4):
                    out[4 * line + part] = source[part]
    return record + RECORD_BYTES


def store_matrices(warp: Int, record: Int, mask: Int, count: Int, transposed: Int, wide: Int) -> Int:
    """stmatrix of 8 x 8 elements of 16 bits: lane 8 j + i gives the address of row i of matrix j."""
    if mask != 0xFFFFFFFF:
        return suspect(warp, record, SPACE)
    row = addresses_of(warp, record, count, mask, wide)
    given = numbers_at(row)
    used = (1 << (8 * count)) - 1
    for lane in range(8 * count, 32):
        given[lane] = given[lane & (8 * count - 1)]
    if shared_rows(warp, record, row, used, 16, WRITE) == 0:
        return 0
    base = numbers_at(numbers_at(warp)[BLOCK])[SHARED]
    registers, operands = numbers_at(warp)[REGISTERS], words_at(record + OPERANDS)
    for matrix in range(count):
        held = words_at(registers + operands[matrix])
        if transposed:
            for lane in range(32):
                halves_at(base + given[8 * matrix + 2 * (lane & 3)])[lane >> 2] = held[lane] & np.uint32(0xFFFF)
                halves_at(base + given[8 * matrix + 2 * (lane & 3) + 1])[lane >> 2] = held[lane] >> 16
        else:
            for line in range(8):
                target = words_at(base + given[8 * matrix + line])
                for part in range(4):
                    target[part] = held[4 * line + part]
    # lanes 4 i to 4 i + 3 write row i, not the lane that gives its address
    if not note_shared(warp, row, used, 16, SPREAD_WRITE, 0):
        return suspect(warp, record, RACE)
    return record + RECORD_BYTES
