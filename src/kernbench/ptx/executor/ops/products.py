"""mma.sync with an f32 accumulator, with the tensor core's bits (`numerics.matrix.products` says which these are).

All products of an element and its addend are truncated to multiples of 2**(e - 25), where e is the greatest exponent,
and added. Scaled by 2**(25 - e), a product of halves is exact in f32, and is truncated by its conversion to an integer
of 32 bits; the sum of 16 has no more than 31 bits. That holds for exponents from LEAST to MOST, zeros aside; elements
beyond are computed as float64.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Float32s, Int32s, UInt32s
from kernbench.ptx.executor.ops.flow import operand_at, suspect
from kernbench.ptx.executor.ops.layout import OPERANDS, RECORD_BYTES, REGISTERS, SPACE
from kernbench.ptx.executor.ops.views import Flag, Int, Real, floats, floats_at, half, ints, numbers_at, whole, words_at
from kernbench.ptx.numerics.rows.scalar import bits_of_float32, bits_of_float64, float32_of, float64_of

F16, BF16, TF32, E4M3, E5M2 = range(5)
LEAST, MOST, ZERO = -90, 120, -10000
# A, B and C, and their exponents
Factors = tuple[Float32s, Float32s, Float32s]
Exponents = tuple[Int32s, Int32s, Int32s]


def exponent(value: Real, least: Int) -> Int:
    """The exponent of a number; subnormals have the least one of their type, zero one below all others."""
    bits = bits_of_float32(value) & np.uint32(0x7FFFFFFF)
    field = np.int32(bits >> 23) - 127
    return np.int32(ZERO) if bits == 0 else np.int32(max(field, least))


def spread(held: UInt32s, out: Float32s, at: Int, step: Int, kind: Int) -> None:
    """The elements of a register of lanes 4 i + t: column t (or 2 t and 2 t + 1) of `step` numbers, row i."""
    per = 1 if kind == TF32 else 2
    for i in range(8):
        one, two, three, four = held[4 * i], held[4 * i + 1], held[4 * i + 2], held[4 * i + 3]
        out[at + i] = first_of(one, kind)
        out[at + step * per + i] = first_of(two, kind)
        out[at + step * 2 * per + i] = first_of(three, kind)
        out[at + step * 3 * per + i] = first_of(four, kind)
        if kind != TF32:
            out[at + step + i] = second_of(one, kind)
            out[at + step * 3 + i] = second_of(two, kind)
            out[at + step * 5 + i] = second_of(three, kind)
            out[at + step * 7 + i] = second_of(four, kind)


def multiply(warp: Int, record: Int, mask: Int, kind: Int, depth: Int) -> Int:
    """D, A, B, C of m16n8k`depth`: 4, 4 or 2, 2 or 1, and 4 registers."""
    if mask != 0xFFFFFFFF:
        return suspect(warp, record, SPACE)
    a, b, c, out = floats(), floats(), floats(), floats()
    ea, eb, ec = ints(), ints(), ints()
    blocks = depth >> 2 if kind == TF32 else depth >> 3
    take_factors(warp, record, a, b, kind, blocks)
    take_addends(warp, record, c, 4 + 3 * blocks)
    least = least_exponent(kind)
    for number in range(16 * depth):
        ea[number] = exponent(a[number], least)
    for number in range(8 * depth):
        eb[number] = exponent(b[number], least)
    for number in range(128):
        ec[number] = exponent(c[number], -126)
    add_columns((a, b, c), (ea, eb, ec), out, kind, depth, 16)
    give_results(warp, record, out, 0)
    return record + RECORD_BYTES


def add_columns(given: Factors, exponents: Exponents, out: Float32s, kind: Int, depth: Int, step: Int) -> None:
    """Eight columns of the result; columns of A are `step` numbers apart."""
    good: Flag = True
    for j in range(8):
        good = good and add_column(j, given, exponents, out, kind, depth, step)
    if not good:
        a, b, c = given
        ea, eb, _ = exponents
        carefully(a, b, c, ea, eb, out, kind, depth, step)


def take_factors(warp: Int, record: Int, a: Float32s, b: Float32s, kind: Int, blocks: Int) -> None:
    """A by columns of 16, B by rows of 8."""
    registers, operands = numbers_at(warp)[REGISTERS], words_at(record + OPERANDS)
    width = 4 if kind == TF32 else 8
    for block in range(blocks):
        for part in range(2):
            held = words_at(registers + operands[4 + 2 * block + part])
            spread(held, a, 16 * width * block + 8 * part, 16, kind)
        spread(words_at(registers + operands[4 + 2 * blocks + block]), b, 8 * width * block, 8, kind)


def take_addends(warp: Int, record: Int, c: Float32s, begin: Int) -> None:
    """C by columns of 16, from four registers."""
    registers = numbers_at(warp)[REGISTERS]
    for part in range(4):
        addend, first = floats_at(registers + operand_at(record, begin + part)), 16 * (part & 1) + 8 * (part >> 1)
        for i in range(8):
            c[first + i] = addend[4 * i]
            c[first + 32 + i] = addend[4 * i + 1]
            c[first + 64 + i] = addend[4 * i + 2]
            c[first + 96 + i] = addend[4 * i + 3]


def give_results(warp: Int, record: Int, out: Float32s, begin: Int) -> None:
    """D from columns of 16, to four registers."""
    registers = numbers_at(warp)[REGISTERS]
    for part in range(4):
        result, first = floats_at(registers + operand_at(record, begin + part)), 16 * (part & 1) + 8 * (part >> 1)
        for i in range(8):
            result[4 * i] = out[first + i]
            result[4 * i + 1] = out[first + 32 + i]
            result[4 * i + 2] = out[first + 64 + i]
            result[4 * i + 3] = out[first + 96 + i]


def add_column(j: Int, given: Factors, exponents: Exponents, out: Float32s, kind: Int, depth: Int, step: Int) -> Flag:
    """Column j of the result; False if an exponent is beyond what is exact here."""
    a, b, c = given
    ea, eb, ec = exponents
    kept, digits = kept_of(kind), digits_of(kind)
    top, unit, total = ints(), floats(), ints()
    for i in range(16):
        top[i] = ec[16 * j + i]
    for k in range(depth):
        other = eb[8 * k + j]
        for i in range(16):
            top[i] = max(top[i], np.int32(ea[step * k + i] + other))
    bad = np.int32(0)
    for i in range(16):
        # zeros alone need no unit of their own
        high = top[i] if top[i] > ZERO // 2 else np.int32(LEAST)
        bad = np.int32(bad | np.int32(high < LEAST) | np.int32(high > MOST))
        high = min(max(high, np.int32(LEAST)), np.int32(MOST))
        top[i] = high
        unit[i] = float32_of(np.uint32(np.uint32(127 + kept - high) << 23))
        total[i] = 0
    for k in range(depth):
        factor = b[8 * k + j]
        for i in range(16):
            total[i] += whole(a[step * k + i] * factor * unit[i])
    for i in range(16):
        sum64 = np.float64(total[i]) + np.float64(whole(c[16 * j + i] * unit[i]))
        cut = float64_of(bits_of_float64(sum64) & ~np.uint64((1 << (52 - digits)) - 1))
        back = float64_of(np.uint64(np.uint64(1023 - kept + np.int64(top[i])) << 52))
        out[16 * j + i] = np.float32(cut * back)
    return bool(bad == 0)


def kept_of(kind: Int) -> Int:
    """How many bits below the greatest exponent terms keep."""
    return 13 if kind >= E4M3 else 25


def digits_of(kind: Int) -> Int:
    """How many bits a sum keeps behind its first one."""
    return 13 if kind >= E4M3 else 23


def least_exponent(kind: Int) -> Int:
    """The exponent of a type's subnormals."""
    if kind == E4M3:
        return -6
    return -14 if kind in (F16, E5M2) else -126


def elements_of(kind: Int) -> Int:
    """The elements of a register."""
    if kind == TF32:
        return 1
    return 4 if kind >= E4M3 else 2


def element_of(word: Int, number: Int, kind: Int) -> Real:
    """An element of a register."""
    if kind == E4M3:
        return small(np.uint32(word >> (8 * number) & np.uint32(0xFF)))
    if kind == E5M2:
        return half(np.uint16((word >> (8 * number) & np.uint32(0xFF)) << 8))
    return second_of(word, kind) if number else first_of(word, kind)


def small(code: Int) -> Real:
    """The number of an e4m3 code."""
    value = np.uint32(code & np.uint32(0x7F))
    sign = np.uint32(code >> 7) << np.uint32(31)
    if value == np.uint32(0x7F):
        return float32_of(np.uint32(0x7FFFFFFF))
    if value < np.uint32(8):
        return float32_of(bits_of_float32(np.float32(value) * np.float32(2.0**-9)) | sign)
    return float32_of(np.uint32((value << np.uint32(20)) + np.uint32(120 << 23)) | sign)


def first_of(word: Int, kind: Int) -> Real:
    """The lower element of a register."""
    if kind == F16:
        return half(np.uint16(word & np.uint32(0xFFFF)))
    if kind == BF16:
        return float32_of(np.uint32(word << 16))
    return float32_of(np.uint32(word & np.uint32(0xFFFFE000)))


def second_of(word: Int, kind: Int) -> Real:
    """The upper element of a register."""
    if kind == F16:
        return half(np.uint16(word >> 16))
    return float32_of(np.uint32(word & np.uint32(0xFFFF0000)))


def wide_exponent(value: Real, held: Int) -> Int:
    """The exponent of an element whose f32 has one; infinities and NaN have 1024."""
    return 1024 if held == 128 else held


def carefully(
    a: Float32s,
    b: Float32s,
    c: Float32s,
    ea: Int32s,
    eb: Int32s,
    out: Float32s,
    kind: Int,
    depth: Int,
    step: Int,
) -> None:
    """The same in float64, for any exponents."""
    kept_bits, digits = kept_of(kind), digits_of(kind)
    for j in range(8):
        for i in range(16):
            addend = np.float64(c[16 * j + i])
            high = np.int64(wide_exponent(addend, np.int64(exponent(c[16 * j + i], -126))))
            for k in range(depth):
                one = wide_exponent(0.0, np.int64(ea[step * k + i]))
                two = wide_exponent(0.0, np.int64(eb[8 * k + j]))
                high = max(high, np.int64(one + two))
            scale = kept_bits - max(high, np.int64(-133))
            unit = float64_of(np.uint64(np.uint64(max(scale, np.int64(-1000)) + 1023) << 52))
            total = np.trunc(addend * unit)
            for k in range(depth):
                total += np.trunc(np.float64(a[step * k + i]) * np.float64(b[8 * k + j]) * unit)
            value = total / unit
            if digits < 23 and value == value:
                value = float64_of(bits_of_float64(value) & ~np.uint64((1 << (52 - digits)) - 1))
            if value != value:
                bits = np.uint32(0x7FFFFFFF)
            elif abs(value) < 2.0**-126:
                kept = np.trunc(value * 2.0**149)
                bits = np.uint32(np.int64(abs(kept)))
                if kept < 0.0:
                    bits |= np.uint32(0x80000000)
            else:
                bits = bits_of_float32(np.float32(float64_of(bits_of_float64(value) & ~np.uint64((1 << 29) - 1))))
            out[16 * j + i] = float32_of(bits)
