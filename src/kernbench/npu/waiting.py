"""What each span waited for: from its begin back over nodes that take no time, to a span that had to end first."""

import numpy as np

from kernbench.npu import edges as e
from kernbench.npu.clock import Timing
from kernbench.npu.costs import Ints
from kernbench.result.timeline import Waits

NOTHING = len(e.KIND_NAMES)
KINDS = (*e.KIND_NAMES, "nothing")


def span_waits(timing: Timing, nodes: Ints, span_of: Ints) -> Waits:
    """Of spans that begin with `nodes`; `span_of` gives each node's span, or -1.

    A row behind a wait follows it in its pipe, and that says little: the flag does. So the first kind on the way back
    that is not plain is told.
    """
    edge = timing.times.cause
    source = np.searchsorted(timing.graph.offsets, edge, side="right") - 1
    own = np.where(edge >= 0, timing.graph.kinds[edge], NOTHING) if timing.graph.edges else np.full(len(edge), NOTHING)
    passes = (span_of < 0) & (edge >= 0)
    onto = np.where(passes, source, np.arange(len(edge)))
    kind = np.where(passes, own, e.PIPE)
    # twice as far each time
    while passes[onto].any():
        kind = np.where(np.isin(kind, e.PLAIN), kind[onto], kind)
        onto = onto[onto]
    first = source[nodes]
    told = np.where(np.isin(own[nodes], e.PLAIN) & (onto[first] != first), kind[first], own[nodes])
    after = np.where(edge[nodes] >= 0, span_of[onto[first]], -1)
    return Waits(KINDS, told.astype(np.int64), after.astype(np.int64))
