"""What a chunk of the rule needs before the states are known: cumulated gates, and the inverse of its corrections.

For a chunk of 64 tokens and a value head: G, the gates cumulated; A[i, j] = beta[i] (k[i] . k[j]) e^(G[i] - G[j]) below
the diagonal; and (I + A)^-1 diag(beta). k k^T is a product of the tensor cores. The inverse is made in f32: 64 threads
have a column each and go down the rows, for which they need nothing of each other. Tokens that a tail lacks have no
beta: their columns are zeros, and so are the rows but for the diagonal.
"""

from kernbench.kernels.attention import LOG2_E, SPAN, first_element
from kernbench.kernels.gated_delta_rule.shape import CHUNK, ForwardShape
from kernbench.ptx.builder import FULL_MASK, Context, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP, GROUP = 32, 128
DEPTH, OCTET, WIDE = 16, 8, 4
_SWIZZLE_BYTES = 1024
# a row of the matrix in shared memory: no two rows begin at the same bank
_ROW = CHUNK + WIDE
# sums of a row that are made beside each other
_CHAINS = 4
POINTERS = ("chunks", "g", "beta", "gates", "inverses")


class InverseKernel:
    """A CTA for each chunk and value head."""

    name = "gated_delta_inverse"
    target = "sm_90a"

    def __init__(self, shape: ForwardShape):
        self.shape = shape

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return GROUP

    @property
    def key_bytes(self) -> int:
        """The keys of a chunk."""
        return CHUNK * self.shape.key_size * 2

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: keys, and the matrix."""
        return self.key_bytes + CHUNK * _ROW * 4

    def grid(self, chunks: int) -> tuple[int, int, int]:
        """Value heads that share their keys beside each other."""
        return self.shape.v_heads, chunks, 1

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it names those of its source."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(GROUP).param("tensormap", "k_map")
        for name in POINTERS:
            kernel.param("u64", f"{name}_ptr")
        return kernel.build(self.program)

    def program(self, ctx: Context) -> None:
        """All steps."""
        _Chunk(ctx, self).run()


class _Chunk:
    """The kernel while it is built."""

    def __init__(self, ctx: Context, kernel: InverseKernel):
        self.ctx, self.kernel, self.shape = ctx, kernel, kernel.shape
        self.full = ctx.mbarriers(1, name="full")
        memory = ctx.dynamic_shared("b8", align=_SWIZZLE_BYTES)
        self.keys = ctx.shared_tile(self.shape.dtype, CHUNK, self.shape.key_size, at=memory)
        self.matrix = memory.shifted(kernel.key_bytes).retyped("f32")
        self.gates, self.betas = (ctx.shared("f32", CHUNK, align=16, name=name) for name in ("cumulated", "betas"))
        self.carry = ctx.shared("f32", 1, name="carry")
        self.head, self.chunk = ctx.ctaid_x, ctx.ctaid_y
        self.start, self.length = ctx.load(ctx.pointer("chunks_ptr", "u32") + self.chunk * 2, vec=2)

    def run(self) -> None:
        """Keys come while the gates are cumulated."""
        ctx = self.ctx
        with ctx.if_(ctx.tid_x == 0):
            ctx.mbarrier_init(self.full[0], 1)
            ctx.fence_mbarrier_init()
            ctx.mbarrier_arrive_expect_tx(self.full[0], self.kernel.key_bytes)
            head = self.head // self.shape.group
            ctx.tma_load(self.keys.pointer, ctx.tensor_map("k_map"), (0, self.start, 0, head), self.full[0])
        self._cumulate()
        ctx.mbarrier_wait(self.full[0], 0)
        self._fill()
        ctx.bar_sync()
        with ctx.if_(ctx.tid_x < CHUNK):
            self._solve()

    def _cumulate(self) -> None:
        """G of all rows, by the first two warps; behind the end all are as the last."""
        ctx, row = self.ctx, self.ctx.tid_x
        there = row < self.length
        where = ctx.mad(self.start + row, self.shape.v_heads, self.head)
        sum_ = ctx.load(ctx.pointer("g_ptr", "f32"), where, mask=there, other=0.0)
        beta = ctx.load(ctx.pointer("beta_ptr", "f32"), where, mask=there, other=0.0)
        lane = row & WARP - 1
        for step in (1, 2, 4, 8, 16):
            before = ctx.shfl_up(sum_, step, mask=FULL_MASK)
            sum_ += ctx.selp(before, 0.0, lane >= step)
        with ctx.if_(row == WARP - 1):
            ctx.store(self.carry, sum_)
        ctx.bar_sync()
        with ctx.if_(row < CHUNK):
            sum_ += ctx.selp(ctx.load(self.carry), 0.0, row >= WARP)
            ctx.store(self.gates, sum_, row)
            ctx.store(self.betas, beta, row)
            ctx.store(ctx.pointer("gates_ptr", "f32"), sum_, where, mask=there)
        ctx.bar_sync()

    def _fill(self) -> None:
        """A, whole: zeros on the diagonal, above it, and in rows behind the end."""
        ctx = self.ctx
        scores = list(ctx.wgmma_accumulator(CHUNK))
        keys = ctx.wgmma_descriptor(self.keys)
        types = f"f32.{self.shape.dtype}.{self.shape.dtype}"
        ctx.wgmma_fence()
        for depth in range(0, self.shape.key_size, DEPTH):
            ctx.wgmma(
                f"m64n{CHUNK}k{DEPTH}", scores, keys.at(k=depth), keys.at(k=depth), types=types, accumulate=depth > 0
            )
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        first_row, first_column = first_element(ctx, ctx.tid_x)
        for half in range(2):
            row = first_row + half * OCTET
            gate, beta = ctx.load(self.gates, row), ctx.load(self.betas, row)
            below = ctx.selp(row, ctx.const(0, "u32"), row < self.length)
            target = self.matrix + ctx.mad(row, _ROW, first_column)
            for octet in range(0, CHUNK, OCTET):
                others = ctx.load(self.gates + first_column, octet, vec=2)
                pair = []
                for i, other in enumerate(others):
                    score = scores[octet // 2 + 2 * half + i]
                    value = score * beta * ctx.ex2((gate - other) * LOG2_E)
                    pair.append(ctx.selp(value, 0.0, first_column + (octet + i) < below))
                ctx.store(target[octet], tuple(pair))

    def _solve(self) -> None:
        """A column of the inverse a thread, row by row: x[i] = (i == column) - A[i, :i] x[:i]."""
        ctx, column = self.ctx, self.ctx.tid_x
        beta = ctx.load(self.betas, column)
        inverses = ctx.pointer("inverses_ptr", self.shape.dtype)
        item = ctx.mad(self.chunk, self.shape.v_heads, self.head).to("u64")
        target = inverses + (item * (CHUNK * CHUNK) + column.to("u64"))
        found: list[Register] = []
        for row in range(CHUNK):
            value = self._row(row, found, column)
            ctx.store(target[row * CHUNK], (value * beta).to(self.shape.dtype))
            found.append(value)

    def _row(self, row: int, found: list[Register], column: Register) -> Register:
        ctx = self.ctx
        value: Register = ctx.selp(ctx.const(1.0, "f32"), 0.0, column == row)
        chains = [value, *(ctx.const(0.0, "f32") for _ in range(min(_CHAINS, row) - 1))]
        for first in range(0, row, WIDE):
            line = ctx.load(self.matrix, row * _ROW + first, vec=WIDE)
            for i in range(first, min(first + WIDE, row)):
                chain = chains[i % len(chains)]
                ctx.fma(-line[i - first], found[i], chain, out=chain)
        for chain in chains[1:]:
            value += chain
        return value


# elements of a row of 128 bytes are as many as a chunk has tokens: a box of the inverse is one row wide
assert CHUNK == SPAN
