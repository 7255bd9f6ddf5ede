"""Streams: the machine instructions that each warp of a launch issued, with their recorded events.

`Ops` is the static table of instructions; `Streams` lists for every warp which of them it issued. The format is the
same for machine code and for expanded PTX, so that the time model does not distinguish them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Bytes = NDArray[np.int8]
Flags = NDArray[np.bool_]

# value of a scoreboard field if none is set
NO_BARRIER = 7
# an instruction without an event
NO_EVENT = -1


class Pipe(IntEnum):
    """The pipe of an instruction. Those up to `SHUFFLE` are the pipes of a GPU's file, by the same names."""

    FMA = 0
    INTEGER = 1
    MULTIPLY = 2
    # integer multiplications with a 64-bit product, or its high half
    WIDE = 3
    MINMAX = 4
    HALF2 = 5
    DOUBLE = 6
    CONVERT = 7
    MUFU = 8
    SHUFFLE = 9
    # memory: loads, stores, atomics and reductions of global (and generic) memory, through L1
    GLOBAL = 10
    LOCAL = 11
    SHARED = 12
    LDMATRIX = 13
    STMATRIX = 14
    # constant bank: kernel parameters, constants of the module
    CONSTANT = 15
    # cp.async; bulk and tensor copies and prefetches (TMA)
    CP_ASYNC = 16
    BULK = 17
    MMA = 18
    WGMMA = 19
    TCGEN05 = 20
    # bar.sync and similar, cluster barriers; mbarriers
    BARRIER = 21
    MBARRIER = 22
    FENCE = 23
    # the uniform datapath, which works once per warp
    UNIFORM = 24
    BRANCH = 25
    # special registers, votes, NOP, waits for groups and counters: they take an issue slot and little else
    SPECIAL = 26
    VOTE = 27
    CONTROL = 28


class Act(IntEnum):
    """What an instruction of a memory or tensor pipe does."""

    NONE = 0
    LOAD = 1
    STORE = 2
    ATOMIC = 3
    REDUCTION = 4
    # barriers: arrive, wait, initialise; groups: commit, wait
    ARRIVE = 5
    WAIT = 6
    COMMIT = 7
    PREFETCH = 8
    MULTIPLY = 9


@dataclass(frozen=True)
class Ops:
    """Machine instructions, one row each, in the order of the code (functions one after the other).

    The control fields are the machine's own: after issue the warp waits `stall` cycles before its next instruction;
    `yields` asks the scheduler to switch to another warp; `write_barrier` is the scoreboard (0 to 5, or NO_BARRIER)
    that is set at issue and released when the result is ready, `read_barrier` the one released when the operands were
    read; `wait_mask` has a bit for each scoreboard that must be released before the instruction issues. The expansion
    of PTX sets them by the same rules, so that dependences need not be derived from registers.
    """

    # the name as printed, such as "LDG.E.128", and the operands
    mnemonic: tuple[str, ...]
    operands: tuple[str, ...]
    pipe: Bytes
    act: Bytes
    # bytes per lane of an access; 0 for a MUFU, mma or branch
    width: Ints
    # for matrix products: m, n, k, bits of an element of A and B; else 0
    m: Ints
    n: Ints
    k: Ints
    bits: Bytes
    stall: Bytes
    yields: Flags
    write_barrier: Bytes
    read_barrier: Bytes
    wait_mask: Bytes
    # registers read from the even and the odd bank of the sub-core, without those in the reuse cache: a bank delivers
    # one per cycle
    even_reads: Bytes
    odd_reads: Bytes
    # guarded: the instruction may issue without effect
    predicated: Flags
    # accesses memory without a recorded event: a spill, for all lanes
    implicit: Flags
    # a branch to an earlier instruction
    backward: Flags
    # line of the PTX text, 0 if unknown; row of the PTX instruction in the recording, -1 if unknown
    line: Ints
    instruction: Ints
    # byte address in its function's code (-1 in an expansion), for the instruction cache
    address: Ints

    def __len__(self) -> int:
        return len(self.mnemonic)

    def text(self, op: int) -> str:
        """An instruction as printed."""
        return f"{self.mnemonic[op]} {self.operands[op]}".rstrip()


@dataclass(frozen=True)
class Unjoined:
    """Why steps of a launch were timed by the expansion although there is machine code, and how many steps."""

    reason: str
    steps: int


@dataclass(frozen=True)
class Streams:
    """The instructions that the warps of each trace of a recording issued.

    A path is a sequence of ops that one or more warps issued; warps with the same path share it. Of path p,
    `op[path_start[p] : path_start[p + 1]]` are the instructions, and `event` in parallel the number of the recorded
    event, counted from the warp's first one, or NO_EVENT: a memory instruction without an event did nothing (its
    predicate was false for every lane) unless `ops.implicit` says otherwise. An event may be at several ops (an access
    that was split: each op's `width` is its share) or at none (the compiler removed or merged it).

    Trace t of the recording has the path `trace_path[t]`, and its first event in the recording is `first_event[t]`.
    """

    ops: Ops
    path_start: NDArray[np.int64]
    op: Ints
    event: Ints
    trace_path: Ints
    first_event: NDArray[np.int64]
    # registers per thread at launch, and bytes spilled
    registers: int
    spill_bytes: int
    shared_bytes: int
    local_bytes: int
    # "SASS of ptxas 13.0.88", or something that begins with "expansion of PTX"
    source: str
    # fraction of the recorded steps whose machine code was found; 0 for an expansion
    joined: float
    unjoined: tuple[Unjoined, ...] = ()
    # opcodes that the table of pipes does not know; they are timed as plain integer instructions
    unknown: tuple[str, ...] = ()
    # recorded events without an op: removed or merged by the compiler
    events_without_op: int = 0
    # why there is no machine code, where there is none
    no_code: str = ""

    def of_trace(self, trace: int) -> tuple[Ints, Ints]:
        """The ops that the warps of a trace issued, and for each its event in the recording or NO_EVENT."""
        path = int(self.trace_path[trace])
        part = slice(int(self.path_start[path]), int(self.path_start[path + 1]))
        relative = self.event[part]
        events = np.where(relative == NO_EVENT, NO_EVENT, relative + self.first_event[trace])
        return self.op[part], events.astype(np.int32)

    def paths(self) -> Iterator[tuple[Ints, Ints]]:
        """Ops and relative events of each path."""
        for first, last in zip(self.path_start[:-1], self.path_start[1:], strict=True):
            yield self.op[first:last], self.event[first:last]
