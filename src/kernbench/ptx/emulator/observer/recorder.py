"""What is reported to a recording of a launch, by whoever executes: the interface and its null form in one.

Unlike the checks, a recording looks at every step of every warp; a launch without one has the class of here, whose
`recording` is asked before anything is worked out for it.
"""

from typing import ClassVar

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import Lanes, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.program import Block, Site, WaitLoop
from kernbench.ptx.emulator.program.reports import Report

# a box of a tensor as the compiled moves take it: base, shape, bytes of an element, swizzle, fill
BoxParts = tuple[int, Int64s, int, Int64s, Array]


class Recorder:
    """What the warps of one batch execute."""

    recording: ClassVar[bool] = False

    def step(self, block: Block, lanes: Lanes) -> None:
        """Lanes are about to run a block."""

    def turn(self, fragment: Fragment, loop: WaitLoop) -> None:
        """Lanes are at the head of a loop that may wait for others."""

    def executed(self, report: Report, window: Window, mask: Mask | None) -> None:
        """Lanes are about to execute an instruction."""

    def arrives(self, number: int, lanes: Lanes, waits: bool, site: Site) -> None:
        """Lanes come to a barrier of their CTA."""

    def completes(self, number: int, ctas: Bools | None) -> None:
        """A barrier is complete in some CTAs; None for all of them."""

    def cluster_barrier(self, lanes: Array, phases: Array, waits: bool, site: Site) -> None:
        """Lanes arrive at phases of their cluster's barrier, or wait for them."""

    def mbarrier(self, site: Site, slots: Array, lanes: Array, phases: Array, nbytes: Array | None = None) -> None:
        """Lanes use mbarriers: the phases that they contribute to, or wait for, and bytes that they announce.

        A test that fails waits for nothing: its phase is -1.
        """

    def copied(
        self, site: Site, lanes: Array, sizes: Array, places: Array | None, slots: Array | None, inward: bool
    ) -> None:
        """Lanes begin bulk copies: their bytes, their places in global memory, and the mbarriers they complete on."""

    def boxes_copied(
        self, site: Site, lanes: Array, box: BoxParts, nbytes: int, corners: Array, slots: Array | None
    ) -> None:
        """Lanes begin copies of boxes of a tensor, from corners on; to shared memory where there are mbarriers."""

    def multiplied(self, site: Site, lanes: Array, shapes: Array, targets: Array, nbytes: Array) -> None:
        """Lanes begin products of tcgen05: M << 16 | N, the address of D, and bytes of shared memory each SM reads."""

    def ended(self) -> None:
        """All threads have ended."""
