"""A team: the PEs of a cube that work for one rank. PE 0 leads: it has the rank's neighbours and stores its results.

One or two arms, chains of PEs, begin at the leader, each PE wired to the next. The positions of a team are numbered
along the wire, the leader first, then one arm outward, then the other inward; so the KV heads that an arm needs are
adjacent.
"""

from collections.abc import Mapping, Sequence

from kernbench.common.ipcq_types import OPPOSITE

Arms = Mapping[str, Sequence[int]]


def arms_of(order: Sequence[int], closed: bool) -> dict[str, list[int]]:
    """The PEs on each path from the leader, `order[0]`, by its direction: one path on a line, two round a cycle."""
    others = list(order[1:])
    along = -(-len(others) // 2) if closed else len(others)
    arms = {"S": others[:along], "N": others[along:][::-1]}
    return {direction: pes for direction, pes in arms.items() if pes}


class Team:
    """The team seen from the PE `pe`: the heads of each PE, and the directions of its neighbours in the team.

    A PE with several heads has adjacent ones; if there are more PEs than heads, several share one.
    """

    def __init__(self, arms: Arms | None, pe: int, h_kv: int):
        arms = arms or {}
        south, north = list(arms.get("S", ())), list(arms.get("N", ()))
        order = [0, *south, *north[::-1]]
        self.size, self._h_kv = len(order), h_kv
        self.position = order.index(pe) if pe in order else None
        first, last = 1 + len(south), len(order) - 1
        # (direction, positions from the leader outward)
        ways = (("S", list(range(1, first))), ("N", list(range(last, first - 1, -1))))
        self.arms = [(direction, positions) for direction, positions in ways if positions]
        self.outward, self.inward = "", ""
        self.beyond: list[int] = []
        for direction, positions in self.arms:
            if self.position in positions:
                self.beyond = positions[positions.index(self.position) + 1 :]
                self.outward, self.inward = direction, OPPOSITE[direction]

    @property
    def leads(self) -> bool:
        """Whether this PE is the leader."""
        return self.position == 0

    def heads(self, position: int) -> range:
        """The KV heads of the PE at a position."""
        first = position * self._h_kv // self.size
        return range(first, max(first + 1, (position + 1) * self._h_kv // self.size))

    def span(self, positions: Sequence[int]) -> range:
        """The adjacent KV heads of several positions."""
        return range(self.heads(min(positions)).start, self.heads(max(positions)).stop)

    def sharing(self, head: int) -> list[int]:
        """The positions that share the work of a head."""
        return [position for position in range(self.size) if head in self.heads(position)]
