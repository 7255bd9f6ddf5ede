"""The gated delta rule over whole sequences for sm_90a: right, safe under several schedules."""

import numpy as np
import pytest
from tests.kernels.gated_delta_rule.forward_problem import Problem

from kernbench.common.errors import MisuseError
from kernbench.kernels.gated_delta_rule import ForwardKernel, ForwardPlan, ForwardShape, InverseKernel
from kernbench.ptx.mutation import mutations
from kernbench.ptx.proof import prove
from kernbench.safety.budget import Budget

SMALL = ForwardShape(1, 1, 64, 64, "f16")


@pytest.mark.parametrize(
    ("keys", "values", "dtype"), [(128, 128, "bf16"), (64, 64, "f16"), (64, 128, "bf16"), (128, 64, "f16")]
)
def test_sizes(keys, values, dtype):
    Problem(ForwardShape(1, 2, keys, values, dtype), (200,)).check()


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager", 1])
def test_sequences_of_many_lengths_under_several_schedules(schedule):
    Problem(ForwardShape(2, 4, 64, 128), (64, 0, 130, 1)).check(schedule=schedule)


def test_without_states():
    Problem(SMALL, (100, 64), states=False).check()


@pytest.mark.parametrize("decay", [0.0, 3.0])
def test_gates(decay):
    """None, and so strong that a chunk leaves nothing of the state: no exponential may overflow."""
    Problem(SMALL, (150,), decay=decay).check()


def test_a_sequence_does_not_see_its_neighbours():
    """A tail's tile has the next sequence's first rows: NaN there stays there."""
    problem = Problem(SMALL, (70, 90, 64))
    problem.poison(slice(70, 160))
    runs, out, final = problem.launch()
    assert all(run.ok for run in runs)
    clean = Problem(SMALL, (70, 90, 64))
    wanted = clean.golden()
    rows = np.r_[0:70, 160:224]
    np.testing.assert_allclose(out[rows].astype(float), wanted.output[rows], atol=2e-3, rtol=2e-3)
    np.testing.assert_allclose(final[[0, 2]], wanted.final_state[[0, 2]], atol=8e-3, rtol=8e-3)
    assert np.isnan(out[70:160].astype(float)).all()


@pytest.mark.parametrize(("which", "step"), [(0, 9), (1, 27)])
def test_mutants_are_found(which, step):
    """Some of them."""
    # five chunks, the last with a tail: each stage is used again twice
    problem = Problem(SMALL, (300,))
    kernel = (InverseKernel, ForwardKernel)[which](SMALL).build()

    def launch(mutant, **options):
        kernels = [None, None]
        kernels[which] = mutant
        return problem.launch(kernels, budget=Budget(steps=200_000, seconds=600), **options)[0][which]

    proof = prove(kernel, launch, among=mutations(kernel)[1::step])
    assert len(proof.verdicts) >= 2
    assert proof.survivors == []


def test_plans():
    plan = ForwardPlan.of(ForwardShape(1, 2), [64, 0, 130])
    assert plan.chunks.tolist() == [[0, 64], [64, 64], [128, 64], [192, 2]]
    assert plan.sequences.tolist() == [[64, 130, 1, 2], [0, 64, 0, 0], [64, 0, 1, 1]]
    assert "3 sequences with 194 tokens in 4 chunks of 64: 8 inverses; then 6 CTAs" in plan.explain()


def test_refusals():
    with pytest.raises(MisuseError, match="v_heads = 6 must be a multiple of heads = 4"):
        ForwardShape(4, 6)
    with pytest.raises(MisuseError, match="value_size = 256: one of 64, 128"):
        ForwardShape(4, 4, 128, 256)
    with pytest.raises(MisuseError, match="there are no tokens"):
        ForwardPlan.of(SMALL, [0])
    with pytest.raises(MisuseError, match=r"lengths = \[3, -1\]"):
        ForwardPlan.of(SMALL, [3, -1])
    with pytest.raises(MisuseError, match="stages = 3: a power of two is wanted"):
        ForwardKernel(SMALL, 3)
    with pytest.raises(MisuseError, match=r"stages = 4: .* bytes of shared memory are too many"):
        ForwardKernel(ForwardShape(1, 1), 4)
    problem = Problem(SMALL, (5,))
    problem.beta = problem.beta[:3]
    with pytest.raises(MisuseError, match=r"beta has shape \[3, 1\], and \[5, 1\] is wanted"):
        problem.launch()
