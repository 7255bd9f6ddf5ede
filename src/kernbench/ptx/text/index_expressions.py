"""Integer expressions over values that a thread has: `ctaid.x * 64 + tid.x / 4 + 8 * (i % 2)`, `%r5 < 16`.

Names are registers (`%r5`), special registers with or without % (`tid.x`, `%laneid`), variables and parameters of the
kernel, and `i`, the index of an element. `/` and `//` both round down; `swizzle(byte, 128)` is the offset at which
bulk copies with that swizzle put a byte of a tile.
"""

import ast
import re
from collections.abc import Callable, Mapping
from functools import cached_property, reduce

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError, unknown

_LONGEST = 2000
# % before a letter begins a register's name; otherwise it is the remainder operator
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*(?:\.[xyzw])?")
_WORDS = frozenset(("and", "or", "not", "if", "else"))
SWIZZLES = (0, 32, 64, 128)


def swizzle(byte: Array, span: Array) -> Array:
    """The offset of byte `byte` of a tile with a swizzle of 32, 64 or 128 bytes: bits from 7 on are XORed into 4 on."""
    width = int(np.max(span))
    if width not in SWIZZLES or int(np.min(span)) != width:
        raise MisuseError(f"swizzle(byte, {span}): the span is one of {', '.join(map(str, SWIZZLES))}")
    return byte ^ ((byte >> 7) % max(width // 16, 1) << 4) if width else byte


_FUNCTIONS: Mapping[str, tuple[int, Callable[..., Array]]] = {
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "swizzle": (2, swizzle),
}
_BINARY: Mapping[type, Callable[[Array, Array], Array]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.floor_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.remainder,
    ast.LShift: np.left_shift,
    ast.RShift: np.right_shift,
    ast.BitAnd: np.bitwise_and,
    ast.BitOr: np.bitwise_or,
    ast.BitXor: np.bitwise_xor,
}
_UNARY: Mapping[type, Callable[[Array], Array]] = {
    ast.USub: np.negative,
    ast.UAdd: np.positive,
    ast.Invert: np.invert,
    ast.Not: lambda value: (value == 0).astype(np.int64),
}
_RELATIONS: Mapping[type, Callable[[Array, Array], Array]] = {
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
_JOINED: Mapping[type, Callable[[Array, Array], Array]] = {ast.And: np.logical_and, ast.Or: np.logical_or}
_ZERO_DIVISORS = (ast.Div, ast.FloorDiv, ast.Mod)


class Expression:
    """A parsed and checked expression; `value` evaluates it for arrays of its names' values."""

    def __init__(self, text: str):
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
            raise MisuseError(f"{text!r} is no expression: whole numbers, names, + - * / % << >> & | ^ and comparisons")
        self.text = text
        self._names: dict[str, str] = {}
        try:
            self._tree = ast.parse(_NAME.sub(self._named_safely, text.strip()), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise MisuseError(f"{text!r} is no expression: it cannot be read") from None
        self._check(self._tree)

    def __repr__(self) -> str:
        return f"<expression {self.text}>"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in it, except those of functions."""
        called = {node.func.id for node in ast.walk(self._tree) if isinstance(node, ast.Call)}  # type: ignore[attr-defined]
        return tuple(name for name, safe in self._names.items() if safe not in called)

    def value(self, known: Callable[[str], Array]) -> Array:
        """Evaluate it; `known` returns the int64 array of a name, and these arrays must broadcast."""
        return np.asarray(self._of(self._tree, known), np.int64)

    def _named_safely(self, found: re.Match[str]) -> str:
        name = found.group()
        if name in _WORDS:
            return name
        return self._names.setdefault(name, f"v{len(self._names)}")

    def _check(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = self._named(node.func.id) if isinstance(node.func, ast.Name) else ""
                if name not in _FUNCTIONS or node.keywords or len(node.args) != _FUNCTIONS[name][0]:
                    message = unknown("function", name, _FUNCTIONS)
                    raise MisuseError(f"{self.text!r}: {message} Each takes two numbers.")
            elif isinstance(node, ast.Constant) and type(node.value) is not int:
                raise MisuseError(f"{self.text!r}: {node.value!r} is no whole number")
            elif type(node) not in _ALLOWED:
                raise MisuseError(
                    f"{self.text!r}: {type(node).__name__} does not belong in an expression of whole numbers"
                )

    def _named(self, safe: str) -> str:
        return next((name for name, other in self._names.items() if other == safe), safe)

    def _of(self, node: ast.expr, known: Callable[[str], Array]) -> Array:
        return _NODES[type(node)](self, node, known)

    def _constant(self, node: ast.Constant, known: Callable[[str], Array]) -> Array:
        try:
            return np.asarray(int(node.value), np.int64)  # type: ignore[arg-type]
        except OverflowError:
            raise MisuseError(f"{self.text!r}: {node.value!r} has more than 64 bits") from None

    def _name(self, node: ast.Name, known: Callable[[str], Array]) -> Array:
        return known(self._named(node.id))

    def _binary(self, node: ast.BinOp, known: Callable[[str], Array]) -> Array:
        left, right = self._of(node.left, known), self._of(node.right, known)
        if isinstance(node.op, _ZERO_DIVISORS) and not np.all(right):
            raise MisuseError(f"{self.text!r}: division by zero")
        return _BINARY[type(node.op)](left, right)

    def _unary(self, node: ast.UnaryOp, known: Callable[[str], Array]) -> Array:
        return _UNARY[type(node.op)](self._of(node.operand, known))

    def _compared(self, node: ast.Compare, known: Callable[[str], Array]) -> Array:
        values = [self._of(part, known) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, values, values[1:], strict=False)
        held = [_RELATIONS[type(relation)](a, b) for relation, a, b in pairs]
        return reduce(np.logical_and, held).astype(np.int64)

    def _joined(self, node: ast.BoolOp, known: Callable[[str], Array]) -> Array:
        values = [self._of(part, known) != 0 for part in node.values]
        joined: Array = reduce(_JOINED[type(node.op)], values)
        return joined.astype(np.int64)

    def _chosen(self, node: ast.IfExp, known: Callable[[str], Array]) -> Array:
        test = self._of(node.test, known) != 0
        return np.where(test, self._of(node.body, known), self._of(node.orelse, known))

    def _called(self, node: ast.Call, known: Callable[[str], Array]) -> Array:
        assert isinstance(node.func, ast.Name)
        return _FUNCTIONS[self._named(node.func.id)][1](*(self._of(argument, known) for argument in node.args))


_NODES: Mapping[type, Callable[..., Array]] = {
    ast.Constant: Expression._constant,
    ast.Name: Expression._name,
    ast.BinOp: Expression._binary,
    ast.UnaryOp: Expression._unary,
    ast.Compare: Expression._compared,
    ast.BoolOp: Expression._joined,
    ast.IfExp: Expression._chosen,
    ast.Call: Expression._called,
}
_ALLOWED = frozenset((*_NODES, *_BINARY, *_UNARY, *_RELATIONS, *_JOINED, ast.Load))
