"""Undefined predicates as guards: what they leave as it was depends on them, too; and what computes with predicates."""

import pytest
from tests.ptx.emulator.analysis.undefined.test_matrices import run

# %p0 is undefined, and false in one half of the cases: each is tried with the guard and with its opposite
HEAD = """  st.shared.u32 [tile+2048], 7;
  st.shared.u32 [%r2+2052], 7;
  bar.warp.sync -1;
  ld.shared.u32 %r10, [%r2];
  setp.gt.u32 %p0, %r10, 5;
  setp.gt.u32 %p1, %r0, 40;
  add.u32 %r11, %r0, 1;
  mov.b32 %r12, 8;
"""
STORE = "  st.global.u32 [%rd3], %r12;\n"
UNSET = HEAD.replace("setp.gt.u32 %p0, %r10, 5;", "")

COMPUTES = {
    "a constant": "mov.b32 %r12, 9;",
    "a register": "mov.b32 %r12, %r11;",
    "a sum": "add.u32 %r12, %r11, 1;",
    "a quotient": "div.u32 %r12, %r11, %r11;",
    "a special register": "mov.u32 %r12, %laneid;",
}
ACTS = {
    "a barrier of the warp": "bar.warp.sync -1;",
    "a barrier of the block": "bar.sync 0;",
    "a load of a variable": "ld.shared.u32 %r12, [tile+2048];",
    "a load of a parameter": "ld.param.u32 %r12, [out];",
    "a vote": "vote.sync.ballot.b32 %r12, %p1, -1;",
    "a shuffle": "shfl.sync.idx.b32 %r12, %r0, 0, 31, -1;",
    "who is active": "activemask.b32 %r12;",
    "a trap": "trap;",
}


def told(body):
    return [found for found in run(body) if found.kind == "uninitialised-read"]


@pytest.mark.parametrize("negated", ["", "!"])
@pytest.mark.parametrize("head", [HEAD, UNSET], ids=["from memory", "never set"])
@pytest.mark.parametrize("name", COMPUTES)
def test_what_a_guard_writes_or_leaves_is_undefined(name, head, negated):
    body = head + f"  @{negated}%p0 {COMPUTES[name]}\n"
    assert told(body) == []
    (found,) = told(body + STORE)
    assert found.count == 32
    assert "and the value is stored" in found.message or "%r12 is stored, and was never set" in found.message
    # lanes that do not run it drop it
    assert told(body + "  selp.b32 %r12, %r12, 1, %p1;\n" + STORE) == []


@pytest.mark.parametrize("negated", ["", "!"])
@pytest.mark.parametrize("head", [HEAD, UNSET], ids=["from memory", "never set"])
@pytest.mark.parametrize("name", ACTS)
def test_a_guard_of_what_does_more_than_compute_is_a_use(name, head, negated):
    (found,) = told(head + f"  @{negated}%p0 {ACTS[name]}\n")
    assert found.count == 32
    assert "decides whether" in found.message


def test_a_guard_of_time_alone_is_none():
    assert told(HEAD + "  @%p0 nanosleep.u32 5;\n") == []


@pytest.mark.parametrize("other", ["%p1", "%p0"])
@pytest.mark.parametrize("operation", ["and", "or", "xor"])
def test_predicates_are_not_put_together_of_parts(operation, other):
    # %p1 is false: it decides what `and` gives, and nothing else
    found = told(HEAD + f"  {operation}.pred %p2, {other}, %p0;\n  @%p2 bra DONE;\n" + STORE + "DONE:\n")
    known = (operation, other) in (("and", "%p1"), ("xor", "%p0"))
    assert len(found) == (0 if known else 1)


@pytest.mark.parametrize(
    "division",
    ["div.u32 %r12, %r10, %r11", "div.u32 %r12, %r11, %r10", "rem.s32 %r12, %r10, %r11", "rem.s32 %r10, %r10, %r11"],
)
def test_a_quotient_of_an_undefined_value_is_undefined(division):
    result = division.split()[1].rstrip(",")
    (found,) = told(HEAD + f"  {division};\n  st.global.u32 [%rd3], {result};\n")
    assert (found.kind, found.count) == ("uninitialised-read", 32)
    assert "ld.shared.u32 %r10" in found.where.text


def test_the_value_of_a_shuffle_may_be_its_lane_number():
    shuffle = "  shfl.sync.idx.b32 %r12, %r10, {}, 31, -1;\n"
    assert told(HEAD + shuffle.format("%r11")) == []
    assert "handed on" in told(HEAD + shuffle.format("%r10"))[0].message
