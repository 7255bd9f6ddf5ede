"""The PE of the machine on which each program of a launch runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """The PE of a program, and its rank; the leading program of a rank has its neighbours and its memory.

    `seat` names the program at either end of a queue: a leader's is its rank, the others' follow.
    """

    number: int
    rank: int
    pe: int
    cube: int
    leads: bool
    seat: int

    @property
    def name(self) -> str:
        """The program in words."""
        return f"rank {self.rank}" if self.leads else f"PE {self.pe} of cube {self.cube}"


def place_ranks(ranks: int, pes: int | None) -> list[Placement]:
    """The programs of a launch: a PE of one cube each, or with `pes` given all PEs of a cube for each rank."""
    if pes is None:
        return [Placement(r, r, r, 0, True, r) for r in range(ranks)]
    return [
        Placement(c * pes + p, c, p, c, p == 0, c if p == 0 else ranks + c * (pes - 1) + p - 1)
        for c in range(ranks)
        for p in range(pes)
    ]
