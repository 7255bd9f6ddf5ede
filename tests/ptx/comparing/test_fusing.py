"""A device whose assembler fuses multiplications and additions differs by right; another difference is still found."""

import numpy as np
from tests.ptx.comparing.planted import Planted
from tests.ptx.comparing.test_search import HEAD, sides

from kernbench import ptx
from kernbench.ptx.comparing.devices import Given
from kernbench.ptx.comparing.fusing import pairs_to_fuse, with_roundings
from kernbench.ptx.comparing.launches import compare_launch
from kernbench.ptx.comparing.search import Launched

SQUARE = (
    HEAD
    + """.visible .entry k(.param .u64 x, .param .u64 y)
{
  .reg .b32 %r<4>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
  mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
  ld.global.f32 %f1, [%rd1];
  {
  mul.f32 %f2, %f1, %f1;
  }
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd2], %f3;
  ret;
}
"""
)
FUSED = "add.f32 %f3, %f1, %f2;", "fma.rn.f32 %f3, %f1, %f1, %f1;"
X = np.linspace(0.3, 1.1, 32).astype(np.float32)


def verdict_of(text, old, new):
    kernel = ptx.parse(text).kernels["k"]

    def given(device):
        arrays = {"x": device.array(X), "y": device.empty(32)}
        return Given([*arrays.values()], arrays)

    launched = Launched(kernel, (1, 1, 1), (32, 1, 1), ("x", "y"))
    return compare_launch(launched, *sides(given, (32, 1, 1), lambda: Planted(old, new)))


def names(text):
    return [str(pair) for pair in pairs_to_fuse(ptx.parse(text).kernels["k"])]


def test_a_pair_that_is_fused_by_the_rules_of_ptxas_is_identical():
    assert verdict_of(SQUARE, *FUSED).outcome == "identical"


def test_a_pair_that_is_fused_against_those_rules_is_named():
    # an access under a guard ends a block
    between = SQUARE.replace("  add.f32 %f3", "  setp.eq.u32 %p, %r2, 40; @%p st.global.f32 [%rd2], %f1; add.f32 %f3")
    verdict = verdict_of(between.replace(".reg .b32", ".reg .pred %p; .reg .b32"), *FUSED)
    assert verdict.outcome == "fused"
    assert verdict.differences
    assert "`mul.f32 %f2, %f1, %f1;`, and line 13, `add.f32 %f3, %f1, %f2;`" in verdict.reason


def test_what_fusing_does_not_explain_is_looked_for():
    verdict = verdict_of(SQUARE, "f32 %f2, %f1, %f1;", "f32 %f2, %f1, 0f40000000;")
    assert verdict.outcome == "different"
    assert verdict.first["text"] == "mul.f32 %f2, %f1, %f1;"


def test_a_rounding_modifier_forbids_it():
    for closed in (SQUARE.replace("mul.f32", "mul.rn.f32"), SQUARE.replace("add.f32", "add.rz.f32")):
        assert names(closed) == []


def test_other_types_and_results_that_were_overwritten_are_no_pairs():
    assert names(SQUARE.replace("add.f32 %f3", "mov.f32 %f2, %f1; add.f32 %f3")) == []
    assert names(SQUARE.replace("add.f32", "add.ftz.f32")) == []
    assert len(names(SQUARE.replace("add.f32", "sub.f32"))) == 1


def test_a_quotient_ends_with_a_multiplication():
    quotient = SQUARE.replace("mul.f32 %f2, %f1, %f1", "div.full.f32 %f2, %f1, %f1")
    (pair,) = names(quotient)
    assert "`div.full.f32 %f2, %f1, %f1;`" in pair
    assert names(quotient.replace("div.full", "div.rn")) == []


def test_roundings_go_to_all_that_may_be_fused_and_to_nothing_else():
    text = with_roundings(ptx.parse(SQUARE).kernels["k"]).emit()
    assert "mul.rn.f32 %f2" in text
    assert "add.rn.f32 %f3" in text
    assert "add.u64 %rd1" in text
    assert pairs_to_fuse(ptx.parse(text).kernels["k"]) == []
