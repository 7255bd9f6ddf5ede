"""Tasks, their blocks and arguments, and the state shared by all parts of a launch."""

import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from kernbench.common.dtypes import dtype_name
from kernbench.common.errors import KernelError, MisuseError
from kernbench.npu.isa.mistakes import explained
from kernbench.npu.isa.model import ChipModel
from kernbench.npu.recording.calls import Calls
from kernbench.npu.recording.record import NpuRecording, TaskRecord
from kernbench.npu.tasks.predicates import Predicate
from kernbench.npu.tasks.signals import Signals
from kernbench.npu.tasks.tensors import Buffer, Tensor
from kernbench.result.checkpoint import Taken
from kernbench.result.finding import Finding, FindingLog, Other, SourceLocation
from kernbench.safety.source_locations import SiteTable

if TYPE_CHECKING:
    from kernbench.npu.tasks.fifo import Fifo, FifoState

__kernbench_internal__ = True
READS, WRITES, BOTH, UNTRACKED = "IN", "OUT", "INOUT", "NO_DEP"
# file name of lines typed into a debugger
_TYPED = "<stdin>"
Refusal = tuple[str, str, str, SourceLocation]


@dataclass(frozen=True)
class Arg:
    """A tensor argument of a task and its direction."""

    tensor: Tensor
    direction: str

    def __post_init__(self) -> None:
        if not isinstance(self.tensor, Tensor):
            raise MisuseError(
                f"{self.direction}({reprlib.repr(self.tensor)}): a tensor is wanted. Arrays become tensors as "
                "arguments of the launch, CREATE makes one; numbers are passed as they are"
            )


def IN(tensor: Tensor) -> Arg:  # noqa: N802
    """The task reads the tensor."""
    return Arg(tensor, READS)


def OUT(tensor: Tensor) -> Arg:  # noqa: N802
    """The task writes the tensor and does not need its old values."""
    return Arg(tensor, WRITES)


def INOUT(tensor: Tensor) -> Arg:  # noqa: N802
    """The task reads the tensor and writes it."""
    return Arg(tensor, BOTH)


def NO_DEP(tensor: Tensor) -> Arg:  # noqa: N802
    """The task may read and write the tensor, and the tensor map is neither consulted nor updated: it waits only for
    the task that made the tensor, and for `deps=`.
    """
    return Arg(tensor, UNTRACKED)


@dataclass(frozen=True)
class Create:
    """A tensor that the runtime makes when the task is submitted; the task writes it.

    With an initial value all its elements have it from the submit on. With `manual_dep` the tensor map never tracks
    it: tasks wait for the one that made it, and for `deps=`.
    """

    shape: tuple[int, ...]
    dtype: str
    name: str
    initial_value: float | int | None = None
    manual_dep: bool = False


def CREATE(  # noqa: N802
    shape: tuple[int, ...],
    dtype: str = "f32",
    name: str = "",
    initial_value: float | int | None = None,
    manual_dep: bool = False,
) -> Create:
    """A tensor made by the runtime for the task to write; it is in `task.outputs` after the submit.

    `initial_value` fills it when the task is submitted; with `manual_dep` the tensor map does not track it.
    """
    return Create(sizes(shape), dtype_name(dtype), name, initial_value, manual_dep)


def sizes(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of integers from 0 on."""
    try:
        found = tuple(index(n) for n in ((shape,) if hasattr(shape, "__index__") else shape))
    except TypeError:
        found = (-1,)
    if min(found, default=0) < 0:
        raise MisuseError(f"a shape is a sequence of whole numbers from 0 on; got {shape!r}")
    return found


@dataclass(eq=False)
class Task:
    """One submitted task. `outputs` are the tensors it created; `users` the tasks that use one of them, whether
    or not they depend on this one.
    """

    record: TaskRecord
    kernels: dict[int, Callable[..., object]]
    arguments: list[Any]
    fifos: "list[Fifo]"
    where: SourceLocation
    outputs: list[Tensor] = field(default_factory=list)
    predicate: Predicate | None = None
    # tasks that keep the tensors of this one alive until they end: they read them, or named this task in deps=
    retained_by: set[int] = field(default_factory=set)
    ancestors: int = 0
    waiting: set[int] = field(default_factory=set)
    consumers: set[int] = field(default_factory=set)
    users: set[int] = field(default_factory=set)
    done: bool = False

    @property
    def number(self) -> int:
        """Tasks are numbered in the order of their submits."""
        return self.record.number

    @property
    def task_id(self) -> int:
        """The number that `deps=` accepts instead of the task."""
        return self.record.number

    def __repr__(self) -> str:
        return f"<Task {self.describe()}>"

    def describe(self) -> str:
        """Number and name."""
        return f"task {self.number} ({self.record.name})"

    def after(self, other: int) -> bool:
        """Whether this task can only run when task `other` is done."""
        return bool(self.ancestors >> other & 1)


@dataclass(eq=False)
class Block:
    """One block of a task; `number` counts all blocks of a launch."""

    number: int
    task: Task
    index: int
    fifos: "list[FifoState]" = field(default_factory=list)


@dataclass(eq=False)
class Binding:
    """The connection of a tensor in a kernel to an argument of its task."""

    context: "Context"
    task: Task
    direction: str
    position: int
    name: str
    written: bool = False

    def __post_init__(self) -> None:
        # used at each transfer: whether the task may read it, and whether it may write it
        self.reads, self.writes = self.direction != WRITES, self.direction != READS

    def report(self, kind: str, message: str, hint: str, subject: object = None) -> None:
        """Report a finding at the kernel's line."""
        self.context.report(kind, message, hint, self.context.running, subject)


@dataclass(eq=False)
class Context:
    """The state shared by all parts of a launch."""

    chip: ChipModel
    carries_data: bool
    recording: NpuRecording
    sites: SiteTable
    log: FindingLog = field(default_factory=FindingLog)
    tasks: list[Task] = field(default_factory=list)
    running: Block | None = None
    written: set[tuple[str, int]] = field(default_factory=set)
    buffers: list[Buffer] = field(default_factory=list)
    # by block and lane: the calls of helpers that led to rows, with row numbers as first recorded
    calls: dict[tuple[int, int], Calls] = field(default_factory=dict)
    made_at: Any = None
    signals: Signals = field(default_factory=Signals)
    # lines that cores printed, and the comparison of checkpoints
    printed: list[str] = field(default_factory=list)
    taken: Taken | None = None
    # in one of several processes: called where blocks of other processes could affect what follows
    apart: Callable[[], NoReturn] | None = None
    # elements that the orchestrator read: buffer and offset
    asked: list[tuple[int, int]] = field(default_factory=list)
    # refused operations whose error has not ended its program, with their block (None: the orchestration)
    refused: dict[Refusal, Block | None] = field(default_factory=dict)

    def share(self) -> None:
        """Call before an operation that blocks of other processes could affect: one process alone cannot perform it."""
        if self.apart is not None:
            self.apart()

    def fail(self, kind: str, message: str, hint: str = "") -> NoReturn:
        """Refuse an operation of a kernel or the orchestration, at its own line."""
        self.refuse(error := KernelError(kind, message, hint))
        raise error

    def refuse(self, error: BaseException) -> None:
        """Record a refused operation: if its program catches the error, it is a finding all the same."""
        explanation = explained(error)
        if explanation is not None:
            self.refused.setdefault((*explanation, self.sites.locations[self.sites.here(2)]), self.running)

    def forgive(self, error: BaseException) -> None:
        """The error ended its program and is reported there."""
        explanation = explained(error)
        for refusal in [r for r in self.refused if r[:3] == explanation]:
            del self.refused[refusal]

    def report_caught(self, block: Block | None) -> None:
        """Report refused operations of a program that continued, except lines typed into a debugger."""
        for refusal in [r for r, owner in self.refused.items() if owner is block]:
            kind, message, hint, location = refusal
            del self.refused[refusal]
            if location.file != _TYPED:
                who = "orchestration" if block is None else "kernel"
                self.report(kind, f"{message} (the {who} caught the error and went on)", hint, block, where=location)

    def report(
        self,
        kind: str,
        message: str,
        hint: str,
        block: Block | None = None,
        subject: object = None,
        others: tuple[Other, ...] = (),
        where: SourceLocation | None = None,
    ) -> None:
        """Report a finding, at the kernel's line unless another location is given."""
        location = where or self.sites.locations[self.sites.here(2)]
        if where is None:
            others += called_from(location, self.sites.callers_here())
        in_task = f" [{block.task.describe()}, block {block.index}]" if block is not None else ""
        self.log.add(Finding(kind, message + in_task, location, others, hint), subject)

    def use_after_free(self, tensor: Tensor) -> None:
        """Report the use of a tensor whose scope was closed."""
        self.report(
            "use-after-free",
            f"{tensor.buffer.describe()} is used after the scope that owns it was closed",
            "make it in an outer scope, or submit the task inside the scope",
            None,
            tensor.name,
        )

    def calls_to(self, lane: int, row: int) -> tuple[SourceLocation, ...]:
        """The lines whose calls led to a row, innermost first; none if the row is of the kernel's own line."""
        block = int(np.searchsorted(self.recording.firsts(), row, side="right")) - 1
        calls = self.calls.get((block, lane))
        return calls.to(row if self.made_at is None else int(self.made_at[row])) if calls is not None else ()

    def task_of(self, block: int) -> Task:
        """The task of a block."""
        return self.tasks[self.recording.block_task[block]]


def called_from(
    location: SourceLocation, callers: Iterable[SourceLocation], role: str = "called from"
) -> tuple[Other, ...]:
    """Which call of a helper led to a location; calls on the line itself are left out."""
    return tuple(Other(role, c) for c in callers if (c.file, c.line) != (location.file, location.line))
