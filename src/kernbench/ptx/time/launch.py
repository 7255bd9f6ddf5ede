"""Times one recorded launch on a GPU: its streams, its CTAs distributed to SMs, the compiled model, and its results."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kernbench.common.native_loops import patient_loop
from kernbench.ptx.machine import NOT_VALIDATED, Gpu
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.chip.dealing import BUDGET, Deal, deal
from kernbench.ptx.time.chip.occupancy import Occupancy, occupancy
from kernbench.ptx.time.chip.power import WORTH, clock_under_power
from kernbench.ptx.time.costs import OpCosts, clock_of, constants, op_costs, ticks
from kernbench.ptx.time.engine import codes
from kernbench.ptx.time.engine.agenda import new_agenda
from kernbench.ptx.time.engine.engine import simulate
from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.events import EventCosts, Floats, event_costs, event_counts, has_code
from kernbench.ptx.time.result import CtaSpans, Followed, LaunchTime, Stalls, Traffic, Unit
from kernbench.ptx.time.sequence import early
from kernbench.ptx.time.waits import waits_in_words
from kernbench.result.following import DEPENDENT, GRAPH, STREAM

Ints = NDArray[np.int64]
# units with a floor, and their pipes
_FLOORS = (
    (Unit.MUFU, (codes.XU,)),
    (Unit.DOUBLE, (codes.FP64,)),
    (Unit.ALU, (codes.ALU,)),
    (Unit.FMA, (codes.EITHER, codes.HEAVY, codes.LITE)),
)
# largest number of CTAs whose start and end are kept
MOST_SPANS = 200_000
# largest number of instructions in the trace of one CTA
MOST_NOTES = 200_000


@patient_loop
def _count_syncs(counts, paths, bases, start, event_at, what, sync, further):  # type: ignore[no-untyped-def]
    """Count the arrivals of a CTA at each completion, by the rank of the target CTA relative to its own."""
    size = len(counts)
    for n in range(len(paths)):
        for at in range(start[paths[n]], start[paths[n] + 1]):
            if event_at[at] < 0:
                continue
            event = event_at[at] + bases[n]
            code = what[event]
            contributes = (
                code == codes.BARRIER_SYNC or code == codes.BARRIER_ARRIVE or code == codes.ARRIVE
                or code == codes.COPY_ARRIVE or code == codes.BULK_LOAD or code == codes.BULK_SHARED
                or code == codes.REMOTE_STORE or code == codes.TENSOR_COMMIT
            )  # fmt: skip
            if code == codes.CLUSTER_ARRIVE and sync[event] >= 0:
                for rank in range(size):
                    counts[rank, sync[event]] += 1
            while contributes:
                if sync[event] >= 0:
                    counts[further[event] % size, sync[event]] += 1
                # further targets of a multicast follow as events
                event += 1
                several = code == codes.BULK_LOAD or code == codes.TENSOR_COMMIT
                contributes = several and event < len(what) and what[event] == codes.MULTICAST


def time_launch(
    recording: LaunchRecording, streams: Streams, gpu: Gpu, budget: int = BUDGET, atomic_share: Floats | None = None
) -> LaunchTime:
    """How long the launch takes on `gpu`, as measured between events around it, and why.

    If tensor cores exceed the power limit for so long that the clock falls, the launch is simulated once more at its
    mean clock. Atomics take the share of their time that `atomic_share` has for each event.
    """
    clock = clock_of(streams.ops, gpu)
    made = _at_clock(recording, streams, gpu, budget, clock, atomic_share)
    use = made.busy[Unit.TENSOR] * min(recording.ctas, float(gpu.chip.sms)) / float(gpu.chip.sms)
    if not use:
        return made
    falls = clock_under_power(gpu, use, made.cycles / (clock * 1e6))
    if falls > clock * (1 - WORTH):
        return made
    made = _at_clock(recording, streams, gpu, budget, falls, atomic_share)
    note = f"the clock falls to {falls:,.0f} MHz on average: tensor cores are used {use:.0%} of the time"
    return replace(made, notes=(*made.notes, note))


def _at_clock(
    recording: LaunchRecording, streams: Streams, gpu: Gpu, budget: int, clock: float, atomic_share: Floats | None
) -> LaunchTime:
    held = _occupancy(recording, streams, gpu)
    carved = held.ctas * (streams.shared_bytes + recording.dynamic_shared + float(gpu.sm.shared_reserved))
    pace = clock / float(gpu.clock.most)
    resident = min(held.ctas * float(gpu.chip.sms), recording.ctas)
    # the CTAs of an SM share its L1
    of_sm = max(min(held.ctas, -(-recording.ctas // int(gpu.chip.sms))), 1)
    events = event_costs(recording, gpu, max(float(gpu.sm.l1) - carved, 0.0) / of_sm, pace, resident, atomic_share)
    ops = op_costs(streams.ops, gpu)
    lengths = np.diff(streams.path_start)
    class_paths = streams.trace_path[recording.class_trace].astype(np.int64)
    dealt = deal(recording, lengths[class_paths].sum(axis=1), gpu, held.ctas, budget)
    machine = _Machine(recording, streams, gpu, ops, events, held, dealt, class_paths, clock)
    return machine.run()


def _occupancy(recording: LaunchRecording, streams: Streams, gpu: Gpu) -> Occupancy:
    shared = max(streams.shared_bytes, recording.static_shared) + recording.dynamic_shared
    cluster = int(np.prod(recording.cluster))
    return occupancy(gpu, recording.warps, streams.registers, shared, recording.ctas, cluster)


class _Machine:
    """The state of the model for one launch, and its results."""

    def __init__(
        self, recording: LaunchRecording, streams: Streams, gpu: Gpu, ops: OpCosts, events: EventCosts,
        held: Occupancy, dealt: Deal, class_paths: Ints, clock: float,
    ):  # fmt: skip
        self.recording, self.streams, self.gpu = recording, streams, gpu
        self.ops, self.events, self.held, self.dealt = ops, events, held, dealt
        self.class_paths, self.clock = class_paths, clock
        self.class_events = streams.first_event[recording.class_trace].astype(np.int64)
        self.constants = constants(gpu, clock)
        groups, slots, warps = dealt.groups, held.ctas, recording.warps
        self.subs = groups * codes.SUB_CORES
        self.per_sm = slots * warps
        self.constants[codes.PER_SM] = self.per_sm
        self.kinds, self.syncs = self._syncs()
        self.state = (
            *_state(groups * slots, warps, self.syncs.shape[2], self.subs), dealt.seats,
            np.zeros((len(dealt.seats), codes.CLUSTER_COLUMNS), np.int64),
        )  # fmt: skip
        memory = np.zeros(codes.MEMORY, np.int64)
        memory[codes.DIRTY] = round(float(gpu.l2.dirty) * float(gpu.l2.turnover) * codes.PART)
        self.servers = (*_servers(groups, self.subs), memory)
        self.stalls = np.zeros((len(streams.ops), len(Reason)), np.int64)
        self.issued = np.zeros(len(streams.ops), np.int64)
        # accesses that ptxas merged with others take no time of shared memory and L2
        self.coded = has_code(recording, streams)

    def _syncs(self) -> tuple[Ints, Ints]:
        """The kind of each cluster, and for each kind and rank how many arrivals each completion needs.

        Clusters are of the same kind if their CTAs of each rank are of the same class.
        """
        size, syncs = self.dealt.size, max(self.events.syncs, 1)
        counts = np.zeros((self.recording.classes, size, syncs), np.int64)
        start, at = self.streams.path_start.astype(np.int64), self.streams.event.astype(np.int64)
        for kind in range(self.recording.classes):
            _count_syncs(
                counts[kind], self.class_paths[kind], self.class_events[kind], start, at, self.events.what,
                self.events.sync, self.events.further,
            )  # fmt: skip
        if size == 1:
            return self.dealt.order, counts
        classes, kinds = np.unique(self.dealt.order.reshape(-1, size), axis=0, return_inverse=True)
        made = np.zeros((len(classes), size, syncs), np.int64)
        for rank in range(size):
            for other in range(size):
                made[:, rank] += counts[classes[:, other], (rank - other) % size]
        return kinds.reshape(-1).astype(np.int64), made

    def run(self) -> LaunchTime:
        """Simulate, and return the result."""
        spans = np.zeros((min(len(self.dealt.order), MOST_SPANS), 5), np.int64)
        queue = np.zeros((self.subs, int(self.gpu.shared.queue) + 1), np.int64)
        tables = (self.ops.table(), self.events.table(), np.zeros(self.subs, np.int64), queue)
        path = self.streams.op.astype(np.int64), self.streams.event.astype(np.int64)
        start = self.streams.path_start.astype(np.int64)
        grid = (
            self.dealt.weight, self.dealt.order, self.dealt.numbers, self.class_paths, self.class_events, self.kinds,
            self.syncs, start,
        )  # fmt: skip
        counts = np.zeros(codes.COUNTS, np.int64)
        counts[codes.FOLLOW_FROM], counts[codes.FOLLOWED] = len(self.dealt.order) // 2, -1
        longest = int(np.diff(self.streams.path_start)[self.class_paths].sum(axis=1).max(initial=0))
        notes = np.zeros((min(longest, MOST_NOTES), codes.NOTE_COLUMNS), np.int64)
        end, count, blocked = simulate(
            tables, path, grid, self.state, self.servers, self.constants, counts,
            self.stalls, self.issued, spans, notes,
        )  # fmt: skip
        finished = max(int(end), int(counts[codes.LAST_STORE]))
        made = self._result(finished / codes.TICK, int(count), int(blocked), spans[: int(counts[codes.SPANS])])
        followed = self._followed(notes[: int(counts[codes.NOTED])], int(counts[codes.FOLLOWED]))
        return self._in_a_row(replace(made, followed=followed))

    def _in_a_row(self, made: LaunchTime) -> LaunchTime:
        """Add what is needed for launches in a row."""
        given = self.gpu.launch
        gaps = {STREAM: float(given.gap), GRAPH: float(given.graph_gap), DEPENDENT: float(given.dependent_gap)}
        cold = int(self.constants[codes.WARP_START]) / codes.TICK
        before, after = early(made, self.recording, self.streams)
        dispatch = int(self.constants[codes.CTA_INTERVAL]) / codes.TICK * self.recording.ctas
        made = replace(made, dispatch_cycles=dispatch)
        return replace(made, cold_cycles=cold, gaps_ns=gaps, before_wait=before, after_trigger=after)

    def _followed(self, notes: Ints, cta: int) -> Followed | None:
        """The instruction trace of one CTA."""
        if not len(notes):
            return None
        warp, op, why, held, began = (
            notes[:, one] for one in (codes.N_WARP, codes.N_OP, codes.N_WHY, codes.N_HELD, codes.N_BEGAN)
        )
        since, fixed, ready, issued, until = (
            notes[:, one] / codes.TICK
            for one in (codes.N_SINCE, codes.N_FIXED, codes.N_READY, codes.N_ISSUED, codes.N_UNTIL)
        )
        kind = int(self.recording.cta_class[cta])
        return Followed(cta, kind, warp, op, why, held, began, since, fixed, ready, issued, until)

    def _result(self, cycles: float, count: int, blocked: int, spans: Ints) -> LaunchTime:
        clock = self.clock
        floors = self._floors(clock)
        least = max(floors.values()) * clock * 1e6
        cycles = max(cycles, least)
        notes = [f"{blocked} warps waited for what other CTAs do"] if blocked else []
        notes += waits_in_words(self.recording)
        if self.streams.unknown:
            notes.append(f"opcodes timed as plain integer ones: {', '.join(self.streams.unknown)}")
        validity = self.gpu.validity
        if validity == NOT_VALIDATED:
            changed = "" if self.gpu.predictions == NOT_VALIDATED else ": some of its figures were changed"
            notes.append(f"predictions for {self.gpu.name} are not validated{changed}")
        slots = self.held.ctas
        made = CtaSpans(
            spans[:, 0], spans[:, 1] // slots, spans[:, 1] % slots, spans[:, 2] / codes.TICK,
            spans[:, 3] / codes.TICK, spans[:, 4],
        )  # fmt: skip
        return LaunchTime(
            self.gpu.name, cycles, clock, float(self.gpu.launch.empty), self.held, self._busy(cycles), floors,
            self._traffic(), Stalls(self.stalls / codes.TICK, self.issued), made, self.streams.source,
            self.streams.joined, int(self.issued.sum()), count, validity, tuple(notes), no_code=self.streams.no_code,
        )  # fmt: skip

    def _busy(self, cycles: float) -> dict[Unit, float]:
        """Utilisation of units; for units of SMs the mean over SMs."""
        pipes, per_sm, gpu = self.servers[3], self.servers[4], self.servers[5]
        weight = self.dealt.weight.astype(np.float64)
        whole = cycles * codes.TICK
        by_sm = pipes.reshape(self.dealt.groups, codes.SUB_CORES, -1).sum(axis=1)

        def mean(values: NDArray[np.float64]) -> float:
            return float((values * weight).sum() / weight.sum() / whole) if whole else 0.0

        lanes = codes.SUB_CORES
        issued = float(self.issued.sum()) * float(self.gpu.issue.interval) * codes.TICK / lanes / weight.sum()
        shares = {
            Unit.ISSUE: issued / whole if whole else 0.0,
            Unit.FMA: mean((by_sm[:, codes.HEAVY] + by_sm[:, codes.LITE]) / 2 / lanes),
            Unit.ALU: mean(by_sm[:, codes.ALU] / lanes),
            Unit.MUFU: mean(by_sm[:, codes.XU] / lanes),
            Unit.DOUBLE: mean(by_sm[:, codes.FP64] / lanes),
            Unit.TENSOR: mean(by_sm[:, codes.TENSOR] / lanes + per_sm[:, codes.PRODUCT_UNIT]),
            Unit.SHARED: mean(per_sm[:, codes.MIO].astype(np.float64)),
            Unit.PORT: mean(per_sm[:, codes.PORT].astype(np.float64)),
            Unit.TMA: mean(per_sm[:, codes.TMA].astype(np.float64)),
            Unit.L2: float(max(gpu[codes.L2], gpu[codes.L2_WRITES]) / whole) if whole else 0.0,
            Unit.HBM: float(gpu[codes.HBM] / whole) if whole else 0.0,
        }
        # work of memory and pipes after the last warp has ended is not counted
        return {unit: min(share, 1.0) for unit, share in shares.items()}

    def _warp_counts(self) -> Ints:
        """How many warps of the launch have each trace."""
        of_class = np.bincount(self.recording.cta_class, minlength=self.recording.classes)
        counts = np.zeros(len(self.recording.traces), np.int64)
        np.add.at(counts, self.recording.class_trace, of_class[:, None])
        return counts

    def _traffic(self) -> Traffic:
        events, times = self.recording.events, event_counts(self.recording)
        # wavefronts of atomics on global memory are not passes over banks
        shared = (events.wavefronts > 0) & ~np.isin(self.events.what, [codes.ATOMIC, codes.REDUCTION]) & self.coded
        # lanes that access the same bytes share a pass
        least = np.minimum(np.ceil(events.bytes / float(self.gpu.shared.bytes_per_cycle)), events.wavefronts)
        stores = np.isin(self.events.what, [codes.STORE, codes.BULK_STORE, codes.REDUCTION, codes.ATOMIC])
        hbm = self.events.hbm_bytes * times
        return Traffic(
            int((events.sectors * 32.0 * times).sum()), int((self.events.l2_bytes * times).sum()),
            int(hbm[~stores].sum()), int(hbm[stores].sum()), int((events.bytes * times)[shared].sum()),
            int((events.wavefronts * times)[shared].sum()), int((least * times)[shared].sum()),
        )  # fmt: skip

    def _floors(self, clock: float) -> dict[Unit, float]:
        """Lower bounds in seconds: bytes over the data sheet's bandwidth, work over the peak rate of each unit."""
        traffic, gpu = self._traffic(), self.gpu
        sms, hertz = float(gpu.chip.sms), clock * 1e6
        counts = self._warp_counts()
        issued = float((np.diff(self.streams.path_start)[self.streams.trace_path] * counts).sum())
        return {
            Unit.HBM: traffic.hbm_read / (float(gpu.hbm.bandwidth) * 1e9),
            Unit.ISSUE: issued * float(gpu.issue.interval) / codes.SUB_CORES / sms / hertz,
            Unit.SHARED: traffic.least_wavefronts / sms / hertz,
            Unit.TENSOR: self._product_cycles(counts) / sms / hertz,
            **{unit: self._pipe_cycles(counts, pipes) / codes.SUB_CORES / sms / hertz for unit, pipes in _FLOORS},
            Unit.L2: self._l2_cycles() / hertz,
            # a store takes half a round trip to L2, the load of another CTA a whole one
            Unit.HANDOVERS: self.recording.handovers * 1.5 * float(gpu.l2.latency) / (float(gpu.clock.most) * 1e6),
        }

    def _pipe_cycles(self, counts: Ints, pipes: tuple[int, ...]) -> float:
        """Cycles that instructions take of some pipes, which share them evenly, summed over all sub-cores."""
        taken = np.where(np.isin(self.ops.pipe, pipes), self.ops.cost, 0) / codes.TICK
        # either half of the FMA pipe may execute them
        halves = 2 if codes.EITHER in pipes else 1
        return float((self._by_path(taken)[self.streams.trace_path] * counts).sum()) / halves

    def _l2_cycles(self) -> float:
        """Cycles of L2, which serves loads and stores in parallel; atomics have a unit of their own."""
        taken, what = self.events.l2 * event_counts(self.recording) * self.coded / codes.TICK, self.events.what
        stores = np.isin(what, [codes.STORE, codes.BULK_STORE])
        loads = np.isin(what, [codes.LOAD, codes.CP_ASYNC, codes.BULK_LOAD])
        return float(max(taken[loads].sum(), taken[stores].sum()))

    def _by_path(self, of_op: Floats) -> Floats:
        """Sums of a per-instruction figure over each path."""
        whole = np.add.reduceat(np.append(of_op[self.streams.op], 0.0), self.streams.path_start[:-1])
        return np.where(np.diff(self.streams.path_start) > 0, whole, 0.0)

    def _product_cycles(self, counts: Ints) -> float:
        """Cycles of tensor cores, at the rates of wgmma and tcgen05, summed over all SMs."""
        products = self.events.what == codes.PRODUCT
        work = float((self.events.extra * self.events.l2 * event_counts(self.recording))[products].sum()) / codes.TICK
        ops = self.streams.ops
        flops = 2.0 * ops.m * ops.n * ops.k * np.maximum(ops.bits, 4) / 16 * (ops.act == 9)
        # a wgmma is in the streams of four warps
        flops = np.where(self.ops.what == codes.WGMMA, flops / 4, flops)
        rate = float(self.gpu.tensor.wgmma) or float(self.gpu.tensor.mma)
        if not rate or not flops.any():
            return work
        return work + float((self._by_path(flops)[self.streams.trace_path] * counts).sum() / rate)


def _state(ctas: int, warps: int, syncs: int, subs: int) -> tuple[Ints, ...]:
    """Initial state: warps, CTAs, outstanding arrivals and times of completions, groups, and the queue of sub-cores."""
    of_warps = np.zeros((ctas * warps, codes.WARP_COLUMNS), np.int64)
    numbers = np.arange(ctas * warps)
    of_warps[:, codes.W_CTA] = numbers // warps
    of_warps[:, codes.W_STEPS] = numbers * codes.NEXT_WARP % codes.TICK
    of_warps[:, codes.W_DRAWS] = numbers * codes.NEXT_DRAW % codes.TICK
    of_ctas = np.zeros((ctas, codes.CTA_COLUMNS), np.int64)
    of_ctas[:, codes.C_FIRST] = np.arange(ctas) * warps
    of_ctas[:, codes.C_WARPS] = warps
    return (
        of_warps, of_ctas, np.zeros((ctas, syncs), np.int64), np.zeros((ctas, syncs), np.int64),
        np.zeros((ctas * warps, codes.GROUP_KINDS, codes.GROUPS), np.int64), new_agenda(subs),
    )  # fmt: skip


def _servers(groups: int, subs: int) -> tuple[Ints, ...]:
    """When the units of sub-cores, SMs and the GPU are free, and how long they have worked."""
    shapes = ((subs, codes.PIPES), (groups, codes.SM_SERVERS), (codes.GPU_SERVERS,))
    return (*(np.zeros(shape, np.int64) for shape in shapes), *(np.zeros(shape, np.int64) for shape in shapes))


__all__ = ["Deal", "deal", "ticks", "time_launch"]
