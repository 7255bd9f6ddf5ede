"""Which PE of the machine runs which program of a launch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """Where a program runs and for which rank; the leading program of a rank has its neighbours and its memory."""

    number: int
    rank: int
    pe: int
    cube: int
    leads: bool
