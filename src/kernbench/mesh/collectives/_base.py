"""Shared parts of collectives: the layout of ranks, the description of an algorithm, passing a value along a chain."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.ipcq_types import OPPOSITE

if TYPE_CHECKING:
    from kernbench.common.pe_commands import TensorHandle
    from kernbench.triton_emu.tl_context import TLContext

LINE, RING, GRID = "line", "ring", "grid"
EVERYWHERE = frozenset((LINE, RING, GRID))


@dataclass(frozen=True)
class Layout:
    """`ranks` ranks installed as `topology`; on a grid of `columns` columns their ids follow the snake."""

    topology: str
    ranks: int
    columns: int
    rank_axis: int
    slot: int

    def rank(self, tl: "TLContext") -> int | None:
        """The rank of the calling PE; None on PEs of a cube without a rank."""
        if self.rank_axis == 1 and tl.program_id(0) != 0:
            return None
        return int(tl.program_id(self.rank_axis))

    def position(self, rank: int) -> tuple[int, int]:
        """Row and column on the grid."""
        row, along = divmod(rank, self.columns)
        return row, along if row % 2 == 0 else self.columns - 1 - along

    def onward(self, rank: int) -> str:
        """The direction of the next rank: E on a line, along the snake on a grid; "" on the last."""
        if rank == self.ranks - 1:
            return ""
        if self.topology != GRID:
            return "E"
        (row, column), (next_row, next_column) = self.position(rank), self.position(rank + 1)
        if next_row != row:
            return "S"
        return "E" if next_column > column else "W"

    def back(self, rank: int) -> str:
        """The direction of the previous rank; "" on the first."""
        return OPPOSITE[self.onward(rank - 1)] if rank else ""

    def blocks(self, count: int, dtype: str) -> Iterator[tuple[int, int]]:
        """(first, elements) of pieces that fit a slot even if they are sent as f32."""
        step = max(1, self.slot // max(4, ITEMSIZE[dtype]))
        return ((first, min(step, count - first)) for first in range(0, count, step))


@dataclass(frozen=True)
class Algorithm:
    """One algorithm for `operation`; the kernel is called with (ptr, count, op, root, layout, tl=)."""

    operation: str
    name: str
    topologies: frozenset[str]
    kernel: Callable[..., None]
    preference: int = 0


def combine(tl: "TLContext", op: str, left: Any, right: Any) -> Any:
    """Combine two partial results."""
    return left + right if op == "sum" else (tl.maximum if op == "max" else tl.minimum)(left, right)


def widen(handle: "TensorHandle") -> "TensorHandle":
    """Narrow floats are summed in f32, so that more ranks do not lose precision."""
    return handle.to("f32") if handle.dtype in ("f16", "bf16", "f8e4m3", "f8e5m2") else handle


def scan(tl: "TLContext", op: str, own: Any, low: str, high: str, position: int, length: int) -> Any:
    """Combine the values of all `length` ranks of a chain, on each rank: each side arrives as one partial result.

    Partial results travel in both directions at once; a rank receives from the nearer end first.
    """
    total = own
    nearer_low = position <= length - 1 - position
    for side in (low, high) if nearer_low else (high, low):
        receives = position > 0 if side == low else position < length - 1
        sends = position < length - 1 if side == low else position > 0
        outgoing = own
        if receives:
            received = tl.recv(dir=side, shape=own.shape, dtype=own.dtype)
            outgoing = combine(tl, op, own, received)
            total = combine(tl, op, total, received)
        if sends:
            tl.send(dir=high if side == low else low, src=outgoing)
    return total
