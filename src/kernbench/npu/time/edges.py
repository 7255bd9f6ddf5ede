"""The edges between rows of a block: pipes, flags, barriers, FIFOs, and issue by the scalar pipe. Compiled."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.common.dtypes import Array
from kernbench.npu.isa.operations import AWAIT, BARRIER, CLASSES, POP, PUSH, SCALAR, SET, WAIT
from kernbench.npu.isa.units import EVENTS, LANES, PER_LANE, PIPE_NUMBER, THREADS
from kernbench.timing.graph import Unlagged

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
_S = PIPE_NUMBER["S"]
# why a node had to wait: kinds of edges
PIPE, FLAG, MESSAGE, SLOT, ISSUE, STARTED, DISPATCHED, CORE, SCHEDULER, DEPENDENCE, SUBMITTED, ORDER, RING, VALUE, DONE, ISSUED, READY, PUBLISHED, SIGNAL = range(19)  # fmt: skip  # noqa: E501
KIND_NAMES = (
    "pipe order", "flag", "FIFO message", "FIFO slot", "scalar value", "transfer", "dispatch", "no free core",
    "scheduler busy", "dependence", "submit", "orchestrator order", "ring full", "value read", "end of block", "issue",
    "ready", "staged behind", "signal",
)  # fmt: skip
# uninformative kinds: the wait of the node before is shown instead, if that took no time
PLAIN = (PIPE, STARTED, READY)
# edges that a row may have besides two, by its class
MORE = np.zeros(int(CLASSES.max()) + 1, np.int64)
MORE[[WAIT, BARRIER, PUSH, POP]] = 1, PER_LANE, 3, 3


@part
def _edge(source, target, kind, out, n):  # type: ignore[no-untyped-def]
    out[0][n], out[1][n], out[2][n] = source, target, kind
    return n + 1


@part
def _end(start, end, last, out, n):  # type: ignore[no-untyped-def]
    """A block ends after the last row of each pipe, or, without rows, after its start."""
    before = n
    for p in range(THREADS):
        if last[p] >= 0:
            n = _edge(last[p], end, DONE, out, n)
    return n if n > before else _edge(start, end, DONE, out, n)


def row_edges(firsts: Ints, counts: Ints, fifos: Ints, *given: Any) -> Unlagged:
    """Sources, targets and kinds of edges between the rows of blocks, from blocks' starts to first rows, from last rows
    to ends. There are at most `counts` rows of each class.

    The other arguments are those of `_write`. Untouched pages of the result take no memory.
    """
    flag = np.empty(THREADS * PER_LANE * EVENTS, np.int64)
    room = (*np.empty((2, THREADS), np.int64), np.empty(3, np.int64), flag, *np.zeros((2, *_slots(fifos)), np.int64))
    # a row follows one of its pipe and what its core waited for, and it may wait, or join all pipes, or all lanes
    most = 2 * int(firsts[-1] - firsts[0]) + int(counts @ MORE) + (THREADS + 1) * (len(firsts) - 1)
    source, target, kind = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int8)
    count = _write(firsts, fifos, *given, room, (source, target, kind))
    return Unlagged(source[:count], target[:count], kind[:count])


def _slots(fifos: Ints) -> tuple[int, int, int]:
    """FIFOs of a block, lanes, slots of the deepest FIFO."""
    return fifos.shape[1], len(LANES), max(1, int(fifos[:, :, 0].max(initial=1)))


def arrows(firsts: Ints, fifos: Ints, columns: tuple[Array, ...], span_of: Small, pops: int) -> Ints:
    """A row for each message of a FIFO from each push to each pop, if both are spans: their numbers."""
    out = np.empty((len(LANES) * pops, 2), np.int64)
    pushed = np.full(_slots(fifos), -1, np.int64)
    return out[: _write_arrows(firsts, fifos, columns, CLASSES, span_of, pushed, out)]


@deferred(lambda firsts, fifos, columns, *_: 2 * len(columns[0]))
def _write_arrows(firsts, fifos, columns, classes, span_of, pushed, out):  # type: ignore[no-untyped-def]
    """Write arrows from the pushes of a message, in the order of their rows, to each of its pops; returns their number.

    A slot is pushed to again only when all have popped its previous message.
    """
    op, lane, c, message = columns
    n = 0
    for block in range(len(firsts) - 1):
        for i in range(firsts[block], firsts[block + 1]):
            what = classes[op[i]]
            if what != PUSH and what != POP:
                continue
            slot = message[i] % fifos[block, c[i], 0]
            if what == PUSH:
                pushed[c[i], lane[i], slot] = i
                continue
            before = firsts[block] - 1
            for _ in range(3):
                # the next row of those that pushed it
                row = i
                for other in range(3):
                    if fifos[block, c[i], 1] >> other & 1 and before < pushed[c[i], other, slot] < row:
                        row = pushed[c[i], other, slot]
                if row == i:
                    break
                before = row
                if span_of[row] >= 0 and span_of[i] >= 0:
                    out[n, 0], out[n, 1] = span_of[row], span_of[i]
                    n += 1
    return n


@deferred(lambda firsts, *_: 10 * (firsts[-1] - firsts[0]))
def _write(firsts, fifos, rows, classes, transfers, starts, ends, room, out):  # type: ignore[no-untyped-def]
    """Write edges, and return their number.

    A row begins where its transfer does: `transfers` are the rows, from those of these blocks on, and the node where
    the first of them begins. Other rows are nodes themselves.
    """
    op, lane, pipe, a, b, c, x = rows
    moving, begin = transfers
    n, moved = 0, 0
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
            target = i
            if moved < len(moving) and moving[moved] == i:
                target = begin + moved
                moved += 1
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
        n = _end(starts[block], ends[block], last, out, n)
    return n


@deferred(lambda source, *_: len(source))
def longest_paths(source, target, case, cost, transfers, longest):  # type: ignore[no-untyped-def]
    """The earliest begin of each node: `longest`, which is all zeros before. Edges come in the order of their targets;
    those to the begin of a transfer are taken for edges to its row. Rows take the time of their case, other nodes none.
    """
    moving, begin = transfers
    for e in range(len(source)):
        s, t = int(source[e]), int(target[e])
        if begin <= t < begin + len(moving):
            t = moving[t - begin]
        longest[t] = max(longest[t], longest[s] + (cost[case[s]] if s < len(case) else 0))
