"""Tensor maps: descriptors of tensors for bulk tensor copies, checked by the rules of the driver's encoder."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from operator import index
from types import MappingProxyType
from typing import TypedDict

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.launching.device_base import DeviceArray, Sizes, shape_of

TENSOR_MAP_BYTES = 128
# shared memory of a multiprocessor, which the encoder takes as the limit
BOX_BYTES = 228 << 10

# element type of the map -> NumPy types for which it is the default
ELEMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "u8": ("uint8", "int8", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
        "u16": ("uint16", "int16"),
        "u32": ("uint32",),
        "s32": ("int32",),
        "u64": ("uint64",),
        "s64": ("int64",),
        "f16": ("float16",),
        "f32": ("float32",),
        "f64": ("float64",),
        "bf16": ("bfloat16",),
        "f32.ftz": (),
        "tf32": (),
        "tf32.ftz": (),
    }
)
ELEMENT_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "u8": 1,
        "u16": 2,
        "u32": 4,
        "s32": 4,
        "u64": 8,
        "s64": 8,
        "f16": 2,
        "f32": 4,
        "f64": 8,
        "bf16": 2,
        "f32.ftz": 4,
        "tf32": 4,
        "tf32.ftz": 4,
    }
)
# element types of less than a byte, packed in global memory -> bits of an element, and bytes used of each 16 in shared
# memory
PACKED_ELEMENTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"b4x16": (4, 16), "b4x16_p64": (4, 8), "b6x16_p32": (6, 12)}
)
_PADDED_ROW = 128
_PADDED_SWIZZLES = ("none", "128B", "128B.atom32B", "128B.atom64B")
FLOAT_ELEMENTS = frozenset(("f16", "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz"))
# swizzle -> limit of the box's innermost row in bytes; 0 for none
SWIZZLES: Mapping[str, int] = MappingProxyType(
    {
        "none": 0,
        "32B": 32,
        "64B": 64,
        "128B": 128,
        "128B.atom32B": 128,
        "128B.atom32B.flip8B": 128,
        "128B.atom64B": 128,
    }
)
INTERLEAVES = ("none", "16B", "32B")
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
OOB_FILLS = ("zero", "nan")
# number of dimensions -> least and greatest offset of a corner of the pixel box
_CORNERS: Mapping[int, tuple[int, int]] = MappingProxyType(
    {3: (-(1 << 15), (1 << 15) - 1), 4: (-128, 127), 5: (-16, 15)}
)
_MOST_PIXELS = 1024
_BY_NUMPY = {name: element for element, names in ELEMENTS.items() for name in names}


@dataclass(frozen=True)
class TensorMapDescription:
    """What a tensor map describes, checked by the rules of the driver's encoders.

    Dimension 0 is the innermost and dense; `strides` are the byte strides of the other dimensions. `box` is what one
    copy moves, in elements; a traversal stride of n in `element_strides` takes every n-th of them. Elements of 4 and 6
    bits are packed in global memory; "b4x16_p64" and "b6x16_p32" take 16 bytes of shared memory for each 16 elements.

    With `lower` and `upper` it is a map for im2col copies: dimensions are channels, W, H, D as far as there are that
    many, and images. The box is channels of a pixel and pixels of a column. Pixels are counted through the pixel box,
    which in W, H and D goes from `lower` to the last pixel plus `upper`; element strides are the steps between them.
    """

    address: int
    element: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: str = "none"
    interleave: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "zero"
    lower: tuple[int, ...] | None = None
    upper: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        self._check_names()
        self._check_counts()
        for problem in self._problems():
            raise MisuseError(f"tensor map: {problem}")

    @property
    def rank(self) -> int:
        """Number of dimensions, 1 to 5."""
        return len(self.dims)

    @property
    def im2col(self) -> bool:
        """Whether it is for im2col copies, which count pixels."""
        return self.lower is not None

    @property
    def pixel_box(self) -> tuple[tuple[int, int], ...]:
        """First and last coordinate of the pixel box, in W, H and D."""
        sizes = self.dims[1:-1]
        return tuple(
            (low, n - 1 + high) for low, n, high in zip(self.lower or (), sizes, self.upper or (), strict=True)
        )

    @property
    def element_bits(self) -> int:
        """Bits of one element."""
        packed = PACKED_ELEMENTS.get(self.element)
        return 8 * ELEMENT_BYTES[self.element] if packed is None else packed[0]

    @property
    def filled(self) -> int:
        """Bytes used of each 16 in shared memory: 16, or less for padded elements."""
        return PACKED_ELEMENTS.get(self.element, (0, 16))[1]

    @property
    def grain(self) -> int:
        """Number of elements that are moved together: one, or as many narrow ones as fill whole bytes and padding."""
        if self.filled < 16:
            return 16
        return max(1, 8 // self.element_bits)

    @property
    def grain_bytes(self) -> int:
        """Bytes in global memory of the elements that are moved together."""
        return self.grain * self.element_bits // 8

    @property
    def step(self) -> int:
        """The innermost coordinate must be a multiple of this many elements."""
        return _PADDED_ROW if self.filled < 16 else 128 // self.element_bits

    @property
    def byte_strides(self) -> tuple[int, ...]:
        """Byte strides of all dimensions; the innermost one is that of elements that are moved together."""
        return (self.grain_bytes, *self.strides)

    @property
    def row_bytes(self) -> int:
        """Bytes of shared memory that a row of the box fills, padding included."""
        filled: int = self.copied[0] * self.element_bits // 8 * 16 // self.filled
        return filled

    @property
    def copied(self) -> tuple[int, ...]:
        """Elements that one copy writes to shared memory, per dimension: the box divided by the traversal strides."""
        if self.im2col:
            return self.box
        inner = self.box[0] if self.interleave == "none" else ceil(self.box[0] / self.element_strides[0])
        return (inner, *(ceil(b / s) for b, s in zip(self.box[1:], self.element_strides[1:], strict=True)))

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy moves, as mbarriers count them: with parts outside the tensor, without padding."""
        return prod(self.copied) * self.element_bits // 8

    @property
    def reach(self) -> int:
        """Bytes from the address to the end of the tensor's last element."""
        outer = sum((n - 1) * s for n, s in zip(self.dims[1:], self.strides, strict=True))
        return outer + -(-self.dims[0] * self.element_bits // 8)

    def _check_names(self) -> None:
        for what, name, known in (
            ("element type", self.element, (*ELEMENTS, *PACKED_ELEMENTS)),
            ("swizzle", self.swizzle, SWIZZLES),
            ("interleave", self.interleave, INTERLEAVES),
            ("L2 promotion", self.l2_promotion, L2_PROMOTIONS),
            ("out-of-bounds fill", self.oob_fill, OOB_FILLS),
        ):
            if name not in known:
                raise MisuseError("tensor map: " + unknown(what, name, known))

    def _check_counts(self) -> None:
        if not 1 <= self.rank <= 5:
            raise MisuseError(f"tensor map: {self.rank} dimensions; it has 1 to 5")
        if (self.lower is None) != (self.upper is None):
            raise MisuseError("tensor map: a pixel box has two corners: give both lower and upper, or none of them")
        if self.im2col and self.rank not in _CORNERS:
            raise MisuseError(f"tensor map: {self.rank} dimensions; one with a pixel box has 3 to 5")
        box = ("box sizes (channels and pixels)", self.box, 2) if self.im2col else ("box sizes", self.box, self.rank)
        corners = (("lower", self.lower), ("upper", self.upper))
        for what, given, wanted in (
            ("strides (one for each dimension but the innermost)", self.strides, self.rank - 1),
            box,
            *((f"offsets of the {which} corner", at, self.rank - 2) for which, at in corners if at is not None),
            ("element strides", self.element_strides, self.rank),
        ):
            if len(given) != wanted:
                raise MisuseError(
                    f"tensor map: {len(given)} {what} for {self.rank} dimensions {self.dims}; give {wanted}"
                )

    def _problems(self) -> Iterable[str]:
        """Every broken rule, in words; only the first is reported."""
        unit = 32 if self.interleave == "32B" or self.filled < 16 else 16
        if self.address % unit:
            yield f"address {self.address:#x} is no multiple of {unit} bytes: align the array's start"
        yield from _outside("size", self.dims, 1, 2**32)
        yield from _outside("box size", self.box[:1] if self.im2col else self.box, 1, 256)
        yield from _outside("element stride", self.element_strides, 1, 8)
        yield from _outside("stride", self.strides, 0, 2**40 - 1, first=1)
        for dimension, stride in enumerate(self.strides, 1):
            if stride % unit:
                yield f"stride {stride} of dimension {dimension} is no multiple of {unit} bytes: pad the rows"
        yield from self._inner_problems()
        yield from self._packed_problems()
        if self.im2col:
            yield from self._pixel_problems()

    def _pixel_problems(self) -> Iterable[str]:
        """Broken rules of maps with a pixel box."""
        if not 1 <= self.box[1] <= _MOST_PIXELS:
            yield f"{self.box[1]} pixels of a column; allowed are 1 to {_MOST_PIXELS}"
        for what, corner in (("lower", self.lower), ("upper", self.upper)):
            yield from _outside(f"offset of the {what} corner", corner or (), *_CORNERS[self.rank], first=1)
        for dimension, (first, last) in enumerate(self.pixel_box, 1):
            if last < first:
                yield f"the pixel box goes from {first} to {last} in dimension {dimension}: it holds no pixel"

    def _packed_problems(self) -> Iterable[str]:
        """Broken rules of elements of less than a byte."""
        if self.element not in PACKED_ELEMENTS:
            return
        whole = 2 if self.filled == 16 else _PADDED_ROW
        if self.dims[0] % whole:
            yield f"{self.element} needs an innermost size that is a multiple of {whole} elements; got {self.dims[0]}"
        if self.filled < 16 and self.box[0] != _PADDED_ROW:
            yield f"{self.element} needs a box of {_PADDED_ROW} elements in the innermost dimension; got {self.box[0]}"
        if self.filled < 16 and self.swizzle not in _PADDED_SWIZZLES:
            yield f"{self.element} cannot be swizzled by {self.swizzle}; allowed are {', '.join(_PADDED_SWIZZLES)}"

    def _inner_problems(self) -> Iterable[str]:
        inner = self.box[0] * self.element_bits // 8 * 16 // self.filled
        limit = SWIZZLES[self.swizzle]
        if inner % 16:
            yield f"the box's innermost row is {inner} bytes; it must be a multiple of 16"
        if self.interleave == "none" and limit and inner > limit:
            yield (
                f"the box's innermost row is {inner} bytes, swizzle {self.swizzle} allows {limit}: "
                f"use a box of {limit * 8 // self.element_bits} elements there, or split the dimension"
            )
        if self.box_bytes > BOX_BYTES:
            yield f"the box is {self.box_bytes} bytes; shared memory holds {BOX_BYTES}"
        if self.interleave != "none" and self.rank < 3:
            yield f"interleave {self.interleave} needs at least 3 dimensions; got {self.rank}"
        if self.interleave == "32B" and self.swizzle != "32B":
            yield f"interleave 32B needs swizzle 32B; got {self.swizzle}"
        if self.oob_fill == "nan" and self.element not in FLOAT_ELEMENTS:
            yield f"out-of-bounds fill 'nan' needs float elements; got {self.element}"


def _outside(what: str, values: tuple[int, ...], low: int, high: int, first: int = 0) -> Iterable[str]:
    for dimension, value in enumerate(values, first):
        if not low <= value <= high:
            yield f"{what} {value} of dimension {dimension}; allowed are {low} to {high}"


class MapOptions(TypedDict, total=False):
    """Keyword options of `describe_tensor_map`."""

    element: str | None
    element_strides: Sizes | None
    interleave: str
    l2_promotion: str
    oob_fill: str
    offset: int
    lower: Sequence[int] | None
    upper: Sequence[int] | None


def describe_tensor_map(
    array: DeviceArray,
    dims: Sizes,
    strides: Sizes,
    box: Sizes,
    swizzle: str = "none",
    *,
    element: str | None = None,
    element_strides: Sizes | None = None,
    interleave: str = "none",
    l2_promotion: str = "none",
    oob_fill: str = "zero",
    offset: int = 0,
    lower: Sequence[int] | None = None,
    upper: Sequence[int] | None = None,
) -> TensorMapDescription:
    """A checked description of a tensor in `array`, `offset` bytes from its start; the element type is the array's.

    `element` overrides it, for "tf32" and the flushing types, which NumPy does not distinguish from f32, and for narrow
    elements ("b4x16", "b4x16_p64", "b6x16_p32"), which an array of bytes holds packed. `lower` and `upper` are corners
    of a pixel box, W first, and make it a map for im2col copies: `box` is then channels and pixels.
    """
    sizes = shape_of(dims)
    return TensorMapDescription(
        address=array.address + index(offset),
        element=_element_of(array.dtype, element),
        dims=sizes,
        strides=shape_of(strides),
        box=shape_of(box),
        element_strides=(1,) * len(sizes) if element_strides is None else shape_of(element_strides),
        swizzle=swizzle,
        interleave=interleave,
        l2_promotion=l2_promotion,
        oob_fill=oob_fill,
        lower=None if lower is None else tuple(index(axis) for axis in lower),
        upper=None if upper is None else tuple(index(axis) for axis in upper),
    )


def _element_of(dtype: np.dtype[np.generic], element: str | None) -> str:
    if element is not None:
        if element in PACKED_ELEMENTS and dtype.itemsize != 1:
            raise MisuseError(f"tensor map: {element} elements in an array of {dtype.name}: pack them into bytes")
        if element in ELEMENT_BYTES and ELEMENT_BYTES[element] != dtype.itemsize:
            raise MisuseError(f"tensor map: {element} elements in an array of {dtype.name}: the widths differ")
        return element
    if dtype.name not in _BY_NUMPY:
        raise MisuseError("tensor map: " + unknown("array element type", dtype.name, _BY_NUMPY))
    return _BY_NUMPY[dtype.name]


@dataclass(frozen=True)
class TensorMap:
    """A tensor map as a kernel receives it: `encoded` are its 128 bytes, in the device's own format.

    `array` is the tensor, kept alive by the map.
    """

    description: TensorMapDescription
    encoded: bytes
    array: DeviceArray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.encoded) != TENSOR_MAP_BYTES:
            raise ValueError(f"a tensor map has {TENSOR_MAP_BYTES} bytes; got {len(self.encoded)}")
