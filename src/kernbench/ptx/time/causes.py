"""Names and explanations of what the time of a PTX launch is spent on.

Units that may be the bound, and causes of the gap.
"""

from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.result import Unit

UNITS = {
    Unit.ISSUE: "issue",
    Unit.FMA: "fma",
    Unit.ALU: "integer",
    Unit.MUFU: "mufu",
    Unit.DOUBLE: "double",
    Unit.LSU: "lsu",
    Unit.SHARED: "shared",
    Unit.TENSOR: "tensor",
    Unit.L1: "l1",
    Unit.PORT: "sm port",
    Unit.TMA: "tma",
    Unit.L2: "l2",
    Unit.HBM: "hbm",
    Unit.HANDOVERS: "handovers",
}
REASONS = {
    Reason.ISSUED: "issuing",
    Reason.FIXED: "fixed latencies",
    Reason.GLOBAL: "global memory",
    Reason.SHARED: "shared memory",
    Reason.MATH: "results of slow units",
    Reason.PIPE: "busy pipes",
    Reason.QUEUE: "memory queue",
    Reason.NOT_SELECTED: "other warps issue",
    Reason.BARRIER: "barriers",
    Reason.MBARRIER: "mbarriers",
    Reason.GROUP: "copy groups",
    Reason.TENSOR: "tensor results",
    Reason.BRANCH: "branches",
    Reason.FENCE: "fences",
    Reason.FETCH: "instruction fetch",
    Reason.SLEEP: "sleeping",
}
LAUNCH, TAIL, REST = "launch", "tail wave", "unexplained"
# the bound of a launch if no unit is
LATENCY = "latency"
FLOORS = tuple(UNITS.values())
GAPS = (LAUNCH, TAIL, *REASONS.values(), REST)
# units shown in the table of runs
ENGINES = ("issue", "tensor", "l2", "hbm")
_MEANINGS = {
    LAUNCH: "What a launch takes beside its CTAs: fuse kernels, or replay them as a graph.",
    TAIL: "SMs that had no CTA left while others still worked: a grid of whole waves, or even shares.",
    REASONS[Reason.ISSUED]: "Warps issue more instructions than the bound asks for: wider accesses, less address work.",
    REASONS[
        Reason.FIXED
    ]: "An instruction needs a result that takes a few cycles: more independent work or more warps.",
    REASONS[Reason.GLOBAL]: "Warps wait for global memory: more bytes in flight (stages, wider loads, more warps).",
    REASONS[Reason.SHARED]: "Warps wait for shared memory: load earlier, or avoid bank conflicts.",
    REASONS[Reason.MATH]: "Warps wait for units of long latency, such as MUFU: more independent work between.",
    REASONS[Reason.PIPE]: "The pipe that an instruction needs is taken: move work to another pipe.",
    REASONS[Reason.QUEUE]: "More accesses than the memory queue holds: fewer, wider ones.",
    REASONS[Reason.NOT_SELECTED]: "Warps are ready, but another one issues: there is enough parallelism here.",
    REASONS[Reason.BARRIER]: "Warps wait at barriers for the slowest: balance their work, or sync fewer of them.",
    REASONS[Reason.MBARRIER]: "Warps wait for phases of mbarriers: more stages between producer and consumer.",
    REASONS[Reason.GROUP]: "Warps wait for groups of copies: commit earlier, wait later.",
    REASONS[Reason.TENSOR]: "Warps wait for tensor cores or tensor memory: keep more products in flight.",
    REASONS[Reason.BRANCH]: "Taken branches: unroll.",
    REASONS[Reason.FENCE]: "Fences wait for what is under way: fewer of them.",
    REASONS[Reason.FETCH]: "Code is fetched anew: a loop larger than the instruction cache.",
    REASONS[Reason.SLEEP]: "Warps sleep (nanosleep) for as long as their kernel asks: sleep for less.",
    REST: "What neither the floor nor any wait of a warp explains.",
}


def explain(cause: str) -> str:
    """The sentence that explains a cause of the gap; empty for an unknown one."""
    return _MEANINGS.get(cause, "")
