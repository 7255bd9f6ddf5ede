"""The commands of all programs of two launches in comparable form: operations, sizes and addresses."""

import numpy as np

from kernbench.common.pe_commands import OPERATION_NAMES
from kernbench.result.recording import FIRST_VIEW, NONE, Recording, Stream
from kernbench.targets.work import Ints, Work, joint_numbers

_MOVES = np.array([name in ("load", "store") for name in OPERATION_NAMES])


def compared_works(first: Recording, second: Recording) -> tuple[Work, Work]:
    """The work of two launches, with the same numbers for the same types and patterns."""
    types = joint_numbers(first.tables.types, second.tables.types)
    patterns = joint_numbers(first.tables.patterns, second.tables.patterns)
    return _work(first, types[0], patterns[0]), _work(second, types[1], patterns[1])


def _number(stream: Stream) -> int:
    """The number by which programs are sorted."""
    return stream.cube << 32 | stream.pe


def _work(recording: Recording, types: Ints, patterns: Ints) -> Work:
    streams = sorted(recording.streams, key=_number)
    counts = [len(stream) for stream in streams]
    firsts = np.cumsum([0, *counts])
    rows = [_rows(stream, types, patterns) for stream in streams]
    sites = [stream.rows.column("site").astype(np.int64) for stream in streams]
    # a rank may have several PEs
    alone = len({stream.rank for stream in streams}) == len(streams)
    names = {_number(s): f"rank {s.rank}" if alone else f"rank {s.rank} (PE {s.pe})" for s in streams}

    def describe(row: int) -> str:
        which = int(np.searchsorted(firsts, row, "right")) - 1
        return _described(streams[which], row - int(firsts[which]))

    return Work(
        np.repeat(np.array([_number(s) for s in streams], np.int64), counts),
        np.concatenate(rows) if rows else np.empty((0, 10), np.int64),
        np.concatenate(sites) if sites else np.empty(0, np.int64),
        recording.tables.sites,
        lambda program: names.get(program, f"PE {program & 0xFFFFFFFF} of cube {program >> 32}"),
        describe,
    )


def _rows(stream: Stream, types: Ints, patterns: Ints) -> Ints:
    """Operation, type of the result, the commands and types behind the operands, address or axis or direction, and the
    pattern or request. Views are numbered only when made, so the number of the viewed value is used.
    """
    rows = {name: stream.rows.column(name).astype(np.int64) for name in ("op", "type", "a", "b", "c", "x", "y")}
    operands = [
        column
        for name in ("a", "b", "c")
        for column in (_producers(stream, rows[name]), types[stream.operand_types(rows[name])])
    ]
    moves = _MOVES[rows["op"]]
    y = np.where(moves, patterns[np.where(moves, rows["y"], NONE)], rows["y"])
    return np.column_stack([rows["op"], types[rows["type"]], *operands, rows["x"], y])


def _producers(stream: Stream, numbers: Ints) -> Ints:
    found = numbers.copy()
    viewed = np.flatnonzero(numbers <= FIRST_VIEW)
    found[viewed] = stream.views.values("producer", FIRST_VIEW - numbers[viewed])
    return found


def _described(stream: Stream, index: int) -> str:
    """A command in a few words: 'load of 16x64 f16 at 0x4000'."""
    row = stream.rows[index]
    number = row.type if row.type >= 0 else stream.type_of(row.a) if row.a != NONE else NONE
    name = OPERATION_NAMES[row.op]
    if number < 0:
        return name
    shape, dtype, _ = stream.tables.types[number]
    address = f" at {row.x:#x}" if _MOVES[row.op] else ""
    return f"{name} of {'x'.join(map(str, shape)) or 'a number'} {dtype}{address}"
