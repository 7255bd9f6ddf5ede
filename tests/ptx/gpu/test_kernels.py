"""Kernels written with the builder on the GPU: right, and the same as on the emulator."""

import numpy as np
import pytest
from tests.ptx.builder.samples import SAMPLES

from kernbench import ptx
from kernbench.bench import find, run_bench

pytestmark = pytest.mark.gpu
BENCH = find("batched_incremental_attention")
F32 = np.float32


def inputs(name):
    """Grid, block and arguments of a sample; arrays that are None are made empty with the shape beside them."""
    rng = np.random.default_rng(11)
    x = rng.standard_normal((4, 1000), F32)
    a, b = rng.standard_normal((2, 48, 48), F32)
    half = rng.integers(-4, 4, (24, 16)).astype(np.float16)
    return {
        "vector_add": (8, 128, [x[0], x[1], (1000, F32), 1000]),
        "block_sum": (3, 96, [x, (3, F32), 4000]),
        "matmul": ((3, 3), (16, 16), [a, b, ((48, 48), F32), 48]),
        "softmax": (4, 32, [x * F32(20), ((4, 1000), F32), 1000]),
        "mma_tile": (1, 32, [half[:16], half[16:], ((16, 8), F32)]),
        "clamp": (1, 32, [x[0, :32] * F32(9)]),
        "collatz": (2, 32, [np.zeros(2, np.uint32), np.arange(1, 65, dtype=np.uint32)]),
    }[name]


def results(device, name):
    grid, block, args = inputs(name)
    given = [device.empty(*arg) if isinstance(arg, tuple) else arg for arg in args]
    given = [device.array(arg) if isinstance(arg, np.ndarray) else arg for arg in given]
    assert device.launch(SAMPLES[name](), grid, block, given).ok
    return [array.numpy() for array in given if hasattr(array, "numpy")]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_give_the_same_on_both_devices(name):
    emulated, real = (results(device, name) for device in (ptx.EmulatedDevice(), ptx.CudaDevice()))
    for ours, theirs in zip(emulated, real, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("size", [None, "512"])
@pytest.mark.parametrize("panel", BENCH.panels)
def test_attention_is_right_on_the_gpu(panel, size):
    run = run_bench(BENCH, panel, {"device": "cuda"}, size=size)
    assert run.right, run.comparison[0].reason
    assert run.metrics["gpu_time_ns"] > 0


@pytest.mark.parametrize("panel", BENCH.panels)
def test_attention_is_the_same_on_both_devices(panel):
    emulated = run_bench(BENCH, panel, {"device": "emulator"}, exact=True).outputs["o"]
    real = run_bench(BENCH, panel, {"device": "cuda"}).outputs["o"]
    np.testing.assert_array_equal(emulated, real)
