"""Launches in a row: the time each adds, depending on how they are queued."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

# how a launch follows another: queued in a stream, as a node of a graph, or begun early (programmatic dependent launch)
STREAM, GRAPH, DEPENDENT = "stream", "graph", "dependent"
WAYS = (STREAM, GRAPH, DEPENDENT)
# keys of a launch's times: how long its CTAs run before they wait for the launch before, and how long the last ones run
# after they let the next one begin
BEFORE_WAIT, AFTER_TRIGGER = "before_wait", "after_trigger"


def overlap(before: Mapping[str, int], launch: Mapping[str, int]) -> int:
    """How long a launch that is begun early overlaps the one before it."""
    return min(before.get(AFTER_TRIGGER, 0), launch.get(BEFORE_WAIT, 0))


def in_a_row(alone: Sequence[int], following: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The total time of launches in a row, by how they follow each other; all times in one unit.

    The first takes the time it takes alone, each other one the time that `following` says it adds.
    """
    if not alone:
        return {}
    found = {}
    for way in WAYS:
        total = alone[0]
        for before, launch in pairwise(following):
            beside = overlap(before, launch) if way == DEPENDENT else 0
            total += max(launch[way] - beside, 0)
        found[way] = total
    return found
