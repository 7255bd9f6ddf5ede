"""The recording of a launch: what each warp executed, and the properties of its accesses, in NumPy columns.

It does not depend on a machine, except on the architecture of the PTX, so it can be timed for many machines. Addresses
are not kept: an access has the number of sectors, lines and passes over the banks, and the reuse distance of what it
touches.

Warps that did the same are stored once, as a *trace*; CTAs whose warps have the same traces are of the same *class*.

Everything here is independent of the order in which the emulator runs threads, if the kernel's own control flow is. The
exception are the reuse columns, which are those of the order that was run.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.kinds import Kind

Extent = tuple[int, int, int]
UInt8s = NDArray[np.uint8]
UInt16s = NDArray[np.uint16]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Float32s = NDArray[np.float32]

# bytes of a sector and of a line, and of a bank of shared memory
SECTOR, LINE, BANK, BANKS = 32, 128, 4, 32
# an event without an object or a phase
NONE = -1
# `object` of an mbarrier in another CTA of the cluster: its rank relative to the own one (modulo the cluster's size),
# shifted by
RANK_SHIFT = 20


@dataclass(frozen=True, slots=True, eq=False)
class Instructions:
    """The instructions of the kernel and of the functions it calls, in textual order, a row each.

    Those of a block are consecutive: `block` never decreases. wgmma waits that a compiler left to ptxas are inserted
    before the instruction that needs them, with its line.
    """

    # line of the PTX text, from 1, and the text of the instruction, without guard and semicolon
    line: Int32s
    text: tuple[str, ...]
    # opcode and modifiers: "ld.global.v4.f32"
    opcode: tuple[str, ...]
    # its basic block and its function
    block: Int32s
    function: tuple[str, ...]
    # kind of its events; for generic addresses the space is determined when recording
    kind: UInt8s
    # whether it has a guard predicate
    guarded: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.line)

    def of_block(self, block: int) -> range:
        """The instructions of a block."""
        first, last = np.searchsorted(self.block, (block, block + 1))
        return range(int(first), int(last))


@dataclass(frozen=True, slots=True, eq=False)
class Traces:
    """What warps executed: trace t has the steps `start[t]` to `start[t + 1]`.

    A step is a basic block that a warp ran with some of its lanes: lanes that diverge run separate steps, each with its
    own lanes, until they reconverge. A loop that only waited for others has one iteration, the successful one.
    """

    start: Int64s
    block: Int32s
    lanes: UInt8s
    # events of step i: first_event[i] to first_event[i + 1]; one entry more than there are steps
    first_event: Int64s

    def __len__(self) -> int:
        return len(self.start) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Warp instructions that access memory, synchronise or use an asynchronous unit, in the order of their warp.

    An instruction whose guard is false in all lanes has no event.

    | column | meaning |
    |---|---|
    | instruction | row of `Instructions` |
    | kind | `Kind` |
    | lanes | lanes that executed it |
    | sectors, lines | distinct sectors of 32 bytes and lines of 128 bytes of global or local memory; for a bulk copy |
    |   | all that it touches in global memory. Lines of a shared-memory atomic: its passes over the banks if |
    |   | lanes that access the same word count once |
    | wavefronts | passes over the banks of shared memory (ld, st, atom, ldmatrix, stmatrix, cp.async); for an atomic |
    |   | on global memory the most lanes on one word of a sector, summed over its sectors |
    | bytes | of all lanes: moved by an access or by a bulk copy (as the mbarrier counts them, for each CTA), |
    |   | announced by an expect, or read of A and B from the shared memory of each SM by a tcgen05.mma |
    | object | number of a barrier. mbarrier: its offset in shared memory, plus the rank of its CTA relative to the |
    |   | own one << `RANK_SHIFT`. Bulk load: the mbarrier it completes on. Access to another CTA's shared memory: |
    |   | the relative rank of the first lane's target << `RANK_SHIFT`. tcgen05.mma: M << 16 | N. -1: none |
    | phase | the completion of the object, from 0, that it contributes to, or that it waited for. Commits and |
    |   | members of a group: the number of the group, from 0, in this warp. Waits for groups: how many groups of |
    |   | this warp must have completed. tcgen05.mma: the address of D. nanosleep: nanoseconds. -1: none, or |
    |   | nothing to wait for |
    | spun | iterations of a loop that only waited, before this event, that are not recorded |
    | first, other, own | of `sectors`, the mean over all warps of the trace: never touched before in the launch; |
    |   | touched before, last by other CTAs or longer than `OWN_REACH` ago by this one; touched by this CTA |
    | other_distance | log2 of the bytes that all CTAs touched since then, the mean over the sectors of `other` |
    | own_distance | log2 of the bytes that the CTA touched since then, the mean over the sectors of `own` |
    | stored | sectors of a store or an atomic that the launch had stored to before, the mean |
    """

    instruction: Int32s
    kind: UInt8s
    lanes: UInt8s
    sectors: Int32s
    lines: Int32s
    wavefronts: UInt16s
    bytes: Int32s
    object: Int32s
    phase: Int32s
    spun: Int32s
    first: Float32s
    other: Float32s
    own: Float32s
    other_distance: Float32s
    own_distance: Float32s
    stored: Float32s

    def __len__(self) -> int:
        return len(self.instruction)


class Event(NamedTuple):
    """One event in readable form."""

    line: int
    opcode: str
    kind: Kind
    lanes: int
    sectors: int
    lines: int
    wavefronts: int
    bytes: int
    object: int
    phase: int
    spun: int


# reuse distance in bytes beyond which a CTA no longer remembers its own touch of a sector
OWN_REACH = 1 << 18


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LaunchRecording:
    """What a launch did.

    `cta_class[n]` is the class of CTA n (x fastest); `class_trace[c, w]` is the trace of warp w in CTAs of class c. A
    cluster has `cluster` neighbouring CTAs of the grid in each direction.
    """

    # the text of the module, the kernel's name in it, and its architecture
    text: str
    entry: str
    arch: str
    grid: Extent
    block: Extent
    cluster: Extent
    # bytes of shared memory declared by the module and added by the launch; bytes of local memory of a thread
    static_shared: int
    dynamic_shared: int
    local_bytes: int
    instructions: Instructions
    cta_class: Int32s
    class_trace: Int32s
    traces: Traces
    events: Events
    # the longest chain of waits between CTAs through global memory; lines of the PTX at which warps wait for stores of
    # others to global memory, to shared memory, and for a clock
    handovers: int = 0
    waits: tuple[int, ...] = ()
    waits_in_shared: tuple[int, ...] = ()
    clocks: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<LaunchRecording of '{self.entry}': {self.ctas:,} CTAs of {self.classes:,} classes, "
            f"{self.warp_steps:,} steps of warps in {len(self.traces.block):,} rows>"
        )

    @property
    def ctas(self) -> int:
        """Number of CTAs."""
        return len(self.cta_class)

    @property
    def classes(self) -> int:
        """Number of classes of CTAs."""
        return len(self.class_trace)

    @property
    def warps(self) -> int:
        """Warps per CTA."""
        return int(self.class_trace.shape[1])

    @property
    def warp_steps(self) -> int:
        """Steps of all warps of all CTAs."""
        lengths = np.diff(self.traces.start)[self.class_trace].sum(axis=1)
        return int(lengths[self.cta_class].sum())

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        parts: tuple[Traces | Events, ...] = (self.traces, self.events)
        columns = [getattr(part, name) for part in parts for name in part.__slots__]
        return sum(int(column.nbytes) for column in (*columns, self.cta_class, self.class_trace))

    def steps(self, cta_class: int, warp: int) -> range:
        """The steps of a warp in CTAs of a class."""
        trace = int(self.class_trace[cta_class, warp])
        return range(int(self.traces.start[trace]), int(self.traces.start[trace + 1]))

    def events_of(self, cta_class: int, warp: int) -> range:
        """The events of a warp in CTAs of a class."""
        steps, first = self.steps(cta_class, warp), self.traces.first_event
        return range(int(first[steps.start]), int(first[steps.stop]))

    def event(self, number: int) -> Event:
        """One event, with the text of its instruction."""
        columns, which = self.events, int(self.events.instruction[number])
        numbers = [
            int(getattr(columns, name)[number])
            for name in ("lanes", "sectors", "lines", "wavefronts", "bytes", "object", "phase", "spun")
        ]
        line, opcode = int(self.instructions.line[which]), self.instructions.opcode[which]
        return Event(line, opcode, Kind(int(columns.kind[number])), *numbers)
