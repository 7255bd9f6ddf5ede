"""All-gather along the chain of ranks: every rank's part travels both ways, one hop in each of ranks - 1 steps."""

from typing import TYPE_CHECKING

from kernbench.common.dtypes import ITEMSIZE
from kernbench.mesh.collectives._base import EVERYWHERE, Algorithm, Layout

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def kernel(ptr: int, count: int, op: str, root: int, layout: Layout, *, tl: "TLContext") -> None:
    """At `ptr` are the ranks' equal parts of `count` elements, of which each rank has its own; then all have all."""
    rank = layout.rank(tl)
    if rank is None:
        return
    ranks, dtype = layout.ranks, tl.element_type(ptr)
    part = count // ranks
    back, onward = layout.back(rank), layout.onward(rank)
    for first, size in layout.blocks(part, dtype):

        def address(owner: int, first: int = first) -> int:
            return ptr + (owner * part + first) * ITEMSIZE[dtype]

        ahead = behind = tl.load(address(rank), shape=(size,))
        for step in range(1, ranks):
            if onward and rank - step + 1 >= 0:
                tl.send(dir=onward, src=ahead)
            if back and rank + step - 1 < ranks:
                tl.send(dir=back, src=behind)
            if rank - step >= 0:
                ahead = tl.recv(dir=back, shape=(size,), dtype=dtype)
                tl.store(address(rank - step), ahead)
            if rank + step < ranks:
                behind = tl.recv(dir=onward, shape=(size,), dtype=dtype)
                tl.store(address(rank + step), behind)


ALGORITHM = Algorithm("all_gather", "chain", EVERYWHERE, kernel)
