"""The hub of the emulator: what all its parts see of the batch that they belong to, and of the launch.

A batch owns its parts (memory, barriers, what works beside the warps, the checks) and each part is given the batch. So
that folders import each other one way only, a part names what it needs of the batch by a protocol: those here are for
everybody; a folder that needs a part as well adds it to a protocol of its own, and `units.batch` has all of them.
"""

from typing import Protocol

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.actors import Actors
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.clusters import ClusterMap, Extent
from kernbench.ptx.emulator.lanes.window import Storage
from kernbench.ptx.emulator.program.program import Program


class Machine(Protocol):
    """What programs can ask of the architecture they run on."""

    @property
    def sms(self) -> int:
        """Multiprocessors."""

    @property
    def warps_per_sm(self) -> int:
        """Warps that each of them holds."""


class LaunchHub(Protocol):
    """One launch: its extents, its program, and who in a CTA has a clock of its own."""

    program: Program
    grid: Extent
    block: Extent
    cluster: Extent
    explicit_cluster: bool
    # of each CTA
    threads: int
    warps_per_cta: int
    shared_bytes: int
    dynamic_shared: int
    actors: Actors
    # counts the launches of a device
    number: int

    @property
    def machine(self) -> Machine:
        """What it runs on."""

    def grid_workspace(self) -> int:
        """Where the blocks of a cooperative launch meet."""

    def addresses_in(self, parameter: str) -> list[int]:
        """The 64-bit words of a parameter, any of which may be a pointer."""


class BatchHub(Storage, Protocol):
    """CTAs that are resident together, numbered from 0 to `ctas`; `numbers` are their numbers in the grid.

    Lanes and warps are numbered by warp in the CTA first and CTA second. `thread` is each lane's number in its CTA,
    `ended_in` the block that each ended lane ran last.
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
    # bytes from the shared memory of one CTA to that of the next
    shared_stride: int
    alive: Bools
    alive_count: int
    alive_by_cta: Int64s
    alive_bits: UInt32s
    ended_in: Int64s

    @property
    def launch(self) -> LaunchHub:
        """The launch it belongs to."""
