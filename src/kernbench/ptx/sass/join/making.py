"""Streams of a recording: from machine code if ptxas and nvdisasm are available, else by an expansion of PTX."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.building import Builder
from kernbench.ptx.sass.expansion.expanding import Expansion, expand
from kernbench.ptx.sass.expansion.pressure import registers_of
from kernbench.ptx.sass.facts import bank_reads
from kernbench.ptx.sass.join.anchors import Anchors, anchors, rows_of_lines
from kernbench.ptx.sass.join.joining import Joiner, Tokens, Way, tokens_of
from kernbench.ptx.sass.pipes import family
from kernbench.ptx.sass.streams import NO_EVENT, Pipe, Streams, Unjoined
from kernbench.ptx.sass.tools import Code, NoMachineCodeError, machine_code

Ints = NDArray[np.int32]

EXPANSION = "expansion of PTX"
# source if there is machine code, but no step of the recording was found in it
UNJOINED = f"{EXPANSION}, with registers as ptxas gives them"
_LOCAL = {Kind.LOCAL_LOAD, Kind.LOCAL_STORE}


def streams_of(recording: LaunchRecording, arch: str = "", use_tools: bool = True) -> Streams:
    """What the warps of a recorded launch issue on a GPU of `arch` (default: the module's target).

    Without machine code, or for steps that do not fit it, the expansion of PTX is used; `source`, `joined` and
    `unjoined` of the result say where and why. `use_tools` False uses the expansion alone.
    """
    if not use_tools:
        return _expanded(recording, "machine code was not asked for")
    try:
        code = machine_code(recording.text, recording.entry, arch or recording.arch)
    except NoMachineCodeError as error:
        return _expanded(recording, str(error))
    return _Joining(recording, code).streams()


def _expanded(recording: LaunchRecording, reason: str) -> Streams:
    builder = Builder()
    expansion = expand(recording, builder)
    paths = _Paths(recording)
    for trace in paths.distinct():
        paths.add(trace, *expansion.path(recording.traces, recording.events, trace))
    steps = len(recording.traces.block)
    streams = paths.streams(
        builder,
        registers_of(recording.text, recording.entry),
        (0, recording.static_shared, recording.local_bytes),
        EXPANSION,
        (0.0, (Unjoined(reason, steps),)),
    )
    return replace(streams, no_code=reason)


class _Paths:
    """Collects the paths of traces; traces with the same blocks and instructions share one."""

    def __init__(self, recording: LaunchRecording):
        self._recording = recording
        self._path_of: dict[bytes, int] = {}
        self._ops: list[Ints] = []
        self._events: list[Ints] = []
        self._traces = np.zeros(len(recording.traces), np.int32)
        self.lost = 0

    def distinct(self) -> list[int]:
        """One trace for each distinct path, in order; also records the path of each trace."""
        found = []
        for trace in range(len(self._recording.traces)):
            key = self._key(trace)
            if key not in self._path_of:
                self._path_of[key] = len(self._path_of)
                found.append(trace)
            self._traces[trace] = self._path_of[key]
        return found

    def _key(self, trace: int) -> bytes:
        traces, events = self._recording.traces, self._recording.events
        first, last = int(traces.start[trace]), int(traces.start[trace + 1])
        bounds = traces.first_event[first : last + 1]
        rows = events.instruction[bounds[0] : bounds[-1]]
        parts = (traces.block[first:last], bounds - bounds[0], rows)
        return b"|".join(part.tobytes() for part in parts)

    def add(self, trace: int, ops: Ints, events: Ints) -> None:
        """Add the path of a trace; must be called in the order of `distinct`."""
        self._ops.append(ops)
        self._events.append(events)
        first = self._recording.traces.start[trace]
        last = self._recording.traces.start[trace + 1]
        begin, end = (int(self._recording.traces.first_event[one]) for one in (first, last))
        further = self._recording.events.kind[begin:end] == int(Kind.BULK_MULTICAST)
        count = end - begin - int(further.sum())
        self.lost += count - len(np.unique(events[events != NO_EVENT]))

    def streams(
        self,
        builder: Builder,
        registers: int,
        sizes: tuple[int, int, int],
        source: str,
        joined: tuple[float, tuple[Unjoined, ...]],
    ) -> Streams:
        """The streams; `sizes` are bytes of spills, of shared memory and of local memory."""
        traces = self._recording.traces
        nothing = [np.zeros(0, np.int32)]
        return Streams(
            ops=builder.done(),
            path_start=np.cumsum([0, *map(len, self._ops)], dtype=np.int64),
            op=np.concatenate(self._ops or nothing).astype(np.int32),
            event=np.concatenate(self._events or nothing).astype(np.int32),
            trace_path=self._traces,
            first_event=traces.first_event[traces.start[:-1]].astype(np.int64),
            registers=registers,
            spill_bytes=sizes[0],
            shared_bytes=sizes[1],
            local_bytes=sizes[2],
            source=source,
            joined=joined[0],
            unjoined=joined[1],
            unknown=tuple(sorted(builder.unknown)),
            events_without_op=self.lost,
        )


@dataclass
class _Counts:
    """Number of recorded steps, and of those not joined, by reason."""

    steps: int = 0
    unjoined: Counter[str] = field(default_factory=Counter)


class _Joining:
    """Joins the traces of a recording to its machine code."""

    def __init__(self, recording: LaunchRecording, code: Code):
        self._recording = recording
        self._code = code
        rows = recording.instructions
        lines = rows_of_lines(code.statements, rows)
        self._anchors: Anchors = anchors(code.listing, code.flow, lines, recording)
        self._joiner = Joiner(code.flow, self._anchors)
        self._builder = Builder()
        self._number = self._fill()
        self._first = np.array([self._number[node.first] for node in code.flow.nodes], np.int32)
        self._length = np.array([node.last - node.first for node in code.flow.nodes], np.int32)
        # expansions by `whole`: of grouped blocks for whole traces, of each block for single steps
        self._expansions: dict[bool, Expansion] = {}
        self._counts = _Counts()

    def streams(self) -> Streams:
        """The streams of all traces."""
        paths = _Paths(self._recording)
        for trace in paths.distinct():
            paths.add(trace, *self._path(trace))
        counts, resources = self._counts, self._code.resources
        missed = sum(counts.unjoined.values())
        reasons = [Unjoined(reason, steps) for reason, steps in counts.unjoined.most_common()]
        reasons += [Unjoined(reason, 0) for reason in self._code.flow.reasons]
        joined = 1.0 - missed / counts.steps if counts.steps else 1.0
        source = f"SASS of ptxas {self._code.ptxas}" if joined > 0 else UNJOINED
        return paths.streams(
            self._builder,
            resources.registers,
            (resources.spill_stores + resources.spill_loads, resources.shared_bytes, resources.stack_bytes),
            source,
            (joined, tuple(reasons)),
        )

    def _fill(self) -> Ints:
        """Add all reachable instructions to the table; returns the number of each there."""
        code, labels = self._code.listing.instructions, self._code.listing.labels
        number = np.full(len(code), -1, np.int32)
        for node in self._code.flow.nodes:
            number[node.first : node.last] = 0
        for op in np.flatnonzero(number == 0).tolist():
            one, row = code[op], int(self._anchors.row_of_op[op])
            before = code[op - 1] if op and number[op - 1] >= 0 else None
            backward = one.opcode == "BRA" and any(labels.get(target, op + 1) <= op for target in one.targets)
            number[op] = len(self._builder)
            line = int(self._recording.instructions.line[row]) if row >= 0 else self._line(one.line)
            self._builder.add(
                one.name,
                one.control,
                one.operands,
                bank_reads(one, before),
                (one.predicated, self._spills(op, row), backward),
                (line, row, one.address),
            )
        return number

    def _line(self, line: int) -> int:
        """The line of the original text, for a line of the text that was assembled."""
        origin = self._code.statements.origin
        return origin[line - 1] if 0 < line <= len(origin) else 0

    def _spills(self, op: int, row: int) -> bool:
        """Whether an instruction accesses local memory that the PTX does not: a spill."""
        local = family(self._code.listing.instructions[op].opcode).pipe == Pipe.LOCAL
        return local and (row < 0 or Kind(int(self._recording.instructions.kind[row])) not in _LOCAL)

    def _path(self, trace: int) -> tuple[Ints, Ints]:
        traces, events = self._recording.traces, self._recording.events
        tokens = tokens_of(traces, events, trace, self._anchors)
        self._counts.steps += tokens.steps
        way = self._joiner.join(tokens)
        if way is None:
            self._counts.unjoined["no way through the machine code fits the trace"] += tokens.steps
            return self._expand(whole=True).path(traces, events, trace)
        return self._with_expanded(trace, tokens, way, *self._written(tokens, way))

    def _written(self, tokens: Tokens, way: Way) -> tuple[Ints, Ints, Ints]:
        """Instructions and events of a path, and the position of each of its nodes in them."""
        lengths = self._length[way.nodes]
        starts = np.cumsum(lengths) - lengths
        within = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
        ops = (np.repeat(self._first[way.nodes], lengths) + within).astype(np.int32)
        taken = np.full(len(ops), NO_EVENT, np.int32)
        table = self._anchors
        counts = np.diff(table.start)[way.nodes]
        anchor = np.repeat(table.start[way.nodes] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        node = np.repeat(np.arange(len(way.nodes)), counts)
        held = np.flatnonzero(way.token_of >= 0)
        event = tokens.event[way.token_of[held]]
        # an anchor has one or more machine instructions
        many = np.diff(table.op_start)[anchor[held]]
        which = np.repeat(table.op_start[anchor[held]] - (np.cumsum(many) - many), many) + np.arange(many.sum())
        begins = np.repeat(node[held], many)
        index = starts[begins] + self._number[table.op[which]] - self._first[way.nodes[begins]]
        taken[index] = np.repeat(event, many)
        return ops, taken, starts.astype(np.int32)

    def _with_expanded(
        self, trace: int, tokens: Tokens, way: Way, ops: Ints, taken: Ints, starts: Ints
    ) -> tuple[Ints, Ints]:
        """The path, with an expansion inserted for each step none of whose tokens has an anchor."""
        found = np.zeros(tokens.steps, bool)
        asked = np.zeros(tokens.steps, bool)
        asked[tokens.step] = True
        found[tokens.step[way.taken]] = True
        missing = np.flatnonzero(asked & ~found)
        if not len(missing):
            return ops, taken
        self._counts.unjoined["steps without counterpart in the machine code"] += len(missing)
        traces, events = self._recording.traces, self._recording.events
        first = int(traces.start[trace])
        base = int(traces.first_event[first])
        # the expansion comes after the node that contains the step's first token
        token = np.searchsorted(tokens.step, missing)
        node = np.searchsorted(way.first_token, token, side="right")
        ends = np.append(starts, len(ops))
        pieces_op, pieces_event, at = [], [], 0
        for step, index in zip(missing.tolist(), ends[node].tolist(), strict=True):
            more, their = self._expand(whole=False).steps(traces, events, range(first + step, first + step + 1), base)
            pieces_op += [ops[at:index], more]
            pieces_event += [taken[at:index], their]
            at = index
        return np.concatenate((*pieces_op, ops[at:])), np.concatenate((*pieces_event, taken[at:]))

    def _expand(self, whole: bool) -> Expansion:
        if whole not in self._expansions:
            self._expansions[whole] = expand(self._recording, self._builder, whole)
        return self._expansions[whole]
