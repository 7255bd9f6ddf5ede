"""The tail of a launch: SMs that have no CTA left while others still work."""

import numpy as np

from kernbench.ptx.time.result import LaunchTime


def tail_cycles(time: LaunchTime) -> float:
    """Cycles that SMs had nothing left to do, on average over all that had work."""
    spans = time.spans
    if not len(spans.cta):
        return 0.0
    groups, inverse = np.unique(spans.group, return_inverse=True)
    ends = np.zeros(len(groups))
    np.maximum.at(ends, inverse, spans.end)
    weights = np.zeros(len(groups))
    weights[inverse] = spans.stands_for
    return float(((time.cycles - ends) * weights).sum() / weights.sum())
