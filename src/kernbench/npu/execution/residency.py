"""Which cores are held by waiting blocks: a block needs all its cores to begin, and holds them until it ends."""

from kernbench.npu.isa.units import AIC, AIV0, AIV1

Cores = tuple[tuple[int, int], ...]


class Residency:
    """The cores of a chip, by cluster and lane."""

    def __init__(self, clusters: int):
        self._free = [{AIC, AIV0, AIV1} for _ in range(clusters)]

    def room(self, lanes: tuple[int, ...]) -> int:
        """How many blocks with these lanes could begin."""
        if lanes in ((AIV0,), (AIV1,)):
            return sum(len(free & {AIV0, AIV1}) for free in self._free)
        return sum(free.issuperset(lanes) for free in self._free)

    def take(self, lanes: tuple[int, ...]) -> Cores:
        """Cores for one block, which must be free. One vector lane takes either AIV."""
        single = lanes in ((AIV0,), (AIV1,))
        for cluster, free in enumerate(self._free):
            wanted = (free & {AIV0, AIV1} and {min(free & {AIV0, AIV1})}) if single else set(lanes)
            if wanted and free >= wanted:
                free -= wanted
                return tuple((cluster, lane) for lane in sorted(wanted))
        raise AssertionError("no room")

    def give_back(self, cores: Cores) -> None:
        """A block has ended."""
        for cluster, lane in cores:
            self._free[cluster].add(lane)
