"""Attention while K and V stream past: communication, GEMM and MATH overlap.

While a chunk is processed the next is already being exchanged, posted before
(double buffering). And while MATH works on the scores of one block, GEMM already computes those of the next: its
commands come first in the program, and engines run in order.

Blocks are processed by position, not by owner: what arrived is joined to blocks of up to `block_kv` keys. If K and V
do not fit the scratch memory they are stored in HBM; the first query tiles process the rank's own chunk meanwhile.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernbench.benches.gqa_attention.parts.key_store import HbmKeys, KeyStore, Run, ScratchKeys, head_rows, joined
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

# usable fraction of the scratch memory; the rest is for masks, small values and gaps between blocks
USABLE = 0.85
FEW_KEYS, SMALLEST_BLOCK, LARGEST_BLOCK, LARGEST_TILE = 64, 128, 512, 512
Pointers = tuple[int, int, int, int]
# for each block of keys that tiles of one head see: its runs, and the numbers of these tiles with whether some query of
# the tile does not see all of it
SeenBlocks = tuple[tuple[tuple[Run, ...], tuple[tuple[int, bool], ...]], ...]
# (count, keys) of the blocks without a hidden key for any tile, and those after them, from the first key of these on
Seen = tuple[int, int, SeenBlocks]
# scores that were computed and not yet absorbed: their tile, the scores, the values, and the keys if some are hidden
Ahead = tuple[int, TensorHandle, TensorHandle, tuple[Run, ...]]


class QuerySet:
    """Some query tiles of one user and their running states."""

    def __init__(self, tl: "TLContext", tiling: Tiling, tiles: Sequence[Queries], queries: list[TensorHandle]):
        self._tl = tl
        self._tiling = tiling
        self._tiles = list(tiles)
        self._queries = queries
        self._states: list[State] = [start(tl, tiling.group * t.tokens, tiling.d_head) for t in tiles]

    def fold(self, keys: KeyStore, blocks: "Blocks") -> None:
        """Process these keys for every tile that sees some of them; scores are computed one block ahead."""
        ahead: Ahead | None = None
        for head, tiles in by_head(self._tiles):
            even, rows, seen = blocks.seen_by(self._tiling, [self._tiles[i] for i in tiles], keys.is_contiguous)
            if even:
                ahead = self._fold_even(keys.addresses(head, blocks.first), keys.row_bytes, (rows, even), tiles, ahead)
            for block, some in seen:
                k, v = keys.head(head, block)
                ahead = self._fold_block(k, v, [(tiles[i], hidden) for i, hidden in some], block, ahead)
        if ahead is not None:
            self._absorb(*ahead)

    def fold_rows(self, seen: Seen, row_bytes: tuple[int, int], at: Sequence[int], origin: int) -> None:
        """Process what tiles of one head see of keys in HBM. `at` are the addresses of K and V from the first key on,
        and from the first hidden key on, at position `origin`.
        """
        even, rows, further = seen
        tiles, ahead = range(len(self._tiles)), None
        if even:
            ahead = self._fold_even(at[:2], row_bytes, (rows, even), tiles, ahead)
        for block, some in further:
            k, v = head_rows(self._tl, self._tiling, at[2:], row_bytes, block)
            there = tuple((origin + position, count) for position, count in block)
            ahead = self._fold_block(k, v, some, there, ahead)
        if ahead is not None:
            self._absorb(*ahead)

    def _fold_block(
        self,
        k: TensorHandle,
        v: TensorHandle,
        tiles: Sequence[tuple[int, bool]],
        block: tuple[Run, ...],
        ahead: Ahead | None,
    ) -> Ahead | None:
        for tile, hidden in tiles:
            s = self._tl.dot(self._queries[tile], self._tl.trans(k))
            if ahead is not None:
                self._absorb(*ahead)
            ahead = (tile, s, v, block if hidden else ())
        return ahead

    def _fold_even(
        self,
        addresses: Sequence[int],
        row_bytes: tuple[int, int],
        blocks: tuple[int, int],
        tiles: Sequence[int],
        ahead: Ahead | None,
    ) -> Ahead | None:
        """Process `count` blocks of `rows` keys without a mask: the long loop of a prefill. `addresses` are those of
        the first K and V. The loop refers to few values, because these are compared between iterations.
        """
        tl, d_head, width = self._tl, self._tiling.d_head, self._tiling.h_kv * self._tiling.d_head
        (k_first, v_first), (rows, count) = addresses, blocks
        k_step, v_step = (rows * size for size in row_bytes)
        some = tuple((tile, False) for tile in tiles)
        for j in tl.range(count):
            k = tl.load(k_first + j * k_step, shape=(rows, d_head), strides=(width, 1))
            v = tl.load(v_first + j * v_step, shape=(rows, d_head), strides=(width, 1))
            ahead = self._fold_block(k, v, some, (), ahead)
        return ahead

    def _absorb(self, tile: int, s: TensorHandle, v: TensorHandle, hidden: tuple[Run, ...]) -> None:
        mask = self._tiling.visible(self._tl, self._tiles[tile], *hidden) if hidden else None
        self._states[tile] = absorb(self._tl, self._states[tile], s, v, self._tiling.scale, mask)

    def take(self) -> State:
        """The state of the last tile, which is removed from the set."""
        self._tiles.pop()
        self._queries.pop()
        return self._states.pop()

    def store(self, addresses: Sequence[int]) -> None:
        """Normalise and store every tile; `addresses` are those of each tile's rows in O."""
        while self._tiles:
            address, tokens = addresses[len(self._tiles) - 1], self._tiles[-1].tokens
            self._tiling.store_rows(self._tl, address, tokens, finish(self._tl, self.take()))


def _addresses(tl: "TLContext", tiling: Tiling, pointer: int, tiles: Sequence[Queries]) -> list[int]:
    """The addresses of each tile's rows in Q, or in O."""
    return [tiling.query_address(tl, pointer, tile) for tile in tiles]


def _load_set(tl: "TLContext", tiling: Tiling, q_ptr: int, tiles: Sequence[Queries]) -> QuerySet:
    """A set of this rank's own tiles."""
    return QuerySet(tl, tiling, tiles, [tiling.load_queries(tl, q_ptr, tile) for tile in tiles])


class Blocks:
    """Runs of keys in blocks, in the order of processing. Made once for all tiles, outside of their loops.

    The first `even` blocks have `rows` keys each that follow one another from position `first` on.
    """

    def __init__(self, runs: Sequence[Run], most: int):
        """Blocks of at most `most` keys."""
        self._all = _blocks(tuple(runs), most)
        # what tiles of one head see, by these tiles: equal for all heads and users
        self._known: dict[tuple[Queries, ...], tuple[Seen, int]] = {}
        self.first, self.rows = joined(self._all[0])[0] if self._all else (0, 0)
        self.even = next((n for n, block in enumerate(self._all) if not self._is_even(n, block)), len(self._all))

    def _is_even(self, number: int, block: tuple[Run, ...]) -> bool:
        return joined(block) == [(self.first + number * self.rows, self.rows)]

    def _hiding_nothing(self, tiling: Tiling, tiles: Sequence[Queries]) -> int:
        """How many of the even blocks, from the first on, have no hidden key for any tile."""
        if not tiling.causal or not self.even:
            return self.even
        seen = min(tile.position for tile in tiles)
        return max(0, min(self.even, (seen + 1 - self.first) // self.rows))

    def seen_by(self, tiling: Tiling, tiles: Sequence[Queries], is_contiguous: bool = True) -> Seen:
        """The keys that these tiles, of one head, see; all blocks are listed if they are not contiguous."""
        even = self._hiding_nothing(tiling, tiles) if is_contiguous else 0
        found = []
        for block in self._all[even:]:
            some = [(i, tile) for i, tile in enumerate(tiles) if not tiling.hides_all(tile, block[0][0])]
            if some:
                found.append((block, tuple((i, tiling.masks(tile, *block)) for i, tile in some)))
        return even, self.rows, tuple(found)

    def alike(self, tiling: Tiling, tiles: Sequence[Queries]) -> tuple[Seen, int]:
        """`seen_by` of keys in HBM, with positions relative to the first hidden key, and that key's position: the
        same for all tiles that see equal shapes.
        """
        key = tuple(tiles)
        if key not in self._known:
            even, rows, found = self.seen_by(tiling, tiles)
            origin = found[0][0][0][0] if found else 0
            moved = [(tuple((at - origin, count) for at, count in block), some) for block, some in found]
            self._known[key] = (even, rows, tuple(moved)), origin
        return self._known[key]


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
    """Attention of one user's queries, (Q, K, V, O) at `pointers`, while chunks are exchanged along `hops`."""
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
    # ranks differ in addresses and positions only
    alike = replace(tiling, rank=0)
    for some in sets[1:]:
        _fold_set(tl, (tiling, alike), pointers, keys, blocks, some)


def _fold_set(
    tl: "TLContext",
    tilings: tuple[Tiling, Tiling],
    pointers: Pointers,
    keys: HbmKeys,
    blocks: Blocks,
    tiles: list[Queries],
) -> None:
    """Process a set over all keys, with the tiling of this rank and that of any. Sets that see equal shapes differ in
    addresses and positions only.
    """
    tiling, alike = tilings
    outputs = _addresses(tl, tiling, pointers[3], tiles)
    if not have_one_head(tiles):
        queries = _load_set(tl, tiling, pointers[0], tiles)
        queries.fold(keys, blocks)
        queries.store(outputs)
        return
    seen, origin = blocks.alike(tiling, without_position(tiles))
    head, inputs = tiles[0].head, _addresses(tl, tiling, pointers[0], tiles)
    at = (*inputs, *outputs, *(tile.position for tile in tiles), *lying_at(keys, head, blocks, origin), origin)
    tl.routine(_fold_tiles, tl, alike, tuple(tile.tokens for tile in tiles), seen, keys.row_bytes, at=at)


def lying_at(keys: HbmKeys, head: int, blocks: Blocks, origin: int) -> tuple[int, ...]:
    """The addresses of K and V of a head from the first block on, and from the position `origin` on."""
    return *keys.addresses(head, blocks.first), *keys.addresses(head, origin)


def _fold_tiles(
    tl: "TLContext", tiling: Tiling, tokens: tuple[int, ...], seen: Seen, row_bytes: tuple[int, int], *at: int
) -> None:
    """Tiles of one head over blocks of keys; `at` are the addresses of queries and of output, the positions of the
    tiles, four addresses of keys, and the position `origin`.
    """
    count = len(tokens)
    loaded = [tiling.load_rows(tl, address, some) for address, some in zip(at, tokens, strict=False)]
    tiles = [Queries(0, 0, 0, some, at[2 * count + i]) for i, some in enumerate(tokens)]
    queries = QuerySet(tl, tiling, tiles, loaded)
    del loaded
    queries.fold_rows(seen, row_bytes, at[-5:-1], at[-1])
    queries.store(at[count : 2 * count])


def _ride(
    tl: "TLContext", keys: KeyStore, queries: QuerySet, tiling: Tiling, hops: list[Hop], outputs: Sequence[int]
) -> None:
    """Everything in scratch: each step's messages are posted before the keys of the last one are processed."""
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


# (owner, number, part, request) of what is received, and the requests of what is sent
Posted = tuple[list[tuple[int, int, int, Any]], list[Any]]


def _post(tl: "TLContext", keys: KeyStore, hop: Hop, first: int = 0, count: int | None = None) -> Posted:
    """Post messages `first` and on of a hop: receives, then sends, without waiting, so that no order can block."""

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
    """Wait for what was posted; returns the keys that arrived."""
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
    """Receive all other ranks' keys into the store; one message is posted before the last one is waited for."""
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
    """Bytes of the buffers in scratch, for tiles of `tokens` tokens and blocks of `keys` keys."""

    def __init__(self, tl: "TLContext", tiling: Tiling, pointers: Sequence[int], tokens: int, keys: int):
        q_size, *key_sizes = (ITEMSIZE[tl.element_type(p)] for p in pointers[:3])
        rows, width = tiling.group * tokens, tiling.h_kv * tiling.d_head
        # two blocks of scores with a mask, two of K and V, one that is being joined
        self.passing = 2 * (rows * keys * 4 + tokens * keys)
        self.passing += keys * tiling.d_head * (2 * sum(key_sizes) + max(key_sizes))
        # a query tile and its state
        self.tile = rows * (tiling.d_head * (4 + q_size) + 16)
        # K and V, in and out, on two sides, twice: one in flight and one posted
        self.messages = 8 * sum(max(message_bytes(tl), width * size) for size in key_sizes)
        self.key = width * sum(key_sizes)
        self.usable = int(tl.scratch_size * USABLE)


def sized(tl: "TLContext", tiling: Tiling, pointers: Pointers, grow: bool, merging: int = 0) -> Tiling:
    """The tiling with blocks, up to its own sizes, that fit the scratch memory: fewer keys first, then fewer queries.

    `merging`: how many states of a tile exist at once after it is processed, in a kernel that has no messages in
    flight meanwhile. With `grow`, short sequences get smaller blocks: long ones fill the array better, but a causal
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
    """Whether all K and V, all query tiles and all buffers fit into scratch at once."""
    room = _room(tl, tiling, tiles, pointers)
    return tiling.total_kv[user] * room.key + room.passing + len(tiles) * room.tile <= room.usable


def _sets(tl: "TLContext", tiling: Tiling, tiles: list[Queries], pointers: Pointers) -> list[list[Queries]]:
    """The tiles in sets that fit the scratch memory one at a time, with room for messages in flight."""
    room = _room(tl, tiling, tiles, pointers)
    most = max(1, (room.usable - room.passing - room.messages) // room.tile)
    return [tiles[i : i + most] for i in range(0, len(tiles), most)] or [[]]
