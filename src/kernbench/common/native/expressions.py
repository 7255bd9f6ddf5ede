"""Expressions of a loop: compiles each syntax-tree node to a constant or to a computed value."""

import ast
import math
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from kernbench.common.native.kinds import (
    ADDRESS,
    BLOCK,
    EMPTIES,
    EMPTY,
    INT,
    LANE,
    PREFETCH,
    READ,
    ROOM,
    ROWS,
    SPACES,
    TRUTH,
    UINT,
    UNKNOWN_LENGTH,
    VIEWS,
    WARP_LENGTH,
    WRITE,
    Array,
    Instruction,
    Kind,
    NotPlain,
    Record,
    Scalar,
    Static,
    Value,
    codes,
    either,
    joined,
    numpy_type,
    parts,
    scalar_of,
    wide,
)
from kernbench.common.native.writer import Writer, is_number, number_kind

Function = Callable[..., object]
Known = Value | Static
_BUILT_IN: dict[str, object] = {
    "len": len,
    "min": min,
    "max": max,
    "int": int,
    "bool": bool,
    "range": range,
    "abs": abs,
}
# floating-point functions; arguments and result have the same type
_OF_FRACTIONS: dict[object, str] = {
    np.ceil: "ceil",
    np.floor: "floor",
    np.trunc: "trunc",
    np.sqrt: "sqrt",
    abs: "fabs",
    math.copysign: "copysign",
}


class Callee(Protocol):
    """A compiled function of the module: its name and its result kind (an empty tuple for no result)."""

    @property
    def name(self) -> str:
        """Its name in the module."""

    @property
    def result(self) -> Kind:
        """The kind of its result."""


class Functions(Protocol):
    """Compiles the functions that loops call, and stores constant tables."""

    def called(self, function: Function, kinds: tuple[Kind | Static, ...], apart: bool = False) -> Callee:
        """The function compiled for arguments of these kinds; with `apart` it is never inlined."""

    def table(self, numbers: NDArray[np.generic]) -> str:
        """The symbol of a table of constants."""


class Expressions:
    """Compiles the expressions of one function; a name is a variable, or a global in `known`."""

    def __init__(self, functions: Functions, known: Mapping[str, object]):
        self.out = Writer()
        self.functions = functions
        self._known = known
        self.kinds: dict[str, Kind] = {}
        self.statics: dict[str, Static] = {}
        # allocas of the function besides its variables
        self.rooms: list[str] = []

    def expression(self, node: ast.expr) -> Known:
        """Compile any expression."""
        how = getattr(self, f"_{type(node).__name__.lower()}", None)
        if how is None:
            raise NotPlain(f"{type(node).__name__} in line {node.lineno}")
        return cast(Known, how(node))

    def value(self, node: ast.expr) -> Value:
        """Compile an expression to a computed value."""
        return self.computed(self.expression(node))

    def computed(self, given: Known) -> Value:
        """Turns constants into values."""
        if isinstance(given, Value):
            return given
        if isinstance(given.value, tuple):
            return joined([self.computed(Static(item)) for item in given.value])
        return self.out.number(given.value)

    def _index(self, value: Value) -> tuple[str, bool]:
        """An integer index, and whether it may be negative, which counts from the end."""
        kind = number_kind(value)
        if kind.form not in "iu":
            raise NotPlain(f"an index of {kind}")
        leaf = self.out.cast(value, wide(kind))
        return leaf, kind.form == "i" and (not leaf.isdigit())

    def branch(self, node: ast.expr, yes: str, no: str) -> None:
        """Branch to `yes` or `no` depending on a condition, with short-circuit evaluation."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.branch(node.operand, no, yes)
        elif isinstance(node, ast.BoolOp):
            for operand in node.values[:-1]:
                following = self.out.name("and_or")
                if isinstance(node.op, ast.And):
                    self.branch(operand, following, no)
                else:
                    self.branch(operand, yes, following)
                self.out.label(following)
            self.branch(node.values[-1], yes, no)
        else:
            self.out.fork(self.out.truth(self.value(node)), yes, no)

    def load(self, address: str, item: Scalar) -> Value:
        """Load a number."""
        found = self.out.put(f"load {item.stored}, ptr {address}")
        return Value(item, (self.out.put(f"trunc i8 {found} to i1") if item == TRUTH else found,))

    def save(self, value: Value, address: str, item: Scalar) -> None:
        """Store a number."""
        leaf = self.out.cast(value, item)
        if item == TRUTH:
            leaf = self.out.put(f"zext i1 {leaf} to i8")
        self.out.do(f"store {item.stored} {leaf}, ptr {address}")

    def element(self, node: ast.Subscript) -> tuple[str, Scalar]:
        """The address of an array element."""
        array = self.value(node.value)
        return self.address(array, [self.value(index) for index in _indices(node)])

    def address(self, array: Value, indices: list[Value]) -> tuple[str, Scalar]:
        """The address of the element at some indices."""
        found = self._inside(array, indices)
        if not isinstance(found.kind, Array) or found.kind.ndim:
            raise NotPlain("an assignment to several elements")
        return found.leaves[0], found.kind.item

    def read(self, array: Value, indices: list[Value]) -> Value:
        """An element of an array, or a subarray if there are fewer indices than dimensions."""
        found = self._inside(array, indices)
        assert isinstance(found.kind, Array)
        return found if found.kind.ndim else self.load(found.leaves[0], found.kind.item)

    def _inside(self, array: Value, indices: list[Value]) -> Value:
        """The subarray at the first indices, down to zero dimensions."""
        kind = array.kind
        if not isinstance(kind, Array) or len(indices) > kind.ndim:
            raise NotPlain(f"an index of {kind}")
        out, count = self.out, len(indices)
        address, *rest = array.leaves
        lengths, strides = rest[: kind.ndim], rest[kind.ndim :]
        offsets = []
        for index, length in zip(indices, lengths, strict=False):
            leaf, negative = self._index(index)
            if negative and length != UNKNOWN_LENGTH:
                below, behind = out.put(f"icmp slt i64 {leaf}, 0"), out.put(f"add i64 {leaf}, {length}")
                leaf = out.put(f"select i1 {below}, i64 {behind}, i64 {leaf}")
            offsets.append(leaf)
        if kind.packed:
            offset = offsets[0]
            for leaf, length in zip(offsets[1:] + ["0"] * (kind.ndim - count), lengths[1:], strict=True):
                row = out.put(f"mul i64 {offset}, {length}")
                offset = row if leaf == "0" else out.put(f"add i64 {row}, {leaf}")
            address = out.put(f"getelementptr {kind.item.stored}, ptr {address}, i64 {offset}")
        else:
            for leaf, stride in zip(offsets, strides, strict=False):
                address = out.put(f"getelementptr i8, ptr {address}, i64 {out.put(f'mul i64 {leaf}, {stride}')}")
        left = Array(kind.item, kind.ndim - count, kind.packed)
        return Value(left, (address, *lengths[count:], *strides[count:]))

    def _constant(self, node: ast.Constant) -> Known:
        return Static(node.value)

    def _name(self, node: ast.Name) -> Known:
        name = node.id
        if name in self.statics:
            return self.statics[name]
        if name in self.kinds:
            kind = self.kinds[name]
            slots = (f"%{name}.v{number}" for number in range(len(codes(kind))))
            return Value(
                kind,
                tuple(self.out.put(f"load {code}, ptr {at}") for code, at in zip(codes(kind), slots, strict=True)),
            )
        if name in self._known:
            return Static(self._known[name])
        if name in _BUILT_IN:
            return Static(_BUILT_IN[name])
        raise NotPlain(f"the name {name} in line {node.lineno}")

    def _attribute(self, node: ast.Attribute) -> Known:
        owner = self.expression(node.value)
        if isinstance(owner, Static):
            return Static(getattr(owner.value, node.attr))
        if isinstance(owner.kind, Array):
            return self._of_array(owner, owner.kind, node.attr)
        if isinstance(owner.kind, Record) and node.attr in owner.kind.fields:
            return parts(owner)[owner.kind.fields.index(node.attr)]
        raise NotPlain(f"the attribute {node.attr} of {owner.kind}")

    def _of_array(self, array: Value, kind: Array, name: str) -> Known:
        lengths = array.leaves[1 : 1 + kind.ndim]
        if name == "shape":
            return joined([Value(INT, (length,)) for length in lengths])
        if name == "size":
            size = "1"
            for length in lengths:
                size = length if size == "1" else self.out.put(f"mul i64 {size}, {length}")
            return Value(INT, (size,))
        known = {"ndim": kind.ndim, "itemsize": kind.item.nbytes, "dtype": numpy_type(kind.item)}
        if name not in known:
            raise NotPlain(f"the attribute {name} of an array")
        return Static(known[name])

    def _subscript(self, node: ast.Subscript) -> Known:
        owner = self.expression(node.value)
        if isinstance(owner, Value) and isinstance(owner.kind, Array):
            *indices, last = _indices(node)
            if isinstance(last, ast.Slice):
                whole = self.read(owner, [self.value(index) for index in indices]) if indices else owner
                return self._from_on(whole, last)
            return self.read(owner, [self.value(index) for index in (*indices, last)])
        index = self.expression(node.slice)
        if not isinstance(index, Static) or not isinstance(index.value, int):
            return self.one_of(self.computed(owner), self.computed(index))
        if isinstance(owner, Value):
            return parts(owner)[index.value]
        if isinstance(owner.value, tuple):
            return Static(owner.value[index.value])
        raise NotPlain(f"an item of {owner.value!r}")

    def _from_on(self, array: Value, part: ast.Slice) -> Value:
        """Compile `array[first:]`."""
        kind, out = array.kind, self.out
        if not isinstance(kind, Array) or not kind.packed or not kind.ndim or part.upper or part.step or not part.lower:
            raise NotPlain(f"a part of {kind}")
        (length, *others), given = array.leaves[1:], out.cast(self.value(part.lower), INT)
        below, behind = out.put(f"icmp slt i64 {given}, 0"), out.put(f"add i64 {given}, {length}")
        first = out.put(f"select i1 {below}, i64 {behind}, i64 {given}")
        first = out.put(f"call i64 @llvm.smax.i64(i64 {first}, i64 0)")
        first = out.put(f"call i64 @llvm.smin.i64(i64 {first}, i64 {length})")
        step = first
        for other in others:
            step = out.put(f"mul i64 {step}, {other}")
        address = out.put(f"getelementptr {kind.item.stored}, ptr {array.leaves[0]}, i64 {step}")
        return Value(kind, (address, out.put(f"sub i64 {length}, {first}"), *others))

    def one_of(self, of: Value, number: Value) -> Value:
        """An item of a tuple of items of the same kind, by an index known only at run time."""
        items = parts(of)
        if len({item.kind for item in items}) != 1:
            raise NotPlain("an item of a tuple of several kinds, by a number that is known only when it runs")
        leaf, negative = self._index(number)
        if negative:
            below, behind = self.out.put(f"icmp slt i64 {leaf}, 0"), self.out.put(f"add i64 {leaf}, {len(items)}")
            leaf = self.out.put(f"select i1 {below}, i64 {behind}, i64 {leaf}")
        found = list(items[0].leaves)
        for at, item in enumerate(items[1:], 1):
            here = self.out.put(f"icmp eq i64 {leaf}, {at}")
            pairs = zip(codes(item.kind), item.leaves, found, strict=True)
            found = [self.out.put(f"select i1 {here}, {code} {one}, {code} {other}") for code, one, other in pairs]
        return Value(items[0].kind, tuple(found))

    def _tuple(self, node: ast.Tuple) -> Known:
        return joined([self.value(item) for item in node.elts])

    def _binop(self, node: ast.BinOp) -> Known:
        one, two = self.expression(node.left), self.expression(node.right)
        folded = _folded(type(node.op).__name__, one, two)
        if folded is not None:
            return folded
        return self.out.binary(type(node.op).__name__, self.computed(one), self.computed(two))

    def _unaryop(self, node: ast.UnaryOp) -> Known:
        given = self.expression(node.operand)
        if isinstance(given, Static) and type(given.value) is int and isinstance(node.op, ast.USub | ast.Invert):
            return Static(-given.value if isinstance(node.op, ast.USub) else ~given.value)
        value = self.computed(given)
        if isinstance(node.op, ast.Not):
            return Value(TRUTH, (self.out.put(f"xor i1 {self.out.truth(value)}, true"),))
        kind = number_kind(value)
        if isinstance(node.op, ast.Invert) and kind == TRUTH:
            return Value(TRUTH, (self.out.put(f"xor i1 {value.leaves[0]}, true"),))
        if isinstance(node.op, ast.USub) and kind.form == "f":
            # subtract from -0.0, so that the sign of zero is right
            return Value(kind, (self.out.put(f"fsub {kind.code} -0.0, {value.leaves[0]}"),))
        if isinstance(node.op, ast.UAdd) or kind.form not in "iu":
            raise NotPlain(f"{type(node.op).__name__} of {kind}")
        # numba computes it in the operand's own width, then widens the result
        text = f"sub {kind.code} 0, {value.leaves[0]}"
        if isinstance(node.op, ast.Invert):
            text = f"xor {kind.code} {value.leaves[0]}, -1"
        return Value(wide(kind), (self.out.cast(Value(kind, (self.out.put(text),)), wide(kind)),))

    def _compare(self, node: ast.Compare) -> Known:
        if len(node.ops) > 1:
            return self._boolop(_chain(node))
        operator, left = node.ops[0], self.value(node.left)
        if not isinstance(operator, ast.In | ast.NotIn):
            return self.out.compared(type(operator).__name__, left, self.value(node.comparators[0]))
        found = "false"
        for item in parts(self.value(node.comparators[0])):
            found = self.out.put(f"or i1 {found}, {self.out.compared('Eq', left, item).leaves[0]}")
        return Value(TRUTH, (found if isinstance(operator, ast.In) else self.out.put(f"xor i1 {found}, true"),))

    def _boolop(self, node: ast.BoolOp) -> Known:
        first, *others = node.values
        if not others:
            return self.value(first)
        rest = ast.BoolOp(node.op, others)
        if self._truths(node):
            return self._either(
                lambda yes, no: self.branch(node, yes, no),
                lambda: Value(TRUTH, ("true",)),
                lambda: Value(TRUTH, ("false",)),
            )
        one = self.value(first)
        ways = (lambda: cast(Value, self._boolop(rest))), (lambda: one)
        then, otherwise = ways if isinstance(node.op, ast.And) else ways[::-1]
        return self._either(lambda yes, no: self.out.fork(self.out.truth(one), yes, no), then, otherwise)

    def _truths(self, node: ast.BoolOp) -> bool:
        """Whether all operands of and/or are booleans."""
        return all(self.out.tried(partial(self.value, item)).kind == TRUTH for item in node.values)

    def _ifexp(self, node: ast.IfExp) -> Known:
        test = partial(self.branch, node.test)
        return self._either(test, partial(self.value, node.body), partial(self.value, node.orelse))

    def _either(
        self, test: Callable[[str, str], None], then: Callable[[], Value], otherwise: Callable[[], Value]
    ) -> Value:
        """One of two values, depending on a condition: a branch and phi nodes."""
        out = self.out
        kind = either(out.tried(then).kind, out.tried(otherwise).kind)
        yes, no, both = out.name("yes"), out.name("no"), out.name("both")
        test(yes, no)
        leaves, ends = [], []
        for label, make in ((yes, then), (no, otherwise)):
            out.label(label)
            leaves.append(self.converted(make(), kind))
            ends.append(out.name("end"))
            out.label(ends[-1])
            out.jump(both)
        out.label(both)
        found = tuple(
            out.put(f"phi {code} [ {one}, %{ends[0]} ], [ {two}, %{ends[1]} ]")
            for code, one, two in zip(codes(kind), leaves[0].leaves, leaves[1].leaves, strict=True)
        )
        return Value(kind, found)

    def converted(self, value: Value, kind: Kind) -> Value:
        """A value converted to a kind that it is compatible with."""
        if value.kind == kind:
            return value
        if isinstance(kind, Scalar):
            return Value(kind, (self.out.cast(value, kind),))
        if isinstance(kind, Record) and isinstance(value.kind, Record):
            items = [self.converted(part, item) for part, item in zip(parts(value), kind.items, strict=True)]
            return Value(kind, tuple(leaf for item in items for leaf in item.leaves))
        raise NotPlain(f"{value.kind} as {kind}")

    def _call(self, node: ast.Call) -> Known:
        callee = self.expression(node.func)
        if not isinstance(callee, Static) or node.keywords:
            raise NotPlain(f"the call in line {node.lineno}")
        function = callee.value
        if isinstance(function, type) and issubclass(function, np.generic):
            return self._made(function, node)
        if isinstance(function, type) and issubclass(function, tuple) and hasattr(function, "_fields"):
            made_by = f"{function.__module__}:{function.__qualname__}"
            return joined([self.value(item) for item in node.args], tuple(function._fields), made_by)
        built_in = _CALLS.get(getattr(function, "__name__", ""))
        if built_in is not None and function in _BUILT_IN.values():
            return built_in(self, node.args)
        instruction = getattr(function, "plain", None)
        if isinstance(instruction, Instruction):
            return self._instruction(instruction, node.args)
        if isinstance(function, Hashable) and function in _OF_FRACTIONS:
            return self._of_fractions(_OF_FRACTIONS[function], node.args)
        return self._of_function(function, node)

    def _instruction(self, which: Instruction, given: list[ast.expr]) -> Known:
        if which in _OF_ROWS:
            return _OF_ROWS[which](self, given)
        values = [self.value(item) for item in given]
        leaves = [self.out.cast(value, kind) for value, kind in zip(values, which.takes, strict=True)]
        return Value(which.gives, (self.out.put(which.text.format(*leaves)),))

    def _lane(self, given: list[ast.expr]) -> Known:
        """One lane's element of a row; a number, or an array of zero dimensions, is the same for every lane."""
        row, lane = (self.value(item) for item in given)
        if not isinstance(row.kind, Array):
            return row
        return self.read(row, [lane]) if row.kind.ndim else self.load(row.leaves[0], row.kind.item)

    def _room(self, given: list[ast.expr]) -> Known:
        """A buffer on the stack, one number for each lane of a block; the optimiser knows that nothing aliases it."""
        kind, name = Scalar("u", 32), f"%{self.out.name('room')}"
        self.rooms.append(f"  {name} = alloca [{BLOCK} x {kind.code}]")
        return Value(Array(kind, 1, True), (name, str(BLOCK)))

    def _address(self, given: list[ast.expr]) -> Known:
        """The address of a table, held in a register: as a constant it would be rebuilt for each lane."""
        (table,) = (self.expression(item) for item in given)
        if not isinstance(table, Static) or not isinstance(table.value, np.ndarray):
            raise NotPlain("the address of something that is not known")
        where = self.out.put(f'call ptr asm sideeffect "", "=r,0"(ptr {self.functions.table(table.value)})')
        return Value(Array(scalar_of(table.value.dtype), 1, True), (where, str(table.value.size)))

    def _view(self, given: list[ast.expr], kind: Scalar, length: str) -> Known:
        """The elements from an address on."""
        address = self.out.cast(self.value(given[0]), INT) if given else "0"
        return Value(Array(kind, 1, True), (self.out.put(f"inttoptr i64 {address} to ptr"), length))

    def _space(self, given: list[ast.expr], kind: Scalar) -> Known:
        """A buffer on the stack."""
        name = f"%{self.out.name('space')}"
        self.rooms.append(f"  {name} = alloca [{BLOCK} x {kind.stored}], align 64")
        return Value(Array(kind, 1, True), (name, str(BLOCK)))

    def _read(self, given: list[ast.expr]) -> Known:
        room, index = (self.value(item) for item in given)
        return self.read(room, [Value(UINT, (self.out.cast(index, UINT),))])

    def _write(self, given: list[ast.expr]) -> Known:
        room, index, number = (self.value(item) for item in given)
        address, item = self.address(room, [Value(UINT, (self.out.cast(index, UINT),))])
        self.save(number, address, item)
        return number

    def _prefetch(self, given: list[ast.expr]) -> Known:
        """Prefetch the cache line of an element for writing, to all cache levels."""
        array, *indices = (self.value(item) for item in given)
        address, _ = self.address(array, [Value(UINT, (self.out.cast(index, UINT),)) for index in indices])
        self.out.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 1, i32 3, i32 1)")
        return Value(EMPTY, ())

    def _of_fractions(self, how: str, given: list[ast.expr]) -> Known:
        values = [self.value(item) for item in given]
        kind = number_kind(values[0])
        if kind.form != "f" or any(value.kind != kind for value in values):
            raise NotPlain(f"{how} of {kind}")
        passed = ", ".join(f"{kind.code} {value.leaves[0]}" for value in values)
        return Value(kind, (self.out.put(f"call {kind.code} @llvm.{how}.f{kind.bits}({passed})"),))

    def _made(self, kind: type[np.generic], node: ast.Call) -> Known:
        """A number of a NumPy type."""
        (given,) = (self.expression(item) for item in node.args)
        wanted = scalar_of(np.dtype(kind))
        if isinstance(given, Static) and type(given.value) is int and 0 <= given.value >> 63 <= 1 and wanted == UINT:
            return Value(UINT, (str(given.value),))
        return Value(wanted, (self.out.cast(self.computed(given), wanted),))

    def _of_function(self, function: object, node: ast.Call) -> Known:
        if not callable(function):
            raise NotPlain(f"a call of {function}")
        given = [self.expression(item) for item in node.args]
        given = [self.computed(one) if isinstance(one, Static) and is_number(one) else one for one in given]
        kinds = tuple(one if isinstance(one, Static) else one.kind for one in given)
        # choose among overloads by the kind of the first argument
        by_kind: dict[object, Function] = getattr(function, "by_kind", {})
        chosen = by_kind.get(kinds[0] if kinds else None, function)
        # a loop called from another loop is a rare path: inlined, it would slow down the common one
        apart = bool(getattr(chosen, "is_loop", False))
        callee = self.functions.called(getattr(chosen, "py_func", chosen), kinds, apart)
        values = [one for one in given if isinstance(one, Value)]
        pairs = [pair for one in values for pair in zip(codes(one.kind), one.leaves, strict=True)]
        call = f"@{callee.name}({', '.join(f'{code} {leaf}' for code, leaf in pairs)})"
        wanted = codes(callee.result)
        if not wanted:
            self.out.do(f"call void {call}")
            return Value(callee.result, ())
        result = self.out.put(f"call {result_code(callee.result)} {call}")
        if len(wanted) == 1:
            return Value(callee.result, (result,))
        whole = result_code(callee.result)
        leaves = (self.out.put(f"extractvalue {whole} {result}, {number}") for number in range(len(wanted)))
        return Value(callee.result, tuple(leaves))

    def _len(self, given: list[ast.expr]) -> Known:
        (of,) = (self.expression(item) for item in given)
        if isinstance(of, Static):
            return Static(len(cast(tuple[object, ...], of.value)))
        if isinstance(of.kind, Array):
            return Value(INT, (of.leaves[1],))
        return Static(len(parts(of)))

    def _extreme(self, operator: str, given: list[ast.expr]) -> Known:
        found, *others = [self.value(item) for item in given]
        for other in others:
            found = self.out.chosen(operator, found, other)
        return found

    def _converted_to(self, kind: Scalar, given: list[ast.expr]) -> Known:
        (value,) = (self.value(item) for item in given)
        if number_kind(value).form not in ("ib" if kind == INT else "iub"):
            raise NotPlain(f"{value.kind} as {kind}")
        return Value(kind, (self.out.cast(value, kind),))


_OF_ROWS: dict[Instruction, Callable[[Expressions, list[ast.expr]], Known]] = {
    LANE: Expressions._lane,
    ROOM: Expressions._room,
    ADDRESS: Expressions._address,
    READ: Expressions._read,
    WRITE: Expressions._write,
    PREFETCH: Expressions._prefetch,
    **{
        which[name]: partial(Expressions._view, kind=scalar_of(np.dtype(name)), length=length)
        for which, length in ((VIEWS, UNKNOWN_LENGTH), (ROWS, WARP_LENGTH), (EMPTIES, "0"))
        for name in which
    },
    **{which: partial(Expressions._space, kind=scalar_of(np.dtype(name))) for name, which in SPACES.items()},
}
_CALLS: dict[str, Callable[[Expressions, list[ast.expr]], Known]] = {
    "len": Expressions._len,
    "max": lambda self, given: self._extreme("max", given),
    "min": lambda self, given: self._extreme("min", given),
    "int": lambda self, given: self._converted_to(INT, given),
    "bool": lambda self, given: self._converted_to(TRUTH, given),
}


def result_code(kind: Kind) -> str:
    """The LLVM type of a function's result."""
    found = codes(kind)
    return "void" if not found else found[0] if len(found) == 1 else f"{{ {', '.join(found)} }}"


def _indices(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _chain(node: ast.Compare) -> ast.BoolOp:
    """`a < b < c` as `a < b and b < c`: evaluating the middle twice has no effect."""
    terms = [node.left, *node.comparators]
    if any(isinstance(inner, ast.Call) for term in terms[1:-1] for inner in ast.walk(term)):
        raise NotPlain(f"a call within comparisons in line {node.lineno}")
    pairs = zip(terms[:-1], node.ops, terms[1:], strict=True)
    return ast.BoolOp(ast.And(), [ast.Compare(left, [operator], [right]) for left, operator, right in pairs])


def _folded(operator: str, one: Known, two: Known) -> Static | None:
    """Constant folding where the result is exact in 64 bits: integers, and powers of two."""
    if not isinstance(one, Static) or not isinstance(two, Static):
        return None
    if operator == "Pow" and one.value == 2.0 and type(two.value) is int and -1022 <= two.value <= 1023:
        return Static(2.0**two.value)
    if not type(one.value) is type(two.value) is int:
        return None
    a, b = one.value, two.value
    found = {
        "Add": lambda: a + b,
        "Sub": lambda: a - b,
        "Mult": lambda: a * b,
        "LShift": lambda: a << b,
        "RShift": lambda: a >> b,
        "BitAnd": lambda: a & b,
        "BitOr": lambda: a | b,
        "FloorDiv": lambda: a // b if b else 1 << 64,
        "Mod": lambda: a % b if b else 1 << 64,
    }.get(operator, lambda: 1 << 64)()
    return Static(found) if -(1 << 63) <= found < 1 << 63 else None
