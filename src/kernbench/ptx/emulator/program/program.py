"""A kernel as the scheduler runs it: basic blocks of steps, each ended by a control, of all functions it can reach."""

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
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import AnyWindow, Control, Direct, General
from kernbench.ptx.isa.forms.effects import UNKNOWN_EFFECTS, Effects
from kernbench.ptx.text.module import Kernel, Variable

# registers to show of a list, and the minimal length of a line whose lists are shortened
_SHOWN = 6
_LONG = 120
_LIST = re.compile(r"\{([^{}]*)\}")


def brief(text: str) -> str:
    """The text of an instruction, with long register lists shortened."""
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

    `frames` has a file and line for each inlined function, the innermost first; the source line is the user's own one
    among them.
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
    """A block's steps with undefined-value tracking, and where to resume after a site that met an undefined value."""

    steps: list[General]
    positions: dict[int, int]


class LeftOf(Protocol):
    """How far a chain came: the number of blocks, and its remaining steps in the last of them."""

    @property
    def block(self) -> int:
        """The number of blocks completed."""

    @property
    def steps(self) -> tuple[Direct, ...]:
        """The remaining steps."""


class ChainOfBlocks(Protocol):
    """Steps of consecutive blocks, with exchanges of whole warps between them: see `fused.chains`."""

    # the first step of the block that belongs to it, the number of such steps in the last block, and the number of
    # instructions of all blocks but the first
    first: int
    last: int
    sites: int

    @property
    def further(self) -> int:
        """The number of blocks after the first."""

    def run(self, window: AnyWindow) -> LeftOf | None:
        """Run it for all lanes of a run of warps; None if nothing was done."""


@dataclass(frozen=True, eq=False)
class Block:
    """Steps that run in order, then a control; without one, the next block follows."""

    number: int
    function: str
    rank: int
    direct: tuple[Direct, ...]
    general: tuple[General, ...]
    # the same steps one by one, none of them fused with others
    single: tuple[General, ...]
    # makes the general steps with undefined-value tracking
    follow: Callable[[], Watched]
    control: Control | None
    following: int
    # sites in order, that of the control last
    sites: tuple[Site, ...]
    kinds: Counter[str]
    # bytes moved per lane by (space, direction), and floating-point operations
    traffic: Counter[tuple[str, str]]
    flops: int
    # a block of the kernel that only ends the thread
    ends: bool
    # set if this block is the head of a loop that may wait for another thread
    wait_loop: "WaitLoop | None"
    # the chain that begins with its last steps and continues after its exchange
    chain: "ChainOfBlocks | None" = None

    @cached_property
    def watched(self) -> Watched:
        """The steps with undefined-value tracking, made on first use."""
        return self.follow()


@dataclass(frozen=True, slots=True)
class LoopRead:
    """A read inside a loop: the slot and offset of its address, its space and bytes, and its site."""

    slot: int
    offset: int
    space: str
    nbytes: int
    site: Site


# origins of addresses: an unknown pointer, and a pointer to a variable of the module
UNKNOWN = "?"
VARIABLE = "&"


class Word(NamedTuple):
    """A 64-bit word of a kernel's parameters: the parameter, and the offset of the word in it."""

    parameter: str
    offset: int


@dataclass(frozen=True, slots=True)
class Reduced:
    """A store of the result of a butterfly reduction.

    Its element type, and the coarsest type it was rounded to since.
    """

    element: str
    rounded: str


@dataclass(frozen=True, slots=True)
class Completed:
    """Lanes of a warp whose earlier loads are complete: those of a mask, and of the masks that registers hold then."""

    lanes: int = 0
    registers: frozenset[Register] = frozenset()

    def joined(self, lanes: int, register: Register | None) -> "Completed":
        """With the lanes of one more mask, a constant or a register."""
        return Completed(self.lanes | lanes, self.registers | ({register} if register is not None else frozenset()))


@dataclass(frozen=True, slots=True)
class WriteSite:
    """An instruction that writes memory: its space, and the parameters and variables its address may come from."""

    site: Site
    space: str
    origins: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class WaitLoop:
    """A loop: its head, all its blocks, and the slots carried around it."""

    head: int
    blocks: frozenset[int]
    carried: tuple[int, ...]
    reads: tuple[LoopRead, ...]
    # whether it seems to only wait for others, and whether it reads anything that others may write
    waits: bool
    reads_memory: bool
    # the threads whose joint state determines its next state: "lane", "warp", "block", or "" if nothing does
    closed: str
    # whether it tries to take something that only one waiter can have, such as a lock
    takes: bool
    # whether it reads a clock: its state repeats only while the clock stands still
    timed: bool
    # reads of memory that others may write, of any instruction, that decide when it ends
    decided_by: frozenset[int] = frozenset()
    # carried slots that only count its iterations and sleeps
    counting: frozenset[int] = frozenset()
    # reads of a clock that decide when it ends
    clocked_by: frozenset[int] = frozenset()
    # whether nothing else that changes in the loop decides that
    only_clocked: bool = False
    # whether it waits only as it looks at mbarriers
    for_mbarriers: bool = False


@dataclass(eq=False)
class Code(Closing):
    """One function: its entry block, its frame, and the register rows it owns."""

    name: str
    entry: int = -1
    params: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    # offsets of parameters and local variables in the frame, by (scope identity, name)
    frame: dict[tuple[int, str], int] = field(default_factory=dict)
    # the same by offset: name, offset, bytes; the gaps between them are not memory
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
    """A variable in shared memory: its offset and its size (None: all dynamic shared memory)."""

    name: str
    offset: int
    size: int | None


@dataclass(frozen=True, eq=False)
class Program:
    """Everything that does not depend on a launch; immutable. Per-launch state is in the launch."""

    kernel: Kernel
    table: SlotTable
    blocks: tuple[Block, ...]
    codes: Mapping[str, Code]
    sites: list[Site]
    shared: list[SharedVariable]
    # the offset of dynamic shared memory, and the declared bytes of the static variables
    static_shared: int
    declared_shared: int
    local_bytes: int
    # module variables it uses, by name
    variables: Mapping[str, Variable]
    # whether threads allocate from their stack
    takes_stack: bool
    # registers, by bank and row, tracked since they may be read before they are set, with their undefined bytes
    undefined_registers: tuple[tuple[tuple[str, int], int], ...]
    # sites of loads and divisions whose results are tracked if undefined
    caught: frozenset[int]
    # sites of copies that carry undefined bytes from memory to memory
    carrying: frozenset[int]
    # whether several of its parameters point to one array
    aliased: bool
    # sites of speculative loads: they count as reads where their value is stored
    deferred: frozenset[int]
    # sites of loads whose value leaves a warp only by guarded stores, and these stores: see `unused_loads`
    idle_loads: Mapping[int, tuple[tuple[int, int], ...]]
    leaving: frozenset[tuple[int, int]]
    # sites of stores of values computed by integer instructions only
    integer_stores: frozenset[int]
    # sites of stores of the result of a butterfly reduction, with the rounding of its lanes
    reduced_stores: Mapping[int, Reduced]
    # sites of stores, with the loads that lanes of the warp must have completed by then, and which lanes: see
    # `analysis.exchanged`
    exchanged: Mapping[int, Mapping[int, Completed]]
    # stores that depend on the old values of atomics, and atomics whose values are needed before the next barrier: see
    # `analysis.returned`
    decided: Mapping[int, frozenset[int]]
    returned: frozenset[int]
    # sites of reductions, and of atomics whose result is unused
    blind: frozenset[int]
    # all writes to memory
    writers: tuple[WriteSite, ...]
    # by site of an access: the kernel parameters in its address, if all are known
    meant: Mapping[int, frozenset[Word]]
    # by site of an access: the shared variables in its address, if all are known, and some others
    meant_variables: Mapping[int, tuple[SharedVariable, ...]]
    # kernel parameters whose memory the program may write; None if unknown
    written_params: frozenset[str] | None
    # element type of each kernel parameter, and a site that shows it, if all its loads and stores agree
    parameter_types: Mapping[str, tuple[str, Site]]
    # whether it has asynchronous instructions
    asynchronous: bool
    # whether it has fences between the tensor core and barriers of threads
    fences_tensor: bool
    # whether its blocks may take over others that have not begun
    cancels_blocks: bool
    # whether its threads pass data by flags at all, that is, whether any instruction acquires or releases
    hands_over: bool
    # whether a thread may see by a strong read what another has written by a strong write or an atomic
    has_flags: bool
    # sites of volatile loads and stores
    volatile_sites: frozenset[int]
    # sites of volatile loads of data from shared memory, in programs that do not use flags
    volatile_data: frozenset[int]
    # sites of loads through the non-coherent cache
    noncoherent_sites: frozenset[int]
    # the kernel's control flow: successors of each block; blocks that only jump or end
    edges: Mapping[int, tuple[int, ...]]
    idle: frozenset[int]

    @cached_property
    def undefined_numbers(self) -> Int64s:
        """The numbers of `undefined_registers`."""
        return numbers_of([key for key, _ in self.undefined_registers])

    @cached_property
    def source_lines(self) -> list[str]:
        """The lines of the PTX text, with line ends."""
        return [brief(line) for line in self.kernel.module.source.splitlines(keepends=True)]

    @cached_property
    def text(self) -> str:
        """All instructions as one text, to search in."""
        return "\n".join(site.text for site in self.sites)

    @cached_property
    def argument_bytes(self) -> Array:
        """For each parameter value that instructions load: the offsets of the bytes of its row."""
        offsets, repeated = {given.name: given.offset for given in self.kernel.params}, np.arange(ARGUMENT_BYTES)
        found: Array = np.zeros((max(1, len(self.table.arguments)), ARGUMENT_BYTES), np.int64)
        for slot in self.table.arguments.values():
            found[slot.row] = offsets[slot.name] + slot.offset + repeated % np.dtype(slot.dtype).itemsize
        return found

    @cached_property
    def measures(self) -> Measures:
        """The counts of its blocks."""
        return Measures(self.blocks)

    @cached_property
    def blocks_behind(self) -> dict[int, Mask]:
        """A cache for `analysis.flow.dominance.blocks_behind`: it depends on control flow alone."""
        return {}

    @property
    def entry(self) -> Code:
        """The kernel's own code."""
        return self.codes[self.kernel.name]
