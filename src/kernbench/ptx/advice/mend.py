"""A mend, and the groups of accesses that are mended together: those of one source line."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.advice.flow import Flow
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events, LaunchRecording
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.changes import Again, Given
from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.lines import warps_of_events
from kernbench.ptx.time.result import LaunchTime
from kernbench.ptx.time.sources import source_lines

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# groups of each kind that are timed again, those with the largest potential savings
MOST_GROUPS = 4
# instructions that a sample of a launch with more work has at most
MOST_WORK = 2_000_000


class Sure(StrEnum):
    """How sure it is that the change saves what is said."""

    # only what is too much was left away
    SURE = "sure"
    # the same work in another arrangement, which costs a little by itself
    LIKELY = "likely"
    # the kernel may not allow it, or not all of it
    AT_MOST = "at most"


@dataclass(frozen=True)
class Mend:
    """A fault: its kind, where it is (line of the PTX; 0: the whole launch), in words, and what to change.

    - `given` is the launch without it, unless `seconds` says what it saves.
    - `beyond`: a kind; this mend asks for more than those, and is worth saying if it saves more than the best of them.
    """

    kind: str
    line: int
    message: str
    hint: str
    sure: Sure
    given: Given
    seconds: float | None = None
    beyond: str = ""


@dataclass(frozen=True)
class Group:
    """Instructions of the recording that are mended together, the line of the dearest, and how many there are."""

    rows: tuple[int, ...]
    line: int
    text: str

    @property
    def named(self) -> str:
        """The dearest instruction in words, with the number of the others."""
        more = f" and {len(self.rows) - 1} more of this line" if len(self.rows) > 1 else ""
        return f"`{self.text}`{more}"


@dataclass(frozen=True)
class Launch:
    """A timed launch, with what several mends ask of it; `time` is that of all of it, and `again` of a sample."""

    again: Again
    time: LaunchTime

    @property
    def recording(self) -> LaunchRecording:
        """What the launch did."""
        return self.again.recording

    @property
    def streams(self) -> Streams:
        """What it issued."""
        return self.again.streams

    @cached_property
    def flow(self) -> Flow:
        """Where operands come from."""
        return Flow(self.recording.instructions)

    def timed_soon(self, times: int) -> bool:
        """Whether so many times its work is timed in a second or so."""
        return self.again.least_sample * times <= MOST_WORK

    @cached_property
    def warps(self) -> Floats:
        """How many warps of the launch each event represents."""
        return warps_of_events(self.recording)

    @cached_property
    def of_line(self) -> list[object]:
        """For each instruction what it is grouped by.

        That is its source line if the PTX names it, else its opcode in its block.
        """
        rows, sources = self.recording.instructions, source_lines(self.recording.text)
        return [
            sources[line].where if line in sources else (opcode, block)
            for line, opcode, block in zip(rows.line.tolist(), rows.opcode, rows.block.tolist(), strict=True)
        ]

    def are(self, kinds: Iterable[Kind]) -> Flags:
        """Which events are of some kinds."""
        found: Flags = np.isin(self.recording.events.kind, [int(one) for one in kinds])
        return found

    def within(self, group: Group) -> Flags:
        """Which events belong to a group."""
        found: Flags = np.isin(self.recording.events.instruction, group.rows)
        return found

    def by_row(self, weights: Floats | Flags) -> Floats:
        """The weights of events summed over all warps, by instruction."""
        rows = self.recording.events.instruction
        return np.bincount(rows, weights * self.warps, len(self.recording.instructions)).astype(np.float64)

    def groups(self, weights: Floats | Flags) -> Iterator[Group]:
        """The groups with the largest weights of events, over all warps; groups without any are left out."""
        return self.groups_of_rows(self.by_row(weights))

    def one_group(self, here: Flags) -> Group:
        """All instructions of some events."""
        by_row = self.by_row(here)
        return self.group(np.flatnonzero(by_row > 0).tolist(), by_row)

    def groups_of_rows(self, by_row: Floats) -> Iterator[Group]:
        """The same by weights of instructions."""
        rows: dict[object, list[int]] = {}
        for row in np.flatnonzero(by_row > 0).tolist():
            rows.setdefault(self.of_line[row], []).append(row)
        dearest = sorted(rows.values(), key=lambda group: (-float(by_row[group].sum()), group[0]))
        for group in dearest[:MOST_GROUPS]:
            yield self.group(group, by_row)

    def group(self, rows: list[int], by_row: Floats) -> Group:
        """A group of some rows."""
        first = max(rows, key=lambda row: (by_row[row], -row))
        instructions = self.recording.instructions
        text = " ".join(instructions.text[first].split())
        return Group(tuple(rows), int(instructions.line[first]), text)


def share_waited(launch: Launch, reason: Reason) -> float:
    """The share of warp cycles that are waits for some reason."""
    cycles = launch.again.time.stalls.cycles
    whole = float(cycles.sum())
    return float(cycles[:, reason].sum()) / whole if whole else 0.0


def changed(events: Events, here: Flags, columns: dict[str, Floats]) -> Events:
    """The events, with other values of some columns where they are chosen."""
    made = {}
    for name, values in columns.items():
        before = getattr(events, name)
        made[name] = np.where(here, values, before).astype(before.dtype)
    return replace(events, **made)


def silent(events: Events, here: Flags) -> Events:
    """The events, some of which do nothing."""
    return replace(events, kind=np.where(here, np.uint8(Kind.NONE), events.kind).astype(np.uint8))


def without(streams: Streams, ops: Flags) -> Streams:
    """The streams without some instructions: nobody issues them."""
    return kept(streams, ~ops[streams.op])


def kept(streams: Streams, here: Flags) -> Streams:
    """The streams with some of their steps only."""
    return repeated(streams, here.astype(np.int64))


def repeated(streams: Streams, times: NDArray[np.int64]) -> Streams:
    """The streams with each of their steps so many times in a row."""
    before = np.concatenate([[0], np.cumsum(times)])
    op, event = np.repeat(streams.op, times), np.repeat(streams.event, times)
    return replace(streams, op=op, event=event, path_start=before[streams.path_start].astype(np.int64))
