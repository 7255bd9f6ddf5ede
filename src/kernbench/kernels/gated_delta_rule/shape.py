"""What the forward kernels of the gated delta rule are built for, and how sequences are cut into chunks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.kernels.attention import DTYPES, SPAN

CHUNK = 64
SIZES = (64, 128)


@dataclass(frozen=True)
class ForwardShape:
    """q and k [tokens, heads, key_size], v and the output [tokens, v_heads, value_size] of `dtype`.

    Gates g (natural logarithms, not positive) and beta [tokens, v_heads], and states [sequences, v_heads, value_size,
    key_size], are f32. Value head j uses query and key head j // (v_heads / heads).
    """

    heads: int
    v_heads: int
    key_size: int = 128
    value_size: int = 128
    dtype: str = "bf16"

    def __post_init__(self) -> None:
        if self.heads < 1 or self.v_heads < 1 or self.v_heads % self.heads:
            raise MisuseError(f"v_heads = {self.v_heads} must be a multiple of heads = {self.heads}")
        for name in ("key_size", "value_size"):
            if getattr(self, name) not in SIZES:
                raise MisuseError(f"{name} = {getattr(self, name)}: one of {', '.join(map(str, SIZES))}")
        if self.dtype not in DTYPES:
            raise MisuseError(f"dtype = {self.dtype!r}: one of {', '.join(DTYPES)}")

    @property
    def group(self) -> int:
        """Value heads that share a query and a key."""
        return self.v_heads // self.heads

    @property
    def spans(self) -> int:
        """Rows of 128 bytes that a key has."""
        return self.key_size // SPAN


@dataclass(frozen=True)
class ForwardPlan:
    """Chunks of sequences of given lengths, one after the other.

    `chunks` [chunks, 2] has the first row of each and how many it has; `sequences` [sequences, 4] the first row, the
    rows, the first chunk and the number of each, those with the most rows first.
    """

    shape: ForwardShape
    lengths: tuple[int, ...]
    chunks: Array
    sequences: Array

    @classmethod
    def of(cls, shape: ForwardShape, lengths: Sequence[int]) -> "ForwardPlan":
        """The chunks; a sequence without tokens has none."""
        if not lengths or min(lengths) < 0:
            raise MisuseError(f"lengths = {list(lengths)}: at least one sequence, and none may be negative")
        if not sum(lengths):
            raise MisuseError("there are no tokens: nothing is to be launched")
        chunks: list[tuple[int, int]] = []
        sequences, row = [], 0
        for number, length in enumerate(lengths):
            sequences.append((row, length, len(chunks), number))
            chunks += [(row + i, min(CHUNK, length - i)) for i in range(0, length, CHUNK)]
            row += length
        sequences.sort(key=lambda one: -one[1])
        return cls(shape, tuple(map(int, lengths)), np.array(chunks, np.uint32), np.array(sequences, np.uint32))

    @property
    def tokens(self) -> int:
        """Of all sequences."""
        return sum(self.lengths)

    def explain(self) -> str:
        """The cut in words."""
        most = -(-max(self.lengths) // CHUNK)
        return (
            f"{len(self.lengths)} sequences with {self.tokens:,} tokens in {len(self.chunks):,} chunks of {CHUNK}: "
            f"{len(self.chunks) * self.shape.v_heads:,} inverses; then {len(self.lengths) * self.shape.v_heads} CTAs "
            f"walk a sequence for a value head each, the longest {most} chunks"
        )
