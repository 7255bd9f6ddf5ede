"""Triton kernels of the truth set. `triton_build.py` compiles them into `ptx/`; nothing else needs Triton."""

# Triton has no types
# mypy: ignore-errors

from typing import Any

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B, bf16 in and out, sums in f32; groups of 8 tiles of rows share columns in L2."""
    program = tl.program_id(0)
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = program // (8 * columns)
    height = min(rows - group * 8, 8)
    row = group * 8 + program % (8 * columns) % height
    column = program % (8 * columns) // height
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    d = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        left = tl.load(a + i[:, None] * k + (step * BK + d)[None, :])
        right = tl.load(b + (step * BK + d)[:, None] * n + j[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.bfloat16))


@triton.jit
def split_k(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr):
    """C += A B in f32, the sum over k cut into parts that are added by atomics."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    part = k // SPLITS
    d = tl.program_id(2) * part + tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(part // BK):
        left = tl.load(a + i[:, None] * k + (step * BK + d)[None, :])
        right = tl.load(b + (step * BK + d)[:, None] * n + j[None, :])
        total = tl.dot(left, right, total)
    tl.atomic_add(c + i[:, None] * n + j[None, :], total)


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    """A row a program, held in registers."""
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(y + row + at, weights / tl.sum(weights, 0), mask=at < columns)


@triton.jit
def layer_norm(x, scale, shift, y, columns, BLOCK: tl.constexpr):
    """A row a program, read twice: mean and variance, then the result."""
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row + at, mask=at < columns, other=0.0).to(tl.float32)
        total += values
        squares += values * values
    mean = tl.sum(total, 0) / columns
    factor = tl.rsqrt(tl.sum(squares, 0) / columns - mean * mean + 1e-5)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(scale + at, mask=inside, other=0.0)
        bias = tl.load(shift + at, mask=inside, other=0.0)
        tl.store(y + row + at, ((values - mean) * factor * weight + bias).to(tl.bfloat16), mask=inside)


@triton.jit
def flash(q, k, v, o, keys, factor, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Causal attention of one head and BM queries; `factor` is the scale times log2(e)."""
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64) * keys * D
    i = block * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    queries = tl.load(q + head + i[:, None] * D + d[None, :])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weights = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, (block + 1) * BM, BN):
        j = start + tl.arange(0, BN)
        rows = tl.load(k + head + j[None, :] * D + d[:, None])
        scores = tl.dot(queries, rows) * factor
        scores = tl.where(j[None, :] <= i[:, None], scores, -float("inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        p = tl.exp2(scores - new[:, None])
        old = tl.exp2(largest - new)
        weights = weights * old + tl.sum(p, 1)
        values = tl.load(v + head + j[:, None] * D + d[None, :])
        total = tl.dot(p.to(tl.bfloat16), values, total * old[:, None])
        largest = new
    tl.store(o + head + i[:, None] * D + d[None, :], (total / weights[:, None]).to(tl.bfloat16))


@triton.jit
def gather(table, index, y, WIDTH: tl.constexpr):
    """Rows of a table by number, a row a program."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    tl.store(y + row * WIDTH + at, tl.load(table + tl.load(index + row).to(tl.int64) * WIDTH + at))


_GEMM = {"a": "*bf16", "b": "*bf16", "c": "*bf16", "m": "i32", "n": "i32", "k": "i32"}
_ROWS = {"x": "*fp32", "y": "*fp32", "columns": "i32"}


def _tiles(bm: int, bn: int, bk: int, **more: int) -> dict[str, int]:
    return {"BM": bm, "BN": bn, "BK": bk, **more}


# name -> kernel, types of its arguments, constants, warps, stages
BUILDS: dict[str, tuple[Any, dict[str, str], dict[str, int], int, int]] = {
    "matmul_128x128": (matmul, _GEMM, _tiles(128, 128, 64), 8, 3),
    "matmul_64x64": (matmul, _GEMM, _tiles(64, 64, 32), 4, 3),
    "matmul_128x256": (matmul, _GEMM, _tiles(128, 256, 64), 8, 3),
    "matmul_16x64": (matmul, _GEMM, _tiles(16, 64, 64), 4, 4),
    **{
        f"split_k_{splits}": (split_k, {**_GEMM, "c": "*fp32"}, _tiles(16, 64, 64, SPLITS=splits), 4, 3)
        for splits in (1, 4, 8)
    },
    **{f"softmax_{block}": (softmax, _ROWS, {"BLOCK": block}, block // 512, 3) for block in (1024, 2048, 8192)},
    "layer_norm": (
        layer_norm,
        {"x": "*bf16", "scale": "*fp32", "shift": "*fp32", "y": "*bf16", "columns": "i32"},
        {"BLOCK": 1024},
        4,
        2,
    ),
    **{
        f"flash_{d}": (
            flash,
            {**dict.fromkeys(("q", "k", "v", "o"), "*bf16"), "keys": "i32", "factor": "fp32"},
            {"D": d, "BM": 128, "BN": 64},
            8,
            2,
        )
        for d in (64, 128)
    },
    **{
        f"gather_{width}": (gather, {"table": "*fp32", "index": "*i32", "y": "*fp32"}, {"WIDTH": width}, 1, 1)
        for width in (128, 1024)
    },
}


@triton.jit
def rms_norm(x, scale, y, columns, BLOCK: tl.constexpr):
    """A row a program, held in registers."""
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row + at).to(tl.float32)
    factor = tl.rsqrt(tl.sum(values * values, 0) / columns + 1e-6)
    tl.store(y + row + at, (values * factor * tl.load(scale + at)).to(tl.bfloat16))


@triton.jit
def bias_gelu(x, bias, y, columns, BLOCK: tl.constexpr):
    """y = gelu(x + bias), the usual approximation by tanh."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at).to(tl.float32) + tl.load(bias + at % columns)
    u = 1.5957691216 * (v + 0.044715 * v * v * v)
    tl.store(y + at, (v / (1.0 + tl.exp(-u))).to(tl.bfloat16))


@triton.jit
def log_sum_exp(x, y, columns, BLOCK: tl.constexpr):
    """A row a program, in one pass: the largest so far, and the sum that belongs to it."""
    row = tl.program_id(0).to(tl.int64) * columns
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        values = tl.load(x + row + start + tl.arange(0, BLOCK)).to(tl.float32)
        new = tl.maximum(largest, values)
        total = total * tl.exp(largest - new) + tl.exp(values - new)
        largest = new
    most = tl.max(largest, 0)
    tl.store(y + tl.program_id(0), most + tl.log(tl.sum(total * tl.exp(largest - most), 0)))


@triton.jit
def attention(q, k, v, o, keys, factor, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Attention of one head and BM queries over all keys."""
    head = tl.program_id(1).to(tl.int64) * keys * D
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    queries = tl.load(q + head + i[:, None] * D + d[None, :])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weights = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, keys, BN):
        j = start + tl.arange(0, BN)
        scores = tl.dot(queries, tl.load(k + head + j[None, :] * D + d[:, None])) * factor
        new = tl.maximum(largest, tl.max(scores, 1))
        p = tl.exp2(scores - new[:, None])
        old = tl.exp2(largest - new)
        weights = weights * old + tl.sum(p, 1)
        total = tl.dot(p.to(tl.bfloat16), tl.load(v + head + j[:, None] * D + d[None, :]), total * old[:, None])
        largest = new
    tl.store(o + head + i[:, None] * D + d[None, :], (total / weights[:, None]).to(tl.bfloat16))


@triton.jit
def bags(table, index, y, WIDTH: tl.constexpr, COUNT: tl.constexpr):
    """Sums of rows of a table by number, COUNT of them a program."""
    at = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.float32)
    for n in range(COUNT):
        row = tl.load(index + tl.program_id(0) * COUNT + n).to(tl.int64)
        total += tl.load(table + row * WIDTH + at)
    tl.store(y + tl.program_id(0).to(tl.int64) * WIDTH + at, total)


_BF16_ROWS = {"x": "*bf16", "scale": "*fp32", "y": "*bf16", "columns": "i32"}
BUILDS |= {
    "matmul_128x64": (matmul, _GEMM, _tiles(128, 64, 64), 4, 4),
    "matmul_64x128": (matmul, _GEMM, _tiles(64, 128, 64), 4, 3),
    **{f"rms_norm_{block}": (rms_norm, _BF16_ROWS, {"BLOCK": block}, block // 512, 3) for block in (2048, 4096)},
    "bias_gelu": (
        bias_gelu,
        {"x": "*bf16", "bias": "*fp32", "y": "*bf16", "columns": "i32"},
        {"BLOCK": 1024},
        4,
        3,
    ),
    "log_sum_exp": (log_sum_exp, {"x": "*bf16", "y": "*fp32", "columns": "i32"}, {"BLOCK": 2048}, 8, 3),
    "attention_64": (
        attention,
        {**dict.fromkeys(("q", "k", "v", "o"), "*bf16"), "keys": "i32", "factor": "fp32"},
        {"D": 64, "BM": 64, "BN": 64},
        4,
        3,
    ),
    "bags_256": (bags, {"table": "*fp32", "index": "*i32", "y": "*fp32"}, {"WIDTH": 256, "COUNT": 8}, 2, 1),
}
