"""Arithmetic: integers and floats, with in-place forms.

Every method takes the modifiers of its instruction by the names the ISA table gives their slots (`rnd="rz"`,
`ftz=True`, `sat=True`, `mode="approx"`), `out=` for a register to set, and `pred=` for a guard. Sums and products of
floats round to nearest explicitly, so that no assembler fuses them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.banks import scalar
from kernbench.ptx.builder.values.options import Arithmetic as Options
from kernbench.ptx.builder.values.options import Modifiers, ProductModifiers, Products, Value
from kernbench.ptx.builder.values.values import Predicate, Register

__kernbench_internal__ = True

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


def in_place(name: str) -> Callable[..., Register]:
    """The method that writes to its first operand: `ctx.add_(a, b)` is `ctx.add(a, b, out=a)`."""

    def method(self: Issuer, target: Register, *values: Value, **how: object) -> Register:
        result: Register = getattr(self, name)(target, *values, out=target, **how)
        return result

    method.__name__ = f"{name}_"
    method.__doc__ = f"`{name}` that sets its first operand."
    return method


class Arithmetic(Issuer):
    """Sums, products, quotients, extremes and functions."""

    def _arith(
        self,
        opcode: str,
        values: tuple[Value, ...],
        how: Mapping[str, object],
        rnd: str = "",
        by: Sequence[Value] | None = None,
    ) -> Register:
        """An instruction on values of one type; `rnd` is the default rounding of floats."""
        if rnd and "rnd" not in how and "mode" not in how and self._is_float(opcode, values):
            how = {**how, "rnd": rnd}
        return self.typed(opcode, values, how, by=by)

    def _is_float(self, opcode: str, values: tuple[Value, ...]) -> bool:
        type = scalar(self.common_type(opcode, values))
        return type.kind == "f" or (type.kind == "x" and scalar(type.lane).kind == "f")

    def add(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """a + b."""
        return self._arith("add", (a, b), how, "rn")

    def sub(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """a - b."""
        return self._arith("sub", (a, b), how, "rn")

    def mul(self, a: Value, b: Value, **how: Unpack[Products]) -> Register:
        """a * b: for integers the low half (`part="hi"` the high one, `part="wide"` all of it)."""
        if not self._is_float("mul", (a, b)):
            how.setdefault("part", "lo")
        return self._arith("mul", (a, b), how, "rn")

    def mul_wide(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """a * b of integers, twice as wide."""
        return self.mul(a, b, part="wide", **how)

    def mul_hi(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """The high half of a * b of integers."""
        return self.mul(a, b, part="hi", **how)

    def mad(self, a: Value, b: Value, c: Value, **how: Unpack[Products]) -> Register:
        """a * b + c of integers: the low half, `part="hi"` the high one, `part="wide"` all of it with a wide c."""
        how.setdefault("part", "lo")
        return self._arith("mad", (a, b, c), how, by=(a, b))

    def mad_wide(self, a: Value, b: Value, c: Value, **how: Unpack[Options]) -> Register:
        """a * b + c with a product and sum twice as wide as a and b."""
        return self.mad(a, b, c, part="wide", **how)

    def fma(self, a: Value, b: Value, c: Value, **how: Unpack[Options]) -> Register:
        """a * b + c of floats, rounded once."""
        return self._arith("fma", (a, b, c), how, "rn")

    def fma_(self, target: Register, a: Value, b: Value, **how: Unpack[Modifiers]) -> Register:
        """target = a * b + target, rounded once."""
        return self.fma(a, b, target, out=target, **how)

    def mad_(self, target: Register, a: Value, b: Value, **how: Unpack[ProductModifiers]) -> Register:
        """target = a * b + target of integers."""
        return self.mad(a, b, target, out=target, **how)

    def div(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """a / b: integers towards zero, floats to nearest (`mode="approx"` or "full" for the fast ones)."""
        return self._arith("div", (a, b), how, "rn")

    def rem(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """The remainder of integers, with the sign of a."""
        return self._arith("rem", (a, b), how)

    def neg(self, a: Register, **how: Unpack[Options]) -> Register:
        """-a."""
        return self._arith("neg", (a,), how)

    def abs(self, a: Register, **how: Unpack[Options]) -> Register:
        """|a|."""
        return self._arith("abs", (a,), how)

    def min(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """The smaller one."""
        return self._arith("min", (a, b), how)

    def max(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """The larger one."""
        return self._arith("max", (a, b), how)

    def sad(self, a: Value, b: Value, c: Value, **how: Unpack[Options]) -> Register:
        """|a - b| + c of integers."""
        return self._arith("sad", (a, b, c), how)

    def mul24(self, a: Value, b: Value, **how: Unpack[Products]) -> Register:
        """The product of the low 24 bits of a and b."""
        return self._arith("mul24", (a, b), {"part": "lo", **how})

    def mad24(self, a: Value, b: Value, c: Value, **how: Unpack[Products]) -> Register:
        """The product of the low 24 bits of a and b, plus c."""
        return self._arith("mad24", (a, b, c), {"part": "lo", **how})

    def addc(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """a + b + carry; `add(..., cc=True)` sets the carry, `cc=True` here as well."""
        return self._arith("addc", (a, b), how)

    def subc(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """a - b - borrow."""
        return self._arith("subc", (a, b), how)

    def madc(self, a: Value, b: Value, c: Value, **how: Unpack[Products]) -> Register:
        """a * b + c + carry."""
        return self._arith("madc", (a, b, c), {"part": "lo", **how})

    def dp4a(self, a: Register, b: Register, c: Value, **how: Unpack[Options]) -> Register:
        """c plus the dot product of four bytes each of a and b; signed where a and b are s32."""
        return self._dot("dp4a", a, b, c, how)

    def dp2a(self, a: Register, b: Register, c: Value, **how: Unpack[Products]) -> Register:
        """c plus the dot product of two 16-bit values of a with two bytes of b, `part="lo"` or "hi"."""
        return self._dot("dp2a", a, b, c, {"part": "lo", **how})

    def _dot(self, opcode: str, a: Register, b: Register, c: Value, how: Mapping[str, object]) -> Register:
        types = {"atype": _signedness(self, opcode, a), "btype": _signedness(self, opcode, b)}
        signed = "s32" in types.values()
        result: Register = self.issue(opcode, {**how, **types}, (a, b, _signed_number(c)))
        if signed and "out" not in how:
            result.type = "s32"
        return result

    # Functions of floats

    def rcp(self, a: Register, **how: Unpack[Options]) -> Register:
        """1 / a, to nearest (`mode="approx"` for the fast one)."""
        return self._arith("rcp", (a,), how, "rn")

    def sqrt(self, a: Register, **how: Unpack[Options]) -> Register:
        """The square root, to nearest (`mode="approx"` for the fast one)."""
        return self._arith("sqrt", (a,), how, "rn")

    def rsqrt(self, a: Register, **how: Unpack[Options]) -> Register:
        """1 / sqrt(a), approximately."""
        return self._arith("rsqrt", (a,), {"mode": "approx", **how})

    def ex2(self, a: Register, **how: Unpack[Options]) -> Register:
        """2 to the power a, approximately."""
        return self._arith("ex2", (a,), {"mode": "approx", **how})

    def lg2(self, a: Register, **how: Unpack[Options]) -> Register:
        """The logarithm to base 2, approximately."""
        return self._arith("lg2", (a,), {"mode": "approx", **how})

    def sin(self, a: Register, **how: Unpack[Options]) -> Register:
        """The sine, approximately."""
        return self._arith("sin", (a,), {"mode": "approx", **how})

    def cos(self, a: Register, **how: Unpack[Options]) -> Register:
        """The cosine, approximately."""
        return self._arith("cos", (a,), {"mode": "approx", **how})

    def tanh(self, a: Register, **how: Unpack[Options]) -> Register:
        """The hyperbolic tangent, approximately."""
        return self._arith("tanh", (a,), {"mode": "approx", **how})

    def exp(self, a: Register, **how: Unpack[Options]) -> Register:
        """e to the power a: `ex2` of a * log2(e)."""
        return self.ex2(self.mul(a, LOG2_E), **how)

    def log(self, a: Register, **how: Unpack[Options]) -> Register:
        """The natural logarithm: `lg2` times ln(2)."""
        return self.mul(self.lg2(a), LN_2, **how)

    def copysign(self, sign: Value, a: Value, **how: Unpack[Options]) -> Register:
        """a with the sign of `sign`."""
        return self._arith("copysign", (sign, a), how)

    def testp(self, op: str, a: Register, **how: Unpack[Options]) -> Predicate:
        """Is a "finite", "infinite", "number", "notanumber", "normal" or "subnormal"?"""
        result = self._arith("testp", (a,), {"op": op, **how})
        assert isinstance(result, Predicate)
        return result

    add_ = in_place("add")
    sub_ = in_place("sub")
    mul_ = in_place("mul")
    div_ = in_place("div")
    rem_ = in_place("rem")
    min_ = in_place("min")
    max_ = in_place("max")
    neg_ = in_place("neg")
    abs_ = in_place("abs")


def _signedness(issuer: Issuer, opcode: str, value: Register) -> str:
    if not isinstance(value, Register) or value.type not in ("u32", "s32", "b32"):
        raise issuer.error(f"{opcode} of {value!r}: a register of packed bytes, u32 or s32, is wanted")
    return "s32" if value.type == "s32" else "u32"


def _signed_number(value: Value) -> Value:
    """A negative number, as its 32 bits."""
    return value & 0xFFFFFFFF if isinstance(value, int) and value < 0 else value
