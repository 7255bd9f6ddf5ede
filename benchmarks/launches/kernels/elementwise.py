"""Kernels in which each element is computed by itself."""
# mypy: disable-error-code="untyped-decorator,no-untyped-def"

import numpy as np
import torch
import triton
import triton.language as tl

from ..case import Work, normal


@triton.jit
def swiglu_kernel(both, out, width, B: tl.constexpr):
    """The two halves of a row: silu of the one times the other."""
    column = tl.program_id(1) * B + tl.arange(0, B)
    row = tl.program_id(0)
    gate = tl.load(both + row * 2 * width + column, mask=column < width).to(tl.float32)
    up = tl.load(both + row * 2 * width + width + column, mask=column < width).to(tl.float32)
    tl.store(out + row * width + column, (gate / (1 + tl.exp(-gate)) * up).to(tl.float16), mask=column < width)


def swiglu(rows: int, width: int) -> Work:
    """Rows of a gated layer, f16."""
    both = normal(rows, 2 * width, kind=torch.float16)
    given, out = both.to("cuda"), torch.empty(rows, width, dtype=torch.float16, device="cuda")
    gate, up = both.float().chunk(2, 1)
    grid = (rows, triton.cdiv(width, 1024))
    return Work(lambda: swiglu_kernel[grid](given, out, width, B=1024), [out], [torch.nn.functional.silu(gate) * up])


@triton.jit
def gelu_kernel(x, y, n, B: tl.constexpr):
    """The smooth gate by its tanh."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n)
    inner = 0.7978845608 * (value + 0.044715 * value * value * value)
    bent = 1 - 2 / (tl.exp(2 * inner) + 1)
    tl.store(y + i, 0.5 * value * (1 + bent), mask=i < n)


def gelu(n: int) -> Work:
    """Elements of f32."""
    x = normal(n)
    given, out = x.to("cuda"), torch.empty(n, device="cuda")
    expected = torch.nn.functional.gelu(x, approximate="tanh")
    return Work(lambda: gelu_kernel[triton.cdiv(n, 512),](given, out, n, B=512), [out], [expected], 1e-4, 1e-5)


@triton.jit
def rotary_kernel(x, cosines, sines, out, HEADS: tl.constexpr, HALF: tl.constexpr):
    """One token: pairs of the two halves of each head are turned by the token's angles."""
    token = tl.program_id(0)
    head, i = tl.arange(0, HEADS), tl.arange(0, HALF)
    at = (token * HEADS + head[:, None]) * 2 * HALF + i[None, :]
    cosine = tl.load(cosines + token * HALF + i)[None, :]
    sine = tl.load(sines + token * HALF + i)[None, :]
    first, second = tl.load(x + at).to(tl.float32), tl.load(x + at + HALF).to(tl.float32)
    tl.store(out + at, (first * cosine - second * sine).to(tl.bfloat16))
    tl.store(out + at + HALF, (second * cosine + first * sine).to(tl.bfloat16))


def rotary(tokens: int, heads: int, wide: int) -> Work:
    """Rotary embedding of queries, bf16 with angles in f32."""
    x = normal(tokens, heads, wide, kind=torch.bfloat16)
    half = wide // 2
    angles = torch.arange(tokens)[:, None] * 10000.0 ** (-torch.arange(half)[None, :] / half)
    cosine, sine = angles.cos(), angles.sin()
    given, turns = x.to("cuda"), [cosine.to("cuda"), sine.to("cuda")]
    out = torch.empty_like(given)
    first, second = x.float().chunk(2, 2)
    c, s = cosine[:, None, :], sine[:, None, :]
    expected = torch.cat([first * c - second * s, second * c + first * s], 2)
    return Work(lambda: rotary_kernel[tokens,](given, *turns, out, HEADS=heads, HALF=half), [out], [expected], 2e-2)


@triton.jit
def add_kernel(x, y, out, n, B: tl.constexpr):
    """A sum of two arrays."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    there = i < n
    tl.store(out + i, tl.load(x + i, mask=there) + tl.load(y + i, mask=there), mask=there)


def add(n: int) -> Work:
    """A residual, bf16."""
    x, y = normal(n, kind=torch.bfloat16), normal(n, kind=torch.bfloat16, scale=0.5)
    a, b = x.to("cuda"), y.to("cuda")
    out = torch.empty_like(a)
    grid = (triton.cdiv(n, 2048),)
    return Work(lambda: add_kernel[grid](a, b, out, n, B=2048, num_warps=8), [out], [x + y], 0, 0)


@triton.jit
def clamp_kernel(x, low, out, n, slope, B: tl.constexpr):
    """Between bounds of which one is an array; a slope below zero."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    there = i < n
    value = tl.load(x + i, mask=there, other=0.0)
    bound = tl.load(low + i, mask=there, other=0.0)
    held = tl.clamp(value, bound, tl.full([B], 1.5, tl.float32))
    tl.store(out + i, tl.where(value < 0, slope * held, held), mask=there)


def clamp(n: int) -> Work:
    """Elements of f32; a count that is no multiple of 16 keeps Triton from wide accesses."""
    x, low = normal(n), -normal(n, scale=0.5).abs()
    given, bound = x.to("cuda"), low.to("cuda")
    out = torch.empty_like(given)
    held = torch.clamp(x, low, torch.tensor(1.5))
    expected = torch.where(x < 0, 0.1 * held, held)
    grid = (triton.cdiv(n, 1024),)
    return Work(lambda: clamp_kernel[grid](given, bound, out, n, 0.1, B=1024), [out], [expected], 1e-6, 1e-6)


@triton.jit
def dropout_kernel(x, out, n, seed, B: tl.constexpr):
    """Elements whose random number is below a quarter of all become zero, the others grow."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    there = i < n
    kept = tl.randint(seed, i).to(tl.uint32, bitcast=True) >= 0x40000000
    value = tl.load(x + i, mask=there).to(tl.float32)
    tl.store(out + i, tl.where(kept, value * (4.0 / 3.0), 0.0).to(tl.float16), mask=there)


def philox(seed: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The first number of Philox 4x32 with ten rounds, for counters from 0."""
    low, zero = np.uint64(0xFFFFFFFF), np.zeros(count, np.uint64)
    c0, c1, c2, c3 = np.arange(count, dtype=np.uint64), zero, zero, zero
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        one, two = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1 = (two >> np.uint64(32)) ^ c1 ^ np.uint64(k0), two & low
        c2, c3 = (one >> np.uint64(32)) ^ c3 ^ np.uint64(k1), one & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0


def dropout(n: int) -> Work:
    """Elements of f16, with a random number for each from its place."""
    x, seed = normal(n, kind=torch.float16), 1234567
    given = x.to("cuda")
    out = torch.empty_like(given)
    kept = torch.from_numpy(philox(seed, n) >= 0x40000000)
    expected = torch.where(kept, x.float() * (4 / 3), 0.0)
    grid = (triton.cdiv(n, 1024),)
    return Work(lambda: dropout_kernel[grid](given, out, n, seed, B=1024), [out], [expected], 2e-3, 1e-6)
