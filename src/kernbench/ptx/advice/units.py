"""Mends of instructions: work that need not be done, or that a faster unit could do."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernbench.ptx.advice.flow import accesses, converts
from kernbench.ptx.advice.mend import Flags, Launch, Mend, Sure, kept, without
from kernbench.ptx.sass.streams import Act, Pipe, Streams
from kernbench.ptx.time.changes import Given

# a product of tensor cores in place of additions of products, and how many of these it does for a warp
M, N, K = 16, 8, 16
_ADDITIONS = M * N * K // 32
# for each load of operands of tensor cores, how many loads of single ones there were
_OPERANDS = 16
# sums that are fewer of the instructions are no product of matrices
PART = 0.2


def units(launch: Launch) -> Iterator[Mend]:
    """All mends of instructions."""
    yield from _spills(launch)
    yield from _double(launch)
    yield from _products(launch)


def _dearest(launch: Launch, ops: Flags) -> int:
    """The line of the instruction that is issued most, of some."""
    stalls = launch.again.time.stalls
    return int(launch.streams.ops.line[int(np.argmax((stalls.issued + stalls.cycles.sum(axis=1)) * ops))])


def _spills(launch: Launch) -> Iterator[Mend]:
    spilled = launch.streams.ops.implicit
    if not spilled.any():
        return
    message = f"{launch.streams.spill_bytes:,} bytes of registers are spilled to local memory"
    hint = "a higher limit of registers (launch bounds), fewer live values, a smaller tile, or more threads"
    given = Given(streams=without(launch.streams, spilled))
    yield Mend("spills", _dearest(launch, spilled), message, hint, Sure.SURE, given)


def _double(launch: Launch) -> Iterator[Mend]:
    """Double precision between numbers of 32 bits in memory."""
    ops, opcodes = launch.streams.ops, launch.recording.instructions.opcode
    if any(".f64" in opcode and accesses(opcode) for opcode in opcodes):
        return
    double = ops.pipe == Pipe.DOUBLE
    if not double.any():
        return
    rows = np.array([converts(opcode) and ".f64" in opcode for opcode in opcodes] or [False])
    conversions = rows[np.maximum(ops.instruction, 0)] & (ops.instruction >= 0)
    pipes = np.where(double, np.int8(Pipe.FMA), ops.pipe).astype(np.int8)
    streams = replace(launch.streams, ops=replace(ops, pipe=pipes))
    message = "numbers of 32 bits are converted to double precision and back"
    hint = "write constants as 0.5f, and functions as sqrtf; or convert once, before and after"
    given = Given(streams=without(streams, conversions & ~double))
    yield Mend("double precision", _dearest(launch, double | conversions), message, hint, Sure.LIKELY, given)


def _products(launch: Launch) -> Iterator[Mend]:
    """Sums of products of 16 bits on CUDA cores, as if tensor cores did them."""
    ops = launch.streams.ops
    known, row = ops.instruction >= 0, np.maximum(ops.instruction, 0)
    sums, operands = (known & rows[row] for rows in launch.flow.of_halves())
    sums &= ops.pipe <= Pipe.HALF2
    issued = launch.again.time.stalls.issued
    if not sums.any() or issued[sums].sum() < PART * issued.sum():
        return
    message = "products of 16-bit numbers are added up on CUDA cores"
    hint = "mma.sync or wgmma (wmma, CUTLASS, tl.dot), if it is a product of matrices"
    given = Given(streams=_multiplied(launch.streams, sums, operands))
    yield Mend("products by fma", _dearest(launch, sums), message, hint, Sure.AT_MOST, given)


def _multiplied(streams: Streams, sums: Flags, operands: Flags) -> Streams:
    """The streams with products of tensor cores in place of sums, and of the loads of their operands only a few."""
    ops = streams.ops
    memory = operands & (ops.act == Act.LOAD)
    pipe = np.where(sums, np.int8(Pipe.MMA), ops.pipe).astype(np.int8)
    act = np.where(sums, np.int8(Act.MULTIPLY), ops.act).astype(np.int8)
    m, n, k = (np.where(sums, size, old).astype(np.int32) for size, old in ((M, ops.m), (N, ops.n), (K, ops.k)))
    bits = np.where(sums, np.int8(16), ops.bits).astype(np.int8)
    changed = replace(streams, ops=replace(ops, pipe=pipe, act=act, bits=bits, m=m, n=n, k=k))
    of_sums, of_memory = sums[streams.op], memory[streams.op]
    here = ~(sums | operands)[streams.op]
    for first, last in zip(streams.path_start[:-1].tolist(), streams.path_start[1:].tolist(), strict=True):
        part = slice(first, last)
        here[part] |= of_sums[part] & (np.cumsum(of_sums[part]) % _ADDITIONS == 0)
        here[part] |= of_memory[part] & (np.cumsum(of_memory[part]) % _OPERANDS == 0)
    return kept(changed, here)
