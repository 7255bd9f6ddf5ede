"""The hub of the emulator: what all its parts see of their batch and their launch.

A batch owns its parts (memory, barriers, asynchronous units, checks), and each part gets the batch. For imports to go
one way only, a part declares what it needs from the batch as a protocol. The protocols here serve all folders; a folder
that also needs a certain part extends them, and `units.batch` has the whole.
"""

from typing import Protocol

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.fast_paths import FastPaths
from kernbench.ptx.emulator.lanes.actors import Actors
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.clusters import ClusterMap, Extent
from kernbench.ptx.emulator.lanes.window import Storage
from kernbench.ptx.emulator.program.program import Program


class Machine(Protocol):
    """What programs can query of the architecture they run on."""

    @property
    def sms(self) -> int:
        """The number of multiprocessors."""

    @property
    def warps_per_sm(self) -> int:
        """Resident warps per multiprocessor."""


class LaunchHub(Protocol):
    """One launch: its extents, its program, and the actors of a CTA."""

    program: Program
    grid: Extent
    block: Extent
    cluster: Extent
    explicit_cluster: bool
    # per CTA
    threads: int
    warps_per_cta: int
    shared_bytes: int
    dynamic_shared: int
    actors: Actors
    # the index of the launch on its device
    number: int
    # which fast paths it may take
    fast: FastPaths

    @property
    def machine(self) -> Machine:
        """The architecture it runs on."""

    def grid_workspace(self) -> int:
        """The address of the workspace of a cooperative launch's grid barrier."""

    def addresses_in(self, parameter: str) -> list[int]:
        """The 64-bit words of a parameter; any of them may be a pointer."""


class BatchHub(Storage, Protocol):
    """CTAs that are resident together, numbered from 0 to `ctas` - 1; `numbers` are their numbers in the grid.

    Lanes and warps are numbered by warp in the CTA first and CTA second. `thread` is each lane's number in its CTA,
    `ended_in` the basic block that each exited lane ran last.
    """

    program: Program
    ctas: int
    warps_per_cta: int
    warps: int
    lanes: int
    numbers: Array
    thread: Int64s
    cta_of_warp: Int64s
    cluster: ClusterMap
    # stride between the shared memories of consecutive CTAs, in bytes
    shared_stride: int
    alive: Bools
    alive_count: int
    alive_by_cta: Int64s
    alive_bits: UInt32s
    ended_in: Int64s

    @property
    def launch(self) -> LaunchHub:
        """The batch's launch."""
