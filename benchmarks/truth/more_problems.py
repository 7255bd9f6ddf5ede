"""Problems of the second held-out set: kernels that were written after the model had been held to the first one."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .problems import BF16, LOG2_E, Array, Input, Output, Work, cdiv, triton, wide


def triad(n: int) -> Work:
    """An element a thread."""
    given = (Input((n,)), Input((n,)), Output((n,)), 3.0, n)
    return Work("vectors", "triad", (cdiv(n, 256),), (256,), given, 12 * n, 2 * n, lambda a, b: wide(a) + 3.0 * wide(b))


def copy_pairs(n: int, blocks: int) -> Work:
    """Pairs of elements by so many blocks of 512 threads."""
    given = (Input((n,)), Output((n,)), n // 2)
    return Work("vectors", "copy_pairs", (blocks,), (512,), given, 8 * n, 0, lambda x: x)


def dot(n: int) -> Work:
    """By at most 528 blocks."""
    given = (Input((n,)), Input((n,)), Output((1,), zeroed=True), n // 4)
    blocks = min(528, cdiv(n, 4096))
    return Work(
        "vectors", "dot", (blocks,), (256,), given, 8 * n, 2 * n, lambda a, b: np.array([wide(a) @ wide(b)]),
        tolerance=1e-2,
    )  # fmt: skip


def scan(n: int) -> Work:
    """Pieces of 1024."""
    given = (Input((n,)), Output((n,)))
    return Work(
        "vectors", "scan_block", (n // 1024,), (1024,), given, 8 * n, n,
        lambda x: np.cumsum(wide(x).reshape(-1, 1024), axis=1).reshape(-1), tolerance=1e-4,
    )  # fmt: skip


def words(n: int, table: int, form: str) -> Work:
    """Read from any of a table's words, or written to any of n."""
    index = Input((n,), np.int32, "index" if form == "gather" else "permutation", table)
    given = (Input((table if form == "gather" else n,)), index, Output((n,)), n)
    # a word of a table comes with the others of its sector
    moved = 8 * n + (min(4 * table, 32 * n) if form == "gather" else 4 * n)
    return Work(
        "vectors", f"{form}_words", (cdiv(n, 256),), (256,), given, moved, 0,
        lambda x, at: x[at] if form == "gather" else x[np.argsort(at)], tolerance=1e-7,
    )  # fmt: skip


def logistic(n: int) -> Work:
    """256 steps."""
    given = (Input((n,)), Output((n,)), n)
    return Work("vectors", "logistic", (cdiv(n, 256),), (256,), given, 8 * n, 768 * n, _logistic, tolerance=1e-3)


def _logistic(x: Array) -> Array:
    v = 0.25 + 0.5 / (1.0 + wide(x) ** 2)
    for _ in range(256):
        v = 2.5 * v * (1.0 - v)
    return v


def polynomial(n: int) -> Work:
    """Degree 31 in double precision."""
    given = (Input((n,)), Output((n,)), n)
    return Work(
        "vectors", "polynomial", (cdiv(n, 256),), (256,), given, 8 * n, 62 * n, lambda x: np.exp(wide(x) * 0.1),
        tolerance=1e-5,
    )  # fmt: skip


def row_max(rows: int, columns: int) -> Work:
    """A block a row."""
    given = (Input((rows, columns)), Output((rows,)), columns)
    return Work("rows", "row_max", (rows,), (256,), given, 4 * rows * columns, rows * columns, lambda x: x.max(axis=1))


def column_sum(rows: int, columns: int, shares: int) -> Work:
    """Each block has a share of the rows of 256 columns."""
    given = (Input((rows, columns)), Output((columns,), zeroed=True), rows, columns)
    return Work(
        "rows", "column_sum", (columns // 256, shares), (256,), given, 4 * rows * columns, rows * columns,
        lambda x: wide(x).sum(axis=0), tolerance=1e-4,
    )  # fmt: skip


def matvec(rows: int, columns: int) -> Work:
    """A warp a row."""
    given = (Input((rows, columns)), Input((columns,)), Output((rows,)), columns)
    return Work(
        "rows", "matvec", (rows // 8,), (256,), given, 4 * rows * columns, 2 * rows * columns,
        lambda a, x: wide(a) @ wide(x), tolerance=1e-4,
    )  # fmt: skip


def halves(n: int) -> Work:
    """n x n halves of words."""
    given = (Input((n, n), np.uint16, "index", 1 << 16), Output((n, n), np.uint16), n)
    return Work("rows", "transpose_halves", (n // 64, n // 64), (256,), given, 4 * n * n, 0, lambda x: x.T)


def gemm_128(n: int) -> Work:
    """n x n x n in f32 on CUDA cores."""
    given = (Input((n, n)), Input((n, n)), Output((n, n)), n)
    return Work(
        "rows", "gemm_128", (n // 128, n // 128), (256,), given, 12 * n * n, 2 * n**3, lambda a, b: wide(a) @ wide(b),
        tolerance=1e-4,
    )  # fmt: skip


def convolve(n: int) -> Work:
    """33 weights."""
    given = (Input((n,)), Input((33,)), Output((n,)), n)
    return Work(
        "blocks", "convolve", (n // 512,), (256,), given, 8 * n, 66 * n,
        lambda x, w: np.convolve(wide(x), wide(w)[::-1], "same"), tolerance=1e-4,
    )  # fmt: skip


def bodies(n: int) -> Work:
    """All pairs."""
    given = (Input((n, 4)), Output((n, 4)), n)
    return Work("blocks", "bodies", (n // 256,), (256,), given, 32 * n, 19 * n * n, _bodies, tolerance=1e-3)


def _bodies(at: Array) -> Array:
    full = wide(at)
    apart = full[None, :, :3] - full[:, None, :3]
    near = (np.square(apart).sum(axis=2) + 0.01) ** -1.5 * full[None, :, 3]
    pull = np.einsum("ij,ijk->ik", near, apart)
    return np.concatenate([pull, np.zeros((len(full), 1))], axis=1)


def sort_pieces(n: int) -> Work:
    """Pieces of 1024."""
    given = (Input((n,)), Output((n,)))
    return Work(
        "blocks", "sort_pieces", (n // 1024,), (512,), given, 8 * n, 0,
        lambda x: np.sort(x.reshape(-1, 1024), axis=1).reshape(-1),
    )  # fmt: skip


def count_positive(n: int) -> Work:
    """One word for all warps."""
    given = (Input((n,)), Output((1,), np.uint32, zeroed=True), n)
    blocks = min(1056, cdiv(n, 256))
    return Work("blocks", "count_positive", (blocks,), (256,), given, 4 * n, n, lambda x: np.sum(x > 0, keepdims=True))


def histogram_warps(n: int) -> Work:
    """64 counts."""
    given = (Input((n,), np.uint32, "bytes"), Output((64,), np.uint32, zeroed=True), n)
    blocks = min(1056, cdiv(n, 256))
    return Work(
        "blocks", "histogram_warps", (blocks,), (256,), given, 4 * n, 0, lambda x: np.bincount(x & 63, minlength=64)
    )


def rms_norm(rows: int, columns: int) -> Work:
    """bf16 rows by Triton."""
    given = (Input((rows, columns), BF16), Input((columns,)), Output((rows, columns), BF16), columns)
    return triton(f"rms_norm_{columns}", (rows,), given, 4 * rows * columns, 4 * rows * columns, _rms_norm)


def _rms_norm(x: Array, scale: Array) -> Array:
    return np.asarray(wide(x) / np.sqrt(np.square(wide(x)).mean(axis=1, keepdims=True) + 1e-6) * scale)


def bias_gelu(rows: int, columns: int) -> Work:
    """bf16 by Triton, 1024 elements a program."""
    given = (Input((rows, columns), BF16), Input((columns,)), Output((rows, columns), BF16), columns)
    count = rows * columns
    return triton("bias_gelu", (count // 1024,), given, 4 * count, 12 * count, _bias_gelu)


def _bias_gelu(x: Array, bias: Array) -> Array:
    v = wide(x) + bias
    return np.asarray(v / (1 + np.exp(-1.5957691216 * (v + 0.044715 * v**3))))


def log_sum_exp(rows: int, columns: int) -> Work:
    """bf16 rows by Triton."""
    given = (Input((rows, columns), BF16), Output((rows,)), columns)
    return triton(
        "log_sum_exp", (rows,), given, 2 * rows * columns, 4 * rows * columns,
        lambda x: np.log(np.exp(wide(x)).sum(axis=1)),
    )  # fmt: skip


def attention(heads: int, keys: int) -> Work:
    """Attention over all keys by Triton, batch and heads together."""
    shape = (heads, keys, 64)
    given = (*(Input(shape, BF16),) * 3, Output(shape, BF16), keys, LOG2_E / 8)
    flops = 4 * heads * keys * keys * 64
    return triton("attention_64", (keys // 64, heads), given, 8 * heads * keys * 64, flops, _attention, 3e-2)


def _attention(q: Array, k: Array, v: Array) -> Array:
    scores = np.einsum("hid,hjd->hij", wide(q), wide(k)) / 8
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray(np.einsum("hij,hjd->hid", weights / weights.sum(axis=2, keepdims=True), wide(v)))


def bags(count: int, table: int) -> Work:
    """Sums of 8 rows of 256 each."""
    given = (Input((table, 256)), Input((count * 8,), np.int32, "index", table), Output((count, 256)))
    moved = 4 * 256 * 9 * count + 32 * count
    return triton(
        "bags_256", (count,), given, moved, 2048 * count,
        lambda table, index: wide(table)[index].reshape(-1, 8, 256).sum(axis=1), 1e-4,
    )  # fmt: skip


_ALL: tuple[Callable[..., Work], ...] = (
    triad, copy_pairs, dot, scan, words, logistic, polynomial, row_max, column_sum, matvec, halves, gemm_128, convolve,
    bodies, sort_pieces, count_positive, histogram_warps, rms_norm, bias_gelu, log_sum_exp, attention, bags,
)  # fmt: skip
MORE: Mapping[str, Callable[..., Any]] = {made.__name__: made for made in _ALL}
