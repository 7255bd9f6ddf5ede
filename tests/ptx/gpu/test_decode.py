"""Decode attention on the GPU: right, and the same as on the emulator."""

import numpy as np
import pytest
from tests.kernels.decode.problem import Problem

from kernbench import ptx
from kernbench.kernels.decode import DecodeShape, PagedCache

pytestmark = pytest.mark.gpu

RAGGED = (1300, 0, 1, 64, 2000, 77)


@pytest.fixture(scope="module")
def gpu():
    with ptx.CudaDevice(0) as device:
        yield device


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(8, 8, 64), (64, 8, 128), (24, 2, 128), (32, 2, 256)])
def test_dense(gpu, heads, kv_heads, size, dtype):
    Problem(DecodeShape(heads, kv_heads, size, dtype), RAGGED, sms=132).check(device=gpu)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("page", [16, 32, 64, 128])
def test_paged(gpu, page, layout):
    Problem(DecodeShape(16, 2, 128, "bf16", PagedCache(page, layout)), RAGGED, sms=132).check(device=gpu)


def test_like_the_emulator(gpu):
    problem = Problem(DecodeShape(8, 1, 128, "f16"), (700, 300), sms=6)
    np.testing.assert_array_equal(problem.launch(exact=True)[1], problem.launch(device=gpu)[1])


def test_launches_in_a_row_find_counters_at_zero(gpu):
    problem = Problem(DecodeShape(8, 1, 64), (5000,), sms=100)
    for _ in range(3):
        problem.check(device=gpu)
    problem.check(device=gpu, repetitions=5)
