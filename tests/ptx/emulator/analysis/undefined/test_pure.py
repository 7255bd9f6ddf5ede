"""Functions without effects, and loads from constant tables, whose call or index an undefined value decides."""

import numpy as np
import pytest
from tests.ptx.emulator.analysis.undefined.test_choices import HEAD
from tests.ptx.emulator.analysis.undefined.test_matrices import HEAD as KERNEL

from kernbench import ptx

FUNCTIONS = """
.global .align 4 .u32 counter;
.const .align 4 .b32 table[8] = {10, 11, 12, 13, 14, 15, 16, 17};
.global .align 4 .b32 numbers[8] = {10, 11, 12, 13, 14, 15, 16, 17};
.func (.param .b32 result) twice (.param .b32 x) {
  .reg .b32 %v<4>;
  ld.param.u32 %v1, [x];
  add.u32 %v2, %v1, %v1;
  st.param.b32 [result+0], %v2;
  ret;
}
.func (.param .b32 result) function (.param .b32 x, .param .b64 pointer) {
  .local .align 8 .b8 depot[16];
  .reg .pred %q<3>; .reg .b32 %v<9>; .reg .b64 %w<9>;
  ld.param.u32 %v1, [x];
  ld.param.u64 %w4, [pointer];
  mov.u64 %w1, depot;
  cvta.local.u64 %w2, %w1;
EFFECT
  st.param.b32 [result], %v1;
  ret;
}
"""
CALL = """  @%p2 bra DONE;
  {
  .param .b32 param0;
  .param .b64 param1;
  .param .b32 result0;
  mov.b32 %r20, 3;
  st.param.b32 [param0+0], %r20;
  st.param.b64 [param1+0], %rd3;
  call.uni (result0), function, (param0, param1);
  ld.param.b32 %r11, [result0+0];
  }
DONE:
"""
STORE = "  st.global.u32 [%rd3], %r11;\n"
INNER = """  {
  .param .b32 param0;
  .param .b32 result0;
  st.param.b32 [param0+0], %v1;
  call.uni (result0), twice, (param0);
  ld.param.b32 %v1, [result0+0];
  }
"""


def findings(body, effect=""):
    text = (KERNEL + body + "  ret;\n}\n").replace(".visible", FUNCTIONS.replace("EFFECT", effect) + ".visible", 1)
    device = ptx.EmulatedDevice("sm_90")
    out = device.array(np.zeros(64, np.uint32), "out")
    return device.launch(ptx.parse(text).kernels["k"], 1, 32, [out]).findings


PURE = {
    "nothing": "",
    "own variables": "  st.u32 [%w2+4], %v1;\n  ld.u32 %v1, [%w2+4];\n",
    "another function": INNER,
    "a table": "  ld.const.u32 %v1, [table+4];\n",
}


@pytest.mark.parametrize("name", PURE)
def test_a_call_that_only_computes_is_a_choice(name):
    body = HEAD + CALL
    assert findings(body, PURE[name]) == []
    assert findings(body + "  @%p1 st.global.u32 [%rd3], %r11;\n", PURE[name]) == []
    # what it gave is undefined in the lanes that called it by an undefined value, and in those that did not
    for held in ("%p2", "!%p2"):
        (found,) = findings(body.replace("@%p2", f"@{held}") + STORE, PURE[name])
        assert (found.kind, found.count) == ("uninitialised-read", 12)
        assert "ld.shared.u32 %r10" in found.where.text
        assert "and the value is stored" in found.message


EFFECTS = {
    "a store": "  st.u32 [%w4], %v1;\n",
    "a global store": "  st.global.u32 [%w4], %v1;\n",
    "a load": "  ld.u32 %v1, [%w4];\n",
    "an atomic": "  mov.u64 %w5, counter;\n  red.global.add.u32 [%w5], 1;\n",
    "a barrier": "  bar.warp.sync -1;\n",
    "a trap": "  setp.gt.u32 %q1, %v1, 9;\n  @%q1 trap;\n",
    "a vote": "  activemask.b32 %v2;\n  vote.sync.any.pred %q1, %q1, %v2;\n",
}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_call_that_does_more_is_reported(name):
    kinds = {(f.kind, "decides whether something runs" in f.message) for f in findings(HEAD + CALL, EFFECTS[name])}
    assert ("uninitialised-read", True) in kinds


# the argument is undefined, and so is what the function branches on
BRANCHES = {
    "a selection": "  setp.gt.u32 %q1, %v1, 3;\n  @%q1 bra LATER;\n  mov.u32 %v1, 4;\nLATER:\n",
    "a loop": "AGAIN:\n  add.u32 %v1, %v1, 1;\n  setp.lt.u32 %q1, %v1, 40;\n  @%q1 bra AGAIN;\n",
    "an own variable": "  st.u32 [%w2+4], 2;\n  setp.gt.u32 %q1, %v1, 3;\n  @%q1 bra LATER;\n  st.u32 [%w2+4], %v1;\n"
    + "LATER:\n  ld.u32 %v1, [%w2+4];\n",
    "an own variable at an index": "  setp.gt.u32 %q1, %v1, 3;\n  @%q1 bra LATER;\n  st.v4.u32 [%w2], {1, 2, 3, 4};\n"
    + "  mul.wide.u32 %w3, %v1, 4;\n  add.u64 %w3, %w3, %w2;\n  ld.u32 %v1, [%w3];\nLATER:\n",
    "a table": "  mov.u64 %w5, numbers;\n  setp.gt.u32 %q1, %v1, 3;\n  @%q1 bra LATER;\n"
    + "  mul.wide.u32 %w3, %v1, 4;\n  add.u64 %w3, %w3, %w5;\n  ld.global.u32 %v1, [%w3];\nLATER:\n",
    "an early return": "  st.param.b32 [result], 3;\n  setp.gt.u32 %q1, %v1, 3;\n  @%q1 ret;\n",
    "a store under a guard": "  setp.gt.u32 %q1, %v1, 3;\n  mov.u32 %v1, 5;\n  @%q1 st.u32 [%w2], 3;\n",
    "a call behind it": "  setp.gt.u32 %q1, %v1, 3;\n  mov.u32 %v1, 6;\n  @%q1 bra LATER;\n" + INNER + "LATER:\n",
    "a call of the same": INNER + "  setp.gt.u32 %q1, %v1, 3;\n  @%q1 bra LATER;\n  mov.u32 %v1, 7;\nLATER:\n" + INNER,
}
UNDEFINED = CALL.replace("  @%p2 bra DONE;\n", "").replace("%r20, 3", "%r20, %r10").replace("DONE:\n", "")


@pytest.mark.parametrize("name", BRANCHES)
def test_a_function_may_branch_on_what_is_undefined(name):
    body = HEAD + UNDEFINED
    assert findings(body, BRANCHES[name]) == []
    assert findings(body + "  @%p1 st.global.u32 [%rd3], %r11;\n", BRANCHES[name]) == []
    # the result is undefined where the argument is, and nowhere else
    (found,) = findings(body + STORE, BRANCHES[name])
    assert (found.kind, found.count) == ("uninitialised-read", 12)
    assert "ld.shared.u32 %r10" in found.where.text
    assert "and the value is stored" in found.message
    # also where it is not made of the argument; a later call with another one is as good as new
    again = body + UNDEFINED.replace("%r10", "4") + STORE
    assert findings(again, BRANCHES[name]) == []


@pytest.mark.parametrize("name", EFFECTS)
def test_a_function_that_does_more_may_not(name):
    effect = "  setp.gt.u32 %q2, %v1, 3;\n  @%q2 bra LATER;\n" + EFFECTS[name] + "LATER:\n"
    kinds = {(f.kind, "decides whether something runs" in f.message) for f in findings(HEAD + UNDEFINED, effect)}
    assert ("uninitialised-read", True) in kinds


def test_what_was_never_set_may_not_be_branched_on_in_a_function():
    found = findings(HEAD + UNDEFINED, BRANCHES["a selection"].replace("%v1, 3", "%v8, 3"))
    assert [f.kind for f in found] == ["uninitialised-read"]
    assert "was never set" in found[0].message


def test_an_own_variable_at_an_undefined_index_is_reported():
    """It may lie outside of the variable."""
    effect = "  mul.wide.u32 %w3, %v1, 4;\n  add.u64 %w3, %w3, %w2;\n  st.u32 [%w3], 5;\n"
    found = findings(HEAD + CALL.replace("%r20, 3", "%r20, %r10").replace("@%p2", "@!%p2"), effect)
    assert any("is part of the address" in f.message for f in found)


def test_a_result_of_the_own_function_is_more_than_a_value_of_a_call():
    effect = INNER.replace("call.uni", "setp.gt.u32 %q1, %v1, 3;\n  @%q1 st.param.b32 [result], 7;\n  call.uni")
    assert findings(HEAD + CALL, effect) == []
    passed = CALL.replace("@%p2 bra DONE;", "").replace("%r20, 3", "%r20, %r10").replace("DONE:\n", "")
    found = findings(HEAD + passed + STORE, effect)
    assert found
    assert {f.kind for f in found} == {"uninitialised-read"}
    # the value came from shared memory, through two calls
    assert all("ld.shared.u32 %r10" in f.where.text for f in found)


INDEX = """  and.b32 %r20, %r10, {mask};
  mul.wide.u32 %rd5, %r20, 4;
  mov.u64 %rd6, {table};
  add.s64 %rd7, %rd6, %rd5;
  {load} %r11, [%rd7+{offset}];
"""


@pytest.mark.parametrize(("table", "load"), [("table", "ld.const.u32"), ("numbers", "ld.global.nc.u32")])
def test_an_index_that_a_mask_bounds_makes_a_load_from_a_constant_table_undefined(table, load):
    body = HEAD + INDEX.format(mask=3, table=table, load=load, offset=16)
    assert findings(body) == []
    assert findings(body + "  @%p1 st.global.u32 [%rd3], %r11;\n") == []
    (found,) = findings(body + STORE)
    assert (found.kind, found.count) == ("uninitialised-read", 12)
    assert "and the value is stored" in found.message


@pytest.mark.parametrize(
    "changed",
    [
        # beyond the table, with the largest index or with all
        {"mask": 7},
        {"offset": 20},
        {"mask": -1},
        # memory that others may write
        {"table": "numbers", "load": "ld.global.u32"},
    ],
)
def test_an_index_that_may_leave_the_table_is_reported(changed):
    found = findings(
        HEAD + INDEX.format(**{"mask": 3, "table": "table", "load": "ld.const.u32", "offset": 16} | changed)
    )
    assert "uninitialised-read" in {f.kind for f in found}
    assert any("is part of the address" in f.message for f in found)


def test_an_index_that_was_never_set_is_reported():
    body = HEAD + INDEX.format(mask=3, table="table", load="ld.const.u32", offset=0).replace("%r10", "%r50")
    found = findings(body)
    assert [f.kind for f in found] == ["uninitialised-read"]
    assert "was never set" in found[0].message
