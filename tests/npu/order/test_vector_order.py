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
