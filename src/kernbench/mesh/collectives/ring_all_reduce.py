"""All-reduce round a ring: reduce-scatter, then all-gather; 2 (P - 1) steps of 1/P of the bytes."""

from typing import TYPE_CHECKING, Any

from kernbench.common.dtypes import ITEMSIZE
from kernbench.mesh.collectives._base import RING, Algorithm, Layout, combine, widen

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def kernel(ptr: int, count: int, op: str, root: int, layout: Layout, *, tl: "TLContext") -> None:
    """Replace `count` elements at `ptr` by the combination of all ranks'."""
    rank = layout.rank(tl)
    if rank is None:
        return
    dtype = tl.element_type(ptr)
    share = -(-count // layout.ranks)
    for first, size in layout.blocks(share, dtype):
        _round(tl, op, (ptr, count, share, first, size), rank, layout.ranks, ITEMSIZE[dtype])


def _round(
    tl: "TLContext", op: str, piece: tuple[int, int, int, int, int], rank: int, ranks: int, itemsize: int
) -> None:
    """Pass one piece of every rank's share round the ring: first reduced, then gathered."""
    ptr, count, share, first, size = piece

    def span(owner: int) -> tuple[int, int]:
        start = owner * share + first
        return ptr + start * itemsize, max(0, min(size, count - start))

    held = _load(tl, *span(rank))
    for step in range(1, ranks):
        held = _pass_on(tl, held, span((rank - step) % ranks)[1])
        own = _load(tl, *span((rank - step) % ranks))
        held = combine(tl, op, held, own) if held is not None else None
    for step in range(ranks):
        owner = (rank + 1 - step) % ranks
        if held is not None:
            tl.store(span(owner)[0], held)
        if step < ranks - 1:
            held = _pass_on(tl, held, span((rank - step) % ranks)[1])


def _load(tl: "TLContext", address: int, size: int) -> Any:
    return widen(tl.load(address, shape=(size,))) if size else None


def _pass_on(tl: "TLContext", held: Any, size: int) -> object:
    """Send the held piece east, receive one from the west; empty pieces past the end are not sent."""
    if held is not None:
        tl.send(dir="E", src=held)
    return tl.recv(dir="W", shape=(size,)) if size else None


ALGORITHM = Algorithm("all_reduce", "ring", frozenset((RING,)), kernel, preference=1)
