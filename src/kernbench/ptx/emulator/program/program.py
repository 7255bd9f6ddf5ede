"""A kernel as the scheduler runs it: blocks of steps, each ended by a control, over all functions it can reach."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Int64s
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.slots import ARGUMENT_BYTES, SlotTable, numbers_of
from kernbench.ptx.emulator.program.closing import Closing
from kernbench.ptx.emulator.program.measures import Measures
from kernbench.ptx.emulator.program.steps import AnyWindow, Control, Direct, General
from kernbench.ptx.isa.forms.effects import UNKNOWN_EFFECTS, Effects
from kernbench.ptx.text.module import Kernel, Variable

# registers of a list that are shown, and how long a line is at least before its lists are looked at
_SHOWN = 6
_LONG = 120
_LIST = re.compile(r"\{([^{}]*)\}")


def brief(text: str) -> str:
    """The text of an instruction with long lists of registers cut."""
    if len(text) < _LONG:
        return text
    return _LIST.sub(_cut, text)


def _cut(found: re.Match[str]) -> str:
    names = found[1].split(",")
    if len(names) <= _SHOWN + 2:
        return found[0]
    return f"{{{','.join(names[: _SHOWN - 1])}, ... {names[-1].strip()}}} ({len(names)} registers)"


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction of the text: its PTX line, its text, and the source line it was compiled from.

    Of functions that were inlined into each other `frames` holds a file and line each, the innermost first; the source
    line is that of them which is the person's own.
    """

    number: int
    function: str
    opcode: str
    line: int
    text: str
    source_file: str = ""
    source_line: int = 0
    frames: tuple[tuple[str, int], ...] = ()
    effects: Effects = UNKNOWN_EFFECTS
    # opcode and modifiers, and whether it has a guard
    name: str = ""
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Watched:
    """A block's steps with those that follow undefined values, and where they go on behind a site that met one."""

    steps: list[General]
    positions: dict[int, int]


class LeftOf(Protocol):
    """Where a chain has come to: so many of its blocks further, and the steps of it that are left in that block."""

    @property
    def block(self) -> int:
        """How many blocks further."""

    @property
    def steps(self) -> tuple[Direct, ...]:
        """The steps of it that are left there."""


class ChainOfBlocks(Protocol):
    """Steps of blocks that follow each other, with what whole warps exchange between them: see `fused.chains`."""

    # the first of the block's steps that belong to it, how many of the last block's do, and the instructions of all
    # blocks but the first
    first: int
    last: int
    sites: int

    @property
    def further(self) -> int:
        """How many blocks it goes on for."""

    def run(self, window: AnyWindow) -> LeftOf | None:
        """Run it for all lanes of a run of warps; None where nothing is done."""


@dataclass(frozen=True, eq=False)
class Block:
    """Steps that run one after the other, then a control; without one, the next block follows."""

    number: int
    function: str
    rank: int
    direct: tuple[Direct, ...]
    general: tuple[General, ...]
    # makes the general steps with those that follow undefined values
    follow: Callable[[], Watched]
    control: Control | None
    following: int
    # sites in order, the control's last
    sites: tuple[Site, ...]
    kinds: Counter[str]
    # bytes each lane moves, by (space, direction), and floating-point operations
    traffic: Counter[tuple[str, str]]
    flops: int
    # a block of the kernel that does nothing but end the thread
    ends: bool
    # where this block is the head of a loop that may wait for another thread
    wait_loop: "WaitLoop | None"
    # what begins with its last steps and goes on behind what its lanes exchange
    chain: "ChainOfBlocks | None" = None

    @cached_property
    def watched(self) -> Watched:
        """The steps that follow undefined values, made when they are first asked for."""
        return self.follow()


@dataclass(frozen=True, slots=True)
class LoopRead:
    """A read inside a loop: the slot of its address and the offset, its space and bytes, and its site."""

    slot: int
    offset: int
    space: str
    nbytes: int
    site: Site


# origins of addresses: a pointer that could be any, and one to a variable of the module
UNKNOWN = "?"
VARIABLE = "&"


class Word(NamedTuple):
    """A word of 64 bits in the parameters of a kernel: the parameter, and the byte of it at which the word begins."""

    parameter: str
    offset: int


@dataclass(frozen=True, slots=True)
class Reduced:
    """What lanes that took part in a butterfly reduction store: the type of its elements, and the coarsest since."""

    element: str
    rounded: str


@dataclass(frozen=True, slots=True)
class WriteSite:
    """An instruction that writes memory: its space, and the parameters and variables its address may come from."""

    site: Site
    space: str
    origins: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class WaitLoop:
    """A loop: its head, all its blocks, and the slots whose values go round it."""

    head: int
    blocks: frozenset[int]
    carried: tuple[int, ...]
    reads: tuple[LoopRead, ...]
    # whether it looks like one that only waits for others, and whether it reads what others may write at all
    waits: bool
    reads_memory: bool
    # what must be together for its next state to follow from the last: "lane", "warp", "block", or "" for never
    closed: str
    # whether it tries to take something that only one of those who wait can have, as a lock
    takes: bool
    # whether it looks at a clock: its state repeats only while time stands still
    timed: bool
    # the numbers of reads of what others may write, of whatever instruction, on whose values it depends when it ends
    decided_by: frozenset[int] = frozenset()
    # those of the slots that go round which nothing but its turns and sleeps are counted with
    counting: frozenset[int] = frozenset()
    # the numbers of reads of a clock on which that depends
    clocked_by: frozenset[int] = frozenset()
    # whether nothing else that changes in it has a say in that
    only_clocked: bool = False


@dataclass(eq=False)
class Code(Closing):
    """One function: where its blocks begin, what its frame holds, which register rows it owns."""

    name: str
    entry: int = -1
    params: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    # offsets of parameters and local variables in the frame, by (scope identity, name)
    frame: dict[tuple[int, str], int] = field(default_factory=dict)
    # the same by offset: name, offset, bytes; what lies between them is no memory
    variables: list[tuple[str, int, int]] = field(default_factory=list)
    frame_bytes: int = 0
    # slots of parameters and results that are registers
    formals: dict[str, int] = field(default_factory=dict)
    base: int = 0
    # register rows it owns, by bank
    rows: dict[str, list[int]] = field(default_factory=dict)
    # identity of the outermost scope, to which parameters belong
    scope: int = 0
    recursive: bool = False
    carry_row: int = -1
    callees: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class SharedVariable:
    """A variable in shared memory: where it lies, and its size (None: all dynamic shared memory)."""

    name: str
    offset: int
    size: int | None


@dataclass(frozen=True, eq=False)
class Program:
    """All that does not depend on a launch. Nothing of it changes; what a launch adds lies in the launch."""

    kernel: Kernel
    table: SlotTable
    blocks: tuple[Block, ...]
    codes: Mapping[str, Code]
    sites: list[Site]
    shared: list[SharedVariable]
    # where dynamic shared memory begins, and the bytes that the static variables declare
    static_shared: int
    declared_shared: int
    local_bytes: int
    # module variables it uses, by name
    variables: Mapping[str, Variable]
    # whether threads take memory from their stack as they run
    takes_stack: bool
    # registers, by bank and row, that are followed because they may be read before they are set, and their bytes
    undefined_registers: tuple[tuple[tuple[str, int], int], ...]
    # sites of loads and divisions whose results are followed where they are undefined
    caught: frozenset[int]
    # sites of copies that carry undefined bytes from memory to memory
    carrying: frozenset[int]
    # whether it is launched with several parameters that point to one array
    aliased: bool
    # sites of loads that are entered as reads where their value is stored
    deferred: frozenset[int]
    # sites of loads whose value leaves a warp by guarded stores only, and by which: see `unused_loads`
    idle_loads: Mapping[int, tuple[tuple[int, int], ...]]
    leaving: frozenset[tuple[int, int]]
    # sites of stores of what only integer instructions have made
    integer_stores: frozenset[int]
    # sites of stores of what a butterfly reduction gave, with how its lanes rounded
    reduced_stores: Mapping[int, Reduced]
    # sites of stores, with those of loads that lanes of the warp have done by then, and which: see `analysis.exchanged`
    exchanged: Mapping[int, Mapping[int, int]]
    # sites of reductions, and of atomics whose result nothing reads
    blind: frozenset[int]
    # everything in it that writes memory
    writers: tuple[WriteSite, ...]
    # by site of an access, kernel parameters that its address is made of; where all of them are known
    meant: Mapping[int, frozenset[Word]]
    # by site of an access, variables of shared memory that its address is made of; where all are known, and some others
    meant_variables: Mapping[int, tuple[SharedVariable, ...]]
    # kernel parameters whose memory the program may write; None where that is unknown
    written_params: frozenset[str] | None
    # what all loads and stores through a kernel parameter take its elements for, and where; those that agree
    parameter_types: Mapping[str, tuple[str, Site]]
    # whether anything in it works beside the threads
    asynchronous: bool
    # whether anything in it orders operations of the tensor core with barriers of threads
    fences_tensor: bool
    # whether its threads pass data by flags at all: anything in it acquires or releases
    hands_over: bool
    # sites of volatile loads and stores
    volatile_sites: frozenset[int]
    # sites of volatile loads of shared memory that take data, in programs that pass nothing by flags
    volatile_data: frozenset[int]
    # sites of loads through the non-coherent cache
    noncoherent_sites: frozenset[int]
    # blocks that may follow each block of the kernel itself, and those of them that only jump or end
    edges: Mapping[int, tuple[int, ...]]
    idle: frozenset[int]

    @cached_property
    def undefined_numbers(self) -> Int64s:
        """The numbers of registers that are followed because they may be read before they are set."""
        return numbers_of([key for key, _ in self.undefined_registers])

    @cached_property
    def source_lines(self) -> list[str]:
        """The lines of the text it was read from, with their ends."""
        return [brief(line) for line in self.kernel.module.source.splitlines(keepends=True)]

    @cached_property
    def text(self) -> str:
        """All its instructions, to look for a word in them."""
        return "\n".join(site.text for site in self.sites)

    @cached_property
    def argument_bytes(self) -> Array:
        """For each value of the parameters that instructions load, where the bytes of a row of it come from."""
        offsets, repeated = {given.name: given.offset for given in self.kernel.params}, np.arange(ARGUMENT_BYTES)
        found: Array = np.zeros((max(1, len(self.table.arguments)), ARGUMENT_BYTES), np.int64)
        for slot in self.table.arguments.values():
            found[slot.row] = offsets[slot.name] + slot.offset + repeated % np.dtype(slot.dtype).itemsize
        return found

    @cached_property
    def measures(self) -> Measures:
        """What its blocks count for."""
        return Measures(self.blocks)

    @cached_property
    def blocks_behind(self) -> dict[int, Mask]:
        """Which blocks lie behind a block, of those of which that was asked: only a matter of the flow above."""
        return {}

    @property
    def entry(self) -> Code:
        """The kernel itself."""
        return self.codes[self.kernel.name]
