"""prmt: bytes of two registers selected by a selector, in its general and its six named modes."""

from functools import cache

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.rows.loops import Factory, Operation, row_kernel
from kernbench.ptx.numerics.rows.scalar import Bits, compiled


def _selectors(mode: str) -> tuple[int, int, int, int]:
    """For the selector values 0 to 3 of a named mode, the selected bytes (a nibble each, lowest byte first)."""
    rows = {
        "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
        "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
        "rc8": [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]],
        "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
        "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
        "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
    }
    if mode not in rows:
        raise MisuseError(unknown("prmt mode", mode, rows))
    a, b, c, d = (sum(byte << (4 * byte_number) for byte_number, byte in enumerate(row)) for row in rows[mode])
    return a, b, c, d


def picks(mode: str, selector: int) -> list[int]:
    """For each byte of the result, lowest first, its selector nibble: the number of a byte, and bit 3 for its sign."""
    chosen = _selectors(mode)[selector & 3] if mode else selector
    return [chosen >> 4 * byte & 15 for byte in range(4)]


@cache
def permute(mode: str = "") -> Operation:
    """prmt.b32: `operation(a, b, selector, out)`; without a mode, bit 3 of a nibble replicates the byte's sign."""
    named = mode != ""
    s0, s1, s2, s3 = (np.uint32(s) for s in (_selectors(mode) if named else (0, 0, 0, 0)))

    @compiled
    def scalar(a: Bits, b: Bits, selector: Bits) -> Bits:
        both = (np.uint64(b) << np.uint64(32)) | np.uint64(a)
        picks = np.uint32(selector)
        if named:
            which = picks & np.uint32(3)
            low, high = (s0 if which == 0 else s1), (s2 if which == 2 else s3)
            picks = low if which < 2 else high
        result = np.uint32(0)
        for byte_number in range(4):
            nibble = (picks >> np.uint32(4 * byte_number)) & np.uint32(15)
            byte = np.uint32(both >> np.uint64((nibble & np.uint32(7)) * np.uint32(8))) & np.uint32(0xFF)
            if nibble & np.uint32(8):
                byte = np.uint32(0xFF) if byte & np.uint32(0x80) else np.uint32(0)
            result |= np.uint32(byte << np.uint32(8 * byte_number))
        return result

    return row_kernel(f"prmt_{mode or 'any'}", scalar, 3)


# by meaning in the ISA table
FACTORIES: dict[str, Factory] = {
    "prmt": lambda mods: permute(mods.get("mode", "")),
}
