"""Attention while K and V travel past every rank: shared by the open-line and the closed-ring kernel.

Each rank keeps running states for its query tiles and processes every chunk (one rank's K and V) exactly once. If
everything fits, chunks stay in scratch from hop to hop. Otherwise a chunk is stored in HBM as it arrives, is
passed on from there, and queries are processed in sets: the first set during the waves, later sets read the stored
chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.online_softmax import State, finish, fold, start
from kernbench.benches.gqa_attention.parts.passing import Outline, Step, Travelling, pass_on
from kernbench.benches.gqa_attention.parts.routes import BOTH, Hop
from kernbench.benches.gqa_attention.parts.tiles import Keys, Queries, Tiling, by_head, have_one_head, without_position
from kernbench.benches.gqa_attention.parts.waves import Pair, PairShapes, exchange
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

# usable fraction of the scratch memory; the rest is for alignment and small values
USABLE = 0.9
# bytes of f32, the widest type
WIDEST = 4


# a block of a chunk that tiles see: rows, offsets of its K and V in the chunk, its position relative to the first
# hidden key, and the numbers of these tiles with whether some query of the tile does not see all of it
SeenBlock = tuple[int, int, int, int, tuple[tuple[int, bool], ...]]


class ChunkStore:
    """K and V blocks of all ranks that have reached this rank, by owner and block number; subclasses store them."""

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, k_ptr: int, v_ptr: int):
        self._tl = tl
        self._tiling = tiling
        self._user = user
        self._pointers = (k_ptr, v_ptr)
        self._types = (tl.element_type(k_ptr), tl.element_type(v_ptr))
        self._blocks: dict[int, list[Keys]] = {}
        self._shapes: dict[tuple[int, int], PairShapes] = {}

    def blocks(self, owner: int) -> list[Keys]:
        """The blocks of a rank's chunk."""
        if owner not in self._blocks:
            self._blocks[owner] = self._tiling.key_blocks(owner, self._user)
        return self._blocks[owner]

    def of_head(self, owner: int, head: int) -> list[tuple[int, Keys]]:
        """(number, block) of the blocks of one head: heads are cut alike."""
        blocks = self.blocks(owner)
        count = len(blocks) // self._tiling.h_kv
        return list(enumerate(blocks[head * count : (head + 1) * count], head * count))

    def read(self, owner: int, number: int, block: Keys) -> Pair:
        """A block to process, by its number and description."""
        return self.get(owner, number)

    def count(self, owner: int) -> int:
        """Number of blocks of a rank's chunk."""
        return len(self.blocks(owner))

    def shapes(self, owner: int, number: int) -> PairShapes:
        """Shape and element type of a block's K and V."""
        found = self._shapes.get((owner, number))
        if found is None:
            shape = self._tiling.key_shape(self.blocks(owner)[number])
            found = self._shapes[owner, number] = (shape, self._types[0], shape, self._types[1])
        return found

    def own(self, number: int) -> Pair:
        """A block of this rank's own chunk, loaded."""
        block = self.blocks(self._tiling.rank)[number]
        k, v = (self._tiling.load_keys(self._tl, p, self._user, block) for p in self._pointers)
        return k, v

    def get(self, owner: int, number: int) -> Pair:
        """A block as handles in scratch."""
        raise NotImplementedError

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Store a block that arrived."""
        raise NotImplementedError

    def exchange(self, hop: Hop) -> list[int]:
        """One step of the waves; returns the owners of the chunks that arrived."""
        return exchange(self._tl, self, hop)

    def keep(self, owners: set[int]) -> None:
        """Only these chunks will still be processed or passed on."""

    def close(self) -> None:
        """Nothing is exchanged any more: drop cached addresses of messages, so that loops have less to compare."""
        self._shapes.clear()


class ScratchChunks(ChunkStore):
    """Chunks stay in scratch until they are dropped."""

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, k_ptr: int, v_ptr: int):
        super().__init__(tl, tiling, user, k_ptr, v_ptr)
        self._held: dict[int, dict[int, Pair]] = {}

    def get(self, owner: int, number: int) -> Pair:
        """The handles it arrived as; the own chunk is loaded on first use."""
        blocks = self._held.setdefault(owner, {})
        if number not in blocks:
            blocks[number] = self.own(number)
        return blocks[number]

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Store the handles."""
        self._held.setdefault(owner, {})[number] = pair

    def keep(self, owners: set[int]) -> None:
        """Free the memory of the others."""
        self._held = {owner: blocks for owner, blocks in self._held.items() if owner in owners}


class HbmChunks(ChunkStore):
    """Chunks are stored in a workspace in HBM, [rank, K or V, block], and loaded whenever they are needed."""

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, k_ptr: int, v_ptr: int):
        super().__init__(tl, tiling, user, k_ptr, v_ptr)
        rows = tiling.n_ranks * tiling.h_kv * tiling.S_kv_per_rank
        landing = [(tl.workspace((rows, tiling.d_head), t, "landed chunks"), t) for t in self._types]
        # address of K and the bytes of its rows, and those of V
        self._rows = [number for base, t in landing for number in (base, tiling.d_head * ITEMSIZE[t])]
        self._landed: dict[tuple[int, int], tuple[int, int, tuple[int, int]]] = {}
        # offsets of the blocks in each chunk, with equal ones shared; and the steps that were exchanged
        self._outline_of: dict[int, Outline] = {}
        self._outlines: dict[object, Outline] = {}
        self._steps: dict[Step, Step] = {}

    def _landed_at(self, owner: int, number: int) -> tuple[int, int, tuple[int, int]]:
        """The addresses to which K and V of a block are received, and their shape."""
        found = self._landed.get((owner, number))
        if found is None:
            found = self._landed[owner, number] = self._landing_of(owner, self.blocks(owner)[number])
        return found

    def _landing_of(self, owner: int, block: Keys) -> tuple[int, int, tuple[int, int]]:
        tiling = self._tiling
        row = (owner * tiling.h_kv + block.head) * tiling.S_kv_per_rank + block.first
        k, k_bytes, v, v_bytes = self._rows
        return k + row * k_bytes, v + row * v_bytes, (block.rows, tiling.d_head)

    def read(self, owner: int, number: int, block: Keys) -> Pair:
        """By what it is."""
        return _read(self._tl, self._tiling, owner == self._tiling.rank, self.addresses(owner, block), block.rows)

    def addresses(self, owner: int, block: Keys) -> tuple[int, int]:
        """The addresses of K and V of a block: in the tensors, or where they were received."""
        if owner == self._tiling.rank:
            k, v = (self._tiling.key_address(self._tl, p, self._user, block) for p in self._pointers)
            return k, v
        return self._landing_of(owner, block)[:2]

    def begin(self, owner: int, head: int) -> tuple[int, int]:
        """The addresses of K and V of a head of a rank's chunk."""
        if owner == self._tiling.rank:
            return self.addresses(owner, Keys(head, 0, 0, 0))
        k, k_bytes, v, v_bytes = self._rows
        row = (owner * self._tiling.h_kv + head) * self._tiling.S_kv_per_rank
        return k + row * k_bytes, v + row * v_bytes

    def get(self, owner: int, number: int) -> Pair:
        """Load it from the tensor, or from where it was received."""
        if owner == self._tiling.rank:
            return self.own(number)
        k, v, shape = self._landed_at(owner, number)
        return self._tl.load(k, shape=shape), self._tl.load(v, shape=shape)

    def exchange(self, hop: Hop) -> list[int]:
        """As a routine, if whole pairs are exchanged."""
        sends, receives = ([(r.direction, r.owner) for r in some if r.owner is not None] for some in hop)
        if not sends and not receives:
            return []
        if any(route.parts != BOTH for route in (*hop.sends, *hop.receives)):
            return super().exchange(hop)
        parts = tuple(tuple(self._travelling(*one) for one in some) for some in (sends, receives))
        step = parts[0], parts[1], self._tiling.d_head, self._types
        begins = [address for _, owner in sends + receives for address in self.begin(owner, 0)]
        self._tl.routine(pass_on, self._tl, self._steps.setdefault(step, step), at=tuple(begins))
        return list(dict.fromkeys(owner for _, owner in receives))

    def _travelling(self, direction: str, owner: int) -> Travelling:
        outline = self._outline_of.get(owner)
        if outline is None:
            outline = self._outline_of[owner] = self._outline(owner)
        return direction, self._tiling.key_strides if owner == self._tiling.rank else None, outline

    def _outline(self, owner: int) -> Outline:
        blocks = self.blocks(owner)
        # all but positions, which do not affect addresses
        key = owner == self._tiling.rank, tuple([block[:3] for block in blocks])
        found = self._outlines.get(key)
        if found is None:
            found = self._outlines[key] = tuple(self._ahead(owner, block) for block in blocks)
        return found

    def _ahead(self, owner: int, block: Keys) -> tuple[int, int, int]:
        """Rows of a block, and the offsets of its K and V in its chunk."""
        k, v = (at - first for at, first in zip(self.addresses(owner, block), self.begin(owner, 0), strict=True))
        return block.rows, k, v

    def close(self) -> None:
        """Drop the addresses of messages as well."""
        super().close()
        self._landed.clear()
        self._outline_of.clear()
        self._outlines.clear()
        self._steps.clear()

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Store it."""
        k, v, _ = self._landed_at(owner, number)
        self._tl.store(k, pair[0])
        self._tl.store(v, pair[1])


def _read(tl: "TLContext", tiling: Tiling, is_own: bool, addresses: tuple[int, int], rows: int) -> Pair:
    """K and V of a block, from this rank's tensors or received."""
    if is_own:
        k, v = (tiling.load_key_rows(tl, address, rows) for address in addresses)
        return k, v
    shape, (k_address, v_address) = (rows, tiling.d_head), addresses
    return tl.load(k_address, shape=shape), tl.load(v_address, shape=shape)


class QuerySet:
    """Some query tiles of one user and their running states; `addresses` are those of each tile's rows in Q."""

    def __init__(self, tl: "TLContext", tiling: Tiling, addresses: Sequence[int], tiles: Sequence[Queries]):
        self._tl = tl
        self._tiling = tiling
        self._tiles = list(tiles)
        self._queries: list[TensorHandle] = [
            tiling.load_rows(tl, address, tile.tokens) for address, tile in zip(addresses, tiles, strict=True)
        ]
        self._mask: TensorHandle | None = None
        self._states: list[State] = [start(tl, tiling.group * t.tokens, tiling.d_head) for t in tiles]

    def fold_chunk(self, chunks: ChunkStore, owner: int) -> None:
        """Process `owner`'s chunk for every tile that sees some of it."""
        k = v = None
        if not self._sees(chunks.blocks(owner)):
            return
        for head, tiles in by_head(self._tiles):
            for number, block in chunks.of_head(owner, head):
                seen = seeing(self._tiling, self._tiles, tiles, block)
                if seen:
                    k, v = chunks.read(owner, number, block)
                    self.fold_block(seen, k, v, (block.position, block.rows))
        del k, v
        self.drop_mask()

    def _sees(self, blocks: Sequence[Keys]) -> bool:
        """Whether any tile sees some of these keys."""
        first = min((block.position for block in blocks), default=0)
        return any(not self._tiling.hides_all(tile, first) for tile in self._tiles)

    def fold_block(
        self, tiles: Sequence[tuple[int, bool]], k: TensorHandle, v: TensorHandle, run: tuple[int, int]
    ) -> None:
        """Process a block, (position, rows) of keys, for some tiles, with whether some of it is hidden from each."""
        tl, tiling = self._tl, self._tiling
        for i, hidden in tiles:
            # held until the next is made
            self._mask = tiling.visible(tl, self._tiles[i], run) if hidden else None
            self._states[i] = fold(tl, self._states[i], self._queries[i], k, v, tiling.scale, self._mask)

    def drop_mask(self) -> None:
        """Free the memory of the last mask."""
        self._mask = None

    def store(self, addresses: Sequence[int]) -> None:
        """Normalise and store every tile; `addresses` are those of each tile's rows in O."""
        while self._tiles:
            tile = self._tiles.pop()
            rows = finish(self._tl, self._states.pop())
            self._tiling.store_rows(self._tl, addresses[len(self._tiles)], tile.tokens, rows)
            self._queries.pop()


def seeing(
    tiling: Tiling, tiles: Sequence[Queries], numbers: Sequence[int], block: Keys
) -> tuple[tuple[int, bool], ...]:
    """Those of some tiles that see part of a block, by number, with whether some query does not see all of it."""
    run = block.position, block.rows
    seen = [i for i in numbers if not tiling.hides_all(tiles[i], block.position)]
    return tuple((i, tiling.masks(tiles[i], run)) for i in seen)


@dataclass(frozen=True)
class SeenChunks:
    """What tiles of one head see of received chunks, without addresses: for each whether it is this rank's own, and
    the blocks.
    """

    chunks: tuple[tuple[bool, tuple[SeenBlock, ...]], ...]


class Landed:
    """The chunks that were received, for sets of tiles that read them from HBM."""

    def __init__(self, tiling: Tiling, chunks: HbmChunks, met: Sequence[int]):
        self._tiling = tiling
        self._chunks = chunks
        self._met = list(met)
        # ranks differ in addresses and positions only
        self.alike = replace(tiling, rank=0)
        # by what is seen, and by the tiles that see it: equal for all heads and users
        self._same: dict[object, SeenChunks] = {}
        self._known: dict[tuple[Queries, ...], tuple[SeenChunks, list[int], int]] = {}
        self._begins: dict[int, dict[int, tuple[int, int]]] = {}

    def begins(self, head: int) -> dict[int, tuple[int, int]]:
        """The addresses of K and V of a head of each chunk, by its owner."""
        if head not in self._begins:
            self._begins[head] = {owner: self._chunks.begin(owner, head) for owner in self._met}
        return self._begins[head]

    def seen_by(self, tiles: tuple[Queries, ...]) -> tuple[SeenChunks, list[int], int]:
        """What these tiles see, the owners of these chunks, and the position from which on keys are hidden."""
        if tiles not in self._known:
            numbers = range(len(tiles))
            blocks = {owner: [block for _, block in self._chunks.of_head(owner, 0)] for owner in self._met}
            seen = {
                owner: [(b, some) for b in blocks[owner] if (some := seeing(self._tiling, tiles, numbers, b))]
                for owner in self._met
            }
            owners = [owner for owner in self._met if seen[owner]]
            hidden = (b.position for o in owners for b, some in seen[o] if any(masked for _, masked in some))
            origin = min(hidden, default=0)
            parts = tuple((o == self._tiling.rank, self._moved(o, seen[o], origin)) for o in owners)
            self._known[tiles] = self._same.setdefault(parts, SeenChunks(parts)), owners, origin
        return self._known[tiles]

    def _moved(
        self, owner: int, seen: list[tuple[Keys, tuple[tuple[int, bool], ...]]], origin: int
    ) -> tuple[SeenBlock, ...]:
        """The blocks of a chunk without the addresses and positions that differ from one to another."""
        begin, found = self._chunks.begin(owner, 0), []
        for block, some in seen:
            k, v = (at - first for at, first in zip(self._chunks.addresses(owner, block), begin, strict=True))
            position = block.position - origin if any(masked for _, masked in some) else 0
            found.append((block.rows, k, v, position, some))
        return tuple(found)


def plan(tl: "TLContext", tiling: Tiling, user: int) -> tuple[type[ChunkStore], list[list[Queries]]]:
    """The store of chunks, and the query tiles in sets that fit the scratch memory one at a time."""
    tiles = tiling.query_tiles(user)
    tile_rows = tiling.group * min(tiling.tokens_per_tile, max(1, tiling.query_rows()))
    keys = min(tiling.block_kv, tiling.S_kv_per_rank)
    block_bytes = 2 * keys * tiling.d_head * WIDEST
    passing = 3 * tile_rows * keys * WIDEST + 2 * tile_rows * tiling.d_head * WIDEST
    resident = tile_rows * (2 * tiling.d_head + 4) * WIDEST
    usable = int(tl.scratch_size * USABLE)
    # two waves, each with the chunk it is passing on and the one arriving
    chunks = 4 * 2 * tiling.S_kv_per_rank * tiling.h_kv * tiling.d_head * WIDEST
    if chunks + passing + len(tiles) * resident <= usable:
        return ScratchChunks, [tiles]
    room = max(1, (usable - passing - 4 * block_bytes) // resident)
    sets = [tiles[i : i + room] for i in range(0, len(tiles), room)]
    return HbmChunks, sets or [[]]


Pointers = tuple[int, int, int, int]


def attend(tl: "TLContext", tiling: Tiling, user: int, pointers: Pointers, hops: list[Hop]) -> None:
    """Attention of one user's queries, (Q, K, V, O) at `pointers`, while chunks are exchanged along `hops`."""
    q_ptr, k_ptr, v_ptr, o_ptr = pointers
    store, query_sets = plan(tl, tiling, user)
    chunks = store(tl, tiling, user, k_ptr, v_ptr)
    first = query_sets[0]
    queries = QuerySet(tl, tiling, _addresses(tl, tiling, q_ptr, first), first)
    queries.fold_chunk(chunks, tiling.rank)
    met = [tiling.rank]
    for hop in hops:
        arrived = chunks.exchange(hop)
        chunks.keep(set(arrived))
        for owner in arrived:
            queries.fold_chunk(chunks, owner)
        met += arrived
    queries.store(_addresses(tl, tiling, o_ptr, first))
    del queries
    chunks.close()
    landed = Landed(tiling, chunks, met) if isinstance(chunks, HbmChunks) else None
    for tiles in query_sets[1:]:
        _fold_set(tl, tiling, pointers, chunks, (met, landed), tiles)


def _addresses(tl: "TLContext", tiling: Tiling, pointer: int, tiles: Sequence[Queries]) -> list[int]:
    """The addresses of each tile's rows in Q, or in O."""
    return [tiling.query_address(tl, pointer, tile) for tile in tiles]


def _fold_set(
    tl: "TLContext",
    tiling: Tiling,
    pointers: Pointers,
    chunks: ChunkStore,
    met: tuple[list[int], Landed | None],
    tiles: list[Queries],
) -> None:
    """A set over the chunks that were met, known by their owners and, if they landed, by what is seen of them.

    Sets that see the same shapes differ in addresses and positions only.
    """
    queries, outputs = (_addresses(tl, tiling, pointer, tiles) for pointer in (pointers[0], pointers[3]))
    landed = met[1]
    if landed is not None and isinstance(chunks, HbmChunks) and have_one_head(tiles):
        seen, owners, origin = landed.seen_by(without_position(tiles))
        where = landed.begins(tiles[0].head)
        begins = [address for owner in owners for address in where[owner]]
        at = (*queries, *outputs, *(tile.position for tile in tiles), origin, *begins)
        tl.routine(_fold_tiles, tl, landed.alike, tuple(tile.tokens for tile in tiles), seen, at=at)
        return
    some = QuerySet(tl, tiling, queries, tiles)
    for owner in met[0]:
        some.fold_chunk(chunks, owner)
    some.store(outputs)


def _fold_tiles(tl: "TLContext", tiling: Tiling, tokens: tuple[int, ...], seen: SeenChunks, *at: int) -> None:
    """Tiles of one head over chunks; `at` are the addresses of the queries and of the output, the positions of the
    tiles, the one from which on keys are hidden, and the addresses of K and V of each chunk.
    """
    count = len(tokens)
    tiles = [Queries(0, 0, 0, some, at[2 * count + i]) for i, some in enumerate(tokens)]
    queries = QuerySet(tl, tiling, at[:count], tiles)
    origin, begins = at[3 * count], at[3 * count + 1 :]
    for number, (is_own, blocks) in enumerate(seen.chunks):
        _fold_chunk(tl, tiling, queries, (is_own, blocks), begins[2 * number : 2 * number + 2], origin)
    queries.store(at[count : 2 * count])


def _fold_chunk(
    tl: "TLContext",
    tiling: Tiling,
    queries: QuerySet,
    chunk: tuple[bool, tuple[SeenBlock, ...]],
    begin: Sequence[int],
    origin: int,
) -> None:
    """The blocks of a chunk with K and V at these addresses; keys are hidden from a position on."""
    is_own, blocks = chunk
    k_begin, v_begin = begin
    k = v = None
    for rows, k_ahead, v_ahead, position, some in blocks:
        k, v = _read(tl, tiling, is_own, (k_begin + k_ahead, v_begin + v_ahead), rows)
        queries.fold_block(some, k, v, (origin + position, rows))
    del k, v
    queries.drop_mask()
