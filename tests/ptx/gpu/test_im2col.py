"""Tensor copies that count pixels, on the GPU: columns of convolution windows, those past the last image included."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.test_im2col import CASES, Convolution, load

from kernbench.ptx.devices.cuda_device import CudaDevice


@pytest.fixture(scope="module")
def device():
    return CudaDevice(0)


def random_case(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))

    def drawn(low, high):
        return tuple(int(n) for n in rng.integers(low, high, rank))

    size, taps, padding, stride = drawn(4, 9), drawn(1, 4), drawn(0, 3), drawn(1, 4)
    case = Convolution(
        size,
        taps,
        padding,
        stride,
        int(rng.integers(1, 3)) if min(size) > 6 else 1,
        0,
        tuple(int(rng.integers(0, t)) for t in taps),
        channels=int(rng.choice((8, 16))),
        images=int(rng.integers(1, 4)),
        pixels=int(rng.integers(1, 65)),
        mode=str(rng.choice(("none", "32B"))),
    )
    return Convolution(**{**vars(case), "first": int(rng.integers(0, len(list(case.places()))))})


@pytest.mark.parametrize("case", CASES)
def test_columns_of_a_convolution(device, case):
    _, got, wanted = load(case, device=device)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("seed", range(60))
def test_random_columns(device, seed):
    case = random_case(seed)
    run, ours, wanted = load(case, channel=8 * (seed % 3))
    assert run.findings == []
    _, theirs, _ = load(case, channel=8 * (seed % 3), device=device)
    np.testing.assert_array_equal(theirs, ours)
    np.testing.assert_array_equal(ours, wanted)
