"""Tensor maps in the hardware's format, as written by CuTe DSL and by kernels that build them.

The layout is not published. It was inferred from maps of known tensors: the address, a word of flags, byte strides
divided by 16 (with their upper four bits together in a word), sizes and boxes minus one. The flags have, from the
lowest bit on: version 4, rank 3, element 4, interleave 2, swizzle 2, fill 1, rounding to tf32 1, L2 promotion 2,
swizzle atom 2 bits, and one bit that CuTe DSL sets for Blackwell with tensors of at least 128 KiB; the same bytes are
copied. Only the 128-byte swizzle has atoms to choose from. Interleaved layouts and unknown atoms are rejected rather
than misread.
"""

from kernbench.common.errors import MisuseError
from kernbench.ptx.launching.tensor_map import L2_PROMOTIONS, OOB_FILLS, TensorMapDescription

# the lowest four bits of the flags
_VERSION = 2
_ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "b4x16", "tf32", "tf32.ftz",
    "b4x16_p64", "b6x16_p32",
)  # fmt: skip
_ATOM_32B = 1
# elements that are rounded to tf32 during the copy
_ROUNDED = {"f32": "tf32", "f32.ftz": "tf32.ftz"}
_SWIZZLES = ("none", "32B", "64B", "128B")
_FLAGS, _STRIDES, _UPPER, _DIMS, _STEPS, _BOX = 8, 12, 28, 32, 52, 55
_MOST_DIMENSIONS = 5


def _word(data: bytes, start: int) -> int:
    return int.from_bytes(data[start : start + 4], "little")


def is_hardware_map(data: bytes) -> bool:
    """Whether 128 bytes look like a tensor map in the hardware's format."""
    flags, address = _word(data, _FLAGS), int.from_bytes(data[:8], "little")
    rank = (flags >> 4 & 7) + 1
    return flags & 15 == _VERSION and rank <= _MOST_DIMENSIONS and not flags >> 22 and not address % 16 and address > 0


def decode_hardware_map(data: bytes) -> TensorMapDescription:
    """Decode a tensor map in the hardware's format; raises `MisuseError` if it cannot be read."""
    flags = _word(data, _FLAGS)
    rank = (flags >> 4 & 7) + 1
    swizzle = _SWIZZLES[flags >> 13 & 3]
    atom = flags >> 19 & 3
    if atom == _ATOM_32B and swizzle == "128B":
        swizzle = "128B.atom32B"
    elif flags >> 11 & 3 or atom:
        raise MisuseError(
            f"a tensor map in the hardware's bits with flags {flags:#x}: interleaved layouts and some swizzles "
            "are not known here; encode it with cuTensorMapEncodeTiled"
        )
    element = _ELEMENTS[flags >> 7 & 15]
    if flags >> 16 & 1:
        element = _ROUNDED.get(element, element)
    upper, steps = _word(data, _UPPER), _word(data, _STEPS)
    strides = [(_word(data, _STRIDES + 4 * n) | (upper >> (4 * n) & 15) << 32) << 4 for n in range(rank - 1)]
    return TensorMapDescription(
        address=int.from_bytes(data[:8], "little"),
        element=element,
        dims=tuple(_word(data, _DIMS + 4 * n) + 1 for n in range(rank)),
        strides=tuple(strides),
        box=tuple(data[_BOX + n] + 1 for n in range(rank)),
        element_strides=tuple((steps >> 3 * n & 7) + 1 for n in range(rank)),
        swizzle=swizzle,
        oob_fill=OOB_FILLS[flags >> 15 & 1],
        l2_promotion=L2_PROMOTIONS[flags >> 17 & 3],
    )
