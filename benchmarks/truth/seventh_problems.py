"""Problems of the seventh set: kernels of nvcc that were in no set before."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .problems import Array, Input, Output, Work, cdiv, wide

KEY, NONCE = 0x03020100, 0x4A000000
_QUARTERS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip


def key_stream(threads: int) -> Work:
    """64 bytes a thread."""
    given = (Output((threads, 16), np.uint32), KEY, NONCE)
    return Work(
        "seventh", "key_stream", (threads // 256,), (256,), given, 64 * threads, 1000 * threads,
        lambda: _key_stream(threads), tolerance=0,
    )  # fmt: skip


def _key_stream(threads: int) -> Array:
    base = (
        [0x61707865 + n for n in range(4)] + [KEY + n for n in range(4, 12)] + [0] + [NONCE + n for n in (13, 14, 15)]
    )
    first = np.tile(np.array(base, np.uint32)[:, None], (1, threads))
    first[12] = np.arange(threads, dtype=np.uint32)
    x = first.copy()
    for _ in range(10):
        for a, b, c, d in _QUARTERS:
            for to, by, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[to] += x[by]
                u = x[turned] ^ x[to]
                x[turned] = (u << np.uint32(bits)) | (u >> np.uint32(32 - bits))
    return np.asarray((x + first).T)


def options(n: int) -> Work:
    """f32."""
    one = Input((n,))
    given = (one, one, one, Output((n,)), n)
    return Work("seventh", "options", (cdiv(n, 256),), (256,), given, 16 * n, 60 * n, _options, tolerance=1e-4)


def _below(d: Array) -> Array:
    k = 1.0 / (1.0 + 0.2316419 * np.abs(d))
    tail = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    tail = tail * 0.39894228 * np.exp(-0.5 * d * d)
    return np.where(d > 0, 1.0 - tail, tail)


def _options(spot: Array, strike: Array, years: Array) -> Array:
    s, k, t = np.abs(wide(spot)) + 1.0, np.abs(wide(strike)) + 1.0, np.abs(wide(years)) + 0.25
    d = (np.log(s / k) + 0.065 * t) / (0.3 * np.sqrt(t))
    return np.asarray(s * _below(d) - k * np.exp(-0.02 * t) * _below(d - 0.3 * np.sqrt(t)))


def searched(count: int, n: int) -> Work:
    """n keys in a table of `count`."""
    given = (
        Input((count,), np.int32, "rising", 16),
        Input((n,), np.int32, "index", 16 * count),
        Output((n,), np.int32),
        count,
        n,
    )
    return Work(
        "seventh", "searched", (cdiv(n, 256),), (256,), given, 8 * n + 4 * count, 0,
        lambda table, keys: np.asarray(np.searchsorted(table, keys)), tolerance=0,
    )  # fmt: skip


def transformed(rows: int) -> Work:
    """1024 complex numbers a row."""
    given = (Input((rows, 1024, 2)), Output((rows, 1024, 2)))
    return Work(
        "seventh", "transformed", (rows,), (256,), given, 16 * 1024 * rows, 51200 * rows, _transformed, tolerance=1e-4
    )  # fmt: skip


def _transformed(x: Array) -> Array:
    found = np.fft.fft(wide(x[..., 0]) + 1j * wide(x[..., 1]), axis=1)
    return np.stack([found.real, found.imag], axis=2)


def changes(pairs: int) -> Work:
    """Words of 128 letters out of four."""
    one = Input((pairs, 128), np.int32, "index", 4)
    given = (one, one, Output((pairs,), np.int32))
    return Work("seventh", "changes", (pairs,), (128,), given, 1024 * pairs, 0, _changes, tolerance=0)


def _changes(one: Array, other: Array) -> Array:
    length = one.shape[1]
    above = np.tile(np.arange(length + 1), (len(one), 1))
    for row in range(length):
        own = np.empty_like(above)
        own[:, 0] = row + 1
        for column in range(length):
            changed = above[:, column] + (one[:, row] != other[:, column])
            own[:, column + 1] = np.minimum(changed, np.minimum(above[:, column + 1], own[:, column]) + 1)
        above = own
    return np.asarray(above[:, -1])


def resized(side: int) -> Work:
    """An image of side x side, twice as wide and high."""
    given = (Input((side, side)), Output((2 * side, 2 * side)), side)
    grid = (2 * side // 32, 2 * side // 8)
    points = 4 * side * side
    return Work("seventh", "resized", grid, (32, 8), given, 4 * side * side + 4 * points, 12 * points, _resized)


def _resized(x: Array) -> Array:
    side = len(x)
    at = np.clip(0.5 * np.arange(2 * side) - 0.25, 0, side - 1)
    low = at.astype(np.int64)
    high, part = np.minimum(low + 1, side - 1), at - low
    rows = wide(x)[low] * (1 - part)[:, None] + wide(x)[high] * part[:, None]
    return np.asarray(rows[:, low] * (1 - part) + rows[:, high] * part)


def channels(n: int) -> Work:
    """Four bytes a point."""
    given = (Input((n,), np.uint32, "bytes"), Output((n, 4)), 0.0078125, n)
    return Work("seventh", "channels", (cdiv(n, 256),), (256,), given, 20 * n, 8 * n, _channels)


def _channels(x: Array) -> Array:
    parts = np.stack([(x >> np.uint32(8 * at)) & np.uint32(255) for at in range(4)], axis=1)
    return np.asarray((wide(parts) - np.array([124.0, 117.0, 104.0, 128.0])) * 0.0078125)


def half_steps(n: int) -> Work:
    """Pairs of f16."""
    given = (Input((n, 2), np.float16), Output((n, 2), np.float16), n)
    return Work("seventh", "half_steps", (cdiv(n, 256),), (256,), given, 8 * n, 128 * n, _half_steps, tolerance=4e-3)


def _half_steps(x: Array) -> Array:
    u, w = np.clip(wide(x), -0.5, 0.5), np.full(x.shape, 0.5)
    for k in range(32):
        w = w * u + 0.25 + 0.0078125 * k
    return w


def double_rows(rows: int, columns: int) -> Work:
    """f64."""
    given = (
        Input((rows, columns), np.float64),
        Input((columns,), np.float64),
        Output((rows,), np.float64),
        columns // 2,
    )
    return Work(
        "seventh", "double_rows", (rows // 8,), (256,), given, 8 * rows * columns, 2 * rows * columns,
        lambda w, x: w @ x,
    )  # fmt: skip


def in_eight_bits(rows: int) -> Work:
    """Rows of 4096."""
    given = (Input((rows, 4096)), Output((rows, 4096), np.int8))
    # a half may be rounded either way
    return Work(
        "seventh", "in_eight_bits", (rows,), (256,), given, 5 * 4096 * rows, 4 * 4096 * rows, _in_eight_bits,
        tolerance=0.01,
    )  # fmt: skip


def _in_eight_bits(x: Array) -> Array:
    most = np.abs(x).max(axis=1, keepdims=True)
    return np.asarray(np.rint(x * (np.float32(127) / most)))


def turned_bits(n: int) -> Work:
    """Words."""
    given = (Input((n,), np.uint32, "bytes"), Output((n,), np.uint32), n)
    return Work("seventh", "turned_bits", (cdiv(n, 256),), (256,), given, 8 * n, 0, _turned_bits, tolerance=0)


def _turned_bits(x: Array) -> Array:
    squares = x.reshape(-1, 32)
    bits = (squares[:, None, :] >> np.arange(32, dtype=np.uint32)[None, :, None]) & np.uint32(1)
    return np.asarray((bits.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=2))


def in_circle(threads: int) -> Work:
    """64 points a thread."""
    given = (Output((threads,), np.int32),)
    # a point on the edge may be counted or not
    return Work(
        "seventh", "in_circle", (threads // 256,), (256,), given, 4 * threads, 64 * 8 * threads,
        lambda: _in_circle(threads), tolerance=0.05,
    )  # fmt: skip


def _in_circle(threads: int) -> Array:
    x = np.arange(threads, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(12345)
    count = np.zeros(threads, np.int64)
    for _ in range(64):
        drawn = []
        for _ in range(2):
            x ^= x << np.uint32(13)
            x ^= x >> np.uint32(17)
            x ^= x << np.uint32(5)
            drawn.append(wide(x) * 2.3283064e-10)
        count += drawn[0] ** 2 + drawn[1] ** 2 < 1.0
    return count


def largest_near(n: int) -> Work:
    """f32."""
    given = (Input((n,)), Output((n,)), n)
    return Work("seventh", "largest_near", (n // 256,), (256,), given, 8 * n, 32 * n, _largest_near, tolerance=0)


def _largest_near(x: Array) -> Array:
    ended = np.concatenate([x, np.full(32, -np.inf, x.dtype)])
    return np.asarray(np.lib.stride_tricks.sliding_window_view(ended, 33).max(axis=1))


_ALL: tuple[Callable[..., Work], ...] = (
    key_stream, options, searched, transformed, changes, resized, channels, half_steps, double_rows, in_eight_bits,
    turned_bits, in_circle, largest_near,
)  # fmt: skip
SEVENTH: Mapping[str, Callable[..., Any]] = {made.__name__: made for made in _ALL}
