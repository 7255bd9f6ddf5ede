"""The wait of each span: from its begin back over nodes that take no time, to the span that had to end first."""

from collections.abc import Iterable
from functools import partial
from itertools import pairwise

import numpy as np

from kernbench.common.deferred import deferred
from kernbench.common.dtypes import Array
from kernbench.npu.time import edges as e
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.costs import Small
from kernbench.npu.time.lower import is_long, stretches
from kernbench.result.timeline import Waits
from kernbench.safety.processes.threads import thread_count, together
from kernbench.timing.graph import Bytes

NOTHING = len(e.KIND_NAMES)
KINDS = (*e.KIND_NAMES, "nothing")
_PLAIN = np.isin(np.arange(len(KINDS)), e.PLAIN)


def span_waits(timing: Timing, nodes: Small, span_of: Small, more: int) -> Waits:
    """Waits of spans that begin with `nodes`, with room for `more` others; `span_of` gives each node's span, or -1.

    A row after a wait follows it in its pipe, which says little: the flag does. So the first kind on the path back
    that is not plain is shown.
    """
    cause, graph = timing.times.cause, timing.graph
    parts = thread_count() if is_long(timing.lowered.recording) else 1
    # nodes without a cause point to themselves, and end every path
    source, onto = np.empty((2, len(cause)), np.int32)
    kind, said = (np.empty(len(cause), np.int8) for _ in range(2))
    together(partial(_alone, begin, end, source, onto, kind) for begin, end in _ranges(len(cause), parts))
    given = (graph.offsets, graph.targets, graph.kinds, cause, source, kind)
    together(partial(_sources, begin, end, *given) for begin, end in _ranges(len(cause), parts))
    together(partial(_copy, kind[begin:end], said[begin:end]) for begin, end in _ranges(len(cause), parts))
    _follow_all(timing, source, said, span_of, onto)
    shown, after = np.empty((2, len(nodes) + more), np.int64)
    known = source, kind, said, span_of, onto, cause, _PLAIN
    together(partial(_show, begin, end, nodes, known, shown, after) for begin, end in _ranges(len(nodes), parts))
    return Waits(KINDS, shown, after)


def _follow_all(timing: Timing, *given: Array) -> None:
    """Follow the paths of all nodes, those of groups of blocks in parallel if they are independent."""
    nodes, recording, total = timing.lowered.nodes, timing.lowered.recording, timing.lowered.nodes.total

    def follow(*ranges: tuple[int, int]) -> None:
        way = np.empty(total, np.int32)
        for begin, end in ranges:
            _follow(begin, end, _PLAIN, way, *given)

    # a path inside a block ends at its dispatch at the latest, if it waits for no other block and was not staged
    if recording.rests_on or timing.assignment.staged.any():
        follow((0, total))
        return
    together(partial(follow, *_nodes_of(timing, begin, end)) for begin, end in stretches(recording))
    follow((nodes.dispatch, total))


def _nodes_of(timing: Timing, begin: int, end: int) -> list[tuple[int, int]]:
    """The nodes of the rows of some blocks, and of their transfers."""
    nodes, (first, last) = timing.lowered.nodes, timing.lowered.recording.firsts()[[begin, end]].tolist()
    moved, behind = np.searchsorted(timing.lowered.transfers, [first, last]).tolist()
    return [(first, last), *((kind + moved, kind + behind) for kind in (nodes.begin, nodes.path, nodes.memory))]


def _ranges(count: int, parts: int) -> Iterable[tuple[int, int]]:
    """`parts` ranges, (begin, end), of about the same size."""
    return pairwise(np.linspace(0, count, parts + 1).astype(np.int64).tolist())


def _alone(begin: int, end: int, source: Small, onto: Small, kind: Bytes) -> None:
    """Initialise nodes from `begin` up to `end` as not waiting."""
    source[begin:end] = np.arange(begin, end, dtype=np.int32)
    onto[begin:end] = -1
    kind[begin:end] = NOTHING


def _copy(kind: Bytes, said: Bytes) -> None:
    said[...] = kind


@deferred(lambda begin, end, *_: end - begin)
def _show(begin, end, nodes, known, shown, after):  # type: ignore[no-untyped-def]
    """The wait of each of some nodes as shown: a kind of edge, and the span where the path back ends."""
    source, kind, said, span_of, onto, cause, plain = known
    for i in range(begin, end):
        node = nodes[i]
        first, own = source[node], kind[node]
        shown[i] = said[first] if plain[own] and onto[first] != first else own
        after[i] = span_of[onto[first]] if cause[node] >= 0 else -1


@deferred(lambda begin, end, offsets, *_: offsets[end] - offsets[begin])
def _sources(begin, end, offsets, targets, kinds, cause, source, kind):  # type: ignore[no-untyped-def]
    """The node that each node waited for longest, and the kind of the edge between them, for sources from `begin` up to
    `end`.
    """
    for node in range(begin, end):
        for edge in range(offsets[node], offsets[node + 1]):
            target = targets[edge]
            if cause[target] == edge:
                source[target], kind[target] = node, kinds[edge]


@deferred(lambda begin, end, *_: end - begin)
def _follow(begin, end, plain, way, source, kind, span_of, onto):  # type: ignore[no-untyped-def]
    """Where the path back from each of some nodes ends, which passes nodes that are no span: `onto`, all -1 before.
    Nodes on it take on the first kind on it that is not plain.
    """
    for start in range(begin, end):
        # up to the end of the path, or where it joins one that was followed
        node, length = start, 0
        while onto[node] < 0 and span_of[node] < 0 and source[node] != node:
            way[length] = node
            length += 1
            node = source[node]
        if onto[node] < 0:
            onto[node] = node
        end = onto[node]
        while length:
            length -= 1
            passed = way[length]
            onto[passed] = end
            # kinds of nodes behind the last one passed do not count
            if plain[kind[passed]] and source[passed] != end:
                kind[passed] = kind[source[passed]]
