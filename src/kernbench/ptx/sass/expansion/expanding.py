"""A recording's PTX as machine instructions by block, and the streams of its traces without machine code."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events, LaunchRecording, Traces
from kernbench.ptx.sass.building import Builder
from kernbench.ptx.sass.expansion.pieces import parsed_rows, pieces_of_block
from kernbench.ptx.sass.expansion.schedule import schedule
from kernbench.ptx.sass.streams import NO_EVENT

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Expansion:
    """Where the expanded code of each PTX block lies in the table of instructions.

    Block b is `first[b]` to `last[b]`; `taker[row]` the instruction, counted from its block's first, that takes the
    event of a row, -1 where none does; `parts[row]` how many after it take it, too.
    """

    first: Ints
    last: Ints
    taker: Ints
    takers: tuple[tuple[int, ...], ...]

    def path(self, traces: Traces, events: Events, trace: int) -> tuple[Ints, Ints]:
        """The instructions of a trace, and beside each its event counted from the trace's first one."""
        first, last = int(traces.start[trace]), int(traces.start[trace + 1])
        return self.steps(traces, events, range(first, last), int(traces.first_event[first]))

    def steps(self, traces: Traces, events: Events, steps: range, base: int) -> tuple[Ints, Ints]:
        """Instructions and events, counted from `base`, of some steps in a row."""
        blocks = traces.block[steps.start : steps.stop]
        lengths = (self.last - self.first)[blocks]
        starts = np.cumsum(lengths) - lengths
        within = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
        ops = np.repeat(self.first[blocks], lengths) + within
        taken = np.full(len(ops), NO_EVENT, np.int32)
        bounds = traces.first_event[steps.start : steps.stop + 1]
        numbers = np.arange(bounds[0], bounds[-1])
        rows = events.instruction[bounds[0] : bounds[-1]]
        where = np.repeat(starts, np.diff(bounds))
        # what a multicast brings to further CTAs is no instruction of its own
        further = events.kind[bounds[0] : bounds[-1]] == int(Kind.BULK_MULTICAST)
        held = (self.taker[rows] >= 0) & ~further
        taken[where[held] + self.taker[rows[held]]] = (numbers - base)[held]
        for number in np.flatnonzero(held & _several(self.takers, rows)).tolist():
            for more in self.takers[int(rows[number])][1:]:
                taken[where[number] + more] = numbers[number] - base
        return ops.astype(np.int32), taken


def _several(takers: tuple[tuple[int, ...], ...], rows: Ints) -> NDArray[np.bool_]:
    return np.array([len(one) > 1 for one in takers] or [False])[rows]


def expand(recording: LaunchRecording, builder: Builder) -> Expansion:
    """Add the expanded code of a recording's PTX to a table."""
    rows = recording.instructions
    parsed = parsed_rows(recording.text, rows)
    blocks = int(rows.block.max(initial=-1)) + 1
    code = schedule([pieces_of_block(rows.of_block(block), rows, parsed) for block in range(blocks)])
    takers: list[list[int]] = [[] for _ in range(len(rows))]
    first, last = [], []
    for block in code:
        first.append(len(builder))
        for index, one in enumerate(block):
            piece = one.piece
            if piece.takes_event:
                takers[piece.row].append(index)
            origin = (int(rows.line[piece.row]), piece.row, -1)
            reads = (min(len(piece.reads), 3) + 1) // 2, min(len(piece.reads), 3) // 2
            builder.add(piece.name, one.control, "", reads, (piece.predicated, False, False), origin)
        last.append(len(builder))
    return Expansion(
        np.array(first, np.int32),
        np.array(last, np.int32),
        np.array([one[0] if one else -1 for one in takers], np.int32),
        tuple(map(tuple, takers)),
    )
