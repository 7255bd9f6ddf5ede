"""What each span waited for: from its begin back over nodes that take no time, to a span that had to end first."""

from functools import partial
from itertools import pairwise

import numpy as np

from kernbench.common.deferred import deferred
from kernbench.npu.time import edges as e
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.costs import Ints, Small
from kernbench.npu.time.lower import is_long
from kernbench.result.timeline import Waits
from kernbench.safety.processes.threads import thread_count, together

NOTHING = len(e.KIND_NAMES)
KINDS = (*e.KIND_NAMES, "nothing")
_PLAIN = np.isin(np.arange(len(KINDS)), e.PLAIN)


def span_waits(timing: Timing, nodes: Ints, span_of: Small) -> Waits:
    """Of spans that begin with `nodes`; `span_of` gives each node's span, or -1.

    A row behind a wait follows it in its pipe, and that says little: the flag does. So the first kind on the way back
    that is not plain is given.
    """
    cause, graph = timing.times.cause, timing.graph
    # nodes without a cause are their own, and end every way
    source, kind = np.arange(len(cause), dtype=np.int32), np.full(len(cause), NOTHING, np.int8)
    count = thread_count() if is_long(timing.lowered.recording) else 1
    ends = np.linspace(0, len(cause), count + 1).astype(np.int64).tolist()
    given = (graph.offsets, graph.targets, graph.kinds, cause, source, kind)
    together(partial(_sources, begin, end, *given) for begin, end in pairwise(ends))
    own = kind[nodes]
    onto = np.full(len(source), -1, np.int32)
    _follow(source, kind, span_of, _PLAIN, onto, np.empty(len(source), np.int32))
    shown, after = np.empty((2, len(nodes)), np.int64)
    _show(nodes, own, source, kind, (span_of, onto, cause, _PLAIN), shown, after)
    return Waits(KINDS, shown, after)


@deferred(lambda nodes, *_: len(nodes))
def _show(nodes, own, source, kind, given, shown, after):  # type: ignore[no-untyped-def]
    """What each of some nodes is said to have waited for: a kind of edge, and the span where the way back ends."""
    span_of, onto, cause, plain = given
    for i in range(len(nodes)):
        first = source[nodes[i]]
        shown[i] = kind[first] if plain[own[i]] and onto[first] != first else own[i]
        after[i] = span_of[onto[first]] if cause[nodes[i]] >= 0 else -1


@deferred(lambda begin, end, offsets, *_: offsets[end] - offsets[begin])
def _sources(begin, end, offsets, targets, kinds, cause, source, kind):  # type: ignore[no-untyped-def]
    """The node that each node waited for longest, by the edge between them, and the kind of that edge: where it is one
    of those from `begin` up to `end`."""
    for node in range(begin, end):
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
