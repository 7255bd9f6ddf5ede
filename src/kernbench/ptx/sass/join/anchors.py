"""Anchors in machine code, and tokens in traces, by which a recording and the code are aligned.

A recorded event whose PTX instruction has a counterpart in the code is a token; the counterparts are its anchors. A
step is a token, too, if another instruction of its PTX block can represent it. The PTX instruction of a machine
instruction is known from the line information that the assembler wrote.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Instructions, LaunchRecording, Traces
from kernbench.ptx.sass.depth import loop_depths, loops
from kernbench.ptx.sass.expansion.table import sequence
from kernbench.ptx.sass.facts import facts
from kernbench.ptx.sass.flow import Flow
from kernbench.ptx.sass.join.origins import kinds_of, origins
from kernbench.ptx.sass.lines import Statements
from kernbench.ptx.sass.pipes import family
from kernbench.ptx.sass.ptx_names import bytes_of, shape_of
from kernbench.ptx.sass.reading import Listing
from kernbench.ptx.sass.streams import Pipe

Ints = NDArray[np.int32]

_ACCESSES = {Pipe.GLOBAL, Pipe.LOCAL, Pipe.SHARED}
# pipes whose instructions compilers merge or hoist less readily than address arithmetic
_STEADY = {Pipe.FMA, Pipe.HALF2, Pipe.DOUBLE, Pipe.MUFU, Pipe.CONVERT, Pipe.MINMAX, Pipe.SHUFFLE, Pipe.VOTE}


@dataclass(frozen=True)
class Anchors:
    """The anchors of each node, and properties of tokens by row.

    `start[n]` to `start[n + 1]` are the anchors of node n: `row` is the row of the PTX instruction in the recording,
    `must` is false if the instruction is predicated. The machine instructions of anchor a are `op[k]` for k from
    `op_start[a]` to `op_start[a + 1]`: several if an access was split.
    """

    start: Ints
    op_start: Ints
    op: Ints
    row: Ints
    must: NDArray[np.bool_]
    # row of the PTX instruction of each machine instruction, -1 if unknown
    row_of_op: Ints
    # rows of events that have anchors
    anchored: NDArray[np.bool_]
    # among these, rows whose code was hoisted out of their loop
    hoisted: NDArray[np.bool_]
    # by PTX block: the row that represents its steps; -1 if its events do, or nothing does
    stands_for: Ints
    # rows whose machine instructions compilers move readily: they are weak evidence of a step
    loose: NDArray[np.bool_]


def rows_of_lines(statements: Statements, instructions: Instructions) -> dict[int, int]:
    """Line of the text with one statement per line -> row of the recording's instructions."""
    by_line: dict[int, list[int]] = defaultdict(list)
    for row, line in enumerate(instructions.line.tolist()):
        by_line[line].append(row)
    found: dict[int, int] = {}
    for number, (origin, opcode) in enumerate(zip(statements.origin, statements.opcodes(), strict=True), 1):
        for row in by_line.get(origin, ()) if opcode else ():
            if instructions.opcode[row] == opcode:
                found[number] = row
                by_line[origin].remove(row)
                break
    return found


def anchors(listing: Listing, flow: Flow, lines: dict[int, int], recording: LaunchRecording) -> Anchors:
    """The anchors of a kernel's code for a recording of the kernel."""
    instructions, traces, events = recording.instructions, recording.traces, recording.events
    row_of_op = origins(listing, flow, instructions, lines)
    calling = np.zeros(max(len(instructions), 1), bool)
    calling[events.instruction[events.kind == int(Kind.SLOW_PATH)]] = True
    finder = _Finder(listing, flow, instructions, row_of_op, calling)
    stands_for = finder.representatives(traces)
    return finder.table(stands_for)


class _Finder:
    """Finds anchors; those of rows in `calling`, arithmetic with recorded slow paths, are calls."""

    def __init__(
        self, listing: Listing, flow: Flow, instructions: Instructions, row_of_op: Ints, calling: NDArray[np.bool_]
    ):
        self._calling = calling
        self._code = listing.instructions
        self._flow = flow
        self._rows = instructions
        self._row_of_op = row_of_op
        used = np.zeros(len(self._code), bool)
        for node in flow.nodes:
            used[node.first : node.last] = True
        self._used = used
        self._parts = np.ones(max(len(instructions), 1), np.int32)
        self._takes = self._event_ops()
        self._anchored = np.zeros(max(len(instructions), 1), bool)
        self._anchored[row_of_op[self._takes]] = True
        self._depths = loop_depths([node.following for node in flow.nodes])
        self._scores = self._scored()
        self._copies = self._steady_copies()

    def _event_ops(self) -> NDArray[np.bool_]:
        takes = np.zeros(len(self._code), bool)
        for op in np.flatnonzero(self._used & (self._row_of_op >= 0)).tolist():
            row = int(self._row_of_op[op])
            kind = Kind(int(self._rows.kind[row]))
            if self._calling[row]:
                takes[op] = self._code[op].opcode == "CALL"
            elif kind != Kind.NONE and kind in kinds_of(self._code[op]):
                takes[op] = True
                self._parts[row] = max(self._parts[row], _parts(self._rows.opcode[row], self._code[op].name))
        return takes

    def representatives(self, traces: Traces) -> Ints:
        """By PTX block: the instruction that represents its steps, -1 if none can.

        If the block has events, or is executed repeatedly, only a steady instruction can (one that compilers neither
        merge nor hoist readily); if it is executed repeatedly, only one inside a loop, or one with several copies, as
        in a fully unrolled loop. A loop whose blocks have no such instruction would have no token at all: there the
        most frequent block is represented by any instruction of it that is in a loop.
        """
        blocks = max(int(self._rows.block.max(initial=-1)) + 1, 1)
        stands = np.full(blocks, -1, np.int32)
        repeats = np.bincount(traces.block, minlength=blocks) > len(traces)
        with_events = np.zeros(blocks, bool)
        # a slow path is called in some iterations and not in others
        steadily = self._anchored & ~self._calling
        with_events[self._rows.block[steadily[: len(self._rows)]]] = True
        for block in range(blocks):
            rows = self._rows.of_block(block)
            known = [(self._scores[row], -row) for row in rows if row in self._scores]
            if not known:
                continue
            (depth, steady, _), row = max(known)
            stands_out = steady if with_events[block] or repeats[block] else True
            if stands_out and (depth > 0 or not repeats[block] or self._copies[-row] > 1):
                stands[block] = -row
        for block in _silent_loops(traces, (stands < 0) & ~with_events):
            known = [(self._scores[row], -row) for row in self._rows.of_block(block) if row in self._scores]
            if known and max(known)[0][0] > 0:
                stands[block] = -max(known)[1]
        return stands

    def hoisted(self, stands_for: Ints) -> NDArray[np.bool_]:
        """Rows of events whose code is in fewer loops than their block's representative: it was hoisted."""
        found = np.zeros(len(self._anchored), bool)
        deepest: dict[int, int] = defaultdict(int)
        for number, node in enumerate(self._flow.nodes):
            for op in np.flatnonzero(self._takes[node.first : node.last]).tolist():
                row = int(self._row_of_op[node.first + op])
                deepest[row] = max(deepest[row], self._depths[number])
        for row, depth in deepest.items():
            standing = int(stands_for[self._rows.block[row]])
            found[row] = standing >= 0 and depth < self._scores[standing][0]
        return found

    def _scored(self) -> dict[int, tuple[int, bool, bool]]:
        """By row: loop depth of its code, whether it is one steady instruction, whether it is unpredicated."""
        found: dict[int, tuple[int, bool, bool]] = {}
        for number, node in enumerate(self._flow.nodes):
            for op, row in enumerate(self._row_of_op[node.first : node.last].tolist(), node.first):
                pipe = family(self._code[op].opcode).pipe
                # the number of branches depends on the layout of the code
                if row < 0 or self._rows.kind[row] != Kind.NONE or self._calling[row] or pipe == Pipe.BRANCH:
                    continue
                steady = self._is_steady(op, row)
                score = (self._depths[number], steady, not self._code[op].predicated)
                found[row] = max(found.get(row, score), score)
        return found

    def _steady_copies(self) -> Counter[int]:
        """By row: the number of steady machine instructions that it became."""
        ops = np.flatnonzero(self._used & (self._row_of_op >= 0)).tolist()
        return Counter(row for op in ops if self._is_steady(op, row := int(self._row_of_op[op])))

    def _is_steady(self, op: int, row: int) -> bool:
        """Whether it is the only machine instruction of each copy of its PTX instruction, on a steady pipe."""
        pipe, usual = family(self._code[op].opcode).pipe, sequence(self._rows.opcode[row])
        return pipe in _STEADY and len(usual) == 1 and family(usual[0].partition(".")[0]).pipe == pipe

    def table(self, stands_for: Ints) -> Anchors:
        standing = set(stands_for.tolist()) - {-1}
        counted = self._counted(standing)
        start, found = [0], []
        for node in self._flow.nodes:
            seen: dict[int, list[list[int]]] = defaultdict(list)
            for op in range(node.first, node.last):
                row = int(self._row_of_op[op])
                if not self._takes[op] and (row not in standing or self._code[op].name != counted[row]):
                    continue
                if seen[row] and len(seen[row][-1]) < self._parts[row]:
                    seen[row][-1].append(op)
                else:
                    seen[row].append([op])
                    found.append(seen[row][-1])
            start.append(len(found))
        return self._packed(start, found, stands_for)

    def _packed(self, start: list[int], found: list[list[int]], stands_for: Ints) -> Anchors:
        return Anchors(
            np.array(start, np.int32),
            np.cumsum([0, *map(len, found)], dtype=np.int32),
            np.array([op for ops in found for op in ops], np.int32),
            np.array([self._row_of_op[ops[0]] for ops in found], np.int32),
            np.array([not self._code[ops[0]].predicated for ops in found], bool),
            self._row_of_op,
            self._anchored,
            self.hoisted(stands_for),
            stands_for,
            np.array([self._copies[row] == 0 for row in range(len(self._anchored))], bool),
        )

    def _counted(self, standing: set[int]) -> dict[int, str]:
        """By row that represents a block: the name of a machine instruction that each copy of it has once."""
        names: dict[int, Counter[tuple[bool, str]]] = defaultdict(Counter)
        for op in np.flatnonzero(self._used & np.isin(self._row_of_op, list(standing))).tolist():
            row = int(self._row_of_op[op])
            names[row][not self._is_steady(op, row), self._code[op].name] += 1
        return {row: min(count, key=lambda key: (key[0], count[key], key[1]))[1] for row, count in names.items()}


def _silent_loops(traces: Traces, silent: NDArray[np.bool_]) -> list[int]:
    """For each loop executed through silent blocks only: its most frequent block, without those of inner loops.

    Of equally frequent blocks the first.
    """
    quiet = silent[traces.block]
    beside = quiet[:-1] & quiet[1:]
    # the last step of a trace is not followed by the first one of the next trace
    ends = traces.start[1:-1]
    beside[ends[(ends > 0) & (ends < len(quiet))] - 1] = False
    following: list[list[int]] = [[] for _ in silent]
    pairs = np.stack([traces.block[:-1][beside], traces.block[1:][beside]], axis=1)
    for block, other in np.unique(pairs, axis=0).tolist():
        following[block].append(other)
    count = np.bincount(traces.block[quiet], minlength=len(silent))
    return sorted({max(blocks, key=lambda block: (count[block], -block)) for blocks in loops(following)})


def _parts(opcode: str, name: str) -> int:
    """The number of machine instructions of one PTX instruction, by the bytes or the shape of each."""
    known = facts(name)
    asked = prod(shape_of(opcode))
    if known.shape[0] and asked:
        return max(1, asked // prod(known.shape))
    if family(name.partition(".")[0]).pipe not in _ACCESSES or not known.width:
        return 1
    return max(1, -(-bytes_of(opcode) // known.width))
