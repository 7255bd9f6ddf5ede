"""Inputs: of a run without data shapes and types, and no values that somebody could rely on; the same on any cores."""

import numpy as np
import pytest
from tests import sampled

from kernbench.bench import ShapesOnly, normal
from kernbench.bench.definition import drawing, inputs
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


@pytest.mark.sampled(16)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f8e4m3"])
@pytest.mark.parametrize("shape", [(7,), (3, 5, 7), (64, 64), (0, 4)])
@pytest.mark.parametrize("stretch", [2, 16, 70, 1 << 12])
def test_inputs_are_the_same_on_any_number_of_cores(dtype, shape, stretch, monkeypatch):
    monkeypatch.setattr(inputs, "WORTH", 0)
    monkeypatch.setattr(drawing, "BLOCK", 10)
    monkeypatch.setattr(drawing, "STRETCH", stretch)
    found = []
    for jobs in ("1", "2", "3", "16"):
        monkeypatch.setenv("KERNBENCH_JOBS", jobs)
        rng = np.random.default_rng(3)
        # and so is what is drawn after them
        found.append((normal(rng, shape, dtype), rng.standard_normal(3, np.float32), rng.integers(0, 99, 5)))
    whole = np.random.default_rng(3).standard_normal(shape, np.float32).astype(found[0][0].dtype)
    for one in found:
        assert one[0].tobytes() == whole.tobytes()
        assert one[0].shape == shape
        assert all(np.array_equal(drawn, other) for drawn, other in zip(one[1:], found[0][1:], strict=True))


def _filled(seed, count, before, monkeypatch, jobs):
    """Numbers that are drawn after some words, the state of the generator then, and whether they were drawn apart."""
    divided = []
    real = drawing._Filling.fill
    monkeypatch.setattr(drawing._Filling, "fill", lambda self: divided.append(real(self)) or divided[-1])
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    rng = np.random.default_rng(seed)
    rng.integers(0, 1 << 32, before, np.uint32)
    found = np.empty(count, np.float32)
    drawing.fill(found, rng)
    monkeypatch.setattr(drawing._Filling, "fill", real)
    state = rng.bit_generator.state
    # what is left of a step that is used up does not count
    return found.tobytes(), state["state"], state["has_uint32"] and state["uinteger"], bool(divided)


def test_stretches_meet_wherever_they_begin(monkeypatch):
    """With short stretches many begin inside a number, which takes several words."""
    monkeypatch.setattr(drawing, "STRETCH", 8)
    for seed in range(sampled.examples(20, 60)):
        count, before = 200 + 37 * seed, seed % 3
        alone, apart = (_filled(seed, count, before, monkeypatch, jobs) for jobs in ("1", "3"))
        assert apart[:3] == alone[:3]
        assert (apart[3], alone[3]) == (True, False)


@pytest.mark.parametrize(
    ("name", "value"), [("MOST_COMMON", 0), ("_MULTIPLIER", 5), ("_WORDS", 1.5), ("_SPREAD", 0.0), ("_WORDS", 0.9)]
)
def test_stretches_that_do_not_meet_or_are_misjudged_are_drawn_one_after_the_other(name, value, monkeypatch):
    monkeypatch.setattr(drawing, "STRETCH", 64)
    alone = _filled(5, 20000, 1, monkeypatch, "1")
    monkeypatch.setattr(drawing, name, value)
    assert _filled(5, 20000, 1, monkeypatch, "2")[:3] == alone[:3]


def test_other_generators_draw_one_after_the_other(monkeypatch):
    monkeypatch.setattr(inputs, "WORTH", 0)
    monkeypatch.setenv("KERNBENCH_JOBS", "2")
    for bits in (np.random.Philox, np.random.MT19937, np.random.SFC64, np.random.PCG64DXSM):
        found = normal(np.random.Generator(bits(4)), (100,), "f16")
        whole = np.random.Generator(bits(4)).standard_normal(100, np.float32).astype(np.float16)
        assert found.tobytes() == whole.tobytes()
