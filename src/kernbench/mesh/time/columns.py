"""What timing needs of a recording's commands: all streams end to end, as columns of as few bytes as will do."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.pe_commands import OPERATIONS
from kernbench.result.recording import Recording
from kernbench.timing.graph import Ints, Small

# commands that are looked at together where all at once would take too much memory
BATCH = 1 << 19
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
            op[rows], site[rows], kind[rows], y[rows] = part["op"], part["site"], part["type"], part["y"]
            transfers = at + np.flatnonzero(IS_TRANSFER[op[rows]])
            y[transfers] = moved[y[transfers]]
            at = rows.stop
        for i, operand in enumerate("ab"):
            operand_type[start:at, i] = stream.operand_types(stream.rows.column(operand))
    program = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return Columns(op, site, kind, operand_type, y, first, program)


def cases(columns: Columns, types: int) -> tuple[Ints, Small]:
    """Commands with one operation on the same types: the first of each case, and each command's case."""
    base = types + 1
    numbers: dict[int, int] = {}
    first: list[int] = []
    case = np.empty(len(columns.op), np.int32)
    for start in range(0, len(case), BATCH):
        rows = slice(start, start + BATCH)
        key = columns.op[rows].astype(np.int64)
        for column in (columns.type[rows], columns.operand_type[rows, 0], columns.operand_type[rows, 1]):
            key *= base
            key += column + 1
        met, example, inverse = np.unique(key, return_index=True, return_inverse=True)
        for number, index in zip(met.tolist(), example.tolist(), strict=True):
            if number not in numbers:
                numbers[number] = len(first)
                first.append(start + index)
        case[rows] = np.array([numbers[number] for number in met.tolist()], np.int32)[inverse]
    return np.array(first, np.int64), case
