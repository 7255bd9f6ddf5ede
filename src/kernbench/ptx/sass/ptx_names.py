"""What a PTX instruction's name says about sizes: bytes per lane, shapes and types of matrix products."""

import re
from functools import lru_cache

_TYPE = re.compile(r"[bsuf](8|16|32|64|128)|(f16|bf16)x2|(bf16|tf32)")
_VECTOR = re.compile(r"v([248])")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_HALF = {"f16", "bf16"}
_EIGHT = {"e4m3", "e5m2"}
_ROWS_OF_A_WARPGROUP = 64


@lru_cache(maxsize=4096)
def bytes_of(opcode: str) -> int:
    """Bytes per lane of a load, a store or an atomic; 0 if the name does not say."""
    modifiers = opcode.split(".")
    element = next((_TYPE.fullmatch(m) for m in reversed(modifiers) if _TYPE.fullmatch(m)), None)
    vector = next((_VECTOR.fullmatch(m) for m in modifiers if _VECTOR.fullmatch(m)), None)
    if element is None:
        return 0
    size = int(element[1]) // 8 if element[1] else 4 if element[2] or element[3] == "tf32" else 2
    return size * (int(vector[1]) if vector else 1)


@lru_cache(maxsize=4096)
def shape_of(opcode: str) -> tuple[int, int, int]:
    """m, n and k of a matrix product; zeros for other instructions."""
    shape = _SHAPE.search(opcode)
    return (int(shape[1]), int(shape[2]), int(shape[3])) if shape else (0, 0, 0)


def product_name(opcode: str) -> str:
    """The machine instruction of an mma or wgmma: its pipe, shape, and type of A and B."""
    m, n, k = shape_of(opcode)
    types = set(opcode.split("."))
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
