"""Logic, shifts and bit fields, on integers, bits and predicates."""

from collections.abc import Mapping, Sequence
from typing import Unpack

from kernbench.ptx.builder.instructions.arith import in_place
from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.options import Computing, Value
from kernbench.ptx.builder.values.options import Logic as Options
from kernbench.ptx.builder.values.values import Register

__kernbench_internal__ = True

_INTEGERS = "usb"


class Logic(Issuer):
    """Operations on bits; integers are passed as bits if PTX has only those."""

    def _logic(
        self, opcode: str, values: tuple[Value, ...], how: Mapping[str, object], more: Sequence[Value] = ()
    ) -> Register:
        return self.typed(opcode, values, how, bits=_INTEGERS, more=more)

    def and_(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """a & b, of bits or predicates."""
        return self._logic("and", (a, b), how)

    def or_(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """a | b, of bits or predicates."""
        return self._logic("or", (a, b), how)

    def xor(self, a: Value, b: Value, **how: Unpack[Options]) -> Register:
        """a ^ b, of bits or predicates."""
        return self._logic("xor", (a, b), how)

    def not_(self, a: Register, **how: Unpack[Options]) -> Register:
        """~a, of bits or a predicate."""
        return self._logic("not", (a,), how)

    def cnot(self, a: Register, **how: Unpack[Options]) -> Register:
        """1 if a is 0, else 0."""
        return self._logic("cnot", (a,), how)

    def shl(self, a: Value, count: Value, **how: Unpack[Options]) -> Register:
        """a << count."""
        return self._logic("shl", (a,), how, more=(count,))

    def shr(self, a: Value, count: Value, **how: Unpack[Options]) -> Register:
        """a >> count; arithmetic for signed types."""
        return self._logic("shr", (a,), how, more=(count,))

    def shf(
        self, direction: str, low: Value, high: Value, count: Value, mode: str = "clamp", **how: Unpack[Computing]
    ) -> Register:
        """32 of the 64 bits high:low, shifted: `direction` "l" or "r", `mode` "clamp" or "wrap"."""
        return self._logic("shf", (low, high), {"dir": direction, "mode": mode, **how}, more=(count,))

    def lop3(self, a: Value, b: Value, c: Value, lut: int, **how: Unpack[Options]) -> Register:
        """Any logic of three values: bit (a << 2 | b << 1 | c) of `lut`."""
        return self._logic("lop3", (a, b, c), how, more=(lut,))

    def bfe(self, a: Value, start: Value, length: Value, **how: Unpack[Options]) -> Register:
        """A bit field, sign-extended if a is signed."""
        return self._logic("bfe", (a,), how, more=(start, length))

    def bfi(self, field: Value, into: Value, start: Value, length: Value, **how: Unpack[Options]) -> Register:
        """`into` with a bit field replaced."""
        return self._logic("bfi", (field, into), how, more=(start, length))

    def bfind(self, a: Register, **how: Unpack[Options]) -> Register:
        """The position of the highest bit that is not a sign bit, 0xffffffff if there is none."""
        return self._logic("bfind", (a,), how)

    def brev(self, a: Register, **how: Unpack[Options]) -> Register:
        """The bits in reverse order."""
        return self._logic("brev", (a,), how)

    def clz(self, a: Register, **how: Unpack[Options]) -> Register:
        """The number of leading zeros."""
        return self._count("clz", a, how)

    def popc(self, a: Register, **how: Unpack[Options]) -> Register:
        """The number of ones (population count)."""
        return self._count("popc", a, how)

    def _count(self, opcode: str, a: Register, how: Mapping[str, object]) -> Register:
        return self._logic(opcode, (a,), how)

    def fns(self, mask: Value, base: Value, offset: Value, **how: Unpack[Options]) -> Register:
        """The position of the `offset`-th 1 in `mask`, counted from `base`."""
        return self._logic("fns", (mask,), {"type": "b32", **how}, more=(base, offset))

    def szext(self, a: Value, bits: Value, mode: str = "clamp", **how: Unpack[Computing]) -> Register:
        """The low `bits` bits of a, sign- or zero-extended."""
        return self._logic("szext", (a,), {"mode": mode, **how}, more=(bits,))

    def bmsk(self, start: Value, count: Value, mode: str = "clamp", **how: Unpack[Computing]) -> Register:
        """A mask of `count` ones from bit `start` on."""
        return self._logic("bmsk", (start, count), {"mode": mode, **how})

    def prmt(self, a: Value, b: Value, selector: Value, **how: Unpack[Options]) -> Register:
        """Four bytes selected from the eight of b:a."""
        return self._logic("prmt", (a, b), how, more=(selector,))

    xor_ = in_place("xor")
    shl_ = in_place("shl")
    shr_ = in_place("shr")
