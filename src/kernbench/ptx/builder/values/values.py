"""Values of builder programs: typed registers, predicates, labels.

A register is a variable of the kernel: `a + b` makes a new one, `a += b` changes `a` itself, wherever it is used.
"""

from typing import TYPE_CHECKING, NoReturn, TypeGuard, Unpack

from kernbench.ptx.builder.values.banks import scalar
from kernbench.ptx.builder.values.operations import Operations

if TYPE_CHECKING:
    from kernbench.ptx.builder.values.options import Condition, Converting, Value

__kernbench_internal__ = True


class Register:
    """A register of one kernel with its type; made by the methods of a context."""

    __slots__ = ("context", "name", "type")
    # makes NumPy scalars defer operators to the register
    __array_ufunc__ = None

    def __init__(self, context: Operations, name: str, type: str):
        self.context = context
        self.name = name
        self.type = type

    def __repr__(self) -> str:
        return f"<{self.type} {self.name}>"

    def __str__(self) -> str:
        """Its name, as used in expressions of `ctx.checkpoint`."""
        return self.name

    def __bool__(self) -> NoReturn:
        raise self.context.error(
            f"{self.name} has no value while the kernel is built: branch on it with `with ctx.if_(p):`, or choose "
            "with ctx.selp"
        )

    def __iter__(self) -> NoReturn:
        raise self.context.error(f"{self.name} is one register, not several: ctx.unpack takes one apart")

    if not TYPE_CHECKING:
        # raises an error; to a type checker a register is no number
        def __index__(self):
            raise self.context.error(
                f"{self.name} has no value while the kernel is built: for a loop write `with ctx.loop(...)`, for a "
                "size or a number in Python give one that is known now"
            )

        __int__ = __float__ = __index__

    __hash__ = object.__hash__

    @property
    def kind(self) -> str:
        """The type's kind: b, u, s, f, x or p."""
        return scalar(self.type).kind

    def to(self, type: str, **how: "Unpack[Converting]") -> "Register":
        """This value as another type; with `rnd`, `sat`, `ftz`, `relu`, `satfinite` if the conversion has them."""
        return self.context.cvt(self, type, **how)

    def bits(self, type: str) -> "Register":
        """The same bits as another type of the same width."""
        return self.context.bitcast(self, type)

    def copy(self) -> "Register":
        """A new register with this value."""
        return self.context.mov(self)

    def set(self, value: "Value", *, pred: "Condition | None" = None) -> None:
        """Set this register, in the threads for which `pred` holds."""
        self.context.mov(value, out=self, pred=pred)

    def __add__(self, other: "Value") -> "Register":
        return self.context.add(self, other)

    def __radd__(self, other: "Value") -> "Register":
        return self.context.add(other, self)

    def __iadd__(self, other: "Value") -> "Register":
        return self.context.add(self, other, out=self)

    def __sub__(self, other: "Value") -> "Register":
        return self.context.sub(self, other)

    def __rsub__(self, other: "Value") -> "Register":
        return self.context.sub(other, self)

    def __isub__(self, other: "Value") -> "Register":
        return self.context.sub(self, other, out=self)

    def __mul__(self, other: "Value") -> "Register":
        return self.context.mul(self, other)

    def __rmul__(self, other: "Value") -> "Register":
        return self.context.mul(other, self)

    def __imul__(self, other: "Value") -> "Register":
        return self.context.mul(self, other, out=self)

    def __truediv__(self, other: "Value") -> "Register":
        return self.context.div(self._float(), other)

    def __rtruediv__(self, other: "Value") -> "Register":
        return self.context.div(other, self._float())

    def __itruediv__(self, other: "Value") -> "Register":
        return self.context.div(self._float(), other, out=self)

    def __floordiv__(self, other: "Value") -> "Register":
        if self._is_power(other):
            return self.context.shr(self, other.bit_length() - 1)
        return self.context.div(self._integer(), other)

    def __rfloordiv__(self, other: "Value") -> "Register":
        return self.context.div(other, self._integer())

    def __ifloordiv__(self, other: "Value") -> "Register":
        if self._is_power(other):
            return self.context.shr(self, other.bit_length() - 1, out=self)
        return self.context.div(self._integer(), other, out=self)

    def __mod__(self, other: "Value") -> "Register":
        if self._is_power(other):
            return self.context.and_(self, other - 1)
        return self.context.rem(self, other)

    def __rmod__(self, other: "Value") -> "Register":
        return self.context.rem(other, self)

    def __imod__(self, other: "Value") -> "Register":
        if self._is_power(other):
            return self.context.and_(self, other - 1, out=self)
        return self.context.rem(self, other, out=self)

    def __and__(self, other: "Value") -> "Register":
        return self.context.and_(self, other)

    def __rand__(self, other: "Value") -> "Register":
        return self.context.and_(other, self)

    def __iand__(self, other: "Value") -> "Register":
        return self.context.and_(self, other, out=self)

    def __or__(self, other: "Value") -> "Register":
        return self.context.or_(self, other)

    def __ror__(self, other: "Value") -> "Register":
        return self.context.or_(other, self)

    def __ior__(self, other: "Value") -> "Register":
        return self.context.or_(self, other, out=self)

    def __xor__(self, other: "Value") -> "Register":
        return self.context.xor(self, other)

    def __rxor__(self, other: "Value") -> "Register":
        return self.context.xor(other, self)

    def __ixor__(self, other: "Value") -> "Register":
        return self.context.xor(self, other, out=self)

    def __lshift__(self, other: "Value") -> "Register":
        return self.context.shl(self, other)

    def __ilshift__(self, other: "Value") -> "Register":
        return self.context.shl(self, other, out=self)

    def __rshift__(self, other: "Value") -> "Register":
        return self.context.shr(self, other)

    def __irshift__(self, other: "Value") -> "Register":
        return self.context.shr(self, other, out=self)

    def __invert__(self) -> "Register":
        return self.context.not_(self)

    def __neg__(self) -> "Register":
        return self.context.neg(self)

    def __abs__(self) -> "Register":
        return self.context.abs(self)

    def __lt__(self, other: "Value") -> "Predicate":
        return self.context.setp("lt", self, other)

    def __le__(self, other: "Value") -> "Predicate":
        return self.context.setp("le", self, other)

    def __gt__(self, other: "Value") -> "Predicate":
        return self.context.setp("gt", self, other)

    def __ge__(self, other: "Value") -> "Predicate":
        return self.context.setp("ge", self, other)

    def __eq__(self, other: "Value") -> "Predicate":  # type: ignore[override]
        return self.context.setp("eq", self, other)

    def __ne__(self, other: "Value") -> "Predicate":  # type: ignore[override]
        return self.context.setp("ne", self, other)

    def _float(self) -> "Register":
        if self.kind not in "fx":
            raise self.context.error(f"{self!r} / ...: integers divide with //, which rounds towards zero as PTX does")
        return self

    def _is_power(self, other: "Value") -> TypeGuard[int]:
        """Whether a division can be done by a shift or a mask: of an unsigned value by a power of two.

        Otherwise ptxas needs 20 instructions. Signed values are excluded, as they are divided towards zero.
        """
        if self.kind != "u" or not isinstance(other, int) or isinstance(other, bool):
            return False
        return 0 < other < 1 << scalar(self.type).bits and not other & (other - 1)

    def _integer(self) -> "Register":
        if self.kind not in "us":
            raise self.context.error(f"{self!r} // ...: floats divide with /")
        return self


class Predicate(Register):
    """A one-bit register: the result of a comparison, and the condition of branches and masks."""

    __slots__ = ()

    @property
    def inverted(self) -> "Inverted":
        """The inverted predicate, for a guard or mask, without an instruction."""
        return Inverted(self)

    def select(self, yes: "Value", no: "Value") -> Register:
        """`yes` if the predicate holds, else `no`."""
        return self.context.selp(yes, no, self)


class Inverted:
    """An inverted predicate, for operands written `!%p`."""

    __slots__ = ("operand",)

    def __init__(self, operand: Predicate):
        self.operand = operand

    def __repr__(self) -> str:
        return f"<not {self.operand.name}>"

    @property
    def inverted(self) -> Predicate:
        """The predicate itself."""
        return self.operand


class Label:
    """A target of branches; `ctx.place(label)` defines its position."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<label {self.name}>"
