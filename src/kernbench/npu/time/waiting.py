"""What each span waited for: from its begin back over nodes that take no time, to a span that had to end first."""

import numpy as np

from kernbench.common.dtypes import Array
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
    edge, graph = timing.times.cause, timing.graph
    source = np.repeat(np.arange(len(edge), dtype=np.int32), np.diff(graph.offsets))[edge] if graph.edges else edge
    kind = (
        np.where(edge >= 0, graph.kinds[edge], NOTHING).astype(np.int8) if graph.edges else np.full(len(edge), NOTHING)
    )
    own, first = kind[nodes], source[nodes]
    onto = _passed(source, kind, (span_of < 0) & (edge >= 0))
    shown = np.where(_PLAIN[own] & (onto[first] != first), kind[first], own)
    return Waits(KINDS, shown.astype(np.int64), np.where(edge[nodes] >= 0, span_of[onto[first]], -1))


def _passed(source: Array, kind: Array, passes: Array) -> Array:
    """Where the way back from each node ends; those that it passes take on the first kind on it that is not plain."""
    onto = np.arange(len(source), dtype=source.dtype)
    onto[passes] = source[passes]
    way = np.flatnonzero(passes)
    # twice as far each time
    while len(way := way[passes[onto[way]]]):
        next_kind, next_onto = kind[onto[way]], onto[onto[way]]
        kind[way] = np.where(_PLAIN[kind[way]], next_kind, kind[way])
        onto[way] = next_onto
    return onto
