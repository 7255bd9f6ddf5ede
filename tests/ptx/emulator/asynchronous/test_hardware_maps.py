"""Tensor maps in the hardware's own bits: what their flags say, and which are refused."""

import pytest

from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.asynchronous.copies.hardware_maps import decode_hardware_map, is_hardware_map


def bits(flags: int) -> bytes:
    """A map of 128 x 64 x 1 elements, in boxes of 32 x 64 x 1, as CuTe DSL 4.8 writes it."""
    words = [1 << 40, flags, 32, 0, 0, 0, 0, 127, 63, 0, 0, 0]
    head = words[0].to_bytes(8, "little") + b"".join(word.to_bytes(4, "little") for word in words[1:])
    return (head + bytes(3) + bytes([31, 63, 0])).ljust(128, b"\0")


@pytest.mark.parametrize(
    ("flags", "element", "swizzle", "fill"),
    [
        # of its examples: f32 as it is, rounded to tf32 with the inner dimension along k, and with the other one
        (0x463A2, "f32", "128B", "zero"),
        (0x563A2, "tf32", "128B", "zero"),
        (0xD63A2, "tf32", "128B.atom32B", "zero"),
        (0x4E3A2, "f32", "128B", "nan"),
        # of large tensors, for Blackwell: bit 21 is set, with any swizzle
        (0x2403A2, "f32", "none", "zero"),
        (0x244322, "f16", "64B", "zero"),
        (0x246322, "f16", "128B", "zero"),
        (0x2D63A2, "tf32", "128B.atom32B", "zero"),
    ],
)
def test_flags_say_element_swizzle_and_fill(flags, element, swizzle, fill):
    assert is_hardware_map(bits(flags))
    read = decode_hardware_map(bits(flags))
    assert (read.element, read.swizzle, read.oob_fill, read.l2_promotion) == (element, swizzle, fill, "128B")
    assert (read.dims, read.strides, read.box) == ((128, 64, 1), (512, 0), (32, 64, 1))


@pytest.mark.parametrize("flags", [0x153BA2, 0x1563A2, 0xD43A2, 0xC03A2, 0x1D63A2])
def test_what_is_not_known_is_refused(flags):
    with pytest.raises(MisuseError, match="encode it with cuTensorMapEncodeTiled"):
        decode_hardware_map(bits(flags))
