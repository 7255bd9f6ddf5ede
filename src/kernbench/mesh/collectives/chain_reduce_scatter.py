"""Reduce-scatter along the chain of ranks: each rank's part is summed towards it from both ends."""

from typing import TYPE_CHECKING

from kernbench.common.dtypes import ITEMSIZE
from kernbench.mesh.collectives._base import EVERYWHERE, Algorithm, Layout, combine, widen

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def kernel(ptr: int, count: int, op: str, root: int, layout: Layout, *, tl: "TLContext") -> None:
    """Replace each rank's own part of `count` elements at `ptr` by the combination of all ranks' values of it."""
    rank = layout.rank(tl)
    if rank is None:
        return
    ranks, dtype = layout.ranks, tl.element_type(ptr)
    part = count // ranks
    back, onward = layout.back(rank), layout.onward(rank)
    for owner in range(ranks):
        for first, size in layout.blocks(part, dtype):
            address = ptr + (owner * part + first) * ITEMSIZE[dtype]
            total = widen(tl.load(address, shape=(size,)))
            if back and rank <= owner:
                total = combine(tl, op, total, tl.recv(dir=back, shape=(size,), dtype=total.dtype))
            if onward and rank >= owner:
                total = combine(tl, op, total, tl.recv(dir=onward, shape=(size,), dtype=total.dtype))
            if rank == owner:
                tl.store(address, total)
            else:
                tl.send(dir=onward if rank < owner else back, src=total)


ALGORITHM = Algorithm("reduce_scatter", "chain", EVERYWHERE, kernel)
