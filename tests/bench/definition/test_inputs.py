"""Inputs: of a run without data shapes and types, and no values that somebody could rely on; the same on any cores."""

import numpy as np
import pytest

from kernbench.bench import ShapesOnly, normal
from kernbench.bench.definition import inputs
from kernbench.common.dtypes import DTYPES

LARGE = (1 << 20, 1 << 20)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.standard_normal(LARGE).astype(np.float32),
        lambda rng: rng.standard_normal(LARGE, np.float32),
        lambda rng: (rng.random(LARGE) * 2 - np.float32(1)).astype(np.float32),
        lambda rng: rng.normal(1, 2, LARGE).reshape(4, -1).T.astype(np.float32).reshape(LARGE),
        lambda rng: (rng.uniform(-1, 1, (LARGE[0], 1)) + rng.random(LARGE[1])).astype(np.float32),
        lambda rng: normal(rng, LARGE, "f32"),
    ],
)
def test_real_numbers_are_drawn_without_memory(draw):
    drawn = draw(ShapesOnly())
    assert drawn.shape == LARGE
    assert drawn.dtype == np.float32
    assert set(drawn.strides) == {0}


def test_the_types_of_tensors():
    for name in ("f16", "bf16", "f32"):
        kind = DTYPES[name].numpy
        assert ShapesOnly().standard_normal(4).astype(kind).dtype == kind


@pytest.mark.parametrize(
    "decide",
    [
        lambda drawn: drawn < 0.5,
        lambda drawn: (drawn * 100).astype(np.int32),
        lambda drawn: drawn.sum(),
        lambda drawn: np.argsort(drawn) if (drawn > 0).any() else None,
    ],
)
def test_values_that_were_not_drawn_decide_nothing(decide):
    with pytest.raises(TypeError, match=r"carries no data .*draw whole numbers, lengths and masks without"):
        decide(ShapesOnly().random(8))


def test_whole_numbers_are_not_drawn():
    with pytest.raises(AttributeError, match="draws no integers"):
        ShapesOnly().integers(8)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f8e4m3"])
@pytest.mark.parametrize("shape", [(7,), (3, 5, 7), (64, 64), (0, 4)])
def test_inputs_are_the_same_on_any_number_of_cores(dtype, shape, monkeypatch):
    """Blocks are drawn one after the other, and rounded beside."""
    monkeypatch.setattr(inputs, "WORTH", 1)
    monkeypatch.setattr(inputs, "BLOCK", 10)
    found = []
    for jobs in ("1", "2"):
        monkeypatch.setenv("KERNBENCH_JOBS", jobs)
        rng = np.random.default_rng(3)
        # and so is what is drawn after them
        found.append((normal(rng, shape, dtype), rng.standard_normal(3, np.float32), rng.integers(0, 99, 5)))
    whole = np.random.default_rng(3).standard_normal(shape, np.float32).astype(found[0][0].dtype)
    assert found[1][0].tobytes() == found[0][0].tobytes() == whole.tobytes()
    assert found[1][0].shape == found[0][0].shape == shape
    assert all(np.array_equal(one, other) for one, other in zip(found[0][1:], found[1][1:], strict=True))
