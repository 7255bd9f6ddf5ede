"""The control field of a machine instruction (sm_70 and later): what the compiler says to the scheduler."""

from typing import NamedTuple

# the field begins at this bit of the upper 64
_FIRST = 41


class Control(NamedTuple):
    """Cycles until the next instruction, whether to yield, counters set and awaited, operands kept for reuse."""

    stall: int = 1
    yields: bool = False
    write_barrier: int = 7
    read_barrier: int = 7
    wait_mask: int = 0
    reuse: int = 0


def control(upper: int) -> Control:
    """The control field in the upper half of an instruction's word.

    The bit of the word is 0 where the scheduler is asked to take another warp.
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
