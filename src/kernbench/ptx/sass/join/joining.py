"""Joins a recorded trace to machine code: the nodes that the warp executed, and the event of each anchor."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events, Traces
from kernbench.ptx.sass.flow import Flow
from kernbench.ptx.sass.join import matching
from kernbench.ptx.sass.join.anchors import Anchors

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

# tokens over which code may have been moved
_REACH = 96
# states of the search after which a trace is given up
_MOST_STATES = 40_000_000


@dataclass(frozen=True)
class Tokens:
    """The tokens of a trace: the row of each, its event counted from the trace's first (-1: none), its step, and
    whether fewer lanes than the warp has were active.
    """

    row: Ints
    event: Ints
    step: Ints
    partial: Flags
    # number of steps of the trace, and of its events without an anchor
    steps: int
    unanchored: int


@dataclass(frozen=True)
class Way:
    """The path of a trace through machine code."""

    # nodes in order, and the first token of each
    nodes: Ints
    first_token: Longs
    # for each anchor along the nodes: its token, -1 if it has none
    token_of: Ints
    # for each token, whether it has an anchor
    taken: Flags
    cost: int


def tokens_of(traces: Traces, events: Events, trace: int, anchors: Anchors) -> Tokens:
    """The tokens of a trace, in order."""
    first, last = int(traces.start[trace]), int(traces.start[trace + 1])
    bounds = traces.first_event[first : last + 1]
    rows = events.instruction[bounds[0] : bounds[-1]]
    step_of_event = np.repeat(np.arange(last - first), np.diff(bounds))
    # copies of a multicast to further CTAs have events, but no instruction of their own
    further = events.kind[bounds[0] : bounds[-1]] == int(Kind.BULK_MULTICAST)
    anchored = anchors.anchored[rows] & ~further
    which = np.flatnonzero(anchored)
    standing = anchors.stands_for[traces.block[first:last]]
    alone = np.flatnonzero(standing >= 0)
    steps = np.concatenate((step_of_event[which], alone))
    row = np.concatenate((rows[which], standing[alone])).astype(np.int32)
    order = np.lexsort((row, steps))
    lanes = traces.lanes[first:last]
    return Tokens(
        row[order],
        np.concatenate((which, np.full(len(alone), -1))).astype(np.int32)[order],
        steps.astype(np.int32)[order],
        (lanes < lanes.max(initial=0))[steps[order]],
        last - first,
        len(rows) - len(which),
    )


class Joiner:
    """Joins traces to the code of one kernel; the arrays that depend on the code alone are made once."""

    def __init__(self, flow: Flow, anchors: Anchors):
        nodes = flow.nodes
        self._anchors = anchors
        self._table = (anchors.start, anchors.row, anchors.must)
        # a small cost for each instruction, so that the shortest of equally good paths is taken
        self._node_cost = np.array([1 + (node.last - node.first) // 8 for node in nodes], np.int32)
        ways = [[(there, False) for there in n.following] + [(there, True) for there in n.parted] for n in nodes]
        flat = [way for one in ways for way in one]
        self._edges = (
            np.cumsum([0, *map(len, ways)], dtype=np.int32),
            np.array([there for there, _ in flat], np.int32),
            np.array([parts for _, parts in flat], bool),
        )
        rows = len(anchors.anchored)
        self._weight = np.full(rows, matching.EVENT, np.int32)
        standing = np.array(sorted(set(anchors.stands_for.tolist()) - {-1}), np.int64)
        self._weight[standing] = np.where(anchors.loose[standing], matching.LOOSE, matching.STEP)
        self._weight[anchors.hoisted] = matching.HOISTED
        self._by_row = (np.zeros(rows, np.int32), np.zeros(rows, np.int32))
        self._splits = np.zeros(int(np.diff(anchors.start).max(initial=0)) + matching.BEYOND + 2, np.int64)

    def join(self, tokens: Tokens) -> Way | None:
        """The path that fits the tokens best; None if the code has no path from its entry to an exit."""
        found = self._search(tokens)
        if found is None:
            return None
        nodes, splits, skipped, cost = found
        first_token = np.cumsum(skipped + np.concatenate(([0], splits[:-1])), dtype=np.int64)
        counts = np.diff(self._anchors.start)[nodes]
        first_anchor = np.cumsum(counts, dtype=np.int64) - counts
        token_of = np.full(int(counts.sum()), -1, np.int32)
        taken = np.zeros(len(tokens.row), bool)
        matching.pair(tokens.row, nodes, first_token, splits, self._table, self._by_row, first_anchor, token_of, taken)
        self._moved(tokens.row, nodes, first_token, counts, token_of, taken)
        return Way(nodes, first_token, token_of, taken, cost)

    def _search(self, tokens: Tokens) -> tuple[Ints, Ints, Ints, int] | None:
        rows = tokens.row
        apart = np.append(tokens.partial, False) | np.append(False, tokens.partial)
        edges = (*self._edges, np.where(apart, matching.PARTED, matching.TOGETHER).astype(np.int32))
        room, end = max(4096, 16 * len(rows)), np.zeros(3, np.int64)
        while True:
            state = np.empty((room, matching.STATE_COLUMNS), np.int32)
            head = np.empty(len(rows) + 2, np.int32)
            held = (state, np.empty(room, np.int64), head, *self._by_row, self._splits)
            count = matching.match(rows, self._weight, self._table, self._node_cost, edges, held, end)
            if count != matching.OVERFLOW or room > _MOST_STATES:
                break
            room *= 4
        if count == matching.OVERFLOW or end[1] < 0:
            return None
        nothing = np.empty(0, np.int32)
        length = matching.way(state, int(end[1]), int(end[2]), nothing, nothing, nothing)
        nodes, splits, skipped = (np.empty(length, np.int32) for _ in range(3))
        matching.way(state, int(end[1]), int(end[2]), nodes, splits, skipped)
        return nodes[::-1].copy(), splits[::-1].copy(), skipped[::-1].copy(), int(end[0])

    def _moved(self, rows: Ints, nodes: Ints, first_token: Longs, counts: Ints, token_of: Ints, taken: Flags) -> None:
        """Match tokens that have no anchor in their own node with free anchors nearby."""
        if taken.all():
            return
        within = np.arange(len(token_of)) - np.repeat(np.cumsum(counts) - counts, counts)
        anchor = self._anchors.start[nodes].repeat(counts) + within
        left = np.flatnonzero(token_of < 0)
        row_of = self._anchors.row[anchor[left]]
        near = first_token.repeat(counts)[left]
        waiting, following = _chains(row_of, len(self._anchors.anchored))
        given = np.full(len(left), -1, np.int32)
        matching.pair_moved(rows, near, _REACH, waiting, following, given, taken)
        token_of[left] = given


def _chains(rows: Ints, count: int) -> tuple[Ints, Ints]:
    """By row the index of its first occurrence, and by index the next one of the same row; -1: none."""
    first, following = np.full(count, -1, np.int32), np.full(len(rows), -1, np.int32)
    order = np.argsort(rows, kind="stable").astype(np.int32)
    same = rows[order[:-1]] == rows[order[1:]]
    following[order[:-1][same]] = order[1:][same]
    begins = order[np.concatenate(([True], ~same))] if len(order) else order
    first[rows[begins]] = begins
    return first, following
