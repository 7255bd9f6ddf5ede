"""The npu chip: one frozen dataclass for each table of a chip file, and how chips are found by name or path."""

import os
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Annotated

from kernbench.common.errors import MachineError
from kernbench.machine.description import Description
from kernbench.machine.keys import (
    GIGA,
    LABEL,
    PS_PER_NS,
    PS_PER_SECOND,
    RATE,
    SHAPE,
    Choice,
    Count,
    Quantity,
    Text,
    bandwidth,
    latency,
    whole,
)
from kernbench.machine.library import Library
from kernbench.machine.schema import Table

KIND = "npu"


def _size(help: str) -> Count:
    return Count("bytes", SHAPE, help, 32, 2**30)


def _macs(dtype: str) -> Count:
    return Count("MAC/cycle", RATE, f"multiply-accumulates of {dtype} operands", 1, 2**20)


@dataclass(frozen=True)
class Clusters(Table):
    """Clusters of one cube core (AIC) and two vector cores (AIV)."""

    count: Annotated[int, Count("clusters", SHAPE, "clusters on the chip", 1, 4096)]
    clock: Annotated[float, Quantity("GHz", RATE, "clock of all cores", 0.001, 100, parts=GIGA)]
    issue: Annotated[int, Count("cycles", RATE, "a core's time to hand one instruction to a pipe", 0, 100_000)]

    @property
    def cycle_ps(self) -> Fraction:
        """One cycle in picoseconds, exact."""
        return Fraction(PS_PER_SECOND, whole(self.clock, GIGA))


@dataclass(frozen=True)
class Spaces(Table):
    """Memories of one core: UB of an AIV, the others of an AIC."""

    ub: Annotated[int, _size("unified buffer of a vector core")]
    l1: Annotated[int, _size("L1 buffer of a cube core")]
    l0a: Annotated[int, _size("left operands of the cube")]
    l0b: Annotated[int, _size("right operands of the cube")]
    l0c: Annotated[int, _size("results of the cube")]
    l0a_mx: Annotated[int, Count("bytes", SHAPE, "scales of left operands; 0: no products of scaled blocks", 0, 2**30)]
    l0b_mx: Annotated[int, Count("bytes", SHAPE, "scales of right operands; 0: no products of scaled blocks", 0, 2**30)]


@dataclass(frozen=True)
class Isa(Table):
    """Differences between the instructions of chips."""

    cross_core: Annotated[str, Choice("", SHAPE, "flags between cores of a cluster", ("broadcast", "single"))]
    concat: Annotated[str, Choice("", SHAPE, "columns of the result of tconcat", ("room", "exact"))]
    vector: Annotated[
        str,
        Choice(
            "", SHAPE, "vector operations that depend on each other: by pipe_barrier, or in order", ("barrier", "order")
        ),
    ]
    barriers: Annotated[
        str, Choice("", SHAPE, "pipes of which pipe_barrier may name one, beside ALL", ("any", "M, MTE2, MTE3"))
    ]


@dataclass(frozen=True)
class MacRates(Table):
    """Multiply-accumulates per cycle of one cube, by type of operand."""

    f16: Annotated[int, _macs("f16")]
    bf16: Annotated[int, _macs("bf16")]
    i8: Annotated[int, _macs("i8")]
    f32: Annotated[int, _macs("f32")]


@dataclass(frozen=True)
class Cube(Table):
    """The cube of an AIC: blocks of 16 x 16 results; the depth of each step follows from its MACs per cycle."""

    side: Annotated[int, Count("elements", RATE, "rows and columns of one block of results", 1, 1024)]
    macs: MacRates


@dataclass(frozen=True)
class Vector(Table):
    """The vector unit of an AIV."""

    simple: Annotated[int, Count("bytes/cycle", RATE, "add, multiply, compare, convert, move, reduce", 1, 2**20)]
    special: Annotated[int, Count("bytes/cycle", RATE, "exp, log, division, roots", 1, 2**20)]


@dataclass(frozen=True)
class Paths(Table):
    """Bandwidth of each path between memories, for one core."""

    gm_ub: Annotated[float, bandwidth("device memory to UB")]
    gm_l1: Annotated[float, bandwidth("device memory to L1")]
    ub_gm: Annotated[float, bandwidth("UB to device memory")]
    l1_gm: Annotated[float, bandwidth("L1 to device memory")]
    l0c_gm: Annotated[float, bandwidth("L0C to device memory")]
    l0c_l1: Annotated[float, bandwidth("L0C to L1")]
    l1_l0a: Annotated[float, bandwidth("L1 to L0A")]
    l1_l0b: Annotated[float, bandwidth("L1 to L0B")]

    def transfer_ps(self, path: str, nbytes: int) -> int:
        """Time of moving `nbytes` on a path, rounded up to a whole picosecond."""
        rate = whole(float(getattr(self, path)), GIGA)
        return ceil(Fraction(nbytes * PS_PER_SECOND, rate))


@dataclass(frozen=True)
class Memory(Table):
    """Device memory (GM), shared by all cores."""

    bandwidth: Annotated[float, bandwidth("bandwidth of all cores together")]
    latency: Annotated[float, latency("time from a request to its first byte, beyond what the paths' rates hold")]

    @property
    def bytes_per_ps(self) -> float:
        """Bandwidth in the unit of the timing engine."""
        return whole(self.bandwidth, GIGA) / PS_PER_SECOND

    @property
    def latency_ps(self) -> int:
        """Latency in picoseconds."""
        return whole(self.latency, PS_PER_NS)


@dataclass(frozen=True)
class Tasks(Table):
    """The task runtime: one orchestrator, several schedulers, and rings by depth of scope."""

    submit: Annotated[float, latency("orchestrator's time for one submit")]
    dispatch: Annotated[float, latency("a scheduler's time to start one block")]
    fill: Annotated[float, bandwidth("orchestrator's rate of giving a tensor its initial value")]
    schedulers: Annotated[int, Count("threads", RATE, "scheduler threads", 1, 64)]
    rings: Annotated[int, Count("rings", SHAPE, "rings; deeper scopes share the last", 1, 16)]
    window: Annotated[int, Count("tasks", SHAPE, "task slots of a ring", 1, 2**20)]
    heap: Annotated[int, Count("bytes", SHAPE, "memory of a ring for tensors the runtime makes", 1024, 2**40)]
    dependences: Annotated[int, Count("entries", SHAPE, "dependence entries of a ring", 1, 2**20)]

    @property
    def submit_ps(self) -> int:
        """Time of one submit in picoseconds."""
        return whole(self.submit, PS_PER_NS)

    def fill_ps(self, nbytes: int) -> int:
        """Time to fill a tensor of `nbytes`."""
        return ceil(Fraction(nbytes * PS_PER_SECOND, whole(self.fill, GIGA)))

    @property
    def dispatch_ps(self) -> int:
        """Time of one dispatch in picoseconds."""
        return whole(self.dispatch, PS_PER_NS)


@dataclass(frozen=True)
class ChipModel(Description):
    """An npu chip: what the functional pass needs (shape keys) and what timing needs (shape and rate keys)."""

    whole = "a2a3"
    called = "chip"

    name: Annotated[str, Text("", LABEL, "what the chip is called", 64)]
    kind: Annotated[str, Choice("", SHAPE, "the target that runs on it", (KIND,))]
    clusters: Clusters
    spaces: Spaces
    isa: Isa
    cube: Cube
    vector: Vector
    paths: Paths
    memory: Memory
    tasks: Tasks

    @property
    def aivs(self) -> int:
        """Vector cores on the chip."""
        return 2 * self.clusters.count

    def cycles_ps(self, cycles: int | Fraction) -> int:
        """The duration of `cycles`, rounded up to a whole picosecond."""
        return ceil(cycles * self.clusters.cycle_ps)


_LIBRARY = Library(ChipModel, "kernbench.npu", "chips")


def bundled() -> list[str]:
    """The names of the chips that come with kernbench."""
    return _LIBRARY.bundled()


def load(chip: "str | os.PathLike[str] | ChipModel") -> ChipModel:
    """The chip of a bundled name, a path to a TOML file, or a `ChipModel`, which is returned as it is.

    A file may say `extends = "a2a3"` (or a path relative to it) and give only the keys that differ. Its name is then
    that of the file unless it gives one.
    """
    return _LIBRARY.load(chip)


def is_chip(chip: str | os.PathLike[str]) -> bool:
    """Whether a name or file describes an npu chip and no other machine; unreadable files do not."""
    try:
        return _LIBRARY.kind_of(chip) == KIND
    except MachineError:
        return False
