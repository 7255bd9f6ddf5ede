"""One step of waves whose blocks are stored in HBM: a routine, since steps differ in addresses only
(`waves.exchange`).
"""

from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.routes import BOTH
from kernbench.benches.gqa_attention.parts.tiles import load_head_rows

if TYPE_CHECKING:
    from kernbench.benches.gqa_attention.parts.waves import Pair
    from kernbench.triton_emu.tl_context import TLContext

# for each block of a chunk: rows, and the offsets of its K and V in the chunk
Outline = tuple[tuple[int, int, int], ...]
# a direction, the strides of rows in a tensor (None: received ones), and the blocks that are sent or received there
Travelling = tuple[str, tuple[int, int] | None, Outline]
# what a step sends and receives, the size of a head, and the types of K and V: plain values only
Step = tuple[tuple[Travelling, ...], tuple[Travelling, ...], int, tuple[str, str]]


def pass_on(tl: "TLContext", step: Step, *at: int) -> None:
    """The blocks of one step, pair by pair, in the order of `waves.exchange`; `at` has the addresses of K and V of each
    chunk that is sent, then of each that is received.
    """
    sends, receives, d_head, types = step
    landings = at[2 * len(sends) :]
    for number in range(max((len(blocks) for _, _, blocks in sends + receives), default=0)):
        for route, (direction, strides, blocks) in enumerate(sends):
            if number < len(blocks):
                pair = _loaded(tl, at[2 * route], at[2 * route + 1], blocks[number], (d_head, strides))
                for part in BOTH:
                    tl.send(dir=direction, src=pair[part])
        for route, (direction, _, blocks) in enumerate(receives):
            if number < len(blocks):
                rows, k_ahead, v_ahead = blocks[number]
                first = tl.recv(dir=direction, shape=(rows, d_head), dtype=types[0])
                second = tl.recv(dir=direction, shape=(rows, d_head), dtype=types[1])
                tl.store(landings[2 * route] + k_ahead, first)
                tl.store(landings[2 * route + 1] + v_ahead, second)


def _loaded(
    tl: "TLContext", k: int, v: int, block: tuple[int, int, int], row: tuple[int, tuple[int, int] | None]
) -> "Pair":
    """K and V of a block of the chunks that begin at `k` and `v`; `row` is the size of a head, and strides."""
    rows, k_ahead, v_ahead = block
    shape, strides = (rows, row[0]), row[1]
    if strides is None:
        return tl.load(k + k_ahead, shape=shape), tl.load(v + v_ahead, shape=shape)
    return load_head_rows(tl, k + k_ahead, shape, strides), load_head_rows(tl, v + v_ahead, shape, strides)
