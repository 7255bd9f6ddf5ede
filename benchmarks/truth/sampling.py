"""Grids of which not all CTAs are run: which ones are, and which of them stand for the others.

The first CTAs of a grid touch memory as neighbours do, and stand for the others in turn, as long as the others do as
much. Whether they do, a few clusters say that lie all over the grid. Where these have other amounts of work, short
runs of neighbours from all over the grid are run instead, and each stands for the part of the grid around it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.time.chip.dealing import in_clusters

Ints = NDArray[np.int64]
# clusters that are looked at to see whether the others do as much as the first ones, and by how much they may differ
PROBES, SAME = 64, 0.01
# CTAs of a run of neighbours, and clusters from all over a grid at most: nearly all of them differ, and each that does
# takes time to be joined to machine code
RUN, MOST_SPREAD = 32, 1024
# parts of a whole by which numbers are spread: one behind the other they lie evenly, wherever one stops
GOLDEN = 0.6180339887498949


class Way(StrEnum):
    """How clusters are chosen."""

    FIRST = "first"
    PROBE = "probe"
    SPREAD = "spread"


@dataclass(frozen=True)
class Sample:
    """Clusters of a grid that are run, in their order, and for each cluster of the grid the one that stands for it."""

    chosen: tuple[int, ...]
    stands: Ints


def sample(way: Way, count: int, most: int, size: int = 1) -> Sample:
    """At most so many of `count` clusters of `size` CTAs; there are fewer of those that only say how much work is."""
    if way is Way.FIRST:
        return Sample(tuple(range(most)), np.arange(count) % most)
    most = min(most, MOST_SPREAD)
    run = 1 if way is Way.PROBE else min(max(RUN // size, 1), most)
    parts = min(PROBES, most) if way is Way.PROBE else most // run
    borders = np.arange(parts + 1) * count // parts
    room = np.diff(borders) - run
    begins = borders[:-1] + np.floor((np.arange(1, parts + 1) * GOLDEN) % 1.0 * (room + 1)).astype(np.int64)
    chosen = (begins[:, None] + np.arange(run)).reshape(-1)
    begin = np.repeat(begins, np.diff(borders))
    return Sample(tuple(chosen.tolist()), begin + (np.arange(count) - begin) % run)


def extended(recording: LaunchRecording, taken: Sample) -> LaunchRecording:
    """A recording of some clusters as one of the whole grid: each cluster does what the one does that stands for it."""
    numbers = in_clusters(recording).reshape(len(taken.stands), -1)
    classes = np.empty_like(recording.cta_class)
    classes[numbers] = recording.cta_class[numbers[taken.stands]]
    return replace(recording, cta_class=classes)


def work(recording: LaunchRecording, taken: Sample) -> NDArray[np.float64]:
    """Instructions, sectors, and passes over the banks of shared memory of a cluster that was run, on average."""
    traces, events = recording.traces, recording.events
    of_block = np.bincount(recording.instructions.block, minlength=int(traces.block.max(initial=0)) + 1)
    by_trace = [_sums(of_block[traces.block], traces.start)]
    first = traces.first_event[traces.start]
    by_trace += [_sums(column, first) for column in (events.sectors, events.wavefronts)]
    by_class = np.stack(by_trace)[:, recording.class_trace].sum(axis=2)
    numbers = in_clusters(recording).reshape(len(taken.stands), -1)[list(taken.chosen)]
    found: NDArray[np.float64] = by_class[:, recording.cta_class[numbers]].sum(axis=2).mean(axis=1)
    return found


def _sums(values: NDArray[np.generic], start: Ints) -> NDArray[np.float64]:
    """Sums of parts that follow each other."""
    whole = np.concatenate([[0.0], np.cumsum(values.astype(np.float64))])
    found: NDArray[np.float64] = np.diff(whole[start])
    return found


def uneven(first: NDArray[np.float64], probed: NDArray[np.float64]) -> bool:
    """Whether clusters all over a grid do more or less than the first ones."""
    return bool((np.abs(probed - first) > SAME * np.maximum(first, 1.0)).any())
