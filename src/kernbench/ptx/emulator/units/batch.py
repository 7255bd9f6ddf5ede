"""The whole batch, its launch and its scheduler, as instructions see them: the hub with all parts by their own types.

A step that needs more than rows takes the `Window` defined here, a control the `Scheduler` and the `Fragment`. The
program that holds them does not know these (see `program.steps`); they run with the classes of `engine`.
"""

from collections.abc import Sequence
from typing import Protocol

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.copies.copies import Copies
from kernbench.ptx.emulator.asynchronous.copies.groups import BulkGroups
from kernbench.ptx.emulator.asynchronous.copies.tensors import TensorMaps
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousLaunch
from kernbench.ptx.emulator.asynchronous.matrix.observer import MatrixBatch
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.emulator.asynchronous.matrix.tensor_unit import Refused, TensorUnit
from kernbench.ptx.emulator.asynchronous.matrix.warpgroups import Warpgroups
from kernbench.ptx.emulator.barriers.cluster_barrier import ClusterBarrier
from kernbench.ptx.emulator.barriers.gathering import Gathering
from kernbench.ptx.emulator.barriers.hub import BarrierScheduler
from kernbench.ptx.emulator.barriers.waiting import Waiting
from kernbench.ptx.emulator.lanes.fragment import FragmentOf
from kernbench.ptx.emulator.lanes.lanes import Lanes
from kernbench.ptx.emulator.lanes.window import WindowOf
from kernbench.ptx.emulator.memory.frames import Frames
from kernbench.ptx.emulator.program.meter import Meter
from kernbench.ptx.emulator.program.program import Program, Site, WaitLoop
from kernbench.ptx.emulator.program.steps import AnyFragment, Control
from kernbench.ptx.emulator.units.observer import LaunchObserver


class Launch(AsynchronousLaunch, Protocol):
    """One launch."""

    checks: LaunchObserver
    tensor_maps: TensorMaps
    meter: Meter
    # output of printf
    printed: list[str]
    unfinished: bool

    @property
    def may_stop(self) -> bool:
        """Whether a probe may stop the launch before its end."""

    @property
    def part(self) -> tuple[int, int] | None:
        """The number of CTAs to run and of all CTAs; None if all are run."""

    def cancel_cluster(self) -> int:
        """Let a cluster that has not begun never begin: the number of its first CTA, -1 if all have begun."""

    def symbol(self, space: str, name: str) -> int:
        """The address of a module variable or kernel parameter."""

    def parameter(self, name: str, offset: int, dtype: str, count: int) -> Array:
        """`count` values from an offset in the kernel's parameters."""

    def variable_addresses(self) -> list[int]:
        """The addresses of the module's variables."""


class Batch(MatrixBatch, Protocol):
    """CTAs that are resident together, with all their units."""

    frames: Frames
    copies: Copies
    groups: BulkGroups
    warpgroups: Warpgroups

    @property
    def launch(self) -> Launch:
        """The batch's launch."""

    @property
    def scheduler(self) -> "Scheduler":
        """The scheduler of its fragments."""

    @property
    def tensor(self) -> TensorUnit:
        """Tensor memory and its operations, created on first use."""

    @property
    def tensor_memory(self) -> TensorMemory | None:
        """Tensor memory, None if nothing has used it."""

    @property
    def allocation_waits(self) -> list[Refused]:
        """Allocations of tensor memory that wait for columns."""

    def read_clock(self, to_come: int) -> int:
        """Logical time; `to_come` is the number of instructions of the running basic block that are still to come."""

    def warp_clocks(self, window: "Window", lanes: Lanes, members: int) -> None:
        """Lanes of warps met at bar.warp.sync, each with the lanes of the mask in its slot `members`."""

    def external_call(self, lanes: Array, site: Site, name: str) -> None:
        """The kernel called a function without a body and without a known meaning; it does nothing."""

    def stray(self, lanes: Lanes, site: Site, message: str) -> None:
        """Control flow left the program."""

    def trapped(self, lanes: Lanes, site: Site, message: str = ...) -> None:
        """The kernel executed a trap."""


# the window of a step, and the fragment of a control, that use a whole batch
Window = WindowOf[Batch]
Fragment = FragmentOf[Batch]


class ParkedLoop(Protocol):
    """A loop that waits for memory to change."""

    @property
    def fragment(self) -> AnyFragment:
        """The lanes that wait."""

    @property
    def loop(self) -> WaitLoop:
        """The loop."""


class Spinning(Protocol):
    """The polling loops of a batch."""

    @property
    def parked(self) -> Sequence[ParkedLoop]:
        """The parked loops."""


class Scheduler(BarrierScheduler, Protocol):
    """Runs the fragments of one batch."""

    program: Program
    gathering: Gathering
    waiting: Waiting
    cluster: ClusterBarrier

    @property
    def batch(self) -> Batch:
        """The batch it runs."""

    @property
    def spinning(self) -> Spinning:
        """Loops that wait for memory to change."""

    def leave(self, fragment: AnyFragment) -> None:
        """The lanes exit."""

    def branch(
        self, fragment: AnyFragment, slot: int, negated: bool, target: int, following: int
    ) -> AnyFragment | None:
        """Send the lanes whose predicate holds to `target`, the others to `following`."""

    def under_guard(
        self, fragment: AnyFragment, slot: int, negated: bool, control: Control, following: int
    ) -> AnyFragment | None:
        """Run a control for the lanes whose guard holds; the others continue at `following`."""
