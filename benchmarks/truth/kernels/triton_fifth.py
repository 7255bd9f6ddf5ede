"""Triton kernels of the fifth set, none of them in a set before."""

# Triton has no types
# mypy: ignore-errors

from typing import Any

import triton
import triton.language as tl


@triton.jit
def added_norm(x, residual, weight, y, columns, BLOCK: tl.constexpr):
    """A row a program: what is added is kept, and its rows are scaled by the root of their mean square."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    whole = tl.load(x + row * columns + at).to(tl.float32) + tl.load(residual + row * columns + at).to(tl.float32)
    tl.store(residual + row * columns + at, whole.to(tl.bfloat16))
    scale = tl.rsqrt(tl.sum(whole * whole, 0) / columns + 1e-6)
    tl.store(y + row * columns + at, (whole * scale * tl.load(weight + at)).to(tl.bfloat16))


@triton.jit
def gated_back(grad, gate, up, y, count, BLOCK: tl.constexpr):
    """The gradients of gate and up of a gated product: three arrays are read, two halves of one written."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(grad + at).to(tl.float32)
    g = tl.load(gate + at).to(tl.float32)
    u = tl.load(up + at).to(tl.float32)
    s = 1 / (1 + tl.exp(-g))
    tl.store(y + at, (d * u * s * (1 + g * (1 - s))).to(tl.bfloat16))
    tl.store(y + count.to(tl.int64) + at, (d * g * s).to(tl.bfloat16))


@triton.jit
def turned(x, y, rows, columns, BLOCK: tl.constexpr):
    """A tile a program, rows become columns."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + i[:, None] * columns + j[None, :])
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(tile))


@triton.jit
def two_products(a, gate, up, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Two products with the same left side, one of which gates the other."""
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    d = tl.arange(0, K)
    first = tl.zeros((M, N), tl.float32)
    second = tl.zeros((M, N), tl.float32)
    left = a + i[:, None] * k + d[None, :]
    right = d[:, None] * n + j[None, :]
    for _ in range(0, k, K):
        rows = tl.load(left)
        first += tl.dot(rows, tl.load(gate + right))
        second += tl.dot(rows, tl.load(up + right))
        left += K
        right += K * n
    out = first / (1 + tl.exp(-first)) * second
    tl.store(c + i[:, None] * n + j[None, :], out.to(tl.bfloat16))


@triton.jit
def wide_weights(a, w, scales, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A product with weights of 8 bits that are widened, each column with a scale."""
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    d = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    left = a + i[:, None] * k + d[None, :]
    right = w + d[:, None] * n + j[None, :]
    for _ in range(0, k, K):
        total += tl.dot(tl.load(left), tl.load(right).to(tl.bfloat16))
        left += K
        right += K * n
    total *= tl.load(scales + j)[None, :]
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.bfloat16))


@triton.jit
def one_query(q, k, v, y, keys, scale, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    """A head a program: one query over all keys, products by sums."""
    head = tl.program_id(0).to(tl.int64)
    d, at = tl.arange(0, HEAD), tl.arange(0, BLOCK)
    query = tl.load(q + head * HEAD + d).to(tl.float32) * scale
    most = -float("inf")
    total = 0.0
    sums = tl.zeros((HEAD,), tl.float32)
    for first in range(0, keys, BLOCK):
        rows = (head * keys + first + at)[:, None] * HEAD + d[None, :]
        scores = tl.sum(tl.load(k + rows).to(tl.float32) * query[None, :], 1)
        new = tl.maximum(most, tl.max(scores, 0))
        weights = tl.exp(scores - new)
        turned_down = tl.exp(most - new)
        total = total * turned_down + tl.sum(weights, 0)
        sums = sums * turned_down + tl.sum(tl.load(v + rows).to(tl.float32) * weights[:, None], 0)
        most = new
    tl.store(y + head * HEAD + d, (sums / total).to(tl.bfloat16))


_WHOLE = "*bf16"
FIFTH: dict[str, tuple[Any, dict[str, str], dict[str, int], int, int]] = {
    "added_norm_4096": (
        added_norm, {"x": _WHOLE, "residual": _WHOLE, "weight": "*fp32", "y": _WHOLE, "columns": "i32"},
        {"BLOCK": 4096}, 8, 1,
    ),
    "gated_back": (
        gated_back, {"grad": _WHOLE, "gate": _WHOLE, "up": _WHOLE, "y": _WHOLE, "count": "i32"}, {"BLOCK": 1024}, 4, 1,
    ),
    "turned_64": (turned, {"x": _WHOLE, "y": _WHOLE, "rows": "i32", "columns": "i32"}, {"BLOCK": 64}, 4, 1),
    "two_products": (
        two_products,
        {"a": _WHOLE, "gate": _WHOLE, "up": _WHOLE, "c": _WHOLE, "m": "i32", "n": "i32", "k": "i32"},
        {"M": 128, "N": 64, "K": 64}, 4, 3,
    ),
    "wide_weights": (
        wide_weights,
        {"a": _WHOLE, "w": "*i8", "scales": "*fp32", "c": _WHOLE, "m": "i32", "n": "i32", "k": "i32"},
        {"M": 64, "N": 128, "K": 64}, 4, 3,
    ),
    "one_query": (
        one_query, {"q": _WHOLE, "k": _WHOLE, "v": _WHOLE, "y": _WHOLE, "keys": "i32", "scale": "fp32"},
        {"HEAD": 128, "BLOCK": 64}, 4, 2,
    ),
}  # fmt: skip
