"""A loop that numba has compiled, as a function of our own convention: it can be called, and kept, without numba.

numba passes an array as seven things, and returns a status beside what a function gives; ours are passed as `kinds`
says. What numba made is taken only if it is as expected in every respect: the types of its parameters, that it gives
nothing, and that there is nothing it could raise. So a numba that does this otherwise costs time, and nothing else.
"""

import re

from kernbench.common.native.kinds import Array, Kind, NotPlain, Record, Value, codes, parts
from kernbench.common.native.writer import Writer

_PARAMETER = re.compile(r"^(ptr|i\d+|float|double)\b")
# brackets of attributes of parameters hold commas: captures(none), range(i32 0, 2)
_BRACKETS = re.compile(r"\([^()]*\)")


def adapter(text: str, called: str, kinds: tuple[Kind, ...], name: str) -> str:
    """A function `name` of kinds of arguments that calls numba's function `called` of a module's text."""
    out = Writer()
    out.label("entry")
    # the status and the exception of a function that gives and raises nothing
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
    # it has nothing to raise; if it did, the loop would not end in silence
    status = out.put(f"call i32 @{called}({', '.join(f'{code} {leaf}' for code, leaf in passed)})")
    # numba says -2 where nothing is given back
    nothing = out.put(f"icmp eq i32 {status}, -2")
    out.do(f"store i32 {out.put(f'select i1 {nothing}, i32 0, i32 {status}')}, ptr @failed")
    out.leave("ret void")
    body = "\n".join(out.lines)
    declared = f"declare i32 @{called}({', '.join(code for code, _ in passed)})\n"
    return f"{declared}define internal void @{name}({', '.join(ours)}) nounwind {{\n{body}\n}}\n"


def _passed(out: Writer, value: Value) -> list[tuple[str, str]]:
    """What numba takes for an argument: of a tuple what it takes for its items."""
    kind = value.kind
    if isinstance(kind, Array):
        return _array(out, kind, list(value.leaves))
    if isinstance(kind, Record):
        return [pair for item in parts(value) for pair in _passed(out, item)]
    # a truth value is a byte
    leaf = out.put(f"zext i1 {value.leaves[0]} to i8") if kind.form == "b" else value.leaves[0]
    return [(kind.stored, leaf)]


def _array(out: Writer, kind: Array, leaves: list[str]) -> list[tuple[str, str]]:
    """What owns it (nothing that is counted), its elements and their bytes, its address, lengths and strides."""
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
    """Whether numba's function is one that is called like this, gives nothing and raises nothing."""
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
    # what it raises lies in the module, pickled
    if "%excinfo" not in listed[1] or "picklebuf" in text:
        raise NotPlain(f"{called} raises exceptions")
