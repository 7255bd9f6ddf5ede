"""Effects: the properties of all instructions with one meaning, as one frozen row of the ISA table.

The files of rows declare them beside the forms (`does("ld", Effects(access="load", ...))`), and each form carries the
row of its meaning. Code that depends on what an instruction does uses this row instead of listing instructions by name
(`tests/ptx/isa/test_effects.py` looks for such lists). Defaults are the conservative assumptions.
"""

from dataclasses import dataclass
from typing import Literal

Flow = Literal["", "branch", "indexed branch", "call", "return", "exit", "trap"]
Idle = Literal["", "nothing", "time"]
Access = Literal["", "load", "store", "atomic", "reduction", "tensor load", "tensor store"]
ActsOn = Literal["", "mbarrier", "tensor memory"]
Group = Literal["", "lane", "warp", "block"]
Source = Literal["", "memory", "rows", "tiles", "tensor memory", "division"]
Law = Literal[
    "",
    "copy",
    "pack",
    "unpack",
    "permute",
    "insert",
    "select",
    "compare",
    "and",
    "or",
    "xor",
    "not",
    "sum",
    "difference",
    "product",
    "product and sum",
    "shift left",
    "convert",
    "convert and pack",
    "address",
    "shuffle",
    "reduction",
    "accumulate",
]
Fuses = Literal["", "product", "quotient", "sum", "difference", "negation"]
InFlight = Literal["", "multiply", "fence", "commit", "wait", "load", "loaded"]
Event = Literal[
    "",
    "load",
    "store",
    "atomic",
    "reduction",
    "matrix load",
    "matrix store",
    "prefetch",
    "async copy",
    "async copy commit",
    "async copy wait",
    "async copy arrive",
    "bulk copy",
    "bulk reduce",
    "bulk commit",
    "bulk wait",
    "remote store",
    "mma",
    "warpgroup mma",
    "warpgroup fence",
    "warpgroup commit",
    "warpgroup wait",
    "tensor mma",
    "tensor copy",
    "tensor load",
    "tensor store",
    "tensor wait",
    "tensor commit",
    "tensor fence",
    "tensor allocate",
    "tensor free",
    "tensor shift",
    "barrier",
    "cluster barrier",
    "mbarrier init",
    "mbarrier arrive",
    "mbarrier expect",
    "mbarrier wait",
    "mbarrier inval",
    "fence",
    "proxy fence",
    "registers",
    "grid dependency",
    "sleep",
    "other",
    "slow path",
]
# flows whose targets are in the text, or that end a thread; the others are "indexed branch", "call" and "trap"
_JUMPS = frozenset(("branch", "return", "exit"))
_ENDS = frozenset(("return", "exit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The properties of instructions with one meaning."""

    # a pure function of registers and constants of the same lane
    computes: bool = False
    # control flow, if it does not simply continue with the next instruction
    flow: Flow = ""
    # lanes may diverge, wait or exit here, so that a basic block ends after it
    ends_block: bool = False
    # has no effect that a program can observe: "nothing", or only "time" that passes
    idle: Idle = ""

    # each lane's own access to memory, from or to its registers: "load", "store", "atomic" (returns the old value),
    # "reduction", and of tensor memory "tensor load", "tensor store"
    access: Access = ""
    # the operand with the value that an access moves
    value: str = ""
    # reads memory; writes memory (at `Decoding.store_space`, if that is known)
    reads: bool = False
    writes: bool = False
    # what its addresses refer to, if not plain memory: an "mbarrier", or "tensor memory"
    acts_on: ActsOn = ""
    # tests whether a phase of an mbarrier has completed, perhaps repeatedly
    polls: bool = False
    # threads of a warp, block or cluster synchronise there
    barrier: bool = False
    # a memory fence of any scope
    fences: bool = False
    # may order memory accesses before it with those after it; False only if it certainly does not
    orders: bool = True
    # has delayed effects, by a unit that works asynchronously, or orders such work: needs actors of its own
    asynchronous: bool = False
    # may let a program observe the order in which threads run
    observes_order: bool = False

    # whose state determines its effects: that of its "lane" (registers, and memory), of all lanes of a "warp" or
    # "block"; "" if unknown
    follows_from: Group = ""
    # lanes of a warp exchange values, without ordering memory
    exchanges: bool = False

    # results depend on operands: they are undefined if an operand is, and may contain a pointer operand; not so for
    # values from memory, from other lanes or from a function
    forwards: bool = True
    # the source of undefined results if all operands are defined: "memory", "rows" of matrices in memory, "tiles" of
    # matrices that a product reads from there, "tensor memory", "division"
    undefined_from: Source = ""
    # copies bytes of memory, together with whether they are defined
    carries_undefined: bool = False

    # algebraic law that analyses use; "sum", "difference" and "product" are of integers, "address" converts between
    # address spaces, "shuffle" returns another lane's first operand, "reduction" combines those of all, "accumulate"
    # adds to the last operand, element by element
    law: Law = ""
    # operands that form the parts of a value, which is defined if one of them is
    parts: tuple[str, ...] = ()
    # computes with numbers of its named types; moves, selections and masks treat any bits as integers
    arithmetic: bool = False
    # takes bits apart or joins them: its type does not say what numbers the bits represent
    bitwise: bool = False
    # role in a contraction to fma, which an assembler makes of a "product" and a "sum" or "difference" if neither names
    # a rounding mode; an approximate "quotient" ends with a product
    fuses: Fuses = ""
    # reads or writes the carry flag, which is not a register
    carry_flag: bool = False

    # effect on registers that asynchronous operations own: "multiply" (takes ownership), "fence", "commit", "wait", and
    # for loads of tensor memory "load", "loaded"
    in_flight: InFlight = ""
    # allocates tensor memory; orders tensor core operations with barriers of threads
    allocates: bool = False
    fences_tensor: bool = False
    # takes over blocks that have not begun, which never run then
    cancels_blocks: bool = False

    # its address operand is a register of the module's address size, unless the space is a small one
    whole_address: bool = False
    # takes the address of a variable, but no special register; its result may be discarded with '_'
    of_variables: bool = False
    discardable: bool = False

    # kind of event that a recording has for each warp that executes it, if any
    event: Event = ""
    # floating-point operations per lane, for each element of a packed type
    flops: int = 0
    # what a warp that executes it does, as pictures call it, and the asynchronous unit that it uses
    activity: str = ""
    unit: str = ""
    # ways in which mutants of a kernel alter it, as named in `kernbench.ptx.mutation`
    mutants: tuple[str, ...] = ()

    @property
    def only_jumps(self) -> bool:
        """Whether all it does, if anything, is to continue elsewhere or to end the thread."""
        return self.flow in _JUMPS or self.idle == "nothing"

    @property
    def ends_thread(self) -> bool:
        """Whether a thread leaves a kernel or function there."""
        return self.flow in _ENDS

    @property
    def steers(self) -> bool:
        """Whether its guard or index decides where a thread continues."""
        return self.flow in _JUMPS or self.flow == "indexed branch"

    @property
    def publishes(self) -> bool:
        """Whether others may see values of its registers, since it stores them."""
        return self.writes and bool(self.access)

    @property
    def updates(self) -> bool:
        """Whether it is a read-modify-write of memory."""
        return self.access in ("atomic", "reduction")


# the conservative assumption
UNKNOWN_EFFECTS = Effects()
# for groups of instructions in which each lane computes by itself
LANE_WISE = Effects(computes=True, orders=False, follows_from="lane")
