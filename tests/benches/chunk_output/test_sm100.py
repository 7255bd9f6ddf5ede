"""The chunk-output kernel for sm_100a: right and silent for every shape, in every order of asynchronous work."""

from functools import cache

import numpy as np
import pytest
from tests import sampled
from tests.benches.chunk_output.problem import Problem
from tests.ptx.toolchain import need_ptxas

from kernbench import ptx
from kernbench.benches.chunk_output.layout import Layout
from kernbench.benches.chunk_output.sm100 import BlackwellChunkOutput
from kernbench.common.errors import MisuseError
from kernbench.ptx.mutation import mutations

RAGGED = (200, 0, 64, 1, 130)


@cache
def built(layout, stages):
    way = BlackwellChunkOutput(layout, stages)
    return way, way.build()


def check(problem, blocks=1, stages=2, **options):
    way, kernel = built(problem.layout, stages)
    run, verdict = problem.launch(way, blocks, kernel, **options)
    assert not run.findings, run.findings
    assert verdict.passed, verdict
    return run


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed", 1])
def test_every_order(schedule):
    # one block has all nine chunks of a head: every stage is used four times and more
    check(Problem(RAGGED, Layout(1, 2, 64, 64)), schedule=schedule)


SHAPES = [
    (RAGGED, Layout(1, 3, 128, 64, "padded"), 2, 2),
    ((320,), Layout(1, 2, 128, 128), 2, 2),
    ((0, 70, 0, 0, 128, 3), Layout(1, 1, 64, 192), 1, 2),
    (RAGGED, Layout(2, 4, 128, 128), 5, 2),
    ((63, 65), Layout(1, 1, 192, 192), 1, 1),
    (RAGGED, Layout(2, 2, 64, 128), 2, 3),
    ((1,), Layout(1, 1, 64, 64), 4, 5),
]


# every number of stages
@pytest.mark.parametrize(
    ("lengths", "layout", "blocks", "stages"), sampled.some(SHAPES, 1, kind=lambda shape: shape[-1])
)
def test_shapes(lengths, layout, blocks, stages):
    check(Problem(lengths, layout), blocks, stages)


def test_steep_gates_do_not_overflow():
    # e^(G[i] - G[j]) above the diagonal is beyond f32
    problem = Problem((128,), Layout(1, 1, 64, 64), gate=-4.0)
    assert problem.given["g"].min() < -100
    check(problem)


def test_rows_of_the_next_sequence_are_left_alone():
    problem = Problem((70, 70), Layout(1, 1, 64, 64))
    for name in ("q", "k", "v_new"):
        problem.given[name] = problem.given[name].copy()
        problem.given[name][70:] = np.nan
    run, _ = problem.launch(BlackwellChunkOutput(problem.layout))
    assert not run.findings, run.findings
    assert np.isfinite(run.outputs["o"][:70].astype(np.float32)).all()
    assert np.isnan(run.outputs["o"][70:].astype(np.float32)).all()


def test_no_chunks():
    problem = Problem((64,), Layout(1, 1, 64, 64))
    problem.given["total_chunks"] = np.zeros(1, np.int32)
    run, _ = problem.launch(BlackwellChunkOutput(problem.layout), blocks=2)
    # the output nobody writes is all there is to say
    assert {finding.kind for finding in run.findings} == {"output-unwritten"}


def test_refusals():
    with pytest.raises(MisuseError, match="512 columns of tensor memory; V is 192 at most"):
        BlackwellChunkOutput(Layout(1, 1, 64, 256))
    with pytest.raises(MisuseError, match=r"3 stages: 278528 bytes of shared memory.*take fewer stages"):
        BlackwellChunkOutput(Layout(1, 1, 128, 128), 3)
    with pytest.raises(MisuseError, match="too large"):
        BlackwellChunkOutput(Layout(1, 1, 256, 192), 1)


@pytest.mark.parametrize("layout", [Layout(2, 4, 128, 128), Layout(1, 1, 64, 64, "padded")])
def test_ptxas(layout):
    module = BlackwellChunkOutput(layout).build().module
    need_ptxas("sm_100a", module.version)
    made = ptx.assemble(module, arch="sm_100a")
    assert made.kernels["chunk_output_sm100"].spill_stores == 0


# what people get wrong: a part of the instruction's text and which of those it is, the change, the kinds it brings
MISTAKES = {
    "stages start with the wrong parity": ("mbarrier.try_wait", 3, "the other parity", {"deadlock"}),
    "bytes that are not those of the copies": ("expect_tx", 0, "bytes -16", {"transaction-bytes"}),
    "no fence after generic writes to v": ("fence.proxy.async", 0, "dropped", {"missing-fence"}),
    "products are given away while they are loaded": ("wait::ld", 1, "dropped", {"race"}),
    "commit on the wrong barrier": ("tcgen05.commit", 2, "another barrier", {"deadlock", "mbarrier-count"}),
    "output is written while it is copied": ("wait_group", 0, "one group more may be under way", {"race"}),
    "masks do not wait for their gates": ("bar.sync 1", 0, "dropped", {"race"}),
}


@pytest.fixture(scope="module")
def one_head():
    """One block with thirteen chunks: every stage is used six times and more, every buffer of output four times."""
    problem = Problem((128, 64, 1, 65, 64, 130, 30, 64, 5), Layout(1, 1, 64, 64))
    way = BlackwellChunkOutput(problem.layout)
    return problem, way, mutations(way.build(lines=False))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(mistake, one_head):
    text, number, change, kinds = MISTAKES[mistake]
    problem, way, mutants = one_head
    lines = sorted({mutant.line for mutant in mutants if text in mutant.text})
    (mutant,) = (m for m in mutants if m.line == lines[number] and m.change == change)
    run, _ = problem.launch(way, kernel=mutant.mutant)
    assert {finding.kind for finding in run.findings} & kinds, run.findings


def test_a_commit_that_nobody_waits_for_is_one_read_of_unwritten_memory(one_head):
    """The masks load scores that are not there yet: one finding, not one for each register of the load."""
    problem, way, mutants = one_head
    line = min(mutant.line for mutant in mutants if "mbarrier.try_wait" in mutant.text)
    (mutant,) = (m for m in mutants if m.line == line and m.change == "not waited for")
    run, _ = problem.launch(way, kernel=mutant.mutant)
    (found,) = (finding for finding in run.findings if "from tensor memory" in finding.message)
    assert "tcgen05.ld" in found.message
    assert found.count > 1000
