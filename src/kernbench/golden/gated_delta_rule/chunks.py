"""Cuts concatenated sequences into chunks: no chunk crosses into another sequence."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.golden.basis.arrays import read
from kernbench.golden.basis.reference import Int64

CHUNK = 64


@dataclass(frozen=True)
class Chunks:
    """Sequence n has rows `cu_seqlens[n]` to `cu_seqlens[n + 1]`, cut into chunks of `size`, the last one ragged."""

    cu_seqlens: tuple[int, ...]
    size: int = CHUNK

    def __post_init__(self) -> None:
        starts = self.cu_seqlens
        if not starts or starts[0] != 0 or any(stop < start for start, stop in pairwise(starts)):
            raise MisuseError(f"cu_seqlens must start with 0 and never fall; got {list(starts)}")
        if self.size < 1:
            raise MisuseError(f"a chunk has at least 1 row, got {self.size}")

    @property
    def sequences(self) -> int:
        """How many sequences there are, empty ones included."""
        return len(self.cu_seqlens) - 1

    @cached_property
    def indices(self) -> Int64:
        """(sequence, chunk in it) of every chunk [total, 2], in the order of the rows; an empty sequence has none."""
        lengths = np.diff(self.cu_seqlens)
        pairs = [(n, c) for n, length in enumerate(lengths) for c in range(-(-int(length) // self.size))]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    @property
    def total(self) -> int:
        """How many chunks there are."""
        return len(self.indices)

    @property
    def capacity(self) -> int:
        """How many chunks suffice for any lengths with this many sequences and rows."""
        alone = self.sequences - 1
        return alone + -(-(self.cu_seqlens[-1] - alone) // self.size)

    def rows(self, chunk: int) -> slice:
        """The rows of a chunk."""
        sequence, index = (int(i) for i in self.indices[chunk])
        start = self.cu_seqlens[sequence] + index * self.size
        return slice(start, min(start + self.size, self.cu_seqlens[sequence + 1]))

    def pad(self, packed: Array, filler: float = 0.0) -> Array:
        """`packed` [T, ...] as whole chunks [total, size, ...]; missing rows of a ragged chunk are `filler`."""
        padded = np.full((self.total, self.size, *packed.shape[1:]), filler, dtype=packed.dtype)
        for chunk in range(self.total):
            rows = self.rows(chunk)
            padded[chunk, : rows.stop - rows.start] = packed[rows]
        return padded

    def unpad(self, padded: Array) -> Array:
        """The rows [T, ...] of whole chunks [total, size, ...]; inverse of `pad`."""
        packed = np.zeros((self.cu_seqlens[-1], *padded.shape[2:]), dtype=padded.dtype)
        for chunk in range(self.total):
            rows = self.rows(chunk)
            packed[rows] = padded[chunk, : rows.stop - rows.start]
        return packed


def make_chunks(cu_seqlens: ArrayLike | None, rows: int, size: int = CHUNK) -> Chunks:
    """The chunks of `rows` rows; `cu_seqlens` None means one sequence."""
    if cu_seqlens is None:
        return Chunks((0, rows), size)
    starts = read("cu_seqlens", cu_seqlens)
    if starts.dtype.kind not in "iu" or starts.ndim != 1:
        raise MisuseError(f"cu_seqlens must be a row of integers; got {starts.dtype} of shape {starts.shape}")
    chunks = Chunks(tuple(int(start) for start in starts), size)
    if chunks.cu_seqlens[-1] != rows:
        raise MisuseError(f"cu_seqlens ends at {chunks.cu_seqlens[-1]}, but there are {rows} rows: it must end there")
    return chunks
