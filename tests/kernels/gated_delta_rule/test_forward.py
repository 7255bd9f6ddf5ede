"""The gated delta rule over whole sequences for sm_90a: right, safe under several schedules."""

import numpy as np
import pytest
from tests import sampled
from tests.kernels.built import built
from tests.kernels.gated_delta_rule.forward_problem import Problem

from kernbench.common.errors import MisuseError
from kernbench.kernels.gated_delta_rule import ChainKernel, ForwardKernel, ForwardPlan, ForwardShape, InverseKernel
from kernbench.kernels.gated_delta_rule.shape import parts_of
from kernbench.ptx.mutation import mutations
from kernbench.ptx.proof import prove
from kernbench.safety.budget import Budget

SMALL = ForwardShape(1, 1, 64, 64, "f16")
LARGE = ForwardShape(1, 2, 128, 128)


SIZES = [ForwardShape(2, 4, 128, 128), LARGE, ForwardShape(1, 2, 64, 128), ForwardShape(1, 2, 128, 64, "f16"), SMALL]


# two heads of keys; other tests have the last
@pytest.mark.parametrize("shape", sampled.some(SIZES, 1), ids=str)
def test_sizes(shape):
    Problem(shape, (200,)).check()


# of a kernel that other tests build; with --full two heads of keys, too
@pytest.mark.parametrize(
    ("heads", "schedule"),
    [(2 if sampled.full() else 1, schedule) for schedule in ("canonical", "reversed", "eager", 1)],
)
def test_sequences_of_many_lengths_under_several_schedules(heads, schedule):
    Problem(ForwardShape(heads, 2 * heads, 64, 128), (64, 0, 130, 1)).check(schedule=schedule)


@pytest.mark.parametrize("schedule", ["canonical", 2])
def test_two_ctas_share_a_state(schedule):
    problem = Problem(ForwardShape(1, 2, 64, 128), (130, 64), sms=8)
    assert "then 8 CTAs walk" in problem.plan.explain()
    problem.check(schedule=schedule)


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
    assert all(run.ok for run in runs.values())
    clean = Problem(SMALL, (70, 90, 64))
    wanted = clean.golden()
    rows = np.r_[0:70, 160:224]
    np.testing.assert_allclose(out[rows].astype(float), wanted.output[rows], atol=2e-3, rtol=2e-3)
    np.testing.assert_allclose(final[[0, 2]], wanted.final_state[[0, 2]], atol=8e-3, rtol=8e-3)
    assert np.isnan(out[70:160].astype(float)).all()


@pytest.mark.parametrize(("sms", "lengths"), sampled.some([(4, (1030,)), (8, (1090, 640)), (8, (1025, 0))], 2))
def test_sequences_that_are_cut(sms, lengths):
    """Two segments and more: the chain of their states gives each its first."""
    problem = Problem(SMALL, lengths, sms=sms)
    assert problem.plan.cut
    problem.check()


@pytest.mark.parametrize("keys", sampled.some([64, 128], 1))
def test_cut_with_heads_of_other_sizes(keys):
    Problem(ForwardShape(1, 2, keys, 192 - keys), (1025,), sms=8, states=False).check()


def test_cut_under_another_schedule():
    Problem(SMALL, (1050,), sms=4).check(schedule=3)


@pytest.mark.parametrize(("name", "step"), [("inverse", 13), ("forward", 56), ("transfers", 60), ("chain", 6)])
def test_mutants_are_found(name, step):
    """One of each kernel, with --full some."""
    # five chunks, the last with a tail, or segments of eight: each stage is used again twice and more
    cut = name in ("transfers", "chain")
    problem = Problem(SMALL, (1030,) if cut else (300,), sms=4 * cut)
    kernels = {"inverse": InverseKernel, "forward": ForwardKernel, "chain": ChainKernel}
    kernel = built(kernels[name](SMALL) if name in kernels else ForwardKernel(SMALL, kind=name))

    def launch(mutant, **options):
        budget = Budget(steps=400_000, seconds=600)
        runs, *_ = problem.launch({kernel.name: mutant}, last=kernel.name, budget=budget, **options)
        return runs[kernel.name]

    proof = prove(kernel, launch, among=sampled.some(mutations(kernel)[1::step], 1))
    assert proof.verdicts
    assert proof.survivors == []


def test_plans():
    plan = ForwardPlan.of(ForwardShape(1, 2), [64, 0, 130])
    assert plan.chunks.tolist() == [[0, 64], [64, 64], [128, 64], [192, 2]]
    assert plan.segments[:, :5].tolist() == [[64, 130, 1, 2, 2], [0, 64, 0, 0, 0], [64, 0, 1, 1, 1]]
    assert "3 sequences with 194 tokens in 4 chunks of 64: 8 inverses; then 6 CTAs walk" in plan.explain()
    cut = ForwardPlan.of(ForwardShape(1, 2), [1024, 600], sms=16)
    # 16 chunks in two segments, ten in one: a segment has eight at least
    assert cut.chains.tolist() == [[0, 2, 0, 0], [2, 1, 1, 0]]
    nobody = 0xFFFFFFFF
    wanted = [[1024, 600, 16, 2, 1], [0, 512, 0, 0, nobody], [512, 512, 8, 1, 0]]
    assert cut.segments[:, :5].tolist() == wanted
    assert cut.inner[:, :5].tolist() == [[0, 512, 0, nobody, 0]]
    assert "segments, whose states are chained first" in cut.explain()
    # 132 SMs: of a long sequence as many segments as fill them, if these are four; else two CTAs a state, if they fit
    assert len(ForwardPlan.of(ForwardShape(16, 32), [32768], sms=132).segments) == 4
    few = ForwardPlan.of(ForwardShape(16, 32), [4096] * 2, sms=132)
    assert not few.cut
    assert "then 128 CTAs walk, the longest 64 chunks" in few.explain()
    many = ForwardPlan.of(ForwardShape(16, 32), [4096] * 8, sms=132)
    assert "then 256 CTAs walk" in many.explain()
    assert [parts_of(2, states, 132) for states in (32, 66, 67, 132, 140, 256, 0)] == [2, 2, 1, 1, 1, 1, 1]


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
