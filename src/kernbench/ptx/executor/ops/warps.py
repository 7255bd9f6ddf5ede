"""Operations across the lanes of a warp, all of which must take part; fragments of a warp are left to the judge."""

import numpy as np

from kernbench.ptx.emulator.lanes import warp_kernels as kernels
from kernbench.ptx.executor.ops.flow import suspect
from kernbench.ptx.executor.ops.layout import ADDRESSES, DIVERGED, OPERANDS, RECORD_BYTES, REGISTERS
from kernbench.ptx.executor.ops.views import Flag, Int, flags_of, no_flags, numbers_at, words_at, words_of

EVERYBODY = 0xFFFFFFFF
shuffled, voted = kernels.shuffle.py_func, kernels.vote.py_func  # type: ignore[attr-defined]
matched, reduced = kernels.match.py_func, kernels.reduce.py_func  # type: ignore[attr-defined]


def operand(warp: Int, record: Int, number: Int) -> Int:
    """The address of the row of an operand."""
    return numbers_at(warp)[REGISTERS] + words_at(record + OPERANDS)[number]


def meets(warp: Int, record: Int, mask: Int, members: Int) -> Flag:
    """Whether all lanes of the warp take part, and are named by all masks."""
    row = words_at(operand(warp, record, members))
    named = np.uint32(EVERYBODY)
    for lane in range(32):
        named &= row[lane]
    return mask == EVERYBODY and named == EVERYBODY


def shuffle(warp: Int, record: Int, mask: Int, mode: Int, predicate: Int) -> Int:
    """shfl.sync: target, predicate (if there is one), value, lane, clamp and mask."""
    given = 1 + predicate
    if not meets(warp, record, mask, given + 3):
        return suspect(warp, record, DIVERGED)
    found = words_of(warp + 8 * ADDRESSES)
    bits = flags_of(warp + 8 * (ADDRESSES + 16))
    inside = bits if predicate else no_flags()
    a, b = words_of(operand(warp, record, given)), words_of(operand(warp, record, given + 1))
    c, members = words_of(operand(warp, record, given + 2)), words_of(operand(warp, record, given + 3))
    bad = shuffled(mode, a, b, c, members, no_flags(), found, inside)
    if bad[0]:
        return suspect(warp, record, DIVERGED)
    out = words_of(operand(warp, record, 0))
    for lane in range(32):
        out[lane] = found[lane]
    if predicate:
        valid = flags_of(operand(warp, record, 1))
        for lane in range(32):
            valid[lane] = bits[lane]
    return record + RECORD_BYTES


def exchange(warp: Int, record: Int, mask: Int, step: Int) -> Int:
    """shfl.sync.bfly by a constant in the whole warp: target, value and mask."""
    if not meets(warp, record, mask, 2):
        return suspect(warp, record, DIVERGED)
    source, out = words_at(operand(warp, record, 1)), words_at(operand(warp, record, 0))
    found = words_at(warp + 8 * ADDRESSES)
    for lane in range(32):
        found[lane] = source[lane ^ step]
    for lane in range(32):
        out[lane] = found[lane]
    return record + RECORD_BYTES


def vote(warp: Int, record: Int, mask: Int, mode: Int, ballot: Int) -> Int:
    """vote.sync: target, predicate and mask."""
    if not meets(warp, record, mask, 2):
        return suspect(warp, record, DIVERGED)
    found = words_of(warp + 8 * ADDRESSES)
    a, members = flags_of(operand(warp, record, 1)), words_of(operand(warp, record, 2))
    voted(mode, a, members, no_flags(), found)
    if ballot:
        out = words_of(operand(warp, record, 0))
        for lane in range(32):
            out[lane] = found[lane]
    else:
        truth = flags_of(operand(warp, record, 0))
        for lane in range(32):
            truth[lane] = found[lane] != 0
    return record + RECORD_BYTES


def reduce(warp: Int, record: Int, mask: Int, operation: Int, absolute: Int, nan: Int) -> Int:
    """redux.sync: target, value and mask."""
    if not meets(warp, record, mask, 2):
        return suspect(warp, record, DIVERGED)
    found = words_of(warp + 8 * ADDRESSES)
    a, members = words_of(operand(warp, record, 1)), words_of(operand(warp, record, 2))
    reduced(operation, a, members, no_flags(), found, absolute != 0, nan != 0)
    out = words_of(operand(warp, record, 0))
    for lane in range(32):
        out[lane] = found[lane]
    return record + RECORD_BYTES


def elect(warp: Int, record: Int, mask: Int, predicate: Int) -> Int:
    """elect.sync: target, predicate (if there is one) and mask; the first lane of the warp."""
    if not meets(warp, record, mask, 1 + predicate):
        return suspect(warp, record, DIVERGED)
    out = words_of(operand(warp, record, 0))
    for lane in range(32):
        out[lane] = 0
    if predicate:
        elected = flags_of(operand(warp, record, 1))
        for lane in range(32):
            elected[lane] = lane == 0
    return record + RECORD_BYTES
