"""The columns of a recording's commands that timing needs: all streams concatenated, in the narrowest types."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.deferred import deferred
from kernbench.common.pe_commands import OPERATIONS
from kernbench.result.recording import FIRST_VIEW, Recording
from kernbench.timing.graph import Ints, Small

# initial capacity for different cases of commands
FIRST_CASES = 1 << 10
# by the code of an operation: whether it moves bytes of HBM
IS_TRANSFER = np.array([name in ("load", "store") for name in OPERATIONS])


@dataclass(frozen=True)
class Columns:
    """One row for each command; program p has rows first[p] to first[p + 1]. `operand_type` is of operands a and b;
    `y` as recorded, but for loads and stores the bytes they move.
    """

    op: NDArray[np.int16]
    site: Small
    type: Small
    operand_type: Small
    y: Ints
    first: Ints
    program: Small


def make_columns(recording: Recording) -> Columns:
    """The columns of all streams."""
    lengths = [len(stream) for stream in recording.streams]
    first = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    total = int(first[-1])
    op, site, kind = np.empty(total, np.int16), np.empty(total, np.int32), np.empty(total, np.int32)
    operand_type, y = np.empty((total, 2), np.int32), np.empty(total, np.int64)
    moved = recording.tables.pattern_bytes()
    for stream, start in zip(recording.streams, first[:-1], strict=True):
        at = int(start)
        for part in stream.rows.parts():
            rows = slice(at, at + len(part))
            op[rows], site[rows] = part["op"], part["site"]
            kind[rows], y[rows] = part["type"], part["y"]
            transfers = at + np.flatnonzero(IS_TRANSFER[op[rows]])
            y[transfers] = moved[y[transfers]]
            at = rows.stop
        views = stream.views.column("type")
        operands = stream.rows.column("a"), stream.rows.column("b")
        _set_operand_types(operands, kind[start:at], views, FIRST_VIEW, operand_type[start:at])
    program = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return Columns(op, site, kind, operand_type, y, first, program)


@deferred(lambda operands, made, *_: len(made))
def _set_operand_types(operands, made, views, first_view, found):  # type: ignore[no-untyped-def]
    """The types of operands in two columns of handle numbers, of handles that commands made and of views; -1 for
    none.
    """
    for i in range(len(made)):
        for k in range(2):
            number = operands[k][i]
            if number >= 0:
                found[i, k] = made[number]
            elif number <= first_view:
                found[i, k] = views[first_view - number]
            else:
                found[i, k] = -1


def cases(columns: Columns, types: int) -> tuple[Ints, Small]:
    """Commands with one operation on the same types: the first of each case, and each command's case."""
    case = np.empty(len(columns.op), np.int32)
    given = columns.op, columns.type, columns.operand_type, types + 1
    room = FIRST_CASES
    while True:
        first, table, keys = np.empty(room, np.int64), np.full(4 * room, -1, np.int32), np.empty(room, np.int64)
        count = _number(*given, first, table, keys, case)
        if count <= room:
            return first[:count], case
        room *= 2


@deferred(lambda op, *_: len(op))
def _number(op, kind, operand_type, base, first, table, keys, case):  # type: ignore[no-untyped-def]
    """Number the cases in order of first occurrence, up to the capacity; returns their number, or capacity + 1.

    `table` is a hash table of the numbers with linear probing.
    """
    count = 0
    mask = len(table) - 1
    for i in range(len(op)):
        key = ((np.int64(op[i]) * base + kind[i] + 1) * base + operand_type[i, 0] + 1) * base + operand_type[i, 1] + 1
        slot = ((key ^ (key >> 31)) & 0x7FFFFFFF) * 0x2545F491 >> 12 & mask
        while table[slot] >= 0 and keys[table[slot]] != key:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            if count == len(first):
                return count + 1
            table[slot], keys[count], first[count] = count, key, i
            count += 1
        case[i] = table[slot]
    return count
