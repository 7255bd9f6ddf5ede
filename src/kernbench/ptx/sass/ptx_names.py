"""What a PTX instruction's name says about sizes: bytes per lane, shapes and types of matrix products."""

import re
from functools import lru_cache
from math import prod

_TYPE = re.compile(r"[bsuf](8|16|32|64|128)|(f16|bf16)x2|(bf16|tf32)")
_VECTOR = re.compile(r"v([248])")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_HALF = {"f16", "bf16"}
_EIGHT = {"e4m3", "e5m2"}
_ROWS_OF_A_WARPGROUP = 64
_LANES = 32
# bits of an element of a wmma fragment
_FRAGMENT_BITS = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
# the dimensions of each matrix of a product, as indices of m, n and k
_DIMENSIONS = {"a": (0, 2), "b": (2, 1), "c": (0, 1), "d": (0, 1)}
# wmma products are made of several machine instructions: the shape of one, by type of A and B
_WMMA_SHAPES = {"f64": (8, 8, 4), "tf32": (16, 8, 4), "s4": (8, 8, 32), "u4": (8, 8, 32), "b1": (8, 8, 128)}


@lru_cache(maxsize=4096)
def bytes_of(opcode: str) -> int:
    """Bytes per lane of a load, a store or an atomic; 0 if the name does not say."""
    modifiers = opcode.split(".")
    if modifiers[0] == "wmma":
        return _fragment_bytes(modifiers)
    element = next((_TYPE.fullmatch(m) for m in reversed(modifiers) if _TYPE.fullmatch(m)), None)
    vector = next((_VECTOR.fullmatch(m) for m in modifiers if _VECTOR.fullmatch(m)), None)
    if element is None:
        return 0
    size = int(element[1]) // 8 if element[1] else 4 if element[2] or element[3] == "tf32" else 2
    return size * (int(vector[1]) if vector else 1)


def _fragment_bytes(modifiers: list[str]) -> int:
    """Bytes per lane of a load or store of a wmma fragment, whose elements are each moved by one lane."""
    dimensions = _DIMENSIONS.get(modifiers[2])
    if dimensions is None:
        return 0
    shape = shape_of(".".join(modifiers))
    bits = next((_FRAGMENT_BITS[one] for one in reversed(modifiers) if one in _FRAGMENT_BITS), 16)
    return max(1, shape[dimensions[0]] * shape[dimensions[1]] * bits // (8 * _LANES))


@lru_cache(maxsize=4096)
def shape_of(opcode: str) -> tuple[int, int, int]:
    """m, n and k of a matrix product; zeros for other instructions."""
    shape = _SHAPE.search(opcode)
    return (int(shape[1]), int(shape[2]), int(shape[3])) if shape else (0, 0, 0)


def product_names(opcode: str) -> list[str]:
    """The machine instructions of an mma, wmma or wgmma: their pipe, shape, and type of A and B."""
    types = set(opcode.split("."))
    m, n, k = shape_of(opcode)
    if "wmma" not in types:
        return [_product_name((m, n, k), types)]
    shape = next((shape for kind, shape in _WMMA_SHAPES.items() if kind in types), (16, 8, 16))
    return [_product_name(shape, types)] * max(1, m * n * k // prod(shape))


def _product_name(of: tuple[int, int, int], types: set[str]) -> str:
    m, n, k = of
    # warp-wide products have 32 rows at most
    group = m == _ROWS_OF_A_WARPGROUP
    shape = f"{m}x{n}x{k}" if group else f"{m}{n}{k}"
    if "f64" in types:
        return f"DMMA.{shape}"
    if types & {"s8", "u8", "s4", "u4"}:
        return f"{'IGMMA' if group else 'IMMA'}.{shape}.S8.S8"
    if types & _EIGHT:
        return f"{'QGMMA' if group else 'QMMA'}.{shape}.F32.E4M3.E4M3"
    if "b1" in types:
        return f"{'BGMMA' if group else 'BMMA'}.{shape}"
    kind = "TF32" if "tf32" in types else "BF16" if "bf16" in types else "F16"
    return f"{'HGMMA' if group else 'HMMA'}.{shape}.F32.{kind}"


def fragment_names(opcode: str) -> list[str]:
    """The machine instructions of a wmma load or store, of which ldmatrix takes 16-bit fragments of shared memory."""
    words = opcode.split(".")
    size, loads, shared = bytes_of(opcode), words[1] == "load", words[-2].startswith("shared")
    # in memory, neighbours of a row of A or D, and of a column of B, belong to one lane
    along = ("col" if words[2] == "b" else "row") in words
    if loads and shared and words[2] in "ab" and words[-1] in ("f16", "bf16"):
        name, width = "LDSM.16.M88.4" if along else "LDSM.16.MT88.4", 16
    else:
        name = ("LD" if loads else "ST") + ("S" if shared else "G.E" if words[-2] == "global" else ".E")
        width = 8 if words[-1] == "f64" or (along and words[-1] in ("f32", "s32")) else 4
        name += ".64" if width == 8 else ""
    return [name] * max(1, size // width)
