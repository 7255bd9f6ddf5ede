"""Broadcast along the chain of ranks, from the root both ways."""

from typing import TYPE_CHECKING

from kernbench.common.dtypes import ITEMSIZE
from kernbench.mesh.collectives._base import EVERYWHERE, Algorithm, Layout

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def kernel(ptr: int, count: int, op: str, root: int, layout: Layout, *, tl: "TLContext") -> None:
    """Replace `count` elements at `ptr` by the root's."""
    rank = layout.rank(tl)
    if rank is None:
        return
    dtype = tl.element_type(ptr)
    back, onward = layout.back(rank), layout.onward(rank)
    for first, size in layout.blocks(count, dtype):
        address = ptr + first * ITEMSIZE[dtype]
        if rank == root:
            value = tl.load(address, shape=(size,))
        else:
            value = tl.recv(dir=back if rank > root else onward, shape=(size,), dtype=dtype)
            tl.store(address, value)
        for direction, leads_away in ((onward, rank >= root), (back, rank <= root)):
            if direction and leads_away:
                tl.send(dir=direction, src=value)


ALGORITHM = Algorithm("broadcast", "chain", EVERYWHERE, kernel)
