"""Streams: the machine instructions each warp of a launch issued, in order, with what the recording says of each.

`Ops` is the static table of instructions; `Streams` says for every warp which of them it issued. Both come out the same
whether they were made of machine code or of PTX, so that what times them does not ask.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Bytes = NDArray[np.int8]
Flags = NDArray[np.bool_]

# a barrier field of an instruction that sets none
NO_BARRIER = 7
# an instruction without an event
NO_EVENT = -1


class Pipe(IntEnum):
    """The unit that takes an instruction. Those up to `SHUFFLE` are the pipes of a GPU's file, by the same names."""

    FMA = 0
    INTEGER = 1
    MULTIPLY = 2
    # multiplications whose products have 64 bits, or their high halves
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
    # bar.sync and its kin, cluster barriers; mbarriers
    BARRIER = 21
    MBARRIER = 22
    FENCE = 23
    # the datapath of uniform registers, once a warp
    UNIFORM = 24
    BRANCH = 25
    # special registers, votes, NOP, waits for groups and counters: they take an issue slot and little else
    SPECIAL = 26
    VOTE = 27
    CONTROL = 28


class Act(IntEnum):
    """What an instruction of a memory or tensor unit does there."""

    NONE = 0
    LOAD = 1
    STORE = 2
    ATOMIC = 3
    REDUCTION = 4
    # arrive, wait, set up: barriers; commit and wait: groups
    ARRIVE = 5
    WAIT = 6
    COMMIT = 7
    PREFETCH = 8
    MULTIPLY = 9


@dataclass(frozen=True)
class Ops:
    """Machine instructions, one row each, in the order of the code (functions one after the other).

    The control fields are those of the machine: after issue the warp waits `stall` cycles before its next instruction;
    `yields` where the scheduler is asked to take another warp; `write_barrier` is the counter (0 to 5, or NO_BARRIER)
    that is raised at issue and lowered when the result is there, `read_barrier` the one lowered when the operands were
    read; `wait_mask` has a bit for each counter that must be 0 before the instruction issues. The expansion of PTX
    fills them by the same rules, so that nothing else need be known of registers.
    """

    # as it was printed, without operands: "LDG.E.128", and the operands after it
    mnemonic: tuple[str, ...]
    operands: tuple[str, ...]
    pipe: Bytes
    act: Bytes
    # bytes a lane moves; of a MUFU, mma or branch 0
    width: Ints
    # of a multiplication of matrices: m, n, k, bits of an element of A and B; 0 elsewhere
    m: Ints
    n: Ints
    k: Ints
    bits: Bytes
    stall: Bytes
    yields: Flags
    write_barrier: Bytes
    read_barrier: Bytes
    wait_mask: Bytes
    # registers it reads from the even and the odd bank of its sub-core, those kept for reuse left out: a bank gives one
    # a cycle
    even_reads: Bytes
    odd_reads: Bytes
    # the instruction may issue and do nothing for any lane
    predicated: Flags
    # it accesses memory though no event was recorded for it: spills, whose lanes all take part
    implicit: Flags
    # a branch to an earlier instruction
    backward: Flags
    # line of the PTX text, 0 where it is unknown; index of the PTX instruction in the recording, -1 where none is meant
    line: Ints
    instruction: Ints
    # byte address in its function's code (-1 in an expansion): what an instruction cache sees
    address: Ints

    def __len__(self) -> int:
        return len(self.mnemonic)

    def text(self, op: int) -> str:
        """One instruction as it is printed."""
        return f"{self.mnemonic[op]} {self.operands[op]}".rstrip()


@dataclass(frozen=True)
class Unjoined:
    """Why part of a launch was timed by the expansion though there is machine code, and how many steps it concerns."""

    reason: str
    steps: int


@dataclass(frozen=True)
class Streams:
    """What the warps of each trace of a recording issued.

    A path is a sequence of ops that one or more warps issued; warps that went the same way share it. Of path p,
    `op[path_start[p] : path_start[p + 1]]` are the instructions, and `event` beside it the number of the recorded event
    counted from the warp's first one, or NO_EVENT: a memory instruction without an event did nothing (its predicate was
    false for every lane) unless `ops.implicit` says otherwise. An event may stand at several ops (an access that was
    split: each op's `width` is its share) or at none (the compiler removed or merged it).

    Streams follow the recording's traces: trace t went path `trace_path[t]`, and its first event in the recording is
    `first_event[t]`.
    """

    ops: Ops
    path_start: NDArray[np.int64]
    op: Ints
    event: Ints
    trace_path: Ints
    first_event: NDArray[np.int64]
    # per thread at launch, and what did not fit into them
    registers: int
    spill_bytes: int
    shared_bytes: int
    local_bytes: int
    # "SASS of ptxas 13.0.88", or something that begins with "expansion of PTX"
    source: str
    # share of the recorded steps whose machine code was found; 0 for an expansion
    joined: float
    unjoined: tuple[Unjoined, ...] = ()
    # opcodes that the table of pipes does not know; they are timed as plain integer instructions
    unknown: tuple[str, ...] = ()
    # recorded events at no op: removed or merged by the compiler
    events_without_op: int = 0

    def of_trace(self, trace: int) -> tuple[Ints, Ints]:
        """The ops that the warps of a trace issued and, beside each, its event in the recording or NO_EVENT."""
        path = int(self.trace_path[trace])
        part = slice(int(self.path_start[path]), int(self.path_start[path + 1]))
        relative = self.event[part]
        events = np.where(relative == NO_EVENT, NO_EVENT, relative + self.first_event[trace])
        return self.op[part], events.astype(np.int32)

    def paths(self) -> Iterator[tuple[Ints, Ints]]:
        """Ops and relative events of each path."""
        for first, last in zip(self.path_start[:-1], self.path_start[1:], strict=True):
            yield self.op[first:last], self.event[first:last]
