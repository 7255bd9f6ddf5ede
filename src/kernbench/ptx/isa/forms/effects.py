"""What instructions of one meaning do, as far as anybody asks: one frozen row for each meaning of the ISA table.

The files of rows say it beside the forms (`does("ld", Effects(access="load", ...))`), and each form carries the row of
its meaning. Whoever wants to know what an instruction does asks this row and lists no instructions by name
(`tests/ptx/isa/test_effects.py` looks for such lists). A default is what is safe to assume where nothing is said.
"""

from dataclasses import dataclass
from typing import Literal

Flow = Literal["", "branch", "indexed branch", "call", "return", "exit", "trap"]
Idle = Literal["", "nothing", "time"]
Access = Literal["", "load", "store", "atomic", "reduction", "tensor load", "tensor store"]
ActsOn = Literal["", "mbarrier", "tensor memory"]
Group = Literal["", "lane", "warp", "block"]
Source = Literal["", "memory", "rows", "tensor memory", "division"]
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
    "product",
    "product and sum",
    "shift left",
    "convert",
    "convert and pack",
    "address",
    "shuffle",
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
# flows by which lanes go to where the text says, or end; the others are "indexed branch", "call" and "trap"
_JUMPS = frozenset(("branch", "return", "exit"))
_ENDS = frozenset(("return", "exit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What instructions of one meaning do."""

    # results follow from registers and constants of the same lane, and nothing else happens
    computes: bool = False
    # where lanes go, if not on to the next instruction
    flow: Flow = ""
    # lanes may part, wait or end here, so that a block of instructions ends behind it
    ends_block: bool = False
    # without any effect that a program can see: "nothing", or "time" that passes
    idle: Idle = ""

    # each lane's own access to memory, from or to its registers: "load", "store", "atomic" (gives back the old value),
    # "reduction", and of tensor memory "tensor load", "tensor store"
    access: Access = ""
    # the operand that holds the value which an access moves
    value: str = ""
    # reads memory; writes memory (at `Decoding.store_space`, where that is known)
    reads: bool = False
    writes: bool = False
    # what its addresses name, if not plain memory: an "mbarrier", or "tensor memory"
    acts_on: ActsOn = ""
    # asks whether a phase of an mbarrier has completed, and may be asked again
    polls: bool = False
    # threads meet there, of a warp, block or cluster
    barrier: bool = False
    # a fence of memory, whatever its scope
    fences: bool = False
    # may order the accesses of memory before it with those behind it; False where it is certain that it does not
    orders: bool = True
    # effects come later, by a unit that works beside the warp, or it orders such work: needs actors of their own
    asynchronous: bool = False
    # may let a program observe in which order threads run
    observes_order: bool = False

    # whose state its effects follow from: "lane" (its registers, and memory), all lanes of a "warp" or "block", or ""
    # where that cannot be said
    follows_from: Group = ""
    # lanes of a warp give each other values, and no memory is ordered by it
    exchanges: bool = False

    # results are made of the operands: undefined operands make them undefined, and a pointer among the operands may be
    # in them; not so of what comes from memory, from other lanes or from a function
    forwards: bool = True
    # where an undefined result may come from though all operands are defined: "memory", "rows" of matrices in memory,
    # "tensor memory", "division"
    undefined_from: Source = ""
    # copies bytes of memory to memory, and with them whether they are defined
    carries_undefined: bool = False

    # the algebra that analyses know of its result; "sum" and "product" are of whole numbers,
    # "address" one of another space, "shuffle" what another lane has in its first operand,
    # "accumulate" the last operand and more, element by element
    law: Law = ""
    # operands that a value is put together from, so that one defined part makes it defined
    parts: tuple[str, ...] = ()
    # computes with numbers of the types that it names; moves, selections and masks take any bits for whole ones
    arithmetic: bool = False
    # takes bits apart or puts them together: its type says nothing of the numbers that the bits are
    bitwise: bool = False
    # what it is of a "product" and the "sum" or "difference" that takes it, of which an assembler may make one
    # instruction that rounds once where both name no rounding; an approximate "quotient" ends with a product
    fuses: Fuses = ""
    # reads or writes the carry flag, which is no register
    carry_flag: bool = False

    # what it does to registers that asynchronous operations own: "multiply" (owns them), "fence", "commit", "wait", and
    # of loads of tensor memory "load", "loaded"
    in_flight: InFlight = ""
    # hands out tensor memory; orders operations of the tensor core with barriers of threads
    allocates: bool = False
    fences_tensor: bool = False

    # the address is given whole: a register of the module's address size, unless the space is a small one
    whole_address: bool = False
    # takes the address of a variable, and no special register; its result may be thrown away with '_'
    of_variables: bool = False
    discardable: bool = False

    # what a recording of a launch holds of it: an event of this kind for each warp that executes it, or nothing
    event: Event = ""
    # floating-point operations of a lane, for each element of a packed type
    flops: int = 0
    # what a warp that runs it does, in the words of a picture, and the unit that works for it
    activity: str = ""
    unit: str = ""
    # how a mutant of a kernel gets it wrong, in the words of `kernbench.ptx.mutation`
    mutants: tuple[str, ...] = ()

    @property
    def only_jumps(self) -> bool:
        """Whether it does nothing but lead to another instruction, or end a thread, if it does anything."""
        return self.flow in _JUMPS or self.idle == "nothing"

    @property
    def ends_thread(self) -> bool:
        """Whether it is where a thread leaves a kernel or function."""
        return self.flow in _ENDS

    @property
    def steers(self) -> bool:
        """Whether its guard or index decides where a thread goes on."""
        return self.flow in _JUMPS or self.flow == "indexed branch"

    @property
    def publishes(self) -> bool:
        """Whether others may see the values of its registers: it stores them."""
        return self.writes and bool(self.access)

    @property
    def updates(self) -> bool:
        """Whether it reads and writes memory in one."""
        return self.access in ("atomic", "reduction")


# what is safe to assume of anything
UNKNOWN_EFFECTS = Effects()
# what computes each lane by itself: the row of a group of such instructions
LANE_WISE = Effects(computes=True, orders=False, follows_from="lane")
