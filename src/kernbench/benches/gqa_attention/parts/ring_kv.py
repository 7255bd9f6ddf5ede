"""Attention while K and V travel past every rank: what the open-line and the closed-ring kernel share.

Each rank keeps running states for its query tiles and folds every chunk (one rank's K and V) exactly once. Where
everything fits, chunks stay in scratch from hop to hop. Where it does not, a chunk lands in HBM as it arrives, is
passed on from there, and queries are done in turns: the first set rides along with the waves, later sets read what
landed.
"""

from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.online_softmax import State, finish, fold, start
from kernbench.benches.gqa_attention.parts.routes import Hop
from kernbench.benches.gqa_attention.parts.tiles import Keys, Queries, Tiling, by_head, sets_of_head
from kernbench.benches.gqa_attention.parts.waves import Pair, PairShapes, exchange
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

# of the scratch memory; the rest is for what alignment and small values take
USABLE = 0.9
# f32, the widest
WIDEST = 4


class ChunkStore:
    """K and V blocks of all ranks that this rank has met, by owner and block number; subclasses say where they lie."""

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
        """(number, block) of the blocks of one head, which may be the index of a loop: heads are cut alike."""
        blocks = self.blocks(owner)
        count = len(blocks) // self._tiling.h_kv
        return [(head * count + i, block._replace(head=head)) for i, block in enumerate(blocks[:count])]

    def read(self, owner: int, number: int, block: Keys) -> Pair:
        """A block to fold, known by its number and by what it is."""
        return self.get(owner, number)

    def count(self, owner: int) -> int:
        """How many blocks a rank's chunk has."""
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
        """Keep a block that arrived."""
        raise NotImplementedError

    def keep(self, owners: set[int]) -> None:
        """Only these chunks will still be folded or passed on."""

    def close(self) -> None:
        """Nothing travels any more: what was worked out for messages goes, so that loops have less to compare."""
        self._shapes.clear()


class ScratchChunks(ChunkStore):
    """Chunks stay in scratch until they are dropped."""

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, k_ptr: int, v_ptr: int):
        super().__init__(tl, tiling, user, k_ptr, v_ptr)
        self._held: dict[int, dict[int, Pair]] = {}

    def get(self, owner: int, number: int) -> Pair:
        """The handles it arrived as; the own chunk is loaded when first asked for."""
        blocks = self._held.setdefault(owner, {})
        if number not in blocks:
            blocks[number] = self.own(number)
        return blocks[number]

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Keep the handles."""
        self._held.setdefault(owner, {})[number] = pair

    def keep(self, owners: set[int]) -> None:
        """Give the space of the others back."""
        self._held = {owner: blocks for owner, blocks in self._held.items() if owner in owners}


class HbmChunks(ChunkStore):
    """Chunks land in a workspace in HBM, [rank, K or V, block], and are loaded whenever they are needed."""

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, k_ptr: int, v_ptr: int):
        super().__init__(tl, tiling, user, k_ptr, v_ptr)
        rows = tiling.n_ranks * tiling.h_kv * tiling.S_kv_per_rank
        self._landing = [tl.workspace((rows, tiling.d_head), t, "landed chunks") for t in self._types]
        self._places: dict[tuple[int, int], tuple[int, int, tuple[int, int]]] = {}

    def _place(self, owner: int, number: int) -> tuple[int, int, tuple[int, int]]:
        """Where K and V of a block land, and their shape."""
        found = self._places.get((owner, number))
        if found is None:
            found = self._places[owner, number] = self._place_of(owner, self.blocks(owner)[number])
        return found

    def _place_of(self, owner: int, block: Keys) -> tuple[int, int, tuple[int, int]]:
        tiling = self._tiling
        row = (owner * tiling.h_kv + block.head) * tiling.S_kv_per_rank + block.first
        k, v = (base + row * tiling.d_head * ITEMSIZE[t] for base, t in zip(self._landing, self._types, strict=True))
        return k, v, tiling.key_shape(block)

    def read(self, owner: int, number: int, block: Keys) -> Pair:
        """By what it is: its head may be the index of a loop."""
        if owner == self._tiling.rank:
            k, v = (self._tiling.load_keys(self._tl, p, self._user, block) for p in self._pointers)
            return k, v
        k_place, v_place, shape = self._place_of(owner, block)
        return self._tl.load(k_place, shape=shape), self._tl.load(v_place, shape=shape)

    def get(self, owner: int, number: int) -> Pair:
        """Load it from the tensor, or from where it landed."""
        if owner == self._tiling.rank:
            return self.own(number)
        k, v, shape = self._place(owner, number)
        return self._tl.load(k, shape=shape), self._tl.load(v, shape=shape)

    def close(self) -> None:
        """The places of messages as well."""
        super().close()
        self._places.clear()

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Store it."""
        k, v, _ = self._place(owner, number)
        self._tl.store(k, pair[0])
        self._tl.store(v, pair[1])


class QuerySet:
    """Some query tiles of one user and their running states."""

    def __init__(self, tl: "TLContext", tiling: Tiling, q_ptr: int, tiles: list[Queries]):
        self._tl = tl
        self._tiling = tiling
        self._tiles = tiles
        self._queries: list[TensorHandle] = [tiling.load_queries(tl, q_ptr, t) for t in tiles]
        self._states: list[State] = [start(tl, tiling.group * t.tokens, tiling.d_head) for t in tiles]

    def fold_chunk(self, chunks: ChunkStore, owner: int) -> None:
        """Fold `owner`'s chunk into every tile that sees some of it."""
        tiling = self._tiling
        for head, tiles in by_head(self._tiles):
            for number, block in chunks.of_head(owner, head):
                seen = [i for i in tiles if not tiling.hides_all(self._tiles[i], block.position)]
                if not seen:
                    continue
                k, v = chunks.read(owner, number, block)
                for i in seen:
                    mask = tiling.mask(self._tl, self._tiles[i], (block.position, block.rows))
                    self._states[i] = fold(self._tl, self._states[i], self._queries[i], k, v, tiling.scale, mask)

    def store(self, o_ptr: int) -> None:
        """Normalise and store every tile."""
        while self._tiles:
            self._tiling.store_output(self._tl, o_ptr, self._tiles.pop(), finish(self._tl, self._states.pop()))
            self._queries.pop()


def plan(tl: "TLContext", tiling: Tiling, user: int) -> tuple[type[ChunkStore], list[list[Queries]]]:
    """Where chunks are kept, and the query tiles in sets that fit the scratch memory one at a time."""
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
    """Attention of one user's queries, (Q, K, V, O) at `pointers`, while chunks travel as `hops` say."""
    q_ptr, k_ptr, v_ptr, o_ptr = pointers
    store, query_sets = plan(tl, tiling, user)
    chunks = store(tl, tiling, user, k_ptr, v_ptr)
    queries = QuerySet(tl, tiling, q_ptr, list(query_sets[0]))
    queries.fold_chunk(chunks, tiling.rank)
    met = [tiling.rank]
    for hop in hops:
        arrived = exchange(tl, chunks, hop)
        chunks.keep(set(arrived))
        for owner in arrived:
            queries.fold_chunk(chunks, owner)
        met += arrived
    queries.store(o_ptr)
    chunks.close()
    _fold_sets(tl, tiling, pointers, chunks, met, query_sets)


def _fold_sets(
    tl: "TLContext", tiling: Tiling, pointers: Pointers, chunks: ChunkStore, met: list[int], sets: list[list[Queries]]
) -> None:
    """All sets but the first, over the chunks that were met; heads that differ in addresses only are a loop."""

    def fold_set(tiles: list[Queries]) -> None:
        queries = QuerySet(tl, tiling, pointers[0], tiles)
        for owner in met:
            queries.fold_chunk(chunks, owner)
        queries.store(pointers[3])

    of_head, alike = sets_of_head(sets, tiling.h_kv)
    for tiles in sets[1 : len(of_head) if alike else None]:
        fold_set(list(tiles))
    for head in tl.range(1, tiling.h_kv if alike else 1):
        for tiles in of_head:
            fold_set([tile._replace(head=head) for tile in tiles])
