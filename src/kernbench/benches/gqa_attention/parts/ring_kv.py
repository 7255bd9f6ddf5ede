"""Attention while K and V travel past every rank: what the open-line and the closed-ring kernel share.

Each rank keeps running states for its query tiles and folds every chunk (one rank's K and V) exactly once. Where
everything fits, chunks stay in scratch from hop to hop. Where it does not, a chunk lands in HBM as it arrives, is
passed on from there, and queries are done in turns: the first set rides along with the waves, later sets read what
landed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.online_softmax import State, finish, fold, start
from kernbench.benches.gqa_attention.parts.routes import Hop
from kernbench.benches.gqa_attention.parts.tiles import Keys, Queries, Tiling, by_head, have_one_head, without_position
from kernbench.benches.gqa_attention.parts.waves import Pair, PairShapes, exchange
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

# of the scratch memory; the rest is for what alignment and small values take
USABLE = 0.9
# f32, the widest
WIDEST = 4


# whether a chunk is this rank's own; of each block of it position and rows, and how far its K and V lie from the first
Part = tuple[bool, tuple[tuple[int, int, int, int], ...]]


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
        """(number, block) of the blocks of one head: heads are cut alike."""
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
        self._landed: dict[tuple[int, int], tuple[int, int, tuple[int, int]]] = {}

    def _landed_at(self, owner: int, number: int) -> tuple[int, int, tuple[int, int]]:
        """Where K and V of a block land, and their shape."""
        found = self._landed.get((owner, number))
        if found is None:
            found = self._landed[owner, number] = self._landing_of(owner, self.blocks(owner)[number])
        return found

    def _landing_of(self, owner: int, block: Keys) -> tuple[int, int, tuple[int, int]]:
        tiling = self._tiling
        row = (owner * tiling.h_kv + block.head) * tiling.S_kv_per_rank + block.first
        k, v = (base + row * tiling.d_head * ITEMSIZE[t] for base, t in zip(self._landing, self._types, strict=True))
        return k, v, tiling.key_shape(block)

    def read(self, owner: int, number: int, block: Keys) -> Pair:
        """By what it is."""
        return _read(self._tl, self._tiling, owner == self._tiling.rank, self.addresses(owner, block), block.rows)

    def addresses(self, owner: int, block: Keys) -> tuple[int, int]:
        """Where K and V of a block lie: in the tensors, or where they landed."""
        if owner == self._tiling.rank:
            k, v = (self._tiling.key_address(self._tl, p, self._user, block) for p in self._pointers)
            return k, v
        return self._landing_of(owner, block)[:2]

    def begin(self, owner: int | None, head: int) -> tuple[int, int]:
        """Where K and V of a head begin in the tensors, or for no owner where they landed."""
        block = Keys(head, 0, 0, 0)
        return self._landing_of(0, block)[:2] if owner is None else self.addresses(owner, block)

    def part(self, owner: int) -> Part:
        """The blocks of one head of a rank's chunk, without the addresses that differ from head to head."""
        is_own = owner == self._tiling.rank
        begin = self.begin(owner if is_own else None, 0)
        blocks = [block for _, block in self.of_head(owner, 0)]
        addresses = [self.addresses(owner, block) for block in blocks]
        ahead = [(k - begin[0], v - begin[1]) for k, v in addresses]
        runs = tuple((b.position, b.rows, *further) for b, further in zip(blocks, ahead, strict=True))
        return is_own, runs

    def get(self, owner: int, number: int) -> Pair:
        """Load it from the tensor, or from where it landed."""
        if owner == self._tiling.rank:
            return self.own(number)
        k, v, shape = self._landed_at(owner, number)
        return self._tl.load(k, shape=shape), self._tl.load(v, shape=shape)

    def close(self) -> None:
        """The addresses of messages as well."""
        super().close()
        self._landed.clear()

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Store it."""
        k, v, _ = self._landed_at(owner, number)
        self._tl.store(k, pair[0])
        self._tl.store(v, pair[1])


def _read(tl: "TLContext", tiling: Tiling, is_own: bool, addresses: tuple[int, int], rows: int) -> Pair:
    """K and V of a block, of this rank's tensors or landed."""
    if is_own:
        k, v = (tiling.load_key_rows(tl, address, rows) for address in addresses)
        return k, v
    shape, (k_address, v_address) = (rows, tiling.d_head), addresses
    return tl.load(k_address, shape=shape), tl.load(v_address, shape=shape)


class QuerySet:
    """Some query tiles of one user and their running states; `addresses` are where the rows of each begin in Q."""

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
        """Fold `owner`'s chunk into every tile that sees some of it."""
        k = v = None
        for head, tiles in by_head(self._tiles):
            for number, block in chunks.of_head(owner, head):
                seen = self.seeing(block.position, tiles)
                if seen:
                    k, v = chunks.read(owner, number, block)
                    self.fold_block(seen, k, v, (block.position, block.rows))
        del k, v
        self.drop_mask()

    def seeing(self, position: int, tiles: Sequence[int] | None = None) -> list[int]:
        """Those of the tiles, of all if not said, that see the key at a position, or one after it."""
        return [
            i
            for i in (range(len(self._tiles)) if tiles is None else tiles)
            if not self._tiling.hides_all(self._tiles[i], position)
        ]

    def fold_block(self, tiles: Sequence[int], k: TensorHandle, v: TensorHandle, run: tuple[int, int]) -> None:
        """Fold a block, (position, rows) of keys, into some tiles."""
        for i in tiles:
            # held until the next is made
            self._mask = self._tiling.mask(self._tl, self._tiles[i], run)
            self._states[i] = fold(self._tl, self._states[i], self._queries[i], k, v, self._tiling.scale, self._mask)

    def drop_mask(self) -> None:
        """Give back the memory of the last mask."""
        self._mask = None

    def store(self, addresses: Sequence[int]) -> None:
        """Normalise and store every tile; `addresses` are where the rows of each begin in O."""
        while self._tiles:
            tile = self._tiles.pop()
            rows = finish(self._tl, self._states.pop())
            self._tiling.store_rows(self._tl, addresses[len(self._tiles)], tile.tokens, rows)
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
    first = query_sets[0]
    queries = QuerySet(tl, tiling, _landed(tl, tiling, q_ptr, first), first)
    queries.fold_chunk(chunks, tiling.rank)
    met = [tiling.rank]
    for hop in hops:
        arrived = exchange(tl, chunks, hop)
        chunks.keep(set(arrived))
        for owner in arrived:
            queries.fold_chunk(chunks, owner)
        met += arrived
    queries.store(_landed(tl, tiling, o_ptr, first))
    del queries
    chunks.close()
    parts = tuple(chunks.part(owner) for owner in met) if isinstance(chunks, HbmChunks) else ()
    for tiles in query_sets[1:]:
        _fold_set(tl, tiling, pointers, chunks, (met, parts), tiles)


def _landed(tl: "TLContext", tiling: Tiling, pointer: int, tiles: Sequence[Queries]) -> list[int]:
    """Where the rows of each tile begin in Q, or in O."""
    return [tiling.query_address(tl, pointer, tile) for tile in tiles]


def _fold_set(
    tl: "TLContext",
    tiling: Tiling,
    pointers: Pointers,
    chunks: ChunkStore,
    met: tuple[list[int], tuple[Part, ...]],
    tiles: list[Queries],
) -> None:
    """A set over the chunks that were met, known by their owners and, if they landed, by their parts. Sets of other
    heads and users differ in addresses only.
    """
    queries, outputs = (_landed(tl, tiling, pointer, tiles) for pointer in (pointers[0], pointers[3]))
    if isinstance(chunks, HbmChunks) and have_one_head(tiles):
        head = tiles[0].head
        addresses = (*queries, *outputs, *chunks.begin(tiling.rank, head), *chunks.begin(None, head))
        tl.routine(_fold_tiles, tl, tiling, without_position(tiles), met[1], at=addresses)
        return
    some = QuerySet(tl, tiling, queries, tiles)
    for owner in met[0]:
        some.fold_chunk(chunks, owner)
    some.store(outputs)


def _fold_tiles(tl: "TLContext", tiling: Tiling, tiles: tuple[Queries, ...], parts: tuple[Part, ...], *at: int) -> None:
    """Tiles of one head over parts of chunks; `at` are the addresses of the queries, of the output, of K and V in this
    rank's tensors, and of those that landed.
    """
    count = len(tiles)
    queries = QuerySet(tl, tiling, at[:count], tiles)
    for is_own, runs in parts:
        _fold_part(tl, tiling, queries, (is_own, runs), at[-4:-2] if is_own else at[-2:])
    queries.store(at[count : 2 * count])


def _fold_part(tl: "TLContext", tiling: Tiling, queries: QuerySet, part: Part, begin: Sequence[int]) -> None:
    """The blocks of a chunk, whose K and V begin at these addresses."""
    is_own, runs = part
    k = v = None
    for position, rows, k_ahead, v_ahead in runs:
        seen = queries.seeing(position)
        if seen:
            k, v = _read(tl, tiling, is_own, (begin[0] + k_ahead, begin[1] + v_ahead), rows)
            queries.fold_block(seen, k, v, (position, rows))
    del k, v
    queries.drop_mask()
