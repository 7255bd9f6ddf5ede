"""Events for a recording of a launch: the interface and its null implementation in one.

Unlike the checks, a recording observes every step of every warp. A launch without one uses the class here, whose
`recording` is tested before any event is prepared.
"""

from typing import ClassVar

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import Lanes, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.program import Block, Site, WaitLoop
from kernbench.ptx.emulator.program.reports import Report

# a box of a tensor for compiled moves: base, shape, element size in bytes, swizzle, fill
BoxParts = tuple[int, Int64s, int, Int64s, Array]


class Recorder:
    """The recorder of one batch."""

    recording: ClassVar[bool] = False

    def step(self, block: Block, lanes: Lanes) -> None:
        """Lanes are about to run a block."""

    def turn(self, fragment: Fragment, loop: WaitLoop) -> None:
        """Lanes are at the head of a loop that may wait for others."""

    def executed(self, report: Report, window: Window, mask: Mask | None) -> None:
        """Lanes are about to execute an instruction."""

    def arrives(self, number: int, lanes: Lanes, waits: bool, site: Site) -> None:
        """Lanes arrive at a barrier of their CTA."""

    def completes(self, number: int, ctas: Bools | None) -> None:
        """A barrier is complete in some CTAs; None for all of them."""

    def cluster_barrier(self, lanes: Array, phases: Array, waits: bool, site: Site) -> None:
        """Lanes arrive at phases of their cluster's barrier, or wait for them."""

    def mbarrier(self, site: Site, slots: Array, lanes: Array, phases: Array, nbytes: Array | None = None) -> None:
        """Lanes use mbarriers: the phases they arrive for or wait for, and the bytes they announce.

        A failed test waits for nothing: its phase is -1.
        """

    def copied(
        self, site: Site, lanes: Array, sizes: Array, starts: Array | None, slots: Array | None, inward: bool
    ) -> None:
        """Lanes begin bulk copies: their sizes, their global offsets, and the mbarriers they complete on."""

    def boxes_copied(
        self, site: Site, lanes: Array, box: BoxParts, nbytes: int, corners: Array, slots: Array | None
    ) -> None:
        """Lanes begin copies of boxes of a tensor, at `corners`; to shared memory if there are mbarriers."""

    def multiplied(self, site: Site, lanes: Array, shapes: Array, targets: Array, nbytes: Array) -> None:
        """Lanes begin tcgen05 products: M << 16 | N, the address of D, and bytes of shared memory each SM reads."""

    def ended(self) -> None:
        """All threads have exited."""
