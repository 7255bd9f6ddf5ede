"""Optimised decode attention: several warps per head, 16-byte loads, split keys, head groups that share K and V.

The problem and its layout are those of `incremental_attention`, in f32, f16 or bf16. A block takes some query
heads of one KV head, and a slice of the sequence's keys (all of them without splits). In a warp, groups of lanes take
a key each, every lane 16 bytes of it; each group keeps its own softmax state for every head. An iteration of the loop
loads several keys before it computes with any, and rescales the state once for all of them. The states of groups, then
of warps, then (by a second kernel) of splits are merged. Scores are scaled by log2(e), so that ex2 computes exp.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

from kernbench.common.errors import MisuseError
from kernbench.ptx.builder import FULL_MASK, Context, Pointer, Predicate, PtxKernel, Register
from kernbench.ptx.text.module import Kernel
from kernbench.result.reading import Data

WARP = 32
LOG2_E = 1.4426950408889634
LOAD_BYTES = 16
# lower than every possible score: the state of a slice without keys, which merges without NaN
LOWEST = -1e30
# registers per lane for one copy of its heads' elements, and shared memory of a block
_ELEMENTS, _SHARED_BYTES = 64, 40 << 10
_SIZES = {"f32": 4, "f16": 2, "bf16": 2}
HEAD_DIMS = (64, 80, 96, 128, 256)


@dataclass(frozen=True)
class DecodeAttention:
    """A configuration of the kernel; `kernel` and, with splits, `reduce_kernel` are launched one after the other."""

    max_seq_len: int
    head_dim: int
    num_heads: int
    num_kv_heads: int
    batch_size: int
    dtype: str = "f16"
    warps: int = 4
    splits: int = 1
    shared_kv: bool = True
    # keys a lane loads before it computes; 0: as many as registers allow without losing warps
    unroll: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in _SIZES:
            raise MisuseError(f"dtype {self.dtype!r}: one of {', '.join(_SIZES)}")
        if self.head_dim not in HEAD_DIMS:
            raise MisuseError(f"head_dim = {self.head_dim}: one of {', '.join(map(str, HEAD_DIMS))}")
        if self.num_heads % self.num_kv_heads:
            raise MisuseError(f"num_heads = {self.num_heads} must be a multiple of num_kv_heads = {self.num_kv_heads}")
        if not 1 <= self.warps <= 16 or self.splits < 1 or self.unroll < 0:
            raise MisuseError(
                f"warps = {self.warps} (1 to 16), splits = {self.splits} (from 1), unroll = {self.unroll} (from 0)"
            )

    # Shape of the work

    @property
    def vector(self) -> int:
        """Elements of one load."""
        return LOAD_BYTES // _SIZES[self.dtype]

    @property
    def chunks(self) -> int:
        """Loads of a lane for one key."""
        return -(-self.head_dim // (self.vector * WARP))

    @property
    def lanes(self) -> int:
        """Lanes that share a key: a power of two."""
        needed = -(-self.head_dim // (self.vector * self.chunks))
        return 1 << (needed - 1).bit_length()

    @property
    def keys(self) -> int:
        """Keys that a warp processes at once."""
        return WARP // self.lanes

    @property
    def turn(self) -> int:
        """Keys a lane loads before it computes."""
        return self.unroll or (4 if self.vector * self.chunks <= 4 else 2)

    @property
    def heads(self) -> int:
        """Query heads of a block: as many of a group as fit registers and shared memory."""
        group = self.num_heads // self.num_kv_heads if self.shared_kv else 1
        held = (_ELEMENTS // (self.vector * self.chunks), _SHARED_BYTES // (self.warps * (self.head_dim + 2) * 4))
        return max(count for count in range(1, group + 1) if group % count == 0 and count <= max(1, min(held)))

    @property
    def grid(self) -> tuple[int, int, int]:
        """Groups of heads, sequences, splits."""
        return self.num_heads // self.heads, self.batch_size, self.splits

    @property
    def block(self) -> tuple[int, int, int]:
        """All warps."""
        return self.warps * WARP, 1, 1

    @property
    def partial_shape(self) -> tuple[int, int, int, int]:
        """Unnormalised outputs: sequences, heads, splits, elements; the statistics have 2 (maximum, total) instead."""
        return self.batch_size, self.num_heads, self.splits, self.head_dim

    @property
    def reduce_grid(self) -> tuple[int, int, int]:
        """A block of the reduce kernel for each head of each sequence."""
        return self.num_heads, self.batch_size, 1

    # Kernels

    def kernel(self, **options: Any) -> Kernel:
        """Attention over each slice of keys; with splits it writes `partial_ptr` and `stats_ptr`, not `out_ptr`."""
        kernel = PtxKernel("decode_attention", **options).reqntid(*self.block)
        outputs = ("out_ptr",) if self.splits == 1 else ("partial_ptr", "stats_ptr")
        for name in ("q_ptr", "k_ptrs_ptr", "v_ptrs_ptr", *outputs, "seq_lens_ptr"):
            kernel.param("u64", name)
        return kernel.build(lambda ctx: _Slice(self, ctx).program())

    def reduce_kernel(self, **options: Any) -> Kernel:
        """Merges the slices of each head."""
        kernel = PtxKernel("decode_attention_reduce", **options).reqntid(*self.block)
        for name in ("partial_ptr", "stats_ptr", "out_ptr"):
            kernel.param("u64", name)
        return kernel.build(self._reduce)

    def _reduce(self, ctx: Context) -> None:
        head = ctx.mad(ctx.ctaid_y, self.num_heads, ctx.ctaid_x)
        stats = ctx.pointer("stats_ptr", "f32") + head * (self.splits * 2)
        partial = ctx.pointer("partial_ptr", "f32") + head * (self.splits * self.head_dim)
        out = ctx.pointer("out_ptr", self.dtype) + head * self.head_dim
        with ctx.loop(ctx.tid_x, self.head_dim, self.warps * WARP) as element:
            largest, total, sum_ = ctx.const(LOWEST, "f32"), ctx.const(0.0, "f32"), ctx.const(0.0, "f32")
            with ctx.loop(self.splits) as split:
                other, weight = ctx.load(stats, split * 2), ctx.load(stats + 1, split * 2)
                value = ctx.load(partial, ctx.mad(split, self.head_dim, element))
                merge(ctx, largest, total, [sum_], other, weight, [value])
            store_result(ctx, out + element, sum_, total, self.dtype)


def merge(
    ctx: Context,
    largest: Register,
    total: Register,
    sums: list[Register],
    other: Register,
    weight: Register,
    values: list[Register],
) -> None:
    """Merge a softmax state (maximum, total weight, weighted values) into another, in place."""
    both = ctx.max(largest, other)
    ours, theirs = ctx.ex2(largest - both), ctx.ex2(other - both)
    ctx.fma(total, ours, weight * theirs, out=total)
    for sum_, value in zip(sums, values, strict=True):
        ctx.fma(sum_, ours, value * theirs, out=sum_)
    largest.set(both)


def store_result(ctx: Context, at: Pointer, sum_: Register, total: Register, dtype: str) -> None:
    """Store the weighted values over their weight; zeros if there was no key."""
    result = sum_ * ctx.where(total > 0.0, ctx.rcp(total), 0.0)
    ctx.store(at, result if dtype == "f32" else result.to(dtype))


class _Slice:
    """One block's work: some heads, one sequence, one slice of its keys."""

    def __init__(self, way: DecodeAttention, ctx: Context):
        self.way = way
        self.ctx = ctx
        lane = ctx.tid_x & (WARP - 1)
        self.warp, self.row = ctx.tid_x >> 5, lane // way.lanes
        self.column = (lane % way.lanes) * way.vector
        self.head, self.sequence = ctx.ctaid_x * way.heads, ctx.ctaid_y
        # which lanes have elements of each chunk; None for all
        self.inside = [self._inside(chunk) for chunk in range(way.chunks)]

    def _inside(self, chunk: int) -> Predicate | None:
        start, width = chunk * self.way.lanes * self.way.vector, self.way.lanes * self.way.vector
        return None if start + width <= self.way.head_dim else self.column < self.way.head_dim - start

    def program(self) -> None:
        """Scores and values of the slice, merged over the block."""
        ctx, way = self.ctx, self.way
        first, stop = self._slice(ctx.load(ctx.pointer("seq_lens_ptr", "u32"), self.sequence))
        caches = [self._cache(name) for name in ("k_ptrs_ptr", "v_ptrs_ptr")]
        queries = [self._query(head) for head in range(way.heads)]
        states = [self._state() for _ in range(way.heads)]
        step = way.keys * way.turn
        with ctx.loop(first + self.warp * step, stop, way.warps * step) as start:
            keys = [start + (self.row + turn * way.keys) for turn in range(way.turn)]
            valid = [key < stop if step > 1 else None for key in keys]
            loaded = [[self._load_row(cache, *pair) for pair in zip(keys, valid, strict=True)] for cache in caches]
            k, v = ([self._floats(row) for row in rows] for rows in loaded)
            for head, (query, state) in enumerate(zip(queries, states, strict=True)):
                scores = [self._score(query, *pair) for pair in zip(k, valid, strict=True)]
                for score, key, inside in zip(scores, keys, valid, strict=True):
                    ctx.checkpoint("scores", score, at=(self.sequence, f"{self.head} + {head}", key), when=inside)
                self._take(scores, state, v)
        for state in states:
            self._merge_rows(*state)
        self._finish(states)

    def _slice(self, length: Register) -> tuple[object, Register]:
        """The first key of this block, and the end of its keys."""
        if self.way.splits == 1:
            return self.ctx.const(0, "u32"), length
        share = (length + (self.way.splits - 1)) // self.way.splits
        first = self.ctx.min(self.ctx.ctaid_z * share, length)
        return first, self.ctx.min(first + share, length)

    def _cache(self, name: str) -> Pointer:
        """This lane's first element of key 0."""
        ctx, way = self.ctx, self.way
        address = ctx.load(ctx.pointer(name, "u64"), self.sequence)
        kv_head = self.head * way.num_kv_heads // way.num_heads
        offset = ctx.mul_wide(kv_head, way.max_seq_len * way.head_dim) + self.column.to("u64")
        cache: Pointer = ctx.pointer(address, way.dtype) + offset
        return cache

    def _query(self, head: int) -> list[Register]:
        ctx, way = self.ctx, self.way
        number = ctx.mad(self.sequence, way.num_heads, self.head + head)
        at = ctx.pointer("q_ptr", way.dtype) + ctx.mad(number, way.head_dim, self.column)
        return [value * (LOG2_E / sqrt(way.head_dim)) for value in self._floats(self._load(at, None))]

    def _load_row(self, cache: Pointer, key: Register, valid: Predicate | None) -> list[Register]:
        return self._load(cache + key.to("u64") * self.way.head_dim, valid)

    def _load(self, at: Pointer, valid: Predicate | None) -> list[Register]:
        """This lane's part of a head in 16-byte loads, halves in pairs; zeros where invalid."""
        way = self.way
        type = way.dtype if way.dtype == "f32" else f"{way.dtype}x2"
        found: list[Register] = []
        for chunk, inside in enumerate(self.inside):
            mask = inside if valid is None else valid if inside is None else valid & inside
            masked: Data = {} if mask is None else {"mask": mask, "other": 0.0}
            chunk_at = (at + chunk * way.lanes * way.vector).retyped(type)
            found += self.ctx.load(chunk_at, vec=LOAD_BYTES // 4, **masked)
        return found

    def _floats(self, loaded: list[Register]) -> list[Register]:
        """Elements as f32."""
        if self.way.dtype == "f32":
            return loaded
        return [half.to("f32") for pair in loaded for half in self.ctx.unpack(pair, self.way.dtype)]

    def _state(self) -> tuple[Register, Register, list[Register]]:
        """Maximum, total weight, weighted values."""
        ctx = self.ctx
        elements = self.way.vector * self.way.chunks
        return ctx.const(LOWEST, "f32"), ctx.const(0.0, "f32"), [ctx.const(0.0, "f32") for _ in range(elements)]

    def _take(
        self,
        scores: list[Register],
        state: tuple[Register, Register, list[Register]],
        v: list[list[Register]],
    ) -> None:
        """Process some keys for one head."""
        ctx = self.ctx
        largest, total, sums = state
        before = largest.copy()
        for score in scores:
            ctx.max_(largest, score)
        correction, weights = ctx.ex2(before - largest), [ctx.ex2(score - largest) for score in scores]
        total *= correction
        for sum_ in sums:
            sum_ *= correction
        for weight, values in zip(weights, v, strict=True):
            total += weight
            for sum_, value in zip(sums, values, strict=True):
                ctx.fma_(sum_, weight, value)

    def _score(self, query: list[Register], k: list[Register], valid: Predicate | None) -> Register:
        """q k^T of one key in all lanes that share it; minus infinity for an invalid key."""
        ctx = self.ctx
        score = query[0] * k[0]
        for a, b in zip(query[1:], k[1:], strict=True):
            ctx.fma_(score, a, b)
        step = self.way.lanes // 2
        while step:
            score += ctx.shfl_bfly(score, step, mask=FULL_MASK)
            step //= 2
        return score if valid is None else ctx.where(valid, score, float("-inf"))

    def _merge_rows(self, largest: Register, total: Register, sums: list[Register]) -> None:
        """Merge the states of the groups of lanes that processed different keys."""
        step = self.way.lanes
        while step < WARP:
            other, weight, *values = (
                self.ctx.shfl_bfly(value, step, mask=FULL_MASK) for value in (largest, total, *sums)
            )
            merge(self.ctx, largest, total, sums, other, weight, values)
            step *= 2

    def _finish(self, states: list[tuple[Register, Register, list[Register]]]) -> None:
        """Merge the states of all warps through shared memory, and store the result."""
        ctx, way = self.ctx, self.way
        sums = ctx.shared("f32", (way.warps, way.heads, way.head_dim), name="sums")
        stats = ctx.shared("f32", (way.warps, way.heads, 2), name="stats")
        with ctx.if_(self.row == 0):
            for head, state in enumerate(states):
                self._share(self.warp * way.heads + head, sums, stats, *state)
        ctx.bar_sync()
        with ctx.loop(ctx.tid_x, way.heads * way.head_dim, way.warps * WARP) as element:
            row = element // way.head_dim
            largest, total = ctx.load(stats, row * 2), ctx.load(stats + 1, row * 2)
            value = ctx.load(sums, element)
            for warp in range(1, way.warps):
                other, weight = (ctx.load(stats + (warp * way.heads * 2 + part), row * 2) for part in (0, 1))
                more = ctx.load(sums + warp * way.heads * way.head_dim, element)
                merge(ctx, largest, total, [value], other, weight, [more])
            self._put(row, element % way.head_dim, largest, total, value)

    def _share(
        self,
        number: Register,
        sums: Pointer,
        stats: Pointer,
        largest: Register,
        total: Register,
        values: list[Register],
    ) -> None:
        ctx, way = self.ctx, self.way
        ctx.store(stats + number * 2, (largest, total), mask=self.column == 0)
        at = sums + ctx.mad(number, way.head_dim, self.column)
        for chunk, inside in enumerate(self.inside):
            for start in range(0, way.vector, 4):
                first = chunk * way.vector + start
                offset = chunk * way.lanes * way.vector + start
                ctx.store(at + offset, values[first : first + 4], mask=inside)

    def _put(self, head: Register, element: Register, largest: Register, total: Register, value: Register) -> None:
        """Store one element of the result, or of this split's part of it."""
        ctx, way = self.ctx, self.way
        number = ctx.mad(self.sequence, way.num_heads, self.head + head)
        if way.splits == 1:
            out = ctx.pointer("out_ptr", way.dtype) + ctx.mad(number, way.head_dim, element)
            store_result(ctx, out, value, total, way.dtype)
            return
        part = ctx.mad(number, way.splits, ctx.ctaid_z)
        ctx.store(ctx.pointer("partial_ptr", "f32") + ctx.mad(part, way.head_dim, element), value)
        ctx.store(ctx.pointer("stats_ptr", "f32") + part * 2, (largest, total), mask=element == 0)
