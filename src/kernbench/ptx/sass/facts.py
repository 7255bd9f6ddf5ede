"""What a machine instruction's name and operands say: bytes per lane, shape of a matrix product, registers read."""

import re
from functools import lru_cache
from typing import NamedTuple

from kernbench.ptx.sass.pipes import family
from kernbench.ptx.sass.reading import Instruction
from kernbench.ptx.sass.streams import Pipe

_BYTES = {"U8": 1, "S8": 1, "8": 1, "U16": 2, "S16": 2, "16": 2, "64": 8, "128": 16, "256": 32}
_MEMORY = {Pipe.GLOBAL, Pipe.LOCAL, Pipe.SHARED, Pipe.CONSTANT, Pipe.CP_ASYNC}
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)")
# shapes of warp-wide products that are written without separators
_SHAPES = {
    "884": (8, 8, 4),
    "8816": (8, 8, 16),
    "8832": (8, 8, 32),
    "88128": (8, 8, 128),
    "1684": (16, 8, 4),
    "1688": (16, 8, 8),
    "16816": (16, 8, 16),
    "16832": (16, 8, 32),
    "16864": (16, 8, 64),
    "168128": (16, 8, 128),
    "168256": (16, 8, 256),
}
_BITS = {"E4M3": 8, "E5M2": 8, "S8": 8, "U8": 8, "S4": 4, "U4": 4, "E2M1": 4, "TF32": 32, "BF16": 16, "F16": 16}
_OWN_BITS = {"DMMA": 64, "IMMA": 8, "IGMMA": 8, "BMMA": 1, "BGMMA": 1, "QMMA": 8, "QGMMA": 8, "OMMA": 4}
_REGISTER = re.compile(r"(?<![\w.])R(\d+)((?:[|.]+\w*)*)")


class Facts(NamedTuple):
    """Properties of an instruction that follow from its name."""

    width: int
    shape: tuple[int, int, int]
    bits: int


@lru_cache(maxsize=4096)
def facts(name: str) -> Facts:
    """The properties that follow from an instruction's name (opcode and modifiers)."""
    opcode, *modifiers = name.split(".")
    pipe = family(opcode).pipe
    shape, bits = _product(opcode, modifiers) if pipe in (Pipe.MMA, Pipe.WGMMA) else ((0, 0, 0), 0)
    return Facts(_width(opcode, modifiers, pipe), shape, bits)


def _width(opcode: str, modifiers: list[str], pipe: Pipe) -> int:
    if pipe in (Pipe.LDMATRIX, Pipe.STMATRIX):
        return 4 * int(modifiers[-1]) if modifiers[-1] in ("2", "4") else 4
    if pipe not in _MEMORY or opcode in ("LDGDEPBAR", "ARRIVES", "CCTL", "CCTLL", "CCTLT"):
        return 0
    for modifier in reversed(modifiers):
        if modifier in _BYTES:
            return _BYTES[modifier]
        packed = re.fullmatch(r"F32x(\d)", modifier)
        if packed:
            return 4 * int(packed[1])
    return 4


def _product(opcode: str, modifiers: list[str]) -> tuple[tuple[int, int, int], int]:
    bits = next((_BITS[m] for m in reversed(modifiers) if m in _BITS), _OWN_BITS.get(opcode, 16))
    for modifier in modifiers:
        written = _SHAPE.fullmatch(modifier)
        if written:
            return (int(written[1]), int(written[2]), int(written[3])), bits
        if modifier in _SHAPES:
            return _SHAPES[modifier], bits
    return (0, 0, 0), bits


def bank_reads(one: Instruction, before: Instruction | None = None) -> tuple[int, int]:
    """Number of registers read from the even and from the odd bank, without those in the reuse cache.

    `before` is the preceding instruction, whose operands may have been kept for reuse. The first operand of most
    instructions is written; stores, branches and barriers write none, and begin with an address or a barrier.
    """
    kept = {(position, number) for position, number, reuse in _reads(before) if reuse} if before is not None else set()
    read = {number for position, number, _ in _reads(one) if (position, number) not in kept}
    even = sum(not number & 1 for number in read)
    return even, len(read) - even


def _reads(one: Instruction) -> list[tuple[int, int, bool]]:
    """Registers that are read: index of the operand, register number, whether it is kept for the next instruction."""
    operands = one.operands.split(",")
    sources = operands if one.operands.startswith(("[", "desc", "`", "B")) else operands[1:]
    return [
        (position, int(number), "reuse" in more)
        for position, operand in enumerate(sources)
        for number, more in _REGISTER.findall(operand)
    ]
