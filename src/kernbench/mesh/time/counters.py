"""Counters over time: slots in use in each queue, and the used share of each cube's HBM bandwidth."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.mesh.time.clock import Timing
from kernbench.mesh.time.lanes import lanes
from kernbench.mesh.time.lower import FIRST_DMA
from kernbench.timing.graph import Ints

Series = tuple[Ints, NDArray[Any]]


def counters(timing: Timing) -> dict[str, Series]:
    """Name -> (times, values); a value holds from its time on."""
    return {**_queues(timing), **_memory(timing)}


def _queues(timing: Timing) -> dict[str, Series]:
    """A slot is taken when a piece has left for it, and free when the piece is taken out."""
    lowered, times, pieces = timing.lowered, timing.times, timing.lowered.pieces
    engines = (FIRST_DMA + lowered.channels) * len(lowered.recording.streams)
    names = lanes(lowered)[engines:]
    series = {}
    for number, lane in enumerate(names):
        here = pieces.link == number
        if here.any():
            series[f"slots in use, {lane.name}"] = _steps(
                times.finish[pieces.push[here]], times.finish[pieces.take[here]]
            )
    return series


def _memory(timing: Timing) -> dict[str, Series]:
    """The full bandwidth while at least one transfer is in progress: the server is work-conserving."""
    rates, times = timing.rates, timing.times
    series = {}
    for cube, per_ps in enumerate(rates.bytes_per_ps):
        here = rates.server == cube
        if here.any():
            begin = times.start[here] + rates.duration[here]
            moments, under_way = _steps(begin, times.finish[here])
            series[f"HBM of cube {cube}, GB/s"] = (moments, np.where(under_way > 0, per_ps * 1000, 0.0))
    return series


def _steps(up: Ints, down: Ints) -> Series:
    """How many have begun and not ended, at each moment that changes it."""
    moments, inverse = np.unique(np.concatenate([up, down]), return_inverse=True)
    change = np.bincount(inverse, np.repeat([1.0, -1.0], [len(up), len(down)]), len(moments))
    return moments, np.cumsum(change).round().astype(np.int64)
