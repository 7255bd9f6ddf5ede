"""What orders the rows of a block in time: pipes, flags, barriers, FIFOs, and the scalar pipe that issues. Compiled."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.npu.isa.operations import AWAIT, BARRIER, CLASSES, POP, PUSH, SCALAR, SET, WAIT
from kernbench.npu.isa.units import EVENTS, PER_LANE, PIPE_NUMBER, THREADS

Small = NDArray[np.int32]
Kinds = NDArray[np.int8]
_S = PIPE_NUMBER["S"]
# why a node had to wait: kinds of edges
PIPE, FLAG, MESSAGE, SLOT, ISSUE, STARTED, DISPATCHED, CORE, SCHEDULER, DEPENDENCE, SUBMITTED, ORDER, RING, VALUE, DONE, ISSUED, READY, PUBLISHED, SIGNAL = range(19)  # fmt: skip  # noqa: E501
KIND_NAMES = (
    "pipe order", "flag", "FIFO message", "FIFO slot", "scalar value", "transfer", "dispatch", "no free core",
    "scheduler busy", "dependence", "submit", "orchestrator order", "ring full", "value read", "end of block", "issue",
    "ready", "staged behind", "signal",
)  # fmt: skip
# these say little: what the node before waited for is given instead, where that took no time
PLAIN = (PIPE, STARTED, READY)
# edges that a row may have beside two, by its class
MORE = np.zeros(int(CLASSES.max()) + 1, np.int64)
MORE[[WAIT, BARRIER, PUSH, POP]] = 1, PER_LANE, 3, 3


@part
def _edge(source, target, kind, out, n):  # type: ignore[no-untyped-def]
    out[0][n], out[1][n], out[2][n] = source, target, kind
    return n + 1


def row_edges(*given: Any) -> tuple[Small, Small, Kinds]:
    """Sources, targets and kinds of edges between rows, from blocks' starts to first rows, from last rows to ends.

    What is given is what `_write` takes. Room that is not needed is not touched, and takes no memory.
    """
    firsts, (op, *_), classes, _, fifos, *_ = given
    deepest = max(1, int(fifos[:, :, 0].max(initial=1)))
    flag, messages = (
        np.empty(THREADS * PER_LANE * EVENTS, np.int64),
        np.zeros((2, fifos.shape[1], 3, deepest), np.int64),
    )
    room = (*np.empty((2, THREADS), np.int64), np.empty(3, np.int64), flag, messages[0], messages[1])
    # a row follows one of its pipe and what its core waited for, and it may wait, or meet all pipes, or all lanes
    counts = np.bincount(classes[op], minlength=len(MORE))
    most = 2 * len(op) + int(counts @ MORE) + (THREADS + 1) * (len(firsts) - 1)
    source, target, kind = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int8)
    count = _write(*given, room, (source, target, kind))
    return source[:count], target[:count], kind[:count]


@deferred(lambda firsts, rows, *_: 10 * len(rows[0]))
def _write(firsts, rows, classes, entry, fifos, starts, ends, room, out):  # type: ignore[no-untyped-def]
    """Write edges, and give how many there are.

    `entry` is the node where a row begins (itself, or the begin of its transfer).
    """
    op, lane, pipe, a, b, c, x = rows
    n = 0
    # for each pipe its last row and the last gate it saw, for each lane its gate; who set each flag; and messages
    last, seen, gate, flag, pushed, popped = room
    flag[:] = -1
    for block in range(len(firsts) - 1):
        last[:] = -1
        seen[:] = -1
        gate[:] = -1
        for i in range(firsts[block], firsts[block + 1]):
            what = classes[op[i]]
            p = lane[i] * PER_LANE + pipe[i]
            target = entry[i]
            n = _edge(last[p] if last[p] >= 0 else starts[block], target, PIPE if last[p] >= 0 else DISPATCHED, out, n)
            if gate[lane[i]] > seen[p]:
                if gate[lane[i]] != last[p]:
                    n = _edge(gate[lane[i]], target, ISSUE, out, n)
                seen[p] = gate[lane[i]]
            last[p] = i
            if what == SET or what == WAIT:  # noqa: SIM109
                key = (lane[i] * PER_LANE + a[i]) * PER_LANE * EVENTS + b[i] * EVENTS + c[i]
                if what == SET:
                    flag[key] = i
                else:
                    n = _edge(flag[key], target, FLAG, out, n)
            elif what == BARRIER and a[i] < 0:
                base = lane[i] * PER_LANE
                for q in range(PER_LANE):
                    if last[base + q] >= 0 and last[base + q] != i:
                        n = _edge(last[base + q], target, PIPE, out, n)
                gate[lane[i]] = i
            elif what == PUSH:
                depth = fifos[block, c[i], 0]
                slot = x[i] % depth
                for other in range(3):
                    if x[i] >= depth and fifos[block, c[i], 2] >> other & 1:
                        n = _edge(popped[c[i], other, slot], target, SLOT, out, n)
                pushed[c[i], lane[i], slot] = i
            elif what == POP:
                slot = x[i] % fifos[block, c[i], 0]
                for other in range(3):
                    if fifos[block, c[i], 1] >> other & 1:
                        n = _edge(pushed[c[i], other, slot], target, MESSAGE, out, n)
                popped[c[i], lane[i], slot] = i
            if pipe[i] == _S and (what == SCALAR or what == WAIT or what == AWAIT):  # noqa: SIM109
                gate[lane[i]] = i
        alone = True
        for p in range(THREADS):
            if last[p] >= 0:
                n = _edge(last[p], ends[block], DONE, out, n)
                alone = False
        if alone:
            n = _edge(starts[block], ends[block], DONE, out, n)
    return n


@deferred(lambda source, *_: len(source))
def longest_paths(source, target, duration, longest):  # type: ignore[no-untyped-def]
    """When each node can begin: `longest`, which comes as all zeros. Edges come in the order of their targets."""
    for e in range(len(source)):
        s, t = source[e], target[e]
        longest[t] = max(longest[t], longest[s] + duration[s])
