"""Lane-wise operations: from the function over rows that the numerics give to the operation of the executor."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import FunctionType, MappingProxyType, SimpleNamespace

import numpy as np

from kernbench.common.native.kinds import INT, UINT, Instruction
from kernbench.common.native_loops import RowLoop
from kernbench.ptx.emulator.lanes.packing import Packs, Unpacks
from kernbench.ptx.emulator.program.steps import Compute, WithTable, copy, copy_all, cut, in_shared_memory, sign_extend
from kernbench.ptx.executor.compiling import Lanewise
from kernbench.ptx.numerics.floats.half import Packed
from kernbench.ptx.numerics.integers.arithmetic import OnViews
from kernbench.ptx.numerics.table import TwoOrThree

# types of elements by the name of a bank
_TYPES = {"bool": "b1", "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8"}
# an element of the result of a NumPy function, by its elements a and b; numbers are 64 bits wide in between
_EXPRESSIONS: dict[np.ufunc, str] = {
    np.add: "a + b",
    np.subtract: "a - b",
    np.multiply: "a * b",
    np.negative: "-a",
    np.bitwise_and: "a & b",
    np.bitwise_or: "a | b",
    np.bitwise_xor: "a ^ b",
    np.invert: "~a",
    np.logical_and: "a & b",
    np.logical_or: "a | b",
    np.logical_xor: "a ^ b",
    np.logical_not: "not a",
    np.equal: "a == b",
    np.not_equal: "a != b",
    np.less: "a < b",
    np.less_equal: "a <= b",
    np.greater: "a > b",
    np.greater_equal: "a >= b",
    np.minimum: "a if a < b else b",
    np.maximum: "a if a > b else b",
    np.absolute: "-a if a < 0 else a",
    # of 32 bits, within 64: an amount beyond the width leaves nothing but the sign
    np.left_shift: "a << min(b, 63) if b < 32 else np.uint64(0)",
    np.right_shift: "a >> min(b, 63)",
}


@cache
def lanewise(function: Compute, sources: tuple[str, ...], targets: tuple[str, ...]) -> Lanewise | None:
    """The operation `function(*sources, *targets)` over rows of these banks; None if there is no compiled form."""
    given, taken = tuple(_TYPES[bank] for bank in sources), tuple(_TYPES[bank] for bank in targets)
    if isinstance(function, TwoOrThree):
        function = function.of(len(sources))
    if isinstance(function, Packed):
        return _of_elements(function, given, taken)
    if isinstance(function, OnViews):
        view, written = (np.dtype(one).str[1:] for one in (function.view, function.written))
        return lanewise_of(function.function, (view,) * len(given), ("b1" if written == "b1" else written,))
    return lanewise_of(function, given, taken)


def _of_elements(function: Packed, given: tuple[str, ...], taken: tuple[str, ...]) -> Lanewise | None:
    """Registers of several elements: the rows have as many more."""
    kind = f"u{function.lane_bits // 8}"
    count = np.dtype(taken[0]).itemsize // np.dtype(kind).itemsize
    inner = function.operation
    if isinstance(inner, OnViews):
        kind, inner = np.dtype(inner.view).str[1:], inner.function
    made = lanewise_of(inner, (kind,) * len(given), (kind,) * len(taken))
    return None if made is None else replace(made, name=f"{made.name} x{count}", count=count)


def lanewise_of(function: Compute, given: tuple[str, ...], taken: tuple[str, ...]) -> Lanewise | None:
    """An operation over rows of elements of these types."""
    kinds = f"{' '.join(given)} > {' '.join(taken)}"
    if isinstance(function, RowLoop):
        return Lanewise(f"{function.__name__} {kinds}", function.py_func, given, taken)
    if function is np.right_shift and given[0][0] == "i":
        given = (given[0], "u4")
    if function is sign_extend:
        given, taken = (tuple(f"i{one[1:]}" for one in kind) for kind in (given, taken))
    found = _expressions(function, len(given), len(taken))
    return None if found is None else _written(f"{found[0]} {kinds}", found[1], given, taken)


def _expressions(function: Compute, given: int, taken: int) -> tuple[str, list[str]] | None:
    """The name of a function over rows, and the expressions of its results."""
    if isinstance(function, WithTable):
        return f"lop3 {function.table:#x}", [_of_table(function.table)]
    if isinstance(function, Packs):
        parts = [f"(np.uint64({name}) << {number * function.width})" for number, name in enumerate(_names(given))]
        return f"pack {function.width}", [" | ".join(parts)]
    if isinstance(function, Unpacks):
        return f"unpack {function.width}", [f"a >> {number * function.width}" for number in range(taken)]
    if isinstance(function, np.ufunc) and function in _EXPRESSIONS:
        return function.__name__, [_EXPRESSIONS[function]]
    if function is copy_all:
        return "copies", _names(given)
    return _PLAIN.get(function)


_PLAIN: dict[object, tuple[str, list[str]]] = {
    copy: ("copy", ["a"]),
    cut: ("cut", ["a"]),
    sign_extend: ("sign_extend", ["a"]),
    in_shared_memory: ("in_shared_memory", [f"a & np.uint64({(1 << 32) - 1}) if a >> 44 == 3 else a"]),
}


# quotients of 64-bit numbers, truncated; a divisor must not be 0 or -1
_QUOTIENTS = {
    (name, letter): Instruction((kind, kind), kind, f"{letter}{code} i64 {{0}}, {{1}}")
    for name, code in (("div", "div"), ("rem", "rem"))
    for letter, kind in (("s", INT), ("u", UINT))
}


def division(name: str, kind: str) -> Lanewise:
    """div or rem of integers: by 0 it gives anything, by -1 the least number gives itself."""
    letter, size = ("s" if kind[0] == "s" else "u"), int(kind[1:]) // 8
    element = f"{'i' if letter == 's' else 'u'}{size}"
    if letter == "s":
        by_minus_one = "0 - a" if name == "div" else "0"
        text = f"{by_minus_one} if b == -1 else quotient(a, 1 if b == 0 or b == -1 else b)"
    else:
        text = "quotient(a, np.uint64(1) if b == 0 else np.uint64(b))"
    instruction = SimpleNamespace(plain=_QUOTIENTS[name, letter])
    return _written(f"{name} {kind}", [text], (element, element), (element,), {"quotient": instruction})


def _names(count: int) -> list[str]:
    return [chr(ord("a") + number) for number in range(count)]


def _of_table(table: int) -> str:
    """The expression of a table of three bits: an or of the cases in which it is one."""
    cases = [
        " & ".join(name if case >> bit & 1 else f"~{name}" for name, bit in (("a", 2), ("b", 1), ("c", 0)))
        for case in range(8)
        if table >> case & 1
    ]
    return " | ".join(f"({case})" for case in cases) or "0"


def _written(
    name: str,
    parts: list[str],
    given: tuple[str, ...],
    taken: tuple[str, ...],
    known: Mapping[str, object] = MappingProxyType({}),
) -> Lanewise:
    """An operation by the expressions of its results."""
    names = _names(len(given))
    rows, outs = [f"row_{one}" for one in names], [f"out{number}" for number in range(len(parts))]
    reads = "".join(f"        {one} = {row}[lane]\n" for one, row in zip(names, rows, strict=True))
    writes = "".join(f"        {out}[lane] = {part}\n" for out, part in zip(outs, parts, strict=True))
    text = (
        f"def operation({', '.join(rows + outs)}):\n"
        f"    for lane in range(np.uint64(0), np.uint64(out0.size)):\n{reads}{writes}"
    )
    space: dict[str, object] = {"np": np, "__name__": __name__, **known}
    made: dict[str, Callable[..., object]] = {}
    exec(compile(text, __file__, "exec"), space, made)
    function = made["operation"]
    assert isinstance(function, FunctionType)
    vars(function)["written_as"] = text
    return Lanewise(name, function, given, taken)
