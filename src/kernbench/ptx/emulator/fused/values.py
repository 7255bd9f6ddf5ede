"""LLVM values of a run: some lanes of one register each, or what is computed from them.

Operators of a `Value` write an instruction and return its result, so that instructions read here as they do in
`kernbench.ptx.numerics`. All values are integers of a register's width; predicates have one bit. Functions whose names
begin with `f` interpret the bits as floating-point numbers.
"""

from collections.abc import Callable, Sequence
from typing import Union

# lanes per machine instruction; rows have a multiple of 32
WIDTH = 8
_FLOATS = {32: "float", 64: "double"}


def kind(bits: int) -> str:
    """The LLVM type of some lanes of a register."""
    return f"<{WIDTH} x i{bits}>"


def real(bits: int) -> str:
    """The same as floating-point numbers."""
    return f"<{WIDTH} x {_FLOATS[bits]}>"


class NotFused(Exception):  # noqa: N818
    """Something that machine code does not support; its step runs by itself."""


class Lines:
    """The instructions of one function, the functions it calls, and the tables it reads."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self._count = 0

    def put(self, text: str) -> str:
        """Write an instruction; returns the name of its result."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def do(self, text: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {text}")

    def over_lanes(self, head: str, begins: Sequence[str]) -> str:
        """The function with this head: `begins` computes `%count` before its loop, and the lines run for all lanes."""
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
        """Write an instruction; returns its result as a value."""
        return Value(self, bits, self.put(text))

    def constant(self, bits: int, number: int) -> "Value":
        """The same number in all lanes."""
        number &= (1 << bits) - 1
        return Value(self, bits, f"<{', '.join([f'i{bits} {number}'] * WIDTH)}>")

    def call(self, name: str, result: str, *given: tuple[str, str]) -> str:
        """Call an LLVM intrinsic with arguments and their types."""
        self.declared[name] = f"declare {result} @{name}({', '.join(typed for typed, _ in given)})"
        return self.put(f"call {result} @{name}({', '.join(f'{typed} {text}' for typed, text in given)})")

    def apart(self, name: str, compute: "Callable[[Value], Value]", a: "Value") -> "Value":
        """Compute from a value in a function of its own: inlining a long one everywhere would slow down compilation."""
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
        """Shift by less than the width."""
        return self._binary("shl", amount)

    def __rshift__(self, amount: Operand) -> "Value":
        """Logical shift by less than the width."""
        return self._binary("lshr", amount)

    def signed_shift(self, amount: Operand) -> "Value":
        """Arithmetic shift by less than the width."""
        return self._binary("ashr", amount)

    def compare(self, how: str, other: Operand) -> "Value":
        """Compare integers: eq, ne, ult, ule, ugt, uge, slt, sle, sgt, sge."""
        return self.lines.value(1, f"icmp {how} {kind(self.bits)} {self.name}, {self._of(other).name}")

    def fcompare(self, how: str, other: "Value") -> "Value":
        """Compare floating-point numbers: oeq, one, olt, ..., ueq, une, ult, ..., ord, uno."""
        typed = real(self.bits)
        return self.lines.value(1, f"fcmp {how} {typed} {self.real()}, {self._of(other).real()}")

    def real(self) -> str:
        """The bits as floating-point numbers; an LLVM name."""
        return self.lines.put(f"bitcast {kind(self.bits)} {self.name} to {real(self.bits)}")

    def of_real(self, text: str) -> "Value":
        """The bits of floating-point numbers of the same width."""
        return self.lines.value(self.bits, f"bitcast {real(self.bits)} {text} to {kind(self.bits)}")

    def fbinary(self, name: str, other: "Value") -> "Value":
        """fadd, fsub, fmul or fdiv, rounded to nearest; the payload of a NaN is unspecified."""
        made = self.lines.put(f"{name} {real(self.bits)} {self.real()}, {self._of(other).real()}")
        return self.of_real(made)

    def ffused(self, b: "Value", c: "Value") -> "Value":
        """Fused multiply-add: self times b plus c with one rounding."""
        typed = real(self.bits)
        given = [(typed, one.real()) for one in (self, self._of(b), self._of(c))]
        return self.of_real(self.lines.call(f"llvm.fma.v{WIDTH}f{self.bits}", typed, *given))

    def froot(self) -> "Value":
        """The square root, rounded to nearest."""
        typed = real(self.bits)
        return self.of_real(self.lines.call(f"llvm.sqrt.v{WIDTH}f{self.bits}", typed, (typed, self.real())))

    def select(self, yes: "Value", no: Operand) -> "Value":
        """`yes` where this predicate holds, else `no`."""
        other = yes._of(no)
        typed = kind(yes.bits)
        return self.lines.value(yes.bits, f"select {kind(1)} {self.name}, {typed} {yes.name}, {typed} {other.name}")

    def wide(self, bits: int, signed: bool = False) -> "Value":
        """Truncated, zero-extended or sign-extended to `bits` bits."""
        if bits == self.bits:
            return self
        how = "trunc" if bits < self.bits else "sext" if signed else "zext"
        return self.lines.value(bits, f"{how} {kind(self.bits)} {self.name} to {kind(bits)}")
