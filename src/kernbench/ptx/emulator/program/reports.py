"""What a recorder is given of an instruction, each time warps execute it."""

from dataclasses import dataclass

from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.isa.forms.effects import Event

# events reported by the units that know barriers, phases and boxes; all others are reported beside the instruction
BY_UNITS: frozenset[Event] = frozenset(
    (
        "async copy arrive",
        "bulk copy",
        "bulk reduce",
        "remote store",
        "tensor mma",
        "tensor commit",
        "barrier",
        "cluster barrier",
        "mbarrier init",
        "mbarrier arrive",
        "mbarrier expect",
        "mbarrier wait",
        "mbarrier inval",
    )
)
# events of memory accesses; they are reported only if the instruction has an address
ACCESSES: frozenset[Event] = frozenset(("load", "store", "atomic", "reduction", "async copy"))


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """One instruction: its event, and the address that its lanes access, if any.

    - `slot`, `offset`: of the address; `space` is named as in `memory.port`; `nbytes` per lane.
    - `target_slot`, `target_offset`: the second address of a copy, in shared memory. Of a division and the like, both
      slots are its operands.
    - `rows`: the first lanes that give addresses of a matrix.
    - `keep`: the groups that a wait leaves in flight; -1: none, not even uncommitted ones.
    """

    site: Site
    event: Event
    slot: int = -1
    offset: int = 0
    space: str = ""
    nbytes: int = 0
    target_slot: int = -1
    target_offset: int = 0
    rows: int = 0
    keep: int = 0
    # whether it goes through the cache of the SM
    cached: bool = True
    # the slot of the maximal bytes that a lane copies, -1: all
    limit: int = -1
