"""Branches on undefined values that only choose between values."""

import numpy as np
import pytest
from tests.ptx.emulator.analysis.undefined.test_matrices import run

# words of lanes below 20 are written, and all are compared
HEAD = """  setp.lt.u32 %p1, %r0, 20;
  @%p1 st.shared.u32 [%r2], 5;
  bar.warp.sync -1;
  ld.shared.u32 %r10, [%r2];
  setp.gt.u32 %p2, %r10, 3;
  mov.b32 %r11, 7;
  mov.b32 %r12, 8;
"""
# each leaves its value in %r11
CHOICES = {
    "one path": "  @%p2 bra DONE;\n  add.u32 %r11, %r11, 1;\nDONE:\n",
    "two paths": "  @%p2 bra ELSE;\n  mov.b32 %r11, 1;\n  bra.uni DONE;\nELSE:\n  sub.u32 %r11, %r12, 1;\nDONE:\n",
    "nested": "  @%p2 bra DONE;\n  setp.eq.u32 %p3, %r0, 3;\n  @%p3 bra DONE;\n  mov.b32 %r11, 2;\nDONE:\n",
    "a loop": "  @%p2 bra DONE;\n  mov.b32 %r11, 0;\nAGAIN:\n  add.u32 %r11, %r11, 1;\n"
    + "  setp.lt.u32 %p3, %r11, 3;\n  @%p3 bra AGAIN;\n  bra.uni DONE;\nDONE:\n",
    "a loop that runs": "  @!%p2 bra DONE;\n  mov.b32 %r11, 0;\nAGAIN:\n  add.u32 %r11, %r11, 1;\n"
    + "  setp.lt.u32 %p3, %r11, 3;\n  @%p3 bra AGAIN;\nDONE:\n",
    "many": "  @%p2 bra DONE;\n"
    + "".join(
        f"  setp.lt.u32 %p3, %r0, {n};\n  @%p3 bra NEXT{n};\n  add.u32 %r11, %r11, %r12;\nNEXT{n}:\n" for n in range(8)
    )
    + "DONE:\n",
    "in turn": "  @%p2 bra NEXT;\n  mov.b32 %r12, 3;\nNEXT:\n  @%p1 bra DONE;\n  mov.b32 %r11, %r12;\nDONE:\n",
}
STORE = "  st.global.u32 [%rd3], %r11;\n"


@pytest.mark.parametrize("name", CHOICES)
def test_a_value_that_was_chosen_by_an_undefined_one_is_undefined(name):
    body = HEAD + CHOICES[name]
    assert run(body) == []
    assert run(body + "  selp.b32 %r11, %r11, 9, %p1;\n" + STORE) == []
    (found,) = run(body + STORE)
    assert (found.kind, found.count) == ("uninitialised-read", 12)
    assert "ld.shared.u32 %r10" in found.where.text
    assert "and the value is stored" in found.message


@pytest.mark.parametrize(
    "branch",
    [
        # a store, a barrier, a load, and a loop
        "  @%p2 bra DONE;\n  st.global.u32 [%rd3], %r0;\nDONE:\n",
        "  @%p2 bra DONE;\n  bar.warp.sync -1;\nDONE:\n",
        "  @%p2 bra DONE;\n  ld.shared.u32 %r11, [%r2];\nDONE:\n",
        "AGAIN:\n  add.u32 %r11, %r11, %r10;\n  setp.lt.u32 %p2, %r11, 3;\n  @%p2 bra AGAIN;\n",
        # there is nothing to choose
        "  @%p2 bra DONE;\nDONE:\n",
        # its own predicate is written
        "  @%p2 bra DONE;\n  setp.eq.u32 %p2, %r0, 40;\nDONE:\n",
    ],
)
def test_a_branch_that_decides_more_is_reported(branch):
    kinds = {(f.kind, "decides whether something runs" in f.message) for f in run(HEAD + branch)}
    assert ("uninitialised-read", True) in kinds


def test_lanes_with_defined_values_keep_theirs():
    body = HEAD + CHOICES["two paths"]
    assert run(body + "  @%p1 st.global.u32 [%rd3], %r11;\n") == []
    assert np.all([f.count == 12 for f in run(body + STORE)])


@pytest.mark.parametrize("undecided", ["or.pred %p3, %p3, %p2", "or.pred %p3, %p2, %p3", "xor.pred %p3, %p3, %p2"])
def test_a_condition_joined_with_an_undefined_one_is_undefined(undecided):
    body = HEAD + "  setp.eq.u32 %p3, %r0, 3;\n  " + undecided + ";\n  @%p3 bra DONE;\n" + STORE + "DONE:\n"
    (found,) = run(body)
    assert "decides whether something runs" in found.message
    # true in the lanes whose word nobody wrote
    assert run(body.replace("setp.eq.u32 %p3, %r0, 3", "setp.ge.u32 %p3, %r0, 20").replace("xor", "or")) == []
