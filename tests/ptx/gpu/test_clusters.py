"""Clusters on the GPU: what the emulator's tests assume, held against the hardware."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.cluster_kernels import CASES, launch

from kernbench.ptx.devices.cuda_device import CudaDevice


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    body, ctas, cluster, expected = CASES[name]
    run = launch(body, ctas, cluster, CudaDevice(0))
    np.testing.assert_array_equal(run.outputs["out"], np.broadcast_to(expected, (ctas, 32)))
