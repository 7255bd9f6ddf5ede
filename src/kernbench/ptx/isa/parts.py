"""Parts of registers in operands of video instructions: `%r1.b2`, `%r1.h10`, `%r1.b7531`."""

import re

_SCALAR = re.compile(r"b[0-3]|h[01]")
# by number of lanes: selectors of lanes of both sources together, and masks of lanes of the result
_PACKED = {"2": re.compile(r"h[0-3]{2}"), "4": re.compile(r"b[0-7]{4}")}
_MASKS = {"2": re.compile(r"h1?0|h1"), "4": re.compile(r"b(?=[0-3])3?2?1?0?")}


def split_part(name: str) -> tuple[str, str]:
    """A register and its part; the part is empty if there is none."""
    base, _, part = name.partition(".")
    return base, part


def is_part(opcode: str, written: bool, part: str) -> bool:
    """Whether an instruction accepts this part of a register."""
    lanes = opcode[-1]
    if lanes not in _PACKED:
        return _SCALAR.fullmatch(part) is not None
    return (_MASKS if written else _PACKED)[lanes].fullmatch(part) is not None
