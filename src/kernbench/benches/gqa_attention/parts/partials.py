"""Partial attention of replicated queries over a rank's own keys, ready to be sent: all rows in one (m, l) and one o.

Scores are computed one block ahead of the softmax, and a block's K and V are loaded as early as the scratch memory
allows, so that a rank reads its keys at the rate of the HBM. One message of all heads costs one dispatch instead of
one for each head.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernbench.benches.gqa_attention.parts.online_softmax import State, absorb, finish, merge, start
from kernbench.benches.gqa_attention.parts.tiles import Keys, Queries, Tiling, without_position
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

# a block of keys for a tile: the tile's number, the block's first row and rows, and its position if some are hidden
Job = tuple[int, int, int, int | None]


def partials(
    tl: "TLContext",
    tiling: Tiling,
    tiles: Sequence[Queries],
    pointers: tuple[int, int, int],
    part: tuple[int, int] = (0, 1),
) -> State:
    """The unnormalised results of all tiles over this rank's keys, stacked.

    With `part` (i, n), over the blocks i, i + n, i + 2n, ... of its keys. Tiles of other heads, of users with as many
    keys, and of other ranks without hidden keys differ in addresses only.
    """
    jobs = tuple(_jobs(tiling, tiles, part))
    hidden = any(position is not None for *_, position in jobs)
    addresses = [_addresses(tl, tiling, tile, pointers) for tile in tiles]
    further = tuple(tuple(here - first for here, first in zip(a, addresses[0], strict=True)) for a in addresses)
    steps = tuple(tiling.h_kv * tiling.d_head * ITEMSIZE[tl.element_type(p)] for p in pointers[1:])
    some = without_position(tiles if hidden else [tile._replace(position=0) for tile in tiles])
    return tl.routine(_fold_jobs, tl, replace(tiling, rank=0), some, further, jobs, steps, at=addresses[0])


def _addresses(tl: "TLContext", tiling: Tiling, tile: Queries, pointers: tuple[int, int, int]) -> tuple[int, int, int]:
    """The addresses of a tile's queries, and of K and V of its head."""
    first = Keys(tile.head, 0, 0, 0)
    k, v = (tiling.key_address(tl, pointer, tile.user, first) for pointer in pointers[1:])
    return tiling.query_address(tl, pointers[0], tile), k, v


def _fold_jobs(
    tl: "TLContext",
    tiling: Tiling,
    tiles: tuple[Queries, ...],
    further: tuple[tuple[int, ...], ...],
    jobs: tuple[Job, ...],
    steps: tuple[int, ...],
    *at: int,
) -> State:
    """The states of tiles after some jobs, stacked. `at` are the addresses of the queries of the first tile and of its
    K and V, `further` the offsets of each tile from these, `steps` the bytes from one row of keys to the next.
    """
    queries = [tiling.load_rows(tl, at[0] + ahead[0], tile.tokens) for tile, ahead in zip(tiles, further, strict=True)]
    states = [start(tl, tiling.group * tile.tokens, tiling.d_head) for tile in tiles]

    def absorbed(number: int, s: TensorHandle, v: TensorHandle, run: tuple[int, int | None]) -> None:
        rows, position = run
        mask = None if position is None else tiling.mask(tl, tiles[number], (position, rows))
        states[number] = absorb(tl, states[number], s, v, tiling.scale, mask)

    ahead = None
    for number, first, rows, position in jobs:
        k, v = (tiling.load_key_rows(tl, at[i] + further[number][i] + first * steps[i - 1], rows) for i in (1, 2))
        s = tl.dot(queries[number], tl.trans(k))
        if ahead is not None:
            absorbed(*ahead)
        ahead = (number, s, v, (rows, position))
    if ahead is not None:
        absorbed(*ahead)
    return State(*(_stacked(tl, [state[i] for state in states]) for i in range(3)))


def _jobs(tiling: Tiling, tiles: Sequence[Queries], part: tuple[int, int]) -> Iterator[Job]:
    for number, tile in enumerate(tiles):
        blocks = [block for block in tiling.key_blocks(tiling.rank, tile.user) if block.head == tile.head]
        for block in blocks[part[0] :: part[1]]:
            if not tiling.hides_all(tile, block.position):
                masked = tiling.masks(tile, (block.position, block.rows))
                yield number, block.first, block.rows, block.position if masked else None


def _stacked(tl: "TLContext", handles: list[TensorHandle]) -> TensorHandle:
    """All rows in one handle, joined pairwise so that each is moved only a few times."""
    while len(handles) > 1:
        pairs = zip(handles[::2], handles[1::2], strict=False)
        handles = [tl.cat(a, b, axis=0) for a, b in pairs] + handles[len(handles) & ~1 :]
    return handles[0]


def send(tl: "TLContext", direction: str, state: State) -> list[Any]:
    """Send a state; wait for what is returned before its memory is used again."""
    packed = tl.cat(state.m, state.l, axis=1)
    return [tl.send_async(direction, packed), tl.send_async(direction, state.o)]


def receive(tl: "TLContext", direction: str, rows: int, d_head: int) -> State:
    """Receive a state of `rows` rows."""
    packed = tl.recv(dir=direction, shape=(rows, 2), dtype="f32")
    return State(packed[:, 0:1], packed[:, 1:2], tl.recv(dir=direction, shape=(rows, d_head), dtype="f32"))


def scan(tl: "TLContext", own: State, low: str, high: str, position: int, length: int) -> State:
    """All states of a chain of ranks merged, on each of them: each side arrives as one merged state.

    Merged states travel both ways at once, so the farthest needs `length` - 1 hops; a rank receives once from each
    side.
    """
    total, leaving = own, []
    for side, onward in ((low, high), (high, low)) if position <= length - 1 - position else ((high, low), (low, high)):
        first, last = (
            (position == 0, position == length - 1) if side == low else (position == length - 1, position == 0)
        )
        outgoing = own
        if not first:
            heard = receive(tl, side, *own.o.shape)
            total = merge(tl, total, heard)
            outgoing = own if last else merge(tl, own, heard)
        if not last:
            leaving += send(tl, onward, outgoing)
    for request in leaving:
        request.wait()
    return total


class Chain:
    """A row or column of `length` ranks seen from the one at `position`; it is reduced to `root`."""

    def __init__(self, low: str, high: str, position: int, length: int, root: int):
        self.is_root = position == root
        self._towards = "" if self.is_root else (high if position < root else low)
        beyond = {low: 0 < position <= root, high: root <= position < length - 1}
        self._away = [side for side, there in beyond.items() if there]

    def reduce(self, tl: "TLContext", state: State) -> State:
        """Merge what comes from farther out and pass it on; the root keeps the result."""
        for side in self._away:
            state = merge(tl, state, receive(tl, side, *state.o.shape))
        if self._towards:
            for request in send(tl, self._towards, state):
                request.wait()
        return state

    def spread(self, tl: "TLContext", rows: TensorHandle | None, shape: tuple[int, ...], dtype: str) -> TensorHandle:
        """The root's rows, on every rank of the chain."""
        if self._towards:
            rows = tl.recv(dir=self._towards, shape=shape, dtype=dtype)
        assert rows is not None
        for request in [tl.send_async(side, rows) for side in self._away]:
            request.wait()
        return rows


def store(tl: "TLContext", tiling: Tiling, tiles: Sequence[Queries], o_ptr: int, rows: TensorHandle) -> None:
    """Store finished rows, tile by tile."""
    first = 0
    for tile in tiles:
        count = tiling.group * tile.tokens
        tiling.store_output(tl, o_ptr, tile, rows[first : first + count])
        first += count


def finished(tl: "TLContext", state: State, dtype: str) -> TensorHandle:
    """The normalised rows in the output's element type."""
    rows: TensorHandle = finish(tl, state)
    return rows if dtype == "f32" else tl.cast(rows, dtype)


def few_rows(tl: "TLContext", d_head: int) -> int:
    """Query rows of a tile of which eight states take at most a quarter of the scratch memory."""
    return max(1, min(512, int(tl.scratch_size // 32 // ((d_head + 2) * 4))))


def few_keys(tl: "TLContext", d_head: int) -> int:
    """Keys of a block whose K and V, twice, take at most a quarter of the scratch memory, and its scores as much."""
    return max(1, min(256, int(tl.scratch_size // 16 // (d_head * 4))))


def tiles_at_once(tl: "TLContext", tiling: Tiling) -> int:
    """As many tiles as leave half of the scratch memory free while eight states of each exist."""
    rows = tiling.group * min(tiling.tokens_per_tile, max(1, tiling.S_q))
    return max(1, int(tl.scratch_size // 2 // (8 * rows * (tiling.d_head + 2) * 4)))
