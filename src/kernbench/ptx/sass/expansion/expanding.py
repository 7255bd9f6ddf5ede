"""Expands a recording's PTX, block by block, to machine instructions, and its traces to instruction streams."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events, Instructions, LaunchRecording, Traces
from kernbench.ptx.sass.building import Builder
from kernbench.ptx.sass.expansion.pieces import effects_of, parsed_rows, pieces_of_block
from kernbench.ptx.sass.expansion.schedule import schedule
from kernbench.ptx.sass.streams import NO_EVENT
from kernbench.ptx.text.module import Instruction

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Expansion:
    """The position of each PTX block's expanded code in the table of instructions.

    Block b is `first[b]` to `last[b]`. `taker[row]` is the instruction, counted from its block's first, that gets the
    event of a row, -1 if there is none; `takers[row]` lists all of them. Blocks that always follow each other are
    expanded as one piece of code, which belongs to the first of them; `back[b]` is its length for the others, else 0.
    """

    first: Ints
    last: Ints
    back: Ints
    taker: Ints
    takers: tuple[tuple[int, ...], ...]

    def path(self, traces: Traces, events: Events, trace: int) -> tuple[Ints, Ints]:
        """The instructions of a trace, and for each its event, counted from the trace's first one."""
        first, last = int(traces.start[trace]), int(traces.start[trace + 1])
        return self.steps(traces, events, range(first, last), int(traces.first_event[first]))

    def steps(self, traces: Traces, events: Events, steps: range, base: int) -> tuple[Ints, Ints]:
        """Instructions and events, counted from `base`, of consecutive steps."""
        blocks = traces.block[steps.start : steps.stop]
        lengths = (self.last - self.first)[blocks]
        starts = np.cumsum(lengths) - lengths
        within = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
        ops = np.repeat(self.first[blocks], lengths) + within
        taken = np.full(len(ops), NO_EVENT, np.int32)
        bounds = traces.first_event[steps.start : steps.stop + 1]
        numbers = np.arange(bounds[0], bounds[-1])
        rows = events.instruction[bounds[0] : bounds[-1]]
        where = np.repeat(starts - self.back[blocks], np.diff(bounds))
        # copies of a multicast to further CTAs have events, but no instruction of their own
        further = events.kind[bounds[0] : bounds[-1]] == int(Kind.BULK_MULTICAST)
        held = (self.taker[rows] >= 0) & ~further
        taken[where[held] + self.taker[rows[held]]] = (numbers - base)[held]
        for number in np.flatnonzero(held & _several(self.takers, rows)).tolist():
            for more in self.takers[int(rows[number])][1:]:
                taken[where[number] + more] = numbers[number] - base
        return ops.astype(np.int32), taken


def _several(takers: tuple[tuple[int, ...], ...], rows: Ints) -> NDArray[np.bool_]:
    return np.array([len(one) > 1 for one in takers] or [False])[rows]


def _following(traces: Traces) -> dict[int, set[int]]:
    """The successors of each block, as seen in the traces."""
    found: dict[int, set[int]] = defaultdict(set)
    inside = np.ones(max(len(traces.block) - 1, 0), bool)
    # the last block of a trace is not followed by the first one of the next trace
    inside[traces.start[1:-1] - 1] = False
    pairs = np.stack([traces.block[:-1][inside], traces.block[1:][inside]], axis=1)
    for before, after in np.unique(pairs, axis=0).tolist():
        found[before].add(after)
    return found


def _runs(rows: Instructions, parsed: list[Instruction | None], following: dict[int, set[int]]) -> list[list[int]]:
    """Blocks in order, grouped if they always follow each other.

    An exchange between lanes ends a block of the emulator, but not a block of machine code.
    """
    before: dict[int, set[int]] = defaultdict(set)
    for block, after in following.items():
        for one in after:
            before[one].add(block)
    found: list[list[int]] = []
    for block in range(int(rows.block.max(initial=-1)) + 1):
        last = rows.of_block(block - 1) if block else range(0)
        steers = not last or (ends := parsed[last[-1]]) is None or effects_of(ends).flow
        if found and not steers and following.get(block - 1) == {block} and before[block] == {block - 1}:
            found[-1].append(block)
        else:
            found.append([block])
    return found


def expand(recording: LaunchRecording, builder: Builder, whole: bool = True) -> Expansion:
    """Append the expanded code of a recording's PTX to a table; unless `whole`, each block by itself."""
    rows = recording.instructions
    parsed = parsed_rows(recording.text, rows)
    following = _following(recording.traces)
    runs = (
        _runs(rows, parsed, following) if whole else [[block] for block in range(int(rows.block.max(initial=-1)) + 1)]
    )
    number = {block: index for index, run in enumerate(runs) for block in run}
    of_rows = [[row for block in run for row in rows.of_block(block)] for run in runs]
    edges = {index: {number[after] for after in following.get(run[-1], ())} for index, run in enumerate(runs)}
    code = schedule([pieces_of_block(of, rows, parsed) for of in of_rows], edges)
    takers: list[list[int]] = [[] for _ in range(len(rows))]
    first, last, back = (np.zeros(len(number), np.int32) for _ in range(3))
    for run, block in zip(runs, code, strict=True):
        first[run], last[run] = len(builder), len(builder)
        for index, one in enumerate(block):
            piece = one.piece
            if piece.takes_event:
                takers[piece.row].append(index)
            origin = (int(rows.line[piece.row]), piece.row, -1)
            reads = (min(len(piece.reads), 3) + 1) // 2, min(len(piece.reads), 3) // 2
            builder.add(piece.name, one.control, "", reads, (piece.predicated, False, False), origin)
        last[run[0]] = len(builder)
        back[run[1:]] = len(block)
    least = np.array([min(one, default=-1) for one in takers], np.int32)
    return Expansion(first, last, back, least, tuple(map(tuple, takers)))
