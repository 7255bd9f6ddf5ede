"""Events of asynchronous work: copies, mbarriers, clusters, tensor maps, and fences."""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s
from kernbench.ptx.emulator.lanes.lanes import Lanes
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.program.program import Site

# an address that a thread gave, None if there is none
Address = int | np.uint64 | None


class AsynchronousObserver:
    """Asynchronous operations of one batch; `slots` number mbarriers, negative if there is none."""

    def access(
        self,
        space: str,
        writes: bool,
        ranges: Ranges,
        lanes: Array,
        columns: Array,
        clocks: Array,
        site: Site,
        homes: Array | None = None,
        atomic: bool = False,
        generic: bool = False,
    ) -> None:
        """Operations that lanes began may access ranges of bytes from now on, as actors of `columns` at `clocks`.

        Operations of the generic proxy need no proxy fence.
        """

    def moment(self, lane: int) -> tuple[int, int]:
        """The index of a lane's warp in its CTA, and its clock."""
        return 0, 0

    def used(self, slots: Array, lanes: Array, site: Site) -> None:
        """Lanes use mbarriers."""

    def arriving(self, slots: Array, lanes: Array) -> None:
        """Lanes are about to arrive, and release."""

    def arrived(self, slots: Array, lanes: Array, release: bool, wide: bool = True) -> None:
        """Lanes have arrived."""

    def arriving_relaxed(self, slots: Array, lanes: Array, wide: bool) -> None:
        """Lanes are about to arrive: they release what fences before have, and nothing else."""

    def seen(self, slots: Array, lanes: Array, passed: Bools, wide: bool) -> None:
        """Relaxed waits of lanes have passed."""

    def acquired(self, slots: Array, lanes: Array, passed: Bools, wide: bool) -> None:
        """Lanes have passed a wait: they acquire what the arrivals released."""

    def passed_by_parity(self, slots: Array, lanes: Array, passed: Bools, site: Site) -> None:
        """Waits for a parity have passed."""

    def late_bytes(self, slot: int, phase: int, amount: int, lane: int, site: Site) -> None:
        """Bytes arrive at an mbarrier after the phase that they belong to."""

    def misuse(
        self,
        what: str,
        lanes: Array,
        site: Site,
        slot: int,
        address: Address,
        value: int | None,
        home: int | None = None,
    ) -> None:
        """An mbarrier (of the block `home`, if it is not the thread's own) is misused."""

    def all_shown(self, slots: Array, lanes: Array) -> bool:
        """Whether mbarriers are certainly visible to copies, so that `completes_on` need not be called."""
        return True

    def completes_on(self, slots: Array, lanes: Array, site: Site) -> None:
        """Copies will complete on mbarriers."""

    def laid_out(self, ranges: Ranges, swizzle: str, site: Site) -> None:
        """Copies will fill ranges of shared memory, with boxes laid out by a swizzle."""

    def groups_done(self, warps: Array, clocks: Array, sources: bool) -> None:
        """Warps know that their bulk copies are complete, or with `sources` that they have read."""

    def fenced(self, warps: Array, masks: Array) -> None:
        """Lanes pass a fence for the initialisation of mbarriers."""

    def proxy_fence(self, warps: Array, masks: Array, space: str = "") -> None:
        """Lanes pass a fence between ordinary accesses and those of the async proxy."""

    def map_written(self, address: int) -> None:
        """A tensor map is changed in memory."""

    def maps_acquired(self, addresses: Array, lanes: Array) -> None:
        """Lanes pass a fence that makes changed tensor maps visible to copies."""

    def map_used(self, address: int, lanes: Array, site: Site) -> None:
        """Copies use a tensor map."""

    def multicast(self, masks: Array, lanes: Array, site: Site) -> None:
        """Lanes select the CTAs of their cluster for an operation."""

    def signals_elsewhere(self, into: Array, homes: Array, lanes: Array, site: Site) -> None:
        """Lanes begin copies into CTAs, with mbarriers of other CTAs."""

    def arrived_twice(self, lanes: Array, site: Site) -> None:
        """Lanes arrive at a cluster's barrier again without a wait in between."""

    def never_arrived(self, lanes: Array, site: Site) -> None:
        """Lanes wait at a cluster's barrier without having arrived."""

    def reaches(self, ctas: Array, lanes: Array, site: Site) -> None:
        """Lanes access shared memory of CTAs of their cluster."""

    def signals(self, slots: Array, lanes: Array, site: Site) -> None:
        """Lanes signal mbarriers, now or by operations that they begin; some may be in other CTAs."""

    def lanes_ended(self, lanes: Lanes) -> None:
        """Threads that began bulk copies have exited."""

    def blocks_ended(self, ctas: Int64s) -> None:
        """CTAs have no living thread left."""

    def ended(self) -> None:
        """All threads have exited, and nothing is in flight."""

    def stuck(self) -> None:
        """Nothing can continue."""

    def name(self, slot: int) -> str:
        """The name of an mbarrier in findings."""
        return ""
