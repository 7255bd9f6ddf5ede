"""The control field of a machine instruction (sm_70 and later), by which the compiler instructs the scheduler."""

from typing import NamedTuple

# first bit of the field in the upper 64 bits of the instruction
_FIRST = 41


class Control(NamedTuple):
    """Stall cycles, yield hint, scoreboards set and awaited, and operands to keep in the reuse cache."""

    stall: int = 1
    yields: bool = False
    write_barrier: int = 7
    read_barrier: int = 7
    wait_mask: int = 0
    reuse: int = 0


def control(upper: int) -> Control:
    """Decode the control field from the upper 64 bits of an instruction.

    Its yield bit is inverted: 0 asks the scheduler to switch to another warp.
    """
    field = upper >> _FIRST
    return Control(
        stall=field & 0xF,
        yields=not field >> 4 & 1,
        write_barrier=field >> 5 & 7,
        read_barrier=field >> 8 & 7,
        wait_mask=field >> 11 & 0x3F,
        reuse=field >> 17 & 0xF,
    )
