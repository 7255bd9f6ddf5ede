"""Video instructions over rows of 32-bit registers: parts are extracted, computed in 64 bits, and inserted.

A part is "" (the whole register), "b0" to "b3" or "h0", "h1"; for packed instructions the parts of both sources
together, the highest lane first ("b7531"), and the lanes of the result that are written ("b20").

Current GPUs have no such unit: ptxas emits ordinary instructions, which do not always follow the ISA's text. What they
compute is computed here. Into the upper half of a register goes the upper half of the value. The second operation of
vset takes its sign from the first source. Minimum and maximum compare 64 bits: for a sum, a difference or a saturated
shift the sign extension of the lower 32, for others the whole value. `.sat` has rules of its own (`_limited`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.numerics.rows.loops import Mods

Rows = NDArray[np.integer]
_WIDTHS = {"": 32, "b": 8, "h": 16}


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the result and the sources that an instruction names."""

    d: str = ""
    a: str = ""
    b: str = ""


def _average(a: Rows, b: Rows) -> Rows:
    total = a + b
    return (total + (total >= 0)) >> 1


_VALUES: dict[str, Callable[[Rows, Rows], Rows]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vavrg": _average,
    "vshl": lambda a, b: a << b,
    "vshr": lambda a, b: a >> b,
}
_COMPARED = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _extended(bits: Rows, width: int, signed: bool) -> Rows:
    """The lowest bits as int64."""
    kept = bits.astype(np.int64) & ((1 << width) - 1)
    return (kept ^ (1 << width - 1)) - (1 << width - 1) if signed else kept


def _taken(row: Rows, part: str, signed: bool) -> Rows:
    width = _WIDTHS[part[:1]]
    shift = width * int(part[1:] or 0)
    return _extended(row.astype(np.int64) >> shift, width, signed)


def _saturated(value: Rows, width: int, signed: bool) -> Rows:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return np.clip(value, low, high)


def _signed(mods: Mods, name: str) -> bool:
    return bool(mods.get(name, "u32") == "s32")


def _value(opcode: str, mods: Mods) -> Callable[[Rows, Rows], Rows]:
    if "cmp" in mods:
        compare = _COMPARED[mods["cmp"]]
        return lambda a, b: compare(a, b).astype(np.int64)
    if "mode" in mods:
        shift = _VALUES[opcode]
        if mods["mode"] == "clamp":
            return lambda a, b: shift(a, np.minimum(b, 32))
        return lambda a, b: shift(a, b & 31)
    return _VALUES[opcode.rstrip("24")]


def scalar(opcode: str, mods: Mods, parts: Parts) -> Callable[..., None]:
    """vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr, vset: `function(a, b[, c], out)`."""
    compute, second = _value(opcode, mods), mods.get("second", "")
    signs = {name: _signed(mods, name) for name in ("dtype", "atype", "btype")}
    width = _WIDTHS[parts.d[:1]]
    shift = width * int(parts.d[1:] or 0)
    # signedness of the comparison, and whether it sees only the lower 32 bits of the value
    ordered = signs["atype" if opcode == "vset" else "dtype"]
    wraps = opcode in ("vadd", "vsub") or ("sat" in mods and "mode" in mods)

    def function(a: Rows, b: Rows, *more: Rows) -> None:
        value = compute(_taken(a, parts.a, signs["atype"]), _taken(b, parts.b, signs["btype"]))
        if "sat" in mods:
            value = _limited(opcode, value, width, signs["dtype"])
        *rest, out = more
        if second:
            value = _combined(second, _extended(value, 32, True) if wraps else value, rest[0], ordered)
        elif rest:
            kept = ((1 << width) - 1) << shift
            put = value if parts.d == "h1" else value << shift
            value = (rest[0].astype(np.int64) & ~kept) | (put & kept)
        out[...] = value.astype(np.uint32)

    return function


def _limited(opcode: str, value: Rows, width: int, signed: bool) -> Rows:
    """A value under `.sat`, as in the code that ptxas emits.

    A shift is limited to 32 bits, whatever part of the result is written, and of a left shift only 34 bits are tested.
    For the others, a part gets its largest number for any value out of range, negative ones, too; a whole signed result
    is clamped as in the ISA, and a whole unsigned one is not limited above.
    """
    if opcode in ("vshl", "vshr"):
        return _saturated(_extended(value, 34, True) if opcode == "vshl" else value, 32, signed)
    if width < 32:
        most = (1 << width - signed) - 1
        return np.where((value < 0) | (value > most), most, value)
    return _saturated(value, 32, True) if signed else np.maximum(value, 0)


def _combined(second: str, value: Rows, c: Rows, signed: bool) -> Rows:
    """The second operation, over signed or unsigned 64 bits."""
    other = _extended(c, 32, signed)
    if second == "add":
        return value + other
    pick = np.minimum if second == "min" else np.maximum
    return pick(value, other) if signed else pick(value.view(np.uint64), other.view(np.uint64)).view(np.int64)


def multiply_add(mods: Mods, parts: Parts) -> Callable[..., None]:
    """vmad: a 64-bit product, an addend, perhaps one more, scaled and saturated.

    As on an H200 the parts and the addend are signed 32-bit numbers, whatever their types; these determine how the sum
    is shifted and saturated.
    """
    signs = {name: _signed(mods, name) for name in ("atype", "btype")}
    signed = signs["atype"] or signs["btype"]
    shift = int(mods.get("scale", "shr0")[3:])
    logical = shift and not signed and "sat" in mods

    def function(a: Rows, b: Rows, c: Rows, out: Rows) -> None:
        left, right = _taken(a, parts.a, signs["atype"]), _taken(b, parts.b, signs["btype"])
        value = _extended(left, 32, True) * _extended(right, 32, True) + _extended(c, 32, True) + ("po" in mods)
        value = (value.view(np.uint64) >> np.uint64(shift)).view(np.int64) if logical else value >> shift
        out[...] = (_saturated(value, 32, signed) if "sat" in mods else value).astype(np.uint32)

    return function


def packed(opcode: str, mods: Mods, parts: Parts) -> Callable[..., None]:
    """The instructions on two or four lanes: `function(a, b, c, out)`."""
    lanes = int(opcode[-1])
    width, letter = 32 // lanes, "b" if lanes == 4 else "h"
    compute, order = _value(opcode, mods), "".join(map(str, reversed(range(lanes))))
    first = (parts.a or letter + order)[:0:-1]
    other = (parts.b or letter + "".join(str(int(n) + lanes) for n in order))[:0:-1]
    written = [int(n) for n in (parts.d or letter + order)[1:]]
    signs = {name: _signed(mods, name) for name in ("dtype", "atype", "btype")}

    def function(a: Rows, b: Rows, c: Rows, out: Rows) -> None:
        both = a.astype(np.int64) | (b.astype(np.int64) << 32)
        result, total = c.astype(np.int64), c.astype(np.int64)
        for lane in written:
            left = _extended(both >> (width * int(first[lane])), width, signs["atype"])
            right = _extended(both >> (width * int(other[lane])), width, signs["btype"])
            value = compute(left, right)
            if "sat" in mods:
                value = _saturated(value, width, signs["dtype"])
            kept = ((1 << width) - 1) << width * lane
            result = (result & ~kept) | ((value << (width * lane)) & kept)
            total = total + value
        out[...] = (total if "second" in mods else result).astype(np.uint32)

    return function
