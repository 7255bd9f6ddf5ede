"""Problems of the sixth set: kernels of nvcc and Triton that were in no set before."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from .problems import BF16, LOG2_E, Array, Input, Output, Work, cdiv, triton, wide

FP8 = np.dtype(ml_dtypes.float8_e4m3fn)


def ragged_rows(rows: int, each: int, columns: int) -> Work:
    """So many numbers in a row on average, more in later ones, in columns that look random."""
    count = rows * each
    given = (
        Input((rows + 1,), np.int32, "rising", each),
        Input((count,), np.int32, "index", columns),
        Input((count,)),
        Input((columns,)),
        Output((rows,)),
        rows,
    )
    return Work(
        "sixth", "ragged_rows", (cdiv(rows, 8),), (256,), given, 8 * count + 8 * rows, 2 * count, _ragged_rows,
        tolerance=1e-4,
    )  # fmt: skip


def _ragged_rows(begin: Array, at: Array, value: Array, x: Array) -> Array:
    whole = np.concatenate([[0.0], np.cumsum(wide(value) * wide(x)[at])])
    return np.asarray(whole[begin[1:]] - whole[begin[:-1]])


def nibbles(rows: int, columns: int) -> Work:
    """4 bits a weight, a scale for 64 of them."""
    words = columns // 32
    given = (
        Input((rows, columns // 8), np.uint32, "bytes"),
        Input((rows, columns // 64)),
        Input((columns,)),
        Output((rows,)),
        words,
    )
    moved = rows * columns // 2 + rows * columns // 16
    return Work(
        "sixth", "nibbles", (rows // 8,), (256,), given, moved, 2 * rows * columns, _nibbles, tolerance=1e-4
    )  # fmt: skip


def _nibbles(w: Array, scales: Array, x: Array) -> Array:
    rows = len(w)
    each = (w[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & np.uint32(15)
    weights = (each.reshape(rows, -1).astype(np.float64) - 8) * np.repeat(wide(scales), 64, axis=1)
    return np.asarray(weights @ wide(x))


def add_rows(rows: int, table: int) -> Work:
    """Rows of 128 numbers."""
    given = (Input((rows, 128)), Input((rows,), np.int32, "index", table), Output((table, 128), zeroed=True), rows)
    moved = 512 * rows + 512 * min(rows, table)
    return Work(
        "sixth", "add_rows", (cdiv(rows, 8),), (256,), given, moved, 128 * rows, lambda x, at: _add_rows(x, at, table),
        tolerance=1e-4,
    )  # fmt: skip


def _add_rows(x: Array, at: Array, table: int) -> Array:
    out = np.zeros((table, 4, 32))
    np.add.at(out, at, wide(x).reshape(len(x), 32, 4).transpose(0, 2, 1))
    return out


def halvings(n: int) -> Work:
    """A thread a number."""
    given = (Output((n,), np.int32), n)
    return Work(
        "sixth", "halvings", (cdiv(n, 256),), (256,), given, 4 * n, 1200 * n, lambda: _halvings(n), tolerance=0
    )  # fmt: skip


def _halvings(n: int) -> Array:
    at = np.arange(n, dtype=np.uint64)
    u, steps = at * at // np.uint64(64) + np.uint64(1), np.zeros(n, np.int64)
    one = np.uint64(1)
    while (left := u != one).any():
        u = np.where(left, np.where(u & one, np.uint64(3) * u + one, u >> one), u)
        steps += left
    return steps


def nearest_bits(n: int) -> Work:
    """Words of 128 bits; of several that are as near the first counts."""
    given = (Input((n, 4), np.uint32, "bytes"), Input((256, 4), np.uint32, "bytes"), Output((n,), np.int32), n)
    return Work("sixth", "nearest_bits", (n // 256,), (256,), given, 20 * n, 256 * 12 * n, _nearest_bits, tolerance=0)


def _nearest_bits(x: Array, others: Array) -> Array:
    apart = np.bitwise_count(x[:, None, :] ^ others[None, :, :]).sum(axis=2, dtype=np.int64)
    return np.asarray(apart.argmin(axis=1))


def filter_3x3(channels: int, side: int) -> Work:
    """f32, the edge taken as zero."""
    given = (Input((channels, side, side)), Input((channels, 9)), Output((channels, side, side)), side)
    points = channels * side * side
    return Work(
        "sixth", "filter_3x3", (side // 32, side // 8, channels), (32, 8), given, 8 * points, 18 * points, _filter_3x3
    )  # fmt: skip


def _filter_3x3(x: Array, w: Array) -> Array:
    side = x.shape[1]
    edged = np.pad(wide(x), ((0, 0), (1, 1), (1, 1)))
    parts = [
        edged[:, a : a + side, b : b + side] * wide(w)[:, 3 * a + b, None, None] for a in range(3) for b in range(3)
    ]
    return np.asarray(np.sum(parts, axis=0))


def eight_bits(n: int, k: int) -> Work:
    """n x n x k."""
    one = Input((n, k), np.int8, "index", 100)
    given = (one, one, Output((n, n), np.int32), n, k // 4)
    return Work(
        "sixth", "eight_bits", (n // 64, n // 64), (256,), given, 2 * n * k + 4 * n * n, 2 * n * n * k,
        lambda a, b: wide(a) @ wide(b).T, tolerance=0,
    )  # fmt: skip


def piped_means(rows: int, pieces: int, blocks: int) -> Work:
    """Rows of so many pieces of 1024 numbers."""
    given = (Input((rows, pieces * 1024)), Output((rows,)), rows, pieces)
    count = rows * pieces * 1024
    return Work(
        "sixth", "piped_means", (blocks,), (256,), given, 4 * count, count, lambda x: wide(x).mean(axis=1),
        tolerance=1e-4,
    )  # fmt: skip


def top_four(rows: int, columns: int) -> Work:
    """f32 rows."""
    given = (Input((rows, columns)), Output((rows, 4)), columns)
    return Work(
        "sixth", "top_four", (rows // 8,), (256,), given, 4 * rows * columns, rows * columns,
        lambda x: -np.sort(-x, axis=1)[:, :4], tolerance=0,
    )  # fmt: skip


def causal(heads: int, keys: int) -> Work:
    """Heads of 64, blocks of 128 queries."""
    shape = (heads, keys, 64)
    given = (*(Input(shape, BF16),) * 3, Output(shape, BF16), keys, LOG2_E / 8)
    flops = 2 * heads * keys * keys * 64
    return triton("causal_64", (keys // 128, heads), given, 8 * heads * keys * 64, flops, _causal, 3e-2)


def _causal(q: Array, k: Array, v: Array) -> Array:
    scores = np.einsum("hid,hjd->hij", wide(q), wide(k)) / 8
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray(np.einsum("hij,hjd->hid", weights / weights.sum(axis=2, keepdims=True), wide(v)))


def shared_keys(heads: int, keys: int) -> Work:
    """16 queries of 128 for each head, keys in eight parts."""
    cache = (heads, keys, 128)
    given = (
        Input((heads, 16, 128), BF16),
        Input(cache, BF16),
        Input(cache, BF16),
        Output((heads, 8, 16, 128)),
        keys,
        LOG2_E * 0.0884,
    )
    moved, flops = 4 * heads * keys * 128, 64 * heads * keys * 128
    return triton("shared_keys", (heads, 8), given, moved, flops, _shared_keys, 3e-2)


def _shared_keys(q: Array, k: Array, v: Array) -> Array:
    heads, keys, size = k.shape
    parts = (heads, 8, keys // 8, size)
    scores = np.einsum("hqd,hpkd->hpqk", wide(q) * 0.0884, wide(k).reshape(parts))
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    weights /= weights.sum(axis=3, keepdims=True)
    return np.asarray(np.einsum("hpqk,hpkd->hpqd", weights, wide(v).reshape(parts)))


def norm_back(rows: int) -> Work:
    """bf16 rows of 2048."""
    one = Input((rows, 2048), BF16)
    given = (one, one, Input((2048,)), Output((rows, 2048), BF16), 2048)
    return triton("norm_back_2048", (rows,), given, 6 * rows * 2048, 14 * rows * 2048, _norm_back)


def _norm_back(x: Array, grad: Array, weight: Array) -> Array:
    u, d = wide(x), wide(grad) * wide(weight)
    apart = u - u.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((apart**2).mean(axis=1, keepdims=True) + 1e-5)
    unit = apart * scale
    by = (d * unit).mean(axis=1, keepdims=True)
    return np.asarray((d - d.mean(axis=1, keepdims=True) - unit * by) * scale)


def narrow_products(m: int, n: int, k: int) -> Work:
    """e4m3 in tiles of 128 x 128."""
    given = (Input((m, k), FP8), Input((n, k), FP8), Input((n,)), Output((m, n), BF16), m, n, k)
    return triton(
        "narrow_products", (m // 128, n // 128), given, m * k + n * k + 2 * m * n, 2 * m * n * k,
        lambda a, b, scales: wide(a) @ wide(b).T * wide(scales),
    )  # fmt: skip


def running_sums(rows: int) -> Work:
    """f32 rows of 4096."""
    given = (Input((rows, 4096)), Output((rows, 4096)), 4096)
    return triton(
        "running_sums_4096", (rows,), given, 8 * rows * 4096, rows * 4096, lambda x: np.cumsum(wide(x), axis=1), 1e-4
    )  # fmt: skip


SEED = 17


def left_out(n: int) -> Work:
    """bf16, 1024 elements a program."""
    one = Input((n,), BF16)
    given = (one, one, Output((n,), BF16), SEED)
    return triton("left_out", (n // 1024,), given, 6 * n, 100 * n, _left_out)


def _left_out(x: Array, residual: Array) -> Array:
    return np.asarray(np.where(_drawn(SEED, len(x)) > 0.1, wide(x) / 0.9, 0.0) + wide(residual))


def _drawn(seed: int, count: int) -> Array:
    """Numbers from 0 to 1 by ten rounds of Philox, counters 0 and on."""
    mask = np.uint64(0xFFFFFFFF)
    words = [np.arange(count, dtype=np.uint64), *(np.zeros(count, np.uint64) for _ in range(3))]
    keys = [seed, 0]
    for _ in range(10):
        second, first = words[2] * np.uint64(0xCD9E8D57), words[0] * np.uint64(0xD2511F53)
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ np.uint64(keys[0]), second & mask,
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(keys[1]), first & mask,
        ]  # fmt: skip
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    signed = words[0].astype(np.uint32).view(np.int32).astype(np.int64)
    return np.asarray(np.where(signed < 0, -signed - 1, signed) * 4.6566127342e-10)


def ragged_means(sequences: int, each: int) -> Work:
    """So many bf16 rows of 256 a sequence on average, more in later ones."""
    count = sequences * each
    given = (Input((sequences + 1,), np.int32, "rising", each), Input((count, 256), BF16), Output((sequences, 256)))
    return triton("ragged_means", (sequences,), given, 512 * count, 256 * count, _ragged_means)


def _ragged_means(begin: Array, x: Array) -> Array:
    return np.stack([wide(x[first:last]).mean(axis=0) for first, last in pairwise(begin)])


def tiles_in_turn(m: int, n: int, k: int) -> Work:
    """bf16 in tiles of 128 x 128, by a program for each SM."""
    given = (Input((m, k), BF16), Input((k, n), BF16), Output((m, n), BF16), m, n, k)
    grid = (min(132, (m // 128) * (n // 128)),)
    return triton(
        "tiles_in_turn", grid, given, 2 * (m * k + k * n + m * n), 2 * m * n * k, lambda a, b: wide(a) @ wide(b)
    )  # fmt: skip


def chosen_rows(rows: int, n: int, k: int) -> Work:
    """Blocks of 64 rows by eight matrices in turn."""
    given = (
        Input((rows, k), BF16),
        Input((rows,), np.int32, "permutation"),
        Input((8, k, n), BF16),
        Output((rows, n), BF16),
        n,
        k,
    )
    moved = 2 * (rows * k + min(8, rows // 64) * k * n + rows * n)
    return triton("chosen_rows", (rows // 64, n // 128), given, moved, 2 * rows * n * k, _chosen_rows)


def _chosen_rows(a: Array, at: Array, b: Array) -> Array:
    blocks = wide(a[at]).reshape(-1, 64, a.shape[1])
    return np.concatenate([block @ wide(b[which % 8]) for which, block in enumerate(blocks)])


_ALL: tuple[Callable[..., Work], ...] = (
    ragged_rows, nibbles, add_rows, halvings, nearest_bits, filter_3x3, eight_bits, piped_means, top_four, causal,
    shared_keys, norm_back, narrow_products, running_sums, left_out, ragged_means, tiles_in_turn, chosen_rows,
)  # fmt: skip
SIXTH: Mapping[str, Callable[..., Any]] = {made.__name__: made for made in _ALL}
