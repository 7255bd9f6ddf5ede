"""Tensor maps from the arguments of the driver's encoders: numbers for element types, swizzles and fills."""

from collections.abc import Sequence

from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.asynchronous.copies import tensor_maps
from kernbench.ptx.launching.tensor_map import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES, TensorMapDescription

TILED, IM2COL, REPLACE_ADDRESS = range(3)
_ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz", "b4x16",
    "b4x16_p64", "b6x16_p32",
)  # fmt: skip
_SIGN = 1 << 63


def encode_map(words: Sequence[int]) -> bytes:
    """The 128 bytes of a tensor map for an encoder's arguments, in the order in which `modules.c` sends them."""
    kind = words[0]
    if kind == REPLACE_ADDRESS:
        data = b"".join(word.to_bytes(8, "little") for word in words[2:])
        return _moved(data, words[1])
    _, element, rank, address, interleave, swizzle, promotion, fill = words[:8]
    numbers = _Numbers(words[8:])
    dims, strides = numbers.take(rank), numbers.take(rank - 1)
    box = numbers.take(rank if kind == TILED else 2)
    steps = numbers.take(rank)
    lower, upper = (numbers.take(rank - 2), numbers.take(rank - 2)) if kind == IM2COL else (None, None)
    return tensor_maps.encode(
        TensorMapDescription(
            address=address,
            element=_choice("data type", _ELEMENTS, element),
            dims=dims,
            strides=strides,
            box=box,
            element_strides=steps,
            swizzle=_choice("swizzle", tuple(SWIZZLES), swizzle),
            interleave=_choice("interleave", INTERLEAVES, interleave),
            l2_promotion=_choice("L2 promotion", L2_PROMOTIONS, promotion),
            oob_fill=_choice("fill", OOB_FILLS, fill),
            lower=lower,
            upper=upper,
        )
    )


class _Numbers:
    """Signed numbers, taken from the front."""

    def __init__(self, words: Sequence[int]):
        self._words = [word - 2 * _SIGN if word >= _SIGN else word for word in words]

    def take(self, count: int) -> tuple[int, ...]:
        taken, self._words = tuple(self._words[:count]), self._words[count:]
        return taken


def _choice(what: str, names: Sequence[str], number: int) -> str:
    if not 0 <= number < len(names):
        raise MisuseError(f"tensor map: {what} {number} is not known; there are {len(names)}")
    return names[number]


def _moved(data: bytes, address: int) -> bytes:
    from dataclasses import replace

    return tensor_maps.encode(replace(tensor_maps.decode(data), address=address))
