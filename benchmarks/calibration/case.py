"""One measurement of a microbenchmark: a kernel, how it is launched, what it is given, and what its loop does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .source import Source

Words = NDArray[np.uint32]
Content = Literal["ones", "numbers", "chase", "zeros"]
_GOLDEN = 2_654_435_761


@dataclass(frozen=True)
class Data:
    """What `data` holds: `nbytes` of ones (as f32), of numbers that look random, of zeros, or of a chase.

    A chase is a byte offset every `stride` bytes: that of the next place, such that all places are visited in turn.
    """

    nbytes: int = 4096
    content: Content = "ones"
    stride: int = 128

    @property
    def places(self) -> int:
        """How many places a chase has."""
        return max(1, self.nbytes // self.stride)

    @property
    def step(self) -> int:
        """How many places a chase goes on: a number without a common divisor, near the golden section."""
        step = max(1, round(self.places * 0.381966)) | 1
        while np.gcd(step, self.places) != 1:
            step += 2
        return step

    def words(self) -> Words:
        """The content, on the host."""
        made = np.zeros(self.nbytes // 4, np.uint32)
        if self.content == "ones":
            made[:] = np.float32(1).view(np.uint32)
        elif self.content == "numbers":
            made[:] = (np.arange(len(made), dtype=np.uint64) * _GOLDEN).astype(np.uint32)
        elif self.content == "chase":
            places = np.arange(self.places, dtype=np.uint64)
            following = (places + self.step) % self.places * self.stride
            made[:: self.stride // 4][: self.places] = following.astype(np.uint32)
        return made


@dataclass(frozen=True)
class Case:
    """`turns` of a loop in which each unit of work (a warp, an SM, or the whole GPU) does `work` of `unit`.

    `grid` 0 means a CTA for each SM; `grid_per_sm` multiplies it. `parameters` say what was varied. `by_time` marks
    cases whose rate is that of the whole GPU, taken from events and not from the clock of an SM. `small` are the turns
    at which the emulator checks the kernel; `expected` is what must then be in `sink` (by default anything).
    """

    benchmark: str
    source: Source
    parameters: Mapping[str, float | str]
    work: float
    unit: str
    block: int = 32
    grid: int = 1
    grid_per_sm: int = 1
    turns: tuple[int, int] = (64, 192)
    data: Data = field(default_factory=Data)
    shared_bytes: int = 0
    # words of `sink` beyond one a thread, for each CTA
    sink_words: int = 0
    cluster: int = 0
    by_time: bool = False
    small: int = 2
    small_grid: int = 1
    small_data: Data | None = None
    # the same over a smaller footprint
    small_source: Source | None = None
    expected: Words | None = None

    @property
    def name(self) -> str:
        """The benchmark with its parameters."""
        varied = ",".join(
            f"{key}={value:g}" if not isinstance(value, str) else f"{key}={value}"
            for key, value in self.parameters.items()
        )
        return f"{self.benchmark}[{varied}]" if varied else self.benchmark

    def ctas(self, sms: int) -> int:
        """How many CTAs it is launched with on a GPU of `sms` SMs."""
        return (self.grid or sms) * self.grid_per_sm
