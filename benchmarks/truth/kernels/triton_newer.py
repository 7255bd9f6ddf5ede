"""Triton kernels of the truth set that were written down last, none of them known when the model was made."""

# Triton has no types
# mypy: ignore-errors

from typing import Any

import triton
import triton.language as tl


@triton.jit
def rotary(x, cosine, sine, y, heads, HALF: tl.constexpr, HEADS: tl.constexpr):
    """A token a program: the two halves of each head are turned by the token's angles."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, HALF)
    c, s = tl.load(cosine + token * HALF + at)[None, :], tl.load(sine + token * HALF + at)[None, :]
    for first in range(0, heads, HEADS):
        row = (token * heads + first + tl.arange(0, HEADS))[:, None] * (2 * HALF)
        low = tl.load(x + row + at[None, :]).to(tl.float32)
        high = tl.load(x + row + HALF + at[None, :]).to(tl.float32)
        tl.store(y + row + at[None, :], (low * c - high * s).to(tl.bfloat16))
        tl.store(y + row + HALF + at[None, :], (high * c + low * s).to(tl.bfloat16))


@triton.jit
def gated(gate, up, y, count, BLOCK: tl.constexpr):
    """y = gate / (1 + exp(-gate)) * up."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + at).to(tl.float32)
    u = tl.load(up + at).to(tl.float32)
    tl.store(y + at, (g / (1 + tl.exp(-g)) * u).to(tl.bfloat16))


@triton.jit
def cross_entropy(x, target, y, columns, BLOCK: tl.constexpr):
    """A row a program: the logarithm of its sum of exponentials, less the value of its target."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        values = tl.load(x + row * columns + first + at).to(tl.float32)
        new = tl.maximum(largest, values)
        total = total * tl.exp(largest - new) + tl.exp(values - new)
        largest = new
    most = tl.max(largest, 0)
    whole = tl.sum(total * tl.exp(largest - most), 0)
    chosen = tl.load(x + row * columns + tl.load(target + row)).to(tl.float32)
    tl.store(y + row, most + tl.log(whole) - chosen)


@triton.jit
def narrow_matvec(w, x, y, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of 8-bit integers times a vector."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(0, columns, BLOCK):
        part = tl.load(w + i[:, None].to(tl.int64) * columns + (first + j)[None, :]).to(tl.float32)
        total += part * tl.load(x + first + j)[None, :]
    tl.store(y + i, tl.sum(total, 1))


@triton.jit
def causal_taps(x, taps, y, tokens, channels, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """Each channel of each token: a sum over it and the three tokens before, of one sequence."""
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * STEPS
    w0, w1, w2, w3 = (tl.load(taps + c), tl.load(taps + channels + c), tl.load(taps + 2 * channels + c),
                      tl.load(taps + 3 * channels + c))  # fmt: skip
    before = first > 0
    a = tl.load(x + (first - 3) * channels + c, mask=before & (c >= 0), other=0.0).to(tl.float32)
    b = tl.load(x + (first - 2) * channels + c, mask=before & (c >= 0), other=0.0).to(tl.float32)
    d = tl.load(x + (first - 1) * channels + c, mask=before & (c >= 0), other=0.0).to(tl.float32)
    for step in range(STEPS):
        e = tl.load(x + (first + step) * channels + c).to(tl.float32)
        tl.store(y + (first + step) * channels + c, (a * w0 + b * w1 + d * w2 + e * w3).to(tl.bfloat16))
        a = b
        b = d
        d = e


@triton.jit
def many_products(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A small product of matrices a program."""
    program = tl.program_id(0).to(tl.int64)
    i, j, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + program * M * K + i[:, None] * K + d[None, :])
    right = tl.load(b + program * K * N + d[:, None] * N + j[None, :])
    tl.store(c + program * M * N + i[:, None] * N + j[None, :], tl.dot(left, right).to(tl.bfloat16))


@triton.jit
def row_argmax(x, y, columns, BLOCK: tl.constexpr):
    """A row a program: where its largest value is."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(y + row, tl.argmax(values, 0))


@triton.jit
def row_sums(x, y, columns, BLOCK: tl.constexpr):
    """A row a program: sums up to each of its values."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(y + row * columns + at, tl.cumsum(values, 0), mask=at < columns)


@triton.jit
def linear(a, b, bias, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = max(A B^T + bias, 0), f16 in and out, tiles in the order of the grid."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    d = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        left = tl.load(a + i[:, None] * k + (step * BK + d)[None, :])
        right = tl.load(b + j[None, :] * k + (step * BK + d)[:, None])
        total = tl.dot(left, right, total)
    total = tl.maximum(total + tl.load(bias + j)[None, :], 0.0)
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.float16))


_LINEAR = {"a": "*fp16", "b": "*fp16", "bias": "*fp32", "c": "*fp16", "m": "i32", "n": "i32", "k": "i32"}
NEWER: dict[str, tuple[Any, dict[str, str], dict[str, int], int, int]] = {
    "rotary_128": (
        rotary,
        {"x": "*bf16", "cosine": "*fp32", "sine": "*fp32", "y": "*bf16", "heads": "i32"},
        {"HALF": 64, "HEADS": 8},
        4,
        1,
    ),
    "gated": (gated, {"gate": "*bf16", "up": "*bf16", "y": "*bf16", "count": "i32"}, {"BLOCK": 2048}, 8, 1),
    "cross_entropy": (
        cross_entropy,
        {"x": "*bf16", "target": "*i32", "y": "*fp32", "columns": "i32"},
        {"BLOCK": 2048},
        8,
        2,
    ),
    "narrow_matvec": (
        narrow_matvec,
        {"w": "*i8", "x": "*fp32", "y": "*fp32", "columns": "i32"},
        {"ROWS": 4, "BLOCK": 1024},
        4,
        2,
    ),
    "causal_taps": (
        causal_taps,
        {"x": "*bf16", "taps": "*fp32", "y": "*bf16", "tokens": "i32", "channels": "i32"},
        {"BLOCK": 512, "STEPS": 32},
        4,
        1,
    ),
    "many_products": (many_products, dict.fromkeys(("a", "b", "c"), "*bf16"), {"M": 64, "N": 64, "K": 128}, 4, 1),
    "row_argmax_4096": (row_argmax, {"x": "*fp32", "y": "*i32", "columns": "i32"}, {"BLOCK": 4096}, 8, 1),
    "row_sums_2048": (row_sums, {"x": "*fp32", "y": "*fp32", "columns": "i32"}, {"BLOCK": 2048}, 4, 1),
    "linear_32x64": (linear, _LINEAR, {"BM": 32, "BN": 64, "BK": 64}, 4, 3),
    "linear_128x256": (linear, _LINEAR, {"BM": 128, "BN": 256, "BK": 32}, 8, 4),
}
