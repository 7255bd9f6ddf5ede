"""Logic, shifts and bit fields over rows of bits."""

from collections.abc import Callable
from functools import cache

import numpy as np
from llvmlite import ir

from kernbench.common.errors import MisuseError, unknown
from kernbench.common.kept import Numba
from kernbench.common.native.kinds import Instruction, Scalar
from kernbench.ptx.numerics.integers.arithmetic import SIGNED, UNSIGNED, number, on_views, split
from kernbench.ptx.numerics.rows.loops import Factory, Operation, Row, row_kernel
from kernbench.ptx.numerics.rows.scalar import (
    Bits,
    Integer,
    Intrinsic,
    Typing,
    Values,
    compiled,
    instruction,
    type_named,
)

_LOGIC: dict[str, Operation] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}


def logic(name: str) -> Operation:
    """and, or, xor, not of bits or predicates: `operation(*inputs, out)`."""
    if name not in _LOGIC:
        raise MisuseError(unknown("logic operation", name, _LOGIC))
    return _LOGIC[name]


def logical_not(a: Row, out: Row) -> None:
    """cnot: 1 where a is 0, else 0."""
    np.equal(a, 0, out=out, casting="unsafe")


def _lut_masks(lut: int) -> tuple[int, ...]:
    """For each of the eight combinations (a, b, c as bits 2, 1, 0) all ones or zero."""
    return tuple(0xFFFFFFFF if lut >> i & 1 else 0 for i in range(8))


_SIMPLE_LUTS: dict[int, Callable[[Bits, Bits, Bits], Bits]] = {
    0x80: lambda a, b, c: a & b & c,
    0xFE: lambda a, b, c: a | b | c,
    0x96: lambda a, b, c: a ^ b ^ c,
    0xF8: lambda a, b, c: a | (b & c),
    0xEA: lambda a, b, c: (a & b) | c,
    0xE8: lambda a, b, c: (a & b) | (c & (a | b)),
    0xCA: lambda a, b, c: (a & b) | (~a & c),
    0x78: lambda a, b, c: a ^ (b & c),
    0x6A: lambda a, b, c: (a & b) ^ c,
    0x1E: lambda a, b, c: a ^ (b | c),
    0xA8: lambda a, b, c: (a | b) & c,
    0xE0: lambda a, b, c: a & (b | c),
    0x28: lambda a, b, c: (a ^ b) & c,
    0x60: lambda a, b, c: a & (b ^ c),
}


@cache
def _any_lut() -> Operation:
    @compiled
    def scalar(
        a: Bits, b: Bits, c: Bits, m0: Bits, m1: Bits, m2: Bits, m3: Bits, m4: Bits, m5: Bits, m6: Bits, m7: Bits
    ) -> Bits:
        not_c = ~c
        low = ((((m6 & not_c) | (m7 & c)) & b) | (((m4 & not_c) | (m5 & c)) & ~b)) & a
        return low | (((((m2 & not_c) | (m3 & c)) & b) | (((m0 & not_c) | (m1 & c)) & ~b)) & ~a)

    return row_kernel("lop3", scalar, 11)


@cache
def lop3(lut: int) -> Operation:
    """lop3.b32 with any table: `operation(a, b, c, out)`."""
    if lut in _SIMPLE_LUTS:
        return row_kernel(f"lop3_{lut:02x}", compiled(_SIMPLE_LUTS[lut]), 3)
    masks = tuple(np.uint32(mask) for mask in _lut_masks(lut))
    kernel = _any_lut()

    def operation(a: Row, b: Row, c: Row, out: Row) -> None:
        kernel(a, b, c, *masks, out)

    return operation


def shift_left(bits: int) -> Operation:
    """shl: `operation(a, amount, out)`, amounts (u32) beyond the width give 0."""
    return np.left_shift if bits == 32 else _shift("shl", f"u{bits}")


def shift_right(kind: str) -> Operation:
    """shr: `operation(a, amount, out)`, arithmetic for signed types; amounts (u32) are clamped to the width."""
    if kind in ("u32", "b32"):
        return np.right_shift
    return on_views(np.right_shift, np.int32) if kind == "s32" else _shift("shr", kind)


@cache
def _shift(name: str, kind: str) -> Operation:
    typed, bits = number(kind), split(kind)[1]
    left, signed, width = name == "shl", kind[0] == "s", np.uint32(bits)
    last = np.uint32(bits - 1)

    @compiled
    def scalar(a: Bits, amount: Bits) -> Integer:
        inside = np.uint32(amount) < width
        by = typed(amount) if inside else typed(last)
        if left:
            return typed(typed(a) << by) if inside else typed(0)
        return typed(typed(a) >> by) if inside or signed else typed(0)

    return row_kernel(f"{name}_{kind.replace('b', 'u')}", scalar, 2)


@cache
def funnel_shift(direction: str, mode: str) -> Operation:
    """shf.l and shf.r, clamp or wrap: `operation(low, high, amount, out)`."""
    left, wraps = direction == "l", mode == "wrap"

    @compiled
    def scalar(low: Bits, high: Bits, amount: Bits) -> Bits:
        n = np.uint64(amount & np.uint32(31)) if wraps else np.uint64(min(amount, np.uint32(32)))
        both = (np.uint64(high) << np.uint64(32)) | np.uint64(low)
        if left:
            # by 32 and then by n, since a shift by 64 is undefined
            return np.uint32(
                ((both << n) if n < np.uint64(32) else (both << np.uint64(31) << np.uint64(1))) >> np.uint64(32)
            )
        return np.uint32(both >> n)

    return row_kernel(f"shf_{direction}_{mode}", scalar, 3)


@cache
def extract_field(kind: str) -> Operation:
    """bfe: `operation(a, position, length, out)`; 32-bit forms use the low 8 bits of both counts, 64-bit ones all."""
    bits, signed = split(kind)[1], kind[0] == "s"
    unsigned, counted = UNSIGNED[bits], np.uint32(0xFF if bits == 32 else 0xFFFF_FFFF)

    @compiled
    def scalar(a: Bits, position: Bits, length: Bits) -> Bits:
        start, count = np.int64(position & counted), np.int64(length & counted)
        if count == 0:
            return unsigned(0)
        last = min(start + count - 1, np.int64(bits - 1))
        sign = signed and (unsigned(a >> unsigned(last)) & unsigned(1)) == unsigned(1)
        if start >= bits:
            return unsigned(~unsigned(0)) if sign else unsigned(0)
        kept = last - start + 1
        up = unsigned(np.int64(bits) - kept)
        field = unsigned(unsigned(unsigned(a >> unsigned(start)) << up) >> up)
        if sign and kept < bits:
            field = unsigned(field | unsigned(unsigned(~unsigned(0)) << unsigned(kept)))
        return field

    return row_kernel(f"bfe_{kind}", scalar, 3)


@cache
def insert_field(bits: int) -> Operation:
    """bfi: `operation(a, b, position, length, out)`: the low bits of a inserted into b; counts as for bfe."""
    unsigned, counted = UNSIGNED[bits], np.uint32(0xFF if bits == 32 else 0xFFFF_FFFF)

    @compiled
    def scalar(a: Bits, b: Bits, position: Bits, length: Bits) -> Bits:
        start, count = np.int64(position & counted), np.int64(length & counted)
        if start >= bits or count == 0:
            return b
        ones = unsigned(~unsigned(0))
        field = ones if count >= bits else unsigned(unsigned(unsigned(1) << unsigned(count)) - unsigned(1))
        mask = unsigned(field << unsigned(start))
        return unsigned((b & unsigned(~mask)) | (unsigned(a << unsigned(start)) & mask))

    return row_kernel(f"bfi_{bits}", scalar, 4)


def _llvm_unary(name: str, bits: int, *flags: int) -> Typing:
    def typed(context: object, value: Numba) -> Intrinsic:
        kind = type_named(f"uint{bits}")

        def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
            integer = ir.IntType(bits)
            parameters = [integer] + [ir.IntType(1)] * len(flags)
            function = builder.module.declare_intrinsic(f"llvm.{name}", [integer], ir.FunctionType(integer, parameters))
            return builder.call(function, [arguments[0], *(ir.Constant(ir.IntType(1), flag) for flag in flags)])

        return kind(kind), generate

    return typed


def _plain_unary(name: str, bits: int, *flags: int) -> Instruction:
    """The same for loops that kernbench compiles itself."""
    kind, rest = Scalar("u", bits), "".join(f", i1 {flag}" for flag in flags)
    return Instruction((kind,), kind, f"call i{bits} @llvm.{name}.i{bits}(i{bits} {{0}}{rest})")


_COUNTS: dict[tuple[str, int], Callable[[Bits], Bits]] = {
    (name, bits): instruction(_llvm_unary(llvm, bits, *flags), _plain_unary(llvm, bits, *flags))
    for bits in (32, 64)
    for name, llvm, flags in (("popc", "ctpop", ()), ("clz", "ctlz", (0,)), ("brev", "bitreverse", ()))
}


@cache
def bit_count(name: str, bits: int) -> Operation:
    """popc, clz (results u32) and brev: `operation(a, out)`."""
    return row_kernel(f"{name}_{bits}", compiled(_forward(_COUNTS[name, bits])), 1)


def _forward(function: Callable[[Bits], Bits]) -> Callable[[Bits], Bits]:
    return lambda a: function(a)


@cache
def find_leading(kind: str, shiftamt: bool = False) -> Operation:
    """bfind: position of the leading bit that is not a sign bit, all ones if there is none: `operation(a, out)`.

    With `shiftamt` the left shift that brings it to the top.
    """
    bits, signed = split(kind)[1], kind[0] == "s"
    unsigned, typed = UNSIGNED[bits], SIGNED[bits]
    leading_zeros, last = _COUNTS["clz", bits], np.uint32(bits - 1)

    @compiled
    def scalar(a: Bits) -> Bits:
        value = unsigned(~a) if signed and typed(a) < typed(0) else unsigned(a)
        if value == unsigned(0):
            return np.uint32(0xFFFFFFFF)
        count = np.uint32(leading_zeros(value))
        return count if shiftamt else np.uint32(last - count)

    return row_kernel(f"bfind_{kind}{'_shiftamt' * shiftamt}", scalar, 1)


@cache
def find_nth_set() -> Operation:
    """fns.b32: `operation(mask, base, offset, out)`: the offset-th set bit from base, all ones if there is none."""

    @compiled
    def scalar(mask: Bits, base: Bits, offset: Bits) -> Bits:
        n, bit = np.int32(offset), np.int64(np.uint32(base))
        if np.uint32(offset) == np.uint32(0x80000000):
            # as on an H200, whatever the base
            return np.uint32(0)
        if bit >= 32:
            return np.uint32(0xFFFFFFFF)
        step = 1 if n >= 0 else -1
        left = abs(np.int64(n))
        if left == 0:
            return np.uint32(bit) if (mask >> np.uint32(bit)) & np.uint32(1) else np.uint32(0xFFFFFFFF)
        while 0 <= bit < 32:
            if (mask >> np.uint32(bit)) & np.uint32(1):
                left -= 1
                if left == 0:
                    return np.uint32(bit)
            bit += step
        return np.uint32(0xFFFFFFFF)

    return row_kernel("fns", scalar, 3)


@cache
def bit_mask(mode: str) -> Operation:
    """bmsk.b32, clamp or wrap: `operation(start, width, out)`."""
    clamps = mode == "clamp"

    @compiled
    def scalar(start: Bits, width: Bits) -> Bits:
        if clamps:
            first, count = np.uint64(min(start, np.uint32(32))), np.uint64(min(width, np.uint32(32)))
        else:
            first, count = np.uint64(start & np.uint32(31)), np.uint64(width & np.uint32(31))
        ones = (np.uint64(1) << count) - np.uint64(1)
        return np.uint32(ones << first)

    return row_kernel(f"bmsk_{mode}", scalar, 2)


@cache
def sign_extend(kind: str, mode: str) -> Operation:
    """szext, clamp or wrap: `operation(a, width, out)`: the low `width` bits, sign- or zero-extended."""
    signed, clamps = kind[0] == "s", mode == "clamp"

    @compiled
    def scalar(a: Bits, width: Bits) -> Bits:
        count = min(width, np.uint32(32)) if clamps else width & np.uint32(31)
        if count == np.uint32(0):
            return np.uint32(0)
        up = np.uint32(32 - count)
        high = np.uint32(a << up)
        return np.uint32(np.int32(high) >> np.int32(up)) if signed else np.uint32(high >> up)

    return row_kernel(f"szext_{kind}_{mode}", scalar, 2)


# by meaning in the ISA table
FACTORIES: dict[str, Factory] = {
    "and": lambda mods: logic("and"),
    "or": lambda mods: logic("or"),
    "xor": lambda mods: logic("xor"),
    "not": lambda mods: logic("not"),
    "cnot": lambda mods: logical_not,
    "shl": lambda mods: shift_left(int(mods["type"][1:])),
    "shr": lambda mods: shift_right(mods["type"]),
    "shf": lambda mods: funnel_shift(mods["dir"], mods["mode"]),
    "bfe": lambda mods: extract_field(mods["type"]),
    "bfi": lambda mods: insert_field(int(mods["type"][1:])),
    "bfind": lambda mods: find_leading(mods["type"], "shiftamt" in mods),
    "brev": lambda mods: bit_count("brev", int(mods["type"][1:])),
    "clz": lambda mods: bit_count("clz", int(mods["type"][1:])),
    "popc": lambda mods: bit_count("popc", int(mods["type"][1:])),
    "fns": lambda mods: find_nth_set(),
    "szext": lambda mods: sign_extend(mods["type"], mods["mode"]),
    "bmsk": lambda mods: bit_mask(mods["mode"]),
}
