"""The results of analyses of a decoded program, before its steps are made.

Nothing edits a step once it is made: analyses return facts, and steps are made last, from instructions and facts. An
instruction whose step depends on facts is decoded to `FromFacts`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernbench.ptx.emulator.program.access_order import Order
from kernbench.ptx.emulator.program.program import Completed, Reduced, SharedVariable, Site, WaitLoop, Word, WriteSite
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import ControlStep, General, Step

Check = General


@dataclass(frozen=True, slots=True)
class Beside:
    """A check that runs before or after the instruction of a site."""

    site: int
    check: Check
    after: bool = False


@dataclass(frozen=True, slots=True)
class Undefined:
    """Registers of one function that may be read before they are set, and all computed from them, by number.

    `before` has for each instruction of each block the registers that may be undefined before it, as bits.
    """

    registers: Mapping[int, Register]
    before: list[list[int]]


@dataclass(frozen=True, slots=True)
class Pure:
    """A function that only computes its results.

    - `strayed`: a register row for the checks, which is undefined in lanes that have branched on an undefined value
      since they entered the function; None if it has no end at which that could be said of its results.
    - `own`: sites of accesses to variables of its own, and to constant variables of the module.
    - `results`: slots of the addresses of results in memory, and their bytes; `registers` has results in registers.
    """

    strayed: Register | None = None
    own: frozenset[int] = frozenset()
    results: tuple[tuple[int, int], ...] = ()
    registers: tuple[Register, ...] = ()


@dataclass(frozen=True, slots=True)
class UnusedLoads:
    """Speculative loads of one function: see `analysis.loads.unused_loads`.

    - `deferred`: sites of loads that count as reads where their value is stored.
    - `idle_loads`: loads whose value leaves a warp only by guarded stores, with these stores; `leaving` has all of
      them.
    - `rows`: register rows that the checks use for themselves, with their banks.
    """

    beside: tuple[Beside, ...] = ()
    deferred: frozenset[int] = frozenset()
    idle_loads: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    leaving: frozenset[tuple[int, int]] = frozenset()
    rows: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """The results of all analyses. Numbers are site numbers unless stated otherwise."""

    # CAS-validated loads: the memory order of the swap, which they get as well
    validated: Mapping[int, Order]
    # waits that are retried until they succeed, and so may park; waits whose result is unused acquire nothing
    parking: frozenset[int]
    ignored: frozenset[int]
    # loops by the block at their head
    wait_loops: Mapping[int, WaitLoop]
    # checks beside instructions, by site, in the order of request; of several before an instruction, the last runs
    # first
    beside: Mapping[int, tuple[Beside, ...]]
    # one for each function, in order
    undefined: tuple[Undefined, ...]
    unused: tuple[UnusedLoads, ...]
    # functions of compiled code that only compute, by name
    pure: Mapping[str, Pure]
    # results that may be undefined though all operands are defined; copies that carry undefined bytes within memory
    caught: frozenset[int]
    carrying: frozenset[int]
    # stores of the result of a butterfly reduction, with the rounding of its lanes
    reduced_stores: Mapping[int, Reduced]
    # stores that depend on a warp exchange, with the loads that it depends on, and their lanes
    exchanged: Mapping[int, Mapping[int, Completed]]
    # stores that depend on the old values of atomics, with these; and atomics whose old value is needed before the next
    # barrier
    decided: Mapping[int, frozenset[int]]
    returned: frozenset[int]
    # stores of values computed by integer instructions only; updates of memory whose old value is unused
    integer_stores: frozenset[int]
    blind: frozenset[int]
    # the kernel's control flow: successors of each block; blocks that only end a thread; blocks that only jump
    edges: Mapping[int, tuple[int, ...]]
    ends: frozenset[int]
    idle: frozenset[int]
    # all writes to memory, and the parameters they may write through; None if unknown
    writers: tuple[WriteSite, ...]
    # kernel parameters in the address of an access, if all of them are known
    meant: Mapping[int, frozenset[Word]]
    # shared variables in the address of an access, if all of them are known
    meant_variables: Mapping[int, tuple[SharedVariable, ...]]
    written_params: frozenset[str] | None
    # element type of each kernel parameter, and a site that shows it, if all its loads and stores agree
    parameter_types: Mapping[str, tuple[str, Site]]
    asynchronous: bool
    fences_tensor: bool
    cancels_blocks: bool
    hands_over: bool
    has_flags: bool
    volatile_sites: frozenset[int]
    # volatile loads of data from shared memory, in kernels that do not use flags
    volatile_data: frozenset[int]
    noncoherent_sites: frozenset[int]


@dataclass(frozen=True, slots=True)
class FromFacts:
    """An instruction whose step depends on facts.

    With `controls` it gives a control, and continues at the next block.
    """

    make: Callable[[Facts], Step | ControlStep]
    controls: bool = False
