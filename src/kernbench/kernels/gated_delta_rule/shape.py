"""The static parameters of the forward kernels of the gated delta rule, and the partition into chunks and segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.kernels.attention import DTYPES, SPAN

CHUNK = 64
SIZES = (64, 128)
# least chunks of a segment: the cost of chaining segments is worth that much work
LEAST_CHUNKS = 8
# and least segments of a sequence: all but the last are processed three times, once for each kind of kernel
LEAST_SEGMENTS = 4
# the index of a state that is not stored
NOBODY = 0xFFFFFFFF


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
        """Rows of 128 bytes of a key."""
        return self.key_size // SPAN


@dataclass(frozen=True)
class ForwardPlan:
    """Chunks of sequences of given lengths in order, and segments, which CTAs process in parallel.

    `chunks` [chunks, 2] has the first row of each and its number of rows. `segments` [segments, 8] has the first row,
    the rows, the first chunk, the index of the initial and of the final state (`NOBODY`: not stored) of each, those
    with the most rows first. `inner` [inner, 8] are those with a successor, which store final states of their own;
    `chains` [sequences, 4] the first segment of each sequence, its number of segments, and its first inner one.
    """

    shape: ForwardShape
    lengths: tuple[int, ...]
    chunks: Array
    segments: Array
    inner: Array
    chains: Array
    sms: int = 0

    @classmethod
    def of(cls, shape: ForwardShape, lengths: Sequence[int], sms: int = 0) -> "ForwardPlan":
        """Chunks and segments; with `sms`, sequences are cut if there are too few for that many SMs."""
        if not lengths or min(lengths) < 0:
            raise MisuseError(f"lengths = {list(lengths)}: at least one sequence, and none may be negative")
        if not sum(lengths):
            raise MisuseError("there are no tokens: nothing is to be launched")
        counts = [-(-length // CHUNK) for length in lengths]
        chunks: list[tuple[int, ...]] = []
        segments: list[tuple[int, ...]] = []
        inner: list[tuple[int, ...]] = []
        chains: list[tuple[int, ...]] = []
        rows = 0
        for length, parts in zip(lengths, _parts(shape, counts, sms), strict=True):
            chains.append((len(segments), len(parts), len(inner), 0))
            taken = 0
            for part, count in enumerate(parts):
                size, last = min(count * CHUNK, length - taken), part == len(parts) - 1
                begin = (rows + taken, size, len(chunks) + taken // CHUNK)
                segments.append((*begin, len(segments), len(chains) - 1 if last else NOBODY, 0, 0, 0))
                if not last:
                    inner.append((*begin, NOBODY, len(inner), 0, 0, 0))
                taken += size
            chunks += [(rows + i, min(CHUNK, length - i)) for i in range(0, length, CHUNK)]
            rows += length
        segments.sort(key=lambda one: -one[1])
        tables = ((chunks, 2), (segments, 8), (inner, 8), (chains, 4))
        arrays = [np.array(one, np.uint32).reshape(-1, n) for one, n in tables]
        return cls(shape, tuple(map(int, lengths)), arrays[0], arrays[1], arrays[2], arrays[3], sms)

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(self.lengths)

    @property
    def cut(self) -> bool:
        """Whether a sequence has several segments."""
        return bool(len(self.inner))

    def explain(self) -> str:
        """The partition in words."""
        most, heads = -(-int(self.segments[0, 1]) // CHUNK), self.shape.v_heads
        walks = len(self.segments) * heads
        walks *= parts_of(self.shape.value_size // CHUNK, walks, self.sms)
        cut = f"cut into {len(self.segments)} segments, whose states are chained first; " if self.cut else ""
        return (
            f"{len(self.lengths)} sequences with {self.tokens:,} tokens in {len(self.chunks):,} chunks of {CHUNK}: "
            f"{len(self.chunks) * heads:,} inverses; {cut}then {walks} CTAs walk, the longest "
            f"{most} chunks"
        )


def parts_of(groups: int, states: int, sms: int) -> int:
    """CTAs that share a state of `groups` groups of 64 rows: one, or one per group if such CTAs finish first.

    A group alone on its SM takes two thirds of the time of two together, as measured on an H200.
    """
    return groups if sms and groups > 1 and 2 * -(-states * groups // sms) < 3 * -(-states // sms) else 1


def _parts(shape: ForwardShape, counts: Sequence[int], sms: int) -> list[list[int]]:
    """Chunks of each segment of each sequence: enough segments in all to fill the SMs, by the sequences' lengths."""
    wanted, total = sms // shape.v_heads, sum(counts)
    parts = []
    for count in counts:
        segments = 1
        if len(counts) * LEAST_SEGMENTS <= wanted:
            segments = max(1, min(count // LEAST_CHUNKS, wanted * count // total))
        edges = [count * i // segments for i in range(segments + 1)]
        parts.append([after - before for before, after in pairwise(edges)])
    return parts
