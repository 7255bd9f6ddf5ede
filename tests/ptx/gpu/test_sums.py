"""Sums of f32 that memory makes, on the GPU: what the emulator's tests assume of subnormal numbers and NaNs."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.kernels import dump_box
from tests.ptx.emulator.instructions.sums import MAPS, OLD, WAYS, expected, sums

from kernbench import ptx
from kernbench.ptx.devices.cuda_device import CudaDevice


@pytest.mark.parametrize("way", [*WAYS, *MAPS])
def test_sums_of_special_numbers(way):
    _, result = sums(way, CudaDevice(0))
    np.testing.assert_array_equal(result, expected(way))


@pytest.mark.parametrize("fill", ["zero", "nan"])
@pytest.mark.parametrize("element", MAPS)
def test_boxes_of_special_numbers(element, fill):
    """Also of what lies outside of the tensor."""
    kernel = ptx.parse(dump_box(2, 4096)).kernels["kernel"]
    boxes = []
    for device in (CudaDevice(0), ptx.EmulatedDevice("sm_90a")):
        tensor = device.array(OLD[:1024].view(np.float32).reshape(32, 32))
        described = device.tensor_map(tensor, (32, 32), (128,), (32, 32), element=element, oob_fill=fill)
        out = device.array(np.zeros(4096, np.uint8), "out")
        device.launch(kernel, 1, 128, [described, out, 4, 4])
        boxes.append(out.numpy().view(np.uint32))
    np.testing.assert_array_equal(*boxes)
