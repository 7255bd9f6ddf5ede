"""Attention while K and V stream past: communication, GEMM and MATH each work on something else.

Two things hide behind each other. While a chunk is folded the next is already on its way, posted before the fold
(double buffering). And while MATH works on the scores of one block, GEMM already makes those of the next: its commands
stand first in the program, and engines run in order.

Blocks are folded by position, not by owner: what arrived is joined to blocks of up to `block_kv` keys. Where K and V do
not fit the scratch memory they land in HBM; the first query tiles fold the rank's own chunk while the others arrive.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernbench.benches.gqa_attention.parts.key_store import HbmKeys, HeadRows, KeyStore, Run, ScratchKeys, joined
from kernbench.benches.gqa_attention.parts.online_softmax import State, absorb, finish, start
from kernbench.benches.gqa_attention.parts.routes import KEY, VALUE, Hop
from kernbench.benches.gqa_attention.parts.tiles import (
    Queries,
    Tiling,
    by_head,
    have_one_head,
    message_bytes,
    without_position,
)
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

# of the scratch memory; the rest is for masks, small values and gaps between blocks
USABLE = 0.85
FEW_KEYS, SMALLEST_BLOCK, LARGEST_BLOCK, LARGEST_TILE = 64, 128, 512, 512
Pointers = tuple[int, int, int, int]
# scores that were made and not yet absorbed: their tile, the scores, the values, and the keys they are of
Ahead = tuple[int, TensorHandle, TensorHandle, tuple[Run, ...]]


class QuerySet:
    """Some query tiles of one user and their running states."""

    def __init__(self, tl: "TLContext", tiling: Tiling, tiles: Sequence[Queries], queries: list[TensorHandle]):
        self._tl = tl
        self._tiling = tiling
        self._tiles = list(tiles)
        self._queries = queries
        self._states: list[State] = [start(tl, tiling.group * t.tokens, tiling.d_head) for t in tiles]

    def fold(self, keys: KeyStore | HeadRows, blocks: "Blocks") -> None:
        """Fold these keys into every tile that sees some of them; scores are made one block ahead."""
        ahead: Ahead | None = None
        for head, tiles in by_head(self._tiles):
            even = blocks.hiding_nothing(self._tiling, [self._tiles[i] for i in tiles]) if keys.is_contiguous else 0
            if even:
                addresses = zip(keys.addresses(head, blocks.first), keys.row_bytes, strict=True)
                steps = [(first, blocks.rows * size) for first, size in addresses]
                ahead = self._fold_even(steps, blocks.rows, even, tiles, ahead)
            for block in blocks.after(even):
                seen = [i for i in tiles if not self._tiling.hides_all(self._tiles[i], block[0][0])]
                if seen:
                    k, v = keys.head(head, block)
                    ahead = self._fold_block(k, v, seen, block, ahead)
        if ahead is not None:
            self._absorb(*ahead)

    def _fold_block(
        self, k: TensorHandle, v: TensorHandle, tiles: Sequence[int], block: tuple[Run, ...], ahead: Ahead | None
    ) -> Ahead | None:
        for tile in tiles:
            s = self._tl.dot(self._queries[tile], self._tl.trans(k))
            if ahead is not None:
                self._absorb(*ahead)
            ahead = (tile, s, v, block)
        return ahead

    def _fold_even(
        self, addresses: list[tuple[int, int]], rows: int, count: int, tiles: Sequence[int], ahead: Ahead | None
    ) -> Ahead | None:
        """Fold `count` blocks of `rows` keys, with no mask: the long loop of a prefill. `addresses` are the address of
        the first K and the bytes from one to the next, and the same for V. The loop sees no more than it needs, because
        what it sees is compared.
        """
        tl, d_head, width = self._tl, self._tiling.d_head, self._tiling.h_kv * self._tiling.d_head
        (k_first, k_step), (v_first, v_step) = addresses
        for j in tl.range(count):
            k = tl.load(k_first + j * k_step, shape=(rows, d_head), strides=(width, 1))
            v = tl.load(v_first + j * v_step, shape=(rows, d_head), strides=(width, 1))
            ahead = self._fold_block(k, v, tiles, (), ahead)
        return ahead

    def _absorb(self, tile: int, s: TensorHandle, v: TensorHandle, block: tuple[Run, ...]) -> None:
        mask = self._tiling.mask(self._tl, self._tiles[tile], *block)
        self._states[tile] = absorb(self._tl, self._states[tile], s, v, self._tiling.scale, mask)

    def take(self) -> State:
        """The state of the last tile, which leaves the set."""
        self._tiles.pop()
        self._queries.pop()
        return self._states.pop()

    def store(self, addresses: Sequence[int]) -> None:
        """Normalise and store every tile; `addresses` are where the rows of each begin in O."""
        while self._tiles:
            address, tokens = addresses[len(self._tiles) - 1], self._tiles[-1].tokens
            self._tiling.store_rows(self._tl, address, tokens, finish(self._tl, self.take()))


def _addresses(tl: "TLContext", tiling: Tiling, pointer: int, tiles: Sequence[Queries]) -> list[int]:
    """Where the rows of each tile begin in Q, or in O."""
    return [tiling.query_address(tl, pointer, tile) for tile in tiles]


def _load_set(tl: "TLContext", tiling: Tiling, q_ptr: int, tiles: Sequence[Queries]) -> QuerySet:
    """A set of this rank's own tiles."""
    return QuerySet(tl, tiling, tiles, [tiling.load_queries(tl, q_ptr, tile) for tile in tiles])


class Blocks:
    """Runs of keys as they are folded, one block after another. Made once for all tiles, outside of their loops.

    The first `even` blocks have `rows` keys each that follow one another from position `first` on.
    """

    def __init__(self, runs: Sequence[Run], most: int):
        """Blocks of at most `most` keys."""
        self._all = _blocks(tuple(runs), most)
        self._cut = 0
        # what tiles need to know, by the tiles: those of all heads and users are alike
        self._known: dict[tuple[Queries, ...], Blocks] | None = {}
        self.first, self.rows = joined(self._all[0])[0] if self._all else (0, 0)
        self.even = next((n for n, block in enumerate(self._all) if not self._is_even(n, block)), len(self._all))

    def _is_even(self, number: int, block: tuple[Run, ...]) -> bool:
        return joined(block) == [(self.first + number * self.rows, self.rows)]

    def after(self, number: int) -> tuple[tuple[Run, ...], ...]:
        """All blocks but the first ones."""
        return self._all[number - self._cut :]

    def hiding_nothing(self, tiling: Tiling, tiles: Sequence[Queries]) -> int:
        """How many of the even blocks, from the first on, hide nothing from any tile."""
        if not tiling.causal or not self.even:
            return self.even
        seen = min(tile.position for tile in tiles)
        return max(0, min(self.even, (seen + 1 - self.first) // self.rows))

    def seen_by(self, tiling: Tiling, tiles: Sequence[Queries]) -> "Blocks":
        """What these tiles, of one head, need to know of the blocks in HBM; the same object for the same tiles."""
        assert self._known is not None
        key = tuple(tiles)
        if key not in self._known:
            self._known[key] = self._cut_for(tiling, tiles)
        return self._known[key]

    def _cut_for(self, tiling: Tiling, tiles: Sequence[Queries]) -> "Blocks":
        known = copy(self)
        known._known = None
        known._cut = known.even = self.hiding_nothing(tiling, tiles)
        seen = [b for b in self.after(known.even) if not all(tiling.hides_all(tile, b[0][0]) for tile in tiles)]
        known._all = tuple(seen)
        return known


def _blocks(runs: tuple[Run, ...], most: int) -> tuple[tuple[Run, ...], ...]:
    """The runs in order of position, in blocks of at most `most` keys; a longer run is cut."""
    blocks: list[tuple[Run, ...]] = []
    block: list[Run] = []
    room = most
    for position, rows in sorted(runs):
        while rows:
            if not room:
                blocks.append(tuple(block))
                block, room = [], most
            taken = min(rows, room)
            block.append((position, taken))
            position, rows, room = position + taken, rows - taken, room - taken
    return (*blocks, tuple(block)) if block else tuple(blocks)


def attend(tl: "TLContext", tiling: Tiling, user: int, pointers: Pointers, hops: list[Hop]) -> None:
    """Attention of one user's queries, (Q, K, V, O) at `pointers`, while chunks travel as `hops` say."""
    q_ptr, k_ptr, v_ptr, o_ptr = pointers
    tiles = tiling.query_tiles(user)
    if _fits_scratch(tl, tiling, user, tiles, pointers):
        outputs = _addresses(tl, tiling, o_ptr, tiles)
        _ride(
            tl, ScratchKeys(tl, tiling, user, k_ptr, v_ptr), _load_set(tl, tiling, q_ptr, tiles), tiling, hops, outputs
        )
        return
    keys = HbmKeys(tl, tiling, user, k_ptr, v_ptr)
    sets = _sets(tl, tiling, tiles, pointers)
    own = keys.messages(tiling.rank)
    keys.keep_own()
    first = _load_set(tl, tiling, q_ptr, sets[0])
    first.fold(keys, Blocks(own, tiling.block_kv))
    others = gather(tl, keys, hops)
    first.fold(keys, Blocks(others, tiling.block_kv))
    first.store(_addresses(tl, tiling, o_ptr, sets[0]))
    blocks = Blocks(own + others, tiling.block_kv)
    for some in sets[1:]:
        _fold_set(tl, tiling, pointers, keys, blocks, some)


def _fold_set(
    tl: "TLContext", tiling: Tiling, pointers: Pointers, keys: HbmKeys, blocks: Blocks, tiles: list[Queries]
) -> None:
    """A set over all keys. Sets of other heads and users differ in addresses only."""
    outputs = _addresses(tl, tiling, pointers[3], tiles)
    if not have_one_head(tiles):
        queries = _load_set(tl, tiling, pointers[0], tiles)
        queries.fold(keys, blocks)
        queries.store(outputs)
        return
    addresses = (*_addresses(tl, tiling, pointers[0], tiles), *outputs, *keys.addresses(tiles[0].head, 0))
    some = without_position(tiles)
    tl.routine(_fold_tiles, tl, tiling, some, blocks.seen_by(tiling, some), keys.row_bytes, at=addresses)


def _fold_tiles(
    tl: "TLContext", tiling: Tiling, tiles: tuple[Queries, ...], blocks: Blocks, row_bytes: tuple[int, int], *at: int
) -> None:
    """Tiles of one head over blocks of keys; `at` are the addresses of queries, output, K and V."""
    count = len(tiles)
    loaded = [tiling.load_rows(tl, address, tile.tokens) for address, tile in zip(at, tiles, strict=False)]
    queries = QuerySet(tl, tiling, tiles, loaded)
    del loaded
    queries.fold(HeadRows(tl, tiling, at[2 * count :], row_bytes), blocks)
    queries.store(at[count : 2 * count])


def _ride(
    tl: "TLContext", keys: KeyStore, queries: QuerySet, tiling: Tiling, hops: list[Hop], outputs: Sequence[int]
) -> None:
    """Everything in scratch: each step's messages are posted before what came with the last one is folded."""
    waiting = list(keys.messages(tiling.rank))
    keys.keep_own()
    for hop in hops:
        posted = _post(tl, keys, hop)
        if sum(rows for _, rows in waiting) >= tiling.block_kv:
            queries.fold(keys, Blocks(waiting, tiling.block_kv))
            waiting = []
        waiting += _collect(keys, posted)
    queries.fold(keys, Blocks(waiting, tiling.block_kv))
    queries.store(outputs)


# (owner, number, part, request) of what arrives, and the requests of what leaves
Posted = tuple[list[tuple[int, int, int, Any]], list[Any]]


def _post(tl: "TLContext", keys: KeyStore, hop: Hop, first: int = 0, count: int | None = None) -> Posted:
    """Post messages `first` and on of a hop: receives, then sends, none waited for, so that no order can block."""

    def numbers(owner: int) -> range:
        last = keys.count(owner) if count is None else min(first + count, keys.count(owner))
        return range(first, last)

    arriving = []
    for route in hop.receives:
        if route.owner is not None:
            for number in numbers(route.owner):
                shapes = keys.shapes(route.owner, number)
                for part in route.parts:
                    request = tl.recv_async(route.direction, shapes[2 * part], shapes[2 * part + 1])
                    arriving.append((route.owner, number, part, request))
    leaving = []
    for route in hop.sends:
        if route.owner is not None:
            for number in numbers(route.owner):
                pair = keys.get(route.owner, number)
                leaving += [tl.send_async(route.direction, pair[part]) for part in route.parts]
    return arriving, leaving


def _collect(keys: KeyStore, posted: Posted) -> list[Run]:
    """Wait for what was posted; the keys that arrived."""
    arriving, leaving = posted
    halves: dict[tuple[int, int], dict[int, TensorHandle]] = {}
    for owner, number, part, request in arriving:
        halves.setdefault((owner, number), {})[part] = request.wait()
    for request in leaving:
        request.wait()
    for (owner, number), pair in halves.items():
        keys.put(owner, number, (pair[KEY], pair[VALUE]))
    return [keys.messages(owner)[number] for owner, number in halves]


def gather(tl: "TLContext", keys: KeyStore, hops: list[Hop]) -> list[Run]:
    """All other ranks' keys, through to the store; one message is posted before the last one is waited for."""
    met: list[Run] = []
    for hop in hops:
        owners = [route.owner for route in hop.sends + hop.receives if route.owner is not None]
        ahead: Posted = ([], [])
        for number in range(max(map(keys.count, owners), default=0)):
            posted = _post(tl, keys, hop, number, 1)
            met += _collect(keys, ahead)
            ahead = posted
        met += _collect(keys, ahead)
    return met


class Room:
    """Bytes that the parts of a fold take in scratch, for tiles of `tokens` tokens and blocks of `keys` keys."""

    def __init__(self, tl: "TLContext", tiling: Tiling, pointers: Sequence[int], tokens: int, keys: int):
        q_size, *key_sizes = (ITEMSIZE[tl.element_type(p)] for p in pointers[:3])
        rows, width = tiling.group * tokens, tiling.h_kv * tiling.d_head
        # two blocks of scores with a mask, two of K and V, one that is being joined
        self.passing = 2 * (rows * keys * 4 + tokens * keys)
        self.passing += keys * tiling.d_head * (2 * sum(key_sizes) + max(key_sizes))
        # a query tile and its state
        self.tile = rows * (tiling.d_head * (4 + q_size) + 16)
        # K and V, in and out, on two sides, twice: one on its way and one posted
        self.messages = 8 * sum(max(message_bytes(tl), width * size) for size in key_sizes)
        self.key = width * sum(key_sizes)
        self.usable = int(tl.scratch_size * USABLE)


def sized(tl: "TLContext", tiling: Tiling, pointers: Pointers, grow: bool, merging: int = 0) -> Tiling:
    """The tiling with blocks, up to its own, that fit the scratch memory: fewer keys first, then fewer queries.

    `merging`: how many states of a tile are alive at once after it is folded, in a kernel that has no messages on their
    way while it folds. With `grow`, short sequences get smaller blocks: long ones fill the array better, but a causal
    mask hides part of the last block of every tile.
    """
    longest = max(tiling.total_kv)
    keys = max(1, min(tiling.block_kv, longest))
    if grow:
        keys = min(keys, max(SMALLEST_BLOCK, longest // 8))
    tiling = replace(tiling, block_kv=keys, block_q=min(tiling.block_q, tiling.group * max(1, tiling.S_q)))
    while not _fit(tl, tiling, pointers, merging) and (tiling.block_kv > FEW_KEYS or tiling.tokens_per_tile > 1):
        if tiling.block_kv > FEW_KEYS:
            tiling = replace(tiling, block_kv=-(-tiling.block_kv // 2))
        else:
            tiling = replace(tiling, block_q=tiling.group * (tiling.tokens_per_tile // 2))
    return tiling


def _fit(tl: "TLContext", tiling: Tiling, pointers: Pointers, merging: int) -> bool:
    room = Room(tl, tiling, pointers, tiling.tokens_per_tile, tiling.block_kv)
    if not merging:
        return room.passing + room.tile + room.messages <= room.usable
    return max(room.passing + merging * room.tile, room.messages) <= room.usable


def _room(tl: "TLContext", tiling: Tiling, tiles: Sequence[Queries], pointers: Pointers) -> Room:
    tokens = max((tile.tokens for tile in tiles), default=1)
    return Room(tl, tiling, pointers, tokens, tiling.block_kv)


def _fits_scratch(tl: "TLContext", tiling: Tiling, user: int, tiles: Sequence[Queries], pointers: Pointers) -> bool:
    """Whether all K and V, all query tiles and what folding needs lie in scratch at once."""
    room = _room(tl, tiling, tiles, pointers)
    return tiling.total_kv[user] * room.key + room.passing + len(tiles) * room.tile <= room.usable


def _sets(tl: "TLContext", tiling: Tiling, tiles: list[Queries], pointers: Pointers) -> list[list[Queries]]:
    """The tiles in sets that fit the scratch memory one at a time, with room for messages on their way."""
    room = _room(tl, tiling, tiles, pointers)
    most = max(1, (room.usable - room.passing - room.messages) // room.tile)
    return [tiles[i : i + most] for i in range(0, len(tiles), most)] or [[]]
