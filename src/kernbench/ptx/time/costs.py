"""What instructions and events cost on a GPU, as tables that the compiled model reads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.machine import Gpu
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import SECTOR, LaunchRecording
from kernbench.ptx.sass.streams import Act, Ops, Pipe
from kernbench.ptx.time import codes
from kernbench.ptx.time.result import Reason

Ints = NDArray[np.int64]
# pipes of the streams: the pipe of the model, and the figures of the GPU's file that say how long it is taken
_PIPES = {
    Pipe.FMA: (codes.EITHER, "fma"),
    Pipe.INTEGER: (codes.ALU, "integer"),
    Pipe.MULTIPLY: (codes.HEAVY, "multiply"),
    Pipe.MINMAX: (codes.ALU, "minmax"),
    Pipe.HALF2: (codes.EITHER, "half2"),
    Pipe.DOUBLE: (codes.FP64, "double"),
    Pipe.CONVERT: (codes.ALU, "convert"),
    Pipe.MUFU: (codes.XU, "mufu"),
}
_REASONS = {
    Pipe.GLOBAL: Reason.GLOBAL,
    Pipe.LOCAL: Reason.GLOBAL,
    Pipe.SHARED: Reason.SHARED,
    Pipe.LDMATRIX: Reason.SHARED,
    Pipe.STMATRIX: Reason.SHARED,
    Pipe.SHUFFLE: Reason.SHARED,
    Pipe.CP_ASYNC: Reason.GROUP,
    Pipe.BULK: Reason.GROUP,
    Pipe.WGMMA: Reason.TENSOR,
    Pipe.MMA: Reason.TENSOR,
    Pipe.BARRIER: Reason.BARRIER,
    Pipe.MBARRIER: Reason.MBARRIER,
    Pipe.FENCE: Reason.FENCE,
    Pipe.CONTROL: Reason.GROUP,
}
_MEMORY = (Pipe.GLOBAL, Pipe.LOCAL, Pipe.SHARED, Pipe.LDMATRIX, Pipe.STMATRIX, Pipe.CP_ASYNC)
_VARIABLE = (Pipe.MUFU, Pipe.CONSTANT, Pipe.SPECIAL, Pipe.VOTE, Pipe.UNIFORM, Pipe.DOUBLE)

# events by what the model does for them, and for groups which
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
    Kind.CLUSTER_LOAD: codes.SHARED,
    Kind.CLUSTER_STORE: codes.SHARED,
    Kind.CLUSTER_ATOMIC: codes.SHARED,
    Kind.MATRIX_LOAD: codes.SHARED,
    Kind.MATRIX_STORE: codes.SHARED,
    Kind.ASYNC_COPY: codes.CP_ASYNC,
    Kind.ASYNC_COPY_COMMIT: codes.COMMIT,
    Kind.ASYNC_COPY_WAIT: codes.WAIT_GROUP,
    Kind.ASYNC_COPY_ARRIVE: codes.COPY_ARRIVE,
    Kind.BULK_LOAD: codes.BULK_LOAD,
    Kind.BULK_CLUSTER: codes.BULK_LOAD,
    Kind.BULK_STORE: codes.BULK_STORE,
    Kind.BULK_REDUCE: codes.BULK_STORE,
    Kind.BULK_COMMIT: codes.COMMIT,
    Kind.BULK_WAIT: codes.WAIT_GROUP,
    Kind.WGMMA: codes.WGMMA,
    Kind.WGMMA_COMMIT: codes.COMMIT,
    Kind.WGMMA_WAIT: codes.WAIT_GROUP,
    Kind.BARRIER_SYNC: codes.BARRIER_SYNC,
    Kind.BARRIER_ARRIVE: codes.BARRIER_ARRIVE,
    Kind.CLUSTER_ARRIVE: codes.BARRIER_ARRIVE,
    Kind.CLUSTER_WAIT: codes.NOTHING,
    Kind.MBARRIER_ARRIVE: codes.ARRIVE,
    Kind.MBARRIER_EXPECT: codes.ARRIVE,
    Kind.MBARRIER_WAIT: codes.WAIT,
    Kind.FENCE: codes.FENCE,
    Kind.PROXY_FENCE: codes.FENCE,
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
_MBARRIER_KINDS = (Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT, Kind.MBARRIER_WAIT, Kind.BULK_LOAD,
                   Kind.BULK_CLUSTER, Kind.ASYNC_COPY_ARRIVE)  # fmt: skip
_GLOBAL = (Kind.GLOBAL_LOAD, Kind.GLOBAL_STORE, Kind.GLOBAL_ATOMIC, Kind.GLOBAL_REDUCTION, Kind.LOCAL_LOAD,
           Kind.LOCAL_STORE, Kind.ASYNC_COPY, Kind.BULK_LOAD, Kind.BULK_STORE, Kind.BULK_REDUCE)  # fmt: skip
_STORES = (Kind.GLOBAL_STORE, Kind.LOCAL_STORE, Kind.BULK_STORE, Kind.BULK_REDUCE, Kind.GLOBAL_REDUCTION,
           Kind.GLOBAL_ATOMIC)  # fmt: skip
_MAKE_DIRTY = (Kind.GLOBAL_STORE, Kind.BULK_STORE)
# loads that ask L2 at once
_PAST_L1 = (".cg", ".volatile", ".relaxed", ".acquire", ".cv", ".mmio")


def ticks(cycles: float) -> int:
    """Cycles as the model counts them."""
    return round(float(cycles) * codes.TICK)


def constants(gpu: Gpu) -> Ints:
    """Figures of a GPU that no table holds, in ticks."""
    made = np.zeros(codes.CONSTANTS, np.int64)
    clock = float(gpu.clock.most) / 1e3
    for name, value in {
        codes.ISSUE: gpu.issue.interval,
        codes.BRANCH_LOST: gpu.issue.branch_back,
        codes.ADDRESS: gpu.shared.address_interval,
        # a byte of each lane
        codes.SUB_CORE_BYTE: 32 / float(gpu.shared.sub_core_bytes_per_cycle),
        codes.LATENCY_L1: gpu.l1.latency - 1,
        codes.LATENCY_L2: gpu.l2.latency,
        codes.LATENCY_HBM: gpu.hbm.latency,
        codes.LATENCY_LOADED: gpu.hbm.loaded,
        codes.LATENCY_ATOMIC: gpu.l2.atomic_latency,
        codes.LATENCY_STORE: gpu.l2.latency,
        codes.BARRIER: gpu.barriers.sync,
        codes.BARRIER_WARP: gpu.barriers.sync_warp,
        codes.TRY_WAIT: gpu.barriers.try_wait,
        codes.WAKE: gpu.barriers.try_wait,
        codes.MBARRIER: gpu.barriers.interval,
        codes.BULK_ISSUE: gpu.copies.bulk_issue,
        codes.BULK_EXTRA: gpu.copies.bulk_extra,
        codes.TENSOR_TAIL: gpu.tensor.wgmma_tail,
        codes.FENCE_COST: gpu.barriers.proxy_fence,
        codes.MEMBAR: gpu.l2.latency,
        codes.CTA_INTERVAL: gpu.launch.cta * clock,
        codes.SLOT_REUSE: gpu.launch.slot_reuse,
        codes.WARP_START: gpu.launch.first,
    }.items():
        made[name] = ticks(value)
    made[codes.TENSOR_QUEUE] = int(gpu.tensor.wgmma_queue)
    made[codes.L2_CAPACITY] = int(gpu.l2.turnover) * codes.PART
    made[[codes.READ_COST, codes.WRITE_COST, codes.WRITE_MIXED]] = _memory_costs(gpu)
    return made


def _memory_costs(gpu: Gpu) -> list[int]:
    """Of a part of a byte that is read, that is written alone, and how much more if all other bytes are read."""
    cycle = float(gpu.hbm.bandwidth) * 1e3 / float(gpu.clock.most)
    scale = codes.TICK * (1 << codes.COST_SHIFT) / codes.PART
    read, write = 1 / (cycle * float(gpu.hbm.read_share)), 1 / (cycle * float(gpu.hbm.write_share))
    # half of what a copy moves is read
    mixed = 2 * max(2 / (cycle * float(gpu.hbm.copy_share)) - read - write, 0.0)
    return [round(cost * scale) for cost in (read, write, mixed)]


@dataclass(frozen=True)
class OpCosts:
    """Columns of the table of instructions, as the model takes them."""

    what: Ints
    pipe: Ints
    cost: Ints
    latency: Ints
    stall: Ints
    write: Ints
    read: Ints
    wait: Ints
    width: Ints
    reason: Ints
    # whether it goes through the queue of the memory pipeline
    queued: Ints
    # machine code has no instruction that commits a group of products: the last of a group says so
    closes: Ints

    def table(self) -> Ints:
        """A row each; `codes` names the columns."""
        columns = (self.what, self.pipe, self.cost, self.latency, self.stall, self.write, self.read, self.wait,
                self.width, self.reason, self.queued, self.closes)  # fmt: skip
        return np.ascontiguousarray(np.stack(columns, axis=1))


def op_costs(ops: Ops, gpu: Gpu) -> OpCosts:
    """One row for each instruction."""
    rows = [_op(ops, number, gpu) for number in range(len(ops))]
    what, pipe, cost, latency = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    closes = [pipe == Pipe.WGMMA and "gsb" in text for pipe, text in zip(ops.pipe, ops.operands, strict=True)]
    closes = [one and act == Act.MULTIPLY for one, act in zip(closes, ops.act, strict=True)]
    reason = np.array([_REASONS.get(Pipe(int(one)), Reason.MATH) for one in ops.pipe], np.int64)
    barrier = np.minimum(ops.write_barrier.astype(np.int64) & 7, 7)
    return OpCosts(
        what, pipe, cost, latency, ops.stall.astype(np.int64) * codes.TICK, barrier, ops.read_barrier.astype(np.int64),
        ops.wait_mask.astype(np.int64), ops.width.astype(np.int64), reason,
        np.isin(ops.pipe, [int(pipe) for pipe in (*_MEMORY, Pipe.SHUFFLE)]).astype(np.int64),
        np.array(closes, np.int64),
    )  # fmt: skip


def _op(ops: Ops, number: int, gpu: Gpu) -> tuple[int, int, int, int]:
    """What an instruction does, its pipe, for how many ticks it takes it, and its latency."""
    pipe, passes = Pipe(int(ops.pipe[number])), max(int(ops.passes[number]), 1)
    if pipe in _PIPES:
        taken, name = _PIPES[pipe]
        figures = getattr(gpu.pipes, name)
        # either half of the FMA pipe takes an instruction every other cycle
        interval = figures.interval * (2 if taken == codes.EITHER else 1) * passes
        return codes.VARIABLE, taken, ticks(interval), ticks(figures.latency)
    if pipe in (Pipe.MMA, Pipe.WGMMA):
        return _product(ops, number, pipe, gpu)
    if pipe == Pipe.SHUFFLE:
        return codes.SHARED, codes.NO_PIPE, ticks(1), ticks(gpu.pipes.shuffle.latency - 1)
    if pipe in _MEMORY:
        return _memory_op(ops, number, pipe, gpu)
    if pipe == Pipe.FENCE:
        far = any(word in ops.mnemonic[number] for word in ("GPU", "SYS", "GL", "VC"))
        cost = gpu.l2.latency if far else gpu.barriers.proxy_fence if "ASYNC" in ops.mnemonic[number] else 0.0
        return codes.FENCE, codes.NO_PIPE, int(far), ticks(cost)
    if pipe == Pipe.BRANCH:
        return codes.BRANCH, codes.NO_PIPE, 0, 0
    # special registers and constants answer as shared memory does
    latency = gpu.shared.latency if pipe in _VARIABLE and pipe != Pipe.UNIFORM else gpu.pipes.integer.latency
    return codes.PLAIN, codes.NO_PIPE, 0, ticks(latency)


def _memory_op(ops: Ops, number: int, pipe: Pipe, gpu: Gpu) -> tuple[int, int, int, int]:
    """Of the memory pipeline: without an event it does nothing, but for spills."""
    matrix = pipe in (Pipe.LDMATRIX, Pipe.STMATRIX)
    latency = gpu.shared.ldmatrix_latency - gpu.shared.ldmatrix if matrix else gpu.shared.latency - 1
    if not ops.implicit[number]:
        return codes.PLAIN, codes.NO_PIPE, 0, ticks(latency)
    stage = max(int(ops.width[number]) * 32 / gpu.l1.bytes_per_cycle, 1.0)
    return codes.SHARED, codes.NO_PIPE, ticks(stage), ticks(gpu.l1.latency - 1)


def _product(ops: Ops, number: int, pipe: Pipe, gpu: Gpu) -> tuple[int, int, int, int]:
    """A multiplication of matrices: its part of a sub-core's tensor core."""
    m, n, k, bits = (int(column[number]) for column in (ops.m, ops.n, ops.k, ops.bits))
    if not m or Act(int(ops.act[number])) != Act.MULTIPLY:
        return codes.PLAIN, codes.NO_PIPE, 0, 0
    wide = pipe == Pipe.WGMMA
    rate = gpu.tensor.wgmma if wide else gpu.tensor.mma
    # a warp of a wgmma has a quarter of it in a quarter of the SM
    of_sub_core = 2 * m * n * k / rate * (1 if wide else 4) * max(bits, 4) / 16
    if not wide:
        return codes.MMA, codes.TENSOR, ticks(of_sub_core), ticks(gpu.tensor.mma_latency)
    # instead of a latency: a quarter of the time in which B, and A unless it is in registers, pass out of shared memory
    given = ops.operands[number].split(", ")
    registers = "gdesc" in ops.operands[number] and len(given) > 1 and not given[1].startswith("gdesc")
    nbytes = (n * k + (0 if registers else m * k)) * max(bits, 4) / 8
    return codes.WGMMA, codes.TENSOR, ticks(of_sub_core), ticks(nbytes / 4 / gpu.shared.bytes_per_cycle)


@dataclass(frozen=True)
class EventCosts:
    """Columns of the events, as the model takes them, and the bytes of each by level."""

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
    syncs: int
    l2_bytes: NDArray[np.float64]
    hbm_bytes: NDArray[np.float64]

    def table(self) -> Ints:
        """A row each; `codes` names the columns."""
        columns = (self.what, self.stage, self.port, self.l2, self.hbm, self.nbytes, self.lanes, self.sync, self.phase,
                self.extra)  # fmt: skip
        return np.ascontiguousarray(np.stack(columns, axis=1))


def event_costs(recording: LaunchRecording, gpu: Gpu, l1_bytes: float) -> EventCosts:
    """One row for each event: what it takes of every server it passes."""
    events = recording.events
    kind = events.kind
    what = np.full(256, codes.NOTHING, np.int64)
    for one, code in _WHAT.items():
        what[one] = code
    is_global = np.isin(kind, [int(one) for one in _GLOBAL])
    l2_bytes, hbm_bytes = _levels(recording, gpu, l1_bytes)
    l2_bytes, hbm_bytes = np.where(is_global, l2_bytes, 0.0), np.where(is_global, hbm_bytes, 0.0)
    stage = np.where(
        is_global,
        np.maximum(events.lines, np.maximum(events.sectors * SECTOR / float(gpu.l1.bytes_per_cycle), 1)),
        np.maximum(events.wavefronts, 1) * float(gpu.shared.conflict),
    )
    stores = np.isin(kind, [int(one) for one in _STORES])
    bulk = np.isin(kind, [int(Kind.BULK_LOAD), int(Kind.BULK_STORE), int(Kind.BULK_REDUCE)])
    port_rate = np.where(bulk, float(gpu.copies.bulk_bytes_per_cycle), float(gpu.l2.sm_bytes_per_cycle))
    l2_rate = np.where(stores, float(gpu.l2.write_bytes_per_cycle), float(gpu.l2.bytes_per_cycle))
    sync, syncs = _sync_numbers(recording)
    extra = np.zeros(len(kind), np.int64)
    for one, group in _GROUP_OF.items():
        extra[kind == one] = group
    atomics = np.isin(kind, [int(Kind.GLOBAL_ATOMIC), int(Kind.GLOBAL_REDUCTION)])
    extra[atomics] = (events.sectors[atomics] * ticks(gpu.l2.atomic_interval)).astype(np.int64)
    return EventCosts(
        what[kind], _whole(stage), _whole(l2_bytes / port_rate), _whole(l2_bytes / l2_rate),
        np.rint(hbm_bytes * codes.PART).astype(np.int64), events.bytes.astype(np.int64),
        events.lanes.astype(np.int64), sync, events.phase.astype(np.int64), extra, syncs, l2_bytes, hbm_bytes,
    )  # fmt: skip


def _whole(cycles: NDArray[np.float64]) -> Ints:
    return np.rint(cycles * codes.TICK).astype(np.int64)


def _levels(recording: LaunchRecording, gpu: Gpu, l1_bytes: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes of each event that go to L2, and of those the bytes that go to memory, when L2 was cold at first."""
    events = recording.events
    texts = recording.instructions.opcode
    past = np.array([any(word in text for word in _PAST_L1) for text in texts] or [False])[events.instruction]
    loads = np.isin(events.kind, [int(Kind.GLOBAL_LOAD), int(Kind.LOCAL_LOAD)])
    held_l1 = np.exp2(events.own_distance.astype(np.float64)) <= l1_bytes
    l1_hits = np.where(loads & held_l1 & ~past, events.own, 0.0).astype(np.float64)
    sectors = events.sectors.astype(np.float64)
    share = held(np.exp2(events.other_distance.astype(np.float64)), gpu)
    from_memory = events.first + events.other * (1.0 - share)
    asked = np.maximum(sectors - l1_hits, 0.0)
    # what is stored makes lines dirty, whoever brought them
    stores = np.isin(events.kind, [int(one) for one in _MAKE_DIRTY])
    return asked * SECTOR, np.where(stores, asked, np.minimum(from_memory, asked)) * SECTOR


def held(distance: NDArray[np.float64], gpu: Gpu) -> NDArray[np.float64]:
    """Of bytes that were touched so many bytes ago, the share that L2 still holds."""
    capacity = float(gpu.l2.capacity)
    whole = capacity / float(gpu.chip.l2_halves)
    return np.clip((capacity - distance) / max(capacity - whole, 1.0), 0.0, 1.0)


def _sync_numbers(recording: LaunchRecording) -> tuple[Ints, int]:
    """A number for each completion of a barrier or mbarrier, the same for all events that have to do with it."""
    events = recording.events
    barrier = np.isin(events.kind, [int(one) for one in _BARRIER_KINDS])
    mbarrier = np.isin(events.kind, [int(one) for one in _MBARRIER_KINDS])
    concerned = (barrier | mbarrier) & (events.object >= 0) & (events.phase >= 0)
    key = (events.object.astype(np.int64) & 0xFFFFF) << 32 | events.phase.astype(np.int64) << 1 | mbarrier
    numbers = np.full(len(events), -1, np.int64)
    found, inverse = np.unique(key[concerned], return_inverse=True)
    numbers[concerned] = inverse
    return numbers, len(found)
