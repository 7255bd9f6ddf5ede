"""Costs of instructions and constants of a GPU, as tables that the compiled model reads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.errors import MachineError
from kernbench.ptx.machine import Gpu
from kernbench.ptx.sass.streams import Act, Ops, Pipe
from kernbench.ptx.time.engine import codes
from kernbench.ptx.time.engine.reasons import Reason

Ints = NDArray[np.int64]
# pipes of the streams: the pipe of the model, and the parameter in the GPU's file that gives its interval and latency
_PIPES = {
    Pipe.FMA: (codes.EITHER, "fma"),
    Pipe.INTEGER: (codes.ALU, "integer"),
    Pipe.MULTIPLY: (codes.HEAVY, "multiply"),
    Pipe.WIDE: (codes.HEAVY, "wide"),
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
    Pipe.TCGEN05: Reason.TENSOR,
    Pipe.BARRIER: Reason.BARRIER,
    Pipe.MBARRIER: Reason.MBARRIER,
    Pipe.FENCE: Reason.FENCE,
    Pipe.CONTROL: Reason.GROUP,
}
_MEMORY = (Pipe.GLOBAL, Pipe.LOCAL, Pipe.SHARED, Pipe.LDMATRIX, Pipe.STMATRIX, Pipe.CP_ASYNC)
_TENSOR_PIPES = (Pipe.MMA, Pipe.WGMMA, Pipe.TCGEN05)
_VARIABLE = (Pipe.MUFU, Pipe.CONSTANT, Pipe.SPECIAL, Pipe.VOTE, Pipe.UNIFORM, Pipe.DOUBLE)


def needed(gpu: Gpu, name: str, what: str) -> float:
    """A rate of the GPU's file that the launch divides by; an error if the GPU lacks the unit (its rate is 0)."""
    rate = float(gpu.figures()[name])
    if not rate:
        raise MachineError(f"{gpu.name} has no {what}, which this launch uses: {name} is 0 in its file")
    return rate


def ticks(cycles: float) -> int:
    """Converts cycles to ticks."""
    return round(float(cycles) * codes.TICK)


def clock_of(ops: Ops, gpu: Gpu) -> float:
    """The clock in MHz: kernels that use tensor cores run at a clock of their own throughout."""
    multiplies = bool(np.isin(ops.pipe, [int(pipe) for pipe in _TENSOR_PIPES]).any())
    return float(gpu.clock.products if multiplies else gpu.clock.most)


def constants(gpu: Gpu, clock_mhz: float) -> Ints:
    """Constants of a GPU in ticks. Latencies outside the SMs stay the same in time, not in cycles, at another clock."""
    made = np.zeros(codes.CONSTANTS, np.int64)
    clock, pace = clock_mhz / 1e3, clock_mhz / float(gpu.clock.most)
    for name, value in {
        codes.ISSUE: gpu.issue.interval,
        codes.BRANCH_LOST: gpu.issue.branch_back,
        codes.ADDRESS: gpu.shared.address_interval,
        # one byte for each lane
        codes.SUB_CORE_BYTE: 32 / float(gpu.shared.sub_core_bytes_per_cycle),
        codes.LATENCY_L1: gpu.l1.latency - 1,
        codes.LATENCY_L2: gpu.l2.latency * pace,
        codes.LATENCY_HBM: gpu.hbm.latency * pace,
        codes.LATENCY_LOADED: gpu.hbm.loaded * pace,
        codes.LATENCY_WRITING: gpu.hbm.writing * pace,
        codes.LATENCY_ATOMIC: gpu.l2.atomic_latency * pace,
        codes.LATENCY_STORE: gpu.l2.latency * pace,
        codes.BARRIER: gpu.barriers.sync,
        codes.BARRIER_WARP: gpu.barriers.sync_warp,
        codes.TRY_WAIT: gpu.barriers.try_wait,
        codes.WAKE: gpu.barriers.try_wait,
        codes.MBARRIER: gpu.barriers.interval,
        codes.BULK_ISSUE: gpu.copies.bulk_issue,
        codes.BULK_EXTRA: gpu.copies.bulk_extra,
        codes.TENSOR_TAIL: gpu.tensor.wgmma_tail,
        codes.TAKEN_BY_FMA: gpu.tensor.taken_by_fma,
        codes.BESIDE_FMA: 1 / (float(gpu.tensor.beside_fma) or 1.0),
        codes.BESIDE_ALU: 1 / (float(gpu.tensor.beside_minmax) or 1.0),
        codes.BESIDE_MUFU: 1 / (float(gpu.tensor.beside_mufu) or 1.0),
        codes.REMOTE_LATENCY: gpu.cluster.latency - 1,
        codes.ONE_WAY: gpu.cluster.one_way,
        codes.MULTICAST_EXTRA: gpu.cluster.multicast,
        codes.CLUSTER_BARRIER: gpu.cluster.barrier,
        codes.NETWORK_BYTE: 1 / (float(gpu.cluster.bytes_per_cycle) or 1.0),
        codes.PRODUCT_TAIL: gpu.tensor.tcgen05_tail,
        codes.PRODUCT_CHAIN: gpu.tensor.tcgen05_chain,
        codes.TENSOR_LATENCY: gpu.tensor.memory_latency,
        codes.FENCE_COST: gpu.barriers.proxy_fence,
        codes.MEMBAR: gpu.l2.latency * pace,
        codes.CTA_INTERVAL: gpu.launch.cta * clock,
        codes.SLOT_REUSE: gpu.launch.slot_reuse * pace,
        codes.WARP_START: gpu.launch.first * pace,
    }.items():
        made[name] = ticks(value)
    made[codes.TENSOR_QUEUE] = int(gpu.tensor.wgmma_queue)
    # the model divides by this >> 8, so it is at least 256
    made[codes.L2_CAPACITY] = max(int(gpu.l2.turnover) * codes.PART, 256)
    made[[codes.READ_COST, codes.WRITE_COST, codes.WRITE_MIXED]] = _memory_costs(gpu, clock_mhz)
    return made


def _memory_costs(gpu: Gpu, clock_mhz: float) -> list[int]:
    """The cost of a 16th of a byte that is read, or written alone, and the extra cost of mixing reads and writes.

    The extra cost is multiplied by the shares of reads and writes.
    """
    cycle = float(gpu.hbm.bandwidth) * 1e3 / clock_mhz
    scale = codes.TICK * (1 << codes.COST_SHIFT) / codes.PART
    read, write = 1 / (cycle * float(gpu.hbm.read_share)), 1 / (cycle * float(gpu.hbm.write_share))
    # half of a copy's bytes are read, half written
    mixed = 4 * max(2 / (cycle * float(gpu.hbm.copy_share)) - read - write, 0.0)
    return [round(cost * scale) for cost in (read, write, mixed)]


@dataclass(frozen=True)
class OpCosts:
    """Columns of the instruction table, as the model reads them."""

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
    # SASS has no instruction that commits a wgmma group: the last instruction of a group is marked
    closes: Ints
    # a shared-memory atomic that first combines lanes that access the same word
    together: Ints

    def table(self) -> Ints:
        """One row per instruction; `codes` names the columns."""
        columns = (self.what, self.pipe, self.cost, self.latency, self.stall, self.write, self.read, self.wait,
                self.width, self.reason, self.queued, self.closes, self.together)  # fmt: skip
        return np.ascontiguousarray(np.stack(columns, axis=1))


def op_costs(ops: Ops, gpu: Gpu) -> OpCosts:
    """One row per instruction."""
    rows = [_op(ops, number, gpu) for number in range(len(ops))]
    what, pipe, cost, latency = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    closes = [pipe == Pipe.WGMMA and "gsb" in text for pipe, text in zip(ops.pipe, ops.operands, strict=True)]
    closes = [one and act == Act.MULTIPLY for one, act in zip(closes, ops.act, strict=True)]
    reason = np.array([_REASONS.get(Pipe(int(one)), Reason.MATH) for one in ops.pipe], np.int64)
    reason[[text.startswith("NANOSLEEP") for text in ops.mnemonic]] = Reason.SLEEP
    barrier = np.minimum(ops.write_barrier.astype(np.int64) & 7, 7)
    return OpCosts(
        what, pipe, cost, latency, ops.stall.astype(np.int64) * codes.TICK, barrier, ops.read_barrier.astype(np.int64),
        ops.wait_mask.astype(np.int64), ops.width.astype(np.int64), reason,
        np.isin(ops.pipe, [int(pipe) for pipe in (*_MEMORY, Pipe.SHUFFLE)]).astype(np.int64),
        np.array(closes, np.int64), np.array(["POPC.INC" in text for text in ops.mnemonic], np.int64),
    )  # fmt: skip


def _op(ops: Ops, number: int, gpu: Gpu) -> tuple[int, int, int, int]:
    """The action of an instruction, its pipe, how many ticks it occupies it, and its latency."""
    pipe = Pipe(int(ops.pipe[number]))
    if pipe in _PIPES:
        taken, name = _PIPES[pipe]
        figures = getattr(gpu.pipes, name)
        # each half of the FMA pipe accepts an instruction every other cycle
        interval = figures.interval * (2 if taken == codes.EITHER else 1)
        return codes.VARIABLE, taken, ticks(interval), ticks(figures.latency)
    if pipe == Pipe.VOTE and ops.mnemonic[number].startswith("VOTE."):
        # it uses the pipe of comparisons; its consumers wait by a fixed stall
        figures = gpu.pipes.integer
        return codes.VARIABLE, codes.ALU, ticks(figures.interval), ticks(figures.latency)
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
    # special registers and constants have the latency of shared memory
    latency = gpu.shared.latency if pipe in _VARIABLE and pipe != Pipe.UNIFORM else gpu.pipes.integer.latency
    return codes.PLAIN, codes.NO_PIPE, 0, ticks(latency)


def _memory_op(ops: Ops, number: int, pipe: Pipe, gpu: Gpu) -> tuple[int, int, int, int]:
    """An instruction of the memory pipeline; without an event it does nothing, except spills."""
    matrix = pipe in (Pipe.LDMATRIX, Pipe.STMATRIX)
    latency = gpu.shared.ldmatrix_latency - gpu.shared.ldmatrix if matrix else gpu.shared.latency - 1
    if not ops.implicit[number]:
        return codes.PLAIN, codes.NO_PIPE, 0, ticks(latency)
    stage = max(int(ops.width[number]) * 32 / gpu.l1.bytes_per_cycle, 1.0)
    return codes.SHARED, codes.NO_PIPE, ticks(stage), ticks(gpu.l1.latency - 1)


def _product(ops: Ops, number: int, pipe: Pipe, gpu: Gpu) -> tuple[int, int, int, int]:
    """A matrix product: its share of a sub-core's tensor core."""
    m, n, k, bits = (int(column[number]) for column in (ops.m, ops.n, ops.k, ops.bits))
    if not m or Act(int(ops.act[number])) != Act.MULTIPLY:
        return codes.PLAIN, codes.NO_PIPE, 0, 0
    wide = pipe == Pipe.WGMMA
    rate = needed(gpu, "tensor.wgmma", "wgmma") if wide else float(gpu.tensor.mma)
    # each of the four warps of a wgmma does a quarter of it, on a quarter of the SM
    of_sub_core = 2 * m * n * k / rate * (1 if wide else 4) * max(bits, 4) / 16
    if not wide:
        return codes.MMA, codes.TENSOR, ticks(of_sub_core), ticks(gpu.tensor.mma_latency)
    # in place of a latency: a quarter of the time in which B, and A unless it is in registers, is read from shared
    # memory
    given = ops.operands[number].split(", ")
    registers = "gdesc" in ops.operands[number] and len(given) > 1 and not given[1].startswith("gdesc")
    nbytes = (n * k + (0 if registers else m * k)) * max(bits, 4) / 8
    return codes.WGMMA, codes.TENSOR, ticks(of_sub_core), ticks(nbytes / 4 / gpu.shared.bytes_per_cycle)
