"""Attention over parts of the keys, merged: as over all of them."""

import numpy as np
import pytest
from tests.kernels.decode.problem import NUMPY

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.kernels.merge import MergeKernel, MergeShape, arguments

KINDS = {**NUMPY, "f32": np.float32}


def golden(parts, lses):
    """In float64: the output and the logarithm of the sum; parts whose logarithm is minus infinity are nothing."""
    lses, parts = lses.astype(np.float64), parts.astype(np.float64)
    largest = np.maximum(lses.max(axis=0), -1e300)
    weights = np.exp(lses - largest)
    total = weights.sum(axis=0)
    sums = (weights[..., None] * np.where(weights[..., None] > 0, parts, 0)).sum(axis=0)
    with np.errstate(divide="ignore"):
        return sums / np.where(total > 0, total, 1)[..., None], largest + np.log(total)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("size", "dtype", "out_dtype"),
    [(64, "f16", ""), (128, "bf16", ""), (256, "f16", ""), (128, "f32", "bf16"), (256, "f32", ""), (64, "f32", "f16")],
)
@pytest.mark.parametrize("parts", [1, 3, 9])
def test_it_is_as_over_all_keys(size, dtype, out_dtype, parts):
    shape, tokens = MergeShape(3, size, dtype, out_dtype), 5
    rng, device = np.random.default_rng(size + parts), ptx.EmulatedDevice("sm_90a")
    lses = rng.normal(0, 20, (parts, tokens, 3)).astype(np.float32)
    values = rng.standard_normal((parts, tokens, 3, size)).astype(KINDS[dtype])
    # a row without keys in one part, and one without any
    lses[0, 1], values[0, 1], lses[:, 2], values[:, 2] = -np.inf, np.nan, -np.inf, np.nan
    out, lse = device.empty((tokens, 3, size), KINDS[shape.out_dtype]), device.empty((tokens, 3))
    kernel = MergeKernel(shape)
    given = arguments(shape, device.array(values), device.array(lses), out, lse)
    run = device.launch(kernel.build(), kernel.ctas(tokens), kernel.threads, given)
    assert not run.findings, run.findings[0]
    wanted, logarithms = golden(values, lses)
    tolerance = {"f32": 2e-6, "f16": 2e-3, "bf16": 2e-2}[shape.out_dtype]
    np.testing.assert_allclose(out.numpy().astype(np.float64), wanted, atol=tolerance, rtol=0)
    np.testing.assert_allclose(lse.numpy(), logarithms, rtol=1e-5, atol=1e-5)


def test_the_logarithms_need_not_be_kept():
    shape, device = MergeShape(1, 64, "f32"), ptx.EmulatedDevice("sm_90a")
    out, kernel = device.empty((1, 1, 64)), MergeKernel(shape)
    given = arguments(
        shape, device.array(np.ones((2, 1, 1, 64), np.float32)), device.array(np.zeros((2, 1, 1), np.float32)), out
    )
    assert device.launch(kernel.build(), 1, kernel.threads, given).ok
    np.testing.assert_array_equal(out.numpy(), 1)


def test_refusals():
    with pytest.raises(MisuseError, match="out_dtype = 'f64': one of f16, bf16, f32"):
        MergeShape(8, 128, "bf16", "f64")
    shape, parts, lses = MergeShape(2, 64, "f32"), np.zeros((3, 4, 2, 64)), np.zeros((3, 4, 2))
    with pytest.raises(MisuseError, match=r"parts have shape \[3, 4, 2, 64\], and \[parts, tokens, 1, 64\] is wanted"):
        arguments(MergeShape(1, 64), parts, lses, parts[0])
    with pytest.raises(MisuseError, match=r"lses has shape \[3, 4\], and \[3, 4, 2\] is wanted"):
        arguments(shape, parts, lses[..., 0], parts[0])
    with pytest.raises(MisuseError, match="there are no parts"):
        arguments(shape, parts[:0], lses[:0], parts[0])
