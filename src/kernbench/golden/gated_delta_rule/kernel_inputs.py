"""The inputs of the chunk-output kernel, in its types and layouts, with poison in memory it must not read."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernbench.common.dtypes import DTYPES, Array, cast, dtype_name, poisoned
from kernbench.golden.basis.arrays import read
from kernbench.golden.basis.reference import Reference
from kernbench.golden.gated_delta_rule.chunked import Stages, chunked
from kernbench.golden.gated_delta_rule.chunks import CHUNK, Chunks
from kernbench.golden.gated_delta_rule.output import chunk_output
from kernbench.golden.gated_delta_rule.problem import make_scale
from kernbench.golden.gated_delta_rule.rounding import EXACT, Rounding


@dataclass(frozen=True)
class KernelInputs:
    """The arguments of the chunk-output kernel, and the exact numbers behind them.

    `q`, `k` [T, H, K] are packed: a ragged chunk is followed by the next sequence's rows. `v_new`
    [capacity * size, Hv, V] has whole chunks; `h` [capacity * Hv, V, K] has the state before chunk c of head j at
    c * Hv + j; `g` [T, Hv], f32, is cumulated in each chunk. `cu_seqlens` [N + 1], `chunk_indices` [capacity, 2] and
    `total_chunks` [1] are i32. Entries of chunks from `total_chunks` on are poison: NaN or the smallest integer.
    """

    q: Array
    k: Array
    v_new: Array
    h: Array
    g: Array
    cu_seqlens: Array
    chunk_indices: Array
    total_chunks: Array
    scale: float
    chunks: Chunks

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Shape [T, Hv, V] of what the kernel writes."""
        return (len(self.q), *self.v_new.shape[1:])

    def reference(self, rounding: Rounding = EXACT) -> Reference:
        """The output for exactly these inputs; `rounding` as in `chunk_output`."""
        total, size = self.chunks.total, self.chunks.size
        heads = self.v_new.shape[1]
        return chunk_output(
            self.q,
            self.k,
            self.chunks.unpad(self.v_new[: total * size].reshape(total, size, *self.v_new.shape[1:])),
            self.h[: total * heads].reshape(total, heads, *self.h.shape[1:]),
            self.g,
            cu_seqlens=self.cu_seqlens,
            scale=self.scale,
            chunk_size=size,
            rounding=rounding,
        )


def kernel_inputs(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    g: ArrayLike,
    beta: ArrayLike,
    *,
    initial_state: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    scale: float | None = None,
    chunk_size: int = CHUNK,
    dtype: str = "bf16",
    padding: float = 0.0,
) -> KernelInputs:
    """The inputs of the last stage, with exact earlier stages rounded to `dtype`, as are q, k and v.

    `padding` is the content of missing rows of a ragged chunk of `v_new`: a kernel may rely on zeros there, unless it
    masks them itself.
    """
    name = dtype_name(dtype)
    q, k, v = (cast(read(label, x), name) for label, x in (("q", q), ("k", k), ("v", v)))
    stages = chunked(
        q,
        k,
        v,
        g,
        beta,
        initial_state=initial_state,
        cu_seqlens=cu_seqlens,
        scale=scale,
        chunk_size=chunk_size,
        rounding=Rounding.everywhere(name),
    )
    chunks = stages.chunks
    return KernelInputs(
        q=q,
        k=k,
        **_by_chunk(stages, name, padding),
        g=stages.gates.astype(np.float32),
        cu_seqlens=np.array(chunks.cu_seqlens, dtype=np.int32),
        chunk_indices=_with_spares(chunks.indices.astype(np.int32), "i32", chunks.capacity),
        total_chunks=np.array([chunks.total], dtype=np.int32),
        scale=make_scale(scale, q.shape[2]),
        chunks=chunks,
    )


def _by_chunk(stages: Stages, dtype: str, padding: float) -> dict[str, Array]:
    """`v_new` and `h`, with chunks concatenated."""
    chunks, element = stages.chunks, DTYPES[dtype].numpy
    parts = {"v_new": chunks.pad(stages.v_new, padding), "h": stages.h}
    whole = {name: _with_spares(part.astype(element), dtype, chunks.capacity) for name, part in parts.items()}
    # chunk and row, or chunk and head, become one axis
    return {name: part.reshape(part.shape[0] * part.shape[1], *part.shape[2:]) for name, part in whole.items()}


def _with_spares(used: Array, dtype: str, capacity: int) -> Array:
    return np.concatenate([used, poisoned((capacity - len(used), *used.shape[1:]), dtype)])
