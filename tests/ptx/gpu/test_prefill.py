"""Prefill attention on the GPU: right for all sizes, types and kinds of masks."""

import pytest
from tests.kernels.prefill.problem import Problem

from kernbench import ptx
from kernbench.kernels.prefill import PrefillShape

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu():
    with ptx.CudaDevice(0) as device:
        yield device


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [64, 128, 256])
def test_sizes(gpu, size, causal, dtype):
    Problem(PrefillShape(4, 2, size, dtype, causal), (1000, 1, 300), sms=132).check(device=gpu)


@pytest.mark.parametrize("turns", [True, False])
def test_turns(gpu, turns):
    problem = Problem(PrefillShape(8, 1, 128), (2048,), sms=17)
    for _ in range(3):
        problem.check(device=gpu, turns=turns)


@pytest.mark.parametrize("shape", [PrefillShape(2, 1, 128, window=300), PrefillShape(2, 1, 64, softcap=3.0)])
def test_windows_and_softcap(gpu, shape):
    Problem(shape, (700, 20), (900, 400), sms=132).check(device=gpu)
