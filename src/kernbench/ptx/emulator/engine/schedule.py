"""Schedules: one legal order among many. The canonical one keeps lanes together; others show what order changes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError

if TYPE_CHECKING:
    # a schedule's name is looked at before there is anything to run, by a process that never runs it
    from kernbench.ptx.emulator.program.steps import AnyFragment

# where a fragment stands in the order of the program
Key = tuple[int, ...]
# clusters that are shuffled together
_SHUFFLED = 1 << 20


class Schedule:
    """CTAs in order, always the fragment that stands first; asynchronous operations complete as late as they may."""

    # whether asynchronous operations complete as soon as they begin
    eager = False
    # whether the order in one batch does not depend on what the batches before did
    apart = True

    def wave(self, total: int, first: int, last: int) -> Array:
        """Which of `total` clusters of CTAs become resident from the `first` position to before the `last` one."""
        return np.arange(first, min(last, total), dtype=np.int64)

    def pick(self, ready: "Mapping[Key, AnyFragment]") -> Key:
        """The key of the fragment that runs next."""
        return min(ready)


class Eager(Schedule):
    """Asynchronous operations complete as soon as they begin."""

    eager = True


class Reversed(Schedule):
    """The last CTAs first."""

    def wave(self, total: int, first: int, last: int) -> Array:
        """The last clusters first."""
        return total - 1 - super().wave(total, first, last)


class Shuffled(Schedule):
    """CTAs and fragments in an order drawn at random, the same for the same seed."""

    apart = False

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)
        self._order: Array = np.zeros(0, np.int64)

    def wave(self, total: int, first: int, last: int) -> Array:
        """Clusters shuffled; of a very large grid, runs of them one after the other, each shuffled."""
        start = first - first % _SHUFFLED
        if first == start:
            self._order = start + self._random.permutation(min(_SHUFFLED, total - start))
        end = min(last - start, len(self._order))
        wave: Array = self._order[first - start : end]
        return wave

    def pick(self, ready: "Mapping[Key, AnyFragment]") -> Key:
        """Mostly the first, sometimes another of other warps: lanes of one warp meet again as they always do."""
        if len(ready) == 1 or self._random.random() < 0.75:
            return min(ready)
        keys = _first_of_their_warps(ready)
        return keys[int(self._random.integers(len(keys)))]


def _first_of_their_warps(ready: "Mapping[Key, AnyFragment]") -> list[Key]:
    """Keys of fragments whose warps have none that stands before them."""
    found, seen = [], set[int]()
    for key in sorted(ready):
        warps = set(ready[key].lanes.present()[0].tolist())
        if not warps & seen:
            found.append(key)
        seen |= warps
    return found


_NAMED: dict[str, type[Schedule]] = {"canonical": Schedule, "eager": Eager, "reversed": Reversed}


def schedule_of(value: object) -> Schedule:
    """A schedule from what a launch is given: "canonical", "eager", "reversed" or a seed."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]()
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return Shuffled(int(value))
    raise MisuseError(f"schedule={value!r}: give {', '.join(map(repr, _NAMED))} or a whole number as seed")
