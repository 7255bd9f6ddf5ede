"""Schedules: each is one legal order of execution. The canonical one keeps lanes together.

Others expose order dependence.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError

if TYPE_CHECKING:
    # schedule names are also checked by processes that never run a program
    from kernbench.ptx.emulator.program.steps import AnyFragment

# a fragment's position in program order
Key = tuple[int, ...]
# how many clusters are shuffled together
_SHUFFLED = 1 << 20


class Schedule:
    """The canonical schedule: CTAs in order, first fragment first.

    Asynchronous operations complete as late as allowed.
    """

    # whether asynchronous operations complete as soon as they begin
    eager = False
    # whether the order within a batch is independent of earlier batches
    apart = True

    def wave(self, total: int, first: int, last: int) -> Array:
        """The clusters that become resident, as positions `first` to `last` (exclusive) of `total`."""
        return np.arange(first, min(last, total), dtype=np.int64)

    def pick(self, ready: "Mapping[Key, AnyFragment]") -> Key:
        """The key of the fragment to run next."""
        return min(ready)


class Eager(Schedule):
    """Asynchronous operations complete as soon as they begin."""

    eager = True


class Reversed(Schedule):
    """CTAs in reverse order."""

    def wave(self, total: int, first: int, last: int) -> Array:
        """The last clusters first."""
        return total - 1 - super().wave(total, first, last)


class Shuffled(Schedule):
    """CTAs and fragments in random order, the same for the same seed."""

    apart = False

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)
        self._order: Array = np.zeros(0, np.int64)

    def wave(self, total: int, first: int, last: int) -> Array:
        """Shuffled clusters; a very large grid is shuffled chunk by chunk."""
        start = first - first % _SHUFFLED
        if first == start:
            self._order = start + self._random.permutation(min(_SHUFFLED, total - start))
        end = min(last - start, len(self._order))
        wave: Array = self._order[first - start : end]
        return wave

    def pick(self, ready: "Mapping[Key, AnyFragment]") -> Key:
        """Mostly the first fragment, sometimes the first one of other warps.

        Fragments of one warp keep their order, so that its lanes reconverge as usual.
        """
        if len(ready) == 1 or self._random.random() < 0.75:
            return min(ready)
        keys = _first_of_their_warps(ready)
        return keys[int(self._random.integers(len(keys)))]


def _first_of_their_warps(ready: "Mapping[Key, AnyFragment]") -> list[Key]:
    """Keys of fragments that come first for all of their warps."""
    found, seen = [], set[int]()
    for key in sorted(ready):
        warps = set(ready[key].lanes.present()[0].tolist())
        if not warps & seen:
            found.append(key)
        seen |= warps
    return found


_NAMED: dict[str, type[Schedule]] = {"canonical": Schedule, "eager": Eager, "reversed": Reversed}


def schedule_of(value: object) -> Schedule:
    """The schedule for a launch option: "canonical", "eager", "reversed" or a seed."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]()
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return Shuffled(int(value))
    raise MisuseError(f"schedule={value!r}: give {', '.join(map(repr, _NAMED))} or a whole number as seed")
