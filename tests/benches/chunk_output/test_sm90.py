"""The chunk-output kernel for sm_90a: right and silent for every shape, in every order of asynchronous work."""

from functools import cache

import numpy as np
import pytest
from tests import sampled
from tests.benches.chunk_output.problem import Problem
from tests.ptx.toolchain import need_ptxas

from kernbench import ptx
from kernbench.benches.chunk_output.layout import Layout
from kernbench.benches.chunk_output.sm90 import HopperChunkOutput
from kernbench.benches.chunk_output.sm90_group import Group
from kernbench.common.errors import MisuseError
from kernbench.ptx.mutation import mutations
from kernbench.ptx.proof import prove
from kernbench.safety.budget import Budget

RAGGED = (200, 0, 64, 1, 130)
SMALL = Layout(1, 2, 64, 64)


@cache
def built(*sizes):
    way = HopperChunkOutput(*sizes)
    return way, way.build()


def check(problem, blocks=1, stages=2, groups=None, flat=True, **options):
    way, kernel = built(problem.layout, stages, groups, flat)
    run, verdict = problem.launch(way, blocks, kernel, **options)
    assert not run.findings, run.findings
    assert verdict.passed, verdict.reason
    return run


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed", 1])
def test_every_order(schedule):
    # one block has all nine chunks of a head: every stage is used four times and more
    check(Problem(RAGGED, SMALL), schedule=schedule)


@pytest.mark.parametrize(
    ("flat", "blocks", "schedule"), [(True, 5, "eager"), (True, 3, "reversed"), (True, 40, 1), (False, 2, "eager")]
)
def test_tiles_of_all_heads_or_of_one(flat, blocks, schedule):
    """Blocks whose number the heads do not divide; more of them than there are tiles."""
    problem = Problem(RAGGED, Layout(1, 3, 64, 64))
    check(problem, blocks, flat=flat, schedule=schedule)
    assert built(problem.layout, 2, None, flat)[0].grid(132) == ((132, 1) if flat else (44, 3))


def test_unchecked_it_computes_the_same():
    problem = Problem(RAGGED, SMALL)
    checked, unchecked = (check(problem, checks=checks).outputs["o"] for checks in (True, False))
    assert checked.tobytes() == unchecked.tobytes()


# the first and the last of every number of groups
SHAPES = [
    ((130, 0, 64, 1), Layout(2, 4, 128, 128), 37, 2, 1),
    (RAGGED, Layout(2, 2, 64, 128), 2, 3, 1),
    ((64, 66), Layout(1, 1, 256, 64), 1, 2, 1),
    ((63, 65), Layout(1, 1, 192, 192), 1, 1, 1),
    (RAGGED, Layout(1, 3, 128, 64, "padded"), 2, 2, 2),
    ((0, 70, 0, 0, 128, 3), Layout(1, 1, 64, 256), 1, 2, 2),
    (RAGGED, Layout(1, 1, 64, 64), 1, 6, 3),
    ((1,), Layout(1, 1, 64, 64), 4, 5, None),
]


@pytest.mark.parametrize(
    ("lengths", "layout", "blocks", "stages", "groups"), sampled.some(SHAPES, 1, kind=lambda shape: shape[-1])
)
def test_shapes(lengths, layout, blocks, stages, groups):
    check(Problem(lengths, layout), blocks, stages, groups)


def test_steep_gates_do_not_overflow():
    # e^(G[i] - G[j]) above the diagonal is beyond f32
    problem = Problem((128,), Layout(1, 1, 64, 64), gate=-4.0)
    assert problem.given["g"].min() < -100
    check(problem)


def poisoned():
    """Two sequences with tails; what the second is made of is NaN."""
    problem = Problem((70, 70), Layout(1, 1, 64, 64))
    for name in ("q", "k", "v_new"):
        problem.given[name] = problem.given[name].copy()
        problem.given[name][70:] = np.nan
    return problem


def test_rows_of_the_next_sequence_are_left_alone():
    problem = poisoned()
    run, _ = problem.launch(HopperChunkOutput(problem.layout))
    assert not run.findings, run.findings
    assert np.isfinite(run.outputs["o"][:70].astype(np.float32)).all()
    assert np.isnan(run.outputs["o"][70:].astype(np.float32)).all()


def test_zero_times_nan_is_seen(monkeypatch):
    monkeypatch.setattr(Group, "_clear_tail", lambda *_: None)
    problem = poisoned()
    run, _ = problem.launch(HopperChunkOutput(problem.layout))
    assert np.isnan(run.outputs["o"][64:70].astype(np.float32)).all()


def test_a_tail_stored_as_a_whole_is_a_race(monkeypatch):
    monkeypatch.setattr(Group, "_store_rows", Group._store_whole)
    # one group stores the tail, the other the next sequence's first rows
    run, _ = Problem((70, 70), Layout(1, 1, 64, 64)).launch(HopperChunkOutput(Layout(1, 1, 64, 64)))
    race = next(finding for finding in run.findings if finding.kind == "race")
    assert any(other.where.file.endswith("chunk_output/sm90_group.py") for other in race.others)


def test_mutants_are_told_apart():
    """Some, or one in sixteen; benchmarks/chunk_output_mutants.py runs them all."""
    # nine chunks in two stages: each is used again three times and more
    problem, way = Problem(RAGGED, Layout(1, 1, 64, 64)), HopperChunkOutput(Layout(1, 1, 64, 64))
    kernel = way.build()

    def launch(mutant, **options):
        return problem.launch(way, kernel=mutant, budget=Budget(steps=200_000, seconds=600), **options)[0]

    proof = prove(kernel, launch, among=sampled.some(mutations(kernel)[5::16], 3))
    assert len(proof.verdicts) >= 3
    assert proof.survivors == []


def test_only_the_chunks_that_count():
    problem = Problem((130,), Layout(1, 1, 64, 64))
    problem.given["total_chunks"] = np.array([2], np.int32)
    run, _ = problem.launch(HopperChunkOutput(problem.layout))
    assert {finding.kind for finding in run.findings} <= {"output-unwritten"}
    wanted = problem.made.reference().expected[:128]
    np.testing.assert_allclose(run.outputs["o"][:128].astype(np.float64), wanted, atol=1e-2)


def test_no_chunks():
    problem = Problem((64,), Layout(1, 1, 64, 64))
    problem.given["total_chunks"] = np.zeros(1, np.int32)
    run, _ = problem.launch(HopperChunkOutput(problem.layout), blocks=2)
    # the output nobody writes is all there is to say
    assert {finding.kind for finding in run.findings} == {"output-unwritten"}


def test_refusals():
    with pytest.raises(MisuseError, match=r"3 stages of 81920 bytes .* a block has 232448: take fewer"):
        HopperChunkOutput(Layout(1, 1, 128, 128), 3)
    for groups in (2, 4):
        with pytest.raises(MisuseError, match=f"groups = {groups} for 3 stages: 1, 2 or 3, so that each has stages of"):
            HopperChunkOutput(SMALL, 3, groups)
    with pytest.raises(MisuseError, match="stages = 0: a positive whole number is wanted"):
        HopperChunkOutput(SMALL, stages=0)
    with pytest.raises(MisuseError, match="key_size = 96: heads are multiples of 64 up to 256"):
        Layout(1, 1, 96, 64)
    with pytest.raises(MisuseError, match="3 value heads for 2 heads: a multiple of them is wanted"):
        Layout(2, 3, 64, 64)
    with pytest.raises(MisuseError, match="unknown position of the values 'loose'; known: packed, padded"):
        Layout(1, 1, 64, 64, "loose")


def test_groups_that_share_stages_are_found():
    way = HopperChunkOutput(SMALL, 3, 1)
    way.groups = 2
    run, _ = Problem((500,), SMALL).launch(way)
    assert "mbarrier-phase" in {finding.kind for finding in run.findings}


@pytest.mark.parametrize("layout", [Layout(2, 4, 128, 128), Layout(1, 1, 64, 64, "padded")])
def test_ptxas(layout):
    module = HopperChunkOutput(layout).build().module
    need_ptxas("sm_90a", module.version)
    made = ptx.assemble(module, arch="sm_90a")
    assert made.kernels["chunk_output_sm90"].spill_stores == 0
