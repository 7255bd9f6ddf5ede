"""One token per sequence: S <- e^g S; d = beta (v - S k); S <- S + d k^T; o = scale S q, the state [V, K] in place.

The time is dominated by reading and writing states, 64 KB per head of 128 x 128, so each is read once. Eight
lanes share a row of it: four rows per warp are in flight at once, and two sums over a row, S k and S q, are computed
together, since S' q = (e^g S) q + d (k q). A head's rows may be split over several CTAs, which are independent.

shape = StepShape(heads=16, v_heads=32)
kernel = StepKernel(shape, parts=4)
given = step_arguments(shape, q, k, v, g, beta, states, slots, out)
device.launch(kernel.build(), kernel.grid(sequences), kernel.threads, given)
"""

from dataclasses import dataclass
from math import sqrt

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Shaped
from kernbench.kernels.attention import DTYPES, HEAD_SIZES, LOG2_E
from kernbench.ptx.builder import FULL_MASK, Context, Pointer, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP = 32
WARPS = 4
# lanes that share a row of the state, and elements of one load
LANES, WIDE = 8, 4
# rows that a group of lanes processes at once
AT_ONCE = 4
# rows that the groups of a CTA process at once
_GROUPS = WARPS * WARP // LANES
_POINTERS = ("q", "k", "v", "g", "beta", "states", "slots", "out")


@dataclass(frozen=True)
class StepShape:
    """q and k [sequences, heads, key_size], v and the output [sequences, v_heads, value_size] of `dtype`.

    Gates g (natural logarithms) and beta [sequences, v_heads], and states [slots, v_heads, value_size, key_size], are
    f32. Value head j uses query and key head j // (v_heads / heads). With `normalise`, q and k are divided by their
    Euclidean norm first, as sqrt(sum + 1e-6).
    """

    heads: int
    v_heads: int
    key_size: int = 128
    value_size: int = 128
    dtype: str = "bf16"
    normalise: bool = False

    def __post_init__(self) -> None:
        if self.heads < 1 or self.v_heads < 1 or self.v_heads % self.heads:
            raise MisuseError(f"v_heads = {self.v_heads} must be a multiple of heads = {self.heads}")
        for name in ("key_size", "value_size"):
            if getattr(self, name) not in HEAD_SIZES:
                raise MisuseError(f"{name} = {getattr(self, name)}: one of {', '.join(map(str, HEAD_SIZES))}")
        if self.dtype not in DTYPES:
            raise MisuseError(f"dtype = {self.dtype!r}: one of {', '.join(DTYPES)}")

    @property
    def group(self) -> int:
        """Value heads that share a query and a key."""
        return self.v_heads // self.heads


class StepKernel:
    """A CTA for each sequence, value head and one of `parts` equal parts of its rows."""

    name = "gated_delta_step"
    target = "sm_80"

    def __init__(self, shape: StepShape, parts: int = 1):
        self.shape, self.parts = shape, parts
        most = shape.value_size // _GROUPS
        if parts < 1 or parts & (parts - 1) or parts > most:
            raise MisuseError(f"parts = {parts!r}: a power of two up to {most}")

    @classmethod
    def fitting(cls, shape: StepShape, sequences: int, sms: int) -> "StepKernel":
        """The fewest parts that give every SM two CTAs, if possible."""
        parts, most = 1, shape.value_size // _GROUPS
        while parts < most and sequences * shape.v_heads * parts < 2 * sms:
            parts *= 2
        return cls(shape, parts)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return WARPS * WARP

    def grid(self, sequences: int) -> tuple[int, int, int]:
        """Parts, value heads, sequences."""
        return self.parts, self.shape.v_heads, sequences

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it has line information."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(self.threads)
        for name in _POINTERS:
            kernel.param("u64", f"{name}_ptr")
        return kernel.param("u32", "slot_count").param("f32", "scale").build(self.program)

    def program(self, ctx: Context) -> None:
        """A sequence without a valid slot, such as -1, has no state: its output is zeros."""
        slot = ctx.load(ctx.pointer("slots_ptr", "u32"), ctx.ctaid_z)
        with ctx.if_(slot < ctx.param("slot_count")):
            _Head(ctx, self, slot).run()
        with ctx.else_():
            self._zeros(ctx)

    def _zeros(self, ctx: Context) -> None:
        shape, rows = self.shape, self.shape.value_size // self.parts
        out = ctx.pointer("out_ptr", shape.dtype)
        first = ctx.mad(ctx.mad(ctx.ctaid_z, shape.v_heads, ctx.ctaid_y), shape.value_size, ctx.ctaid_x * rows)
        with ctx.loop(ctx.tid_x, rows, self.threads) as row:
            ctx.store(out, ctx.const(0.0, shape.dtype), first + row)


class _Head:
    """The kernel under construction: a CTA's part of one head."""

    def __init__(self, ctx: Context, kernel: StepKernel, slot: Register):
        self.ctx, self.shape = ctx, kernel.shape
        self.rows = kernel.shape.value_size // kernel.parts
        self.loads = kernel.shape.key_size // (LANES * WIDE)
        self.head = ctx.mad(ctx.ctaid_z, self.shape.v_heads, ctx.ctaid_y)
        self.lane, self.line = ctx.tid_x & LANES - 1, ctx.tid_x >> 3
        self.first = ctx.ctaid_x * self.rows
        state = ctx.mad(slot, self.shape.v_heads, ctx.ctaid_y).to("u64")
        size = self.shape.value_size * self.shape.key_size
        self.state: Pointer = ctx.pointer("states_ptr", "f32") + state * size

    def run(self) -> None:
        """Load queries, keys and gates, then process rows of the state, several at once."""
        ctx, shape = self.ctx, self.shape
        source = ctx.mad(ctx.ctaid_z, shape.heads, ctx.ctaid_y // shape.group)
        keys, queries = (self._vector(name, source) for name in ("k", "q"))
        gate = ctx.ex2(ctx.load(ctx.pointer("g_ptr", "f32"), self.head) * LOG2_E)
        beta = ctx.load(ctx.pointer("beta_ptr", "f32"), self.head)
        meeting = self._over_lanes(self._dot(keys, queries))
        values, out = (ctx.pointer(f"{name}_ptr", shape.dtype) for name in ("v", "out"))
        with ctx.loop(self.line, self.rows, _GROUPS * AT_ONCE) as row:
            mine = [row + i * _GROUPS for i in range(min(AT_ONCE, self.rows // _GROUPS))]
            loaded = [self._load(one) for one in mine]
            given = [ctx.load(values, self._where(one)).to("f32") for one in mine]
            for one, state, value in zip(mine, loaded, given, strict=True):
                for register in state:
                    register *= gate
                recalled = self._over_lanes(self._dot(state, keys))
                answer = self._over_lanes(self._dot(state, queries))
                change = beta * (value - recalled)
                for register, key in zip(state, keys, strict=True):
                    ctx.fma(change, key, register, out=register)
                self._store(one, state)
                result = ctx.fma(change, meeting, answer) * ctx.param("scale")
                ctx.store(out, result.to(shape.dtype), self._where(one), mask=self.lane == 0)

    def _where(self, row: Register) -> Register:
        """The index of a row of the value or of the output."""
        return self.ctx.mad(self.head, self.shape.value_size, self.first + row)

    def _pieces(self, row: Register) -> Pointer:
        """The address of this lane's elements of a row of the state."""
        return self.state + self.ctx.mad(self.first + row, self.shape.key_size, self.lane * WIDE)

    def _load(self, row: Register) -> list[Register]:
        start = self._pieces(row)
        return [one for i in range(self.loads) for one in self.ctx.load(start[i * LANES * WIDE], vec=WIDE)]

    def _store(self, row: Register, state: list[Register]) -> None:
        start = self._pieces(row)
        for i in range(self.loads):
            self.ctx.store(start[i * LANES * WIDE], tuple(state[i * WIDE : (i + 1) * WIDE]))

    def _vector(self, name: str, head: Register) -> list[Register]:
        """This lane's elements of a query or a key, in f32."""
        ctx, shape = self.ctx, self.shape
        words = ctx.pointer(f"{name}_ptr", "b32") + ctx.mad(head, shape.key_size, self.lane * WIDE) // 2
        loaded = [word for i in range(self.loads) for word in ctx.load(words[i * LANES * WIDE // 2], vec=WIDE // 2)]
        found = [half.to("f32") for word in loaded for half in ctx.unpack(word, shape.dtype)]
        if not shape.normalise:
            return found
        inverse = ctx.rsqrt(self._over_lanes(self._dot(found, found)) + 1e-6)
        return [one * inverse for one in found]

    def _dot(self, left: list[Register], right: list[Register]) -> Register:
        """The sum of this lane's products, in two chains."""
        ctx = self.ctx
        chains = [left[i] * right[i] for i in range(2)]
        for i in range(2, len(left)):
            ctx.fma(left[i], right[i], chains[i % 2], out=chains[i % 2])
        total: Register = chains[0] + chains[1]
        return total

    def _over_lanes(self, value: Register) -> Register:
        """The sum over the lanes of a row."""
        for step in (1, 2, 4):
            value += self.ctx.shfl_bfly(value, step, mask=FULL_MASK)
        return value


def step_arguments(
    shape: StepShape,
    q: Shaped,
    k: Shaped,
    v: Shaped,
    g: Shaped,
    beta: Shaped,
    states: Shaped,
    slots: Shaped,
    out: Shaped,
    scale: float | None = None,
) -> list[object]:
    """The kernel's arguments for arrays on a device; slots [sequences] are 32-bit numbers of each sequence's state."""
    sequences = slots.shape[0]
    queries, values = (sequences, shape.heads, shape.key_size), (sequences, shape.v_heads, shape.value_size)
    gates, held = values[:2], (states.shape[0], shape.v_heads, shape.value_size, shape.key_size)
    named = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "states": states, "slots": slots, "out": out}
    sizes = (queries, queries, values, gates, gates, held, (sequences,), values)
    for (name, array), wanted in zip(named.items(), sizes, strict=True):
        if tuple(array.shape) != wanted:
            raise MisuseError(f"{name} has shape {list(array.shape)}, and {list(wanted)} is wanted")
    return [*named.values(), states.shape[0], 1 / sqrt(shape.key_size) if scale is None else scale]
