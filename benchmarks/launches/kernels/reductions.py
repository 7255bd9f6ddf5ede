"""Kernels that bring rows or columns together: sums, norms, the largest, scans, sorts; and a transposition."""
# mypy: disable-error-code="untyped-decorator,no-untyped-def"

import torch
import triton
import triton.language as tl

from ..case import Work, normal, whole


@triton.jit
def softmax_kernel(x, y, columns, B: tl.constexpr):
    """A row, held whole."""
    row, i = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + i, (power / tl.sum(power, 0)).to(tl.float16), mask=i < columns)


def softmax(rows: int, columns: int) -> Work:
    """Rows of f16, whose length is no power of two."""
    x = normal(rows, columns, kind=torch.float16)
    given, block = x.to("cuda"), triton.next_power_of_2(columns)
    out = torch.empty_like(given)
    launch = softmax_kernel[rows,]
    return Work(lambda: launch(given, out, columns, B=block), [out], [x.float().softmax(1)], 1e-2, 1e-6)


@triton.jit
def layer_norm_kernel(x, weight, bias, y, columns, B: tl.constexpr):
    """A row: mean and spread in two passes over what is held."""
    row, i = tl.program_id(0), tl.arange(0, B)
    there = i < columns
    value = tl.load(x + row * columns + i, mask=there, other=0.0)
    off = tl.where(there, value - tl.sum(value, 0) / columns, 0.0)
    scale = tl.rsqrt(tl.sum(off * off, 0) / columns + 1e-5)
    shaped = off * scale * tl.load(weight + i, mask=there) + tl.load(bias + i, mask=there)
    tl.store(y + row * columns + i, shaped, mask=there)


def layer_norm(rows: int, columns: int) -> Work:
    """Rows of f32 with weights and biases."""
    x, weight, bias = normal(rows, columns), normal(columns), normal(columns, scale=0.1)
    given = [one.to("cuda") for one in (x, weight, bias)]
    out, block = torch.empty(rows, columns, device="cuda"), triton.next_power_of_2(columns)
    expected = torch.nn.functional.layer_norm(x, (columns,), weight, bias)
    launch = layer_norm_kernel[rows,]
    return Work(lambda: launch(*given, out, columns, B=block, num_warps=8), [out], [expected], 1e-4, 1e-4)


@triton.jit
def rms_norm_kernel(x, weight, y, columns, B: tl.constexpr):
    """A row in pieces, read twice."""
    base = tl.program_id(0) * columns
    squares = tl.zeros([B], tl.float32)
    for first in range(0, columns, B):
        value = tl.load(x + base + first + tl.arange(0, B)).to(tl.float32)
        squares += value * value
    scale = tl.rsqrt(tl.sum(squares, 0) / columns + 1e-6)
    for first in range(0, columns, B):
        i = first + tl.arange(0, B)
        value = tl.load(x + base + i).to(tl.float32) * scale * tl.load(weight + i).to(tl.float32)
        tl.store(y + base + i, value.to(tl.bfloat16))


def rms_norm(rows: int, columns: int) -> Work:
    """Rows of bf16."""
    x, weight = normal(rows, columns, kind=torch.bfloat16), normal(columns, kind=torch.bfloat16)
    given, factors = x.to("cuda"), weight.to("cuda")
    out = torch.empty_like(given)
    wide = x.double()
    expected = wide * (wide.square().mean(1, keepdim=True) + 1e-6).rsqrt() * weight.double()
    return Work(lambda: rms_norm_kernel[rows,](given, factors, out, columns, B=512), [out], [expected])


@triton.jit
def cross_entropy_kernel(logits, targets, losses, words, B: tl.constexpr):
    """A token: the sum of exponentials with the largest so far, and the target's own logit."""
    token = tl.program_id(0)
    base = logits + token.to(tl.int64) * words
    highest = tl.full([B], -float("inf"), tl.float32)
    total = tl.zeros([B], tl.float32)
    for first in range(0, words, B):
        i = first + tl.arange(0, B)
        value = tl.load(base + i, mask=i < words, other=-1e30).to(tl.float32)
        higher = tl.maximum(highest, value)
        total = total * tl.exp(highest - higher) + tl.exp(value - higher)
        highest = higher
    top = tl.max(highest, 0)
    total = tl.sum(total * tl.exp(highest - top), 0)
    own = tl.load(base + tl.load(targets + token)).to(tl.float32)
    tl.store(losses + token, tl.log(total) + top - own)


def cross_entropy(tokens: int, words: int) -> Work:
    """Tokens over a vocabulary, logits in bf16."""
    logits, targets = normal(tokens, words, kind=torch.bfloat16, scale=2.0), whole(words, tokens)
    given, own = logits.to("cuda"), targets.to("cuda")
    out = torch.empty(tokens, device="cuda")
    expected = torch.nn.functional.cross_entropy(logits.float(), targets.long(), reduction="none")
    launch = cross_entropy_kernel[tokens,]
    return Work(lambda: launch(given, own, out, words, B=1024), [out], [expected], 1e-4, 1e-4)


@triton.jit
def column_sums_kernel(x, sums, rows, columns, R: tl.constexpr, B: tl.constexpr):
    """Some columns, all rows, a tile at a time."""
    column = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros([R, B], tl.float32)
    for first in range(0, rows, R):
        row = first + tl.arange(0, R)
        there = (row[:, None] < rows) & (column[None, :] < columns)
        total += tl.load(x + row[:, None] * columns + column[None, :], mask=there, other=0.0)
    tl.store(sums + column, tl.sum(total, 0), mask=column < columns)


def column_sums(rows: int, columns: int) -> Work:
    """The gradient of a bias: sums over all rows, f32."""
    x = normal(rows, columns)
    given, out = x.to("cuda"), torch.empty(columns, device="cuda")
    launch = column_sums_kernel[triton.cdiv(columns, 64),]
    return Work(lambda: launch(given, out, rows, columns, R=32, B=64), [out], [x.double().sum(0)], 1e-4, 1e-3)


@triton.jit
def argmax_kernel(x, places, columns, B: tl.constexpr):
    """Where the largest of a row stands."""
    row, i = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    tl.store(places + row, tl.argmax(value, 0))


def argmax(rows: int, columns: int) -> Work:
    """Rows of f32."""
    x = normal(rows, columns)
    given, out = x.to("cuda"), torch.empty(rows, dtype=torch.int32, device="cuda")
    launch, block = argmax_kernel[rows,], triton.next_power_of_2(columns)
    return Work(lambda: launch(given, out, columns, B=block), [out], [x.argmax(1)])


@triton.jit
def cumsum_kernel(x, y, columns, B: tl.constexpr):
    """Running sums of a row, in pieces with what the earlier ones add."""
    row = tl.program_id(0)
    before = 0.0
    for first in range(0, columns, B):
        i = first + tl.arange(0, B)
        value = tl.load(x + row * columns + i, mask=i < columns, other=0.0)
        tl.store(y + row * columns + i, tl.cumsum(value, 0) + before, mask=i < columns)
        before += tl.sum(value, 0)


def cumsum(rows: int, columns: int) -> Work:
    """Rows of f32."""
    x = normal(rows, columns)
    given = x.to("cuda")
    out = torch.empty_like(given)
    launch = cumsum_kernel[rows,]
    return Work(lambda: launch(given, out, columns, B=1024), [out], [x.double().cumsum(1)], 1e-4, 1e-3)


@triton.jit
def sort_kernel(x, y, R: tl.constexpr, B: tl.constexpr):
    """Some rows, each in ascending order."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    at = row[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(y + at, tl.sort(tl.load(x + at), 1))


def sort(rows: int, columns: int) -> Work:
    """Rows of f32, as long as a power of two."""
    x = normal(rows, columns)
    given = x.to("cuda")
    out = torch.empty_like(given)
    launch = sort_kernel[rows // 4,]
    return Work(lambda: launch(given, out, R=4, B=columns), [out], [x.sort(1).values], 0, 0)


@triton.jit
def transpose_kernel(x, y, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """A tile; Triton turns it in shared memory, so that both accesses are wide."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    read = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(x + row[:, None] * columns + column[None, :], mask=read)
    written = (column[:, None] < columns) & (row[None, :] < rows)
    tl.store(y + column[:, None] * rows + row[None, :], tl.trans(tile), mask=written)


def transpose(rows: int, columns: int) -> Work:
    """A matrix of f16."""
    x = normal(rows, columns, kind=torch.float16)
    given, out = x.to("cuda"), torch.empty(columns, rows, dtype=torch.float16, device="cuda")
    launch = transpose_kernel[triton.cdiv(rows, 64), triton.cdiv(columns, 64)]
    return Work(lambda: launch(given, out, rows, columns, R=64, C=64), [out], [x.T], 0, 0)
