"""Tensor copies and mbarriers on the GPU: what the emulator's tests assume, held against the hardware."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.boxes import contents, loaded, random_case, run_load, run_store, stored
from tests.ptx.emulator.asynchronous.kernels import WALK, WALKED, dump_box, phases, put_box

from kernbench import ptx
from kernbench.ptx.devices.cuda_device import CudaDevice


@pytest.fixture(scope="module")
def device():
    return CudaDevice(0)


def kernel(text):
    return ptx.parse(text).kernels["kernel"]


def test_phases_of_a_barrier(device):
    text, count = phases(WALK)
    out = device.array(np.zeros(count, np.uint32))
    device.launch(kernel(text), 1, 1, [out])
    assert out.numpy().tolist() == WALKED


@pytest.mark.parametrize("seed", range(100))
def test_a_loaded_box(device, seed):
    case = random_case(seed)
    memory = contents(case, seed)
    _, box = run_load(device, case, memory, kernel(dump_box(len(case.dims), case.nbytes, case.span)))
    np.testing.assert_array_equal(box, loaded(case, memory))


@pytest.mark.parametrize("seed", range(100, 160))
def test_a_stored_box(device, seed):
    case = random_case(seed, inside=True)
    memory, box = contents(case, seed), np.resize(contents(case, seed + 1), case.span)
    _, result = run_store(device, case, memory, box, kernel(put_box(len(case.dims), case.span)))
    np.testing.assert_array_equal(result, stored(case, memory, box))
