"""Categories of the time of an npu run: of the critical path, of the floors, and of the gap."""

from kernbench.npu.isa.units import AIC, AIV0, PIPES_OF, M, V

# categories of the critical path
WORKS = {
    "cube": "matrix products",
    "vector": "vector operations",
    "moves": "moves between the buffers of a core",
    "memory": "transfers from and to global memory",
    "scalar": "scalar instructions of a core",
    "issue": "a core handing operations to its pipes",
    "dispatch": "a scheduler handing blocks to cores",
    "submit": "the orchestrator submitting tasks",
}


def pipe_name(lane: int, pipe: str) -> str:
    """The name of a kind of pipe in reports; all vector cores are alike."""
    return {M: "cube", V: "vector"}.get(pipe, f"{'aic' if lane == AIC else 'aiv'} {pipe}")


PIPE_FLOORS = tuple(pipe_name(lane, pipe) for lane in (AIC, AIV0) for pipe in PIPES_OF[lane])
FLOORS = (*PIPE_FLOORS, "memory", "issue", "submit", "dispatch")
# rounding belongs to the memory's bandwidth, imbalance to the busiest core's work beyond its share
BEYOND = ("rounding", "imbalance")
_BEYOND = {
    "rounding": "A transfer ends on a whole picosecond.",
    "imbalance": "The busiest engine had more to do than the mean of all: share the work out more evenly.",
}


def waiting(work: str) -> str:
    """The cause that the binding resource is idle during some work of the critical path."""
    return f"waits for {work}"


GAPS = (*BEYOND, *map(waiting, WORKS))
# what the table of runs shows: the two kinds of arithmetic, the busiest pipe that moves, and the shared memory
ENGINES = ("cube", "vector", "mte", "memory")


def explain(cause: str) -> str:
    """The sentence for a cause of the gap; empty for one that is not known."""
    resource, found, work = cause.partition(f" {waiting('')}")
    if found and work in WORKS:
        return f"{resource} was idle while the critical path was in {WORKS[work]}."
    return _BEYOND.get(cause, "")
