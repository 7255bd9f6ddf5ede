"""What is said of an instruction to whoever records a launch, each time that warps execute it."""

from dataclasses import dataclass

from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.isa.forms.effects import Event

# events that the units report which know of barriers, phases and boxes; all others are reported beside the instruction
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
# events whose instructions say where they access memory; without that nothing is reported
ACCESSES: frozenset[Event] = frozenset(("load", "store", "atomic", "reduction", "async copy"))


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """One instruction: what it does, and the address that its lanes access, if any.

    `slot` and `offset` are those of the address, `space` as `memory.port` names it, `nbytes` of each lane. A copy
    has a second address, in shared memory. Of a division, and the like, both are those of its numbers. Of a matrix
    the first `rows` lanes give addresses. A wait leaves `keep` groups under way; -1: not even what was not
    committed.
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
    # goes through the cache of the SM
    cached: bool = True
    # the slot of how many bytes a lane copies at most, -1: all
    limit: int = -1
