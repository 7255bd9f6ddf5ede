"""The initial state of each segment of a sequence: S <- S P + N from one segment to the next.

P is the matrix by which a segment multiplies a state, N what its tokens add, both f32. Rows of a state are
independent: a CTA has 16 of them, and a thread a column.
"""

from kernbench.kernels.gated_delta_rule.shape import ForwardShape
from kernbench.ptx.builder import Context, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

ROWS, WIDE = 16, 4
# rows of a matrix that are loaded at once
AT_ONCE = 16
POINTERS = ("chains", "transfers", "states", "initial", "starts")


class ChainKernel:
    """A CTA for 16 rows of the states of a sequence and a value head."""

    name = "gated_delta_chain"
    target = "sm_80"

    def __init__(self, shape: ForwardShape):
        self.shape = shape

    @property
    def threads(self) -> int:
        """Threads of a CTA: one per column."""
        return self.shape.key_size

    @property
    def shared_bytes(self) -> int:
        """No dynamic shared memory."""
        return 0

    def grid(self, sequences: int) -> tuple[int, int, int]:
        """Rows, value heads, sequences."""
        return self.shape.value_size // ROWS, self.shape.v_heads, sequences

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it has line information."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(self.threads)
        for name in POINTERS:
            kernel.param("u64", f"{name}_ptr")
        return kernel.build(self.program)

    def program(self, ctx: Context) -> None:
        """From segment to segment; the last has no successor."""
        shape, keys = self.shape, self.shape.key_size
        chain = ctx.pointer("chains_ptr", "u32") + ctx.ctaid_z * 4
        first, count, inner, _ = ctx.load(chain, vec=4)
        rows = ctx.shared("f32", ROWS * keys, align=16, name="rows")
        state = [ctx.const(0.0, "f32") for _ in range(ROWS)]
        initial = ctx.pointer("initial_ptr", "f32")
        with ctx.if_(initial.base != 0):
            source = initial + self._row(ctx, ctx.ctaid_z)
            for i, register in enumerate(state):
                ctx.load(source[i * keys], out=register)
        self._keep(ctx, state, first)
        with ctx.loop(1, count) as number:
            for i, register in enumerate(state):
                ctx.store(rows + i * keys, register, ctx.tid_x)
            ctx.bar_sync()
            item = inner + number - 1
            added = ctx.pointer("states_ptr", "f32") + self._row(ctx, item)
            for i, register in enumerate(state):
                ctx.load(added[i * keys], out=register)
            head = ctx.mad(item, shape.v_heads, ctx.ctaid_y).to("u64")
            matrix = ctx.pointer("transfers_ptr", "f32") + (head * (keys * keys) + ctx.tid_x.to("u64"))
            with ctx.loop(0, keys, AT_ONCE) as k:
                column = [ctx.load(matrix + k * keys, i * keys) for i in range(AT_ONCE)]
                for part in range(0, AT_ONCE, WIDE):
                    for i, register in enumerate(state):
                        line = ctx.load(rows + k, i * keys + part, vec=WIDE)
                        for one, factor in zip(line, column[part : part + WIDE], strict=True):
                            ctx.fma(one, factor, register, out=register)
            ctx.bar_sync()
            self._keep(ctx, state, first + number)

    def _row(self, ctx: Context, number: Register) -> Register:
        """This thread's element of the CTA's first row of a state."""
        shape = self.shape
        state = ctx.mad(number, shape.v_heads, ctx.ctaid_y).to("u64") * (shape.value_size * shape.key_size)
        return state + ctx.mad(ctx.ctaid_x, ROWS * shape.key_size, ctx.tid_x).to("u64")

    def _keep(self, ctx: Context, state: list[Register], segment: Register) -> None:
        target = ctx.pointer("starts_ptr", "f32") + self._row(ctx, segment)
        for i, register in enumerate(state):
            ctx.store(target[i * self.shape.key_size], register)
