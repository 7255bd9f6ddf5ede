"""Functions of a loop: compiles their statements, and collects the module of a function and its callees."""

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from kernbench.common.native.expressions import Expressions, Function, Known, result_code
from kernbench.common.native.kinds import (
    EMPTY,
    INT,
    UINT,
    Array,
    Kind,
    NotPlain,
    Record,
    Scalar,
    Static,
    Value,
    codes,
    parts,
    unified,
)
from kernbench.common.native.writer import AS_VECTOR, PRELUDE, VECTOR_COUNTS, is_number, number_kind

# maximum number of passes over a function until the kinds of its variables are stable
_PASSES = 8


class _Source(NamedTuple):
    """The functions of a source file by name and line, and its lambdas."""

    named: dict[tuple[str, int], ast.FunctionDef]
    unnamed: list[ast.Lambda]


@cache
def _source(path: str) -> _Source:
    with open(path, encoding="utf-8") as file:
        found = list(ast.walk(ast.parse(file.read())))
    named = {(node.name, _line(node)): node for node in found if isinstance(node, ast.FunctionDef)}
    return _Source(named, [node for node in found if isinstance(node, ast.Lambda)])


def _line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def syntax_of(function: Function) -> ast.FunctionDef:
    """The syntax tree of a function; for generated functions, that of the text in `written_as`."""
    if not isinstance(function, FunctionType):
        raise NotPlain(f"the function {function}")
    code = function.__code__
    if hasattr(function, "written_as"):
        return cast(ast.FunctionDef, ast.parse(function.written_as).body[0])
    try:
        source = _source(inspect.getsourcefile(function) or "")
        if code.co_name == "<lambda>":
            return _as_function(source.unnamed, code)
        return source.named[code.co_name, code.co_firstlineno]
    except (KeyError, OSError) as error:
        raise NotPlain(f"no source of {function.__qualname__}") from error


def _as_function(lambdas: list[ast.Lambda], code: CodeType) -> ast.FunctionDef:
    """The lambda that a code object comes from, as a function: several lambdas may be on one line.

    It is the smallest lambda with the same parameters that contains the source positions of all instructions.
    """
    if any(isinstance(constant, CodeType) for constant in code.co_consts):
        raise NotPlain(f"a function within the lambda in line {code.co_firstlineno}")
    spans = [(line, column, last, end) for line, last, column, end in code.co_positions() if column != end]
    # positions of instructions are missing under `python -X no_debug_ranges`
    if not spans:
        raise NotPlain(f"nothing says which lambda of line {code.co_firstlineno} it is")
    names = list(code.co_varnames[: code.co_argcount])
    around = [
        node
        for node in lambdas
        if [given.arg for given in node.args.args] == names and all(_is_around(node, span) for span in spans)
    ]
    if not around:
        raise KeyError(code.co_firstlineno)
    # of nested lambdas, the innermost begins last
    node = max(around, key=lambda node: (node.lineno, node.col_offset))
    body: list[ast.stmt] = [ast.Return(node.body)]
    return ast.FunctionDef(name="lambda", args=node.args, body=body, decorator_list=[], lineno=node.lineno)


def _is_around(node: ast.Lambda, span: tuple[int | None, ...]) -> bool:
    """Whether a source span (line, column, last line, end column) is inside a lambda."""
    line, column, last, end = (at or 0 for at in span)
    behind = (node.end_lineno or 0, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= (line, column) and (last, end) <= behind


def _outside(function: FunctionType) -> dict[str, object]:
    """The non-local names of a function: variables of enclosing functions, and globals."""
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError as error:
        raise NotPlain(f"a variable around {function.__qualname__} has no value yet") from error
    return {**function.__globals__, **dict(zip(function.__code__.co_freevars, cells, strict=True))}


@dataclass(frozen=True)
class Written:
    """A compiled function: its name in the module, the kind of its result, and its text."""

    name: str
    result: Kind
    text: str


class Module:
    """The functions of one loop, each compiled once for each combination of argument kinds."""

    def __init__(self, as_numpy: bool = False, inlined: bool = False) -> None:
        """`as_numpy`: floating-point division by zero gives infinities, as in NumPy, and no error.

        `inlined`: functions are part of their callers, so that constants that are passed are constants inside.
        """
        self.as_numpy, self.inlined = as_numpy, inlined
        self._written: dict[tuple[Function, tuple[Kind | Static, ...]], Written] = {}
        self._begun: list[Function] = []
        # texts of tables, by the id of the array with their numbers
        self._tables: dict[int, str] = {}

    def table(self, numbers: NDArray[np.generic]) -> str:
        """The name of a table of constants in the module; the array must not change any more."""
        known = self._tables.get(id(numbers))
        if known is not None:
            return known.partition(" ")[0]
        name, data = f"@table.{len(self._tables)}", numbers.tobytes().hex("\\")
        head = f"{name} = internal constant [{numbers.nbytes} x i8]"
        self._tables[id(numbers)] = f'{head} c"\\{data}", align {numbers.itemsize}\n'
        return name

    def called(self, function: Function, kinds: tuple[Kind | Static, ...], apart: bool = False) -> Written:
        """The function compiled for arguments of these kinds; with `apart` it is never inlined."""
        key = (function, kinds)
        if key not in self._written:
            if function in self._begun:
                raise NotPlain("a function that calls itself")
            self._begun.append(function)
            name = f"f{len(self._begun)}.{len(self._written)}.{function.__name__.replace('<', '').replace('>', '')}"
            attributes = "noinline" if apart else "alwaysinline" if self.inlined else ""
            self._written[key] = _Body(self, function, kinds).written(name, attributes)
            self._begun.pop()
        return self._written[key]

    @property
    def text(self) -> str:
        """The module as LLVM IR."""
        return PRELUDE + "".join(self._tables.values()) + "\n".join(one.text for one in self._written.values())


class _Range(NamedTuple):
    """A range: kind of the counter, start, stop and step."""

    kind: Scalar
    start: str
    stop: str
    step: str


class _Body(Expressions):
    """Compiles the statements of one function."""

    def __init__(self, module: Module, function: Function, kinds: tuple[Kind | Static, ...]):
        self._node = syntax_of(function)
        plain = cast(FunctionType, function)
        super().__init__(module, _outside(plain))
        self.out.as_numpy = module.as_numpy
        spec = self._node.args
        names = [given.arg for given in spec.args]
        if spec.vararg or spec.kwarg or spec.kwonlyargs or len(names) != len(kinds):
            raise NotPlain(f"the arguments of {plain.__qualname__}")
        self._given = {name: kind for name, kind in zip(names, kinds, strict=True) if not isinstance(kind, Static)}
        self._static = {name: kind for name, kind in zip(names, kinds, strict=True) if isinstance(kind, Static)}
        self.kinds |= self._given
        self._result: Kind | None = None
        self._loops: list[tuple[str, str]] = []

    def written(self, name: str, attributes: str) -> Written:
        """The function as text, compiled again until the kinds of its variables are stable."""
        for _ in range(_PASSES):
            before = (dict(self.kinds), self._result)
            text = self._pass(name, f"nounwind {attributes}")
            if before == (self.kinds, self._result):
                return Written(name, self._result or EMPTY, text)
        raise NotPlain(f"kinds of variables in {self._node.name}")

    def _pass(self, name: str, attributes: str) -> str:
        out = self.out
        out.lines.clear()
        self.rooms.clear()
        self.statics = dict(self._static)
        out.label("body")
        self._statements(self._node.body)
        self._leave(Value(EMPTY, ()) if not codes(self._result or EMPTY) else None)
        slots = list(self.rooms)
        stores: list[str] = []
        arguments: list[str] = []
        for variable, kind in self.kinds.items():
            slots += [f"  %{variable}.v{number} = alloca {code}" for number, code in enumerate(codes(kind))]
        for variable, kind in self._given.items():
            arguments += [f"{code} %{variable}.g{number}" for number, code in enumerate(codes(kind))]
        body, out.lines = out.lines, stores
        out._ended = False
        for variable, kind in self._given.items():
            given = Value(kind, tuple(f"%{variable}.g{number}" for number in range(len(codes(kind)))))
            self._keep(variable, given)
        out.lines = body
        head = f"define internal {result_code(self._result or EMPTY)} @{name}({', '.join(arguments)}) {attributes} {{"
        return "\n".join([head, "entry:", *slots, *stores, *body, "}"])

    def _keep(self, variable: str, value: Value) -> None:
        kind = self.kinds[variable] = unified(self.kinds.get(variable), value.kind)
        leaves = self.converted(value, kind).leaves
        for number, (code, leaf) in enumerate(zip(codes(kind), leaves, strict=True)):
            self.out.do(f"store {code} {leaf}, ptr %{variable}.v{number}")

    def _leave(self, value: Value | None) -> None:
        """Return a value; None means that the end is unreachable."""
        if value is None:
            self.out.leave("unreachable")
            return
        kind = self._result = unified(self._result, value.kind)
        leaves, wanted = self.converted(value, kind).leaves, codes(kind)
        if len(wanted) < 2:
            self.out.leave(f"ret {wanted[0]} {leaves[0]}" if wanted else "ret void")
            return
        whole = "undef"
        for number, (code, leaf) in enumerate(zip(wanted, leaves, strict=True)):
            whole = self.out.put(f"insertvalue {result_code(kind)} {whole}, {code} {leaf}, {number}")
        self.out.leave(f"ret {result_code(kind)} {whole}")

    def _statements(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            how: Callable[[ast.stmt], None] | None = getattr(self, f"_do_{type(node).__name__.lower()}", None)
            if how is None:
                raise NotPlain(f"{type(node).__name__} in line {node.lineno}")
            how(node)

    def _do_pass(self, node: ast.Pass) -> None:
        pass

    def _do_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expression(node.value)

    def _do_return(self, node: ast.Return) -> None:
        self._leave(self.value(node.value) if node.value is not None else Value(EMPTY, ()))

    def _do_break(self, node: ast.Break) -> None:
        self.out.jump(self._loops[-1][1])

    def _do_continue(self, node: ast.Continue) -> None:
        self.out.jump(self._loops[-1][0])

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self.expression(node.value))

    def _do_assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple):
            found = [self.expression(item) for item in node.value.elts]
            for target, value in zip(node.targets[0].elts, found, strict=True):
                self._assign(target, value)
            return
        value = self.expression(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _assign(self, target: ast.expr, value: Known) -> None:
        if isinstance(target, ast.Name):
            if target.id == "_":
                return
            if isinstance(value, Static) and not is_number(value) and not isinstance(value.value, tuple):
                self.statics[target.id] = value
            else:
                self._keep(target.id, self.computed(value))
        elif isinstance(target, ast.Tuple):
            for name, item in zip(target.elts, self._items(self.computed(value), len(target.elts)), strict=True):
                self._assign(name, item)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
            self._fill(self.value(target.value), target.slice, self.computed(value))
        elif isinstance(target, ast.Subscript):
            # Python evaluates the value before the target
            computed = self.computed(value)
            self.save(computed, *self.element(target))
        else:
            raise NotPlain(f"an assignment in line {target.lineno}")

    def _items(self, value: Value, count: int) -> list[Value]:
        """The values of an unpacking assignment: the items of a tuple, or the first rows of an array."""
        if isinstance(value.kind, Array):
            return [self.read(value, [Value(INT, (str(number),))]) for number in range(count)]
        if not isinstance(value.kind, Record):
            raise NotPlain(f"several variables of {value.kind}")
        return parts(value)

    def _in_one_row(self, array: Value) -> Value:
        """A contiguous array as one row."""
        kind = array.kind
        if not isinstance(kind, Array) or not kind.packed or kind.ndim < 2:
            return array
        size, *others = array.leaves[1:]
        for length in others:
            size = self.out.put(f"mul i64 {size}, {length}")
        return Value(Array(kind.item, 1, True), (array.leaves[0], size))

    def _fill(self, array: Value, part: ast.Slice, value: Value) -> None:
        """Compile `array[:stop] = number`."""
        array = self._in_one_row(array) if part.upper is None else array
        kind, out = array.kind, self.out
        if not isinstance(kind, Array) or kind.ndim != 1 or part.lower or part.step or len(value.leaves) != 1:
            raise NotPlain(f"an assignment to several elements of {kind}")
        stop = length = array.leaves[1]
        if part.upper is not None:
            given = out.cast(self.value(part.upper), INT)
            below, behind = out.put(f"icmp slt i64 {given}, 0"), out.put(f"add i64 {given}, {length}")
            stop = out.put(f"select i1 {below}, i64 {behind}, i64 {given}")
            stop = out.put(f"call i64 @llvm.smin.i64(i64 {stop}, i64 {length})")
        number = Value(kind.item, (out.cast(value, kind.item),))
        before, test, body, after = out.name("before"), out.name("test"), out.name("body"), out.name("after")
        counter = f"%{out.name('count')}"
        out.label(before)
        out.label(test)
        out.do(f"{counter} = phi i64 [ 0, %{before} ], [ {counter}.next, %{body} ]")
        out.fork(out.put(f"icmp slt i64 {counter}, {stop}"), body, after)
        out.label(body)
        # unsigned, so that no code for negative indices is emitted
        address, item = self.address(array, [Value(UINT, (counter,))])
        self.save(number, address, item)
        out.do(f"{counter}.next = add nsw i64 {counter}, 1")
        out.jump(test)
        out.label(after)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        operator = type(node.op).__name__
        if isinstance(node.target, ast.Subscript):
            address, item = self.element(node.target)
            old = self.load(address, item)
            self.save(self.out.binary(operator, old, self.value(node.value)), address, item)
        else:
            old = self.value(node.target)
            self._assign(node.target, self.out.binary(operator, old, self.value(node.value)))

    def _do_if(self, node: ast.If) -> None:
        out = self.out
        yes, no, after = out.name("then"), out.name("else"), out.name("after")
        self.branch(node.test, yes, no)
        out.label(yes)
        self._statements(node.body)
        out.jump(after)
        out.label(no)
        self._statements(node.orelse)
        out.label(after)

    def _do_while(self, node: ast.While) -> None:
        if node.orelse:
            raise NotPlain("while with else")
        out = self.out
        test, body, after = out.name("test"), out.name("body"), out.name("after")
        out.label(test)
        if isinstance(node.test, ast.Constant) and node.test.value is True:
            out.jump(body)
        else:
            self.branch(node.test, body, after)
        out.label(body)
        self._loops.append((test, after))
        self._statements(node.body)
        self._loops.pop()
        out.jump(test)
        out.label(after)

    def _do_for(self, node: ast.For) -> None:
        if node.orelse or not isinstance(node.target, ast.Name):
            raise NotPlain(f"the loop in line {node.lineno}")
        out = self.out
        numbers, item = self._iterated(node.iter)
        counter = out.name("count")
        test, body, following, after = out.name("test"), out.name("body"), out.name("next"), out.name("after")
        before = out.name("before")
        out.label(before)
        out.label(test)
        at = f"%{counter}"
        out.do(f"{at} = phi i64 [ {numbers.start}, %{before} ], [ %{counter}.next, %{following} ]")
        out.fork(self._goes_on(numbers, at), body, after)
        out.label(body)
        self._keep(node.target.id, item(Value(numbers.kind, (at,))))
        self._loops.append((following, after))
        self._statements(node.body)
        self._loops.pop()
        out.label(following)
        out.do(f"%{counter}.next = add {'nuw' if numbers.kind == UINT else 'nsw'} i64 {at}, {numbers.step}")
        out.leave(f"br label %{test}{AS_VECTOR if numbers.stop in VECTOR_COUNTS else ''}")
        out.label(after)

    def _goes_on(self, numbers: _Range, at: str) -> str:
        """Whether a counter has not reached the stop of its range; the step may be known only at run time."""
        up = self.out.put(f"icmp {'u' if numbers.kind == UINT else 's'}lt i64 {at}, {numbers.stop}")
        if numbers.step.isdigit():
            return up
        down = self.out.put(f"icmp sgt i64 {at}, {numbers.stop}")
        rising = self.out.put(f"icmp sgt i64 {numbers.step}, 0")
        return self.out.put(f"select i1 {rising}, i1 {up}, i1 {down}")

    def _iterated(self, node: ast.expr) -> tuple[_Range, Callable[[Value], Value]]:
        """The range of a loop's counter, and the loop variable for each count: the counter itself, or an element."""
        if isinstance(node, ast.Call) and self.expression(node.func) == Static(range):
            return self._range(node), lambda number: number
        given = self.value(node)
        if isinstance(given.kind, Array) and given.kind.ndim == 1:
            return _Range(INT, "0", given.leaves[1], "1"), lambda number: self.read(given, [number])
        if isinstance(given.kind, Record) and len(set(given.kind.items)) == 1:
            # unsigned, so that no code for negative indices is emitted
            return _Range(UINT, "0", str(len(given.kind.items)), "1"), lambda number: self.one_of(given, number)
        raise NotPlain(f"a loop over {given.kind} in line {node.lineno}")

    def _range(self, node: ast.Call) -> _Range:
        given = [self.value(item) for item in node.args]
        ends = given[:2] if len(given) > 1 else [self.out.number(0), *given]
        forms = {number_kind(one).form for one in given}
        if len(given) == 3 and given[2].leaves[0].isdigit():
            forms = {number_kind(one).form for one in given[:2]}
        if not forms <= {"i", "u"}:
            raise NotPlain(f"the range in line {node.lineno}")
        kind = UINT if forms == {"u"} else INT
        start, stop = (self.out.cast(end, kind) for end in ends)
        return _Range(kind, start, stop, self.out.cast(given[2], kind) if len(given) == 3 else "1")
