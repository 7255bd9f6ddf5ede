"""What the time of an npu run is spent on: works of the critical path, floors of the work, causes of the gap."""

from kernbench.npu.isa.places import AIC, AIV0, PIPES_OF, M, V

WORKS = ("cube", "vector", "moves", "memory", "scalar", "issue", "dispatch", "submit")


def pipe_name(lane: int, pipe: str) -> str:
    """A kind of pipe as reports call it; all vector cores are alike."""
    return {M: "cube", V: "vector"}.get(pipe, f"{'aic' if lane == AIC else 'aiv'} {pipe}")


PIPE_FLOORS = tuple(pipe_name(lane, pipe) for lane in (AIC, AIV0) for pipe in PIPES_OF[lane])
FLOORS = (*PIPE_FLOORS, "memory", "issue", "submit", "dispatch")
# rounding is that of the memory's bandwidth, imbalance what the busiest core does beyond its share
BEYOND = ("rounding", "imbalance")


def waiting(work: str) -> str:
    """The cause that the binding resource is idle while a work of the critical path goes on."""
    return f"waits for {work}"


GAPS = (*BEYOND, *map(waiting, WORKS))
# what the table of runs shows: the two kinds of arithmetic, the busiest pipe that moves, and the shared memory
ENGINES = ("cube", "vector", "mte", "memory")
