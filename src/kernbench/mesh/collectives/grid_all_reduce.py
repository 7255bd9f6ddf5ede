"""All-reduce on a full grid: a scan along each row, then along each column; rows + columns - 2 hops."""

from typing import TYPE_CHECKING

from kernbench.common.dtypes import ITEMSIZE
from kernbench.mesh.collectives._base import GRID, Algorithm, Layout, scan, widen

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def kernel(ptr: int, count: int, op: str, root: int, layout: Layout, *, tl: "TLContext") -> None:
    """Replace `count` elements at `ptr` by the combination of all ranks'."""
    rank = layout.rank(tl)
    if rank is None:
        return
    row, column = layout.position(rank)
    rows = -(-layout.ranks // layout.columns)
    dtype = tl.element_type(ptr)
    for first, size in layout.blocks(count, dtype):
        address = ptr + first * ITEMSIZE[dtype]
        own = widen(tl.load(address, shape=(size,)))
        across = scan(tl, op, own, "W", "E", column, layout.columns)
        tl.store(address, scan(tl, op, across, "N", "S", row, rows))


ALGORITHM = Algorithm("all_reduce", "grid", frozenset((GRID,)), kernel, preference=2)
