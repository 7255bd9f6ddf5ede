"""The recorder of a launch, and the recording it gives when all batches have ended."""

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.emulator.units.recorder import LaunchRecorder
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.naming import static_kind
from kernbench.ptx.recording.recorder import BatchRecorder
from kernbench.ptx.recording.recording import Events, Extent, Instructions, Int32s, Int64s, LaunchRecording, Traces
from kernbench.ptx.recording.store import MOST_BYTES, Store, Trace
from kernbench.ptx.recording.survey import BYTES, LINES, OBJECT, PHASE, SECTORS, WAVEFRONTS

if TYPE_CHECKING:
    from kernbench.ptx.emulator.units.batch import Batch

# local memory has sectors, but no reuse data
_UNTRACKED = (int(Kind.LOCAL_LOAD), int(Kind.LOCAL_STORE))
# columns of a trace's events
_STEP, _INSTRUCTION, _KIND, _LANES, _DATA = range(5)


class RecordedLaunch(LaunchRecorder):
    """Records a launch of a program."""

    def __init__(self, program: Program, most_bytes: int = MOST_BYTES):
        self._program = program
        self._store = Store(program, most_bytes)

    def batch(self, batch: "Batch") -> BatchRecorder:
        """The recorder of a batch."""
        return BatchRecorder(batch, self._store)

    def recording(self, grid: Extent, block: Extent, cluster: Extent, dynamic_shared: int) -> LaunchRecording:
        """The recording of a launch with these extents, after all its CTAs have ended."""
        kernel = self._program.kernel
        cta_class, class_trace, order = _classes(self._store.ctas, prod(grid))
        traces, events = _columns([self._store.traces[number] for number in order])
        known, run = self._store.handovers, set(np.unique(traces.block).tolist())
        executed = [site for block in self._program.blocks if block.number in run for site in block.sites]

        def lines(numbers: set[int]) -> tuple[int, ...]:
            return tuple(sorted({site.line for site in executed if site.number in numbers}))

        return LaunchRecording(
            kernel.module.source,
            kernel.name,
            kernel.module.arch,
            grid,
            block,
            cluster,
            self._program.static_shared,
            dynamic_shared,
            self._program.local_bytes,
            _instructions(self._program),
            cta_class,
            class_trace,
            traces,
            events,
            known.deepest,
            lines(known.met),
            lines(known.met_in_shared),
            lines(known.clocks),
        )


def _instructions(program: Program) -> Instructions:
    sites = [(site, block) for block in program.blocks for site in block.sites]
    return Instructions(
        np.array([site.line for site, _ in sites], np.int32),
        tuple(site.text for site, _ in sites),
        tuple(site.name for site, _ in sites),
        np.array([block.number for _, block in sites], np.int32),
        tuple(site.function for site, _ in sites),
        np.array([static_kind(site.effects.event, site.name) for site, _ in sites], np.uint8),
        np.array([site.guarded for site, _ in sites], bool),
    )


def _classes(batches: list[tuple[Array, Int32s]], ctas: int) -> tuple[Int32s, Int32s, list[int]]:
    """The class of each CTA, the traces of each class, and the traces in order of first use by the grid."""
    of_cta = np.zeros((ctas, batches[0][1].shape[1]), np.int32)
    for numbers, traces in batches:
        of_cta[numbers] = traces
    different, first, inverse = np.unique(of_cta, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    chosen = different[order]
    met, at = np.unique(chosen.reshape(-1), return_index=True)
    wanted = met[np.argsort(at, kind="stable")]
    renamed = np.zeros(int(met.max()) + 1, np.int32)
    renamed[wanted] = np.arange(len(wanted), dtype=np.int32)
    return rank[inverse.reshape(-1)], renamed[chosen], wanted.tolist()


def _columns(found: list[Trace]) -> tuple[Traces, Events]:
    steps = np.concatenate([trace.steps for trace in found])
    events = np.concatenate([trace.events for trace in found])
    lengths = np.array([len(trace.steps) for trace in found], np.int64)
    many = np.concatenate([np.bincount(trace.events[:, _STEP], minlength=len(trace.steps)) for trace in found])
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    first_event = np.concatenate([[0], np.cumsum(many)]).astype(np.int64)
    traces = Traces(start, steps[:, 0].copy(), steps[:, 1].astype(np.uint8), first_event)
    return traces, _events(found, events, first_event)


def _events(found: list[Trace], events: Int32s, first_event: Int64s) -> Events:
    data = events[:, _DATA:]
    first, other, own, other_distance, own_distance, stored = _reuse(found)
    return Events(
        events[:, _INSTRUCTION].copy(),
        events[:, _KIND].astype(np.uint8),
        events[:, _LANES].astype(np.uint8),
        data[:, SECTORS].copy(),
        data[:, LINES].copy(),
        data[:, WAVEFRONTS].astype(np.uint16),
        data[:, BYTES].copy(),
        data[:, OBJECT].copy(),
        data[:, PHASE].copy(),
        _spun(found, first_event, len(events)),
        first,
        other,
        own,
        other_distance,
        own_distance,
        stored,
    )


def _spun(found: list[Trace], first_event: Int64s, events: int) -> Int32s:
    """Dropped iterations, at the first event of the step after them; for a step without events, at the next event."""
    dropped = np.concatenate([trace.spun for trace in found])
    spun: Int32s = np.zeros(events + 1, np.int32)
    at = np.flatnonzero(dropped)
    np.add.at(spun, first_event[at], dropped[at])
    return spun[:events]


def _reuse(found: list[Trace]) -> tuple[Array, ...]:
    """Means over the warps of a trace.

    First touches, touches after others, after its own, distances, sectors stored before.
    """
    totals = np.concatenate([trace.totals for trace in found]).astype(np.float64)
    warps = np.concatenate([np.full(len(trace.events), trace.warps, np.float64) for trace in found])
    kinds = np.concatenate([trace.events[:, _KIND] for trace in found])
    sectors = np.concatenate([trace.events[:, _DATA + SECTORS] for trace in found]).astype(np.float64)
    own, other, own_sum, other_sum, stored = totals.T
    outside = np.isin(kinds, _UNTRACKED)
    first = np.where(outside, 0.0, np.maximum(sectors * warps - own - other, 0.0))
    per_warp = np.maximum(warps, 1.0)
    columns = [first / per_warp, other / per_warp, own / per_warp]
    columns += [other_sum / np.maximum(other, 1.0), own_sum / np.maximum(own, 1.0), stored / per_warp]
    return tuple(column.astype(np.float32) for column in columns)
