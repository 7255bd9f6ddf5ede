"""Clusters: CTAs that access each other's shared memory. An address has the CTA's rank in the bits above 16 MiB."""

from collections.abc import Sequence
from math import prod

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Int
from kernbench.ptx.emulator.lanes.compiled import part
from kernbench.ptx.emulator.lanes.lanes import WARP

RANK_SHIFT = 24
OFFSET_BITS = np.uint64((1 << RANK_SHIFT) - 1)
WINDOW = np.uint64((1 << 44) - 1)

Extent = tuple[int, int, int]


@part
def find_shared(address: np.uint64, lane: Int, ctas: Int, ranks: Int) -> tuple[Int, Int]:
    """`ClusterMap.find` for compiled loops: one lane of a batch of `ctas`, in clusters of `ranks`."""
    cta, offset = lane // WARP % ctas, np.int64(address & WINDOW)
    if ranks > 1:
        rank = offset >> RANK_SHIFT
        cta = cta - cta % ranks + rank if rank < ranks else np.int64(-1)
        offset &= (1 << RANK_SHIFT) - 1
    return cta, offset


def cluster_members(grid: Extent, cluster: Extent, numbers: Array) -> Array:
    """CTA numbers of clusters by number, as [clusters, ranks]; x counts fastest in both."""
    across = [g // c for g, c in zip(grid, cluster, strict=True)]
    rank = np.arange(prod(cluster))
    outer, inside = _coordinates(numbers, across), _coordinates(rank, cluster)
    x, y, z = (p[:, None] * c + i[None, :] for p, c, i in zip(outer, cluster, inside, strict=True))
    members: Array = x + grid[0] * (y + grid[1] * z)
    return members


def _coordinates(numbers: Array, extent: Sequence[int]) -> tuple[Array, Array, Array]:
    return numbers % extent[0], numbers // extent[0] % extent[1], numbers // (extent[0] * extent[1])


class ClusterMap:
    """Resolves shared addresses of a batch's lanes: to a CTA of the batch and an offset in its shared memory."""

    def __init__(self, ctas: int, size: int):
        self._ctas = ctas
        self.size = size

    def ranks(self, lanes: Array) -> Array:
        """The rank of each lane's CTA in its cluster."""
        return (lanes // WARP) % self._ctas % self.size

    def own(self, lanes: Array) -> Array:
        """The CTA of each lane."""
        ctas: Array = (lanes // WARP) % self._ctas
        return ctas

    def find(self, addresses: Array, lanes: Array) -> tuple[Array, Array]:
        """CTA and offset of shared addresses, of the shared window or generic; CTA -1 if the rank does not exist."""
        ctas = self.own(lanes)
        inside = addresses & WINDOW
        if self.size == 1:
            return ctas, inside.astype(np.int64)
        rank = (inside >> np.uint64(RANK_SHIFT)).astype(np.int64)
        target = np.where(rank < self.size, ctas - ctas % self.size + rank, -1)
        return target, (inside & OFFSET_BITS).astype(np.int64)

    def named(self, masks: Array) -> Array:
        """For each multicast mask and rank of a cluster, whether the mask has the rank."""
        found: Array = ((masks[:, None].astype(np.int64) >> np.arange(self.size)) & 1).astype(bool)
        return found

    def peers(self, ctas: Array, ranks: Array) -> Array:
        """The CTAs of given ranks in the clusters of `ctas`."""
        found: Array = ctas - ctas % self.size + ranks
        return found


def cluster_map(ctas: int, cluster: Extent) -> ClusterMap:
    """The map of a batch of `ctas` CTAs."""
    return ClusterMap(ctas, prod(cluster))
