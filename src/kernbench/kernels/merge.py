"""Merges attention outputs over parts of the keys by the logarithm of each softmax's sum.

This corresponds to the (m, l, o) merge of a mesh, for normalised outputs. A part without keys has minus infinity for
its logarithm and no weight, whatever its output is.

shape = MergeShape(heads=64, head_size=128, dtype="bf16")
kernel = MergeKernel(shape)
given = arguments(shape, parts, lses, out, lse)
device.launch(kernel.build(), kernel.ctas(tokens), kernel.threads, given)
"""

from dataclasses import dataclass

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Shaped
from kernbench.kernels.attention import DTYPES, LN_2, LOG2_E, LOWEST, check_heads
from kernbench.ptx.builder import Context, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP = 32
# rows of a token and a head that a CTA merges: one per warp
WARPS = 4
# parts that are loaded at once
PARTS_AT_ONCE = 4
# words of one load or store
_WIDEST = 4
# rows of all parts are counted in 32 bits
_MOST = 1 << 32
_POINTERS = ("parts_ptr", "lses_ptr", "out_ptr", "lse_ptr")


@dataclass(frozen=True)
class MergeShape:
    """parts [parts, tokens, heads, head_size] of `dtype` (f16, bf16 or f32), lses [parts, tokens, heads] of f32.

    The output is of `out_dtype`, by default that of the parts.
    """

    heads: int
    head_size: int = 128
    dtype: str = "bf16"
    out_dtype: str = ""

    def __post_init__(self) -> None:
        check_heads(self.heads, self.heads, self.head_size, DTYPES[0])
        if not self.out_dtype:
            object.__setattr__(self, "out_dtype", self.dtype)
        for name in ("dtype", "out_dtype"):
            if getattr(self, name) not in (*DTYPES, "f32"):
                raise MisuseError(f"{name} = {getattr(self, name)!r}: one of {', '.join(DTYPES)}, f32")

    @property
    def elements(self) -> int:
        """Elements of a row per lane."""
        return self.head_size // WARP


class MergeKernel:
    """A warp for each row; the logarithms are read first, then the parts."""

    name = "merge"
    target = "sm_80"

    def __init__(self, shape: MergeShape):
        self.shape = shape

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return WARPS * WARP

    def ctas(self, tokens: int) -> int:
        """CTAs of a launch."""
        return -(-tokens * self.shape.heads // WARPS)

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it has line information."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(self.threads)
        for name in _POINTERS:
            kernel.param("u64", name)
        return kernel.param("u32", "parts").param("u32", "rows").build(self.program)

    def program(self, ctx: Context) -> None:
        """One row."""
        row, rows = ctx.ctaid_x * WARPS + (ctx.tid_x >> 5), ctx.param("rows")
        with ctx.if_(row < rows):
            _Row(ctx, self.shape, row, rows).run()


class _Row:
    """The kernel under construction: a lane's elements of one row."""

    def __init__(self, ctx: Context, shape: MergeShape, row: Register, rows: Register):
        self.ctx, self.shape, self.row, self.rows = ctx, shape, row, rows
        self.count = ctx.param("parts")
        self.column = ctx.tid_x & WARP - 1
        self.lses = ctx.pointer("lses_ptr", "f32")

    def run(self) -> None:
        """The largest logarithm, the weighted sum, and the results."""
        ctx, shape = self.ctx, self.shape
        largest = self._largest()
        total = ctx.const(0.0, "f32")
        sums = [ctx.const(0.0, "f32") for _ in range(shape.elements)]
        with ctx.loop(0, self.count, PARTS_AT_ONCE) as first:
            found = [self._part(first + i, largest) for i in range(PARTS_AT_ONCE)]
            for weight, values in found:
                total += weight
                for sum_, value in zip(sums, values, strict=True):
                    ctx.fma(weight, value, sum_, out=sum_)
        inverse = ctx.selp(ctx.rcp(total), 0.0, total > 0.0)
        self._store([value * inverse for value in sums])
        lse = ctx.pointer("lse_ptr", "f32")
        with ctx.if_((self.column == 0) & (lse.base != 0)):
            ctx.store(lse, ctx.fma(ctx.lg2(total), LN_2, largest), self.row)

    def _largest(self) -> Register:
        """The maximum over all parts; at least LOWEST, so that differences are not NaN."""
        ctx = self.ctx
        largest = ctx.const(LOWEST, "f32")
        with ctx.loop(0, self.count) as part:
            ctx.max_(largest, ctx.load(self.lses, ctx.mad(part, self.rows, self.row)))
        return largest

    def _part(self, part: Register, largest: Register) -> tuple[Register, list[Register]]:
        """The weight and the elements of a part; zero if it does not exist, or has no keys."""
        ctx, shape = self.ctx, self.shape
        line = ctx.mad(part, self.rows, self.row)
        lse = ctx.load(self.lses, line, mask=part < self.count, other=float("-inf"))
        weight = ctx.ex2((lse - largest) * LOG2_E)
        words = shape.elements if shape.dtype == "f32" else shape.elements // 2
        parts = ctx.pointer("parts_ptr", "f32" if shape.dtype == "f32" else "b32")
        width = shape.head_size // shape.elements * words
        mine = parts + line.to("u64") * width
        start = (ctx.tid_x & WARP - 1) * words
        found: list[Register] = []
        for step in range(0, words, _WIDEST):
            count = min(_WIDEST, words - step)
            loaded = ctx.load(
                mine + (start + step), vec=count, mask=weight > 0.0, other=0 if count == 1 else (0,) * count
            )
            found += loaded if count > 1 else [loaded]
        if shape.dtype == "f32":
            return weight, found
        return weight, [half.to("f32") for word in found for half in ctx.unpack(word, shape.dtype)]

    def _store(self, values: list[Register]) -> None:
        ctx, shape = self.ctx, self.shape
        if shape.out_dtype != "f32":
            packed = f"{shape.out_dtype}x2"
            values = [ctx.cvt_pack(packed, values[i + 1], values[i]).bits("b32") for i in range(0, len(values), 2)]
        out = ctx.pointer("out_ptr", "f32" if shape.out_dtype == "f32" else "b32")
        words = len(values)
        mine = out + self.row.to("u64") * (words * WARP)
        start = (ctx.tid_x & WARP - 1) * words
        for step in range(0, words, _WIDEST):
            some = tuple(values[step : step + _WIDEST])
            ctx.store(mine + (start + step), some if len(some) > 1 else some[0])


def arguments(shape: MergeShape, parts: Shaped, lses: Shaped, out: Shaped, lse: Shaped | None = None) -> list[object]:
    """The kernel's arguments for arrays on a device; without `lse` the logarithms of the sums are not written."""
    if len(parts.shape) != 4 or tuple(parts.shape[2:]) != (shape.heads, shape.head_size):
        wanted = f"[parts, tokens, {shape.heads}, {shape.head_size}]"
        raise MisuseError(f"parts have shape {list(parts.shape)}, and {wanted} is wanted")
    count, tokens, *_ = parts.shape
    rows = (tokens, shape.heads)
    for name, array, wished in (
        ("lses", lses, (count, *rows)),
        ("out", out, (*rows, shape.head_size)),
        ("lse", lse, rows),
    ):
        if array is not None and tuple(array.shape) != wished:
            raise MisuseError(f"{name} has shape {list(array.shape)}, and {list(wished)} is wanted")
    if not count:
        raise MisuseError("there are no parts: nothing is to be merged")
    if count * tokens * shape.heads >= _MOST:
        raise MisuseError(f"{count} parts of {tokens:,} tokens are too many for one launch: split the tokens")
    return [parts, lses, out, 0 if lse is None else lse, count, tokens * shape.heads]
