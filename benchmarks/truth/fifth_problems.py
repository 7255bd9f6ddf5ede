"""Problems of the fifth set: kernels of nvcc and Triton that were in no set before."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .problems import BF16, Array, Input, Output, Work, cdiv, triton, wide

SIZE = 128


def moments(n: int) -> Work:
    """f32, an element a thread; m and v are overwritten by each launch."""
    given = (Output((n,), zeroed=True), Input((n,)), Input((n,), np.float32, "index", 100), Input((n,)), n)
    return Work("fifth", "moments", (cdiv(n, 256),), (256,), given, 28 * n, 12 * n, _moments)


def _moments(m: Array, v: Array, g: Array) -> Array:
    a, b = 0.9 * wide(m) + 0.1 * wide(g), 0.999 * wide(v) + 0.001 * wide(g) ** 2
    return np.asarray(-0.001 * a / np.sqrt(b + 1e-8))


def sparse_rows(rows: int, each: int, columns: int) -> Work:
    """So many numbers in each row, in columns that look random."""
    count = rows * each
    given = (
        Input((count,), np.int32, "index", columns),
        Input((count,)),
        Input((columns,)),
        Output((rows,)),
        rows,
        each,
    )
    return Work(
        "fifth", "sparse_rows", (rows // 8,), (256,), given, 8 * count + 4 * min(columns, 8 * count), 2 * count,
        lambda at, value, x: (wide(value) * wide(x)[at]).reshape(rows, each).sum(axis=1), tolerance=1e-4,
    )  # fmt: skip


def narrowed(rows: int, columns: int) -> Work:
    """f32 rows to integers of 8 bits."""
    given = (Input((rows, columns)), Output((rows,)), Output((rows, columns), np.int8), columns // 4)
    return Work(
        "fifth", "narrowed", (rows,), (256,), given, 5 * rows * columns, 4 * rows * columns,
        lambda x: np.rint(wide(x) / np.abs(wide(x)).max(axis=1, keepdims=True) * 127), tolerance=9e-3,
    )  # fmt: skip


def escapes(side: int, most: int) -> Work:
    """A thread a point."""
    given = (Output((side, side), np.int32), side, most)
    return Work(
        "fifth", "escapes", (side // 16, side // 16), (256,), given, 4 * side * side, 8 * most * side * side,
        lambda: _escapes(side, most), tolerance=0,
    )  # fmt: skip


def _escapes(side: int, most: int) -> Array:
    at, f32 = np.arange(side, dtype=np.float32), np.float32
    step = f32(2.5) * at / f32(side)
    cx, cy = np.meshgrid(f32(-2.0) + step, f32(-1.25) + step)
    x, y = np.zeros_like(cx), np.zeros_like(cy)
    steps, inside = np.zeros(cx.shape, np.int32), np.ones(cx.shape, bool)
    for _ in range(most):
        xx, yy = x * x, y * y
        inside &= xx + yy < f32(4.0)
        y = np.where(inside, (x + x) * y + cy, y)
        x = np.where(inside, (xx - yy) + cx, x)
        steps += inside
    return steps


def apart(n: int) -> Work:
    """Points of three numbers."""
    given = (Input((n, 3)), Output((3, n)), n)
    return Work("fifth", "apart", (cdiv(n, 256),), (256,), given, 24 * n, 0, lambda x: x.T)


def fours(rows: int, columns: int) -> Work:
    """Integers of 8 bits, four in a word."""
    given = (Input((rows, columns), np.int8, "index", 100), Input((columns,), np.int8, "index", 100),
             Output((rows,), np.int32), columns // 4)  # fmt: skip
    return Work(
        "fifth", "fours", (rows // 8,), (256,), given, rows * columns, 2 * rows * columns,
        lambda w, x: wide(w) @ wide(x), tolerance=0,
    )  # fmt: skip


def looked_up(n: int) -> Work:
    """Bytes, by 528 CTAs."""
    given = (Input((n,), np.uint8, "index", 256), Input((256,)), Output((n,)), n // 4)
    return Work("fifth", "looked_up", (528,), (256,), given, 5 * n, 0, lambda x, table: table[x])


def angles(n: int, steps: int) -> Work:
    """A thread does so many."""
    given = (Output((n,)), n, steps)
    return Work(
        "fifth", "angles", (cdiv(n, 256),), (256,), given, 4 * n, 16 * n * steps, lambda: _angles(n, steps),
        tolerance=1e-3,
    )  # fmt: skip


def _angles(n: int, steps: int) -> Array:
    state = np.arange(n, dtype=np.uint32) * np.uint32(747796405) + np.uint32(2891336453)
    total = np.zeros(n)
    for _ in range(steps):
        state ^= state << np.uint32(13)
        state ^= state >> np.uint32(17)
        state ^= state << np.uint32(5)
        angle = wide(state >> np.uint32(8)) * 3.7450704e-7
        total += np.sin(angle) ** 2 * np.cos(angle)
    return total


def tiles_64(n: int) -> Work:
    """n x n x n in bf16 by `wmma`."""
    given = (Input((n, n), BF16), Input((n, n), BF16), Output((n, n)), n)
    return Work(
        "wmma", "tiles_64", (n // 64, n // 64), (128,), given, 8 * n * n, 2 * n**3, lambda a, b: wide(a) @ wide(b),
        tolerance=1e-3,
    )  # fmt: skip


def added_norm(rows: int) -> Work:
    """bf16 rows of 4096; what is added lies in the second array after each launch, which begins with zeros."""
    shape = (rows, 4096)
    given = (Input(shape, BF16), Output(shape, BF16, zeroed=True), Input((4096,)), Output(shape, BF16), 4096)
    return triton("added_norm_4096", (rows,), given, 8 * rows * 4096, 6 * rows * 4096, _norm, 3e-2)


def _norm(x: Array, weight: Array) -> Array:
    return np.asarray(wide(x) / np.sqrt((wide(x) ** 2).mean(axis=1, keepdims=True) + 1e-6) * wide(weight))


def gated_back(n: int) -> Work:
    """bf16, 1024 elements a program."""
    one = Input((n,), BF16)
    given = (one, one, one, Output((2, n), BF16), n)
    return triton("gated_back", (n // 1024,), given, 10 * n, 14 * n, _gated_back)


def _gated_back(d: Array, g: Array, u: Array) -> Array:
    d, g, u = wide(d), wide(g), wide(u)
    s = 1 / (1 + np.exp(-g))
    return np.stack([d * u * s * (1 + g * (1 - s)), d * g * s])


def turned(n: int) -> Work:
    """n x n in bf16."""
    given = (Input((n, n), BF16), Output((n, n), BF16), n, n)
    return triton("turned_64", (n // 64, n // 64), given, 4 * n * n, 0, lambda x: x.T)


def two_products(m: int, n: int, k: int) -> Work:
    """bf16 in tiles of 128 x 64."""
    given = (Input((m, k), BF16), Input((k, n), BF16), Input((k, n), BF16), Output((m, n), BF16), m, n, k)
    return triton(
        "two_products", (m // 128, n // 64), given, 2 * (m * k + 2 * k * n + m * n), 4 * m * n * k, _two_products
    )


def _two_products(a: Array, gate: Array, up: Array) -> Array:
    first = wide(a) @ wide(gate)
    return np.asarray(first / (1 + np.exp(-first)) * (wide(a) @ wide(up)))


def wide_weights(m: int, n: int, k: int) -> Work:
    """bf16 by integers of 8 bits in tiles of 64 x 128."""
    given = (Input((m, k), BF16), Input((k, n), np.int8, "index", 100), Input((n,)), Output((m, n), BF16), m, n, k)
    return triton(
        "wide_weights", (m // 64, n // 128), given, 2 * m * k + k * n + 2 * m * n, 2 * m * n * k,
        lambda a, w, scales: wide(a) @ wide(w) * wide(scales),
    )  # fmt: skip


def one_query(heads: int, keys: int) -> Work:
    """Heads of 128, each with its own keys."""
    cache = (heads, keys, SIZE)
    given = (
        Input((heads, SIZE), BF16),
        Input(cache, BF16),
        Input(cache, BF16),
        Output((heads, SIZE), BF16),
        keys,
        0.0884,
    )
    return triton("one_query", (heads,), given, 4 * heads * keys * SIZE, 4 * heads * keys * SIZE, _one_query)


def _one_query(q: Array, k: Array, v: Array) -> Array:
    scores = np.einsum("hd,hkd->hk", wide(q) * 0.0884, wide(k))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(np.einsum("hk,hkd->hd", weights / weights.sum(axis=1, keepdims=True), wide(v)))


_ALL: tuple[Callable[..., Work], ...] = (
    moments, sparse_rows, narrowed, escapes, apart, fours, looked_up, angles, tiles_64, added_norm, gated_back, turned,
    two_products, wide_weights, one_query,
)  # fmt: skip
FIFTH: Mapping[str, Callable[..., Any]] = {made.__name__: made for made in _ALL}
