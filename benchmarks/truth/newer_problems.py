"""Problems of the truth set that were written down last: other kernels of Triton, and kernbench's own for sequences.

Their PTX is kept in `ptx/` as it was measured, so that what becomes of the kernels since then changes no point.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .problems import BF16, Array, Input, Output, Work, triton, wide

SIZE = 128


def rotary(tokens: int, heads: int) -> Work:
    """Heads of 128 turned by angles of their token."""
    shape, angles = (tokens, heads, SIZE), Input((tokens, SIZE // 2))
    given = (Input(shape, BF16), angles, angles, Output(shape, BF16), heads)
    return triton("rotary_128", (tokens,), given, 4 * tokens * (heads + 1) * SIZE, 6 * tokens * heads * 64, _rotary)


def _rotary(x: Array, cosine: Array, sine: Array) -> Array:
    low, high = wide(x)[..., : SIZE // 2], wide(x)[..., SIZE // 2 :]
    c, s = wide(cosine)[:, None], wide(sine)[:, None]
    return np.concatenate([low * c - high * s, high * c + low * s], axis=-1)


def gated(n: int) -> Work:
    """bf16, 2048 elements a program."""
    given = (Input((n,), BF16), Input((n,), BF16), Output((n,), BF16), n)
    return triton("gated", (n // 2048,), given, 6 * n, 5 * n, lambda g, u: wide(g) / (1 + np.exp(-wide(g))) * wide(u))


def cross_entropy(rows: int, columns: int) -> Work:
    """bf16 rows."""
    given = (Input((rows, columns), BF16), Input((rows,), np.int32, "index", columns), Output((rows,)), columns)
    return triton("cross_entropy", (rows,), given, 2 * rows * columns, 4 * rows * columns, _cross_entropy)


def _cross_entropy(x: Array, target: Array) -> Array:
    return np.asarray(np.log(np.exp(wide(x)).sum(axis=1)) - wide(x)[np.arange(len(x)), target])


def narrow_matvec(rows: int, columns: int) -> Work:
    """Integers of 8 bits times a vector."""
    given = (Input((rows, columns), np.int8, "index", 100), Input((columns,)), Output((rows,)), columns)
    return triton(
        "narrow_matvec", (rows // 4,), given, rows * columns, 2 * rows * columns, lambda w, x: wide(w) @ wide(x), 1e-3
    )


def causal_taps(tokens: int, channels: int) -> Work:
    """Four taps of each channel."""
    given = (Input((tokens, channels), BF16), Input((4, channels)), Output((tokens, channels), BF16), tokens, channels)
    count = tokens * channels
    return triton("causal_taps", (channels // 512, tokens // 32), given, 4 * count, 8 * count, _causal_taps)


def _causal_taps(x: Array, taps: Array) -> Array:
    before = np.concatenate([np.zeros((3, x.shape[1])), wide(x)])
    return np.asarray(sum(before[n : n + len(x)] * wide(taps)[n] for n in range(4)))


def many_products(count: int) -> Work:
    """[64, 128] x [128, 64] each."""
    given = (Input((count, 64, SIZE), BF16), Input((count, SIZE, 64), BF16), Output((count, 64, 64), BF16))
    moved = 2 * count * (2 * 64 * SIZE + 64 * 64)
    return triton("many_products", (count,), given, moved, 2 * count * 64 * 64 * SIZE, lambda a, b: wide(a) @ wide(b))


def row_argmax(rows: int, columns: int) -> Work:
    """f32 rows of at most 4096."""
    given = (Input((rows, columns), np.float32, "permutation"), Output((rows,), np.int32), columns)
    return triton("row_argmax_4096", (rows,), given, 4 * rows * columns, rows * columns, lambda x: x.argmax(axis=1), 0)


def row_sums(rows: int, columns: int) -> Work:
    """f32 rows of at most 2048."""
    given = (Input((rows, columns)), Output((rows, columns)), columns)
    count = rows * columns
    return triton("row_sums_2048", (rows,), given, 8 * count, count, lambda x: wide(x).cumsum(axis=1), 1e-4)


def linear(m: int, n: int, k: int, tile: str) -> Work:
    """f16 with a bias, of weights [n, k]."""
    half = np.float16
    given = (Input((m, k), half), Input((n, k), half), Input((n,)), Output((m, n), half), m, n, k)
    rows, columns = map(int, tile.split("x"))
    moved = 2 * (m * k + n * k + m * n)
    return triton(f"linear_{tile}", (m // rows, n // columns), given, moved, 2 * m * n * k, _linear)


def _linear(a: Array, b: Array, bias: Array) -> Array:
    return np.maximum(wide(a) @ wide(b).T + bias, 0)


def merge(parts: int, tokens: int) -> Work:
    """Outputs of 64 heads over parts of the keys become one: a warp a row."""
    rows = tokens * 64
    given = (Input((parts, rows, SIZE), BF16), Input((parts, rows)), Output((rows, SIZE), BF16), 0, parts, rows)
    moved = 2 * SIZE * rows * (parts + 1) + 4 * parts * rows
    return Work(
        "ours_merge", "merge", (-(-rows // 4),), (128,), given, moved, 2 * parts * rows * SIZE, _merge, tolerance=2e-2
    )


def _merge(parts: Array, lses: Array) -> Array:
    weights = np.exp(wide(lses) - wide(lses).max(axis=0))[..., None]
    return np.asarray((wide(parts) * weights).sum(axis=0) / weights.sum(axis=0))


_ALL: tuple[Callable[..., Work], ...] = (
    rotary, gated, cross_entropy, narrow_matvec, causal_taps, many_products, row_argmax, row_sums, linear, merge,
)  # fmt: skip
NEWER: Mapping[str, Callable[..., Any]] = {made.__name__: made for made in _ALL}
