"""Atomics and reductions: lanes one after the other, each from what the one before left."""

import numpy as np

from kernbench.ptx.emulator.memory.atomics import _result
from kernbench.ptx.executor.ops.layout import BLOCK, CONTENTS, LAUNCH, OPERANDS, RECORD_BYTES, REGISTERS, SHARED
from kernbench.ptx.executor.ops.loads_stores import GLOBAL_BASE, addresses_of, global_array, shared_rows
from kernbench.ptx.executor.ops.shadow import UPDATE
from kernbench.ptx.executor.ops.views import Int, longs_at, numbers_at, words_at

# additions of f32 in global memory flush subnormal numbers
FLUSHING_SUM = 13
_ONE32, _SIGN32, _ONE64, _SIGN64 = np.uint32(1), np.uint32(1 << 31), np.uint64(1), np.uint64(1 << 63)


def update(warp: Int, record: Int, mask: Int, operation: int, size: Int, returns: Int, wide: Int, shared: Int) -> Int:
    """atom and red: the old value (if it returns one), b, c and the address."""
    row = addresses_of(warp, record, 2 + returns, mask, wide)
    if shared:
        if shared_rows(warp, record, row, mask, size, UPDATE) == 0:
            return 0
        base = numbers_at(numbers_at(warp)[BLOCK])[SHARED]
    else:
        if global_array(warp, record, row, mask, size, UPDATE) == 0:
            return 0
        base = numbers_at(numbers_at(numbers_at(warp)[BLOCK])[LAUNCH])[CONTENTS] - GLOBAL_BASE
    given = numbers_at(row)
    registers, operands = numbers_at(warp)[REGISTERS], words_at(record + OPERANDS)
    for lane in range(32):
        if mask >> lane & 1:
            if size == 4:
                word4 = words_at(base + given[lane])
                b4, c4 = (
                    words_at(registers + operands[returns])[lane],
                    words_at(registers + operands[returns + 1])[lane],
                )
                old4 = word4[0]
                word4[0] = _result(operation, old4, b4, c4, _ONE32, _SIGN32)
                if returns:
                    words_at(registers + operands[0])[lane] = old4
            else:
                word8 = longs_at(base + given[lane])
                b8, c8 = (
                    longs_at(registers + operands[returns])[lane],
                    longs_at(registers + operands[returns + 1])[lane],
                )
                old8 = word8[0]
                word8[0] = _result(operation, old8, b8, c8, _ONE64, _SIGN64)
                if returns:
                    longs_at(registers + operands[0])[lane] = old8
    return record + RECORD_BYTES


def add_vectors(warp: Int, record: Int, mask: Int, size: Int, count: Int, returns: Int, wide: Int) -> Int:
    """red and atom of vectors of f32 in global memory: old values (if it returns them), terms and the address."""
    row = addresses_of(warp, record, count * (1 + returns), mask, wide)
    if global_array(warp, record, row, mask, size * count, UPDATE) == 0:
        return 0
    base = numbers_at(numbers_at(numbers_at(warp)[BLOCK])[LAUNCH])[CONTENTS] - GLOBAL_BASE
    given = numbers_at(row)
    registers, operands = numbers_at(warp)[REGISTERS], words_at(record + OPERANDS)
    for lane in range(32):
        if mask >> lane & 1:
            words = words_at(base + given[lane])
            for number in range(count):
                old = words[number]
                term = words_at(registers + operands[returns * count + number])[lane]
                words[number] = _result(FLUSHING_SUM, old, term, term, _ONE32, _SIGN32)
                if returns:
                    words_at(registers + operands[number])[lane] = old
    return record + RECORD_BYTES
