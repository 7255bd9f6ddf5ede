"""The runtime an orchestration function talks to: scopes, tensors, FIFOs, submits, and values read back."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any

from kernbench.common.dtypes import ITEMSIZE, dtype_name
from kernbench.common.errors import KernelError, unknown
from kernbench.npu.execute import Executor, bound
from kernbench.npu.fifo import Fifo
from kernbench.npu.places import AIC, AIV0, AIV1, LANES
from kernbench.npu.record import Command, TaskRecord
from kernbench.npu.rings import HEAP_ALIGNMENT, Ring, Slot
from kernbench.npu.shadow import Shadow
from kernbench.npu.task import WRITES, Arg, Context, Create, Task, sizes
from kernbench.npu.tensor_map import TensorMap
from kernbench.npu.tensors import Buffer, Tensor, fresh_array, whole
from kernbench.result.finding import Finding, Other, Place

__kernbench_internal__ = True
MOST_TENSORS, MOST_SCALARS = 32, 16
Kernel = Callable[..., Any]


@dataclass
class Scope:
    """A scope: everything submitted and made in it is given back when it closes."""

    number: int
    depth: int
    manual: bool
    where: Place


class Opening:
    """What `with` opens and closes: a scope that is asked for."""

    def __init__(self, runtime: "Runtime", manual: bool, where: Place):
        self._runtime, self._manual, self.where = runtime, manual, where
        self.scope: Scope | None = None

    def __enter__(self) -> None:
        if self.scope is not None:
            told = f"the scope of {self.where} is opened a second time"
            raise KernelError("misuse", told, "call rt.scope() for each: with rt.scope(): ...")
        self.scope = self._runtime.open(self._manual, self.where)

    def __exit__(self, kind: object, *exc: object) -> None:
        # what is raised on the way out says more than the order of scopes
        self._runtime.close(self.scope if kind is None else None)


class Runtime:
    """What an orchestration function is given as `rt`."""

    def __init__(
        self,
        context: Context,
        executor: Executor,
        track_war: bool,
        kernels: Mapping[int, tuple[Callable[..., Any], str]] | None = None,
    ):
        self._context = context
        self._kernels = kernels or {}
        self._executor = executor
        self._map = TensorMap(track_war)
        tasks = context.chip.tasks
        limits = (tasks.window, tasks.heap, tasks.dependences)
        self.rings = [Ring(number, limits) for number in range(tasks.rings)]
        self._scopes: list[Scope] = []
        self._asked: list[Opening] = []
        self._closed: set[int] = set()
        self._count = 0
        self._known: int = 0
        self._reported: dict[int, tuple[Place, str]] = {}

    @property
    def clusters(self) -> int:
        """Clusters of the chip."""
        return self._context.chip.clusters.count

    @property
    def chip(self) -> str:
        """The chip's name."""
        return self._context.chip.name

    # Scopes

    def scope(self, manual: bool = False) -> AbstractContextManager[None]:
        """Tensors made and tasks submitted inside are given back when it closes and they are done.

        In a manual scope dependences are only those given as deps=[...]; the tensor map is neither asked nor told.
        """
        self._check_caller("scope")
        self._asked.append(Opening(self, manual, self._here()))
        return self._asked[-1]

    def open(self, manual: bool, where: Place) -> Scope:
        """Open a scope."""
        self._check_caller("scope")
        self._scopes.append(Scope(self._count, len(self._scopes), manual, where))
        self._count += 1
        self._command("open", self._scopes[-1].number)
        return self._scopes[-1]

    def close(self, wanted: Scope | None = None) -> None:
        """Close the innermost scope, which must be the one that is meant, if one is."""
        if wanted is not None and wanted is not self._scopes[-1]:
            told = f"the scope opened at {wanted.where} is closed "
            told += "a second time" if wanted.number in self._closed else "before one that was opened inside it"
            raise KernelError("misuse", told, "with rt.scope(): closes each once, innermost first")
        scope = self._scopes.pop()
        self._closed.add(scope.number)
        self._command("close", scope.number)
        for buffer in self._context.buffers:
            if not buffer.external and buffer.scope == scope.number:
                buffer.closed = True

    def close_all(self) -> None:
        """The orchestration has returned: what it left open is told, and closed; so is what it never opened."""
        for opening in self._asked:
            if opening.scope is None:
                told = "rt.scope() makes a scope, and nothing opened it: what follows is outside it"
                self._context.report("misuse", told, "with rt.scope(): ...", where=opening.where)
        while len(self._scopes) > 1:
            left = self._scopes[-1]
            told = "the scope that is opened here was never closed: what was made in it is held until the end"
            self._context.report("misuse", told, "with rt.scope(): ... closes it at its end", where=left.where)
            self.close()
        self.close()

    def _check_caller(self, verb: str) -> None:
        if self._context.running is not None:
            raise KernelError(
                "misuse",
                f"{verb}: a kernel cannot speak to the runtime, which is the orchestrator's",
                "submit from the orchestration; a kernel has its core and its arguments",
            )

    def _here(self, depth: int = 3) -> Place:
        return self._context.sites.places[self._context.sites.here(depth)]

    def _command(self, verb: str, target: int, waits: tuple[int, ...] = ()) -> None:
        self._context.recording.commands.append(Command(verb, target, self._context.sites.here(3), waits))

    # Tensors and FIFOs

    def tensor(self, shape: Any, dtype: Any = "f32", name: str = "") -> Tensor:
        """A tensor made by the runtime in the heap of this scope's ring; it holds nothing yet."""
        self._check_caller("tensor")
        task = self._admit(Create(sizes(shape), dtype_name(dtype), name))
        return task.outputs[0]

    def _admit(self, *wanted: Create) -> Task:
        """A task that only makes tensors and is done at once."""
        task = self._new_task("tensor", {}, 0, False, wanted, {})
        self._make(task, wanted)
        task.done = True
        self._command("tensor", task.number)
        return task

    def fifo(self, name: str, direction: str, shape: tuple[int, int], dtype: Any = "f32", depth: int = 2) -> Fifo:
        """A FIFO for the cores of a mixed task: "to_aiv" or "to_aic"; pass it in args."""
        if direction not in ("to_aiv", "to_aic"):
            raise KernelError("misuse", f"FIFO {name!r}: direction {direction!r}; it is 'to_aiv' or 'to_aic'")
        if depth < 1 or min(shape) < 1:
            raise KernelError("misuse", f"FIFO {name!r}: shape {shape} and depth {depth} must be at least 1")
        return Fifo(name, direction, (index(shape[0]), index(shape[1])), dtype_name(dtype), depth)

    def read(self, tensor: Tensor, *at: int) -> Any:
        """A value of a tensor, for the orchestrator; it waits for the tasks that write it."""
        self._check_caller("read")
        element = tensor[at] if at else tensor
        if element.shape:
            raise KernelError("shape", f"read: an index for each axis of {tensor!r} is wanted; got {at}")
        self._check_alive(element)
        writers = self._map.writers(element)
        self._command("read", element.buffer.number, tuple(writers))
        while not all(self._context.tasks[w].done for w in writers) and self._executor.run_one():
            pass
        for number in writers:
            self._known |= self._context.tasks[number].ancestors | 1 << number
        array = element.buffer.array
        if array is None:
            raise KernelError(
                "value-needed",
                f"the orchestrator needs a value of {tensor.buffer.describe()}; this run carries no floats",
                "run with data, or pass the value as an argument",
            )
        shadow = element.buffer.shadow
        if not element.buffer.external and not shadow.holds(element.offset):
            self._context.report(
                "uninitialised-read",
                f"the orchestrator reads element {list(at)} of {tensor.buffer.describe()}, which no task wrote",
                "submit the task that writes it first",
                None,
                tensor.name,
            )
        return array[element.offset].item()

    # Submits

    def submit(
        self,
        *,
        aic: Kernel | int | None = None,
        aiv: Kernel | int | None = None,
        aiv0: Kernel | int | None = None,
        aiv1: Kernel | int | None = None,
        args: Sequence[Any] = (),
        block_num: int = 1,
        sync_start: bool = False,
        deps: Sequence[Task] = (),
        predicate: Tensor | None = None,
        name: str = "",
    ) -> Task:
        """Submit a task: one kernel for each lane that takes part (`aiv` is both vector lanes), `block_num` times.

        Kernels are called as kernel(core, *args); one of the chip's `kernels` may be given by its number. Tensors are
        given as IN(t), OUT(t), INOUT(t) or CREATE(shape, dtype); numbers and FIFOs as they are. `predicate` is one
        element of a tensor: the task is skipped where it is 0.
        """
        lanes = ((AIC, aic), (AIV0, aiv if aiv0 is None else aiv0), (AIV1, aiv if aiv1 is None else aiv1))
        kernels = {lane: self._kernel(lane, f) for lane, f in lanes if f is not None}
        where = self._here()
        self._check_caller("submit")
        self._check_submit(kernels, block_num, sync_start, args)
        self._check_fifos(kernels, args)
        if predicate is not None and (not isinstance(predicate, Tensor) or predicate.shape):
            raise KernelError("shape", f"predicate {predicate!r}: one element of a tensor is wanted, such as t[0]")
        title = name or "+".join(dict.fromkeys(getattr(f, "__name__", "kernel") for f in kernels.values()))
        asked = [a for a in args if isinstance(a, Arg)]
        for arg in asked:
            self._check_alive(arg.tensor)
        dependences = self._dependences(asked, deps, predicate)
        created = [a for a in args if isinstance(a, Create)]
        task = self._new_task(title, kernels, block_num, sync_start, created, dependences)
        task.where = where
        task.predicate = predicate
        task.fifos = [a for a in args if isinstance(a, Fifo)]
        task.record.fifos = tuple(f.record(task.record.lanes) for f in task.fifos)
        self._make(task, created)
        self._bind(task, args)
        self._command("submit", task.number)
        if not task.waiting:
            self._executor.add(task)
        return task

    def _kernel(self, lane: int, kernel: Any) -> Any:
        """The function meant by a number; a function is itself."""
        if isinstance(kernel, bool) or not isinstance(kernel, int):
            return kernel
        if kernel not in self._kernels:
            raise KernelError("misuse", unknown("kernel number", kernel, sorted(self._kernels) or ["none"]))
        function, core = self._kernels[kernel]
        wanted = "aic" if lane == AIC else "aiv"
        if core != wanted:
            raise KernelError(
                "misuse",
                f"kernel {kernel} ({getattr(function, '__name__', 'kernel')}) is one for an {core}, and was submitted "
                f"to the {LANES[lane]}",
                f"submit({core}={kernel}, ...)",
            )
        return function

    def _check_submit(self, kernels: dict[int, Kernel], blocks: int, sync_start: bool, args: Sequence[Any]) -> None:
        if not kernels or not all(map(callable, kernels.values())):
            raise KernelError("misuse", "a task needs a kernel, a function: submit(aic=..., aiv=...)")
        if isinstance(blocks, bool) or not hasattr(blocks, "__index__") or blocks < 1:
            raise KernelError("misuse", f"block_num {blocks!r}: a task has at least one block")
        if sync_start and blocks > self.clusters:
            raise KernelError(
                "misuse",
                f"sync_start with {blocks} blocks: they start together, and the chip has {self.clusters} clusters",
                "submit fewer blocks, or leave sync_start out",
            )
        tensors = sum(isinstance(a, (Arg, Create)) for a in args)
        fifos = sum(isinstance(a, Fifo) for a in args)
        if tensors > MOST_TENSORS or len(args) - tensors - fifos > MOST_SCALARS:
            raise KernelError(
                "misuse", f"{tensors} tensors and {len(args) - tensors - fifos} scalars: a task takes at most "
                f"{MOST_TENSORS} and {MOST_SCALARS}"
            )  # fmt: skip
        if any(isinstance(a, Tensor) for a in args):
            raise KernelError("misuse", "a tensor in args needs a direction: IN(t), OUT(t) or INOUT(t)")

    def _check_fifos(self, kernels: dict[int, Kernel], args: Sequence[Any]) -> None:
        vectors = len(kernels) - 1
        for fifo in args:
            if isinstance(fifo, Fifo) and (AIC not in kernels or not vectors):
                raise KernelError("misuse", "a FIFO needs a mixed task: an aic kernel and at least one aiv kernel")
            if isinstance(fifo, Fifo) and fifo.shape[0] % vectors:
                raise KernelError(
                    "shape", f"{fifo.describe()}: {vectors} vector lanes cannot share {fifo.shape[0]} rows evenly",
                    "make the rows of the FIFO a multiple of the lanes; tiles may be smaller",
                )  # fmt: skip

    def _check_alive(self, tensor: Tensor) -> None:
        if tensor.buffer.closed:
            self._context.report(
                "use-after-free",
                f"{tensor.buffer.describe()} is used after the scope that owns it was closed",
                "make it in an outer scope, or submit the task inside the scope",
                None,
                tensor.name,
            )

    def _dependences(self, args: list[Arg], deps: Sequence[Task], predicate: Tensor | None) -> dict[int, str]:
        if not all(isinstance(task, Task) for task in deps):
            raise KernelError("misuse", f"deps={deps!r}: a list of tasks, as submit returns them, is wanted")
        found = {task.number: "given as deps" for task in deps}
        if not self._scopes[-1].manual:
            for arg in args:
                for task, why in self._map.lookup(arg).items():
                    found.setdefault(task, why)
        if predicate is not None:
            for task in self._map.writers(predicate):
                found.setdefault(task, f"predicate {predicate.name}")
        return dict(sorted(found.items()))

    def _new_task(
        self,
        name: str,
        kernels: dict[int, Kernel],
        blocks: int,
        sync_start: bool,
        created: Sequence[Create],
        dependences: dict[int, str],
    ) -> Task:
        context, scope = self._context, self._scopes[-1]
        ring = self.rings[min(scope.depth, len(self.rings) - 1)]
        nbytes = sum(-(-prod(c.shape) * ITEMSIZE[dtype_name(c.dtype)] // HEAP_ALIGNMENT) for c in created)
        amounts = (1, nbytes * HEAP_ALIGNMENT, len(dependences))
        self._wait_for_room(ring, amounts)
        record = TaskRecord(
            len(context.tasks), name, tuple(kernels), blocks, context.sites.here(3), dependences, ring.number,
            scope.number, amounts[1], sync_start,
        )  # fmt: skip
        task = Task(record, kernels, [], [], self._here(4))
        task.ancestors = self._known
        for number in dependences:
            earlier = context.tasks[number]
            task.ancestors |= earlier.ancestors | 1 << number
            earlier.consumers.add(task.number)
            if not earlier.done:
                task.waiting.add(number)
        context.tasks.append(task)
        context.recording.tasks.append(record)
        ring.take(Slot(task, scope.number, amounts))
        return task

    def _make(self, task: Task, created: Sequence[Create]) -> None:
        for wanted in created:
            name = wanted.name or f"{task.record.name}.{len(task.outputs)}"
            task.outputs.append(self.add_buffer(name, wanted.shape, dtype_name(wanted.dtype), None, False))

    def add_buffer(self, name: str, shape: tuple[int, ...], dtype: str, array: Any, external: bool) -> Tensor:
        """Memory that tasks can be given."""
        context = self._context
        if not external:
            array = self._fresh(name, shape, dtype)
        scope = self._scopes[-1].number if self._scopes else -1
        buffer = Buffer(len(context.buffers), name, shape, dtype, array, external, scope)
        buffer.shadow = Shadow(buffer, context)
        context.buffers.append(buffer)
        return whole(buffer)

    def _fresh(self, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """Memory for a tensor of the runtime; what this computer has no room for is told, with its size."""
        try:
            return fresh_array(shape, dtype, self._context.carries_data)
        except (MemoryError, ValueError):
            nbytes, heap = prod(shape) * ITEMSIZE[dtype], self._context.chip.tasks.heap
            raise KernelError(
                "misuse",
                f"tensor '{name}' ({'x'.join(map(str, shape))} {dtype}) has {nbytes:,} bytes ({nbytes / 2**30:,.1f} "
                f"GiB): this computer has no room for it, and a ring's heap on chip {self.chip} has {heap:,}",
                "make it smaller, or several of it in turn in scopes of their own; shapes_only=True carries no floats",
            ) from None

    def _bind(self, task: Task, args: Sequence[Any]) -> None:
        """Arguments as kernels get them, and the tensor map told of them."""
        made = iter(task.outputs)
        manual = self._scopes[-1].manual
        for position, value in enumerate(args):
            arg = Arg(next(made), WRITES) if isinstance(value, Create) else value
            if isinstance(arg, Arg):
                if not manual:
                    self._map.insert(arg, task.number)
                arg = bound(self._context, task, arg.tensor, arg.direction, position)
            task.arguments.append(arg)

    # Rings

    def _wait_for_room(self, ring: Ring, amounts: tuple[int, int, int]) -> None:
        """Block the orchestrator while the ring is full; prove a deadlock if it can never drain."""
        if not ring.lacking(amounts):
            return
        ring.stalls += 1
        ring.reclaim(self._closed, self._context.tasks)
        while ring.lacking(amounts) and self._executor.run_one():
            ring.reclaim(self._closed, self._context.tasks)
        lacking = ring.lacking(amounts)
        if lacking and not self._executor.stopped:
            self._prove(ring, lacking, amounts)
            ring.grow(amounts)

    def _prove(self, ring: Ring, lacking: list[str], amounts: tuple[int, int, int]) -> None:
        if ring.number in self._reported:
            return
        if not ring.slots:
            told = f"ring {ring.number}: one submit needs {amounts} (slots, heap bytes, entries); the ring is smaller"
            self._reported[ring.number] = (self._here(5), told)
            return
        holder = ring.slots[0]
        scope = next(s for s in self._scopes if s.number == holder.scope)
        told = (
            f"the orchestrator waits for ring {ring.number}, which is full ({ring.told(lacking)}). Every task is "
            f"done, but the oldest, {holder.task.describe()}, belongs to the scope opened at {scope.where} (depth "
            f"{scope.depth}), which only the waiting orchestrator can close"
        )
        self._reported[ring.number] = (self._here(5), told)

    @property
    def ring_deadlocks(self) -> list[Finding]:
        """What was proved, with the smallest sizes that would work."""
        found = []
        for number, (where, told) in self._reported.items():
            ring = self.rings[number]
            holder = Other("the orchestrator waits here", where)
            hint = (
                f"close the scope earlier (an inner scope for each round of the loop), or make the ring larger: the "
                f"smallest sizes that work are {ring.least()}"
            )
            found.append(Finding("ring-deadlock", told, where, (holder,), hint))
        return found

    def finish(self) -> None:
        """Run what is left."""
        while self._executor.run_one():
            pass
