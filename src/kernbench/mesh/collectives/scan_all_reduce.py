"""All-reduce along the chain of ranks: sums from both ends meet; ranks - 1 hops, every byte once each way."""

from typing import TYPE_CHECKING

from kernbench.common.dtypes import ITEMSIZE
from kernbench.mesh.collectives._base import EVERYWHERE, Algorithm, Layout, scan, widen

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def kernel(ptr: int, count: int, op: str, root: int, layout: Layout, *, tl: "TLContext") -> None:
    """Replace `count` elements at `ptr` by the combination of all ranks'."""
    rank = layout.rank(tl)
    if rank is None:
        return
    dtype = tl.element_type(ptr)
    for first, size in layout.blocks(count, dtype):
        address = ptr + first * ITEMSIZE[dtype]
        own = widen(tl.load(address, shape=(size,)))
        tl.store(address, scan(tl, op, own, layout.back(rank), layout.onward(rank), rank, layout.ranks))


ALGORITHM = Algorithm("all_reduce", "scan", EVERYWHERE, kernel)
