"""Paged attention in float64: the pages of each sequence gathered, then attention; with or without P rounded to
bf16.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from kernbench.common.dtypes import Array, cast
from kernbench.common.errors import MisuseError
from kernbench.golden.attention import attention
from kernbench.golden.basis.arrays import read, to_float64
from kernbench.golden.basis.reference import Float64, Reference


def paged_attention(
    query: ArrayLike,
    key_cache: ArrayLike,
    value_cache: ArrayLike,
    block_table: ArrayLike,
    context_lens: ArrayLike,
    scale: float | None = None,
) -> Reference:
    """softmax(scale q k^T) v of one query token for each sequence, exact; shape [B, 1, H, D].

    query [B, H, D]; caches [blocks, block_size, kv_heads, D]; block_table [B, max_blocks]; context_lens [B]. Context
    length 0 gives zeros. Entries of the table past the context are not read.
    """
    q, lengths = read("query", query), read("context_lens", context_lens)
    keys, values = (gather_pages(name, c, block_table, lengths) for name, c in (("k", key_cache), ("v", value_cache)))
    return attention(q[:, None], keys, values, scale=scale, key_lengths=lengths.astype(np.int64))


def gather_pages(name: str, cache: ArrayLike, block_table: ArrayLike, context_lens: Array) -> Array:
    """The pages of each sequence end to end, [B, longest, kv_heads, D]; zeros past each context."""
    pages, table = read(f"{name} cache", cache), read("block_table", block_table)
    if pages.ndim != 4 or table.ndim != 2 or len(table) != len(context_lens):
        raise MisuseError(
            f"{name} cache {pages.shape}, block_table {table.shape} and {len(context_lens)} lengths do not fit: "
            "[blocks, block_size, kv_heads, D], [B, max_blocks] and [B] are wanted"
        )
    size = pages.shape[1]
    longest = int(context_lens.max(initial=0))
    if longest > table.shape[1] * size:
        raise MisuseError(f"a context of {longest} keys needs more than the {table.shape[1]} pages of the table")
    gathered = np.zeros((len(table), longest, *pages.shape[2:]), pages.dtype)
    for b, length in enumerate(context_lens.tolist()):
        used = table[b, : -(-length // size)]
        if used.size and not (used.min() >= 0 and used.max() < len(pages)):
            raise MisuseError(f"block_table row {b} names page {used.min()} to {used.max()} of {len(pages)}")
        gathered[b, :length] = pages[used].reshape(-1, *pages.shape[2:])[:length]
    return gathered


def paged_attention_rounded(
    query: ArrayLike,
    key_cache: ArrayLike,
    value_cache: ArrayLike,
    block_table: ArrayLike,
    context_lens: ArrayLike,
    scale: float | None = None,
    step: int | None = None,
    together: int = 1,
    scores: str | None = None,
) -> Float64:
    """The same, page by page as the kernels compute it: P = exp(S - page maximum) rounded to bf16, its sum of the
    rounded P, pages merged online; all else in float64.

    A page may be cut into steps of `step` keys, and `together` steps may share one maximum; q k^T may be rounded to the
    type `scores` before it is scaled.
    """
    q, lengths = to_float64(read("query", query)), read("context_lens", context_lens)
    keys, values = (
        to_float64(gather_pages(n, c, block_table, lengths)) for n, c in (("k", key_cache), ("v", value_cache))
    )
    page = int(read("k cache", key_cache).shape[1])
    factor = 1.0 / np.sqrt(q.shape[2]) if scale is None else scale
    out = np.zeros(q.shape)
    group = q.shape[1] // keys.shape[2]
    for b, length in enumerate(lengths.tolist()):
        for head in range(keys.shape[2] if length else 0):
            heads = slice(head * group, (head + 1) * group)
            cuts = _cuts(length, page, step or page, together)
            products = q[b, heads] @ keys[b, :length, head].T
            rounded = products if scores is None else to_float64(cast(products, scores))
            out[b, heads] = _online(rounded * factor, values[b, :length, head], cuts)
    return out


def _cuts(length: int, page: int, step: int, together: int) -> list[int]:
    """The first key of each group that shares a maximum, and the end."""
    starts = [p + s for p in range(0, length, page) for s in range(0, page, step) if p + s < length]
    return [*starts[::together], length]


def _online(scores: Float64, values: Float64, cuts: list[int]) -> Float64:
    """One head's queries over its keys with an online softmax, merged group by group."""
    rows = len(scores)
    maximum = np.full((rows, 1), -np.inf)
    total, out = np.zeros((rows, 1)), np.zeros((rows, values.shape[1]))
    for start, stop in pairwise(cuts):
        here = scores[:, start:stop]
        highest = here.max(axis=1, keepdims=True)
        weights = to_float64(cast(np.exp(here - highest), "bf16"))
        raised = np.maximum(maximum, highest)
        old, new = np.exp(maximum - raised), np.exp(highest - raised)
        total = total * old + weights.sum(axis=1, keepdims=True) * new
        out = out * old + weights @ values[start:stop] * new
        maximum = raised
    result: Float64 = out / total
    return result
