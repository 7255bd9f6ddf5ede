"""Products of matrices: one, of groups, of many small ones, with tensor maps, of scaled blocks of fp8."""
# mypy: disable-error-code="untyped-decorator,no-untyped-def"

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from ..case import Work, normal

KINDS = {"f16": torch.float16, "bf16": torch.bfloat16}


@triton.jit
def matmul_kernel(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A tile of the product, masked at the edges."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for first in range(0, k, K):
        inner = first + tl.arange(0, K)
        left = tl.load(a + row[:, None] * k + inner[None, :], mask=row[:, None] < m, other=0.0)
        right = tl.load(b + inner[:, None] * n + column[None, :], mask=column[None, :] < n, other=0.0)
        total = tl.dot(left, right, total)
    there = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c + row[:, None] * n + column[None, :], total.to(c.dtype.element_ty), mask=there)


def matmul(m: int, n: int, k: int, kind: str) -> Work:
    """One product, whose sizes need not be multiples of the tiles'."""
    x, y = normal(m, k, kind=KINDS[kind]), normal(k, n, kind=KINDS[kind], scale=k**-0.5)
    a, b = x.to("cuda"), y.to("cuda")
    c = torch.empty(m, n, dtype=KINDS[kind], device="cuda")
    launch = matmul_kernel[triton.cdiv(m, 128), triton.cdiv(n, 64)]
    tiles = {"M": 128, "N": 64, "K": 32, "num_stages": 3}
    return Work(lambda: launch(a, b, c, m, n, k, **tiles), [c], [x.float() @ y.float()], 2e-2, 2e-2)


@triton.jit
def mapped_kernel(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A tile of the product by tensor maps: copies in bulk that one thread asks for."""
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros([M, N], tl.float32)
    for first in range(0, k, K):
        total = tl.dot(a.load([row, first]), b.load([column, first]).T, total)
    c.store([row, column], total.to(tl.float16))


def mapped(m: int, n: int, k: int) -> Work:
    """One product of f16 with the second matrix transposed."""
    x, y = normal(m, k, kind=torch.float16), normal(n, k, kind=torch.float16, scale=k**-0.5)
    c = torch.empty(m, n, dtype=torch.float16, device="cuda")
    a, b = (TensorDescriptor.from_tensor(one.to("cuda"), [128, 64]) for one in (x, y))
    out = TensorDescriptor.from_tensor(c, [128, 128])
    tiles = {"M": 128, "N": 128, "K": 64, "num_stages": 3, "num_warps": 8}
    launch = mapped_kernel[m // 128, n // 128]
    return Work(lambda: launch(a, b, out, k, **tiles), [c], [x.float() @ y.float().T], 2e-2, 2e-2)


@triton.jit
def grouped_kernel(a, b, c, starts, groups, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """As many programs as asked for, each taking every so many-th tile of all groups."""
    tile, first = tl.program_id(0), 0
    across = tl.cdiv(n, N)
    for group in range(groups):
        begin, end = tl.load(starts + group), tl.load(starts + group + 1)
        tiles = tl.cdiv(end - begin, M) * across
        while tile < first + tiles:
            row = begin + (tile - first) // across * M + tl.arange(0, M)
            column = (tile - first) % across * N + tl.arange(0, N)
            total = tl.zeros([M, N], tl.float32)
            for at in range(0, k, K):
                inner = at + tl.arange(0, K)
                left = tl.load(a + row[:, None] * k + inner[None, :], mask=row[:, None] < end, other=0.0)
                right = tl.load(b + (group * k + inner[:, None]) * n + column[None, :])
                total = tl.dot(left, right, total)
            tl.store(c + row[:, None] * n + column[None, :], total.to(tl.bfloat16), mask=row[:, None] < end)
            tile += tl.num_programs(0)
        first += tiles


def grouped(groups: int, n: int, k: int) -> Work:
    """Groups of unequal numbers of rows, each with a matrix of its own, bf16: experts of a mixture."""
    counts = [32 + 61 * (group * 5 % groups) for group in range(groups)]
    starts = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0).int()
    x = normal(sum(counts), k, kind=torch.bfloat16)
    y = normal(groups, k, n, kind=torch.bfloat16, scale=k**-0.5)
    a, b, where = x.to("cuda"), y.to("cuda"), starts.to("cuda")
    c = torch.empty(sum(counts), n, dtype=torch.bfloat16, device="cuda")
    expected = [one.float() @ matrix.float() for one, matrix in zip(x.split(counts), y, strict=True)]
    tiles = {"M": 64, "N": 128, "K": 32, "num_stages": 3}
    launch = grouped_kernel[48,]
    return Work(lambda: launch(a, b, c, where, groups, n, k, **tiles), [c], [torch.cat(expected)], 2e-2, 2e-2)


@triton.jit
def small_kernel(a, b, c, S: tl.constexpr):
    """One small product, whole."""
    row, column = tl.arange(0, S)[:, None], tl.arange(0, S)[None, :]
    base = tl.program_id(0) * S * S
    product = tl.dot(tl.load(a + base + row * S + column), tl.load(b + base + row * S + column))
    tl.store(c + base + row * S + column, product.to(tl.float16))


def small(count: int, side: int) -> Work:
    """Many products of small square matrices, f16."""
    x, y = normal(count, side, side, kind=torch.float16), normal(count, side, side, kind=torch.float16, scale=0.1)
    a, b = x.to("cuda"), y.to("cuda")
    c = torch.empty_like(a)
    return Work(lambda: small_kernel[count,](a, b, c, S=side), [c], [x.float() @ y.float()])


@triton.jit
def scaled_kernel(a, b, c, of_a, of_b, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A tile of a product whose factors have a scale for each block of their inner side."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    blocks = k // K
    for block in range(blocks):
        inner = block * K + tl.arange(0, K)
        left = tl.load(a + row[:, None] * k + inner[None, :])
        right = tl.load(b + column[None, :] * k + inner[:, None])
        scale = tl.load(of_a + row * blocks + block)[:, None] * tl.load(of_b + tl.program_id(1) * blocks + block)
        total += tl.dot(left, right) * scale
    tl.store(c + row[:, None] * n + column[None, :], total.to(tl.bfloat16))


def scaled(m: int, n: int, k: int, kind: str) -> Work:
    """A product of fp8 with scales: of each row's 128 numbers on the left, of squares of 128 on the right."""
    of_kind = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind]
    x, y = normal(m, k).to(of_kind), normal(n, k).to(of_kind)
    rows, squares = normal(m, k // 128).abs() + 0.1, (normal(n // 128, k // 128).abs() + 0.1) * k**-0.5
    given = [one.to("cuda") for one in (x, y)]
    scales = [one.to("cuda") for one in (rows, squares)]
    c = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    left = x.float() * rows.repeat_interleave(128, 1)
    right = y.float() * squares.repeat_interleave(128, 0).repeat_interleave(128, 1)
    tiles = {"M": 64, "N": 128, "K": 128, "num_stages": 2}
    launch = scaled_kernel[m // 64, n // 128]
    return Work(lambda: launch(*given, c, *scales, n, k, **tiles), [c], [left @ right.T], 3e-2, 3e-2)
