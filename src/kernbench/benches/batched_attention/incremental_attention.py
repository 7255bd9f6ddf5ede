"""Batched incremental attention (decode): one warp for each query head of each sequence, f32.

q and out are [M, heads, d]; K and V of each sequence are separate arrays, [kv_heads, max_seq_len, d], found through
arrays of M pointers; `seq_lens` has each sequence's number of keys. The softmax is computed online: the
running maximum, the sum of the exponentials and the weighted sum of V, rescaled whenever the maximum grows.
"""

from math import sqrt
from typing import Any

from kernbench.common.errors import MisuseError
from kernbench.ptx.builder import FULL_MASK, Context, Pointer, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP = 32
LOG2_E = 1.4426950408889634
MAX_HEAD_DIM = 128


class BatchedIncrementalAttentionKernel:
    """The kernel for one model and batch; launch it with grid (num_heads, batch_size, 1) and blocks of 32 threads."""

    name = "batched_incremental_attention"

    def __init__(self, max_seq_len: int, head_dim: int, num_heads: int, num_kv_heads: int, batch_size: int):
        sizes = {"max_seq_len": max_seq_len, "head_dim": head_dim, "num_heads": num_heads}
        for what, size in {**sizes, "num_kv_heads": num_kv_heads, "batch_size": batch_size}.items():
            if not isinstance(size, int) or size < 1:
                raise MisuseError(f"{what} = {size!r}: a positive whole number is wanted")
        if head_dim > MAX_HEAD_DIM:
            raise MisuseError(f"head_dim = {head_dim}: one warp keeps heads of up to {MAX_HEAD_DIM} in its registers")
        self.max_seq_len = max_seq_len
        self.head_dim = head_dim
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.batch_size = batch_size

    @property
    def grid(self) -> tuple[int, int, int]:
        """A block for each head of each sequence."""
        return self.num_heads, self.batch_size, 1

    @property
    def block(self) -> tuple[int, int, int]:
        """One warp."""
        return WARP, 1, 1

    def build_ptx(self, **options: Any) -> Kernel:
        """The kernel, built and checked; `options` are those of `PtxKernel`."""
        kernel = PtxKernel(self.name, **options)
        for name in ("q_ptr", "k_ptrs_ptr", "v_ptrs_ptr", "out_ptr", "seq_lens_ptr"):
            kernel.param("u64", name)
        return kernel.build(self.program)

    def program(self, ctx: Context) -> None:
        """One warp: lane i has elements i, i + 32, ... of the head."""
        head, sequence, lane = ctx.ctaid_x, ctx.ctaid_y, ctx.tid_x
        mine = ctx.mad(ctx.mad(sequence, self.num_heads, head), self.head_dim, lane)
        kv_head = head * self.num_kv_heads // self.num_heads
        first = ctx.mad(kv_head, self.max_seq_len * self.head_dim, lane)
        length = ctx.load(ctx.pointer("seq_lens_ptr", "u32"), sequence)
        k, v = (self._cache(ctx, name, sequence) + first for name in ("k_ptrs_ptr", "v_ptrs_ptr"))
        scale = LOG2_E / sqrt(self.head_dim)
        q = [value * scale for value in self._load(ctx, ctx.pointer("q_ptr", "f32") + mine, lane)]
        largest, total = ctx.const(float("-inf"), "f32"), ctx.const(0.0, "f32")
        out = [ctx.const(0.0, "f32") for _ in q]
        with ctx.loop(length) as key:
            score = self.score(ctx, q, self._load(ctx, k, lane))
            ctx.checkpoint("scores", score, at=(sequence, head, key))
            before = self.kept(largest)
            ctx.max_(largest, score)
            correction, weight = ctx.ex2(before - largest), ctx.ex2(score - largest)
            ctx.fma(total, correction, weight, out=total)
            for value, sum_ in zip(self._load(ctx, v, lane), out, strict=True):
                ctx.fma(sum_, correction, weight * value, out=sum_)
            k.advance(self.head_dim)
            v.advance(self.head_dim)
        ctx.checkpoint("weights", total, at=(sequence, head))
        # a sequence without keys has no weight to divide by: its output is zeros
        inverse = ctx.where(total > 0.0, ctx.rcp(total), 0.0)
        self._store(ctx, ctx.pointer("out_ptr", "f32") + mine, [value * inverse for value in out], lane)

    def kept(self, largest: Register) -> Register:
        """The running maximum, in a register that the next one does not overwrite."""
        return largest.copy()

    def score(self, ctx: Context, q: list[Register], k: list[Register]) -> Register:
        """q k^T of one key, in every lane."""
        partial = q[0] * k[0]
        for a, b in zip(q[1:], k[1:], strict=True):
            ctx.fma_(partial, a, b)
        for step in (16, 8, 4, 2, 1):
            partial += ctx.shfl_bfly(partial, step, mask=FULL_MASK)
        return partial

    def _cache(self, ctx: Context, name: str, sequence: Register) -> Pointer:
        return ctx.pointer(ctx.load(ctx.pointer(name, "u64"), sequence), "f32")

    def _parts(self, ctx: Context, lane: Register) -> list[tuple[int, Any]]:
        """Offsets of a lane's elements, and which lanes have the last one."""
        parts: list[tuple[int, object]] = [(start, None) for start in range(0, self.head_dim, WARP)]
        left = self.head_dim % WARP
        if left:
            parts[-1] = parts[-1][0], lane < left
        return parts

    def _load(self, ctx: Context, at: Pointer, lane: Register) -> list[Register]:
        """A lane's elements of a head; zeros past its end."""
        return [
            ctx.load(at[start]) if mask is None else ctx.load(at[start], mask=mask, other=0.0)
            for start, mask in self._parts(ctx, lane)
        ]

    def _store(self, ctx: Context, at: Pointer, values: list[Register], lane: Register) -> None:
        for value, (start, mask) in zip(values, self._parts(ctx, lane), strict=True):
            ctx.store(at[start], value, mask=mask)
