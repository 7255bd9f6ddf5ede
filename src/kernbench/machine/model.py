"""The mesh machine: one frozen dataclass for each table of a machine file.

Every field is stored in the unit its key names. Bandwidths, latencies and the clock are restricted to whole bytes per
second, picoseconds and hertz; properties give these integers. A duration is an exact fraction of a picosecond until it
is complete, then rounded up, once: never per cycle or per byte. So no duration is below the physical one, more work
never takes less time, and only empty work takes none.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from kernbench.common.errors import MachineError, unknown
from kernbench.machine.description import Description
from kernbench.machine.grid import Grid
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
    Sides,
    Text,
    bandwidth,
    latency,
    whole,
)
from kernbench.machine.schema import Table
from kernbench.result.reading import Fields

MOST_PES = 1_048_576


def _mac_rate(dtype: str) -> Quantity:
    return Quantity("MAC/cell/cycle", RATE, f"multiply-accumulates of {dtype} operands", 0.001, 1024)


def _special_rate(operation: str) -> Quantity:
    return Quantity("results/cycle", RATE, f"results of {operation}", 0.001, 1_048_576)


@dataclass(frozen=True)
class Package(Table):
    """The package: a grid of cubes, numbered in snake order."""

    cubes: Annotated[tuple[int, int], Sides("rows x columns", SHAPE, "grid of cubes in the package", 1024)]

    @property
    def grid(self) -> Grid:
        """The cubes as a grid."""
        return Grid(*self.cubes)


@dataclass(frozen=True)
class Cube(Table):
    """A cube: a grid of PEs, numbered in snake order, that share the cube's HBM."""

    pes: Annotated[tuple[int, int], Sides("rows x columns", SHAPE, "grid of PEs in a cube", 1024)]

    @property
    def grid(self) -> Grid:
        """The PEs as a grid."""
        return Grid(*self.pes)


@dataclass(frozen=True)
class Pe(Table):
    """A PE: the CPU that dispatches commands to its engines, and their scratch memory."""

    clock: Annotated[float, Quantity("GHz", RATE, "clock of the CPU and all engines", 0.001, 100, parts=GIGA)]
    dispatch_cycles: Annotated[int, Count("cycles", RATE, "CPU time to dispatch one command", 0, 1_000_000)]
    scratch: Annotated[int, Count("bytes", SHAPE, "scratch memory of one PE", 1, 2**40)]

    @property
    def clock_hz(self) -> int:
        """Cycles per second."""
        return whole(self.clock, GIGA)

    @property
    def cycle_ps(self) -> Fraction:
        """One cycle in picoseconds, exact; round durations, not cycles (see `cycles_ps`)."""
        return Fraction(PS_PER_SECOND, self.clock_hz)

    def cycles_ps(self, cycles: int | Fraction) -> int:
        """The duration of `cycles`, rounded up to a whole picosecond."""
        # the same as ceil(cycles * self.cycle_ps), without a fraction for each step
        return -(-cycles.numerator * PS_PER_SECOND // (cycles.denominator * self.clock_hz))


@dataclass(frozen=True)
class MacRates(Table):
    """Multiply-accumulates each cell of the GEMM array does in a cycle, by type of operand."""

    f16: Annotated[float, _mac_rate("f16")]
    bf16: Annotated[float, _mac_rate("bf16")]
    f8e4m3: Annotated[float, _mac_rate("f8e4m3")]
    f8e5m2: Annotated[float, _mac_rate("f8e5m2")]
    i8: Annotated[float, _mac_rate("i8")]
    f32: Annotated[float, _mac_rate("f32")]

    def of(self, dtype: str) -> float:
        """The rate for operands of `dtype` (a canonical name)."""
        if dtype not in MacRates.schema:
            raise MachineError(unknown("GEMM operand type", dtype, MacRates.schema) + " Convert the operand first.")
        return float(getattr(self, dtype))


@dataclass(frozen=True)
class Gemm(Table):
    """The GEMM engine of a PE: an output-stationary array of cells."""

    rows: Annotated[int, Count("cells", RATE, "rows of the array", 1, 65_536)]
    columns: Annotated[int, Count("cells", RATE, "columns of the array", 1, 65_536)]
    macs_per_cell_cycle: MacRates

    def macs_per_cycle(self, dtype: str) -> float:
        """Peak of the whole array for operands of `dtype`."""
        return self.rows * self.columns * self.macs_per_cell_cycle.of(dtype)


@dataclass(frozen=True)
class SpecialRates(Table):
    """Results per cycle of the MATH operations that have units of their own, all lanes together."""

    exp: Annotated[float, _special_rate("exp")]
    log: Annotated[float, _special_rate("log")]
    sqrt: Annotated[float, _special_rate("sqrt")]
    div: Annotated[float, _special_rate("div")]


@dataclass(frozen=True)
class Math(Table):
    """The MATH (vector) engine of a PE."""

    lanes: Annotated[int, Count("f32 lanes", RATE, "lanes of the engine", 1, 1_048_576)]
    simple_per_lane: Annotated[
        float, Quantity("operations/lane/cycle", RATE, "simple operations: add, multiply, compare", 0.001, 1024)
    ]
    per_cycle: SpecialRates

    def results_per_cycle(self, operation: str) -> float:
        """Results per cycle of `operation`: exp, log, sqrt and div have their own rate, others that of the lanes."""
        if operation in SpecialRates.schema:
            return float(getattr(self.per_cycle, operation))
        return self.lanes * self.simple_per_lane


@dataclass(frozen=True)
class Dma(Table):
    """The DMA engine of a PE, between HBM and scratch."""

    channels: Annotated[int, Count("channels", RATE, "transfers in flight at once", 1, 1024)]


@dataclass(frozen=True)
class Channel(Table):
    """A path for bytes: first the latency, then the bytes at the bandwidth."""

    bandwidth: Annotated[float, bandwidth("bandwidth each way")]
    latency: Annotated[float, latency("time for one hop")]

    @property
    def bytes_per_second(self) -> int:
        """The bandwidth, exact."""
        return whole(self.bandwidth, GIGA)

    @property
    def latency_ps(self) -> int:
        """The latency in picoseconds, exact."""
        return whole(self.latency, PS_PER_NS)

    @property
    def ps_per_byte(self) -> Fraction:
        """Time one byte takes at full bandwidth, exact; round durations, not bytes (see `transfer_ps`)."""
        return Fraction(PS_PER_SECOND, self.bytes_per_second)

    def transfer_ps(self, nbytes: int) -> int:
        """Time `nbytes` take at full bandwidth, without the latency, rounded up to a whole picosecond."""
        # the same as ceil(nbytes * self.ps_per_byte), without a fraction
        return -(-nbytes * PS_PER_SECOND // self.bytes_per_second)


@dataclass(frozen=True)
class Hbm(Channel):
    """The HBM of a cube, shared by its PEs."""

    bandwidth: Annotated[float, bandwidth("bandwidth of one cube, shared by its PEs")]
    latency: Annotated[float, latency("time from a request to its first byte")]


@dataclass(frozen=True)
class Ipcq(Table):
    """The queue of a PE for each direction; a sender waits while the neighbour's queue is full."""

    depth: Annotated[int, Count("slots", SHAPE, "messages or pieces of one that a queue holds", 1, 65_536)]
    slot: Annotated[int, Count("bytes", SHAPE, "size of a slot; a larger message goes in pieces", 1, 2**30)]


@dataclass(frozen=True)
class Link(Channel):
    """The link between neighbouring PEs of a cube."""


@dataclass(frozen=True)
class CubeLink(Channel):
    """The link between neighbouring cubes."""


@dataclass(frozen=True)
class Machine(Description):
    """A mesh machine: what the functional pass needs (shape keys) and what timing needs (shape and rate keys)."""

    name: Annotated[str, Text("", LABEL, "what the machine is called", 64)]
    kind: Annotated[str, Choice("", SHAPE, "the target that runs on it", ("mesh",))]
    package: Package
    cube: Cube
    pe: Pe
    gemm: Gemm
    math: Math
    dma: Dma
    hbm: Hbm
    ipcq: Ipcq
    link: Link
    cube_link: CubeLink

    @classmethod
    def conflicts(cls, values: Fields) -> list[str]:
        """Report too many PEs in all."""
        if "package" not in values or "cube" not in values:
            return []
        total = values["package"].grid.size * values["cube"].grid.size
        if total <= MOST_PES:
            return []
        return [f"package.cubes x cube.pes = {total} PEs: out of range. Allowed: 1 to {MOST_PES} PEs"]

    @property
    def pes_per_cube(self) -> int:
        """PEs in one cube."""
        return self.cube.grid.size

    @property
    def cubes_per_package(self) -> int:
        """Cubes in the package."""
        return self.package.grid.size

    @property
    def clock_hz(self) -> int:
        """Cycles per second."""
        return self.pe.clock_hz
