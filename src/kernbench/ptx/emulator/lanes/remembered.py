"""A cache of sets of lanes: a program splits and merges the same sets again and again, in every launch.

A set is immutable, so equal sets can share one object. The key is the original set and the bytes of the predicate or
other set; a look-up takes a tenth of the time of making a set. Only small sets are cached.
"""

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes, Mask, from_mask, union

# maximal lanes of a cached set, and maximal number of cached sets of each kind
_LANES = 2048
_MOST = 2048

Parts = tuple[Lanes | None, Lanes | None]
_PARTS: dict[tuple[Lanes, bytes], Parts] = {}
_JOINED: dict[tuple[Lanes, Lanes, int], Lanes] = {}
_LIVING: dict[bytes, Lanes] = {}
_RUNS: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}


def parted(lanes: Lanes, chosen: Mask) -> Parts:
    """As `Lanes.split`: the active lanes where `chosen` holds, and the others."""
    if chosen.size > _LANES:
        return lanes.split(chosen)
    key = lanes, chosen.tobytes()
    found = _PARTS.get(key)
    if found is None:
        if len(_PARTS) >= _MOST:
            _PARTS.clear()
        found = _PARTS[key] = lanes.split(chosen)
    return found


def joined(one: Lanes, two: Lanes, total: int) -> Lanes:
    """As `union`: the union of two disjoint sets."""
    if total > _LANES:
        return union(one, two, total)
    key = one, two, total
    found = _JOINED.get(key)
    if found is None:
        if len(_JOINED) >= _MOST:
            _JOINED.clear()
        found = _JOINED[key] = union(one, two, total)
    return found


def living(alive: Mask) -> Lanes | None:
    """As `from_mask`: the lanes of a mask over all lanes of a batch; the mask is copied."""
    if alive.size > _LANES:
        return from_mask(alive.copy())
    key = alive.tobytes()
    # an empty set is not cached
    found = _LIVING.get(key)
    if found is None:
        if len(_LIVING) >= _MOST:
            _LIVING.clear()
        found = from_mask(alive.copy())
        if found is not None:
            _LIVING[key] = found
    return found


def numbers_of(lanes: Lanes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers in the batch of a set's warps and lanes, by position; read-only."""
    if lanes.warps is not None or lanes.positions > _LANES:
        return lanes.warp_numbers(), lanes.lane_numbers()
    key = lanes.first, lanes.last
    found = _RUNS.get(key)
    if found is None:
        if len(_RUNS) >= _MOST:
            _RUNS.clear()
        found = _RUNS[key] = lanes.warp_numbers(), np.arange(lanes.first * WARP, lanes.last * WARP)
        for numbers in found:
            numbers.flags.writeable = False
    return found


def warps_of(lanes: Lanes) -> NDArray[np.int64]:
    """The numbers in the batch of a set's warps; read-only."""
    if lanes.warps is not None:
        return lanes.warps
    found = _RUNS.get((lanes.first, lanes.last))
    return lanes.warp_numbers() if found is None else found[0]
