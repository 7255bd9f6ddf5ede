"""Adapts a loop compiled by numba to our own calling convention, so that it can be called and cached without numba.

numba passes an array as seven values and returns a status code; our functions take arguments as in `kinds`. The adapter
checks numba's function in every respect: its parameter types, that it returns nothing, and that it cannot raise. So if
another version of numba does this differently, only time is lost.
"""

import re

from kernbench.common.native.kinds import Array, Kind, NotPlain, Record, Value, codes, parts
from kernbench.common.native.writer import Writer

_PARAMETER = re.compile(r"^(ptr|i\d+|float|double)\b")
# the brackets of parameter attributes contain commas: captures(none), range(i32 0, 2)
_BRACKETS = re.compile(r"\([^()]*\)")


def adapter(text: str, called: str, kinds: tuple[Kind, ...], name: str) -> str:
    """IR of a function `name` with our convention, which calls numba's function `called` of module `text`."""
    out = Writer()
    out.label("entry")
    # pointers for the return value and the exception, which this function never sets
    given, raised = out.put("alloca ptr"), out.put("alloca ptr")
    out.do(f"store ptr null, ptr {given}")
    out.do(f"store ptr null, ptr {raised}")
    passed = [("ptr", given), ("ptr", raised)]
    ours: list[str] = []
    for number, kind in enumerate(kinds):
        leaves = [f"%g{number}.{part}" for part in range(len(codes(kind)))]
        ours += [f"{code} {leaf}" for code, leaf in zip(codes(kind), leaves, strict=True)]
        passed += _passed(out, Value(kind, tuple(leaves)))
    _check(text, called, [code for code, _ in passed])
    # it cannot raise; if it did after all, the error would not be lost
    status = out.put(f"call i32 @{called}({', '.join(f'{code} {leaf}' for code, leaf in passed)})")
    # numba's status for "returned None" is -2
    nothing = out.put(f"icmp eq i32 {status}, -2")
    out.do(f"store i32 {out.put(f'select i1 {nothing}, i32 0, i32 {status}')}, ptr @failed")
    out.leave("ret void")
    body = "\n".join(out.lines)
    declared = f"declare i32 @{called}({', '.join(code for code, _ in passed)})\n"
    return f"{declared}define internal void @{name}({', '.join(ours)}) nounwind {{\n{body}\n}}\n"


def _passed(out: Writer, value: Value) -> list[tuple[str, str]]:
    """The values that numba expects for an argument; for a tuple, those of its items."""
    kind = value.kind
    if isinstance(kind, Array):
        return _array(out, kind, list(value.leaves))
    if isinstance(kind, Record):
        return [pair for item in parts(value) for pair in _passed(out, item)]
    # numba passes a boolean as a byte
    leaf = out.put(f"zext i1 {value.leaves[0]} to i8") if kind.form == "b" else value.leaves[0]
    return [(kind.stored, leaf)]


def _array(out: Writer, kind: Array, leaves: list[str]) -> list[tuple[str, str]]:
    """numba's array: meminfo and parent (null), item count, item size, address, lengths and strides."""
    address, *rest = leaves
    lengths, strides = rest[: kind.ndim], rest[kind.ndim :]
    size = "1"
    for length in lengths:
        size = out.put(f"mul i64 {size}, {length}")
    if kind.packed:
        strides, stride = [], str(kind.item.nbytes)
        for length in reversed(lengths):
            strides.insert(0, stride)
            stride = out.put(f"mul i64 {stride}, {length}")
    head = [("ptr", "null"), ("ptr", "null"), ("i64", size), ("i64", str(kind.item.nbytes)), ("ptr", address)]
    return head + [("i64", leaf) for leaf in [*lengths, *strides]]


def _check(text: str, called: str, expected: list[str]) -> None:
    """Check that numba's function takes these parameters, returns nothing and raises nothing."""
    pattern = rf"^define [^@\n]*\bi32 @{re.escape(called)}\((.*)\)[^()\n]*\{{$"
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise NotPlain(f"no function {called} that gives a status")
    parameters = found[1]
    while _BRACKETS.search(parameters):
        parameters = _BRACKETS.sub("", parameters)
    listed = [one.strip() for one in parameters.split(",")]
    kinds = [match[1] if (match := _PARAMETER.match(one)) else one for one in listed]
    if kinds != expected:
        raise NotPlain(f"{called} has the parameters {kinds}, not {expected}")
    # exceptions are stored in the module, pickled
    if "%excinfo" not in listed[1] or "picklebuf" in text:
        raise NotPlain(f"{called} raises exceptions")
