"""Kernels that add to shared places by atomics: floats of a gradient and of split products, counts of a histogram."""
# mypy: disable-error-code="untyped-decorator,no-untyped-def"

import torch
import triton
import triton.language as tl

from ..case import Work, normal, whole


@triton.jit
def embedding_back_kernel(ids, gradient, table, wide, ORDER: tl.constexpr, B: tl.constexpr):
    """One token's gradient, added to the row of its word."""
    token, i = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B)
    word = tl.load(ids + token)
    tl.atomic_add(table + word * wide + i, tl.load(gradient + token * wide + i), mask=i < wide, sem=ORDER)


def embedding_back(tokens: int, wide: int, words: int, order: str) -> Work:
    """The gradient of an embedding, f32: the fewer words, the more tokens meet in a row.

    `acq_rel` is what Triton takes where a kernel does not say how its atomics are ordered.
    """
    ids, gradient = whole(words, tokens), normal(tokens, wide)
    given = [ids.to("cuda"), gradient.to("cuda")]
    table = torch.empty(words, wide, device="cuda")
    expected = torch.zeros(words, wide, dtype=torch.float64).index_add_(0, ids.long(), gradient.double())
    launch = embedding_back_kernel[tokens, triton.cdiv(wide, 512)]
    return Work(lambda: launch(*given, table, wide, ORDER=order, B=512), [table], [expected], 1e-4, 1e-4, start=0.0)


@triton.jit
def histogram_kernel(x, counts, n, ORDER: tl.constexpr, B: tl.constexpr):
    """Each value counted where it belongs."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n, sem=ORDER)


def histogram(n: int, bins: int, order: str) -> Work:
    """Counts of whole numbers of 32 bits."""
    x = whole(bins, n)
    given, counts = x.to("cuda"), torch.empty(bins, dtype=torch.int32, device="cuda")
    launch = histogram_kernel[triton.cdiv(n, 1024),]
    expected = torch.bincount(x, minlength=bins)
    return Work(lambda: launch(given, counts, n, ORDER=order, B=1024), [counts], [expected], start=0.0)


@triton.jit
def split_product_kernel(a, b, c, n, k, EACH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A tile of the product over some of the inner side, added to what other programs find of it."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for first in range(tl.program_id(2) * EACH, (tl.program_id(2) + 1) * EACH, K):
        inner = first + tl.arange(0, K)
        left = tl.load(a + row[:, None] * k + inner[None, :])
        total = tl.dot(left, tl.load(b + inner[:, None] * n + column[None, :]), total)
    tl.atomic_add(c + row[:, None] * n + column[None, :], total, sem="relaxed")


def split_product(m: int, n: int, k: int, parts: int) -> Work:
    """A product of f16 with a long inner side, split over programs that add their parts, f32."""
    x, y = normal(m, k, kind=torch.float16), normal(k, n, kind=torch.float16, scale=k**-0.5)
    a, b = x.to("cuda"), y.to("cuda")
    c = torch.empty(m, n, device="cuda")
    launch = split_product_kernel[m // 64, n // 64, parts]
    tiles = {"EACH": k // parts, "M": 64, "N": 64, "K": 32, "num_stages": 3}
    return Work(lambda: launch(a, b, c, n, k, **tiles), [c], [x.float() @ y.float()], 1e-2, 1e-2, start=0.0)
