"""Triton kernels of the sixth set, none of them in a set before."""

# Triton has no types
# mypy: ignore-errors

from typing import Any

import triton
import triton.language as tl


@triton.jit
def causal(q, k, v, y, keys, factor, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """Attention over the keys up to each query: programs of later queries have more to do."""
    first = tl.program_id(0) * M
    head = tl.program_id(1).to(tl.int64) * keys * D
    i, j, d = first + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    queries = tl.load(q + head + i[:, None] * D + d[None, :])
    most = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    for begin in range(0, first + M, N):
        at = begin + j
        columns = tl.load(k + head + at[None, :] * D + d[:, None])
        scores = tl.dot(queries, columns) * factor
        scores = tl.where(i[:, None] >= at[None, :], scores, -float("inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        less = tl.exp2(most - new)
        total = total * less + tl.sum(weights, 1)
        rows = tl.load(v + head + at[:, None] * D + d[None, :])
        sums = tl.dot(weights.to(tl.bfloat16), rows, sums * less[:, None])
        most = new
    tl.store(y + head + i[:, None] * D + d[None, :], (sums / total[:, None]).to(tl.bfloat16))


@triton.jit
def shared_keys(q, k, v, y, keys, factor, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, PARTS: tl.constexpr):
    """Sixteen queries share the keys of a head, a part of which a program goes through; parts are not put together."""
    head, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, j, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    queries = tl.load(q + (head * M + i[:, None]) * D + d[None, :])
    most = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    each = keys // PARTS
    for begin in range(part * each, (part + 1) * each, N):
        rows = (head * keys + begin + j).to(tl.int64)
        columns = tl.load(k + rows[None, :] * D + d[:, None])
        scores = tl.dot(queries, columns) * factor
        new = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        less = tl.exp2(most - new)
        total = total * less + tl.sum(weights, 1)
        values = tl.load(v + rows[:, None] * D + d[None, :])
        sums = tl.dot(weights.to(tl.bfloat16), values, sums * less[:, None])
        most = new
    to = y + ((head * PARTS + part) * M + i[:, None]) * D + d[None, :]
    tl.store(to, sums / total[:, None])


@triton.jit
def norm_back(x, grad, weight, y, columns, BLOCK: tl.constexpr):
    """The gradient of a normalisation by mean and spread, a row a program."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    u = tl.load(x + row * columns + at).to(tl.float32)
    d = tl.load(grad + row * columns + at).to(tl.float32) * tl.load(weight + at)
    mean = tl.sum(u, 0) / columns
    apart = u - mean
    scale = tl.rsqrt(tl.sum(apart * apart, 0) / columns + 1e-5)
    unit = apart * scale
    by = tl.sum(d * unit, 0) / columns
    middle = tl.sum(d, 0) / columns
    tl.store(y + row * columns + at, ((d - middle - unit * by) * scale).to(tl.bfloat16))


@triton.jit
def narrow_products(a, b, scales, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A product of numbers of 8 bits, columns side by side, each with a scale."""
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    d = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    left = a + i[:, None] * k + d[None, :]
    right = b + j[None, :] * k + d[:, None]
    for _ in range(0, k, K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += K
        right += K
    total *= tl.load(scales + j)[None, :]
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.bfloat16))


@triton.jit
def running_sums(x, y, columns, BLOCK: tl.constexpr):
    """Sums of all numbers up to each one of a row, a row a program."""
    row = tl.program_id(0).to(tl.int64)
    at = row * columns + tl.arange(0, BLOCK)
    tl.store(y + at, tl.cumsum(tl.load(x + at), 0))


@triton.jit
def left_out(x, residual, y, seed, BLOCK: tl.constexpr):
    """A tenth of the numbers, drawn by counting, is left out; the rest is added to another array."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    drawn = tl.rand(seed, at)
    u = tl.load(x + at).to(tl.float32)
    kept = tl.where(drawn > 0.1, u / 0.9, 0.0)
    tl.store(y + at, (kept + tl.load(residual + at).to(tl.float32)).to(tl.bfloat16))


@triton.jit
def ragged_means(begin, x, y, D: tl.constexpr, ROWS: tl.constexpr):
    """The mean of the rows of each sequence, which have different lengths: a program a sequence."""
    which = tl.program_id(0)
    first, last = tl.load(begin + which), tl.load(begin + which + 1)
    d, r = tl.arange(0, D), tl.arange(0, ROWS)
    total = tl.zeros((ROWS, D), tl.float32)
    for at in range(first, last, ROWS):
        row = (at + r).to(tl.int64)
        total += tl.load(x + row[:, None] * D + d[None, :], mask=(row < last)[:, None], other=0.0).to(tl.float32)
    tl.store(y + which * D + d, tl.sum(total, 0) / (last - first))


@triton.jit
def tiles_in_turn(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A product whose programs take one tile after the other."""
    across = n // N
    tiles = (m // M) * across
    d = tl.arange(0, K)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        i = tile // across * M + tl.arange(0, M)
        j = tile % across * N + tl.arange(0, N)
        total = tl.zeros((M, N), tl.float32)
        left = a + i[:, None] * k + d[None, :]
        right = b + d[:, None] * n + j[None, :]
        for _ in range(0, k, K):
            total = tl.dot(tl.load(left), tl.load(right), total)
            left += K
            right += K * n
        tl.store(c + i[:, None] * n + j[None, :], total.to(tl.bfloat16))


@triton.jit
def chosen_rows(a, at, b, c, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Rows by number, times the matrix of their group of 64: the product of experts."""
    block = tl.program_id(0)
    i = tl.load(at + block * M + tl.arange(0, M))
    j = tl.program_id(1) * N + tl.arange(0, N)
    d = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    left = a + i[:, None] * k + d[None, :]
    right = b + (block % 8).to(tl.int64) * k * n + d[:, None] * n + j[None, :]
    for _ in range(0, k, K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += K
        right += K * n
    to = c + (block * M + tl.arange(0, M))[:, None] * n + j[None, :]
    tl.store(to, total.to(tl.bfloat16))


_WHOLE = "*bf16"
_ATTENTION = {"q": _WHOLE, "k": _WHOLE, "v": _WHOLE, "y": _WHOLE, "keys": "i32", "factor": "fp32"}
_SIZES = {"m": "i32", "n": "i32", "k": "i32"}
SIXTH: dict[str, tuple[Any, dict[str, str], dict[str, int], int, int]] = {
    "causal_64": (causal, _ATTENTION, {"D": 64, "M": 128, "N": 64}, 4, 3),
    "shared_keys": (shared_keys, {**_ATTENTION, "y": "*fp32"}, {"D": 128, "M": 16, "N": 64, "PARTS": 8}, 4, 3),
    "norm_back_2048": (
        norm_back, {"x": _WHOLE, "grad": _WHOLE, "weight": "*fp32", "y": _WHOLE, "columns": "i32"}, {"BLOCK": 2048}, 8,
        1,
    ),
    "narrow_products": (
        narrow_products, {"a": "*fp8e4nv", "b": "*fp8e4nv", "scales": "*fp32", "c": _WHOLE, **_SIZES},
        {"M": 128, "N": 128, "K": 128}, 8, 3,
    ),
    "running_sums_4096": (running_sums, {"x": "*fp32", "y": "*fp32", "columns": "i32"}, {"BLOCK": 4096}, 8, 1),
    "left_out": (left_out, {"x": _WHOLE, "residual": _WHOLE, "y": _WHOLE, "seed": "i32"}, {"BLOCK": 1024}, 4, 1),
    "ragged_means": (ragged_means, {"begin": "*i32", "x": _WHOLE, "y": "*fp32"}, {"D": 256, "ROWS": 16}, 4, 2),
    "tiles_in_turn": (
        tiles_in_turn, {"a": _WHOLE, "b": _WHOLE, "c": _WHOLE, **_SIZES}, {"M": 128, "N": 128, "K": 64}, 8, 3,
    ),
    "chosen_rows": (
        chosen_rows, {"a": _WHOLE, "at": "*i32", "b": _WHOLE, "c": _WHOLE, "n": "i32", "k": "i32"},
        {"M": 64, "N": 128, "K": 64}, 4, 3,
    ),
}  # fmt: skip
