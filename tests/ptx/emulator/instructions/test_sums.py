"""Sums of f32 that memory makes: with the subnormal numbers and NaNs of an H200, in every way PTX has."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.kernels import dump_box
from tests.ptx.emulator.instructions.sums import MAPS, OLD, WAYS, expected, sums

from kernbench import ptx


@pytest.mark.parametrize("way", [*WAYS, *MAPS])
def test_sums_of_special_numbers(way):
    run, result = sums(way, ptx.EmulatedDevice("sm_90a"))
    assert run.findings == []
    np.testing.assert_array_equal(result, expected(way))


@pytest.mark.parametrize("element", MAPS)
def test_what_fills_boxes_is_not_rounded_to_tf32(element):
    """The NaN outside of a tensor is that of maps of f32; NaNs of the tensor become tf32's."""
    device = ptx.EmulatedDevice("sm_90a")
    tensor = device.array(OLD[:1024].view(np.float32).reshape(32, 32))
    described = device.tensor_map(tensor, (32, 32), (128,), (32, 32), element=element, oob_fill="nan")
    out = device.array(np.zeros(4096, np.uint8), "out")
    device.launch(ptx.parse(dump_box(2, 4096)).kernels["kernel"], 1, 128, [described, out, 4, 4])
    box = out.numpy().view(np.uint32).reshape(32, 32)
    assert np.all(box[28:] == 0x7FF77FF7)
    assert np.all(box[:, 28:] == 0x7FF77FF7)
    inside, given = box[:28, :28], OLD[:1024].reshape(32, 32)[4:, 4:]
    nans = np.isnan(given.view(np.float32))
    assert nans.any()
    np.testing.assert_array_equal(inside[nans], 0x7FFFE000 if element.startswith("tf32") else given[nans])
