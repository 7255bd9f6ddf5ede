"""What each span waited for: from its begin back over nodes that take no time, to a span that had to end first."""

import numpy as np

from kernbench.common.deferred import deferred
from kernbench.npu.time import edges as e
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.costs import Ints
from kernbench.result.timeline import Waits

NOTHING = len(e.KIND_NAMES)
KINDS = (*e.KIND_NAMES, "nothing")
_PLAIN = np.isin(np.arange(len(KINDS)), e.PLAIN)


def span_waits(timing: Timing, nodes: Ints, span_of: Ints) -> Waits:
    """Of spans that begin with `nodes`; `span_of` gives each node's span, or -1.

    A row behind a wait follows it in its pipe, and that says little: the flag does. So the first kind on the way back
    that is not plain is given.
    """
    cause, graph = timing.times.cause, timing.graph
    # nodes without a cause are their own, and end every way
    source, kind = np.arange(len(cause), dtype=np.int32), np.full(len(cause), NOTHING, np.int8)
    _sources(graph.offsets, graph.targets, graph.kinds, cause, source, kind)
    own, first = kind[nodes], source[nodes]
    onto = np.full(len(source), -1, np.int32)
    _follow(source, kind, span_of, _PLAIN, onto, np.empty(len(source), np.int32))
    shown = np.where(_PLAIN[own] & (onto[first] != first), kind[first], own)
    return Waits(KINDS, shown.astype(np.int64), np.where(cause[nodes] >= 0, span_of[onto[first]], -1))


@deferred(lambda offsets, targets, *_: len(targets))
def _sources(offsets, targets, kinds, cause, source, kind):  # type: ignore[no-untyped-def]
    """The node that each node waited for longest, by the edge between them, and the kind of that edge."""
    for node in range(len(offsets) - 1):
        for edge in range(offsets[node], offsets[node + 1]):
            target = targets[edge]
            if cause[target] == edge:
                source[target], kind[target] = node, kinds[edge]


@deferred(lambda source, *_: len(source))
def _follow(source, kind, span_of, plain, onto, way):  # type: ignore[no-untyped-def]
    """Where the way back from each node ends, which passes nodes that are no span: `onto`, all -1 before. Those that it
    passes take on the first kind on it that is not plain.
    """
    for start in range(len(source)):
        # up to where the way ends, or joins one that was followed
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
            # what comes behind the last that is passed is not passed itself
            if plain[kind[passed]] and source[passed] != end:
                kind[passed] = kind[source[passed]]
