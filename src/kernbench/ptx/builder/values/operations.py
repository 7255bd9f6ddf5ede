"""The methods of a context that registers and pointers use; `Context` has these and more."""

from typing import TYPE_CHECKING, Protocol, Unpack

from kernbench.ptx.builder.values.errors import PtxBuildError

if TYPE_CHECKING:
    from kernbench.ptx.builder.values.options import Arithmetic, Comparing, Converting, Logic, Selecting, Value
    from kernbench.ptx.builder.values.values import Inverted, Predicate, Register


class Body(Protocol):
    """The body that a context writes to, as needed for messages."""

    name: str


class Operations(Protocol):
    """Operators of a register are methods of its context: `a + b` is `context.add(a, b)`."""

    @property
    def body(self) -> Body:
        """The body it writes to."""
        ...

    def error(self, message: str) -> PtxBuildError:
        """An error at the current Python line."""
        ...

    def add(self, a: "Value", b: "Value", **how: "Unpack[Arithmetic]") -> "Register":
        """a + b."""
        ...

    def sub(self, a: "Value", b: "Value", **how: "Unpack[Arithmetic]") -> "Register":
        """a - b."""
        ...

    def mul(self, a: "Value", b: "Value", **how: "Unpack[Arithmetic]") -> "Register":
        """a * b."""
        ...

    def div(self, a: "Value", b: "Value", **how: "Unpack[Arithmetic]") -> "Register":
        """a / b."""
        ...

    def rem(self, a: "Value", b: "Value", **how: "Unpack[Arithmetic]") -> "Register":
        """The remainder of a / b."""
        ...

    def neg(self, a: "Register", **how: "Unpack[Arithmetic]") -> "Register":
        """-a."""
        ...

    def abs(self, a: "Register", **how: "Unpack[Arithmetic]") -> "Register":
        """|a|."""
        ...

    def and_(self, a: "Value", b: "Value", **how: "Unpack[Logic]") -> "Register":
        """a & b."""
        ...

    def or_(self, a: "Value", b: "Value", **how: "Unpack[Logic]") -> "Register":
        """a | b."""
        ...

    def xor(self, a: "Value", b: "Value", **how: "Unpack[Logic]") -> "Register":
        """a ^ b."""
        ...

    def not_(self, a: "Register", **how: "Unpack[Logic]") -> "Register":
        """~a."""
        ...

    def shl(self, a: "Value", count: "Value", **how: "Unpack[Logic]") -> "Register":
        """a << count."""
        ...

    def shr(self, a: "Value", count: "Value", **how: "Unpack[Logic]") -> "Register":
        """a >> count."""
        ...

    def bfe(self, a: "Value", start: "Value", length: "Value", **how: "Unpack[Logic]") -> "Register":
        """A bit field."""
        ...

    def setp(self, cmp: str, a: "Value", b: "Value", **how: "Unpack[Comparing]") -> "Predicate":
        """a `cmp` b."""
        ...

    def selp(self, yes: "Value", no: "Value", p: "Predicate | Inverted", **how: "Unpack[Selecting]") -> "Register":
        """`yes` if p holds, else `no`."""
        ...

    def mov(
        self, value: "Value", *, out: "Register | None" = None, pred: "Predicate | Inverted | None" = None
    ) -> "Register":
        """A copy, in `out` if given."""
        ...

    def cvt(self, value: "Register", type: str, **how: "Unpack[Converting]") -> "Register":
        """The value as another type."""
        ...

    def bitcast(self, value: "Register", type: str) -> "Register":
        """The same bits as another type."""
        ...

    def element_address(
        self, base: "Register", index: "Register", nbytes: int, out: "Register | None" = None
    ) -> "Register":
        """base + index * nbytes."""
        ...
