"""Emits the LLVM IR of one function: its lines, names, and arithmetic on numbers."""

import struct
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from kernbench.common.native.kinds import FLOAT, INT, TRUTH, UINT, NotPlain, Scalar, Static, Value, combined, wide

Found = TypeVar("Found")
_WHOLE = {"Add": "add", "Sub": "sub", "Mult": "mul", "BitAnd": "and", "BitOr": "or", "BitXor": "xor"}
_FLOATING = {"Add": "fadd", "Sub": "fsub", "Mult": "fmul"}
_DIVISION = {"FloorDiv": "floordiv", "Mod": "floormod"}
_ORDER = {"Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge"}
_FLOAT_ORDER = {"Eq": "oeq", "NotEq": "une", "Lt": "olt", "LtE": "ole", "Gt": "ogt", "GtE": "oge"}

# a loop of so many rounds is one vector: it is not unrolled before that is tried
VECTOR_COUNTS = ("16",)
AS_VECTOR = ", !llvm.loop !900"
# Prelude of every module. Division by zero gives zero and sets a flag; the entry raises the exception. The least
# integer divided by -1 gives zero, as in numba.
PRELUDE = """
@failed = internal global i32 0
!900 = distinct !{!900, !901}
!901 = !{!"llvm.loop.unroll.disable"}
define internal i64 @enter(i64 %code, i64 %warp, i64 %record, i64 %mask) noinline {
  %function = inttoptr i64 %code to ptr
  %w = inttoptr i64 %warp to ptr
  %r = inttoptr i64 %record to ptr
  %m = trunc i64 %mask to i32
  call void %function(ptr %w, ptr %r, i32 %m)
  ret i64 0
}
define internal i64 @swap(i64 %at, i64 %old, i64 %new) alwaysinline {
  %word = inttoptr i64 %at to ptr
  %both = cmpxchg ptr %word, i64 %old, i64 %new seq_cst seq_cst
  %seen = extractvalue { i64, i1 } %both, 0
  ret i64 %seen
}
define internal i64 @look(i64 %at) alwaysinline {
  %word = inttoptr i64 %at to ptr
  %seen = load atomic i64, ptr %word seq_cst, align 8
  ret i64 %seen
}
define internal float @float_of_half(i16 %bits) alwaysinline {
  %half = bitcast i16 %bits to half
  %wide = fpext half %half to float
  ret float %wide
}
define internal i64 @floordiv(i64 %a, i64 %b) alwaysinline {
  %zero = icmp eq i64 %b, 0
  br i1 %zero, label %bad, label %good
bad:
  store i32 1, ptr @failed
  ret i64 0
good:
  %last = icmp eq i64 %b, -1
  %by = select i1 %last, i64 1, i64 %b
  %q = sdiv i64 %a, %by
  %r = srem i64 %a, %by
  %apart = xor i64 %r, %by
  %signs = icmp slt i64 %apart, 0
  %left = icmp ne i64 %r, 0
  %less = and i1 %signs, %left
  %one = zext i1 %less to i64
  %floor = sub i64 %q, %one
  %minus = sub i64 0, %a
  %least = icmp eq i64 %a, -9223372036854775808
  %turned = select i1 %least, i64 0, i64 %minus
  %result = select i1 %last, i64 %turned, i64 %floor
  ret i64 %result
}
define internal i64 @floormod(i64 %a, i64 %b) alwaysinline {
  %zero = icmp eq i64 %b, 0
  br i1 %zero, label %bad, label %good
bad:
  store i32 1, ptr @failed
  ret i64 0
good:
  %last = icmp eq i64 %b, -1
  %by = select i1 %last, i64 1, i64 %b
  %r = srem i64 %a, %by
  %apart = xor i64 %r, %by
  %signs = icmp slt i64 %apart, 0
  %left = icmp ne i64 %r, 0
  %less = and i1 %signs, %left
  %more = select i1 %less, i64 %by, i64 0
  %result = add i64 %r, %more
  ret i64 %result
}
define internal i64 @ufloordiv(i64 %a, i64 %b) alwaysinline {
  %zero = icmp eq i64 %b, 0
  br i1 %zero, label %bad, label %good
bad:
  store i32 1, ptr @failed
  ret i64 0
good:
  %result = udiv i64 %a, %b
  ret i64 %result
}
define internal i64 @ufloormod(i64 %a, i64 %b) alwaysinline {
  %zero = icmp eq i64 %b, 0
  br i1 %zero, label %bad, label %good
bad:
  store i32 1, ptr @failed
  ret i64 0
good:
  %result = urem i64 %a, %b
  ret i64 %result
}
"""


class Writer:
    """The lines of a function; code after a jump is dropped until the next label, as it is unreachable."""

    def __init__(self) -> None:
        # floating-point division by zero gives infinities and no error
        self.as_numpy = False
        self.lines: list[str] = []
        self._count = 0
        self._ended = False

    def name(self, stem: str = "t") -> str:
        """A new unique name."""
        self._count += 1
        return f"{stem}.{self._count}"

    def do(self, line: str) -> None:
        """Emit an instruction without a result."""
        if not self._ended:
            self.lines.append(f"  {line}")

    def put(self, text: str) -> str:
        """Emit an instruction; returns the name of its result."""
        result = f"%{self.name()}"
        self.do(f"{result} = {text}")
        return result

    def label(self, name: str) -> None:
        """Begin a basic block; the block before falls through to it."""
        self.jump(name)
        self.lines.append(f"{name}:")
        self._ended = False

    def jump(self, name: str) -> None:
        """Branch to a label."""
        self.do(f"br label %{name}")
        self._ended = True

    def fork(self, truth: str, yes: str, no: str) -> None:
        """Branch to one of two labels."""
        self.do(f"br i1 {truth}, label %{yes}, label %{no}")
        self._ended = True

    def leave(self, line: str) -> None:
        """End the block with an instruction that does not continue, such as a return."""
        self.do(line)
        self._ended = True

    def tried(self, make: Callable[[], Found]) -> Found:
        """The result of `make` without the code it emits: used to find out a kind."""
        before, ended = len(self.lines), self._ended
        found = make()
        del self.lines[before:]
        self._ended = ended
        return found

    def number(self, given: object) -> Value:
        """A constant."""
        if isinstance(given, bool | np.bool_):
            return Value(TRUTH, ("true" if given else "false",))
        if isinstance(given, np.integer):
            form = "i" if isinstance(given, np.signedinteger) else "u"
            return Value(Scalar(form, 8 * given.itemsize), (str(int(given)),))
        if isinstance(given, int) and -(1 << 63) <= given < 1 << 63:
            return Value(INT, (str(int(given)),))
        if isinstance(given, float | np.float32):
            # LLVM writes a 32-bit constant with the bits of the equal 64-bit number
            bits = struct.unpack("<Q", struct.pack("<d", given))[0]
            return Value(FLOAT if isinstance(given, float) else Scalar("f", 32), (f"0x{bits:016X}",))
        raise NotPlain(f"the constant {given!r}")

    def cast(self, value: Value, kind: Scalar) -> str:
        """A number converted to another kind."""
        old = number_kind(value)
        if old == kind:
            return value.leaves[0]
        if kind.form == "b":
            return self.truth(value)
        if "f" not in (old.form, kind.form):
            return self._whole(value.leaves[0], old, kind)
        if old.form == kind.form:
            how = "fpext" if kind.bits > old.bits else "fptrunc"
        elif kind.form == "f":
            how = "sitofp" if old.form == "i" else "uitofp"
        else:
            how = "fptosi" if kind.form == "i" else "fptoui"
        return self.put(f"{how} {old.code} {value.leaves[0]} to {kind.code}")

    def _whole(self, leaf: str, old: Scalar, kind: Scalar) -> str:
        """An integer converted to another width."""
        if old.bits == kind.bits:
            return leaf
        if leaf.lstrip("-").isdigit():
            return leaf if old.bits < kind.bits else str(_wrapped(int(leaf), kind))
        how = "trunc" if old.bits > kind.bits else "sext" if old.form == "i" else "zext"
        return self.put(f"{how} {old.code} {leaf} to {kind.code}")

    def truth(self, value: Value) -> str:
        """Whether a number is not zero."""
        kind = value.kind
        if not isinstance(kind, Scalar):
            raise NotPlain(f"{kind} as a condition")
        if kind.form == "b":
            return value.leaves[0]
        if kind.form == "f":
            return self.put(f"fcmp une {kind.code} {value.leaves[0]}, 0.0")
        return self.put(f"icmp ne {kind.code} {value.leaves[0]}, 0")

    def binary(self, operator: str, one: Value, two: Value) -> Value:
        """A binary operation on two numbers."""
        a, b = number_kind(one), number_kind(two)
        if operator == "Div":
            return self._quotient(one, two)
        if operator in ("LShift", "RShift"):
            kind = wide(a)
            how = "shl" if operator == "LShift" else "ashr" if kind == INT else "lshr"
        elif a == b == TRUTH and operator in ("BitAnd", "BitOr", "BitXor"):
            kind, how = TRUTH, _WHOLE[operator]
        else:
            kind = combined(a, b)
            how = _FLOATING.get(operator, "") if kind.form == "f" else _WHOLE.get(operator, "")
        if operator in _DIVISION and self.as_numpy and kind == INT:
            raise NotPlain("a signed quotient of a row, of which numba's are faster")
        if operator in _DIVISION and kind.form != "f":
            name = ("u" if kind == UINT else "") + _DIVISION[operator]
            return Value(kind, (self.put(f"call i64 @{name}(i64 {self.cast(one, kind)}, i64 {self.cast(two, kind)})"),))
        if not how or (kind.form == "f" and how.startswith(("shl", "ashr", "lshr"))):
            raise NotPlain(f"{operator} of {a} and {b}")
        left, right = self.cast(one, kind), self.cast(two, kind)
        return Value(kind, (self.put(f"{how} {kind.code} {left}, {right}"),))

    def _quotient(self, one: Value, two: Value) -> Value:
        """True division; division by zero sets the error flag, unless `as_numpy`."""
        kind = combined(number_kind(one), number_kind(two))
        kind = kind if kind.form == "f" else FLOAT
        left, right = self.cast(one, kind), self.cast(two, kind)
        if self.as_numpy:
            return Value(kind, (self.put(f"fdiv {kind.code} {left}, {right}"),))
        zero = self.put(f"fcmp oeq {kind.code} {right}, 0.0")
        before = self.put("load i32, ptr @failed")
        self.do(f"store i32 {self.put(f'select i1 {zero}, i32 1, i32 {before}')}, ptr @failed")
        return Value(kind, (self.put(f"fdiv {kind.code} {left}, {right}"),))

    def compared(self, operator: str, one: Value, two: Value) -> Value:
        """A comparison of two numbers."""
        a, b = number_kind(one), number_kind(two)
        if "f" in (a.form, b.form):
            kind = combined(a, b)
            left, right = self.cast(one, kind), self.cast(two, kind)
            return Value(TRUTH, (self.put(f"fcmp {_FLOAT_ORDER[operator]} {kind.code} {left}, {right}"),))
        if UINT in (a, b) and a.form != b.form:
            return self._of_different_signs(operator, one, two)
        kind = combined(a, b)
        left, right = self.cast(one, kind), self.cast(two, kind)
        return Value(TRUTH, (self.put(f"icmp {_condition(operator, kind)} i64 {left}, {right}"),))

    def _of_different_signs(self, operator: str, one: Value, two: Value) -> Value:
        """Compares an unsigned 64-bit number with a signed one, exactly.

        A negative number is less than all unsigned.
        """
        signed_first = number_kind(one) != UINT
        signed = self.cast(one if signed_first else two, INT)
        left, right = (signed, two.leaves[0]) if signed_first else (one.leaves[0], signed)
        plain = self.put(f"icmp {_condition(operator, UINT)} i64 {left}, {right}")
        below = self.put(f"icmp slt i64 {signed}, 0")
        then = operator == "NotEq" or operator.startswith("Lt" if signed_first else "Gt")
        return Value(TRUTH, (self.put(f"select i1 {below}, i1 {'true' if then else 'false'}, i1 {plain}"),))

    def chosen(self, operator: str, one: Value, two: Value) -> Value:
        """The maximum or minimum of two numbers; the first if they are equal or unordered, as in Python."""
        a, b = number_kind(one), number_kind(two)
        kind = a if a == b else combined(a, b)
        if a == b and a.form == "f":
            first, second, how = one.leaves[0], two.leaves[0], "gt" if operator == "max" else "lt"
            better = self.put(f"fcmp o{how} {a.code} {second}, {first}")
            return Value(a, (self.put(f"select i1 {better}, {a.code} {second}, {a.code} {first}"),))
        if kind.form not in "iu" or (UINT in (a, b) and a.form != b.form):
            raise NotPlain(f"the {operator} of {a} and {b}")
        left, right = self.cast(one, kind), self.cast(two, kind)
        name = f"llvm.{'s' if kind.form == 'i' else 'u'}{operator}.{kind.code}"
        return Value(kind, (self.put(f"call {kind.code} @{name}({kind.code} {left}, {kind.code} {right})"),))


def _wrapped(number: int, kind: Scalar) -> int:
    """A number as one of a kind has it, with its sign: a constant that is widened later keeps its value."""
    kept = number & ((1 << kind.bits) - 1)
    return kept - (1 << kind.bits) if kind.form == "i" and kept >> (kind.bits - 1) else kept


def number_kind(value: Value) -> Scalar:
    """The kind of a number."""
    if not isinstance(value.kind, Scalar):
        raise NotPlain(f"arithmetic on {value.kind}")
    return value.kind


def is_number(given: Static) -> bool:
    """Whether a constant is a number."""
    return isinstance(given.value, int | float | np.integer | np.bool_ | np.float32)


def _condition(operator: str, kind: Scalar) -> str:
    if operator in ("Eq", "NotEq"):
        return "eq" if operator == "Eq" else "ne"
    if operator not in _ORDER:
        raise NotPlain(f"the comparison {operator}")
    return ("u" if kind == UINT else "s") + _ORDER[operator]
