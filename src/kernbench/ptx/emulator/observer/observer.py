"""Observers: executing code reports events, and does not ask whether anybody observes them.

Each class here is an interface and its null implementation in one: its methods take an event and do nothing. A launch
without checks uses these; a launch with checks uses the classes of `checks` that derive from them and override every
method. `checking` is for the few cases where observing changes what is executed: compiled loops that check while they
move data (`memory.port`), and records that are kept for findings alone.
"""

from typing import ClassVar

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int32s, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.memory.port import Checker
from kernbench.ptx.emulator.observer.asynchronous import AsynchronousObserver
from kernbench.ptx.emulator.observer.definedness import Definedness
from kernbench.ptx.emulator.observer.meetings import BarrierObserver, EndingsObserver, Operation
from kernbench.ptx.emulator.observer.values import CopiesObserver, UndefinedObserver
from kernbench.ptx.emulator.program.access_order import Order
from kernbench.ptx.emulator.program.program import Site

# the clocks of warps, when the lanes of each last met, and arrivals of single lanes; and the null value
Clocks = tuple[Int32s, Int64s, Int32s]
_NO_CLOCKS: Clocks = (
    np.zeros((1, 1, 1), np.int32),
    # a column, as in the checks: loops are compiled for each memory layout
    np.zeros((2, 2), np.int64)[:, 0],
    np.zeros((1, WARP + 1, WARP), np.int32),
)


class Observer:
    """The events of one batch."""

    checking: ClassVar[bool] = False

    def __init__(self) -> None:
        self.asynchronous: AsynchronousObserver = AsynchronousObserver()
        self.endings: EndingsObserver = EndingsObserver()
        self.barriers: BarrierObserver = BarrierObserver()
        self.copies: CopiesObserver = CopiesObserver()
        self.undefined: UndefinedObserver = UndefinedObserver()
        # undefined-value tracking; unused by the null observer
        self.definedness = Definedness(0)

    @property
    def checker(self) -> Checker | None:
        """The checker of memory accesses; None if accesses need no checks."""
        return None

    def synchronise(
        self, space: str, window: Window, slot: int, offset: np.uint64, mask: Mask | None, order: Order, site: Site
    ) -> None:
        """A strong access begins: it may release or acquire."""

    def synchronised(self) -> None:
        """The access is complete: warps that released begin a new epoch."""

    def fence(self, window: Window, mask: Mask | None, order: Order) -> None:
        """Lanes pass a fence."""

    def began(self, warps: Array) -> None:
        """Warps began something visible to others: a new epoch."""

    def barrier(self, done: Bools | None, present: Bools | None) -> None:
        """The warps of CTAs met at a barrier; None for all of them."""

    def warp_barrier(self, window: Window, lanes: Lanes, members: int) -> None:
        """Lanes met at bar.warp.sync, each with the lanes of its mask."""

    def lanes_ended(self, warps: Int64s, active: Bools) -> None:
        """Lanes have exited; a row of 32 for each warp."""

    def cluster_arrives(self, warp: int, mask: int, key: tuple[str, int, int], releases: bool) -> None:
        """Lanes of a warp arrive at a phase of a cluster's barrier."""

    def cluster_waited(self, lanes: Array) -> None:
        """Lanes have waited for a phase of a cluster's barrier, with or without an acquire."""

    def cluster_passes(self, warp: int, mask: int, key: tuple[str, int, int]) -> None:
        """Lanes of a warp have waited for a phase of a cluster's barrier, and acquire."""

    def arrival_clocks(self) -> Clocks:
        """The clocks that arrivals on mbarriers publish."""
        return _NO_CLOCKS

    def apart(self, alive: UInt32s) -> UInt32s:
        """The lanes of each warp that must all arrive for the warp's own clock to be published."""
        return alive

    def whole_warps(self, window: Window, mask: Mask, site: Site) -> None:
        """An instruction that whole warps must execute together."""

    def missing_lanes(
        self, fragment: Fragment, operation: Operation, members: Array, missing: Array, bad: Mask
    ) -> None:
        """Lanes that a warp operation's mask names never arrived."""

    def inactive_source(self, window: Window, site: Site, count: int, position: int) -> None:
        """A shuffle read a lane that does not take part."""

    def divisors(self, window: Window, divisor: Array, mask: Mask | None, site: Site) -> None:
        """An integer division is about to run."""

    def outside_parameter(self, site: Site, problem: str) -> None:
        """A load at a fixed offset reaches beyond its kernel parameter."""

    def bad_free(self, site: Site, lane: int, address: int, problem: str) -> None:
        """A thread frees memory that malloc did not give, or twice."""

    def value_leaves(self, key: tuple[int, int], lanes: Array) -> None:
        """The value of a speculative load, identified by `key`, is used by a guarded store of lanes."""

    def bad_copy(self, space: str, site: Site, what: str, kind: str, address: int, lane: int, count: int) -> None:
        """An asynchronous copy accesses invalid or unwritten memory."""

    def misaligned_copy(self, site: Site, what: str, value: int, unit: int, lane: int, count: int) -> None:
        """An operand of an asynchronous copy is not aligned."""

    def negative_point(self, site: Site, point: tuple[int, ...], lane: int, count: int) -> None:
        """A tensor store begins before the tensor, which the copy engine rejects."""

    def outside_pixels(
        self, site: Site, point: tuple[int, ...], limits: tuple[tuple[int, int], ...], lane: int, count: int
    ) -> None:
        """A column begins at a pixel outside the map's pixel box."""

    def bad_tensor_map(self, site: Site, problem: str, address: int, lanes: Array) -> None:
        """An instruction uses an invalid tensor map."""

    def shared_name(self, offset: int) -> str:
        """The name of an offset in shared memory in findings: its variable and address."""
        return ""

    def global_name(self, address: int) -> str:
        """The name of a global address in findings: its array."""
        return ""
