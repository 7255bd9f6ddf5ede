"""Prefill attention for sm_90a: one warp copies, two groups of four warps multiply 64 query rows each with wgmma.

A CTA walks its tiles of 128 query rows (`plan` says which). The copying thread brings q, then tiles of keys and values
from the last that is seen to the first, through a ring of stages each. In a group of warps the scores of the next tile
of keys are under way while the weights of this one are multiplied with its values, and softmax runs beside the second
product. With `turns` the two groups hand the tensor cores to each other: one multiplies while the other has its
softmax.
"""

from kernbench.common.errors import MisuseError
from kernbench.kernels.attention import ELEMENT_BYTES
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


class PrefillKernel:
    """The kernel of one shape, with `stages` tiles of keys and as many of values under way."""

    name = "prefill_sm90"
    target = "sm_90a"

    def __init__(self, shape: PrefillShape, stages: int = 2, turns: bool = False):
        self.shape, self.stages, self.turns = shape, stages, turns
        if stages < 1 or stages & (stages - 1):
            raise MisuseError(f"stages = {stages!r}: a power of two is wanted")
        if self.shared_bytes + _SWIZZLE_BYTES > SHARED_BYTES:
            raise MisuseError(f"stages = {stages!r}: {self.shared_bytes} bytes of shared memory are too many for a CTA")

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return THREADS

    @property
    def query_bytes(self) -> int:
        """The rows of a tile."""
        return ROWS * self.shape.head_size * ELEMENT_BYTES

    @property
    def key_bytes(self) -> int:
        """A tile of keys, or of values."""
        return self.shape.keys * self.shape.head_size * ELEMENT_BYTES

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: queries, and the rings of keys and of values."""
        return self.query_bytes + 2 * self.stages * self.key_bytes

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it names those of its source."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(THREADS)
        for name in _MAPS:
            kernel.param("tensormap", name)
        for name in ("out_ptr", "records_ptr"):
            kernel.param("u64", name)
        kernel.param("u32", "tiles")
        for name in ("before_tanh", "scale_log2"):
            kernel.param("f32", name)
        return kernel.build(self.program)

    def program(self, ctx: Context) -> None:
        """Barriers, then the roles."""
        _Cta(ctx, self).run()


class _Cta:
    """The kernel while it is built."""

    def __init__(self, ctx: Context, kernel: PrefillKernel):
        self.ctx, self.kernel, self.shape = ctx, kernel, kernel.shape
        stages, shape = kernel.stages, kernel.shape
        memory = ctx.dynamic_shared("b8", align=_SWIZZLE_BYTES)
        self.q = ctx.shared_tile(shape.dtype, ROWS, shape.head_size, at=memory)
        self.k = ctx.shared_tile(
            shape.dtype, shape.keys, shape.head_size, stages=stages, at=memory.shifted(kernel.query_bytes)
        )
        after = memory.shifted(kernel.query_bytes + stages * kernel.key_bytes)
        self.v = ctx.shared_tile(shape.dtype, shape.head_size, shape.keys, major="MN", stages=stages, at=after)
        self.full = {name: ctx.mbarriers(count, name=f"{name}_full") for name, count in self._rings()}
        self.empty = {name: ctx.mbarriers(count, name=f"{name}_empty") for name, count in self._rings()}

    def _rings(self) -> tuple[tuple[str, int], ...]:
        return ("q", 1), ("k", self.kernel.stages), ("v", self.kernel.stages)

    def run(self) -> None:
        """Barriers, then the roles."""
        ctx = self.ctx
        with ctx.if_(ctx.tid_x == 0):
            for name, count in self._rings():
                for stage in range(count):
                    ctx.mbarrier_init(self.full[name][stage], 1)
                    ctx.mbarrier_init(self.empty[name][stage], _ARRIVALS)
            ctx.fence_mbarrier_init()
        ctx.bar_sync()
        with ctx.if_(ctx.tid_x < GROUPS * GROUP):
            ctx.setmaxnreg_inc(MANY)
            self.compute()
        with ctx.else_():
            ctx.setmaxnreg_dec(FEW)
            with ctx.if_(ctx.tid_x == GROUPS * GROUP):
                self.copy()

    def position(self, turn: Register) -> tuple[Register, Register]:
        """Stage of a ring's use number `turn`, and the parity of its barrier's phase while it is filled."""
        # an assembler of PTX divides where it is asked to, also by two
        return turn & (self.kernel.stages - 1), (turn >> (self.kernel.stages.bit_length() - 1)) & 1

    # The thread that copies

    def copy(self) -> None:
        """q of each tile, then keys and values from the last tile to the first: keys are a tile ahead."""
        ctx = self.ctx
        maps = {name: ctx.tensor_map(f"{name}_map") for name in "qkv"}
        turn, number = ctx.const(0, "u32"), ctx.const(0, "u32")
        with ctx.loop(ctx.ctaid_x, ctx.param("tiles"), ctx.nctaid_x) as index:
            tile = Tile.load(ctx, index)
            ctx.mbarrier_wait(self.empty["q"][0], (number & 1) ^ 1)
            ctx.mbarrier_arrive_expect_tx(self.full["q"][0], self.kernel.query_bytes, sem="relaxed")
            ctx.tma_load(self.q.pointer, maps["q"], (0, tile.query, 0, tile.head), self.full["q"][0])
            head = tile.head // self.shape.group
            last = tile.first + tile.count - 1
            self._bring("k", maps, turn, tile.key + last * self.shape.keys, head)
            with ctx.loop(1, tile.count) as step:
                row = tile.key + (last - step) * self.shape.keys
                self._bring("k", maps, turn + step, row, head)
                self._bring("v", maps, turn + step - 1, row + self.shape.keys, head)
            turn += tile.count
            self._bring("v", maps, turn - 1, tile.key + tile.first * self.shape.keys, head)
            number += 1

    def _bring(self, name: str, maps: dict[str, Pointer], turn: Register, row: Register, head: Register) -> None:
        ctx = self.ctx
        stage, parity = self.position(turn)
        ctx.mbarrier_wait(self.empty[name][stage], parity ^ 1)
        full = self.full[name] + stage
        ctx.mbarrier_arrive_expect_tx(full, self.kernel.key_bytes, sem="relaxed")
        tile = self.k if name == "k" else self.v
        ctx.tma_load(tile.stage(stage).pointer, maps[name], (0, row, 0, head), full)

    # The warps that compute

    def compute(self) -> None:
        """A group: all tiles, 64 rows of each."""
        ctx = self.ctx
        group = Group(ctx, self.shape, self.q, self.k, self.v, turns=self.kernel.turns)
        turn, number = ctx.const(0, "u32"), ctx.const(0, "u32")
        group.enter()
        with ctx.loop(ctx.ctaid_x, ctx.param("tiles"), ctx.nctaid_x) as index:
            tile = Tile.load(ctx, index)
            ctx.mbarrier_wait(self.full["q"][0], number & 1)
            group.begin(tile)
            self._first(group, tile, turn)
            with ctx.loop(1, tile.count) as step:
                self._step(group, tile, turn, step)
            turn += tile.count
            self._last(group, turn - 1)
            group.finish(tile)
            self._release("q", ctx.const(0, "u32"), group)
            number += 1
        group.leave()

    def _ready(self, name: str, turn: Register) -> Register:
        stage, parity = self.position(turn)
        self.ctx.mbarrier_wait(self.full[name][stage], parity)
        return stage

    def _release(self, name: str, stage: Register, group: Group) -> None:
        self.ctx.mbarrier_arrive(self.empty[name][stage], pred=group.lane == 0)

    def _first(self, group: Group, tile: Tile, turn: Register) -> None:
        """Scores and weights of the last tile of keys; values of keys that are not there are cleared."""
        stage = self._ready("k", turn)
        group.begin_scores(stage)
        group.wait(0)
        self._release("k", stage, group)
        group.weigh(tile, tile.first + tile.count - 1)
        group.pack()
        with self.ctx.if_((tile.first + tile.count) * self.shape.keys > tile.keys):
            group.clear_values(self._ready("v", turn), tile)

    def _step(self, group: Group, tile: Tile, turn: Register, step: Register) -> None:
        """The next tile's scores, this one's product with the values, and softmax beside it."""
        stage = self._ready("k", turn + step)
        group.take_turn()
        group.begin_scores(stage)
        # while the scores are made
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
