"""Attention in parts: the unnormalised (m, l, o) of a range of keys, merging in any order, and the final division.

For each row, m is the maximum of the scores, l = sum exp(s - m), and o = sum exp(s - m) v. A row that sees no key of
the range has m = -inf, l = 0, o = 0, and changes nothing it is merged with.
"""

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.golden.problem import Lengths, make_problem
from kernbench.golden.softmax import exponentials


class Partial(NamedTuple):
    """What one range of keys contributes: m and l [..., S_q, h_q, 1], o [..., S_q, h_q, d_v]."""

    m: Array
    l: Array
    o: Array


def partial(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    start: int = 0,
    stop: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    key_lengths: Lengths = None,
    query_offset: Lengths = None,
) -> Partial:
    """The contribution of the keys at positions `start` to `stop` (by default all) to `attention` of the same
    arguments.

    q, k and v are those of the whole problem, so that positions, lengths and the causal mask keep their meaning.
    """
    problem = make_problem(q, k, v, causal=causal, scale=scale, key_lengths=key_lengths, query_offset=query_offset)
    keys = problem.k.shape[1]
    end = keys if stop is None else stop
    if not 0 <= start <= end <= keys:
        raise MisuseError(f"the range of keys {start} to {end} does not lie within the {keys} keys given")
    m = np.full((*problem.output_shape[:3], 1), -np.inf)
    l = np.zeros_like(m)
    o = np.zeros(problem.output_shape)
    for block in problem.blocks(start, end):
        maximum, weights = exponentials(block.scores)
        m[block.where] = maximum.reshape(m[block.where].shape)
        with np.errstate(invalid="ignore", over="ignore"):
            l[block.where] = weights.sum(axis=1).reshape(m[block.where].shape)
            o[block.where] = (weights @ block.values).reshape(o[block.where].shape)
    return Partial(problem.unflatten(m), problem.unflatten(l), problem.unflatten(o))


def merge(partials: Iterable[tuple[Array, Array, Array]]) -> Partial:
    """The (m, l, o) of all `partials` merged, in the precision of their arrays (float64 from `partial`)."""
    parts = [Partial(*part) for part in partials]
    if not parts:
        raise MisuseError("merge needs at least one partial (m, l, o)")
    return reduce(_merge_two, parts)


def _merge_two(left: Partial, right: Partial) -> Partial:
    m = np.maximum(left.m, right.m)
    a, b = _weight(left.m, m), _weight(right.m, m)
    return Partial(m, left.l * a + right.l * b, left.o * a + right.o * b)


def _weight(part: Array, m: Array) -> Array:
    """exp(part - m), and 0 where the part saw no key."""
    difference = np.full_like(m, -np.inf)
    np.subtract(part, m, out=difference, where=~np.isneginf(part))
    return np.exp(difference)


def finish(m: Array, l: Array, o: Array) -> Array:
    """The output o / l; zeros in rows that saw no key (m is -inf there)."""
    empty = np.isneginf(m)
    return np.where(empty, np.zeros_like(o), o / np.where(empty, np.ones_like(l), l))
