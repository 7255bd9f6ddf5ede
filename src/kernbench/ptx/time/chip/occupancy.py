"""Occupancy: how many CTAs of a launch an SM holds at once."""

from dataclasses import dataclass

from kernbench.common.errors import KernbenchError
from kernbench.ptx.machine import Gpu
from kernbench.ptx.time.chip.dealing import gpc_sizes, resident


@dataclass(frozen=True)
class Occupancy:
    """CTAs and warps that an SM holds at once, and what limits them.

    The limit is registers, shared memory, warps, CTAs, clusters (a GPC holds whole clusters only), or the grid, which
    has no more CTAs. `clusters` is the number that the GPU holds at once; without clusters each CTA counts as one.
    """

    ctas: int
    warps: int
    most_warps: int
    limit: str
    clusters: int = 0

    @property
    def share(self) -> float:
        """Resident warps as a share of the most an SM can hold."""
        return self.warps / self.most_warps


def _up(value: float, unit: float) -> int:
    return int(-(-value // unit) * unit)


def occupancy(gpu: Gpu, warps: int, registers: int, shared_bytes: int, ctas: int, cluster: int = 1) -> Occupancy:
    """The occupancy of CTAs with these warps, registers per thread and bytes of shared memory.

    The grid has `ctas` CTAs, in clusters of `cluster`.
    """
    sm = gpu.sm
    limits = {"CTAs": int(sm.ctas), "warps": int(sm.warps) // warps}
    if registers:
        of_warp = _up(32 * registers, sm.register_unit)
        # each sub-core has its own registers, and a warp's are all in one sub-core
        in_sub_core = int(sm.registers / sm.sub_cores) // of_warp
        limits["registers"] = in_sub_core * int(sm.sub_cores) // warps
    taken = _up(shared_bytes, sm.shared_unit) + int(sm.shared_reserved)
    if taken:
        limits["shared memory"] = int(sm.shared) // taken
    name = min(limits, key=lambda one: limits[one])
    held = limits[name]
    if held < 1:
        raise KernbenchError(f"a CTA of this launch does not fit into an SM of {gpu.name}: too many {name}")
    clusters = resident(gpu, cluster, held)
    if not clusters:
        raise KernbenchError(
            f"a cluster of {cluster} CTAs of this launch does not fit into a GPC of {gpu.name}, which has "
            f"{max(gpc_sizes(gpu))} SMs that hold {held} of its CTAs each (limited by {name})"
        )
    if cluster > 1 and clusters * cluster < held * int(gpu.chip.sms):
        name = "clusters"
    return _of_grid(gpu, ctas, cluster, Occupancy(held, held * warps, int(sm.warps), name, clusters))


def _of_grid(gpu: Gpu, ctas: int, cluster: int, held: Occupancy) -> Occupancy:
    """Limit the occupancy to the CTAs of the grid."""
    warps = held.warps // held.ctas
    for fewer in range(1, held.ctas):
        clusters = resident(gpu, cluster, fewer)
        if clusters * cluster >= ctas:
            return Occupancy(fewer, fewer * warps, held.most_warps, "grid", clusters)
    return held
