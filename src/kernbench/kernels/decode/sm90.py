"""Decode attention for sm_90a: one warp copies keys and values through a ring of stages, four warps compute.

A CTA processes its tiles of 64 keys (see `plan`). The copying warp keeps the ring full with bulk tensor copies,
across segments: the next head's keys arrive while this one's are merged. A computing warp takes 16 keys of every tile,
with the query heads of a group as the 16 rows of its products (rows past the group are zeros), and has its own softmax
state. At the end of a segment the four states are merged through shared memory; for a head that several CTAs share, the
last one to arrive merges the partial sums in global memory. Counters are zero before a launch, and after it.
"""

from collections.abc import Callable, Iterator

from kernbench.common.errors import MisuseError
from kernbench.kernels.attention import LN_2, LOWEST
from kernbench.kernels.caches import DenseCache
from kernbench.kernels.decode.narrow import NarrowSoftmax
from kernbench.kernels.decode.shape import POINTERS, TILE, WARP_KEYS, DecodeShape
from kernbench.kernels.decode.softmax import Softmax
from kernbench.kernels.decode.walk import Segment, Walk
from kernbench.ptx.builder import FULL_MASK, Context, Pointer, Predicate, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP = 32
WARPS = TILE // WARP_KEYS
COMPUTING = WARPS * WARP
THREADS = COMPUTING + WARP
SHARED_BYTES = 227 << 10
# barriers, statistics of the warps, a flag, and padding to align the stages
_OTHER_BYTES = 2048
_MOST_STAGES = 12
# bytes of the ring of a dense cache: on an H200 one sequence of 16,384 keys takes 24.8 us with four stages of 32 KiB,
# 25.7 with all six that fit; a batch limited by memory is no slower
_RING_BYTES = 128 << 10
_SWIZZLE_BYTES = 1024
# elements of a load, and those that a thread merges at once if there are enough
PIECE, LARGE_PIECE = 4, 8
# parts of a head that are loaded at once, as many as registers hold: the latency of L2 dominates, and there is no other
# work meanwhile. One sequence with 8 KV heads has 18 parts of each on 132 SMs
PARTS_AT_ONCE = 18
# barrier number of the computing warps
MEETING = 1


class DecodeKernel:
    """The kernel of one shape, with `stages` tiles of keys and values in flight.

    The default is as many as fit; for a dense cache four, or 128 KiB of small tiles.
    """

    name = "decode_sm90"
    target = "sm_90a"

    def __init__(self, shape: DecodeShape, stages: int | None = None):
        self.shape = shape
        room = SHARED_BYTES - _OTHER_BYTES - self.merge_bytes
        most = room // (2 * shape.tile_bytes)
        dense = isinstance(shape.cache, DenseCache)
        enough = max(4, _RING_BYTES // (2 * shape.tile_bytes)) if dense else _MOST_STAGES
        self.stages = min(enough, _MOST_STAGES, most) if stages is None else stages
        if not 1 <= self.stages <= most:
            raise MisuseError(f"stages = {stages!r}: 1 to {most} fit into the shared memory of a CTA")

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return THREADS

    @property
    def merge_bytes(self) -> int:
        """Bytes of the partial sums of the four warps."""
        return WARPS * self.shape.group * self.shape.head_size * 4

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: the ring, and the sums to be merged."""
        return self.stages * 2 * self.shape.tile_bytes + self.merge_bytes

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it has line information."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(THREADS)
        for name in ("k_map", "v_map"):
            kernel.param("tensormap", name)
        for name in (*POINTERS, *(("lse",) if self.shape.lse else ())):
            kernel.param("u64", f"{name}_ptr")
        for name in ("table_width", "pages"):
            kernel.param("u32", name)
        for name in ("scale_log2", *(("value_scale",) if self.shape.narrow else ())):
            kernel.param("f32", name)
        return kernel.build(self.program)

    def program(self, ctx: Context) -> None:
        """Initialise barriers, then branch to the roles of the warps."""
        _Cta(ctx, self).run()


class _Cta:
    """The kernel under construction."""

    def __init__(self, ctx: Context, kernel: DecodeKernel):
        self.ctx, self.kernel, self.shape = ctx, kernel, kernel.shape
        self.full = ctx.mbarriers(kernel.stages, name="full")
        self.empty = ctx.mbarriers(kernel.stages, name="empty")
        self.ring = ctx.dynamic_shared("b8", align=_SWIZZLE_BYTES)
        self.warp, self.lane = ctx.tid_x // WARP, ctx.tid_x % WARP
        self.stage_bytes = 2 * self.shape.tile_bytes

    def run(self) -> None:
        """Initialise barriers, then branch to the roles of the warps."""
        ctx = self.ctx
        with ctx.if_(ctx.tid_x == COMPUTING):
            for name in ("k_map", "v_map"):
                ctx.prefetch_tensormap(ctx.tensor_map(name))
        with ctx.if_(ctx.tid_x == 0):
            for stage in range(self.kernel.stages):
                ctx.mbarrier_init(self.full[stage], 1)
                ctx.mbarrier_init(self.empty[stage], WARPS)
            ctx.fence_mbarrier_init()
        walk = Walk(ctx, self.shape)
        ctx.bar_sync()
        with ctx.if_(self.warp < WARPS):
            self.compute(walk)
        with ctx.else_():
            self.copy(walk)

    # The warp that copies

    def copy(self, walk: Walk) -> None:
        """Start the copies of each tile as soon as its stage is empty: a lane for each box of keys and of values."""
        ctx = self.ctx
        maps = [ctx.tensor_map(name) for name in ("k_map", "v_map")]
        boxes = TILE // self.shape.box_rows
        # lanes 0 to boxes - 1 copy keys, the next ones values
        mine, of_values = self.lane % boxes, self.lane // boxes
        ring = _Ring(ctx, self.kernel.stages)
        for segment in walk.segments():
            boxes_of = self._located(segment, mine, boxes)
            with ctx.loop(segment.tile, segment.tile + segment.count) as tile:
                page, row = boxes_of(tile)
                ctx.mbarrier_wait(self.empty[ring.stage], ring.parity ^ 1)
                full = self.full + ring.stage
                # the copies publish their own writes: the arrival has nothing to release
                ctx.mbarrier_arrive_expect_tx(full, self.stage_bytes, sem="relaxed", pred=self.lane == 0)
                target = self.ring + ctx.mad(ring.stage, self.stage_bytes, mine * (self.shape.tile_bytes // boxes))
                for number, one in enumerate(maps):
                    with ctx.if_(of_values == number):
                        to = target.shifted(number * self.shape.tile_bytes)
                        ctx.tma_load(to, one, (0, row, 0, segment.head, page), full)
                ring.advance()

    def _located(self, segment: Segment, mine: Register, boxes: int) -> Callable[[Register], tuple[Register, Register]]:
        """A function that returns page and row of a lane's box for the consecutive tiles of a segment.

        Every lane loads an entry of the table, so that a load serves several tiles, and entries of the next tiles are
        prefetched. Rows behind a sequence's end come from behind the last page: zeros.
        """
        ctx, cache = self.ctx, self.shape.cache
        if isinstance(cache, DenseCache):
            return lambda tile: (ctx.const(0, "u32"), ctx.mad(tile, TILE, segment.row))
        first = ctx.pointer("table_ptr", "u32") + segment.sequence * ctx.param("table_width")
        page_size, rows = cache.page_size, self.shape.box_rows

        def entries(tile: Register) -> Register:
            key = ctx.mad(tile, TILE, self.lane * rows)
            found: Register = ctx.load(first + key // page_size, mask=key < segment.length, other=ctx.param("pages"))
            return found

        ahead = entries(segment.tile)
        here, used = ahead.copy(), ctx.const(0, "u32")

        def located(tile: Register) -> tuple[Register, Register]:
            with ctx.if_(used == 0):
                here.set(ahead)
                ahead.set(entries(tile + WARP // boxes))
            page = ctx.shfl_idx(here, used + mine, mask=FULL_MASK)
            used.set((used + boxes) & (WARP - 1))
            return page, ctx.mad(tile, TILE, mine * rows) & (page_size - 1)

        return located

    # The warps that compute

    def compute(self, walk: Walk) -> None:
        """All segments: the tiles of each, then the merge of the warps' states."""
        ctx = self.ctx
        kind = NarrowSoftmax if self.shape.narrow else Softmax
        softmax = kind(ctx, self.shape, self.warp, self.lane)
        merge = _Merge(ctx, self, walk)
        ring = _Ring(ctx, self.kernel.stages)
        for segment in walk.segments():
            softmax.begin(segment)
            with ctx.loop(segment.tile, segment.tile + segment.count) as tile:
                ctx.mbarrier_wait(self.full[ring.stage], ring.parity)
                softmax.add(self.ring + ring.stage * self.stage_bytes, tile, segment)
                # all lanes have read their part
                ctx.bar_warp_sync(FULL_MASK)
                ctx.mbarrier_arrive(self.empty[ring.stage], pred=self.lane == 0)
                ring.advance()
            merge.run(softmax, segment)


class _Ring:
    """Stages of a ring in order: the index of the current one, and the parity of its barrier's phase while it is
    filled.
    """

    def __init__(self, ctx: Context, stages: int):
        self.ctx, self.stages = ctx, stages
        self.stage, self.parity = ctx.const(0, "u32"), ctx.const(0, "u32")

    def advance(self) -> None:
        """Go to the next stage; after the last comes the first, in the next phase."""
        ctx = self.ctx
        self.stage += 1
        begins = self.stage == self.stages
        self.parity.set(ctx.selp(self.parity ^ 1, self.parity, begins))
        self.stage.set(ctx.selp(ctx.const(0, "u32"), self.stage, begins))


class _Merge:
    """The end of a segment: merges the states of four warps, then of CTAs, into an output."""

    def __init__(self, ctx: Context, cta: _Cta, walk: Walk):
        self.ctx, self.cta, self.shape, self.walk = ctx, cta, cta.shape, walk
        sums = cta.ring.shifted(cta.kernel.stages * cta.stage_bytes)
        self.sums: Pointer = sums.retyped("f32")
        self.states = ctx.shared("f32", WARPS * self.shape.group * 2, align=8, name="states")
        self.last = ctx.shared("u32", 1, name="last")
        self.out = ctx.pointer("out_ptr", "b32")
        self.partial, self.stats = ctx.pointer("partial_ptr", "f32"), ctx.pointer("stats_ptr", "f32")
        self.counters = ctx.pointer("counters_ptr", "u32")
        self.elements = self.shape.group * self.shape.head_size
        self.width = LARGE_PIECE if self.elements >= LARGE_PIECE * COMPUTING else PIECE
        self.begins = range(0, self.width, PIECE)

    def meet(self) -> None:
        """A barrier of the computing warps."""
        self.ctx.bar_sync(MEETING, COMPUTING)

    def run(self, softmax: Softmax, segment: Segment) -> None:
        """Merge, and write the output, or a partial sum for another CTA."""
        ctx, shape = self.ctx, self.shape
        softmax.leave(self.sums, self.states)
        self.meet()
        with ctx.if_(segment.count == segment.tiles):
            for row, column, element in self._pieces():
                values, largest, total = self._of_warps(row, element)
                self._write(segment, row, column, values, largest, total)
        with ctx.else_():
            slot = ctx.ctaid_x * 2 + ctx.selp(ctx.const(1, "u32"), 0, segment.tile == 0)
            for row, column, element in self._pieces():
                values, largest, total = self._of_warps(row, element)
                self._leave(values, ctx.mad(slot, self.elements, element))
                with ctx.if_(column == 0):
                    ctx.store(self.stats, (largest, total), ctx.mad(slot, shape.group, row) * 2)
            self._arrive(segment)
        # the next segment's states are written only after all have read these
        self.meet()

    def _pieces(self) -> Iterator[tuple[Register, Register, Register]]:
        """Row, column and element of the pieces that a thread merges."""
        ctx, size = self.ctx, self.shape.head_size
        with ctx.loop(ctx.tid_x * self.width, self.elements, COMPUTING * self.width) as element:
            yield element // size, element % size, element

    def _of_warps(self, row: Register, element: Register) -> tuple[list[Register], Register, Register]:
        """The sums of a piece over all warps, with the common maximum, and the total."""
        ctx = self.ctx
        states = [ctx.load(self.states, row * 2 + warp * self.shape.group * 2, vec=2) for warp in range(WARPS)]
        largest = states[0][0].copy()
        for state in states[1:]:
            ctx.max_(largest, state[0])
        total = ctx.const(0.0, "f32")
        values = [ctx.const(0.0, "f32") for _ in range(self.width)]
        for warp, (score, part) in enumerate(states):
            weight = ctx.ex2(score - largest)
            ctx.fma(weight, part, total, out=total)
            mine = self.sums + (element + warp * self.elements)
            sums = [one for i in self.begins for one in ctx.load(mine[i], vec=PIECE)]
            for value, one in zip(values, sums, strict=True):
                ctx.fma(weight, one, value, out=value)
        return values, largest, total

    def _leave(self, values: list[Register], where: Register) -> None:
        """Write a piece of a partial sum for another CTA."""
        for i in self.begins:
            self.ctx.store(self.partial, tuple(values[i : i + PIECE]), where + i)

    def _write(
        self,
        segment: Segment,
        row: Register,
        column: Register,
        values: list[Register],
        largest: Register,
        total: Register,
    ) -> None:
        """Write sums divided by their total as output; zeros without keys."""
        ctx, shape = self.ctx, self.shape
        inverse = ctx.selp(ctx.rcp(total), 0.0, total > 0.0)
        if shape.narrow:
            inverse *= ctx.param("value_scale")
        scaled = [value * inverse for value in values]
        pairs = range(0, len(scaled), 2)
        packed = tuple(ctx.cvt_pack(f"{shape.dtype}x2", scaled[i + 1], scaled[i]).bits("b32") for i in pairs)
        head = ctx.mad(segment.sequence, shape.heads, segment.head * shape.group) + row
        ctx.store(self.out, packed, (ctx.mad(head, shape.head_size, column)) // 2)
        if shape.lse:
            # the maximum is scaled by log2(e); without keys lg2(0) is minus infinity, and remains so
            with ctx.if_(column == 0):
                ctx.store(ctx.pointer("lse_ptr", "f32"), (largest + ctx.lg2(total)) * LN_2, head)

    def _arrive(self, segment: Segment) -> None:
        """Count an arrival at a shared head; the CTA that completes it merges all parts."""
        ctx, shape = self.ctx, self.shape
        first, parts = self.walk.owners(segment)
        item = ctx.mad(segment.sequence, shape.kv_heads, segment.head)
        self.meet()
        with ctx.if_(ctx.tid_x == 0):
            before = ctx.atom_add(self.counters + item, 1, sem="acq_rel", scope="gpu")
            ctx.store(self.last, ctx.selp(ctx.const(1, "u32"), 0, before == parts - 1))
        self.meet()
        with ctx.if_(ctx.load(self.last) == 1):
            self._merge_parts(segment, first, parts)
            with ctx.if_(ctx.tid_x == 0):
                ctx.store(self.counters + item, ctx.const(0, "u32"))

    def _merge_parts(self, segment: Segment, first: Register, parts: Register) -> None:
        """Merge all parts of a head, many loaded at once, as the latency of loads dominates."""
        ctx = self.ctx
        for row, column, element in self._pieces():
            largest, total = ctx.const(LOWEST, "f32"), ctx.const(0.0, "f32")
            values = [ctx.const(0.0, "f32") for _ in range(self.width)]
            with ctx.loop(0, parts, PARTS_AT_ONCE) as part:
                slots = [self._slot(first, part + i) for i in range(PARTS_AT_ONCE)]
                there = [part + i < parts for i in range(PARTS_AT_ONCE)]
                # ptxas keeps the order of relaxed loads: load last what is needed first, so that all are in flight
                sums = [self._sums(slot, one, element) for slot, one in zip(slots, there, strict=True)]
                states = [self._state(slot, one, row) for slot, one in zip(slots, there, strict=True)]
                new = largest.copy()
                for score, _ in states:
                    ctx.max_(new, score)
                correction = ctx.ex2(largest - new)
                largest.set(new)
                for sum_ in (total, *values):
                    sum_ *= correction
                for (score, part_total), part_sums in zip(states, sums, strict=True):
                    weight = ctx.ex2(score - new)
                    for sum_, one in zip((total, *values), (part_total, *part_sums), strict=True):
                        ctx.fma(one, weight, sum_, out=sum_)
            self._write(segment, row, column, values, largest, total)

    def _slot(self, first: Register, part: Register) -> Register:
        """The index of a part: the first CTA's part is its last segment, of the others it is the first."""
        ctx = self.ctx
        return (first + part) * 2 + ctx.selp(ctx.const(1, "u32"), 0, part == 0)

    def _state(self, slot: Register, there: Predicate, row: Register) -> tuple[Register, Register]:
        """Maximum and total of a part; one that does not exist has no weight."""
        ctx = self.ctx
        where = ctx.mad(slot, self.shape.group, row) * 2
        score, total = ctx.load(self.stats, where, vec=2, mask=there, other=(LOWEST, 0.0), sem="relaxed", scope="gpu")
        return score, total

    def _sums(self, slot: Register, there: Predicate, element: Register) -> list[Register]:
        """Sums of a part, from an element on."""
        ctx, zeros = self.ctx, (0.0,) * PIECE
        mine = self.partial + ctx.mad(slot, self.elements, element)
        loads = [ctx.load(mine[i], vec=PIECE, mask=there, other=zeros, sem="relaxed", scope="gpu") for i in self.begins]
        return [one for load in loads for one in load]
