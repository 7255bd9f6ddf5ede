"""Problems of the eighth set: kernels of Triton and nvcc that were in no set before."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .problems import BF16, LOG2_E, Array, Input, Output, Work, cdiv, triton, wide


def group_norm(groups: int, points: int) -> Work:
    """bf16 groups of eight channels of so many points."""
    whole = (groups, 8, points)
    given = (Input(whole, BF16), Input((8,)), Input((8,)), Output(whole, BF16), points)
    count = groups * 8 * points
    return triton("group_norm_8", (groups,), given, 4 * count, 8 * count, _group_norm)


def _group_norm(x: Array, weight: Array, bias: Array) -> Array:
    u = wide(x)
    mean, spread = u.mean(axis=(1, 2), keepdims=True), u.var(axis=(1, 2), keepdims=True)
    return np.asarray((u - mean) / np.sqrt(spread + 1e-5) * wide(weight)[:, None] + wide(bias)[:, None])


def adam_step(n: int) -> Work:
    """Parameters and means in f32, which begin with zeros; the gradient is bf16. The last array is what is compared."""
    zeros = Output((n,), zeroed=True)
    given = (zeros, Input((n,), BF16), zeros, zeros, 1e-3)
    return triton("adam_step", (n // 1024,), given, 26 * n, 16 * n, lambda g: 0.05 * wide(g) ** 2)


def whole_products(m: int, n: int, k: int) -> Work:
    """s8 in tiles of 128 x 128."""
    given = (
        Input((m, k), np.int8, "index", 100),
        Input((n, k), np.int8, "index", 100),
        Input((n,)),
        Output((m, n), BF16),
        m,
        n,
        k,
    )
    return triton(
        "whole_products", (m // 128, n // 128), given, m * k + n * k + 2 * m * n, 2 * m * n * k,
        lambda a, b, scales: wide(a) @ wide(b).T * wide(scales),
    )  # fmt: skip


def paged_query(sequences: int, heads: int, pages: int) -> Work:
    """Pages of 16 keys of 128, so many a sequence, all over memory."""
    cache = (sequences * pages, 16, heads, 128)
    given = (
        Input((sequences, heads, 128), BF16),
        Input(cache, BF16),
        Input(cache, BF16),
        Input((sequences, pages), np.int32, "permutation"),
        Output((sequences, heads, 128), BF16),
        pages,
        LOG2_E * 0.0884,
    )
    moved = 4 * sequences * pages * 16 * heads * 128
    return triton("paged_query_16", (sequences, heads), given, moved, moved, _paged_query, 3e-2)


def _paged_query(q: Array, k: Array, v: Array, table: Array) -> Array:
    rows = (len(q), -1, *q.shape[1:])
    keys, values = wide(k[table]).reshape(rows), wide(v[table]).reshape(rows)
    scores = np.einsum("shd,sjhd->shj", wide(q) * 0.0884, keys)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray(np.einsum("shj,sjhd->shd", weights / weights.sum(axis=2, keepdims=True), values))


def sorted_rows(rows: int) -> Work:
    """Rows of 1024 f32."""
    given = (Input((rows, 1024)), Output((rows, 1024)), 1024)
    return triton(
        "sorted_rows_1024", (rows,), given, 8192 * rows, 55 * 1024 * rows, lambda x: np.sort(x, axis=1), 0.0
    )  # fmt: skip


def gated_scan(batch: int, columns: int) -> Work:
    """256 steps of bf16 columns."""
    whole = (batch, 256, columns)
    given = (Input(whole, BF16), Input(whole, BF16), Output(whole, BF16), columns)
    count = batch * 256 * columns
    return triton("gated_scan_256", (batch, columns // 16), given, 6 * count, 12 * count, _gated_scan, 3e-2)


def _gated_scan(gate: Array, x: Array) -> Array:
    kept, h = 1 / (1 + np.exp2(-wide(gate))), np.zeros(x.shape)
    h[:, 0] = wide(x[:, 0])
    for t in range(1, x.shape[1]):
        h[:, t] = kept[:, t] * h[:, t - 1] + wide(x[:, t])
    return h


def in_nineteen_bits(m: int, n: int, k: int) -> Work:
    """f32 in tiles of 128 x 128."""
    given = (Input((m, k)), Input((n, k)), Output((m, n)), m, n, k)
    return triton(
        "in_nineteen_bits", (m // 128, n // 128), given, 4 * (m * k + n * k + m * n), 2 * m * n * k,
        lambda a, b: wide(a) @ wide(b).T,
    )  # fmt: skip


def two_of_many(rows: int) -> Work:
    """Of 64 bf16; where the largest are is what is compared."""
    given = (Input((rows, 64), BF16), Output((rows, 2)), Output((rows, 2), np.int32))
    # numbers of 8 bits are often equal: the first of them counts
    return triton("two_of_many_64", (rows // 32,), given, 144 * rows, 256 * rows, _two_of_many, 0.0)


def _two_of_many(x: Array) -> Array:
    return np.asarray(np.argsort(-wide(x), axis=1, kind="stable")[:, :2])


def embedded(tokens: int, table: int) -> Work:
    """Rows of 1024 bf16; texts of 512 tokens."""
    given = (
        Input((tokens,), np.int32, "index", table),
        Input((table, 1024), BF16),
        Input((512, 1024), BF16),
        Output((tokens, 1024), BF16),
        512,
    )
    return triton(
        "embedded_1024", (tokens // 4,), given, 2048 * (tokens + min(tokens, table)), 1024 * tokens,
        lambda at, rows, places: wide(rows[at]) + np.resize(wide(places), (tokens, 1024)),
    )  # fmt: skip


def pooled(channels: int, side: int) -> Work:
    """f32."""
    half = side // 2
    given = (Input((channels, side, side)), Output((channels, half, half)), side)
    points = channels * half * half
    return Work(
        "eighth", "pooled", (half // 32, half // 8, channels), (32, 8), given, 20 * points, 9 * points, _pooled,
        tolerance=0,
    )  # fmt: skip


def _pooled(x: Array) -> Array:
    side = x.shape[1]
    edged = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    return np.asarray(
        np.max([edged[:, a : a + side : 2, b : b + side : 2] for a in range(3) for b in range(3)], axis=0)
    )


def centres(n: int) -> Work:
    """f32."""
    given = (Input((n, 16)), Input((64, 16)), Output((n,), np.int32), n)
    # two centres may be as near but for rounding
    return Work(
        "eighth", "centres", (cdiv(n, 256),), (256,), given, 68 * n, 64 * 48 * n, _centres, tolerance=0.05
    )  # fmt: skip


def _centres(x: Array, means: Array) -> Array:
    return np.asarray(((wide(x)[:, None] - wide(means)) ** 2).sum(axis=2).argmin(axis=1))


def diagonals(n: int, rows: int) -> Work:
    """n systems of so many equations."""
    given = (Input((rows, n)), Output((rows, n)), Output((rows, n)), rows, n)
    return Work(
        "eighth", "diagonals", (cdiv(n, 128),), (128,), given, 24 * rows * n, 9 * rows * n, _diagonals, tolerance=1e-4
    )  # fmt: skip


def _diagonals(right: Array) -> Array:
    rows = len(right)
    whole = 2.5 * np.eye(rows) - np.eye(rows, k=1) - np.eye(rows, k=-1)
    return np.asarray(np.linalg.solve(whole, wide(right)))


def mish(rows: int, columns: int) -> Work:
    """f32."""
    n = rows * columns // 4
    given = (Input((rows, columns)), Input((columns,)), Output((rows, columns)), columns // 4, n)
    return Work("eighth", "mish", (cdiv(n, 256),), (256,), given, 32 * n, 80 * n, _mish, tolerance=1e-4)


def _mish(x: Array, bias: Array) -> Array:
    u = wide(x) + wide(bias)
    return np.asarray(u * np.tanh(np.log1p(np.exp(u))))


_ALL: tuple[Callable[..., Work], ...] = (
    group_norm, adam_step, whole_products, paged_query, sorted_rows, gated_scan, in_nineteen_bits, two_of_many,
    embedded, pooled, centres, diagonals, mish,
)  # fmt: skip
EIGHTH: Mapping[str, Callable[..., Any]] = {made.__name__: made for made in _ALL}
