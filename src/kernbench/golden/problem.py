"""One attention problem, checked, and cut into blocks of query rows with their masked scores.

Every query sees a prefix of the keys of its sequence, so its visible keys are one number for each row.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.golden.basis.arrays import digits, element_name, read, to_float64
from kernbench.golden.basis.reference import Float64, Int64

BLOCK_BYTES = 256 << 20
# scores, weights and one temporary exist at once, 8 bytes each
_BYTES_PER_SCORE = 24
_ROWS = 1024

Lengths = int | NDArray[np.integer[Any]] | None


@dataclass(frozen=True)
class Block:
    """Some query rows of one sequence, of query heads that share one key head.

    `where` indexes the rows' elements in an array [batch, S_q, h_q, ...]: queries first, then heads.
    `keys` and `values` are those that any row of the block sees, `visible` how many of them each row sees, and `scores`
    is -inf for the others.
    """

    where: tuple[int, slice, slice]
    queries: Float64
    keys: Float64
    values: Float64
    visible: Int64
    scores: Float64


@dataclass(frozen=True)
class Problem:
    """Checked arguments, with all batch axes as one: q [B, S_q, h_q, d], k [B, S_kv, h_kv, d], v [B, S_kv, h_kv, d_v].

    `lengths[b]` keys of sequence b are real; query i of it sees those at positions up to `offsets[b]` + i.
    """

    q: Array
    k: Array
    v: Array
    scale: float
    lengths: Int64
    offsets: Int64
    batch_shape: tuple[int, ...]
    operand_digits: int

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """Shape of the output with all batch axes as one."""
        return (*self.q.shape[:3], self.v.shape[3])

    def unflatten(self, array: Array) -> Array:
        """`array` with its first axis as the caller's batch axes."""
        return array.reshape(*self.batch_shape, *array.shape[1:])

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        """All query rows, block by block, against the keys at positions `start` to `stop`."""
        for blocks in self.heads(start, stop):
            yield from blocks

    def heads(self, start: int = 0, stop: int | None = None) -> Iterator[Iterator[Block]]:
        """The blocks of each key head of each sequence."""
        batch, _, heads, _ = self.k.shape
        last = self.k.shape[1] if stop is None else stop
        return (self._head_blocks(b, head, start, last) for b in range(batch) for head in range(heads))

    def _head_blocks(self, b: int, head: int, start: int, stop: int) -> Iterator[Block]:
        """The blocks of sequence b for the query heads that use key head `head`."""
        visible = self._visible(b, start, stop)
        seen = slice(start, start + int(visible.max(initial=0)))
        keys = to_float64(self.k[b, seen, head])
        values = to_float64(self.v[b, seen, head])
        group = self.q.shape[2] // self.k.shape[2]
        rows, heads = _extent(keys, values, group)
        for first_head in range(head * group, (head + 1) * group, heads):
            for first in range(0, len(visible), rows):
                where = (b, slice(first, first + rows), slice(first_head, min(first_head + heads, (head + 1) * group)))
                yield self._block(where, visible[where[1]], keys, values)

    def _visible(self, b: int, start: int, stop: int) -> Int64:
        """How many keys from `start` to `stop` each query of sequence b sees."""
        last = np.minimum(self.offsets[b] + np.arange(1, self.q.shape[1] + 1), self.lengths[b])
        visible: Int64 = np.clip(last - start, 0, max(0, stop - start))
        return visible

    def _block(self, where: tuple[int, slice, slice], visible: Int64, keys: Float64, values: Float64) -> Block:
        selected = to_float64(self.q[where])
        queries = selected.reshape(-1, self.q.shape[3])
        seen = int(visible.max(initial=0))
        visible = np.repeat(visible, selected.shape[1])
        with np.errstate(invalid="ignore", over="ignore"):
            scores = queries @ keys[:seen].T * self.scale
        scores = np.where(np.arange(seen) < visible[:, None], scores, -np.inf)
        return Block(where, queries, keys[:seen], values[:seen], visible, scores)


def _extent(keys: Float64, values: Float64, group: int) -> tuple[int, int]:
    """How many queries and query heads make a block, so that its scores fit `BLOCK_BYTES`."""
    rows = max(1, min(_ROWS, BLOCK_BYTES // (_BYTES_PER_SCORE * max(1, len(keys)))))
    heads = min(group, rows)
    if not (np.isfinite(keys).all() and np.isfinite(values).all()):
        # a hidden NaN times a weight of 0 is NaN: with one query at a time no key of a block is hidden
        return 1, heads
    return rows // heads, heads


def make_problem(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    causal: bool,
    scale: float | None,
    key_lengths: Lengths,
    query_offset: Lengths,
) -> Problem:
    """The problem given by these arguments; raises `MisuseError` if they are invalid."""
    arrays = [read(name, value) for name, value in zip("qkv", (q, k, v), strict=True)]
    elements = [element_name(name, array) for name, array in zip("qkv", arrays, strict=True)]
    if "i1" in elements:
        raise MisuseError(f"{'qkv'[elements.index('i1')]} holds truth values; attention needs numbers")
    _check_shapes(*(array.shape for array in arrays))
    batch_shape, (S_q, _, d), S_kv = arrays[0].shape[:-3], arrays[0].shape[-3:], arrays[1].shape[-3]
    lengths = _lengths(key_lengths, batch_shape, S_kv)
    flat_q, flat_k, flat_v = (a.reshape(math.prod(batch_shape), *a.shape[-3:]) for a in arrays)
    return Problem(
        q=flat_q,
        k=flat_k,
        v=flat_v,
        scale=_scale(scale, d),
        lengths=lengths,
        offsets=_offsets(query_offset, batch_shape, lengths - S_q) if causal else lengths,
        batch_shape=batch_shape,
        operand_digits=max(digits(element) for element in elements),
    )


def _check_shapes(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> None:
    shapes = f"q {q}, k {k}, v {v}"
    if min(len(q), len(k), len(v)) < 3:
        raise MisuseError(f"q, k and v need at least three axes [..., sequence, head, head size]; got {shapes}")
    if not q[:-3] == k[:-3] == v[:-3]:
        raise MisuseError(f"the batch axes (all before the last three) of q, k and v must agree; got {shapes}")
    if k[-3:-1] != v[-3:-1]:
        raise MisuseError(f"k and v must agree in sequence length and heads; got {shapes}")
    if q[-1] != k[-1] or q[-1] == 0:
        raise MisuseError(f"q and k must have the same head size, at least 1; got {shapes}")
    if min(q[-2], k[-2]) == 0 or q[-2] % k[-2]:
        raise MisuseError(f"the query heads must be a multiple of the key heads, got {q[-2]} and {k[-2]}: {shapes}")


def _scale(scale: float | None, d: int) -> float:
    if scale is None:
        return 1.0 / math.sqrt(d)
    if not math.isfinite(scale):
        raise MisuseError(f"scale must be a finite number, got {scale}")
    return float(scale)


def _lengths(key_lengths: Lengths, batch_shape: tuple[int, ...], S_kv: int) -> Int64:
    lengths = _per_sequence("key_lengths", S_kv if key_lengths is None else key_lengths, batch_shape)
    wrong = lengths[(lengths < 0) | (lengths > S_kv)]
    if wrong.size:
        raise MisuseError(f"key_lengths must lie between 0 and the {S_kv} keys given; got {wrong[0]}")
    return lengths


def _offsets(query_offset: Lengths, batch_shape: tuple[int, ...], default: Int64) -> Int64:
    return default if query_offset is None else _per_sequence("query_offset", query_offset, batch_shape)


def _per_sequence(name: str, value: ArrayLike, batch_shape: tuple[int, ...]) -> Int64:
    array = read(name, value)
    if array.dtype.kind not in "iu":
        raise MisuseError(f"{name} must be integers, got {array.dtype}")
    if array.shape not in ((), batch_shape):
        raise MisuseError(f"{name} must be one number or have the batch shape {batch_shape}; got shape {array.shape}")
    return np.broadcast_to(array, batch_shape).astype(np.int64).reshape(-1)
