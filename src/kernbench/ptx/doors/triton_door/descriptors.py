"""Host tensor descriptors: Triton's description of a tensor becomes a tensor map, its shape and its strides."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernbench.ptx.emulator.asynchronous.copies.tensor_maps import encode
from kernbench.ptx.launching.tensor_map import TensorMapDescription

_SWIZZLES = ("none", "32B", "64B", "128B")
# element types by the driver's number
_ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz", "b4x16",
    "b4x16_p64", "b6x16_p32",
)  # fmt: skip
# element types whose number in instructions differs from the driver's
_DRIVER_NUMBER = {8: 10, 9: 8, 10: 9}
_TF32 = 11
# a value of a descriptor argument and its Triton type
Value = tuple[Any, str]


@dataclass(frozen=True)
class Pixels:
    """For im2col maps: the corners of the pixel box, and the element step of each dimension."""

    lower: Sequence[int]
    upper: Sequence[int]
    steps: Sequence[int]


def _innermost_first(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(size) for size in reversed(sizes))


def tensor_map(
    address: int,
    swizzle: int,
    element_bytes: int,
    element: int,
    box: Sequence[int],
    shape: Sequence[int],
    strides: Sequence[int],
    padding: int = 0,
    pixels: Pixels | None = None,
) -> bytes:
    """A tensor map; box, shape and strides (in elements) begin with the outermost dimension.

    With `pixels` it is an im2col map, and the box is pixels per column and channels per pixel.
    """
    return encode(
        TensorMapDescription(
            address=address,
            element=_ELEMENTS[element],
            dims=_innermost_first(shape),
            strides=tuple(element_bytes * stride for stride in _innermost_first(strides)[1:]),
            box=_innermost_first(box),
            element_strides=(1,) * len(shape) if pixels is None else _innermost_first(pixels.steps),
            lower=None if pixels is None else _innermost_first(pixels.lower),
            upper=None if pixels is None else _innermost_first(pixels.upper),
            swizzle=_SWIZZLES[swizzle],
            l2_promotion="128B",
            oob_fill="nan" if padding else "zero",
        )
    )


def expanded(argument: Any, metadata: Any) -> list[Value]:
    """The parameters of a descriptor: a map, or a pointer if the kernel was compiled without maps.

    Shape and strides.
    """
    shape, strides = list(argument.shape), list(argument.strides)
    sizes: list[Value] = [(size, "i32") for size in shape]
    steps: list[Value] = [(stride, "i64") for stride in strides]
    if metadata is None:
        flags: list[Value] = []
        if hasattr(argument, "padding"):
            flags.append((argument.padding == "nan", "i1"))
        if hasattr(argument, "round_f32_to_tf32"):
            flags.append((argument.round_f32_to_tf32, "i1"))
        wide: list[Value] = [(size, "i64") for size in shape]
        return [(argument.base, "*i8"), *wide, *steps, *flags, *sizes, *steps]
    pixels = None
    if metadata.get("is_im2col"):
        each = argument.element_strides or (1,) * len(shape)
        pixels = Pixels(argument.pixel_box_lower_corner, argument.pixel_box_upper_corner, each)
    extent = [*shape[:-1], 2 * shape[-1]] if metadata["fp4_padded"] else shape
    number = metadata["elem_type"]
    element = _TF32 if getattr(argument, "round_f32_to_tf32", False) else _DRIVER_NUMBER.get(number, number)
    padding = getattr(argument, "padding", "zero") == "nan"
    data = tensor_map(
        argument.base.data_ptr(), metadata["swizzle"], metadata["elem_size"], element, metadata["block_size"], extent,
        strides, padding, pixels,
    )  # fmt: skip
    return [(data, "nvTmaDesc"), *sizes, *steps]


def fill_plain_descriptor(address: int, dims: Sequence[int], box: Sequence[int], element_bytes: int, at: int) -> None:
    """Write the map of a dense tensor to 128 bytes of host memory, as for releases before 3.4."""
    inner = box[-1] * element_bytes
    swizzle = 3 if inner >= 128 else 2 if inner >= 64 else 1
    inner_box = min(box[-1], 128 // element_bytes)
    strides = [1]
    for size in reversed(dims[1:]):
        strides.insert(0, strides[0] * size)
    element = {1: 0, 2: 1, 4: 2, 8: 4}[element_bytes]
    swizzle = swizzle if len(dims) > 1 else 0
    last = inner_box if len(dims) > 1 else box[-1]
    data = tensor_map(address, swizzle, element_bytes, element, [*box[:-1], last], dims, strides)
    ctypes.memmove(at, data, len(data))
