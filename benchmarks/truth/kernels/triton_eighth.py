"""Triton kernels of the eighth set, none of them in a set before."""

# Triton has no types
# mypy: ignore-errors

from typing import Any

import triton
import triton.language as tl


@triton.jit
def group_norm(x, weight, bias, y, points, C: tl.constexpr, BLOCK: tl.constexpr):
    """Groups of C channels of an image each get a mean of 0 and a spread of 1: a program a group, read twice."""
    group = tl.program_id(0).to(tl.int64)
    whole = points * C
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, whole, BLOCK):
        u = tl.load(x + group * whole + begin + at).to(tl.float32)
        total += u
        squares += u * u
    mean = tl.sum(total, 0) / whole
    scale = tl.rsqrt(tl.sum(squares, 0) / whole - mean * mean + 1e-5)
    for channel in range(C):
        w = tl.load(weight + channel) * scale
        b = tl.load(bias + channel) - mean * w
        for begin in range(0, points, BLOCK):
            row = group * whole + channel * points + begin + at
            u = tl.load(x + row).to(tl.float32)
            tl.store(y + row, (u * w + b).to(tl.bfloat16))


@triton.jit
def adam_step(p, grad, m, v, rate, BLOCK: tl.constexpr):
    """A step of AdamW: parameters and two means of gradients are read and written."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(grad + at).to(tl.float32)
    u = tl.load(p + at)
    first = 0.9 * tl.load(m + at) + 0.1 * g
    second = 0.95 * tl.load(v + at) + 0.05 * g * g
    u = u * (1.0 - 0.1 * rate) - rate * first / (tl.sqrt(second) + 1e-8)
    tl.store(p + at, u)
    tl.store(m + at, first)
    tl.store(v + at, second)


@triton.jit
def whole_products(a, b, scales, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A product of whole numbers of 8 bits, columns side by side, each with a scale."""
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    d = tl.arange(0, K)
    total = tl.zeros((M, N), tl.int32)
    left = a + i[:, None] * k + d[None, :]
    right = b + j[None, :] * k + d[:, None]
    for _ in range(0, k, K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += K
        right += K
    scaled = total.to(tl.float32) * tl.load(scales + j)[None, :]
    tl.store(c + i[:, None] * n + j[None, :], scaled.to(tl.bfloat16))


@triton.jit
def paged_query(q, k, v, table, y, pages, factor, D: tl.constexpr, P: tl.constexpr):
    """One query of a sequence over keys and values that lie in pages by a table: a program a sequence and a head."""
    which, head = tl.program_id(0), tl.program_id(1)
    heads = tl.num_programs(1)
    d, j = tl.arange(0, D), tl.arange(0, P)
    query = tl.load(q + (which * heads + head) * D + d).to(tl.float32) * factor
    most = -float("inf")
    total = 0.0
    sums = tl.zeros((D,), tl.float32)
    for page in range(pages):
        number = tl.load(table + which * pages + page).to(tl.int64)
        at = ((number * P + j[:, None]) * heads + head) * D + d[None, :]
        scores = tl.sum(tl.load(k + at).to(tl.float32) * query[None, :], 1)
        new = tl.maximum(most, tl.max(scores, 0))
        weights = tl.exp2(scores - new)
        less = tl.exp2(most - new)
        total = total * less + tl.sum(weights, 0)
        sums = sums * less + tl.sum(tl.load(v + at).to(tl.float32) * weights[:, None], 0)
        most = new
    tl.store(y + (which * heads + head) * D + d, (sums / total).to(tl.bfloat16))


@triton.jit
def sorted_rows(x, y, columns, BLOCK: tl.constexpr):
    """Each row in rising order, a row a program."""
    at = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, BLOCK)
    tl.store(y + at, tl.sort(tl.load(x + at)))


@triton.jit
def _after(a, b, c, d):
    return c * a, c * b + d


@triton.jit
def gated_scan(gate, x, y, columns, T: tl.constexpr, BLOCK: tl.constexpr):
    """h[t] = gate[t] h[t - 1] + x[t], for columns side by side."""
    batch = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = (batch * T + tl.arange(0, T)[:, None]) * columns + d[None, :]
    kept = 1.0 / (1.0 + tl.exp2(-tl.load(gate + at).to(tl.float32)))
    _, h = tl.associative_scan((kept, tl.load(x + at).to(tl.float32)), 0, _after)
    tl.store(y + at, h.to(tl.bfloat16))


@triton.jit
def in_nineteen_bits(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A product of f32 as tf32."""
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
    tl.store(c + i[:, None] * n + j[None, :], total)


@triton.jit
def two_of_many(x, weights, which, E: tl.constexpr, ROWS: tl.constexpr):
    """Of each row's softmax the two largest, and where they are: where experts are chosen."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    e = tl.arange(0, E)
    u = tl.load(x + row[:, None] * E + e[None, :]).to(tl.float32)
    most, first = tl.max(u, 1, return_indices=True)
    total = tl.sum(tl.exp(u - most[:, None]), 1)
    rest = tl.where(e[None, :] == first[:, None], -float("inf"), u)
    next_one, second = tl.max(rest, 1, return_indices=True)
    tl.store(weights + row * 2, 1.0 / total)
    tl.store(weights + row * 2 + 1, tl.exp(next_one - most) / total)
    tl.store(which + row * 2, first)
    tl.store(which + row * 2 + 1, second)


@triton.jit
def embedded(tokens, table, places, y, length, D: tl.constexpr, ROWS: tl.constexpr):
    """Rows of a table by token, added to those of their places."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, D)
    token = tl.load(tokens + row).to(tl.int64)
    u = tl.load(table + token[:, None] * D + d[None, :]).to(tl.float32)
    u += tl.load(places + (row % length)[:, None] * D + d[None, :]).to(tl.float32)
    tl.store(y + row[:, None] * D + d[None, :], u.to(tl.bfloat16))


_WHOLE = "*bf16"
_SIZES = {"m": "i32", "n": "i32", "k": "i32"}
EIGHTH: dict[str, tuple[Any, dict[str, str], dict[str, int], int, int]] = {
    "group_norm_8": (
        group_norm, {"x": _WHOLE, "weight": "*fp32", "bias": "*fp32", "y": _WHOLE, "points": "i32"},
        {"C": 8, "BLOCK": 1024}, 8, 2,
    ),
    "adam_step": (
        adam_step, {"p": "*fp32", "grad": _WHOLE, "m": "*fp32", "v": "*fp32", "rate": "fp32"}, {"BLOCK": 1024}, 4, 1,
    ),
    "whole_products": (
        whole_products, {"a": "*i8", "b": "*i8", "scales": "*fp32", "c": _WHOLE, **_SIZES},
        {"M": 128, "N": 128, "K": 128}, 8, 3,
    ),
    "paged_query_16": (
        paged_query,
        {"q": _WHOLE, "k": _WHOLE, "v": _WHOLE, "table": "*i32", "y": _WHOLE, "pages": "i32", "factor": "fp32"},
        {"D": 128, "P": 16}, 4, 3,
    ),
    "sorted_rows_1024": (sorted_rows, {"x": "*fp32", "y": "*fp32", "columns": "i32"}, {"BLOCK": 1024}, 4, 1),
    "gated_scan_256": (
        gated_scan, {"gate": _WHOLE, "x": _WHOLE, "y": _WHOLE, "columns": "i32"}, {"T": 256, "BLOCK": 16}, 4, 1,
    ),
    "in_nineteen_bits": (
        in_nineteen_bits, {"a": "*fp32", "b": "*fp32", "c": "*fp32", **_SIZES}, {"M": 128, "N": 128, "K": 32}, 8, 3,
    ),
    "two_of_many_64": (
        two_of_many, {"x": _WHOLE, "weights": "*fp32", "which": "*i32"}, {"E": 64, "ROWS": 32}, 4, 1,
    ),
    "embedded_1024": (
        embedded, {"tokens": "*i32", "table": _WHOLE, "places": _WHOLE, "y": _WHOLE, "length": "i32"},
        {"D": 1024, "ROWS": 4}, 4, 1,
    ),
}  # fmt: skip
