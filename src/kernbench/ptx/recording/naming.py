"""Maps the effects of instructions to kinds of events."""

from collections.abc import Mapping

from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.isa.forms.effects import Event
from kernbench.ptx.recording.kinds import Kind

# kinds that do not depend on the state space
OF_EVENT: Mapping[Event, Kind] = {
    "load": Kind.GLOBAL_LOAD,
    "store": Kind.GLOBAL_STORE,
    "atomic": Kind.GLOBAL_ATOMIC,
    "reduction": Kind.GLOBAL_REDUCTION,
    "matrix load": Kind.MATRIX_LOAD,
    "matrix store": Kind.MATRIX_STORE,
    "prefetch": Kind.PREFETCH,
    "async copy": Kind.ASYNC_COPY,
    "async copy commit": Kind.ASYNC_COPY_COMMIT,
    "async copy wait": Kind.ASYNC_COPY_WAIT,
    "async copy arrive": Kind.ASYNC_COPY_ARRIVE,
    "bulk copy": Kind.BULK_LOAD,
    "bulk reduce": Kind.BULK_REDUCE,
    "bulk commit": Kind.BULK_COMMIT,
    "bulk wait": Kind.BULK_WAIT,
    "remote store": Kind.REMOTE_STORE,
    "mma": Kind.MMA,
    "warpgroup mma": Kind.WGMMA,
    "warpgroup fence": Kind.WGMMA_FENCE,
    "warpgroup commit": Kind.WGMMA_COMMIT,
    "warpgroup wait": Kind.WGMMA_WAIT,
    "tensor mma": Kind.TENSOR_MMA,
    "tensor copy": Kind.TENSOR_COPY,
    "tensor load": Kind.TENSOR_LOAD,
    "tensor store": Kind.TENSOR_STORE,
    "tensor wait": Kind.TENSOR_WAIT,
    "tensor commit": Kind.TENSOR_COMMIT,
    "tensor fence": Kind.TENSOR_FENCE,
    "tensor allocate": Kind.TENSOR_ALLOCATE,
    "tensor free": Kind.TENSOR_FREE,
    "tensor shift": Kind.TENSOR_SHIFT,
    "barrier": Kind.BARRIER_SYNC,
    "cluster barrier": Kind.CLUSTER_ARRIVE,
    "mbarrier init": Kind.MBARRIER_INIT,
    "mbarrier arrive": Kind.MBARRIER_ARRIVE,
    "mbarrier expect": Kind.MBARRIER_EXPECT,
    "mbarrier wait": Kind.MBARRIER_WAIT,
    "mbarrier inval": Kind.MBARRIER_INVAL,
    "fence": Kind.FENCE,
    "proxy fence": Kind.PROXY_FENCE,
    "registers": Kind.SET_REGISTERS,
    "grid dependency": Kind.GRID_DEPENDENCY,
    "sleep": Kind.SLEEP,
    "other": Kind.OTHER,
    "slow path": Kind.SLOW_PATH,
}
# kinds that depend on the state space
_IN_SPACE: Mapping[tuple[Event, str], Kind] = {
    ("load", "shared"): Kind.SHARED_LOAD,
    ("store", "shared"): Kind.SHARED_STORE,
    ("atomic", "shared"): Kind.SHARED_ATOMIC,
    ("reduction", "shared"): Kind.SHARED_ATOMIC,
    ("load", "cluster"): Kind.CLUSTER_LOAD,
    ("store", "cluster"): Kind.CLUSTER_STORE,
    ("atomic", "cluster"): Kind.CLUSTER_ATOMIC,
    ("reduction", "cluster"): Kind.CLUSTER_ATOMIC,
    ("load", "local"): Kind.LOCAL_LOAD,
    ("store", "local"): Kind.LOCAL_STORE,
}
# what an iteration that only waits may execute; what it may also execute if memory stays the same; and modifiers of
# atomics that take a lock if it is free
_WAITING: frozenset[Event] = frozenset(("load", "prefetch", "mbarrier wait", "fence", "proxy fence", "sleep"))
_CHANGING: frozenset[Event] = frozenset(("atomic", "store"))
_TAKING = frozenset(("cas", "exch"))


def may_wait(event: Event, name: str) -> bool:
    """Whether a wait loop may contain an instruction.

    It may contain what `only_waits` allows, CTA barriers, and operations that may leave memory unchanged, such as
    adding 0. Of stores only those to shared memory: one thread may pass what it observed to the others of its CTA.
    """
    if event in ("", "atomic", "barrier") or only_waits(event, name):
        return True
    return event == "store" and "global" not in name.split(".")


def may_change(event: Event, name: str) -> bool:
    """Whether an iteration with this instruction only waited if the instruction left memory unchanged."""
    return event in _CHANGING and not only_waits(event, name)


def only_waits(event: Event, name: str) -> bool:
    """Whether an instruction may be part of an iteration that only waits for others."""
    return event in _WAITING or (event == "atomic" and not _TAKING.isdisjoint(name.split(".")))


def access_kind(report: Report, space: str) -> int:
    """The kind of an access to a space: "global", "shared", "local", or "cluster" for another CTA's shared memory."""
    if report.space == "const":
        return int(Kind.CONSTANT_LOAD)
    return int(_IN_SPACE.get((report.event, space), OF_EVENT[report.event]))


def static_kind(event: Event, name: str) -> int:
    """The kind that follows from an instruction's text: with its space, if the text names it."""
    if not event:
        return int(Kind.NONE)
    words = [word.partition("::")[0] for word in name.split(".")]
    found = next((_IN_SPACE[event, word] for word in words if (event, word) in _IN_SPACE), OF_EVENT[event])
    if event == "load" and "const" in words:
        found = Kind.CONSTANT_LOAD
    if "param" in words and event in ("load", "store"):
        found = Kind.NONE
    if event == "barrier" and "arrive" in words:
        found = Kind.BARRIER_ARRIVE
    if event == "cluster barrier" and "wait" in words:
        found = Kind.CLUSTER_WAIT
    return int(found)
