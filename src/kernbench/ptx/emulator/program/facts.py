"""What analyses find out about a decoded program, before its steps are made.

Nothing edits a step once it is made: an analysis returns facts, and steps are made last, from the instructions and the
facts about them. An instruction whose step depends on facts gives `FromFacts` when it is decoded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernbench.ptx.emulator.program.access_order import Order
from kernbench.ptx.emulator.program.program import Reduced, SharedVariable, Site, WaitLoop, Word, WriteSite
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import ControlStep, General, Step

Check = General


@dataclass(frozen=True, slots=True)
class Beside:
    """A check that runs beside the instruction of a site: before it, or after it."""

    site: int
    check: Check
    after: bool = False


@dataclass(frozen=True, slots=True)
class Undefined:
    """Registers of one function that may be read before they are set, with all that is computed from them, by number.

    `before` has for each instruction of each block the registers that may hold no defined value before it, as bits.
    """

    registers: Mapping[int, Register]
    before: list[list[int]]


@dataclass(frozen=True, slots=True)
class UnusedLoads:
    """Speculative loads of one function: see `analysis.loads.unused_loads`.

    `deferred` are the sites of loads that are entered as reads where their value is stored, `idle_loads` those whose
    value leaves a warp by guarded stores only, and by which, `leaving` all of these. `rows` are register rows that the
    checks take for themselves, with their banks.
    """

    beside: tuple[Beside, ...] = ()
    deferred: frozenset[int] = frozenset()
    idle_loads: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    leaving: frozenset[tuple[int, int]] = frozenset()
    rows: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All that analyses have found out. Numbers are those of sites where nothing else is said."""

    # how loads order others that a compare-and-swap validates: as strongly as the swap
    validated: Mapping[int, Order]
    # waits that are tried until they succeed, and so may park; those whose result nothing looks at acquire nothing
    parking: frozenset[int]
    ignored: frozenset[int]
    # loops by the number of the block at their head
    wait_loops: Mapping[int, WaitLoop]
    # checks beside instructions by site, as they were asked for: of several before an instruction the last runs first
    beside: Mapping[int, tuple[Beside, ...]]
    # of each function, in order
    undefined: tuple[Undefined, ...]
    unused: tuple[UnusedLoads, ...]
    # results that may be undefined though no operand is, and copies that carry undefined bytes from memory to memory
    caught: frozenset[int]
    carrying: frozenset[int]
    # stores of what a butterfly reduction gave, with how its lanes rounded
    reduced_stores: Mapping[int, Reduced]
    # stores of what lanes made of values that they exchanged, with the loads that gave those and their lanes
    exchanged: Mapping[int, Mapping[int, int]]
    # stores of what only integer instructions have made; updates of memory whose old value nothing reads
    integer_stores: frozenset[int]
    blind: frozenset[int]
    # blocks of the kernel that may follow each block, those that do nothing but end a thread, and those that only jump
    edges: Mapping[int, tuple[int, ...]]
    ends: frozenset[int]
    idle: frozenset[int]
    # everything that writes memory, and the parameters through which that may be; None where that is unknown
    writers: tuple[WriteSite, ...]
    # kernel parameters that the address of an access is made of, where all of them are known
    meant: Mapping[int, frozenset[Word]]
    # variables of shared memory that the address of an access is made of, where all of them are known
    meant_variables: Mapping[int, tuple[SharedVariable, ...]]
    written_params: frozenset[str] | None
    # what all loads and stores through a kernel parameter take its elements for, and where; those that agree
    parameter_types: Mapping[str, tuple[str, Site]]
    asynchronous: bool
    fences_tensor: bool
    hands_over: bool
    volatile_sites: frozenset[int]
    # volatile loads of shared memory that take data, in kernels that pass nothing by flags
    volatile_data: frozenset[int]
    noncoherent_sites: frozenset[int]


@dataclass(frozen=True, slots=True)
class FromFacts:
    """The step of an instruction that depends on facts; one that `controls` gives a control, and goes on behind it."""

    make: Callable[[Facts], Step | ControlStep]
    controls: bool = False
