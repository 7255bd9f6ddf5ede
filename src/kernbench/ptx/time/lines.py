"""A timed launch by lines of its source and of its PTX: warp stalls, and the efficiency of memory accesses."""

import linecache
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events, LaunchRecording
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.causes import REASONS
from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.result import LaunchTime
from kernbench.ptx.time.sources import Frame, Source, frame_data, source_lines
from kernbench.result.reading import Data

Floats = NDArray[np.float64]

# lines with most stalls in a document, and of each the frames and lines of PTX that are named
MOST_LINES = 40
_FRAMES, _PTX_LINES = 3, 8

SECTOR = 32
BANKS = 128
_GLOBAL = (Kind.GLOBAL_LOAD, Kind.GLOBAL_STORE, Kind.GLOBAL_ATOMIC, Kind.GLOBAL_REDUCTION, Kind.ASYNC_COPY)
_SHARED = (Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.MATRIX_LOAD, Kind.MATRIX_STORE)


def least_sectors(events: Events) -> Floats:
    """The fewest sectors that can hold the bytes of each global access; the actual number for other events."""
    sectors = events.sectors.astype(np.float64)
    least = np.maximum(np.ceil(events.bytes / SECTOR), 1.0)
    return np.where(np.isin(events.kind, _GLOBAL) & (sectors > least), least, sectors)


def least_passes(events: Events) -> Floats:
    """The fewest passes over the banks for the bytes of each shared access; the actual number for other events."""
    passes = events.wavefronts.astype(np.float64)
    least = np.maximum(np.ceil(events.bytes / BANKS), 1.0)
    return np.where(np.isin(events.kind, _SHARED) & (passes > least), least, passes)


def warps_of_events(recording: LaunchRecording) -> Floats:
    """How many warps of the launch each event represents."""
    of_class = np.bincount(recording.cta_class, minlength=recording.classes)
    warps = np.zeros(len(recording.traces), np.int64)
    np.add.at(warps, recording.class_trace, of_class[:, None])
    traces = recording.traces
    return np.repeat(warps, np.diff(traces.first_event[traces.start])).astype(np.float64)


@dataclass(frozen=True)
class LineAccesses:
    """Accesses of one line: bytes moved to and from global and shared memory, sectors and passes, and the fewest
    possible of both.
    """

    bytes: int = 0
    shared_bytes: int = 0
    sectors: int = 0
    least_sectors: int = 0
    passes: int = 0
    least_passes: int = 0

    def __add__(self, more: "LineAccesses") -> "LineAccesses":
        pairs = zip(astuple(self), astuple(more), strict=True)
        return LineAccesses(*(one + other for one, other in pairs))

    @property
    def coalescing(self) -> float | None:
        """The share of transferred sectors that would be enough; None if the line accesses no global memory."""
        return self.least_sectors / self.sectors if self.sectors else None

    @property
    def bank_efficiency(self) -> float | None:
        """Passes without conflicts over actual passes; None if the line accesses no shared memory."""
        return self.least_passes / self.passes if self.passes else None

    def data(self) -> Data:
        """As plain data."""
        found: Data = {"bytes": self.bytes, "shared_bytes": self.shared_bytes}
        return found | {"coalescing": self.coalescing, "bank_efficiency": self.bank_efficiency}


def accesses_by_line(recording: LaunchRecording) -> dict[int, LineAccesses]:
    """The accesses of each line of the PTX, in the whole launch."""
    events = recording.events
    times = warps_of_events(recording)
    chosen = np.flatnonzero(np.isin(events.kind, (*_GLOBAL, *_SHARED)))
    lines = recording.instructions.line[events.instruction[chosen]]
    of_global = np.isin(events.kind[chosen], _GLOBAL)
    columns = (
        events.bytes[chosen] * of_global,
        events.bytes[chosen] * ~of_global,
        events.sectors[chosen] * of_global,
        least_sectors(events)[chosen] * of_global,
        events.wavefronts[chosen] * ~of_global,
        least_passes(events)[chosen] * ~of_global,
    )
    found, inverse = np.unique(lines, return_inverse=True)
    sums = [np.bincount(inverse, column * times[chosen], len(found)) for column in columns]
    return {
        int(line): LineAccesses(*(round(float(column[n])) for column in sums)) for n, line in enumerate(found.tolist())
    }


@dataclass(frozen=True)
class _Stalled:
    """What warps did at some line: cycles by reason, and how often it issued; `total` is of the whole launch."""

    cycles: Floats
    issued: int
    total: float
    accesses: LineAccesses | None

    def data(self) -> Data:
        """As plain data: shares of all warp cycles, and its accesses if it has any."""
        shares = {REASONS[r]: float(self.cycles[r] / self.total) for r in Reason if self.cycles[r] > 0}
        found: Data = {"issued": self.issued, "share": float(self.cycles.sum() / self.total), "waits": shares}
        return found if self.accesses is None else found | self.accesses.data()


class LineStalls:
    """Where the warps of a timed launch spent their cycles, by line of the PTX and of the source."""

    def __init__(self, time: LaunchTime, recording: LaunchRecording, streams: Streams):
        self.recording = recording
        lines = np.asarray(streams.ops.line, np.int64)
        count = int(lines.max(initial=0)) + 1
        self._cycles = np.zeros((count, len(Reason)))
        np.add.at(self._cycles, lines, time.stalls.cycles)
        self._issued = np.bincount(lines, time.stalls.issued, count).astype(np.int64)
        self._spent = self._cycles.sum(axis=1)
        self._total = float(self._spent.sum()) or 1.0
        # what the launch takes beside its overhead, which no line has a part in
        self._running_ps = (time.seconds - time.launch_seconds) * 1e12
        self._accesses = accesses_by_line(recording)
        self._sources = source_lines(recording.text)

    def views(self) -> Data:
        """The views of a run: lines of the PTX, and of the source if the PTX names it."""
        by_source = self.by_source()
        return {"stalls": self.by_line(), **({"by_source": by_source} if by_source else {})}

    def by_line(self) -> list[Data]:
        """The lines of the PTX where warps spent most cycles: issue counts, stall reasons, the source line.

        For accesses also the bytes moved, and the efficiency of sectors and of bank passes.
        """
        rows = self.recording.instructions
        texts = {line: " ".join(text.split()) for line, text in zip(rows.line.tolist(), rows.text, strict=True)}
        found: list[Data] = []
        for line in self._dearest():
            row: Data = {"line": line, "text": texts.get(line, ""), **self._at([line]).data()}
            if line in self._sources:
                row["source"] = self._sources[line].data()
            found.append(row)
        return found

    def by_source(self) -> list[Data]:
        """The same for lines of the source, each with the lines of functions that are inlined there or that it is
        inlined at, by their shares, its dearest lines of the PTX, and its part of the time; empty if the PTX names no
        source.
        """
        lines: dict[Frame, list[int]] = {}
        for line in np.flatnonzero(self._spent > 0).tolist():
            if line in self._sources:
                lines.setdefault(self._sources[line].where, []).append(line)
        order = sorted(lines, key=lambda where: -float(self._spent[lines[where]].sum()))
        return [self._of_source(where, lines[where]) for where in order[:MOST_LINES]]

    def _of_source(self, where: Frame, lines: list[int]) -> Data:
        sources = {line: self._sources[line] for line in lines}
        row: Data = {"source": frame_data(where), "text": linecache.getline(*where).strip(), **self._at(lines).data()}
        row["time_ps"] = round(self._running_ps * row["share"])
        row["lines"] = sorted(lines, key=lambda line: -float(self._spent[line]))[:_PTX_LINES]
        for name, frames in (("inner", _inner(sources)), ("callers", _callers(sources))):
            if frames:
                row[name] = self._by_frame(frames)
        return row

    def _by_frame(self, frames: Mapping[int, Frame]) -> list[Data]:
        """The dearest of some frames, with their shares of all cycles; `frames` by line of the PTX."""
        spent: dict[Frame, float] = defaultdict(float)
        for line, frame in frames.items():
            spent[frame] += float(self._spent[line] / self._total)
        dearest = sorted(spent.items(), key=lambda item: -item[1])[:_FRAMES]
        return [{**frame_data(frame), "share": share} for frame, share in dearest]

    def _at(self, lines: list[int]) -> _Stalled:
        accesses = [self._accesses[line] for line in lines if line in self._accesses]
        whole = sum(accesses, LineAccesses()) if accesses else None
        return _Stalled(self._cycles[lines].sum(axis=0), int(self._issued[lines].sum()), self._total, whole)

    def _dearest(self) -> list[int]:
        """The lines of the PTX with most cycles, that have any."""
        order = np.argsort(-self._spent, kind="stable")[:MOST_LINES].tolist()
        return [line for line in order if self._spent[line] > 0]


def _inner(sources: Mapping[int, Source]) -> dict[int, Frame]:
    """The innermost line of a function inlined there, by line of the PTX."""
    return {line: source.inner[0] for line, source in sources.items() if source.inner}


def _callers(sources: Mapping[int, Source]) -> dict[int, Frame]:
    """The line that calls the function which the shown line is in."""
    return {line: source.callers[0] for line, source in sources.items() if source.callers}
