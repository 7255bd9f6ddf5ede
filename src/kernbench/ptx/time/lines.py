"""A timed launch by lines of its PTX: warp stalls, and the efficiency of memory accesses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events, LaunchRecording

Floats = NDArray[np.float64]

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
    """Accesses of one line: bytes moved, sectors and passes, and the fewest possible of both."""

    bytes: int
    sectors: int
    least_sectors: int
    passes: int
    least_passes: int

    @property
    def coalescing(self) -> float | None:
        """The share of transferred sectors that would be enough; None if the line accesses no global memory."""
        return self.least_sectors / self.sectors if self.sectors else None

    @property
    def bank_efficiency(self) -> float | None:
        """Passes without conflicts over actual passes; None if the line accesses no shared memory."""
        return self.least_passes / self.passes if self.passes else None


def accesses_by_line(recording: LaunchRecording) -> dict[int, LineAccesses]:
    """The accesses of each line of the PTX, in the whole launch."""
    events = recording.events
    times = warps_of_events(recording)
    chosen = np.flatnonzero(np.isin(events.kind, (*_GLOBAL, *_SHARED)))
    lines = recording.instructions.line[events.instruction[chosen]]
    of_global = np.isin(events.kind[chosen], _GLOBAL)
    columns = (
        events.bytes[chosen],
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
