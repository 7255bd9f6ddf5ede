"""Values of a run as LLVM's language has them: some lanes of one register each, and what is computed of them.

Operators of a `Value` write an instruction and give its result, so that what an instruction means reads here as it does
in `kernbench.ptx.numerics`. All values are whole numbers of a register's bits; predicates have one bit. Functions whose
names begin with `f` take the bits for floating-point numbers.
"""

from collections.abc import Callable, Sequence
from typing import Union

# lanes that one instruction of the machine code computes; rows have a multiple of 32
WIDTH = 8
_FLOATS = {32: "float", 64: "double"}


def kind(bits: int) -> str:
    """The type of some lanes of a register."""
    return f"<{WIDTH} x i{bits}>"


def real(bits: int) -> str:
    """The same as floating-point numbers."""
    return f"<{WIDTH} x {_FLOATS[bits]}>"


class NotFused(Exception):  # noqa: N818
    """Something that a run of machine code does not compute; its step runs by itself."""


class Lines:
    """Instructions of one function, what they call, and the tables that they read."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self._count = 0

    def put(self, text: str) -> str:
        """The name of an instruction's result."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def over_lanes(self, head: str, begins: Sequence[str]) -> str:
        """The function with this head: what comes before its loop up to `%count`, and the lines for all lanes."""
        return "\n".join(
            (
                *self.tables.values(),
                *self.declared.values(),
                *self.functions.values(),
                f"define {head} nounwind {{",
                "entry:",
                *begins,
                "  br label %loop",
                "loop:",
                "  %lane = phi i64 [ 0, %entry ], [ %next, %loop ]",
                *self.lines,
                f"  %next = add i64 %lane, {WIDTH}",
                "  %more = icmp ult i64 %next, %count",
                "  br i1 %more, label %loop, label %end",
                "end:",
                "  ret void",
                "}\n",
            )
        )

    def value(self, bits: int, text: str) -> "Value":
        """The result of an instruction as a value."""
        return Value(self, bits, self.put(text))

    def constant(self, bits: int, number: int) -> "Value":
        """The same number in all lanes."""
        number &= (1 << bits) - 1
        return Value(self, bits, f"<{', '.join([f'i{bits} {number}'] * WIDTH)}>")

    def call(self, name: str, result: str, *given: tuple[str, str]) -> str:
        """The result of one of LLVM's own functions, for arguments with their types."""
        self.declared[name] = f"declare {result} @{name}({', '.join(typed for typed, _ in given)})"
        return self.put(f"call {result} @{name}({', '.join(f'{typed} {text}' for typed, text in given)})")

    def apart(self, name: str, compute: "Callable[[Value], Value]", a: "Value") -> "Value":
        """What is computed of a value, in a function of its own: long ones take long to compile wherever they stand."""
        typed = kind(a.bits)
        if name not in self.functions:
            inner = Lines()
            result = compute(Value(inner, a.bits, "%a"))
            self.declared |= inner.declared
            self.tables |= inner.tables
            head = f"define internal {kind(result.bits)} @{name}({typed} %a) noinline nounwind {{"
            self.functions[name] = "\n".join((head, *inner.lines, f"  ret {kind(result.bits)} {result.name}", "}"))
        return self.value(a.bits, f"call {typed} @{name}({typed} {a.name})")


Operand = Union["Value", int]


class Value:
    """Some lanes of a register, or of what is computed from registers."""

    __slots__ = ("bits", "lines", "name")

    def __init__(self, lines: Lines, bits: int, name: str):
        self.lines, self.bits, self.name = lines, bits, name

    def _of(self, other: Operand) -> "Value":
        if isinstance(other, int):
            return self.lines.constant(self.bits, other)
        if other.bits != self.bits:
            raise NotFused(f"{self.bits} and {other.bits} bits")
        return other

    def _binary(self, name: str, other: Operand) -> "Value":
        return self.lines.value(self.bits, f"{name} {kind(self.bits)} {self.name}, {self._of(other).name}")

    def __add__(self, other: Operand) -> "Value":
        return self._binary("add", other)

    def __sub__(self, other: Operand) -> "Value":
        return self._binary("sub", other)

    def __mul__(self, other: Operand) -> "Value":
        return self._binary("mul", other)

    def __and__(self, other: Operand) -> "Value":
        return self._binary("and", other)

    def __or__(self, other: Operand) -> "Value":
        return self._binary("or", other)

    def __xor__(self, other: Operand) -> "Value":
        return self._binary("xor", other)

    def __invert__(self) -> "Value":
        return self ^ -1

    def __lshift__(self, amount: Operand) -> "Value":
        """By less than its bits."""
        return self._binary("shl", amount)

    def __rshift__(self, amount: Operand) -> "Value":
        """By less than its bits, with zeros from above."""
        return self._binary("lshr", amount)

    def signed_shift(self, amount: Operand) -> "Value":
        """By less than its bits, with the sign from above."""
        return self._binary("ashr", amount)

    def compare(self, how: str, other: Operand) -> "Value":
        """Whole numbers: eq, ne, ult, ule, ugt, uge, slt, sle, sgt, sge."""
        return self.lines.value(1, f"icmp {how} {kind(self.bits)} {self.name}, {self._of(other).name}")

    def fcompare(self, how: str, other: "Value") -> "Value":
        """Floating-point numbers: oeq, one, olt, ..., ueq, une, ult, ..., ord, uno."""
        typed = real(self.bits)
        return self.lines.value(1, f"fcmp {how} {typed} {self.real()}, {self._of(other).real()}")

    def real(self) -> str:
        """Its bits as floating-point numbers, in LLVM's language."""
        return self.lines.put(f"bitcast {kind(self.bits)} {self.name} to {real(self.bits)}")

    def of_real(self, text: str) -> "Value":
        """The bits of floating-point numbers that are as wide as this."""
        return self.lines.value(self.bits, f"bitcast {real(self.bits)} {text} to {kind(self.bits)}")

    def fbinary(self, name: str, other: "Value") -> "Value":
        """fadd, fsub, fmul or fdiv, rounded to nearest; which NaN comes out is not said."""
        made = self.lines.put(f"{name} {real(self.bits)} {self.real()}, {self._of(other).real()}")
        return self.of_real(made)

    def ffused(self, b: "Value", c: "Value") -> "Value":
        """This times b plus c with one rounding."""
        typed = real(self.bits)
        given = [(typed, one.real()) for one in (self, self._of(b), self._of(c))]
        return self.of_real(self.lines.call(f"llvm.fma.v{WIDTH}f{self.bits}", typed, *given))

    def froot(self) -> "Value":
        """Its square root, rounded to nearest."""
        typed = real(self.bits)
        return self.of_real(self.lines.call(f"llvm.sqrt.v{WIDTH}f{self.bits}", typed, (typed, self.real())))

    def select(self, yes: "Value", no: Operand) -> "Value":
        """`yes` where this predicate holds, else `no`."""
        other = yes._of(no)
        typed = kind(yes.bits)
        return self.lines.value(yes.bits, f"select {kind(1)} {self.name}, {typed} {yes.name}, {typed} {other.name}")

    def wide(self, bits: int, signed: bool = False) -> "Value":
        """With so many bits: the low ones, or more of zeros or of the sign."""
        if bits == self.bits:
            return self
        how = "trunc" if bits < self.bits else "sext" if signed else "zext"
        return self.lines.value(bits, f"{how} {kind(self.bits)} {self.name} to {kind(bits)}")
