"""The recording of a launch: what each warp executed and what its accesses were like, in NumPy columns.

It holds nothing of a machine but the architecture that the PTX is for, so that it is timed for many machines. Addresses
are not kept: of an access to memory there are the sectors, lines and passes over the banks that it takes, and how long
ago what it touches was touched before.

Warps that did the same are stored once, as a *trace*; CTAs whose warps have the same traces are of one *class*.
Everything here is the same for every order in which the emulator may run the threads, where the kernel's own way does
not depend on that order, but for the columns of reuse, which are those of the order that was run.
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
# `object` of an mbarrier of another CTA of the cluster: how many ranks further (modulo the cluster's size), shifted
RANK_SHIFT = 20


@dataclass(frozen=True, slots=True, eq=False)
class Instructions:
    """The instructions of the kernel and of the functions it calls, in the order of the text, a row each.

    Those of a block follow each other: `block` never decreases. Waits for wgmma that a compiler left to the assembler
    stand before the instruction that needs them, with its line.
    """

    # line of the PTX text, from 1 on, and the text of the instruction there, without guard and semicolon
    line: Int32s
    text: tuple[str, ...]
    # opcode and modifiers: "ld.global.v4.f32"
    opcode: tuple[str, ...]
    # the PTX basic block, and the function that it belongs to
    block: Int32s
    function: tuple[str, ...]
    # what its events are; those of generic addresses are distinguished when they are recorded
    kind: UInt8s
    # whether it has a guard
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

    A step is a block that a warp ran with some of its lanes: lanes that part run one step after the other, each with
    its own lanes, until they meet again. A loop that only waited for others has one turn, the one that succeeded.
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
    """Warp instructions that touch memory, order or an asynchronous unit, in the order of their warp.

    An instruction whose guard holds in no lane has no event.

    | column | meaning |
    |---|---|
    | instruction | row of `Instructions` |
    | kind | `Kind` |
    | lanes | lanes that executed it |
    | sectors, lines | distinct sectors of 32 bytes and lines of 128 bytes of global or local memory; of a bulk copy |
    |   | those of all that it touches in global memory. Lines of an atomic of shared memory: its passes over the |
    |   | banks if lanes that want the same word count once |
    | wavefronts | passes over the banks of shared memory (ld, st, atom, ldmatrix, stmatrix, cp.async); of an atomic |
    |   | of global memory the most lanes that want one word of a sector, all its sectors together |
    | bytes | of all lanes: moved by an access, by a bulk copy (what the barrier counts, for each CTA that gets it), |
    |   | announced by an expect, read of A and B in the shared memory of each SM by a tcgen05.mma |
    | object | number of the barrier; of an mbarrier its byte in shared memory, with how many ranks further its CTA is |
    |   | in the cluster << `RANK_SHIFT`; of a bulk load the mbarrier it completes on; of an access to shared memory |
    |   | of another CTA how many ranks further that of its first lane is << `RANK_SHIFT`; of a tcgen05.mma |
    |   | M << 16 | N; -1: none |
    | phase | the completion of the object, from 0 on, that it contributes to, or that it waited for. Commits and what |
    |   | joins a group: the number of the group, from 0 on, in this warp. Waits for groups: how many groups of this |
    |   | warp must have completed. tcgen05.mma: the address of D. nanosleep: nanoseconds. -1: none, or nothing had to |
    |   | be waited for |
    | spun | turns of a loop that only waited, before this event, that are not recorded |
    | first, other, own | of `sectors`, on average over all warps that have the trace: never touched before in the |
    |   | launch; touched before, last by other CTAs or longer ago than `OWN_REACH` by this one; touched by this CTA |
    | other_distance | log2 of the bytes that all CTAs touched since then, on average over the sectors of `other` |
    | own_distance | log2 of the bytes that the CTA touched since then, on average over the sectors of `own` |
    | stored | of the sectors of a store or an atomic, on average: that the launch had stored to before |
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
    """One event as a person reads it."""

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


# bytes of its own accesses after which a CTA no longer knows that it touched a sector
OWN_REACH = 1 << 18


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LaunchRecording:
    """What a launch did.

    `cta_class[n]` is the class of CTA n (x fastest); `class_trace[c, w]` the trace of warp w of a CTA of class c. CTAs
    of a cluster are `cluster` neighbours of the grid in each direction.
    """

    # the text of the module, the kernel's name in it, and the architecture that it is for
    text: str
    entry: str
    arch: str
    grid: Extent
    block: Extent
    cluster: Extent
    # bytes of shared memory: that the module declares, and what the launch adds; of local memory of a thread
    static_shared: int
    dynamic_shared: int
    local_bytes: int
    instructions: Instructions
    cta_class: Int32s
    class_trace: Int32s
    traces: Traces
    events: Events
    # how many waits of CTAs for each other through global memory follow one another at least; lines of the PTX at which
    # warps wait for what others store to global memory, to shared memory, and for a clock
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
        """CTAs of the grid."""
        return len(self.cta_class)

    @property
    def classes(self) -> int:
        """Classes of CTAs."""
        return len(self.class_trace)

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
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
        """The steps of a warp of a CTA of a class."""
        trace = int(self.class_trace[cta_class, warp])
        return range(int(self.traces.start[trace]), int(self.traces.start[trace + 1]))

    def events_of(self, cta_class: int, warp: int) -> range:
        """The events of a warp of a CTA of a class."""
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
