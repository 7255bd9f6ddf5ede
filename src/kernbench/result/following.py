"""Launches one behind the other: what each adds to the time of a row, by how they are queued."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

# how a launch follows another: queued in a stream, as a node of a graph, or begun early (programmatic dependent launch)
STREAM, GRAPH, DEPENDENT = "stream", "graph", "dependent"
WAYS = (STREAM, GRAPH, DEPENDENT)
# of a launch: how long its CTAs run before they wait for the launch before, and how long the last ones still run after
# they let the next one begin
BEFORE_WAIT, AFTER_TRIGGER = "before_wait", "after_trigger"


def overlap(before: Mapping[str, int], launch: Mapping[str, int]) -> int:
    """For how long a launch that is begun early runs beside the one before it."""
    return min(before.get(AFTER_TRIGGER, 0), launch.get(BEFORE_WAIT, 0))


def in_a_row(alone: Sequence[int], following: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The time of launches in a row by how they follow each other: the first takes what it takes alone, each other one
    what `following` says that it adds behind another. The same unit everywhere.
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
