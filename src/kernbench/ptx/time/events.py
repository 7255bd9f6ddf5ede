"""Costs of events on a GPU: the time they take of every server they pass, as tables that the compiled model reads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.machine import Gpu
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import LINE, RANK_SHIFT, SECTOR, Events, LaunchRecording
from kernbench.ptx.sass.streams import NO_EVENT, Streams
from kernbench.ptx.time.costs import Ints, needed
from kernbench.ptx.time.engine import codes
from kernbench.ptx.time.tensor import tensor_costs

Floats = NDArray[np.float64]

# the action of the model for each kind of event; below, the kind of group
_WHAT = {
    Kind.GLOBAL_LOAD: codes.LOAD,
    Kind.LOCAL_LOAD: codes.LOAD,
    Kind.GLOBAL_STORE: codes.STORE,
    Kind.LOCAL_STORE: codes.STORE,
    Kind.GLOBAL_ATOMIC: codes.ATOMIC,
    Kind.GLOBAL_REDUCTION: codes.REDUCTION,
    Kind.SHARED_LOAD: codes.SHARED,
    Kind.SHARED_STORE: codes.SHARED,
    Kind.SHARED_ATOMIC: codes.SHARED,
    Kind.CLUSTER_LOAD: codes.REMOTE_LOAD,
    Kind.CLUSTER_STORE: codes.REMOTE_STORE,
    Kind.CLUSTER_ATOMIC: codes.REMOTE_LOAD,
    Kind.REMOTE_STORE: codes.REMOTE_STORE,
    Kind.MATRIX_LOAD: codes.SHARED,
    Kind.MATRIX_STORE: codes.SHARED,
    Kind.ASYNC_COPY: codes.CP_ASYNC,
    Kind.ASYNC_COPY_COMMIT: codes.COMMIT,
    Kind.ASYNC_COPY_WAIT: codes.WAIT_GROUP,
    Kind.ASYNC_COPY_ARRIVE: codes.COPY_ARRIVE,
    Kind.BULK_LOAD: codes.BULK_LOAD,
    Kind.BULK_CLUSTER: codes.BULK_SHARED,
    Kind.BULK_MULTICAST: codes.MULTICAST,
    Kind.BULK_STORE: codes.BULK_STORE,
    Kind.BULK_REDUCE: codes.BULK_STORE,
    Kind.BULK_COMMIT: codes.COMMIT,
    Kind.BULK_WAIT: codes.WAIT_GROUP,
    Kind.WGMMA: codes.WGMMA,
    Kind.WGMMA_COMMIT: codes.COMMIT,
    Kind.WGMMA_WAIT: codes.WAIT_GROUP,
    Kind.BARRIER_SYNC: codes.BARRIER_SYNC,
    Kind.BARRIER_ARRIVE: codes.BARRIER_ARRIVE,
    Kind.CLUSTER_ARRIVE: codes.CLUSTER_ARRIVE,
    Kind.CLUSTER_WAIT: codes.CLUSTER_WAIT,
    Kind.MBARRIER_ARRIVE: codes.ARRIVE,
    Kind.MBARRIER_EXPECT: codes.ARRIVE,
    Kind.MBARRIER_WAIT: codes.WAIT,
    Kind.TENSOR_MMA: codes.PRODUCT,
    Kind.TENSOR_COPY: codes.PRODUCT,
    Kind.TENSOR_SHIFT: codes.PRODUCT,
    Kind.TENSOR_LOAD: codes.TENSOR_ACCESS,
    Kind.TENSOR_STORE: codes.TENSOR_ACCESS,
    Kind.TENSOR_COMMIT: codes.TENSOR_COMMIT,
    Kind.TENSOR_WAIT: codes.TENSOR_WAIT,
    Kind.FENCE: codes.FENCE,
    Kind.PROXY_FENCE: codes.FENCE,
    Kind.SLEEP: codes.SLEEP,
}
_GROUP_OF = {
    Kind.ASYNC_COPY_COMMIT: codes.CP_GROUP,
    Kind.ASYNC_COPY_WAIT: codes.CP_GROUP,
    Kind.BULK_COMMIT: codes.BULK_GROUP,
    Kind.BULK_WAIT: codes.BULK_GROUP,
    Kind.WGMMA_COMMIT: codes.WGMMA_GROUP,
    Kind.WGMMA_WAIT: codes.WGMMA_GROUP,
}
_BARRIER_KINDS = (Kind.BARRIER_SYNC, Kind.BARRIER_ARRIVE)
_CLUSTER_KINDS = (Kind.CLUSTER_ARRIVE, Kind.CLUSTER_WAIT)
_MBARRIER_KINDS = (Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT, Kind.MBARRIER_WAIT, Kind.BULK_LOAD, Kind.BULK_MULTICAST,
                   Kind.BULK_CLUSTER, Kind.REMOTE_STORE, Kind.ASYNC_COPY_ARRIVE, Kind.TENSOR_COMMIT)  # fmt: skip
_GLOBAL = (Kind.GLOBAL_LOAD, Kind.GLOBAL_STORE, Kind.GLOBAL_ATOMIC, Kind.GLOBAL_REDUCTION, Kind.LOCAL_LOAD,
           Kind.LOCAL_STORE, Kind.ASYNC_COPY, Kind.BULK_LOAD, Kind.BULK_STORE, Kind.BULK_REDUCE)  # fmt: skip
_STORES = (Kind.GLOBAL_STORE, Kind.LOCAL_STORE, Kind.BULK_STORE, Kind.BULK_REDUCE, Kind.GLOBAL_REDUCTION,
           Kind.GLOBAL_ATOMIC)  # fmt: skip
_TENSOR = (Kind.TENSOR_MMA, Kind.TENSOR_COPY, Kind.TENSOR_SHIFT, Kind.TENSOR_LOAD, Kind.TENSOR_STORE)
# loads that bypass L1
_PAST_L1 = (".cg", ".volatile", ".relaxed", ".acquire", ".cv", ".mmio")


_ATOMICS = (Kind.GLOBAL_ATOMIC, Kind.GLOBAL_REDUCTION)
_BULK = (Kind.BULK_LOAD, Kind.BULK_STORE, Kind.BULK_REDUCE)
_FLOATS = (".f32", ".f64", ".f16", ".bf16")
# if a neighbour accessed the same bytes within so many accesses of other CTAs, it counts as simultaneous
NEAR = 4
# from so many lines per touched sector on, a sector counts as alone in its line; and from this share of first touches
# on, accesses to such sectors are assumed never to touch one again
ALONE, RANDOM = 2.0, 0.9
# tables swept in order: the mean of log2 of the reuse distance is at most this much below log2 of the table's size. The
# logarithms are integers, rounded down by half on average. For random accesses the mean is 0.8 and that half lower
IN_TURN = 1.0
# largest distance in bytes between two stores of a CTA to one sector that L2 merges; and the share of bytes that makes
# a sector complete
SOON, WHOLE = 1 << 16, 0.99
# for each doubling of a load's lines: how much later it is answered and how much further its answers are spread, in
# units of the spread; and the number of doublings that count
LATER, WIDER, MOST_DOUBLINGS = 0.06, 0.25, 4.0


@dataclass(frozen=True)
class EventCosts:
    """Columns of the event table, as the model reads them, and the bytes of each event by level."""

    what: Ints
    stage: Ints
    port: Ints
    l2: Ints
    hbm: Ints
    nbytes: Ints
    lanes: Ints
    sync: Ints
    phase: Ints
    extra: Ints
    later: Ints
    wider: Ints
    tags: Ints
    further: Ints
    through: Ints
    misses: Ints
    syncs: int
    l2_bytes: Floats
    hbm_bytes: Floats

    def table(self) -> Ints:
        """One row per event; `codes` names the columns."""
        columns = (self.what, self.stage, self.port, self.l2, self.hbm, self.nbytes, self.lanes, self.sync, self.phase,
                self.extra, self.later, self.wider, self.tags, self.further, self.through, self.misses)  # fmt: skip
        return np.ascontiguousarray(np.stack(columns, axis=1))


def event_costs(
    recording: LaunchRecording,
    gpu: Gpu,
    l1_bytes: float,
    pace: float = 1.0,
    resident: float = 1.0,
    atomic_share: Floats | None = None,
) -> EventCosts:
    """One row per event: the time it takes of every server it passes.

    `pace` is the ratio of the SM clock to the clock at which costs outside the SMs were measured. `resident` CTAs run
    at once; each has `l1_bytes` of L1. Atomics take the share of their time that `atomic_share` has for each event.
    """
    events = recording.events
    what = np.full(256, codes.NOTHING, np.int64)
    for one, code in _WHAT.items():
        what[one] = code
    moved = _moved(recording, gpu, l1_bytes, resident)
    stage = np.where(
        moved.is_global,
        np.maximum(events.sectors * SECTOR / float(gpu.l1.bytes_per_cycle), 1),
        np.maximum(events.wavefronts, 1) * float(gpu.shared.conflict),
    )
    tags = np.where(moved.is_global & ~_is(events, _BULK), events.lines, 0.0)
    sync, syncs = _sync_numbers(recording)
    later, wider = _answers(events, gpu, moved)
    extra = np.zeros(len(events), np.int64)
    for one, group in _GROUP_OF.items():
        extra[events.kind == one] = group
    extra[(events.kind == Kind.BULK_WAIT) & _says(recording, (".read",))] = codes.READ_GROUP
    # a sleep takes nanoseconds, at any clock
    sleeps = events.kind == int(Kind.SLEEP)
    extra[sleeps] = _whole(events.phase.astype(np.float64) * (float(gpu.clock.most) / 1e3 * pace))[sleeps]
    atomics = _is(events, _ATOMICS)
    share = np.ones(len(events)) if atomic_share is None else atomic_share
    extra[atomics] = _whole(atomic_cycles(recording, gpu, moved.missing) * share * pace)[atomics]
    together = _is(events, (Kind.SHARED_ATOMIC, Kind.CLUSTER_ATOMIC))
    extra[together] = _whole(np.maximum(events.lines, 1) * float(gpu.shared.conflict))[together]
    tensor, of_tensor = tensor_costs(recording, gpu), _is(events, _TENSOR)
    extra[of_tensor] = _whole(tensor.work)[of_tensor]
    stage = np.where(of_tensor, tensor.passes, stage)
    l2 = np.where(of_tensor, tensor.sms.astype(np.int64), _whole(moved.l2 * pace))
    return EventCosts(
        what[events.kind], _whole(stage), _whole(moved.port), l2,
        np.rint(moved.of_memory * codes.PART).astype(np.int64), events.bytes.astype(np.int64),
        events.lanes.astype(np.int64), sync, events.phase.astype(np.int64), extra,
        _whole(later * pace), _whole(wider * pace), _whole(tags),
        np.maximum(events.object.astype(np.int64), 0) >> RANK_SHIFT,
        np.rint(moved.through * codes.PART).astype(np.int64), np.maximum(_whole(moved.misses), 1), syncs,
        moved.l2_bytes, moved.hbm_bytes,
    )  # fmt: skip


def _is(events: Events, kinds: tuple[Kind, ...]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.isin(events.kind, [int(one) for one in kinds])
    return found


def _says(recording: LaunchRecording, words: tuple[str, ...]) -> NDArray[np.bool_]:
    """For each event, whether the opcode of its instruction contains one of some words."""
    found = [any(word in text for word in words) for text in recording.instructions.opcode]
    return np.array(found or [False])[recording.events.instruction]


def _whole(cycles: Floats) -> Ints:
    return np.rint(cycles * codes.TICK).astype(np.int64)


@dataclass(frozen=True)
class _Moved:
    """By event.

    Cycles of the SM's port and of L2, bytes requested from L2 and moved by memory, and memory time in bytes.

    In memory time, isolated sectors count for more. `of_memory` is what is read or becomes dirty, `through` what is
    read and written at once. `misses` is the share of an event's accesses that wait for memory, `missing` that of its
    sectors.
    """

    is_global: NDArray[np.bool_]
    port: Floats
    l2: Floats
    l2_bytes: Floats
    hbm_bytes: Floats
    of_memory: Floats
    through: Floats
    misses: Floats
    missing: Floats


def _moved(recording: LaunchRecording, gpu: Gpu, l1_bytes: float, resident: float) -> _Moved:
    events = recording.events
    is_global = _is(events, _GLOBAL)
    asked, missed = _sectors(recording, gpu, l1_bytes, resident)
    asked, missed = np.where(is_global, asked, 0.0), np.where(is_global, missed, 0.0)
    every = np.maximum(events.sectors.astype(np.float64), 1.0)
    lines = events.lines * asked / every
    missing = np.clip(missed / np.maximum(asked, 1e-9), 0.0, 1.0)
    stores = _is(events, _STORES)
    port_in, l2_in = _load_cycles(events, gpu, asked, lines, missing)
    port_out, l2_out = _store_cycles(events, gpu, asked, lines)
    # an isolated sector is transferred with the rest of memory's access granule
    alone = np.where(_is(events, _BULK), 0.0, np.clip(2.0 - every / np.maximum(events.lines, 1), 0.0, 1.0))
    granules = 1.0 + alone * (float(gpu.hbm.granule) / SECTOR - 1.0)
    apart = granules * (1.0 + alone * (1.0 / float(gpu.hbm.scattered) - 1.0))
    # a partially stored sector that L2 does not hold is read and written at once; one that it holds becomes dirty, once
    atomics, in_part = _is(events, _ATOMICS), stores & _in_part(events)
    filled = in_part & ~atomics & _filled_soon(recording, in_part, missed)
    through = np.where(in_part & ~atomics & ~filled, missed * SECTOR, 0.0)
    there = np.where(stores & ~atomics, asked - through / SECTOR, 0.0)
    dirty = np.maximum(there - _dirty_already(recording, asked, missed, resident), 0.0) * SECTOR
    fetched = np.where(stores & ~atomics, 0.0, missed * SECTOR)
    return _Moved(
        is_global, np.where(stores, port_out, port_in), np.where(stores, l2_out, l2_in), asked * SECTOR,
        (fetched * np.where(in_part, 2.0, 1.0) + 2.0 * through) * granules + dirty, fetched * apart + dirty,
        through * apart / float(gpu.hbm.rewritten), _misses(lines, missing, resident), missing,
    )  # fmt: skip


def _dirty_already(recording: LaunchRecording, asked: Floats, missed: Floats, resident: float) -> Floats:
    """Sectors of each store that an earlier store of the launch made dirty, and L2 still holds.

    They are written back once.

    Local memory of a CTA reuses that of ended CTAs.
    """
    events = recording.events
    touched = np.maximum((events.other + events.own).astype(np.float64), 1e-9)
    gone = np.clip((missed - events.first) / touched, 0.0, 1.0)
    local = events.kind == int(Kind.LOCAL_STORE)
    stored = float((asked * event_counts(recording))[local].sum()) * SECTOR
    new = min(_local_bytes(recording) * resident / max(stored, 1.0), 1.0)
    return np.where(local, asked * (1.0 - new), np.minimum(events.stored * (1.0 - gone), asked))


def _local_bytes(recording: LaunchRecording) -> float:
    """Bytes of local memory of a CTA."""
    return float(recording.local_bytes * int(np.prod(recording.block)))


def _misses(lines: Floats, share: Floats, resident: float) -> Floats:
    """The share of accesses to `lines` lines that wait for memory, if each line misses L2 with probability `share`.

    An event's figures are means over all warps that did the same. For a table that all CTAs read, the first CTA misses;
    CTAs resident with it wait for the same data while it is in flight, and later ones do not wait.
    """
    found: Floats = np.minimum(np.maximum(1.0 - (1.0 - share) ** np.maximum(lines, 1.0), share * resident), 1.0)
    return found


def _filled_soon(recording: LaunchRecording, in_part: NDArray[np.bool_], missed: Floats) -> bool:
    """Whether partially stored sectors are soon completed by the same CTA.

    Then L2 merges the parts, and memory reads nothing.
    """
    events, times = recording.events, event_counts(recording)
    stored = in_part & ~_is(events, _ATOMICS)
    of_sector = events.bytes / np.maximum(events.sectors.astype(np.float64), 1.0)
    soon = np.exp2(events.own_distance.astype(np.float64)) <= SOON
    first = float((missed * times)[stored].sum()) * SECTOR
    bytes_stored = np.where(soon, missed + events.own, missed) * of_sector * times
    return first > 0 and float(bytes_stored[stored].sum()) >= WHOLE * first


def _in_part(events: Events) -> NDArray[np.bool_]:
    """Accesses whose bytes do not fill the sectors they touch; atomics never do."""
    found: NDArray[np.bool_] = (events.bytes < events.sectors * SECTOR) | _is(events, _ATOMICS)
    return found


def _answers(events: Events, gpu: Gpu, moved: _Moved) -> tuple[Floats, Floats]:
    """How many cycles later than a single line loads are answered, and how far their answers are spread.

    A load is answered with the last of its lines.
    """
    loads = moved.is_global & ~_is(events, _STORES)
    doublings = np.minimum(np.log2(np.maximum(events.lines, 1)), MOST_DOUBLINGS)
    near = float(gpu.l2.spread)
    spread = near + moved.misses * (float(gpu.hbm.spread) - near)
    wider = np.where(_is(events, _BULK), spread, spread * (1.0 + WIDER * doublings))
    later = moved.misses * float(gpu.hbm.spread) * LATER * doublings
    return np.where(loads, later, 0.0), np.where(loads, wider, 0.0)


def _near(events: Events) -> NDArray[np.bool_]:
    """Whether a neighbour touched the same bytes so shortly before that it counts as simultaneous."""
    every = np.maximum(events.sectors.astype(np.float64), 1.0)
    near: NDArray[np.bool_] = np.exp2(events.other_distance.astype(np.float64)) <= NEAR * every * SECTOR
    return near


def _load_cycles(events: Events, gpu: Gpu, asked: Floats, lines: Floats, missing: Floats) -> tuple[Floats, Floats]:
    """Cycles of the SM's port and of L2 for loads: L2 merges simultaneous loads of neighbours.

    A line is looked up once, and once more if it comes from memory (the share `missing`).
    """
    bulk, port_rate = _is(events, _BULK), np.full(len(events), float(gpu.l2.sm_bytes_per_cycle))
    if bulk.any():
        port_rate[bulk] = needed(gpu, "copies.bulk_bytes_per_cycle", "bulk copies")
    merged = np.where(_near(events), np.minimum(events.other, asked), 0.0)
    left = np.maximum(asked - merged, asked / max(float(gpu.l2.merged), 1.0))
    looked_up = lines * left / np.maximum(asked, 1e-9) * (1.0 + missing)
    l2 = np.maximum(left * SECTOR / float(gpu.l2.bytes_per_cycle), looked_up / float(gpu.l2.lines_per_cycle))
    return asked * SECTOR / port_rate, l2


def _store_cycles(events: Events, gpu: Gpu, asked: Floats, lines: Floats) -> tuple[Floats, Floats]:
    """Cycles of the SM's port and of L2 for stores: partial sectors take longer, and so does each of their lines."""
    part = _in_part(events)
    port = (asked + np.where(part, lines, 0.0)) * SECTOR / float(gpu.l2.sm_write_bytes_per_cycle)
    whole = asked * SECTOR / float(gpu.l2.write_bytes_per_cycle)
    in_part = asked * float(gpu.l2.store_sector) + lines * float(gpu.l2.store_line)
    return port, np.where(part, np.maximum(in_part, whole), whole)


def event_counts(recording: LaunchRecording) -> Floats:
    """How often each event occurs in the launch."""
    traces = recording.traces
    of_class = np.bincount(recording.cta_class, minlength=recording.classes)
    counts = np.zeros(len(traces), np.int64)
    np.add.at(counts, recording.class_trace, of_class[:, None])
    return np.repeat(counts, np.diff(traces.first_event[traces.start])).astype(np.float64)


def has_code(recording: LaunchRecording, streams: Streams) -> NDArray[np.bool_]:
    """Which events belong to an issued instruction: others were removed, or merged with one of these."""
    found = np.zeros(len(recording.events), bool)
    for trace in range(len(recording.traces)):
        _, events = streams.of_trace(trace)
        found[events[events != NO_EVENT]] = True
    return found


def atomic_cycles(recording: LaunchRecording, gpu: Gpu, missing: Floats) -> Floats:
    """Cycles of the L2 atomic units: by sectors for scattered addresses, by rounds for lanes on the same word.

    A sector that has to be fetched from memory first (the share `missing`) takes longer, in addition to memory's own
    time. Neighbouring lines share a unit: the number of units that work in parallel depends on the number of lines that
    an instruction changes in the whole launch, estimated by its first touches.
    """
    events, l2 = recording.events, gpu.l2
    sectors, lines = (np.maximum(column.astype(np.float64), 1.0) for column in (events.sectors, events.lines))
    opcodes = recording.instructions.opcode
    floats = _says(recording, _FLOATS)
    rounds = np.maximum(events.wavefronts.astype(np.float64), sectors)
    again = float(l2.atomic_interval) + np.where(floats, float(l2.atomic_float) - float(l2.atomic_interval), 0.0)
    serial = sectors * float(l2.atomic_interval) + (rounds - sectors) * again
    atomics = _is(events, _ATOMICS)
    # if a warp touches two sectors of a line, all of its sectors are changed in the end
    of_line = np.where(sectors > lines, SECTOR / LINE, 1.0)
    new = np.where(atomics, events.first * event_counts(recording) * of_line, 0.0)
    changed = np.bincount(events.instruction, new, minlength=len(opcodes))[events.instruction]
    # an instruction that first touches nothing changes lines that others changed before
    changed = np.where(changed > 0, changed, new.sum())
    units = np.where(changed > 0, np.clip(changed / float(l2.atomic_lines), 1.0, float(l2.atomic_units)),
                     float(l2.atomic_units))  # fmt: skip
    each = np.where(events.kind == int(Kind.GLOBAL_ATOMIC), float(l2.atomic_result), float(l2.atomic_sector))
    each = each + missing * np.maximum(float(l2.atomic_missed) - each, 0.0)
    taken: Floats = np.maximum(sectors * each, serial / units)
    return taken


def _sectors(recording: LaunchRecording, gpu: Gpu, l1_bytes: float, resident: float) -> tuple[Floats, Floats]:
    """Sectors that each event requests from L2, and those of them that memory supplies; L2 is cold at first.

    CTAs progress at the same rate: while one touches so many bytes, each other resident CTA touches as many.
    """
    events = recording.events
    past, local = _says(recording, _PAST_L1), events.kind == int(Kind.LOCAL_LOAD)
    sectors = events.sectors.astype(np.float64)
    # a thread loads what it stored itself: at most all of the CTA's local memory was touched in between
    own = np.where(local, sectors, events.own)
    since = np.where(local, max(_local_bytes(recording), 1.0), np.exp2(events.own_distance.astype(np.float64)))
    held_l1 = _held_by_l1(since, l1_bytes, float(gpu.l1.gone))
    l1_hits = np.where((events.kind == int(Kind.GLOBAL_LOAD)) & ~past | local, own * held_l1, 0.0)
    # a line occupies its full size, even if not all of its sectors are valid
    room = np.maximum(events.lines * (LINE / SECTOR) / np.maximum(sectors, 1.0), 1.0)
    share = held(np.exp2(events.other_distance.astype(np.float64)) * room, gpu)
    at_random, table = _table(recording, room)
    of_table = min(float(gpu.l2.capacity) / float(gpu.chip.l2_halves) / table, 1.0)
    share = np.where(at_random, np.maximum(share, of_table), share)
    again = (own - l1_hits) * (1.0 - held(since * room * resident, gpu))
    from_memory = events.first + events.other * (1.0 - share) + again
    asked = np.maximum(sectors - l1_hits, 0.0)
    return asked, np.minimum(from_memory, asked)


def _table(recording: LaunchRecording, room: Floats) -> tuple[NDArray[np.bool_], float]:
    """Accesses to isolated sectors that may be at random, and the size in bytes of the table they touch.

    n random touches of F sectors are F (1 - exp(-n / F)) first touches, so F follows from the number of first touches.
    The reuse distance of random touches is spread from nothing to all of the table. So the share that L2 holds of them
    is its share of the table, not that for the mean distance.
    """
    events, times = recording.events, event_counts(recording)
    every = np.where(_is(events, _GLOBAL), events.sectors * times * SECTOR, 0.0)
    apart = _is(events, _GLOBAL) & (room >= ALONE)
    again = float(every[apart].sum())
    first = float((events.first * times)[apart].sum()) * SECTOR
    nothing = np.zeros(len(events), bool)
    if again <= 0 or first >= RANDOM * again:
        return nothing, 1.0
    low, high = 1e-3, again / max(first, SECTOR) + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - np.exp(-middle)) / middle > first / again else (low, middle)
    table = again / low
    # swept in order, not at random: the reuse distance is the whole table, with everything touched in between
    times = times * events.other
    distance = float((times * events.other_distance)[apart].sum()) / max(float(times[apart].sum()), 1e-9)
    whole = np.log2(table * float(every.sum()) / again)
    return (nothing, 1.0) if distance > whole - IN_TURN else (apart, table)


def _held_by_l1(distance: Floats, l1_bytes: float, gone: float) -> Floats:
    """The share of bytes touched `distance` bytes ago that the CTA's part of L1 still holds.

    It is 1 up to the part's size, falls linearly, and is 0 from `gone` times its size on.
    """
    times = distance / max(l1_bytes, 1.0)
    return np.clip((gone - times) / max(gone - 1.0, 1e-9), 0.0, 1.0)


def held(distance: Floats, gpu: Gpu) -> Floats:
    """The share of bytes touched `distance` bytes ago that L2 still holds."""
    capacity = float(gpu.l2.capacity)
    whole = capacity / float(gpu.chip.l2_halves)
    return np.clip((capacity - distance) / max(capacity - whole, 1.0), 0.0, 1.0)


def _sync_numbers(recording: LaunchRecording) -> tuple[Ints, int]:
    """A number for each completion of a barrier or mbarrier, shared by all events that arrive at it or wait for it."""
    events = recording.events
    barrier, mbarrier, cluster = (_is(events, kinds) for kinds in (_BARRIER_KINDS, _MBARRIER_KINDS, _CLUSTER_KINDS))
    concerned = (barrier | mbarrier | cluster) & (events.object >= 0) & (events.phase >= 0)
    own = events.object.astype(np.int64) & ((1 << RANK_SHIFT) - 1)
    key = own << 33 | events.phase.astype(np.int64) << 2 | mbarrier | cluster.astype(np.int64) << 1
    numbers = np.full(len(events), -1, np.int64)
    found, inverse = np.unique(key[concerned], return_inverse=True)
    numbers[concerned] = inverse
    return numbers, len(found)
