"""mbarriers: a phase is over when no arrival and no byte is pending; who has waited for it knows what arrivals knew.

An mbarrier has a number in its block. Its words are below; beside them are two vectors: what arrivals so far have
released, and what those of completed phases had. Its eight bytes in shared memory count as unwritten as long as it
lives, so that ordinary reads of them are suspects, and ordinary writes are seen at its next use.
"""

import numpy as np

from kernbench.ptx.executor.ops.clocks import (
    MBARRIERS,
    MOST_MBARRIERS,
    VECTOR_BYTES,
    acquire,
    copy,
    fill,
    known_to,
    release,
)
from kernbench.ptx.executor.ops.flow import LAST_TIME, suspect
from kernbench.ptx.executor.ops.layout import (
    BARRIER,
    BLOCK,
    DONE_AT,
    EVENTS,
    HELD_AT,
    MBARRIER_COUNT,
    MBARRIER_NUMBERS_AT,
    MBARRIERS_AT,
    NOW,
    NUMBER,
    OPERANDS,
    PARKED,
    RECORD_BYTES,
    REGISTERS,
    RESUME,
    ROOM,
    RUNS,
    SHARED_BYTES,
    SHARED_STATES,
    SHOWS_INITIALISATION,
    STATE,
)
from kernbench.ptx.executor.ops.loads_stores import addresses_of, element
from kernbench.ptx.executor.ops.views import Flag, Int, bytes_at, halves_at, longs_at, lowest, numbers_at, words_at

# words of an mbarrier: whether it lives; its phase, the first one, and the last one that was waited for; arrivals that
# are pending and expected, and bytes; the phase after the last one with bytes; bits for a phase that nobody waited for
# in time, and for any wait; the phase for which a look came early; the warp that initialised it, when, the warp that
# has shown that to the async proxy (-1 for none), and when. Behind them stands for each warp, in 16 bits, the time
# after its last use
LIVE, PHASE, START, WAITED, PENDING, EXPECTED, TX, DELIVERED, UNSEEN, LOOKED = range(10)
MAKER, MADE, SHOWER, SHOWN_AT, USES = range(10, 15)
MBARRIER_WORDS = USES + 8
MBARRIER_BYTES = 8 * MBARRIER_WORDS
MOST_ARRIVALS = (1 << 20) - 1
TOKEN_SHIFT = 24
MISSED, TESTED = 1, 2
TOUCHED, FRESH = np.uint64(0x0202020202020202), np.uint64(0x0101010101010101)
# barriers of some warps of a block (`ops.barriers`): how many there are, and their words before two vectors
MOST_NAMED, NAMED_WORDS = 16, 4
NAMED_BYTES = 8 * NAMED_WORDS + 2 * VECTOR_BYTES


def mbarrier_at(warp: Int, mask: Int, offset: Int) -> Int:
    """The number of the living mbarrier at an offset of shared memory, as lanes may use it; -1 for a suspect."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    if offset & 7 or offset < 0 or offset + 8 > b[SHARED_BYTES]:
        return np.int64(-1)
    number = np.int64(bytes_at(b[MBARRIER_NUMBERS_AT])[offset >> 3]) - 1
    if number < 0:
        return np.int64(-1)
    m = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
    if not m[LIVE] or longs_at(b[SHARED_STATES] + offset)[0] & TOUCHED:
        return np.int64(-1)
    if m[MAKER] != w[NUMBER] and np.int64(halves_at(known_to(warp, mask))[m[MAKER]]) <= m[MADE]:
        return np.int64(-1)
    halves_at(uses_at(w[BLOCK], number))[w[NUMBER]] = w[NOW] + 1
    return number


def uses_at(block: Int, number: Int) -> Int:
    """Where it stands when each warp last used an mbarrier."""
    at: Int = numbers_at(block)[MBARRIERS_AT] + MBARRIER_BYTES * number + 8 * USES
    return at


def are_uses_known(warp: Int, mask: Int, number: Int) -> Flag:
    """Whether lanes know of all uses of an mbarrier by other warps."""
    w = numbers_at(warp)
    uses, known, found = halves_at(uses_at(w[BLOCK], number)), halves_at(known_to(warp, mask)), np.int32(0)
    for other in range(32):
        found += np.int32(other != w[NUMBER] and uses[other] > known[other])
    return found == 0


def initialise(warp: Int, record: Int, mask: Int, wide: Int) -> Int:
    """mbarrier.init: the count of arrivals, and the address."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    addresses = numbers_at(addresses_of(warp, record, 1, mask, wide))
    counts = words_at(w[REGISTERS] + words_at(record + OPERANDS)[0])
    numbers = bytes_at(b[MBARRIER_NUMBERS_AT])
    for lane in range(32):
        if mask >> lane & 1:
            offset, count = addresses[lane], np.int64(counts[lane])
            if offset & 7 or offset < 0 or offset + 8 > b[SHARED_BYTES] or count == 0 or count > MOST_ARRIVALS:
                return suspect(warp, record, BARRIER)
            number = np.int64(numbers[offset >> 3]) - 1
            if number < 0:
                number = b[MBARRIER_COUNT]
                if number >= MOST_MBARRIERS:
                    return suspect(warp, record, ROOM)
                b[MBARRIER_COUNT] = number + 1
                numbers[offset >> 3] = number + 1
                numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)[LIVE] = 0
                numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)[PHASE] = -2
                for other in range(32):
                    halves_at(uses_at(w[BLOCK], number))[other] = 0
                fill(b[HELD_AT] + VECTOR_BYTES * number, 0)
                fill(b[DONE_AT] + VECTOR_BYTES * number, 0)
            m = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
            if m[LIVE]:
                return suspect(warp, record, BARRIER)
            phase = (m[PHASE] + 2) & ~1
            m[LIVE], m[PHASE], m[START], m[WAITED] = 1, phase, phase, phase
            m[PENDING], m[EXPECTED], m[TX], m[DELIVERED], m[UNSEEN], m[LOOKED] = count, count, 0, phase, 0, -1
            m[MAKER], m[MADE], m[SHOWER], m[SHOWN_AT] = w[NUMBER], w[NOW], -1, 0
            states = longs_at(b[SHARED_STATES] + offset)
            if states[0] & FRESH != FRESH:
                return suspect(warp, record, BARRIER)
            states[0] &= ~TOUCHED
    return record + RECORD_BYTES


def show_initialisation(warp: Int, mask: Int) -> None:
    """A fence that shows mbarriers to asynchronous copies: those that lanes know of."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    known = halves_at(known_to(warp, mask))
    for number in range(b[MBARRIER_COUNT]):
        m = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
        if m[LIVE] and m[SHOWER] < 0 and (m[MAKER] == w[NUMBER] or np.int64(known[m[MAKER]]) > m[MADE]):
            m[SHOWER], m[SHOWN_AT] = w[NUMBER], w[NOW]


def fence_initialisation(warp: Int, record: Int, mask: Int) -> Int:
    """fence.mbarrier_init."""
    show_initialisation(warp, mask)
    return record + RECORD_BYTES


def is_shown_to_copies(warp: Int, mask: Int, number: Int) -> Flag:
    """Whether the initialisation of an mbarrier is visible to copies that lanes begin."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    m = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
    if not b[SHOWS_INITIALISATION]:
        # programs whose library leaves these fences out
        return True
    if m[SHOWER] == w[NUMBER]:
        return True
    return m[SHOWER] >= 0 and np.int64(halves_at(known_to(warp, mask))[m[SHOWER]]) > m[SHOWN_AT]


def invalidate(warp: Int, record: Int, mask: Int, wide: Int) -> Int:
    """mbarrier.inval."""
    b = numbers_at(numbers_at(warp)[BLOCK])
    addresses = numbers_at(addresses_of(warp, record, 0, mask, wide))
    for lane in range(32):
        if mask >> lane & 1:
            number = mbarrier_at(warp, mask, addresses[lane])
            if number < 0 or awaits_bytes(b[MBARRIERS_AT] + MBARRIER_BYTES * number):
                return suspect(warp, record, BARRIER)
            if not are_uses_known(warp, mask, number):
                return suspect(warp, record, BARRIER)
            numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)[LIVE] = 0
    return record + RECORD_BYTES


def awaits_bytes(mbarrier: Int) -> Flag:
    """Whether bytes of a living mbarrier are pending, or have come and nobody has waited for them.

    Or those who wait may have missed a phase, if they came later.
    """
    m = numbers_at(mbarrier)
    return m[LIVE] != 0 and (m[TX] != 0 or m[DELIVERED] > m[WAITED] or m[UNSEEN] == MISSED | TESTED)


def arrive(warp: Int, record: Int, mask: Int, returns: Int, sizes: tuple[Int, Int], wide: Int) -> Int:
    """mbarrier.arrive: the state before (if it returns one), the count, the bytes to expect, and the address.

    `sizes` are the bytes of the count and of the number of bytes.
    """
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    registers, operands = w[REGISTERS], words_at(record + OPERANDS)
    addresses = numbers_at(addresses_of(warp, record, 2 + returns, mask, wide))
    alike: Flag = True
    for lane in range(32):
        alike = alike and (not mask >> lane & 1 or addresses[lane] == addresses[lowest(mask)])
    last = np.int64(-1)
    for lane in range(32):
        if mask >> lane & 1:
            if addresses[lane] != last:
                number = mbarrier_at(warp, mask, addresses[lane])
                if number < 0:
                    return suspect(warp, record, BARRIER)
                last = addresses[lane]
                # some lanes of a warp release what it did until it met
                release(warp, mask if alike else np.int64(1) << lane, b[HELD_AT] + VECTOR_BYTES * number)
            m = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
            if returns:
                longs_at(registers + operands[0])[lane] = np.uint64(m[PHASE] << TOKEN_SHIFT | m[PENDING])
            count = np.int64(element(registers + operands[returns], lane, sizes[0]))
            amount = np.int64(element(registers + operands[1 + returns], lane, sizes[1]))
            if count < 0 or count > m[PENDING]:
                return suspect(warp, record, BARRIER)
            if count and m[PHASE] > m[WAITED]:
                m[WAITED] = m[PHASE]
                m[UNSEEN] |= MISSED
            m[PENDING] -= count
            expect(b[MBARRIERS_AT] + MBARRIER_BYTES * number, amount)
            if not complete(w[BLOCK], number):
                return suspect(warp, record, BARRIER)
    return record + RECORD_BYTES if w[NOW] < LAST_TIME else suspect(warp, record, ROOM)


def expect(mbarrier: Int, amount: Int) -> None:
    """The open phase expects more bytes; fewer, if they have come."""
    m = numbers_at(mbarrier)
    if amount:
        m[TX] += amount
        m[DELIVERED] = m[PHASE] + 1


def complete(block: Int, number: Int) -> Flag:
    """The phase is over if nothing is pending; False if its bytes are out of range."""
    b = numbers_at(block)
    m = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
    if m[PENDING] == 0 and m[TX] == 0:
        m[PHASE] += 1
        m[PENDING] = m[EXPECTED]
        b[EVENTS] += 1
        held = b[HELD_AT] + VECTOR_BYTES * number
        halves_at(held)[MBARRIERS + number] = m[PHASE]
        copy(held, b[DONE_AT] + VECTOR_BYTES * number)
    return -MOST_ARRIVALS <= m[TX] <= MOST_ARRIVALS and m[PHASE] < 0xFFFF


def transact(warp: Int, record: Int, mask: Int, sign: Int, wide: Int) -> Int:
    """mbarrier.expect_tx and complete_tx: the bytes, and the address."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    addresses = numbers_at(addresses_of(warp, record, 1, mask, wide))
    amounts = words_at(w[REGISTERS] + words_at(record + OPERANDS)[0])
    for lane in range(32):
        if mask >> lane & 1:
            number = mbarrier_at(warp, mask, addresses[lane])
            if number < 0:
                return suspect(warp, record, BARRIER)
            expect(b[MBARRIERS_AT] + MBARRIER_BYTES * number, sign * np.int64(amounts[lane]))
            if not complete(w[BLOCK], number):
                return suspect(warp, record, BARRIER)
    return record + RECORD_BYTES


def wait_for_phase(warp: Int, record: Int, mask: Int, how: Int, size: Int, wide: Int) -> Int:
    """mbarrier.try_wait and test_wait: whether the phase is over, the phase, and the address.

    `how` has bits: 1 for a phase by its parity, 2 for a wait that is tried until it succeeds, 4 for one whose result is
    used. All lanes must wait for one phase of one mbarrier.
    """
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    registers, operands = w[REGISTERS], words_at(record + OPERANDS)
    addresses = numbers_at(addresses_of(warp, record, 2, mask, wide))
    one = lowest(mask)
    phase = phase_at(registers + operands[1], one, size, how & 1)
    for lane in range(32):
        other = addresses[lane] != addresses[one] or phase_at(registers + operands[1], lane, size, how & 1) != phase
        if mask >> lane & 1 and other:
            return suspect(warp, record, BARRIER)
    number = mbarrier_at(warp, mask, addresses[one])
    if number < 0:
        return suspect(warp, record, BARRIER)
    m = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
    passed: Flag = (m[PHASE] ^ phase) & 1 == 1 if how & 1 else m[PHASE] > phase
    early: Int = 0
    if passed and not how & 2 and m[DELIVERED] == m[PHASE] and m[WAITED] < m[PHASE] and m[LOOKED] != m[PHASE]:
        # copies end as late as they may: who looks without waiting for them finds them under way, once
        m[LOOKED] = m[PHASE]
        passed, early = False, 1
    if not passed and how & 2:
        w[STATE], w[RESUME] = PARKED, record
        return 0
    w[STATE] = RUNS
    # who does not look at the result has not waited
    if how & 4 and not looked(warp, mask, number, how & 1, passed, early):
        return suspect(warp, record, BARRIER)
    out = bytes_at(registers + operands[0])
    for lane in range(32):
        if mask >> lane & 1:
            out[lane] = 1 if passed else 0
    if not passed:
        # others run before it asks again
        w[RESUME] = record + RECORD_BYTES
        return 0
    return record + RECORD_BYTES


def phase_at(at: Int, lane: Int, size: Int, parity: Int) -> Int:
    """The phase that a lane waits for: its parity, or the number in what its arrival returned."""
    held = np.int64(element(at, lane, size))
    return held if parity else held >> TOKEN_SHIFT


def looked(warp: Int, mask: Int, number: Int, parity: Int, passed: Flag, early: Int) -> Flag:
    """Lanes have asked for a phase; False if the answer may be another one in another order of threads."""
    w = numbers_at(warp)
    m = numbers_at(numbers_at(w[BLOCK])[MBARRIERS_AT] + MBARRIER_BYTES * number)
    m[UNSEEN] |= TESTED
    if passed:
        m[WAITED] = m[PHASE]
        return learn_phase(warp, mask, number, parity)
    # of the same parity is the phase before the last one, too
    known, phase = np.int64(halves_at(known_to(warp, mask))[MBARRIERS + number]), m[PHASE] - early
    return parity == 0 or phase == m[START] or known >= phase


def learn_phase(warp: Int, mask: Int, number: Int, parity: Int) -> Flag:
    """Lanes have waited for a phase; False if another one may have been meant, of the same parity."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    m = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
    if parity:
        before = m[PHASE] - 1
        if m[UNSEEN] & MISSED or (
            before > m[START] and np.int64(halves_at(known_to(warp, mask))[MBARRIERS + number]) < before
        ):
            return False
    acquire(warp, mask, b[DONE_AT] + VECTOR_BYTES * number)
    return True
