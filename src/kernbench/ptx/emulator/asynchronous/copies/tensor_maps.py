"""Tensor maps in the emulator's memory: 128 bytes in its own layout, read and changed field by field.

Maps in the hardware's format are read as well. Numbers of element types, swizzles and fills are those of
tensormap.replace.
"""

import dataclasses
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.asynchronous.copies.begin_kernels import LIMIT, START
from kernbench.ptx.emulator.asynchronous.copies.hardware_maps import decode_hardware_map, is_hardware_map
from kernbench.ptx.emulator.lanes.arrays import Bytes, Int, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.launching.tensor_map import TENSOR_MAP_BYTES, TensorMapDescription

MAGIC = 0x4D54424B
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
LAYOUT = np.dtype(
    {
        "names": [
            "address", "magic", "rank", "elemtype", "swizzle_mode", "interleave_layout", "swizzle_atomicity",
            "fill_mode", "l2_promotion", "im2col", "global_dim", "box_dim", "element_stride", "global_stride",
            "corners",
        ],
        "formats": ["u8", "u4", *["u1"] * 8, ("u4", 5), ("u2", 5), ("u1", 5), ("u8", 4), ("i2", (2, 3))],
        "offsets": [0, 8, 12, 13, 14, 15, 16, 17, 18, 19, 24, 44, 54, 64, 96],
        "itemsize": TENSOR_MAP_BYTES,
    }
)  # fmt: skip
ELEMENT_NUMBERS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz",
    "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
_SWIZZLES = {
    "none": (0, 0),
    "32B": (1, 0),
    "64B": (2, 0),
    "128B": (3, 0),
    "128B.atom32B": (3, 1),
    "128B.atom32B.flip8B": (3, 2),
    "128B.atom64B": (3, 3),
}
_SWIZZLE_NAMES = {numbers: name for name, numbers in _SWIZZLES.items()}
_FILLS = ("zero", "nan")
_PROMOTIONS = ("none", "64B", "128B", "256B")
_RANK = 5
# alignment of maps in memory
_ALIGNMENT = 64
# the index of the magic word
_MAGIC_WORD = 2


def encode(description: TensorMapDescription) -> bytes:
    """The 128 bytes of a tensor map."""
    if description.interleave != "none":
        raise MisuseError(
            f"tensor map: interleave {description.interleave!r} cannot be emulated; use interleave='none' and a box "
            "with the channels as a dimension of their own"
        )
    record = np.zeros((), LAYOUT)
    rank = description.rank
    record["address"], record["magic"], record["rank"] = description.address, MAGIC, rank - 1
    record["elemtype"] = ELEMENT_NUMBERS.index(description.element)
    record["swizzle_mode"], record["swizzle_atomicity"] = _SWIZZLES[description.swizzle]
    record["fill_mode"] = _FILLS.index(description.oob_fill)
    record["l2_promotion"] = _PROMOTIONS.index(description.l2_promotion)
    record["global_dim"][:rank] = [size & 0xFFFFFFFF for size in description.dims]
    record["box_dim"][: len(description.box)] = description.box
    record["element_stride"][:rank] = description.element_strides
    record["global_stride"][: rank - 1] = description.strides
    if description.lower is not None:
        if description.element_strides[-1] != 1:
            raise MisuseError(
                f"tensor map: steps of {description.element_strides[-1]} from image to image cannot be emulated; "
                "use an element stride of 1 in the outermost dimension"
            )
        record["im2col"] = 1
        record["corners"][:, : rank - 2] = description.lower, description.upper
    return record.tobytes()


@lru_cache(256)
def decode(data: bytes) -> TensorMapDescription:
    """Decode 128 bytes; raises `MisuseError` if they are not a valid map."""
    record: Any = np.frombuffer(data, LAYOUT)[0]
    if int(record["magic"]) != MAGIC:
        if is_hardware_map(data):
            return decode_hardware_map(data)
        raise MisuseError("these 128 bytes are no tensor map")
    rank = int(record["rank"]) + 1
    if rank > _RANK or int(record["elemtype"]) >= len(ELEMENT_NUMBERS):
        raise MisuseError(f"a tensor map of rank {rank} with element type {int(record['elemtype'])}")
    swizzle = _SWIZZLE_NAMES.get((int(record["swizzle_mode"]), int(record["swizzle_atomicity"])))
    if swizzle is None or record["interleave_layout"]:
        raise MisuseError(
            f"a tensor map with swizzle mode {int(record['swizzle_mode'])}, atomicity "
            f"{int(record['swizzle_atomicity'])} and interleave {int(record['interleave_layout'])} cannot be emulated"
        )
    counts = bool(record["im2col"])
    corners = [tuple(int(number) for number in corner[: rank - 2]) for corner in record["corners"]]
    return TensorMapDescription(
        address=int(record["address"]),
        element=ELEMENT_NUMBERS[int(record["elemtype"])],
        dims=tuple(int(size) or 1 << 32 for size in record["global_dim"][:rank]),
        strides=tuple(int(stride) for stride in record["global_stride"][: rank - 1]),
        box=tuple(int(size) for size in record["box_dim"][: 2 if counts else rank]),
        element_strides=tuple(max(1, int(stride)) for stride in record["element_stride"][:rank]),
        swizzle=swizzle,
        oob_fill=_FILLS[int(record["fill_mode"]) & 1],
        lower=corners[0] if counts else None,
        upper=corners[1] if counts else None,
    )


def maps_in(data: Array) -> list[int]:
    """Offsets of maps of this layout in bytes that begin at an aligned address."""
    whole = data[: len(data) // _ALIGNMENT * _ALIGNMENT]
    words = np.ascontiguousarray(whole).view(np.uint32).reshape(-1, _ALIGNMENT // 4)
    at = np.flatnonzero(words[:, _MAGIC_WORD] == MAGIC) * _ALIGNMENT
    return [int(offset) for offset in at if offset + TENSOR_MAP_BYTES <= len(data)]


def say_the_same(one: bytes, other: bytes) -> bool:
    """Whether two maps, each in either format, describe the same tensor; L2 hints do not count.

    If one is a map, so is the other: a map that a kernel builds on a GPU in zeroed bytes lacks the version.
    """
    try:
        first, second = (decode(data) if _has_magic(data) else decode_hardware_map(data) for data in (one, other))
    except MisuseError:
        return False
    return dataclasses.replace(first, l2_promotion=second.l2_promotion) == second


def _has_magic(data: bytes) -> bool:
    return int(np.frombuffer(data, np.uint32)[_MAGIC_WORD]) == MAGIC


def replace(data: Array, field: str, ordinal: int | None, value: int) -> None:
    """Set a field of a tensor map in place; other bytes become a map, and the hardware's format is rewritten."""
    held: memoryview = data.data
    if held[8:12] != _MAGIC_BYTES:
        if is_hardware_map(data.tobytes()):
            held[:] = encode(decode_hardware_map(data.tobytes()))
        held[8:12] = _MAGIC_BYTES
    start, size = extent(field, ordinal)
    held[start : start + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def extent(field: str, ordinal: int | None) -> tuple[int, int]:
    """The offset and length of the field that `replace` sets."""
    return _extent("address" if field == "global_address" else field, ordinal or 0)


@kernel
def set_fields(memory: Bytes, located: Int64s, values: UInt64s, first: Int, nbytes: Int) -> int:
    """Set a field of tensor maps in shared memory, up to the first invalid one; returns how many are set.

    `located` is what `begin_kernels.find_ends` returns for the maps.
    """
    for i in range(values.size):
        start = located[START, i]
        if start + TENSOR_MAP_BYTES > located[LIMIT, i]:
            return i
        for k in range(4):
            if memory[start + 4 * _MAGIC_WORD + k] != MAGIC >> 8 * k & 255:
                return i
        value = values[i]
        for k in range(nbytes):
            memory[start + first + k] = np.uint8(value & np.uint64(255))
            value >>= np.uint64(8)
    return values.size


@lru_cache(64)
def _extent(name: str, ordinal: int) -> tuple[int, int]:
    """The offset and length of a field of the layout, or of one of its entries."""
    assert LAYOUT.fields is not None
    kind, start = LAYOUT.fields[name][:2]
    if not 0 <= ordinal < prod(kind.shape):
        raise IndexError(f"a tensor map has no {name} {ordinal}")
    return start + ordinal * kind.base.itemsize, kind.base.itemsize
