"""Precomputation for each chunk, independent of the states: cumulated gates, and the inverse of its corrections.

For a chunk of 64 tokens and a value head: G, the gates cumulated; A[i, j] = beta[i] (k[i] . k[j]) e^(G[i] - G[j]) below
the diagonal; and T = (I + A)^-1 diag(beta). A warp has a chunk of a key head, waits for no other, and computes
the inverses of the value heads that share the key in turn:

1. k k^T, in blocks of 16 x 16 on the diagonal and below, on tensor cores, once for all value heads
2. the inverses D of the four blocks of I + A on the diagonal, in f32: a lane solves a column of two of them
3. U[k, j] = -A[k, j] D[j], and row by row T[i, j] = T[i, j+1] U[j+1, j] + ... + D[i] U[i, j], products in f16

The result of one product has the register layout of the left operand of the next, or, transposed, of the right one.
So U is computed transposed, from the transposed D, and only D moves between lanes. f16 has more digits than the bf16
to which the inverse is rounded; numbers past 65504 would need betas and keys for which the rule itself diverges.
Missing tokens of a ragged chunk have no beta: their columns are zeros, and so are the rows except for the diagonal.
"""

from kernbench.kernels.attention import LOG2_E, ROW_BYTES, SPAN
from kernbench.kernels.gated_delta_rule.shape import CHUNK, ForwardShape
from kernbench.ptx.builder import FULL_MASK, Context, Pointer, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP = 32
DEPTH, OCTET, WIDE = 16, 8, 4
PIECE_BYTES = 16
# rows and columns of a block, and blocks of a chunk
BLOCK = 16
BLOCKS = CHUNK // BLOCK
_SWIZZLE_BYTES = 1024
PANEL_BYTES = CHUNK * ROW_BYTES
# shared memory of a warp: keys, reused for the inverse to be stored and blocks on the diagonal
WARP_BYTES = 2 * PANEL_BYTES
# a block of A in f32, transposed: rows padded so that no two of eight begin at the same bank
_LINE = BLOCK + WIDE
_FACTORS = BLOCK * _LINE + BLOCK
# a block of D in 16 bits, transposed: eight rows cover all banks once
_D_ROW_BYTES = 3 * PIECE_BYTES
_D_BYTES = BLOCK * _D_ROW_BYTES
PRODUCT = "m16n8k16"
# registers per thread with which three CTAs of four warps fit into an SM, as their shared memory does
MOST_REGISTERS = 168
POINTERS = ("chunks", "g", "beta", "gates")


class InverseKernel:
    """A warp for each chunk and key head; a CTA has several key heads of a chunk."""

    name = "gated_delta_inverse"
    target = "sm_90a"

    def __init__(self, shape: ForwardShape):
        self.shape = shape

    @property
    def warps(self) -> int:
        """Warps of a CTA: as many as divide the heads, up to four."""
        return next(count for count in (4, 2, 1) if self.shape.heads % count == 0)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.warps * WARP

    @property
    def key_bytes(self) -> int:
        """Bytes of the keys of a chunk."""
        return CHUNK * self.shape.key_size * 2

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory."""
        return self.warps * WARP_BYTES

    def grid(self, chunks: int) -> tuple[int, int, int]:
        """Groups of key heads, then chunks."""
        return self.shape.heads // self.warps, chunks, 1

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it has line information."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(self.threads).maxnreg(MOST_REGISTERS)
        kernel.param("tensormap", "k_map").param("tensormap", "inverses_map")
        for name in POINTERS:
            kernel.param("u64", f"{name}_ptr")
        return kernel.build(self.program)

    def program(self, ctx: Context) -> None:
        """All steps."""
        _Chunk(ctx, self).run()


class _Chunk:
    """The kernel under construction: a warp with a chunk of a key head."""

    def __init__(self, ctx: Context, kernel: InverseKernel):
        self.ctx, self.kernel, self.shape = ctx, kernel, kernel.shape
        warp, self.lane = ctx.tid_x // WARP, ctx.tid_x % WARP
        self.full = ctx.mbarriers(kernel.warps, name="full") + warp
        self.memory = ctx.dynamic_shared("b8", align=_SWIZZLE_BYTES) + warp * WARP_BYTES
        self.blocks = self.memory.shifted(PANEL_BYTES)
        names = ("cumulated", "betas")
        self.gates, self.betas = (
            ctx.shared("f32", kernel.warps * CHUNK, align=16, name=name) + warp * CHUNK for name in names
        )
        self.key_head, self.chunk = ctx.mad(ctx.ctaid_x, kernel.warps, warp), ctx.ctaid_y
        self.start, self.length = ctx.load(ctx.pointer("chunks_ptr", "u32") + self.chunk * 2, vec=2)
        # row and column of this lane's first element of a product
        self.row, self.column = self.lane >> 2, (self.lane & 3) * 2

    def run(self) -> None:
        """Copy the keys while loading the first gates; then the value heads."""
        ctx = self.ctx
        with ctx.if_(self.lane == 0):
            ctx.mbarrier_init(self.full, 1)
            ctx.fence_mbarrier_init()
            ctx.mbarrier_arrive_expect_tx(self.full, self.kernel.key_bytes)
            ctx.tma_load(self.memory, ctx.tensor_map("k_map"), (0, self.start, 0, self.key_head), self.full)
        head = self.key_head * self.shape.group
        self.pairs = [ctx.const(0.0, "f32") for _ in range(4)]
        self._look(head)
        ctx.bar_warp_sync(FULL_MASK)
        ctx.mbarrier_wait(self.full, 0)
        self._clear_tail()
        scores = self._scores()
        ctx.bar_warp_sync(FULL_MASK)
        zero = [ctx.const(0, "b32")] * 4
        for row in range(BLOCKS):
            for column in range(row + 1, BLOCKS):
                ctx.stmatrix(self._piece(row, column), zero)
        with ctx.loop(0, self.shape.group) as number:
            self._head(head + number, scores, number + 1 < self.shape.group)
        ctx.bulk_wait(0, read=True, pred=self.lane == 0)

    # Gates

    def _look(self, head: Register, wanted: object = None) -> None:
        """Start loading g and beta of this lane's two rows."""
        ctx, first = self.ctx, self.lane * 2
        for name, registers in (("g", self.pairs[:2]), ("beta", self.pairs[2:])):
            source = ctx.pointer(f"{name}_ptr", "f32")
            for i, register in enumerate(registers):
                there = first + i < self.length
                mask = there if wanted is None else there & wanted
                ctx.load(source, self._gate(first + i, head), mask=mask, out=register)

    def _gate(self, row: Register, head: Register) -> Register:
        return self.ctx.mad(self.start + row, self.shape.v_heads, head)

    def _cumulate(self, head: Register) -> None:
        """G and beta of all rows; past the end G repeats the last one, and beta is zero."""
        ctx, first = self.ctx, self.lane * 2
        one, other, *betas = self.pairs
        sum_ = one + other
        for step in (1, 2, 4, 8, 16):
            before = ctx.shfl_up(sum_, step, mask=FULL_MASK)
            sum_ += ctx.selp(before, 0.0, self.lane >= step)
        before = ctx.selp(ctx.shfl_up(sum_, 1, mask=FULL_MASK), 0.0, self.lane > 0)
        gates = (before + one, sum_)
        ctx.store(self.gates + first, tuple(gate * LOG2_E for gate in gates))
        ctx.store(self.betas + first, tuple(betas))
        for i, gate in enumerate(gates):
            where = self._gate(first + i, head)
            ctx.store(ctx.pointer("gates_ptr", "f32"), gate, where, mask=first + i < self.length)
        ctx.bar_warp_sync(FULL_MASK)

    # k k^T

    def _clear_tail(self) -> None:
        """Set the keys of the next sequence to zero: zero times NaN would be NaN."""
        ctx, lanes = self.ctx, ROW_BYTES // PIECE_BYTES
        with ctx.if_(self.length < CHUNK):
            keys, zero = self.memory.retyped("u32"), ctx.const(0, "u32")
            with ctx.loop(self.length + self.lane // lanes, CHUNK, WARP // lanes) as row:
                piece = keys + ctx.mad(row, ROW_BYTES // 4, self.lane % lanes * (PIECE_BYTES // 4))
                for span in range(self.shape.spans):
                    ctx.store(piece.shifted(span * PANEL_BYTES), (zero,) * (PIECE_BYTES // 4))
            ctx.bar_warp_sync(FULL_MASK)

    def _piece(self, row: int, column: int, span: int = 0) -> Pointer:
        """The address that this lane passes to ldmatrix for a block of a panel, swizzled."""
        piece = ((self.lane >> 4) ^ (self.lane & 7)) * PIECE_BYTES
        line = self.memory + (self.lane & BLOCK - 1) * ROW_BYTES + (piece ^ column * 2 * PIECE_BYTES)
        found: Pointer = line.shifted(span * PANEL_BYTES + row * BLOCK * ROW_BYTES)
        return found

    def _scores(self) -> dict[tuple[int, int], list[Register]]:
        """The blocks of k k^T on the diagonal and below, eight elements of each per lane."""
        ctx = self.ctx
        types = f"f32.{self.shape.dtype}.{self.shape.dtype}.f32"
        scores = {(i, j): [ctx.const(0.0, "f32") for _ in range(8)] for i in range(BLOCKS) for j in range(i + 1)}
        for depth in range(0, self.shape.key_size, DEPTH):
            span, column = divmod(depth, SPAN)
            keys = [ctx.ldmatrix(self._piece(row, column // BLOCK, span), 4) for row in range(BLOCKS)]
            for (i, j), sums in scores.items():
                for half in range(2):
                    part = sums[4 * half : 4 * half + 4]
                    ctx.mma(PRODUCT, keys[i], keys[j][half::2], part, types=types, out=tuple(part))
        return scores

    # A value head

    def _head(self, head: Register, scores: dict[tuple[int, int], list[Register]], more: object) -> None:
        """The inverse of one value head, from its gates to shared memory and its store."""
        ctx = self.ctx
        self._cumulate(head)
        self._look(head + 1, more)
        for number in range(BLOCKS):
            self._keep_factors(number, scores[number, number])
        ctx.bar_warp_sync(FULL_MASK)
        columns = self._solve()
        # all have read the memory that the inverses now overwrite
        ctx.bar_warp_sync(FULL_MASK)
        for half, column in enumerate(columns):
            self._keep_column(half, column)
        below = {block: self._corrections(*block, sums) for block, sums in scores.items() if block[0] > block[1]}
        # the inverse before has been read by its store
        ctx.bulk_wait(0, read=True, pred=self.lane == 0)
        ctx.bar_warp_sync(FULL_MASK)
        self._multiply(below)
        ctx.fence_proxy_async()
        ctx.bar_warp_sync(FULL_MASK)
        with ctx.if_(self.lane == 0):
            item = ctx.mad(self.chunk, self.shape.v_heads, head)
            ctx.tma_store(ctx.tensor_map("inverses_map"), (0, 0, item), self.memory)
            ctx.bulk_commit()

    def _keep_factors(self, number: int, scores: list[Register]) -> None:
        """Write -A of a block on the diagonal, transposed, by the symmetry of the scores: element [r, c] is A[c, r]."""
        ctx, first = self.ctx, number * BLOCK
        rows = [ctx.load(self.gates + self.row, first + half * OCTET) for half in range(2)]
        target = self.blocks.retyped("f32") + ctx.mad(self.row, _LINE, self.column)
        for tile in range(2):
            others = ctx.load(self.gates + self.column, first + tile * OCTET, vec=2)
            betas = ctx.load(self.betas + self.column, first + tile * OCTET, vec=2)
            # above the diagonal, the first columns of the last rows are skipped
            for half in range(tile + 1):
                pair = [scores[4 * tile + 2 * half + i] * -betas[i] * ctx.ex2(others[i] - rows[half]) for i in range(2)]
                ctx.store(target[number * _FACTORS + half * OCTET * _LINE + tile * OCTET], tuple(pair))

    def _solve(self) -> list[list[Register]]:
        """Columns of D, two per lane, by forward substitution."""
        ctx = self.ctx
        column, block = self.lane & BLOCK - 1, self.lane >> 4
        start = self.blocks.retyped("f32") + block * _FACTORS
        columns = [
            [ctx.selp(ctx.const(1.0, "f32"), 0.0, column == row) for row in range(BLOCK)] for _ in range(BLOCKS // 2)
        ]
        for known in range(BLOCK - 1):
            for half, found in enumerate(columns):
                for first in range((known + 1) // WIDE * WIDE, BLOCK, WIDE):
                    line = ctx.load(start[half * 2 * _FACTORS + known * _LINE + first], vec=WIDE)
                    for row in range(max(first, known + 1), first + WIDE):
                        ctx.fma(line[row - first], found[known], found[row], out=found[row])
        return columns

    def _keep_column(self, half: int, column: list[Register]) -> None:
        """Write a column of D as a row: in f16 for the products, and times beta for the result."""
        ctx = self.ctx
        beta = ctx.load(self.betas + self.lane, half * WARP)
        row = self.blocks + ((self.lane >> 4) * _D_BYTES + (self.lane & BLOCK - 1) * _D_ROW_BYTES)
        last = [value * beta for value in column]
        for kind, (form, values) in enumerate((("f16", column), (self.shape.dtype, last))):
            packed = self._packed(form, values)
            target = row.shifted((kind * BLOCKS + half * 2) * _D_BYTES).retyped("b32")
            for i in range(0, len(packed), WIDE):
                ctx.store(target[i], tuple(packed[i : i + WIDE]))

    def _corrections(self, row: int, column: int, scores: list[Register]) -> list[Register]:
        """-A of a block below the diagonal in f16, two columns per register."""
        ctx = self.ctx
        rows = [ctx.load(self.gates + self.row, row * BLOCK + half * OCTET) for half in range(2)]
        betas = [ctx.load(self.betas + self.row, row * BLOCK + half * OCTET) for half in range(2)]
        made = []
        for tile in range(2):
            others = ctx.load(self.gates + self.column, column * BLOCK + tile * OCTET, vec=2)
            for half in range(2):
                for i in range(2):
                    factor = -betas[half] * ctx.ex2(rows[half] - others[i])
                    made.append(scores[4 * tile + 2 * half + i] * factor)
        return self._packed("f16", made)

    def _multiply(self, below: dict[tuple[int, int], list[Register]]) -> None:
        """Compute T, row by row, into shared memory."""
        ctx, lane = self.ctx, self.lane
        straight = self.blocks + ((lane & BLOCK - 1) * _D_ROW_BYTES + (lane >> 4) * PIECE_BYTES)
        turned = self.blocks + (
            ((lane & OCTET - 1) + (lane >> 4) * OCTET) * _D_ROW_BYTES + ((lane >> 3) & 1) * PIECE_BYTES
        )
        ready: dict[tuple[int, int], list[Register]] = {}
        for j in range(BLOCKS - 1):
            left = list(ctx.ldmatrix(straight.shifted(j * _D_BYTES), 4))
            for i in range(j + 1, BLOCKS):
                ready[i, j] = self._packed("f16", self._sum([(left, below[i, j])]))
        for i in range(BLOCKS):
            leaving = ctx.ldmatrix(turned.shifted((BLOCKS + i) * _D_BYTES), 4, trans=True)
            ctx.stmatrix(self._piece(i, i), list(leaving))
            row = {i: list(ctx.ldmatrix(turned.shifted(i * _D_BYTES), 4, trans=True))} if i else {}
            for j in reversed(range(i)):
                found = self._sum([(row[k], ready[k, j]) for k in range(j + 1, i + 1)])
                row[j] = self._packed("f16", found)
                betas = [
                    one
                    for tile in range(2)
                    for one in ctx.load(self.betas + self.column, j * BLOCK + tile * OCTET, vec=2)
                ]
                last = [value * betas[n // 4 * 2 + n % 2] for n, value in enumerate(found)]
                ctx.stmatrix(self._piece(i, j), self._packed(self.shape.dtype, last))

    def _sum(self, products: list[tuple[list[Register], list[Register]]]) -> list[Register]:
        """The sum of products of blocks: left operands, and right operands transposed."""
        ctx = self.ctx
        sums = [ctx.const(0.0, "f32") for _ in range(8)]
        for left, right in products:
            for half in range(2):
                part = sums[4 * half : 4 * half + 4]
                ctx.mma(PRODUCT, left, right[half::2], part, types="f32.f16.f16.f32", out=tuple(part))
        return sums

    def _packed(self, form: str, values: list[Register]) -> list[Register]:
        """Two values per register."""
        pairs = zip(values[::2], values[1::2], strict=True)
        return [self.ctx.cvt_pack(f"{form}x2", high, low).bits("b32") for low, high in pairs]


# a row of 128 bytes has as many elements as a chunk has tokens: a box of the inverse is one row wide
assert CHUNK == SPAN
