"""Vector operations that depend on each other need a barrier on one chip; the other keeps their order itself."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, run_kernel

X = np.ones((8, 64), np.float32)


def dependent(core, a, out):
    tile = core.tile("UB", (8, 64), "f32", offset=0)
    core.tload(tile, a)
    flag(core, "MTE2", "V")
    core.tadds(tile, tile, 1.0)
    core.tmuls(tile, tile, 2.0)
    flag(core, "V", "MTE3")
    core.tstore(out, tile)
    core.pipe_sync()


def unflagged(core, a, out):
    tile = core.tile("UB", (8, 64), "f32", offset=0)
    core.tload(tile, a)
    flag(core, "MTE2", "V")
    core.tadds(tile, tile, 1.0)
    core.tstore(out, tile)
    core.pipe_sync()


@pytest.mark.parametrize(("chip", "found"), [("a2a3", ["missing-barrier"]), ("a5", [])])
def test_dependent_vector_operations(chip, found):
    run = run_kernel(dependent, X, out=np.zeros_like(X), chip=chip)
    assert kinds(run) == found
    np.testing.assert_array_equal(run.outputs["out"], 2 * (X + 1))


@pytest.mark.parametrize("chip", ["a2a3", "a5"])
def test_other_pipes_are_not_ordered_by_it(chip):
    assert kinds(run_kernel(unflagged, X, out=np.zeros_like(X), chip=chip)) == ["race"]


def barrier_of(pipe):
    def kernel(core, a, out):
        core.pipe_barrier(pipe)
        tile = core.tile("L1" if core.lane == 0 else "UB", (8, 64), "f32", offset=0)
        core.tload(tile, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, tile)
        core.pipe_barrier("ALL")

    return kernel


@pytest.mark.parametrize(("chip", "refused"), [("a2a3", ()), ("a5", ("S", "MTE1", "FIX"))])
@pytest.mark.parametrize("pipe", ["S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "ALL"])
def test_a_barrier_that_the_chips_compiler_refuses(chip, refused, pipe):
    """In Python one of V says on both chips that dependent operations are in order; in C++ a5 has none."""
    lane = "aiv0" if pipe == "V" else "aic"
    run = run_kernel(barrier_of(pipe), X, out=np.zeros_like(X), chip=chip, lane=lane)
    assert kinds(run) == (["misuse"] if pipe in refused else [])
    if pipe in refused:
        (finding,) = run.findings
        told = f"pipe_barrier({pipe}): the compiler of a5 refuses it; it takes M, MTE2, MTE3 and ALL"
        assert finding.message.startswith(told)
        assert finding.where.text == "core.pipe_barrier(pipe)"
        assert finding.hint.startswith("order pipes by set_flag and wait_flag")
