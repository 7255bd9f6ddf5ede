"""parse(emit(m)) == m, and text printed twice is the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.ptx.corpus import MIXED, VARIANTS, compiled
from tests.ptx.toolchain import need_ptxas, run_ptxas

from kernbench import ptx
from kernbench.ptx.text.module import (
    Address,
    Block,
    Float,
    Function,
    Group,
    Guard,
    Instruction,
    Integer,
    Label,
    Loc,
    Module,
    Name,
    Not,
    Offset,
    Pair,
    Registers,
    Variable,
    Vector,
)
from kernbench.ptx.validation.validation import problems


def check(module: ptx.Module) -> None:
    text = module.emit()
    again = ptx.parse(text)
    assert again == module
    assert again.emit() == text


def test_mixed():
    check(ptx.parse(MIXED))


@pytest.mark.programs
@pytest.mark.parametrize(("arch", "option"), VARIANTS)
def test_compiled(arch, option):
    module = ptx.parse(compiled("features.cu", arch, option))
    assert set(module.kernels) == {"everything", "matrix"}
    check(module)
    assert list(problems(module)) == []


@pytest.mark.programs
@pytest.mark.parametrize(("arch", "option"), VARIANTS)
def test_printed_text_assembles(arch, option):
    module = ptx.parse(compiled("features.cu", arch, option))
    need_ptxas(arch, module.version)
    assert run_ptxas(module.emit(), arch, "-O0") == ({}, None)


def test_a_kernel_emits_what_it_needs():
    text = MIXED.replace(".visible .entry everything", ".entry second() { ret; }\n.visible .entry everything")
    module = ptx.parse(text)
    alone = ptx.parse(module.kernels["everything"].emit())
    assert list(alone.kernels) == ["everything"]
    assert alone.functions == module.functions


names = st.from_regex(r"[%$_]?[a-zA-Z][a-zA-Z0-9_$]{0,6}", fullmatch=True).filter(lambda name: name not in ("WARP_SZ",))
name_operands = st.builds(Name, names | st.sampled_from(["%tid.x", "_", "%v.w"]))
integers = st.integers(-(2**63), 2**64 - 1).map(lambda value: Integer(value, str(value)))
floats = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda bits: Float(bits, 32, f"0f{bits:08X}")),
    st.integers(0, 2**64 - 1).map(lambda bits: Float(bits, 64, f"0d{bits:016X}")),
)
offsets = st.integers(-(2**31), 2**31)
simple = name_operands | integers | floats
vectors = st.lists(simple, min_size=1, max_size=8).map(lambda items: Vector(tuple(items)))
addresses = st.builds(Address, st.builds(Name, names), offsets, st.lists(simple | vectors, max_size=2).map(tuple))
operands = st.one_of(
    simple,
    vectors,
    addresses,
    st.builds(Offset, st.builds(Name, names), offsets.filter(bool)),
    st.builds(Not, st.builds(Name, names)),
    st.builds(Pair, name_operands, name_operands),
)
words = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9_]{0,5}(::[a-z0-9]{1,4})?", fullmatch=True)
opcodes = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True).filter(lambda text: text != "call")
guards = st.none() | st.builds(Guard, names, st.booleans())
instructions = st.builds(
    Instruction,
    opcodes,
    st.lists(words, max_size=4).map(tuple),
    st.lists(operands, max_size=5).map(tuple),
    guards,
)
calls = st.lists(simple, max_size=3).map(
    lambda items: Instruction("call", ("uni",), (Group(tuple(items)), Name("f"), Group(()), Name("proto")))
)
types = st.sampled_from(["b8", "b32", "u64", "f32", "f16x2", "pred", "b128", "s8"])
registers = st.builds(
    Registers,
    types,
    st.lists(st.tuples(names, st.integers(0, 2**20)), min_size=1, max_size=3).map(tuple),
    st.sampled_from([1, 2, 4]),
)
variables = st.builds(
    Variable,
    st.sampled_from(["shared", "local", "global", "const", "param"]),
    types,
    names,
    st.lists(st.integers(0, 64), max_size=3).map(tuple),
    st.sampled_from([None, 4, 128]),
    st.sampled_from([1, 2, 4]),
    st.none() | st.recursive(integers | floats, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6),
    st.sampled_from(["", "extern", "visible", "weak"]),
)
labels = st.builds(Label, names) | st.builds(
    Label, names, st.just("branchtargets"), st.lists(names, min_size=1, max_size=3).map(tuple)
)
locs = st.builds(Loc, st.integers(0, 9), st.integers(0, 999), st.integers(0, 99))
statements = st.recursive(
    instructions | calls | registers | variables | labels | locs,
    lambda inner: st.lists(inner, max_size=4).map(lambda items: Block(tuple(items))),
    max_leaves=12,
)
functions = st.builds(
    Function,
    st.just("entry"),
    names,
    st.lists(st.builds(Variable, st.just("param"), types, names), max_size=3).map(tuple),
    st.just(()),
    st.lists(statements, max_size=6).map(lambda items: Block(tuple(items))),
    st.sampled_from(["", "visible"]),
    st.sampled_from([(), (("maxntid", (128, 1, 1)), ("noreturn", ()))]),
)
modules = st.builds(
    Module,
    st.tuples(st.integers(1, 9), st.integers(0, 9)),
    st.sampled_from([("sm_80",), ("sm_90a", "debug")]),
    st.sampled_from([32, 64]),
    st.lists(functions | variables, max_size=3).map(tuple),
)


@settings(max_examples=sampled.examples(25, 60))
@given(modules)
def test_any_module(module):
    check(module)
