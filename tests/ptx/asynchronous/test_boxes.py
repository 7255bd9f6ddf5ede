"""Tensor copies in every dimension against plain loops."""

import numpy as np
import pytest
from tests.ptx.asynchronous.boxes import contents, loaded, random_case, run_load, run_store, stored
from tests.ptx.asynchronous.kernels import dump_box, put_box

from kernbench import ptx


@pytest.fixture(scope="module")
def device():
    return ptx.EmulatedDevice("sm_90a")


def kernel(text):
    return ptx.parse(text).kernels["kernel"]


@pytest.mark.parametrize("seed", range(24))
def test_a_loaded_box(device, seed):
    case = random_case(seed)
    memory = contents(case, seed)
    run, box = run_load(device, case, memory, kernel(dump_box(len(case.dims), case.nbytes, case.span)))
    assert run.findings == []
    np.testing.assert_array_equal(box, loaded(case, memory))


@pytest.mark.parametrize("seed", range(100, 116))
def test_a_stored_box(device, seed):
    case = random_case(seed, inside=True)
    memory, box = contents(case, seed), contents(case, seed + 1)
    box = np.resize(box, case.span)
    run, result = run_store(device, case, memory, box, kernel(put_box(len(case.dims), case.span)))
    assert run.findings == []
    np.testing.assert_array_equal(result, stored(case, memory, box))
