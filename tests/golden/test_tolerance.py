"""The verdict is sharp: every correct kernel passes, every known fault fails, at all sizes and in all types."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests import sampled

from kernbench.common.dtypes import DTYPES, cast
from kernbench.golden import attention, compare
from kernbench.golden.basis.arrays import to_float64
from kernbench.golden.tolerance import spacing

FLOATS = ("f32", "f16", "bf16", "f8e4m3", "f8e5m2")


@dataclass(frozen=True)
class Inputs:
    q: Any
    k: Any
    v: Any


def make(seed, S_q, S_kv, h_q=4, h_kv=2, d=32, element="f16", size=1.0, d_v=None):
    random = np.random.default_rng(seed)

    def draw(*shape):
        return cast((random.standard_normal(shape) * size).astype(np.float32), element)

    return Inputs(draw(S_q, h_q, d), draw(S_kv, h_kv, d), draw(S_kv, h_kv, d_v or d))


@dataclass(frozen=True)
class Flash:
    """A blocked online-softmax kernel in f32, with a place for each fault."""

    operand: str = "f16"
    output: str = "f16"
    block: int = 64
    causal: bool = False
    mask_shift: int = 0
    scaled: bool = True
    sum_rounded: bool = False
    normalise_partials: bool = False
    reshape_keys: bool = False
    swap_heads: bool = False
    skip_key: int | None = None
    reverse: bool = False

    def __call__(self, inputs: Inputs):
        q, k, v = (np.swapaxes(x.astype(np.float32), 0, 1) for x in (inputs.q, inputs.k, inputs.v))
        group = len(q) // len(k)
        k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
        starts = range(0, k.shape[1], self.block)
        m = np.full((*q.shape[:2], 1), -np.inf, np.float32)
        l, o = np.zeros_like(m), np.zeros((*q.shape[:2], v.shape[2]), np.float32)
        for start in reversed(starts) if self.reverse else starts:
            m, l, o = self.fold(m, l, o, self.scores(q, k, start), v[:, start : start + self.block])
        out = np.swapaxes(np.where(l > 0, o / np.where(l > 0, l, 1), 0), 0, 1)
        if self.swap_heads:
            out = out[:, [1, 0, *range(2, out.shape[1])]]
        return cast(out, self.output)

    def scores(self, q, k, start):
        keys = k[:, start : start + self.block]
        turned = keys.reshape(len(keys), keys.shape[2], -1) if self.reshape_keys else np.swapaxes(keys, 1, 2)
        s = q @ turned
        if self.scaled:
            s = s * np.float32(1 / np.sqrt(q.shape[2]))
        position = start + np.arange(keys.shape[1])
        if self.causal:
            last = k.shape[1] - q.shape[1] + np.arange(q.shape[1])[:, None] + self.mask_shift
            s = np.where(position <= last, s, -np.inf)
        return s if self.skip_key is None else np.where(position == self.skip_key, -np.inf, s)

    def fold(self, m, l, o, s, v):
        new = np.maximum(m, s.max(axis=2, keepdims=True))
        safe = np.where(np.isneginf(new), 0, new).astype(np.float32)
        p, alpha = np.exp(s - safe), np.exp(m - safe)
        rounded = cast(p, self.operand).astype(np.float32)
        total = (rounded if self.sum_rounded else p).sum(axis=2, keepdims=True)
        part = rounded @ v
        if self.normalise_partials:
            part = part / np.where(total > 0, total, 1)
        return new, l * alpha + total, o * alpha + part


def judge(kernel, inputs, **options):
    reference = attention(inputs.q, inputs.k, inputs.v, causal=kernel.causal)
    return compare(kernel(replace(inputs)), reference, compute_dtype=kernel.operand, **options)


CLEAN_SHAPES = [
    # S_q, S_kv, h_q, h_kv, d, block
    (1, 1, 1, 1, 8, 64),
    (3, 2, 2, 1, 16, 1),
    (1, 64, 8, 1, 64, 16),
    (37, 37, 4, 2, 32, 5),
    (32, 64, 4, 4, 128, 64),
    (48, 300, 2, 1, 64, 64),
    (8, 1024, 4, 1, 64, 128),
    (4, 4096, 2, 1, 128, 256),
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("size", [1e-4, 1.0, 30.0])
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", CLEAN_SHAPES, ids=str)
def test_a_correct_kernel_passes(element, size, shape):
    *dimensions, block = shape
    for seed in range(3):
        kernel = Flash(element, element, block, causal=seed != 0, sum_rounded=seed == 1, reverse=seed == 2)
        if kernel.causal and shape[0] > shape[1]:
            kernel = replace(kernel, causal=False)
        verdict = judge(kernel, make(seed, *dimensions, element=element, size=size))
        assert verdict.passed, verdict.reason


@sampled.each(sampled.some(range(150), 40))
def test_a_correct_kernel_passes_for_any_seed(seed):
    random = np.random.default_rng([1, seed])
    S_q, d = (int(random.choice([1, 2, 16, 48])), int(random.choice([8, 40, 64])))
    S_kv = S_q + int(random.integers(0, 200))
    element, output = random.choice(FLOATS), random.choice(FLOATS[:3])
    size = float(random.choice([1e-4, 0.03, 0.3, 1.0, 3.0, 30.0]))
    kernel = Flash(str(element), str(output), int(random.integers(1, 100)), causal=bool(seed % 2))
    verdict = judge(kernel, make(seed, S_q, S_kv, 2, 1, d, element=str(element), size=size))
    assert verdict.passed, verdict.reason


STRUCTURED = {
    "constant": lambda i, j: np.full_like(i + j, 0.3),
    "linear": lambda i, j: (i + 0.01 * j) / 300 - 0.5,
    "periodic": lambda i, j: (i + j) % 7 - 3.0,
    "smooth": lambda i, j: 0.1 * np.sin(0.01 * i + j),
    "alternating": lambda i, j: (-1.0) ** (i + 0 * j),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("pattern", STRUCTURED)
@pytest.mark.parametrize("block", [1, 64])
def test_a_correct_kernel_passes_on_structured_inputs(pattern, element, block):
    i, j = np.arange(512.0)[:, None, None], np.arange(32.0)
    x = cast(STRUCTURED[pattern](i, j).astype(np.float32), element)
    verdict = judge(Flash(element, element, block), Inputs(x[:16], x, x))
    assert verdict.passed, verdict.reason


def test_a_correct_kernel_passes_when_the_query_is_zero_and_values_cancel():
    inputs = make(0, 8, 256)
    inputs = replace(
        inputs, q=0 * inputs.q, v=np.where(np.arange(256) % 2, 1, -1).astype("f2")[:, None, None] + 0 * inputs.v
    )
    assert judge(Flash(), inputs).passed


def test_inputs_wider_than_the_compute_type_may_be_rounded():
    inputs = make(0, 32, 100, element="f32", d=64)
    narrow = Inputs(*(cast(x, "bf16") for x in (inputs.q, inputs.k, inputs.v)))
    wanted = attention(inputs.q, inputs.k, inputs.v)
    actual = Flash("bf16", "f32")(narrow)
    assert compare(actual, wanted, compute_dtype="bf16").passed
    assert not compare(actual, wanted).passed


FAULTS = {
    "no scale": Flash(scaled=False),
    "causal mask one key too late": Flash(causal=True, mask_shift=1),
    "causal mask one key too early": Flash(causal=True, mask_shift=-1),
    "partials normalised before the merge": Flash(normalise_partials=True, block=16),
    "keys reshaped, not transposed": Flash(reshape_keys=True),
    "one key dropped": Flash(skip_key=37),
    "first key dropped": Flash(skip_key=0),
    "two heads swapped": Flash(swap_heads=True),
}
# what the kernel declares: operands, output
DECLARED = [("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f16", "f32"), ("f8e4m3", "f16"), ("f8e5m2", "bf16")]


@cache
def fault_inputs(seed, operand, causal):
    inputs = make(seed, 64, 64, 4, 4, 64, element=operand)
    return inputs, attention(inputs.q, inputs.k, inputs.v, causal=causal)


@pytest.mark.parametrize("declared", DECLARED, ids="-".join)
@pytest.mark.parametrize("kernel", [Flash(), Flash(causal=True)], ids=["full", "causal"])
def test_without_a_fault_it_passes(kernel, declared):
    assert all(faults_judged(kernel, *declared))


@pytest.mark.sampled(16)
@pytest.mark.parametrize("declared", DECLARED, ids="-".join)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails(fault, declared):
    assert not any(faults_judged(FAULTS[fault], *declared))


def faults_judged(kernel, operand, output):
    for seed in range(3):
        inputs, reference = fault_inputs(seed, operand, kernel.causal)
        actual = replace(kernel, operand=operand, output=output)(inputs)
        yield compare(actual, reference, compute_dtype=operand).passed


@pytest.mark.parametrize("S_kv", [64, 128, 256])
@pytest.mark.parametrize("declared", ["f16", "f32"])
@pytest.mark.parametrize("place", ["operand", "output"])
def test_rounding_to_one_type_narrower_than_declared_fails(place, declared, S_kv):
    narrower = {"f16": "bf16", "f32": "f16"}[declared]
    for seed in range(3):
        inputs = make(seed, 64, S_kv, d=64, element=declared)
        wanted = attention(inputs.q, inputs.k, inputs.v)
        actual = replace(Flash(declared, declared), **{place: narrower})(inputs)
        assert not compare(actual, wanted, dtype=declared).passed


@cache
def reference_of(element, S_kv=64):
    inputs = make(5, 64, S_kv, element=element)
    return attention(inputs.q, inputs.k, inputs.v)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("S_kv", [64, 1024])
@pytest.mark.parametrize("filler", [0.0, 0.01, 1.0, np.nan, np.inf], ids=str)
def test_a_constant_output_never_passes(element, S_kv, filler):
    reference = reference_of(element, S_kv)
    if np.isinf(filler) and element == "f8e4m3":
        filler = np.nan
    actual = np.full(reference.shape, filler, dtype=DTYPES[element].numpy)
    assert not compare(actual, reference).passed


@pytest.mark.parametrize("element", FLOATS)
def test_zeros_in_one_rank_never_pass(element):
    reference = reference_of(element, 1024)
    actual = cast(reference.expected.astype(np.float32), element)
    assert compare(actual, reference, rank_axis=0, ranks=8).passed
    actual[16:24] = 0
    verdict = compare(actual, reference, rank_axis=0, ranks=8)
    assert not verdict.passed
    assert [part.rank for part in verdict.ranks if not part.passed] == [2]


@pytest.mark.parametrize("element", FLOATS[1:])
def test_spacing_is_the_distance_to_the_next_number(element):
    row = DTYPES[element]
    bits = np.arange(1 << 8 * row.itemsize).astype(f"u{row.itemsize}")
    numbers = to_float64(bits.view(row.numpy))
    numbers = np.unique(numbers[np.isfinite(numbers) & (numbers >= 0)])
    assert np.array_equal(spacing(numbers[:-1], row), np.diff(numbers))
    assert np.array_equal(spacing(-numbers[:-1], row), np.diff(numbers))


def test_spacing_of_f32():
    numbers = (np.arange(1 << 15, dtype=np.uint32) << 16)[:-128].view(np.float32)
    assert np.array_equal(spacing(numbers.astype(np.float64), DTYPES["f32"]), np.spacing(numbers))


def test_the_tolerance_of_an_integer_output_is_exact():
    assert compare(np.array([1, 2, 300], np.int32), np.array([1, 2, 300])).passed
    assert not compare(np.array([1, 2, 301], np.int32), np.array([1, 2, 300])).passed
    assert compare(np.array([1, 2], np.int8), np.array([1.7, 2.0])).passed
