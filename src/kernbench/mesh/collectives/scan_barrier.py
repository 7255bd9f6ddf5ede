"""Barrier: no rank continues before all have arrived; a one-element all-reduce that touches no memory."""

from typing import TYPE_CHECKING

from kernbench.mesh.collectives._base import EVERYWHERE, Algorithm, Layout, scan

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def kernel(ptr: int, count: int, op: str, root: int, layout: Layout, *, tl: "TLContext") -> None:
    """Synchronise with all other ranks."""
    rank = layout.rank(tl)
    if rank is not None:
        token = tl.zeros((1,), "i32")
        scan(tl, "sum", token, layout.back(rank), layout.onward(rank), rank, layout.ranks)


ALGORITHM = Algorithm("barrier", "scan", EVERYWHERE, kernel)
