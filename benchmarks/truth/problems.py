"""What each problem of the truth set launches: a kernel of `ptx/`, its grid, its arguments, and what must come out."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FOLDER = Path(__file__).parent / "ptx"
BF16 = np.dtype(ml_dtypes.bfloat16)
LOG2_E = 1.4426950408889634
_BLOCK = 1 << 16
NULL = 0


@dataclass(frozen=True)
class Input:
    """An array a kernel reads: normal numbers, words that look random, one word again and again, rows by number,
    all numbers in any order, or where parts begin that have `below` elements each on average, more in later ones.
    """

    shape: tuple[int, ...]
    dtype: Any = np.float32
    content: str = "normal"
    below: int = 0

    def made(self, rng: np.random.Generator) -> Array:
        """The array; large ones repeat a block, which no cache is large enough to make use of."""
        count = int(np.prod(self.shape))
        if self.content == "normal":
            block: Array = rng.standard_normal(min(count, _BLOCK)).astype(self.dtype)
        elif self.content == "index":
            return rng.integers(0, self.below, count).astype(self.dtype).reshape(self.shape)
        elif self.content == "permutation":
            return rng.permutation(count).astype(self.dtype).reshape(self.shape)
        elif self.content == "rising":
            at = np.arange(count, dtype=np.int64)
            return (at + (self.below - 1) * at * at // (count - 1)).astype(self.dtype).reshape(self.shape)
        elif self.content == "bytes":
            block = rng.integers(0, 1 << 32, min(count, _BLOCK), dtype=np.uint64).astype(np.uint32)
        else:
            block = np.full(min(count, _BLOCK), 0x07070707, np.uint32)
        return np.resize(block, count).reshape(self.shape)


@dataclass(frozen=True)
class Output:
    """An array a kernel writes; `zeroed` where it adds to what is there."""

    shape: tuple[int, ...]
    dtype: Any = np.float32
    zeroed: bool = False


Argument = Input | Output | int | float


@dataclass(frozen=True)
class Work:
    """One launch. `moved` are the bytes that must go through memory at least, `flops` what it computes."""

    file: str
    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Argument, ...]
    moved: int
    flops: int
    expected: Callable[..., Array]
    shared: int = 0
    tolerance: float = 1e-5
    # kinds of findings that the compiler's code has
    findings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The PTX."""
        return (FOLDER / f"{self.file}.ptx").read_text(encoding="utf-8")


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def wide(array: Array) -> NDArray[np.float64]:
    """In double precision."""
    return array.astype(np.float64)


def saxpy(n: int) -> Work:
    """Elements in fours."""
    given = (Input((n,)), Output((n,), zeroed=True), 2.0, n // 4)
    return Work(
        "stream", "saxpy", (cdiv(n // 4, 256),), (256,), given, 12 * n, 2 * n, lambda x: 2 * wide(x)
    )  # fmt: skip


def strided_copy(n: int, stride: int) -> Work:
    """A gather with a stride without a common divisor with n."""
    given = (Input((n,)), Output((n,)), n, stride)
    moved = 8 * n
    return Work(
        "stream", "strided_copy", (cdiv(n, 256),), (256,), given, moved, 0,
        lambda x: x[np.arange(n, dtype=np.int64) * stride % n],
    )  # fmt: skip


def reduction(n: int, form: str) -> Work:
    """A sum by at most 1056 blocks."""
    blocks = min(1056, cdiv(n, 1024))
    given = (Input((n,)), Output((1,), zeroed=True), n)
    entry = f"sum_{form}"
    return Work(
        "reduction", entry, (blocks,), (256,), given, 4 * n, n, lambda x: wide(x).sum(keepdims=True), tolerance=1e-3
    )  # fmt: skip


def transpose(n: int, form: str) -> Work:
    """n x n."""
    given = (Input((n, n)), Output((n, n)), n)
    side = n // 32
    return Work("transpose", f"transpose_{form}", (side, side), (32, 8), given, 8 * n * n, 0, lambda x: x.T)


def stencil(n: int, dimensions: int) -> Work:
    """Inner points only: the edge stays zero."""
    shape = (n,) * dimensions
    given = (Input(shape), Output(shape, zeroed=True), n)
    grid: tuple[int, ...] = (cdiv(n, 32), cdiv(n, 8))
    grid = grid if dimensions == 2 else (*grid, cdiv(n, 8))
    points = n**dimensions
    return Work(
        "stencil", f"stencil_{dimensions}d", grid, (32, 8), given, 8 * points, (6, 8)[dimensions - 2] * points, _stencil
    )  # fmt: skip


def _stencil(x: Array) -> Array:
    full = wide(x)
    inner = (slice(1, -1),) * x.ndim
    around = sum(
        np.roll(full, step, axis)[inner] for axis in range(x.ndim) for step in (-1, 1)
    )  # fmt: skip
    own, others = (0.5, 0.125) if x.ndim == 2 else (0.4, 0.1)
    out = np.zeros_like(full)
    out[inner] = own * full[inner] + others * around
    return out


def histogram(n: int, form: str, content: str) -> Work:
    """Bytes of n words."""
    given = (Input((n,), np.uint32, content), Output((256,), np.uint32, zeroed=True), n)
    blocks = min(1056, cdiv(n, 256))
    return Work(
        "histogram", f"histogram_{form}", (blocks,), (256,), given, 4 * n, 0,
        lambda x: np.bincount(x.view(np.uint8), minlength=256),
    )  # fmt: skip


def gemm(n: int, form: str) -> Work:
    """n x n x n in f32 on CUDA cores."""
    given = (Input((n, n)), Input((n, n)), Output((n, n)), n)
    side, block = (n // 32, (32, 32)) if form == "tile" else (n // 64, (256,))
    return Work(
        "gemm", f"gemm_{form}", (side, side), block, given, 12 * n * n, 2 * n**3, lambda a, b: wide(a) @ wide(b),
        tolerance=1e-4,
    )  # fmt: skip


def triton(name: str, grid: tuple[int, ...], given: tuple[Argument, ...], moved: int, flops: int,
           expected: Callable[..., Array], tolerance: float = 2e-2) -> Work:  # fmt: skip
    """A kernel that Triton compiled; the first line of its file says how it is launched."""
    text = (FOLDER / f"{name}.ptx").read_text(encoding="utf-8")
    first, *_ = text.splitlines()
    about = json.loads(first.removeprefix("// "))
    # two pointers to scratch memory, of which these kernels have none
    given = (*given, NULL, NULL)
    block, shared = (about["block"],), about["shared"]
    return Work(name, about["entry"], grid, block, given, moved, flops, expected, shared, tolerance)


def matmul(m: int, n: int, k: int, tile: str) -> Work:
    """bf16 by Triton."""
    rows, columns = map(int, tile.split("x"))
    given = (Input((m, k), BF16), Input((k, n), BF16), Output((m, n), BF16), m, n, k)
    grid = (cdiv(m, rows) * cdiv(n, columns),)
    moved = 2 * (m * k + k * n + m * n)
    return triton(f"matmul_{tile}", grid, given, moved, 2 * m * n * k, lambda a, b: wide(a) @ wide(b))


def split_k(m: int, n: int, k: int, splits: int) -> Work:
    """bf16 by Triton, sums by atomics."""
    given = (Input((m, k), BF16), Input((k, n), BF16), Output((m, n), zeroed=True), m, n, k)
    moved = 2 * (m * k + k * n) + 4 * m * n
    grid = (m // 16, n // 64, splits)
    return triton(f"split_k_{splits}", grid, given, moved, 2 * m * n * k, lambda a, b: wide(a) @ wide(b))


def softmax(rows: int, columns: int) -> Work:
    """f32 rows by Triton."""
    given = (Input((rows, columns)), Output((rows, columns)), columns)
    return triton(f"softmax_{columns}", (rows,), given, 8 * rows * columns, 5 * rows * columns, _softmax, 1e-4)


def _softmax(x: Array) -> Array:
    weights = np.exp(wide(x) - x.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def layer_norm(rows: int, columns: int) -> Work:
    """bf16 rows by Triton."""
    given = (Input((rows, columns), BF16), Input((columns,)), Input((columns,)), Output((rows, columns), BF16), columns)
    return triton("layer_norm", (rows,), given, 4 * rows * columns, 8 * rows * columns, _layer_norm)


def _layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    full = wide(x)
    centred = full - full.mean(axis=1, keepdims=True)
    return np.asarray(centred / np.sqrt(full.var(axis=1, keepdims=True) + 1e-5) * scale + shift)


def flash(heads: int, keys: int, d: int) -> Work:
    """Causal attention by Triton, batch and heads together."""
    shape = (heads, keys, d)
    given = (*(Input(shape, BF16),) * 3, Output(shape, BF16), keys, LOG2_E / d**0.5)
    flops = 2 * heads * keys * keys * d
    return triton(f"flash_{d}", (keys // 128, heads), given, 8 * heads * keys * d, flops, _attention, 3e-2)


def _attention(q: Array, k: Array, v: Array) -> Array:
    scores = np.einsum("hid,hjd->hij", wide(q), wide(k)) / q.shape[2] ** 0.5
    scores = np.where(np.tri(scores.shape[1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray(np.einsum("hij,hjd->hid", weights / weights.sum(axis=2, keepdims=True), wide(v)))


def gather(rows: int, table: int, width: int) -> Work:
    """Rows of a table, by random numbers."""
    given = (Input((table, width)), Input((rows,), np.int32, "index", table), Output((rows, width)))
    moved = 8 * rows * width + 4 * rows
    return triton(f"gather_{width}", (rows,), given, moved, 0, lambda table, index: table[index], 1e-7)


_ALL = (saxpy, strided_copy, reduction, transpose, stencil, histogram, gemm)
_TRITON = (matmul, split_k, softmax, layer_norm, flash, gather)
FIRST: Mapping[str, Callable[..., Work]] = {made.__name__: made for made in (*_ALL, *_TRITON)}
