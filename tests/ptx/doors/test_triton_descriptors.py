"""Tensor descriptors that a Triton program passes from the host."""

from types import SimpleNamespace

import pytest

from kernbench.ptx.doors.triton_door.descriptors import expanded
from kernbench.ptx.emulator.asynchronous.copies.tensor_maps import encode
from kernbench.ptx.launching.tensor_map import TensorMapDescription

ADDRESS = 0x1000
BASE = SimpleNamespace(data_ptr=lambda: ADDRESS)
# images, H, W, channels of f16 (the sixth element type of instructions)
SHAPE, STRIDES = (2, 5, 7, 64), (5 * 7 * 64, 7 * 64, 64, 1)
METADATA = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "fp4_padded": False}


@pytest.mark.parametrize(("given", "steps"), [(None, (1, 1, 1, 1)), ((1, 2, 3, 1), (1, 3, 2, 1))])
def test_a_descriptor_for_im2col_copies(given, steps):
    """Its box is pixels and channels, its corners are H and W: the driver has the innermost dimension first."""
    argument = SimpleNamespace(
        base=BASE,
        shape=SHAPE,
        strides=STRIDES,
        padding="zero",
        round_f32_to_tf32=False,
        element_strides=given,
        pixel_box_lower_corner=[-1, -2],
        pixel_box_upper_corner=[1, 0],
    )
    (data, kind), *rest = expanded(argument, {**METADATA, "is_im2col": True, "block_size": [32, 64]})
    wanted = TensorMapDescription(
        address=ADDRESS,
        element="f16",
        dims=(64, 7, 5, 2),
        strides=(128, 896, 4480),
        box=(64, 32),
        element_strides=steps,
        swizzle="128B",
        l2_promotion="128B",
        lower=(-2, -1),
        upper=(0, 1),
    )
    assert (kind, data) == ("nvTmaDesc", encode(wanted))
    assert rest == [*((size, "i32") for size in SHAPE), *((stride, "i64") for stride in STRIDES)]


def test_a_descriptor_of_tiles():
    argument = SimpleNamespace(base=BASE, shape=SHAPE[2:], strides=STRIDES[2:], padding="nan")
    (data, _), *_ = expanded(argument, {**METADATA, "block_size": [4, 64]})
    wanted = TensorMapDescription(
        ADDRESS, "f16", (64, 7), (128,), (64, 4), (1, 1), "128B", l2_promotion="128B", oob_fill="nan"
    )
    assert data == encode(wanted)
