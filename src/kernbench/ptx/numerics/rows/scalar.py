"""Scalar building blocks of compiled kernels: bit casts, fused multiply-add, exact sums, rounding to a format."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from llvmlite import ir

from kernbench.common.compiled import Intrinsic as Instruction
from kernbench.common.compiled import Result, part
from kernbench.common.kept import Numba
from kernbench.common.native.kinds import Instruction as PlainInstruction
from kernbench.common.native.kinds import scalar_of

# types of values in compiled functions: numba infers the width at each use
Bits = np.unsignedinteger
Integer = np.integer
Real = np.floating | float
Flag = np.bool | bool
Value = np.number | Real

# a numba intrinsic: from argument types to its signature and its code generator
Values = Sequence[ir.Value]
Generator = Callable[[object, ir.IRBuilder, object, Values], ir.Value]
Intrinsic = tuple[Numba, Generator]
Typing = Callable[..., Intrinsic]

_LLVM = {32: ir.FloatType(), 64: ir.DoubleType()}


def type_named(name: str) -> Numba:
    """A type of numba by name: float32, uint64, ..."""
    from numba import types

    return getattr(types, name)


def instruction(typing: Typing, plain: PlainInstruction | None = None) -> Callable[..., Numba]:
    """An instruction that exists only in compiled code; `typing` is called when a function that uses it is compiled."""
    return Instruction(typing, plain)


def _plain(text: str, result: str, *given: str) -> PlainInstruction:
    """The same for loops that kernbench compiles itself: LLVM text, and NumPy's names of types."""
    return PlainInstruction(tuple(scalar_of(np.dtype(name)) for name in given), scalar_of(np.dtype(result)), text)


def _plain_call(name: str, result: str, given: str) -> PlainInstruction:
    """An LLVM intrinsic of one argument, named with its types, for loops that kernbench compiles itself."""
    to, of = scalar_of(np.dtype(result)), scalar_of(np.dtype(given))
    return PlainInstruction((of,), to, f"call {to.code} @llvm.{name}({of.code} {{0}})")


def _cast(result: str, argument: str, llvm: ir.Type) -> Typing:
    def typed(context: object, value: Numba) -> Intrinsic:
        def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
            return builder.bitcast(arguments[0], llvm)

        return type_named(result)(type_named(argument)), generate

    return typed


def _fused(name: str) -> Typing:
    def typed(context: object, a: Numba, b: Numba, c: Numba) -> Intrinsic:
        kind = type_named(name)

        def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
            return builder.fma(*arguments)

        return kind(kind, kind, kind), generate

    return typed


def _llvm_call(name: str, result: str, argument: str, llvm_result: ir.Type, llvm_argument: ir.Type) -> Typing:
    """An LLVM intrinsic of one argument, overloaded on both types if they differ."""
    overloads = [llvm_argument] if llvm_result is llvm_argument else [llvm_result, llvm_argument]

    def typed(context: object, value: Numba) -> Intrinsic:
        def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
            kind = ir.FunctionType(llvm_result, [llvm_argument])
            return builder.call(builder.module.declare_intrinsic(f"llvm.{name}", overloads, kind), arguments)

        return type_named(result)(type_named(argument)), generate

    return typed


_FLOAT_TYPES: dict[str, tuple[str, ir.Type]] = {"f32": ("float32", _LLVM[32]), "f64": ("float64", _LLVM[64])}


@cache
def integral(kind: str, rnd: str) -> Callable[[Real], Real]:
    """Compiled: f32 or f64 to an integral value of its own type: rni, rzi, rmi or rpi."""
    name = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}[rnd]
    typed, llvm = _FLOAT_TYPES[kind]
    plain = _plain_call(f"{name}.{kind}", typed, typed)
    function: Callable[[Real], Real] = instruction(_llvm_call(name, typed, typed, llvm, llvm), plain)
    return function


@cache
def saturating_integer(to: str, kind: str) -> Callable[[Real], Integer]:
    """Compiled: f32 or f64, truncated, to an integer type; saturates, and NaN gives 0."""
    letter, bits = to[0], int(to[1:])
    result = f"{'int' if letter == 's' else 'uint'}{bits}"
    typed, llvm = _FLOAT_TYPES[kind]
    name = f"fpto{'s' if letter == 's' else 'u'}i.sat"
    made = _llvm_call(name, result, typed, ir.IntType(bits), llvm)
    function: Callable[[Real], Integer] = instruction(made, _plain_call(f"{name}.i{bits}.{kind}", result, typed))
    return function


float32_of: Callable[[Bits], np.float32] = instruction(
    _cast("float32", "uint32", _LLVM[32]), _plain("bitcast i32 {0} to float", "f4", "u4")
)
bits_of_float32: Callable[[Real], np.uint32] = instruction(
    _cast("uint32", "float32", ir.IntType(32)), _plain("bitcast float {0} to i32", "u4", "f4")
)
float64_of: Callable[[Bits], np.float64] = instruction(
    _cast("float64", "uint64", _LLVM[64]), _plain("bitcast i64 {0} to double", "f8", "u8")
)
bits_of_float64: Callable[[Real], np.uint64] = instruction(
    _cast("uint64", "float64", ir.IntType(64)), _plain("bitcast double {0} to i64", "u8", "f8")
)
fma32: Callable[[Real, Real, Real], np.float32] = instruction(
    _fused("float32"), _plain("call float @llvm.fma.f32(float {0}, float {1}, float {2})", "f4", "f4", "f4", "f4")
)
fma64: Callable[[Real, Real, Real], np.float64] = instruction(
    _fused("float64"), _plain("call double @llvm.fma.f64(double {0}, double {1}, double {2})", "f8", "f8", "f8", "f8")
)


def compiled(function: Callable[..., Result]) -> Callable[..., Result]:
    """Mark a scalar function to be inlined into row kernels."""
    return part(function, error_model="numpy")


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format: exponent and mantissa bits, the largest finite code, and its special codes.

    `infinity` and `nan` are codes without sign, or None if the format has none.
    """

    name: str
    exponent: int
    mantissa: int
    largest: int
    infinity: int | None
    nan: int | None

    @property
    def bits(self) -> int:
        """Width, including the sign."""
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        """The exponent bias."""
        return (1 << (self.exponent - 1)) - 1


def _ieee(name: str, exponent: int, mantissa: int, nan: int) -> Format:
    infinity = ((1 << exponent) - 1) << mantissa
    return Format(name, exponent, mantissa, infinity - 1, infinity, nan)


# NaN results of arithmetic and conversions by format, as on an H200; f64 arithmetic propagates a NaN operand, quieted
# (see `floats`), and its entry here is the NaN of an invalid operation
FORMATS = {
    "f64": _ieee("f64", 11, 52, 0xFFF8_0000_0000_0000),
    "f32": _ieee("f32", 8, 23, 0x7FFF_FFFF),
    "f16": _ieee("f16", 5, 10, 0x7FFF),
    "bf16": _ieee("bf16", 8, 7, 0x7FFF),
    # tf32 is kept in the upper 19 bits of 32: codes here are those 19 bits
    "tf32": _ieee("tf32", 8, 10, 0x7FFF_E000 >> 13),
    "e5m2": _ieee("e5m2", 5, 2, 0x7F),
    "e4m3": Format("e4m3", 4, 3, 0x7E, None, 0x7F),
    "e3m2": Format("e3m2", 3, 2, 0x1F, None, None),
    "e2m3": Format("e2m3", 2, 3, 0x1F, None, None),
    "e2m1": Format("e2m1", 2, 1, 0x07, None, None),
}

ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
_RN, _RZ, _RM, _RP, _RNA = range(len(ROUNDINGS))


@cache
def widener(source: str) -> Callable[[Bits], np.float64]:
    """Compiled: code of a format below f64 -> the same value as a float64; NaN stays NaN (payload lost)."""
    form = FORMATS[source]
    shift = np.uint64(52 - form.mantissa)
    body = np.uint64((1 << (form.bits - 1)) - 1)
    special = np.uint64((form.infinity if form.infinity is not None else form.largest + 1) << (52 - form.mantissa))
    has_special = form.nan is not None
    is_ieee = form.infinity is not None
    sign_shift = np.uint64(64 - form.bits)
    sign_bit = np.uint64(1 << 63)
    # adjusts the exponent by the difference of the biases; exact, subnormals included
    scale = np.float64(2.0) ** (1023 - form.bias)
    infinite = np.uint64(0x7FF0_0000_0000_0000)

    @compiled
    def widen(code: Bits) -> np.float64:
        wide = np.uint64(code)
        magnitude = (wide & body) << shift
        value = bits_of_float64(float64_of(magnitude) * scale)
        if has_special and magnitude >= special:
            value = (magnitude | infinite) if is_ieee else np.uint64(0x7FF8_0000_0000_0000)
        return float64_of(value | ((wide << sign_shift) & sign_bit))

    return widen


_FRACTION = np.uint64((1 << 52) - 1)
_HIDDEN, _ONE, _ZERO, _WIDE = np.uint64(1 << 52), np.uint64(1), np.uint64(0), np.uint64(52)
_BODY, _INFINITE, _TOP = np.uint64((1 << 63) - 1), np.uint64(0x7FF0_0000_0000_0000), np.uint64(63)


@compiled
def _code_of(magnitude: np.uint64, negative: Flag, mantissa: int, bias: int, mode: int) -> np.uint64:
    """The code of float64 magnitude bits, without sign, rounded once; beyond the largest code on overflow.

    The format's parameters are arguments, so that this is compiled once for all formats; `mode` is an index into
    `ROUNDINGS`. Infinity gives a code beyond the largest, too; callers handle NaN.
    """
    exponent = np.int64(magnitude >> _WIDE) - 1023 + bias
    significand = (magnitude & _FRACTION) | _HIDDEN
    down = np.uint64(min(52 - mantissa + max(np.int64(0), 1 - exponent), np.int64(55)))
    kept = significand >> down
    rest = significand & ((_ONE << down) - _ONE)
    half = (_ONE << down) >> _ONE
    outwards = ((mode == _RP) & (not negative)) | ((mode == _RM) & negative)
    if mode == _RN:
        up = (rest > half) | ((rest == half) & ((kept & _ONE) == _ONE))
    elif mode == _RNA:
        up = rest >= half
    else:
        up = (rest > _ZERO) & outwards
    code = kept + np.uint64(up) + (np.uint64(max(exponent - 1, np.int64(0))) << np.uint64(mantissa))
    # a float64 subnormal or zero: below every format's range, so that only whether it is zero matters
    if magnitude < _HIDDEN:
        code = np.uint64((magnitude > _ZERO) & outwards)
    return code


@cache
def overflow_code(target: str, mode: str, satfinite: bool) -> tuple[int, int]:
    """The codes, without sign, of overflow to positive and to negative values."""
    form = FORMATS[target]
    if satfinite or form.infinity is None or mode == "rz":
        return form.largest, form.largest
    return (
        form.largest if mode == "rm" else form.infinity,
        form.largest if mode == "rp" else form.infinity,
    )


@cache
def narrower(target: str, mode: str = "rn", satfinite: bool = False) -> Callable[[Real], np.uint64]:
    """Compiled: float64 -> code of a narrower format with sign, rounded once; NaN gives the format's NaN.

    With `satfinite` values beyond the largest, infinities too, become the largest. In a format without NaN it becomes
    the largest positive value.
    """
    form = FORMATS[target]
    mantissa, bias, rounding = form.mantissa, form.bias, ROUNDINGS.index(mode)
    largest = np.uint64(form.largest)
    over_positive, over_negative = (np.uint64(code) for code in overflow_code(target, mode, satfinite))
    infinity = over_positive if satfinite or form.infinity is None else np.uint64(form.infinity)
    nan = np.uint64(form.nan if form.nan is not None else form.largest)
    sign_shift = np.uint64(form.bits - 1)

    @compiled
    def narrow(value: Real) -> np.uint64:
        return _narrowed(
            value, mantissa, bias, rounding, largest, over_positive, over_negative, infinity, nan, sign_shift
        )

    return narrow


@compiled
def _narrowed(
    value: Real,
    mantissa: int,
    bias: int,
    mode: int,
    largest: np.uint64,
    over_positive: np.uint64,
    over_negative: np.uint64,
    infinity: np.uint64,
    nan: np.uint64,
    sign_shift: np.uint64,
) -> np.uint64:
    bits = bits_of_float64(value)
    magnitude = bits & _BODY
    sign = bits >> _TOP
    negative = sign != _ZERO
    code = _code_of(magnitude, negative, mantissa, bias, mode)
    if code > largest:
        code = over_negative if negative else over_positive
    if magnitude == _INFINITE:
        code = infinity
    code |= sign << sign_shift
    if magnitude > _INFINITE:
        code = nan
    return code


@compiled
def odd_sum(a: Real, b: Real) -> np.float64:
    """a + b in float64, rounded to odd, so that a further rounding to at most 51 bits is that of the exact sum."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    bits = bits_of_float64(total)
    one = np.uint64(1)
    # inexact and even: step to the odd neighbour on the error's side; infinities and NaN have a NaN error or none
    even = (bits & one) ^ one
    step = even if (error > 0.0) | (error < 0.0) else np.uint64(0)
    stepped = bits + step if (error > 0.0) == (total > 0.0) else bits - step
    return float64_of(stepped)
