"""The arguments of a record: tiles, tensors and numbers, each with a tag."""

from dataclasses import dataclass
from struct import Struct, unpack_from

from kernbench.common.errors import KernelError

__kernbench_internal__ = True
_TILE = Struct("<4B4iIq")
_TENSOR = Struct("<3B5xQ5q5q")
_NUMBER = Struct("<B7xq")
_T, _G, _I, _F = b"TGIF"
# the tile types of kernels in the order of their numbers: the memory of each
SPACES = ("UB", "L1", "L0A", "L0B", "L0C", "L1", "L1", "L0A_MX", "L0B_MX", "AIV0.UB", "AIV1.UB", "AIC.L1")


# types of four bits, two elements in a byte along a row: the number of each type, and its name in the operations
FOUR_BITS = {14: "f4e2m1", 16: "f4e1m2"}
# layouts of scales: those of the left operand, and of the right one
MX_A_ZZ, MX_B_NN = SCALES = (4, 7)


@dataclass(frozen=True)
class TileWords:
    """A tile as a kernel describes it; `site` is where it was assigned its address."""

    space: str
    element: int
    layout: str
    shape: tuple[int, int]
    valid: tuple[int, int]
    site: int
    offset: int


@dataclass(frozen=True)
class TensorWords:
    """A tensor in device memory: its address, and five sizes and strides in elements."""

    element: int
    layout: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


Given = TileWords | TensorWords | int | float


def decode(payload: bytes) -> list[Given]:
    """The arguments of an operation."""
    found: list[Given] = []
    at, end = 0, len(payload)
    while at < end:
        tag = payload[at]
        if tag == _T:
            found.append(_tile(_TILE.unpack_from(payload, at)))
            at += _TILE.size
        elif tag == _G:
            _, element, layout, address, *sizes = _TENSOR.unpack_from(payload, at)
            found.append(_tensor(element, layout, address, sizes))
            at += _TENSOR.size
        else:
            found.append(_NUMBER.unpack_from(payload, at)[1] if tag == _I else unpack_from("<d", payload, at + 8)[0])
            at += _NUMBER.size
    return found


def _tensor(element: int, layout: int, address: int, sizes: list[int]) -> TensorWords:
    shape, strides = sizes[:5], sizes[5:]
    if element in FOUR_BITS:
        if (
            strides[4] != 1
            or shape[4] % 2
            or any(step % 2 for step, size in zip(strides[:4], shape, strict=False) if size > 1)
        ):
            raise KernelError("dtype", f"elements of {FOUR_BITS[element]} lie two in a byte: rows are of whole bytes")
        shape, strides = [*shape[:4], shape[4] // 2], [*(step // 2 for step in strides[:4]), 1]
    return TensorWords(element, layout, address, tuple(shape), tuple(strides))


def _tile(words: tuple[int, ...]) -> TileWords:
    _, space, element, by_columns, rows, columns, valid_rows, valid_columns, site, offset = words
    if element in FOUR_BITS:
        columns, valid_columns = columns // 2, -(-valid_columns // 2)
    layout = "col" if by_columns else "row"
    return TileWords(SPACES[space], element, layout, (rows, columns), (valid_rows, valid_columns), site, offset)
