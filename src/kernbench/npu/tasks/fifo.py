"""FIFOs between the cube core and the vector cores of a cluster: a few slots in device memory, pushed and popped in
order. On the AIC's side a message is a whole tile; on the AIVs' side each lane has its share of the rows.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kernbench.common.dtypes import ITEMSIZE
from kernbench.npu.isa.units import AIC, LANES
from kernbench.npu.recording.record import FifoRecord

if TYPE_CHECKING:
    from kernbench.result.finding import SourceLocation

__kernbench_internal__ = True


@dataclass(frozen=True)
class Fifo:
    """From the AIC to the AIVs ("to_aiv") or back ("to_aic"): messages of `shape` and `dtype`, `depth` slots.

    The AIVs that take part share the rows of a message evenly.
    """

    name: str
    direction: str
    shape: tuple[int, int]
    dtype: str
    depth: int

    def record(self, lanes: tuple[int, ...]) -> FifoRecord:
        """Who pushes and pops in a task with these lanes."""
        cube, vectors = (AIC,), tuple(lane for lane in lanes if lane != AIC)
        ends = (cube, vectors) if self.direction == "to_aiv" else (vectors, cube)
        nbytes = self.shape[0] * self.shape[1] * ITEMSIZE[self.dtype]
        return FifoRecord(self.name, ends[0], ends[1], self.depth, nbytes)

    def describe(self) -> str:
        """Name, shape and type."""
        return f"FIFO '{self.name}' ({self.shape[0]}x{self.shape[1]} {self.dtype}, depth {self.depth})"


@dataclass(eq=False)
class FifoState:
    """A FIFO of one block: the messages in it, and how many each lane has pushed and popped."""

    fifo: Fifo
    record: FifoRecord
    number: int
    pushed: dict[int, int] = field(default_factory=dict)
    popped: dict[int, int] = field(default_factory=dict)
    slots: dict[tuple[int, int], tuple[Any, tuple[int, int], "SourceLocation"]] = field(default_factory=dict)

    # rows of a message for each lane, computed on first use
    _rows: dict[int, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.pushed = dict.fromkeys(self.record.producers, 0)
        self.popped = dict.fromkeys(self.record.consumers, 0)

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element in a slot."""
        return ITEMSIZE[self.fifo.dtype]

    def has_room(self, lane: int) -> bool:
        """Whether the lane's next message has a slot: all consumers have popped the slot's previous message."""
        return self.pushed[lane] - min(self.popped.values()) < self.record.depth

    def has_message(self, lane: int) -> bool:
        """Whether all producers have pushed the lane's next message."""
        return min(self.pushed.values()) > self.popped[lane]

    def rows(self, lane: int) -> int:
        """Rows of a message on the lane's side."""
        found = self._rows.get(lane)
        if found is None:
            shares = self.record.producers if lane in self.record.producers else self.record.consumers
            found = self._rows[lane] = self.fifo.shape[0] // len(shares) if lane != AIC else self.fifo.shape[0]
        return found

    def left(self) -> list[tuple[int, "SourceLocation"]]:
        """Messages that some lane never popped: their numbers and where they were pushed."""
        least = min(self.popped.values())
        return sorted(
            {(n, location) for (n, _), (_, _, location) in self.slots.items() if n >= least}, key=lambda m: m[0]
        )

    def ends(self) -> str:
        """Who pushes and who pops."""
        sides = [" and ".join(LANES[lane] for lane in side) for side in (self.record.producers, self.record.consumers)]
        return f"{sides[0]} to {sides[1]}"
