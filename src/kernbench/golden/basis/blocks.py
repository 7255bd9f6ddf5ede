"""Elementwise computations in blocks of rows: a block stays in the cache from one step to the next, and several threads
process blocks of their own. Results are bit-identical; sums over elements are not computed this way.
"""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.golden.basis.threads import in_threads

# elements of a block: several arrays of them fit into the cache of a core
BLOCK = 1 << 15


def in_blocks(compute: Callable[..., Array], arrays: Sequence[Array], dtype: type[np.generic] = np.float64) -> Array:
    """`compute(*arrays)`, of the shape of the first; the others have that shape too, or a last axis of 1.

    It may only use the elements of the same index, or of the same row.
    """
    shape, spans = arrays[0].shape, _spans(arrays)
    if len(spans) < 2:
        return compute(*arrays)
    flat = [_as_rows(array) for array in arrays]
    out = np.empty(flat[0].shape, dtype)

    def work(span: slice) -> None:
        out[span] = compute(*(array[span] for array in flat))

    in_threads(work, spans)
    return out.reshape(shape)


def largest(compute: Callable[..., Array], arrays: Sequence[Array]) -> float:
    """The largest element of what `compute` returns, without storing it; 0 if there is none."""
    spans = _spans(arrays)
    if len(spans) < 2:
        return float(compute(*arrays).max(initial=0.0))
    flat = [_as_rows(array) for array in arrays]
    found = np.zeros(len(spans))

    def work(number: int) -> None:
        found[number] = compute(*(array[spans[number]] for array in flat)).max(initial=0.0)

    in_threads(work, range(len(spans)))
    return float(found.max())


def _as_rows(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1])


def _spans(arrays: Sequence[Array]) -> list[slice]:
    """The blocks of arrays of rows; none if they have no elements or no rows, or are not contiguous: results have
    the memory layout of their inputs, and the order of a sum depends on that.
    """
    shape = arrays[0].shape
    if not shape or 0 in shape or not all(array.flags.c_contiguous for array in arrays):
        return []
    rows, each = prod(shape[:-1]), max(1, BLOCK // shape[-1])
    return [slice(start, min(start + each, rows)) for start in range(0, rows, each)]
