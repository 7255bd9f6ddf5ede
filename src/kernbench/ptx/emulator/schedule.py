"""Schedules: one legal order among many. The canonical one keeps lanes together; others show what order changes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError


class Schedule:
    """CTAs in order, always the fragment that stands first; asynchronous operations complete as late as they may."""

    # whether asynchronous operations complete as soon as they begin
    eager = False

    def cta_order(self, total: int) -> Array:
        """CTA numbers in the order in which they become resident."""
        return np.arange(total)

    def pick(self, ready: Mapping[Any, Any]) -> Any:
        """The key of the fragment that runs next."""
        return min(ready)


class Eager(Schedule):
    """Asynchronous operations complete as soon as they begin."""

    eager = True


class Reversed(Schedule):
    """The last CTAs first."""

    def cta_order(self, total: int) -> Array:
        """CTA numbers, the last one first."""
        return np.arange(total)[::-1].copy()


class Shuffled(Schedule):
    """CTAs and fragments in an order drawn at random, the same for the same seed."""

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)

    def cta_order(self, total: int) -> Array:
        """CTA numbers, shuffled."""
        return self._random.permutation(total)

    def pick(self, ready: Mapping[Any, Any]) -> Any:
        """Mostly the first, sometimes another of other warps: lanes of one warp meet again as they always do."""
        if len(ready) == 1 or self._random.random() < 0.75:
            return min(ready)
        keys = _first_of_their_warps(ready)
        return keys[int(self._random.integers(len(keys)))]


def _first_of_their_warps(ready: Mapping[Any, Any]) -> list[Any]:
    """Keys of fragments whose warps have none that stands before them."""
    found, seen = [], set[int]()
    for key in sorted(ready):
        warps = set(ready[key].lanes.warp_numbers().tolist())
        if not warps & seen:
            found.append(key)
        seen |= warps
    return found


_NAMED: dict[str, type[Schedule]] = {"canonical": Schedule, "eager": Eager, "reversed": Reversed}


def schedule_of(value: Any) -> Schedule:
    """A schedule from what a launch is given: "canonical", "eager", "reversed" or a seed."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]()
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return Shuffled(int(value))
    raise MisuseError(f"schedule={value!r}: give {', '.join(map(repr, _NAMED))} or a whole number as seed")
