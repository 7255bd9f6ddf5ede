"""Prefill attention for sm_90a: one warp copies, two groups of four warps multiply 64 query rows each with wgmma.

A CTA processes its tiles of 128 query rows (see `plan`). The copying thread loads q, then tiles of keys and values
from the last visible one to the first, through a ring of stages each. In a group of warps the scores of the next tile
of keys are in flight while the weights of this one are multiplied with its values, and softmax overlaps the second
product. With `turns` the two groups alternate on the tensor cores: one multiplies while the other has its
softmax.

If shared memory holds two tiles of queries, the next tile's queries, and its first keys and values, are loaded while
this tile is computed, and its output is stored while the next one's first scores are computed.
"""

from contextlib import AbstractContextManager, nullcontext

from kernbench.common.errors import MisuseError
from kernbench.kernels.attention import ELEMENT_BYTES, ROW_BYTES
from kernbench.kernels.caches import PagedCache
from kernbench.kernels.prefill.group import GROUP, Group, Tile
from kernbench.kernels.prefill.shape import ROWS, PrefillShape
from kernbench.ptx.builder import Context, Pointer, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP = 32
GROUPS = 2
THREADS = (GROUPS + 1) * GROUP
SHARED_BYTES = 227 << 10
_SWIZZLE_BYTES = 1024
# registers of a thread that copies, and of one that computes
FEW, MANY = 40, 232
_MAPS = ("q_map", "k_map", "v_map", "o_map")
_ARRIVALS = GROUPS * GROUP // WARP
_MOST_QUERIES = 2


class PrefillKernel:
    """The kernel of one shape, with `stages` tiles of keys and as many of values in flight.

    `query_stages` tiles of queries have a slot, one or two; by default two if they fit. Then the groups take `turns`:
    without, both need the tensor cores at once when a tile begins, and stay in step.
    """

    name = "prefill_sm90"
    target = "sm_90a"

    def __init__(
        self, shape: PrefillShape, stages: int = 2, turns: bool | None = None, query_stages: int | None = None
    ):
        self.shape, self.stages = shape, stages
        if stages < 1 or stages & (stages - 1):
            raise MisuseError(f"stages = {stages!r}: a power of two is wanted")
        if query_stages not in (None, 1, _MOST_QUERIES):
            raise MisuseError(f"query_stages = {query_stages!r}: 1 or {_MOST_QUERIES}")
        self.query_stages = _MOST_QUERIES if query_stages is None else query_stages
        if query_stages is None and not self._fits():
            self.query_stages = 1
        self.turns = self.query_stages > 1 if turns is None else turns
        if not self._fits():
            raise MisuseError(f"stages = {stages!r}: {self.shared_bytes} bytes of shared memory are too many for a CTA")

    def _fits(self) -> bool:
        return self.shared_bytes + _SWIZZLE_BYTES <= SHARED_BYTES

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return THREADS

    @property
    def query_bytes(self) -> int:
        """Bytes of the query rows of a tile."""
        return ROWS * self.shape.head_size * ELEMENT_BYTES

    @property
    def key_bytes(self) -> int:
        """Bytes of a tile of keys, or of values."""
        return self.shape.keys * self.shape.head_size * ELEMENT_BYTES

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: queries, and the rings of keys and of values."""
        return self.query_stages * self.query_bytes + 2 * self.stages * self.key_bytes

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it has line information."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(THREADS)
        for name in _MAPS:
            kernel.param("tensormap", name)
        for name in self.shape.pointers:
            kernel.param("u64", f"{name}_ptr")
        for name in ("tiles", *(("table_width", "pages") if self.shape.paged else ())):
            kernel.param("u32", name)
        for name in ("before_tanh", "scale_log2"):
            kernel.param("f32", name)
        return kernel.build(self.program)

    def program(self, ctx: Context) -> None:
        """Initialise barriers, then branch to the roles of the warps."""
        _Cta(ctx, self).run()


class _Cta:
    """The kernel under construction."""

    def __init__(self, ctx: Context, kernel: PrefillKernel):
        self.ctx, self.kernel, self.shape = ctx, kernel, kernel.shape
        stages, shape = kernel.stages, kernel.shape
        memory = ctx.dynamic_shared("b8", align=_SWIZZLE_BYTES)
        self.q = ctx.shared_tile(shape.dtype, ROWS, shape.head_size, stages=kernel.query_stages, at=memory)
        queries = kernel.query_stages * kernel.query_bytes
        self.k = ctx.shared_tile(shape.dtype, shape.keys, shape.head_size, stages=stages, at=memory.shifted(queries))
        after = memory.shifted(queries + stages * kernel.key_bytes)
        self.v = ctx.shared_tile(shape.dtype, shape.head_size, shape.keys, major="MN", stages=stages, at=after)
        self.full = {name: ctx.mbarriers(count, name=f"{name}_full") for name, count in self._rings()}
        self.empty = {name: ctx.mbarriers(count, name=f"{name}_empty") for name, count in self._rings()}

    def _rings(self) -> tuple[tuple[str, int], ...]:
        return ("q", self.kernel.query_stages), ("k", self.kernel.stages), ("v", self.kernel.stages)

    def run(self) -> None:
        """Initialise barriers, then branch to the roles of the warps."""
        ctx = self.ctx
        with ctx.if_(ctx.tid_x == 0):
            for name, count in self._rings():
                for stage in range(count):
                    ctx.mbarrier_init(self.full[name][stage], 1)
                    ctx.mbarrier_init(self.empty[name][stage], GROUPS if name == "q" else _ARRIVALS)
            ctx.fence_mbarrier_init()
        ctx.bar_sync()
        with ctx.if_(ctx.tid_x < GROUPS * GROUP):
            ctx.setmaxnreg_inc(MANY)
            self.compute()
        with ctx.else_():
            ctx.setmaxnreg_dec(FEW)
            # one thread, or a warp of which each lane copies a part of every page
            copying = ctx.tid_x < GROUPS * GROUP + WARP if self.shape.paged else ctx.tid_x == GROUPS * GROUP
            with ctx.if_(copying):
                self.copy()

    def position(self, turn: Register, name: str = "k") -> tuple[Register, Register]:
        """Stage of a ring's use number `turn`, and the parity of its barrier's phase while it is filled."""
        # ptxas does not turn divisions into shifts, not even by two
        stages = self.kernel.query_stages if name == "q" else self.kernel.stages
        return turn & (stages - 1), (turn >> (stages.bit_length() - 1)) & 1

    # The thread or the warp that copies

    def copy(self) -> None:
        """q of each tile, then keys and values from the last tile to the first: keys are a tile ahead."""
        ctx = self.ctx
        source = _Pages(ctx, self.shape) if self.shape.paged else _Rows(ctx, self.shape)
        queries = ctx.tensor_map("q_map")
        turn, number = ctx.const(0, "u32"), ctx.const(0, "u32")
        with ctx.loop(ctx.ctaid_x, ctx.param("tiles"), ctx.nctaid_x) as index:
            tile = Tile.load(ctx, index)
            slot, parity = self.position(number, "q")
            ctx.mbarrier_wait(self.empty["q"][slot], parity ^ 1)
            with source.one_lane():
                full = self.full["q"] + slot
                ctx.mbarrier_arrive_expect_tx(full, self.kernel.query_bytes, sem="relaxed")
                ctx.tma_load(self.q.stage(slot).pointer, queries, (0, tile.query, 0, tile.head), full)
            source.begin(tile)
            last = tile.first + tile.count - 1
            self._bring("k", source, turn, last)
            with ctx.loop(1, tile.count) as step:
                self._bring("k", source, turn + step, last - step)
                self._bring("v", source, turn + step - 1, last - step + 1)
            turn += tile.count
            self._bring("v", source, turn - 1, tile.first)
            number += 1

    def _bring(self, name: str, source: "_Rows | _Pages", turn: Register, number: Register) -> None:
        """Copy tile `number` of a sequence's keys or values when its stage is empty."""
        ctx = self.ctx
        stage, parity = self.position(turn)
        found = source.find(number)
        ctx.mbarrier_wait(self.empty[name][stage], parity ^ 1)
        full = self.full[name] + stage
        with source.one_lane():
            ctx.mbarrier_arrive_expect_tx(full, self.kernel.key_bytes, sem="relaxed")
        tile = self.k if name == "k" else self.v
        source.bring(name, tile.stage(stage).pointer, found, full)

    # The warps that compute

    def compute(self) -> None:
        """A group: all tiles, 64 rows of each."""
        ctx = self.ctx
        group = Group(ctx, self.shape, self.q, self.k, self.v, turns=self.kernel.turns)
        turn, number = ctx.const(0, "u32"), ctx.const(0, "u32")
        group.enter()
        tiles, twice = ctx.param("tiles"), self.kernel.query_stages > 1
        tile = Tile.load(ctx, ctx.ctaid_x)
        with ctx.loop(ctx.ctaid_x, tiles, ctx.nctaid_x) as index:
            slot, parity = self.position(number, "q")
            ctx.mbarrier_wait(self.full["q"][slot], parity)
            group.begin(slot)
            self._first(group, tile, turn)
            if twice:
                with ctx.if_(number > 0):
                    group.release(self.empty["q"] + (slot ^ 1))
            with ctx.loop(1, tile.count) as step:
                self._step(group, tile, turn, step)
            turn += tile.count
            # prefetch the next tile's record while this one's output is computed
            following = Tile.load(ctx, ctx.min(index + ctx.nctaid_x, tiles - 1))
            self._last(group, turn - 1)
            group.finish(tile)
            if not twice:
                group.release(self.empty["q"])
            tile.set(following)
            number += 1
        if twice:
            group.end()
        group.leave()

    def _ready(self, name: str, turn: Register) -> Register:
        stage, parity = self.position(turn)
        self.ctx.mbarrier_wait(self.full[name][stage], parity)
        return stage

    def _release(self, name: str, stage: Register, group: Group) -> None:
        self.ctx.mbarrier_arrive(self.empty[name][stage], pred=group.lane == 0)

    def _first(self, group: Group, tile: Tile, turn: Register) -> None:
        """Scores and weights of the last tile of keys; values of missing keys are cleared."""
        stage = self._ready("k", turn)
        group.begin_scores(stage)
        group.wait(0)
        self._release("k", stage, group)
        group.weigh(tile, tile.first + tile.count - 1)
        group.pack()
        with self.ctx.if_((tile.first + tile.count) * self.shape.keys > tile.keys):
            group.clear_values(self._ready("v", turn), tile)

    def _step(self, group: Group, tile: Tile, turn: Register, step: Register) -> None:
        """The next tile's scores, this one's product with the values, and softmax overlapped."""
        stage = self._ready("k", turn + step)
        group.take_turn()
        group.begin_scores(stage)
        # while the scores are computed
        group.correct()
        values = self._ready("v", turn + step - 1)
        group.begin_sums(values)
        group.give_turn()
        group.wait(1)
        self._release("k", stage, group)
        group.weigh(tile, tile.first + tile.count - 1 - step)
        group.wait(0)
        self._release("v", values, group)
        group.pack()

    def _last(self, group: Group, turn: Register) -> None:
        group.correct()
        values = self._ready("v", turn)
        group.begin_sums(values)
        group.wait(0)
        self._release("v", values, group)


class _Rows:
    """Contiguous keys and values: one box per tile, by one thread."""

    def __init__(self, ctx: Context, shape: PrefillShape):
        self.ctx, self.shape = ctx, shape
        self.maps = {name: ctx.tensor_map(f"{name}_map") for name in "kv"}

    def one_lane(self) -> AbstractContextManager[object]:
        """Restrict to one lane: only one thread copies."""
        return nullcontext()

    def begin(self, tile: Tile) -> None:
        """Select the sequence and the head of a tile of queries."""
        self.tile, self.head = tile, tile.head // self.shape.group

    def find(self, number: Register) -> tuple[Register, ...]:
        """The first row of a tile."""
        return (self.tile.key + number * self.shape.keys,)

    def bring(self, name: str, target: Pointer, found: tuple[Register, ...], full: Pointer) -> None:
        """Start the copy of a tile."""
        (row,) = found
        self.ctx.tma_load(target, self.maps[name], (0, row, 0, self.head), full)


class _Pages:
    """Pages that a table names: a lane copies a span of a page's rows, or of a tile's part of it."""

    def __init__(self, ctx: Context, shape: PrefillShape):
        self.ctx, self.shape = ctx, shape
        self.maps = {name: ctx.tensor_map(f"{name}_map") for name in "kv"}
        self.page_size = shape.cache.page_size if isinstance(shape.cache, PagedCache) else 0
        self.rows = shape.cache.box_rows(shape.keys)
        boxes = shape.keys // self.rows
        self.lane = ctx.tid_x & WARP - 1
        self.row, self.span = (self.lane & boxes - 1) * self.rows, self.lane >> (boxes.bit_length() - 1)
        self.mine = self.span < shape.spans
        # offset of a lane's box in a tile: rows of 128 bytes, span after span
        self.offset = ctx.mad(self.span, shape.keys, self.row) * ROW_BYTES
        self.table = ctx.pointer("table_ptr", "u32")

    def one_lane(self) -> AbstractContextManager[object]:
        """Restrict to one lane."""
        return self.ctx.if_(self.lane == 0)

    def begin(self, tile: Tile) -> None:
        """Select the sequence and the head of a tile of queries."""
        self.tile, self.head = tile, tile.head // self.shape.group
        self.entries = self.table + tile.key * self.ctx.param("table_width")

    def find(self, number: Register) -> tuple[Register, ...]:
        """The page of a lane's box, and its row there. Rows past the end are read from past the last page: zeros."""
        ctx = self.ctx
        key = ctx.mad(number, self.shape.keys, self.row)
        entry = key >> (self.page_size.bit_length() - 1)
        page = ctx.load(self.entries, entry, mask=key < self.tile.keys, other=ctx.param("pages"))
        return page, key & self.page_size - 1

    def bring(self, name: str, target: Pointer, found: tuple[Register, ...], full: Pointer) -> None:
        """Start the copies of a tile."""
        page, row = found
        with self.ctx.if_(self.mine):
            to = target.retyped("b8") + self.offset
            self.ctx.tma_load(to, self.maps[name], (0, row, self.span, self.head, page), full)
