"""The runtime as an orchestration function sees it: scopes, tensors, FIFOs, submits, and values read and written."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from math import prod
from operator import index
from typing import Any

from kernbench.common.dtypes import ITEMSIZE, Array, dtype_name
from kernbench.common.errors import unknown
from kernbench.npu.execution.execute import Executor, bound
from kernbench.npu.isa.mistakes import refusing
from kernbench.npu.isa.units import AIC, AIV0, AIV1, LANES
from kernbench.npu.recording.record import Command, TaskRecord
from kernbench.npu.runtime.rings import HEAP_ALIGNMENT, Ring, Slot
from kernbench.npu.runtime.scopes import Scope, Scopes
from kernbench.npu.runtime.submit_checks import Kernel, check_args, check_submit
from kernbench.npu.runtime.tensor_map import TensorMap
from kernbench.npu.runtime.values import Values
from kernbench.npu.tasks.fifo import Fifo
from kernbench.npu.tasks.fitting import fitting
from kernbench.npu.tasks.predicates import Predicate, predicate_of
from kernbench.npu.tasks.shadow import Shadow
from kernbench.npu.tasks.task import WRITES, Arg, Context, Create, Task, sizes
from kernbench.npu.tasks.tensors import Buffer, Tensor, fresh_array, whole
from kernbench.result.finding import Finding, Other, SourceLocation

__kernbench_internal__ = True


class Runtime:
    """The runtime that an orchestration function gets as `rt`."""

    def __init__(
        self,
        context: Context,
        executor: Executor,
        track_war: bool,
        kernels: Mapping[int, tuple[Callable[..., object], str]] | None = None,
    ):
        self.context = context
        self._kernels = kernels or {}
        self._executor = executor
        self._map = TensorMap(track_war)
        tasks = context.chip.tasks
        limits = (tasks.window, tasks.heap, tasks.dependences)
        self.rings = [Ring(number, limits) for number in range(tasks.rings)]
        self._scopes = Scopes(context, self._command)
        self._values = Values(context, executor, self._map, self._command)
        self._reported: dict[int, tuple[SourceLocation, str]] = {}

    @property
    def clusters(self) -> int:
        """Clusters of the chip."""
        return self.context.chip.clusters.count

    @property
    def aivs(self) -> int:
        """Vector cores of the chip, which is how many blocks of a task of one vector lane run at the same time."""
        return self.context.chip.aivs

    @property
    def chip(self) -> str:
        """The chip's name."""
        return self.context.chip.name

    # Scopes

    def scope(self, manual: bool = False) -> AbstractContextManager[None]:
        """Tensors made and tasks submitted inside are released when it closes and they are done.

        In a manual scope dependences are only those given as deps=[...]; the tensor map is neither consulted nor
        updated, and scopes inside it are manual too. Scopes nest 64 deep at most, including the one around the
        orchestration.
        """
        self._check_caller("scope")
        return self._scopes.ask(manual, self._here())

    def open(self, manual: bool, where: SourceLocation) -> Scope:
        """Open a scope."""
        return self._scopes.open(manual, where)

    def close_all(self) -> None:
        """The orchestration has returned: close the open scopes."""
        self._scopes.close_all()

    def _check_caller(self, verb: str) -> None:
        if self.context.running is not None:
            self.context.fail(
                "misuse",
                f"{verb}: a kernel cannot speak to the runtime, which is the orchestrator's",
                "submit from the orchestration; a kernel has its core and its arguments",
            )

    def _here(self, depth: int = 3) -> SourceLocation:
        return self.context.sites.locations[self.context.sites.here(depth)]

    def _command(self, verb: str, target: int, waits: tuple[int, ...] = ()) -> None:
        self.context.recording.commands.append(Command(verb, target, self.context.sites.here(3), waits))

    # Tensors and FIFOs

    @refusing
    def tensor(
        self,
        shape: object,
        dtype: object = "f32",
        name: str = "",
        initial_value: float | int | None = None,
        manual_dep: bool = False,
    ) -> Tensor:
        """A tensor made by the runtime in the heap of this scope's ring, with its initial value or uninitialised."""
        self._check_caller("tensor")
        task = self._admit(Create(sizes(shape), dtype_name(dtype), name, initial_value, manual_dep))
        return task.outputs[0]

    @refusing
    def make(self, *wanted: Create) -> Task:
        """Make several tensors in one submit: they are the `outputs` of the task it returns."""
        self._check_caller("make")
        return self._admit(*wanted)

    def _admit(self, *wanted: Create) -> Task:
        """A task that only makes tensors and is done at once."""
        task = self._new_task("tensor", {}, 0, wanted, {})
        # it is done at once: nobody needs to wait for it
        self._make(task, wanted, -1)
        task.done = True
        # tasks that depend only on it may be staged at once
        task.record.early = True
        self._command("tensor", task.number)
        return task

    @refusing
    def fifo(self, name: str, direction: str, shape: tuple[int, int], dtype: str = "f32", depth: int = 2) -> Fifo:
        """A FIFO for the cores of a mixed task: "to_aiv" or "to_aic"; pass it in args."""
        if direction not in ("to_aiv", "to_aic"):
            self.context.fail("misuse", f"FIFO {name!r}: direction {direction!r}; it is 'to_aiv' or 'to_aic'")
        if depth < 1 or min(shape) < 1:
            self.context.fail("misuse", f"FIFO {name!r}: shape {shape} and depth {depth} must be at least 1")
        return Fifo(name, direction, (index(shape[0]), index(shape[1])), dtype_name(dtype), depth)

    @refusing
    def read(self, tensor: Tensor, *at: int) -> Any:
        """A value of a tensor, for the orchestrator; it waits for the tasks that write it."""
        self._check_caller("read")
        return self._values.read(tensor, at)

    @refusing
    def write(self, tensor: Tensor, *at: int, value: float | int) -> None:
        """Set an element of a tensor: `rt.write(t, 2, 3, value=7)`.

        The orchestrator waits for the tasks that write the element and the one that made the tensor, and for tasks that
        read a tensor of the runtime. Tasks that only read a tensor of the host are not waited for: declare it INOUT
        there.
        """
        self._check_caller("write")
        self._values.write(tensor, at, value)

    # Submits

    @refusing
    def submit(
        self,
        *,
        aic: Kernel | int | None = None,
        aiv: Kernel | int | None = None,
        aiv0: Kernel | int | None = None,
        aiv1: Kernel | int | None = None,
        args: Sequence[object] = (),
        block_num: int = 1,
        sync_start: bool = False,
        deps: Sequence[Task | int] = (),
        predicate: Predicate | Tensor | None = None,
        allow_early_resolve: bool = False,
        name: str = "",
    ) -> Task:
        """Submit a task: one kernel for each lane that takes part (`aiv` is both vector lanes), `block_num` times.

        Kernels are called as kernel(core, *args); one of the chip's `kernels` may be given by its number. Tensors are
        given as IN(t), OUT(t), INOUT(t), NO_DEP(t) or CREATE(shape, dtype); numbers and FIFOs as they are. `deps` are
        tasks, or their task_id. The task is skipped if its `predicate` (PREDICATE(t[0], "gt", 3), or t[0] alone for
        "not 0") does not hold; writers of that element must be waited for. With `allow_early_resolve` tasks that
        wait only for such tasks may be put on free cores before these are done, and start when they are.
        """
        lanes = ((AIC, aic), (AIV0, aiv if aiv0 is None else aiv0), (AIV1, aiv if aiv1 is None else aiv1))
        kernels = {lane: self._kernel(lane, f) for lane, f in lanes if f is not None}
        self._check_caller("submit")
        check_submit(self.context, kernels, block_num, sync_start, args)
        condition = predicate_of(predicate)
        if condition is not None and condition.element.buffer.closed:
            self.context.use_after_free(condition.element)
        title = name or "+".join(dict.fromkeys(getattr(f, "__name__", "kernel") for f in kernels.values()))
        held = [] if condition is None else [condition.element]
        task = self._submit(title, kernels, block_num, args, deps, held)
        task.record.sync_start, task.record.early = sync_start, allow_early_resolve
        task.predicate, task.record.predicated = condition, condition is not None
        if not task.waiting:
            self._executor.add(task)
        return task

    @refusing
    def submit_dummy(
        self,
        *,
        args: Sequence[Arg] = (),
        deps: Sequence[Task | int] = (),
        allow_early_resolve: bool = False,
        name: str = "dummy",
    ) -> Task:
        """Submit a task without kernels: it waits for its arguments and `deps`, and other tasks wait for it.

        It takes no core. Arguments are those of `submit`; what it declares as written keeps its values.
        """
        self._check_caller("submit_dummy")
        check_args(self.context, args)
        task = self._submit(name, {}, 0, args, deps)
        task.record.early = allow_early_resolve
        if not task.waiting:
            self._executor.add(task)
        return task

    def _submit(
        self,
        title: str,
        kernels: dict[int, Kernel],
        blocks: int,
        args: Sequence[object],
        deps: Sequence[Task | int],
        held: Sequence[Tensor] = (),
    ) -> Task:
        """A task with its dependences, tensors and slot, not yet ready to run. It uses `held` besides its args."""
        asked = [a for a in args if isinstance(a, Arg)]
        for arg in asked:
            if arg.tensor.buffer.closed:
                self.context.use_after_free(arg.tensor)
        dependences = self._dependences(asked, deps)
        created = [a for a in args if isinstance(a, Create)]
        task = self._new_task(title, kernels, blocks, created, dependences)
        self._retain(task, asked, dependences)
        task.fifos = [a for a in args if isinstance(a, Fifo)]
        task.record.fifos = tuple(f.record(task.record.lanes) for f in task.fifos)
        self._hold(task, [*(arg.tensor for arg in asked), *held])
        self._make(task, created, task.number)
        self._bind(task, args)
        self._command("submit", task.number)
        return task

    def _kernel(self, lane: int, kernel: object) -> Any:
        """The function with a number; a function is returned as it is."""
        if isinstance(kernel, bool) or not isinstance(kernel, int):
            return kernel
        if kernel not in self._kernels:
            self.context.fail("misuse", unknown("kernel number", kernel, sorted(self._kernels) or ["none"]))
        function, core = self._kernels[kernel]
        wanted = "aic" if lane == AIC else "aiv"
        if core != wanted:
            self.context.fail(
                "misuse",
                f"kernel {kernel} ({getattr(function, '__name__', 'kernel')}) is one for an {core}, and was submitted "
                f"to the {LANES[lane]}",
                f"submit({core}={kernel}, ...)",
            )
        return function

    def _dependences(self, args: list[Arg], deps: Sequence[Task | int]) -> dict[int, str]:
        found = {self._number(task): "given as deps" for task in deps}
        if not self._scopes.current.manual:
            for arg in args:
                for number, why in self._map.lookup(arg).items():
                    found.setdefault(number, why)
        return dict(sorted(found.items()))

    def _number(self, task: Task | int) -> int:
        """The number of a task, given as the task or by its task_id."""
        number = task.number if isinstance(task, Task) else task
        known = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(self.context.tasks)
        if not known:
            message = f"deps: {task!r} is no task; those that submit returned are wanted, or their task_id"
            self.context.fail("misuse", message)
        return number

    def _retain(self, task: Task, args: list[Arg], dependences: dict[int, str]) -> None:
        """The makers of the task's arguments, and the tasks in its deps=, keep their slots until it is done."""
        makers = {arg.tensor.buffer.maker for arg in args}
        for number, why in dependences.items():
            if number in makers or why == "given as deps":
                self.context.tasks[number].retained_by.add(task.number)

    def _new_task(
        self,
        name: str,
        kernels: dict[int, Kernel],
        blocks: int,
        created: Sequence[Create],
        dependences: dict[int, str],
    ) -> Task:
        context, scope = self.context, self._scopes.current
        ring = self.rings[min(scope.depth, len(self.rings) - 1)]
        nbytes = sum(-(-prod(c.shape) * ITEMSIZE[dtype_name(c.dtype)] // HEAP_ALIGNMENT) for c in created)
        amounts = (1, nbytes * HEAP_ALIGNMENT, len(dependences))
        self._wait_for_room(ring, amounts)
        record = TaskRecord(
            len(context.tasks), name, tuple(kernels), blocks, context.sites.here(3), dependences, ring.number,
            scope.number, amounts[1], False,
        )  # fmt: skip
        task = Task(record, kernels, [], [], self._here(4))
        task.ancestors = self._values.known
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

    def _hold(self, task: Task, tensors: Sequence[Tensor]) -> None:
        """The memory of tensors that a task uses is kept until it is done, whether or not it depends on their
        makers.
        """
        task.record.holds = tuple(sorted({t.buffer.creator for t in tensors if t.buffer.creator >= 0}))
        for number in task.record.holds:
            self.context.tasks[number].users.add(task.number)

    def _make(self, task: Task, created: Sequence[Create], maker: int) -> None:
        for wanted in created:
            name = wanted.name or f"{task.record.name}.{len(task.outputs)}"
            made = self.add_buffer(name, wanted.shape, dtype_name(wanted.dtype), None, False)
            made.buffer.manual_dep, made.buffer.maker = wanted.manual_dep, maker
            made.buffer.creator = task.number
            if wanted.initial_value is not None:
                self._fill(task, made.buffer, wanted.initial_value)
            task.outputs.append(made)

    def _fill(self, task: Task, buffer: Buffer, value: float | int) -> None:
        """Fill a new tensor with its initial value, before anybody can see it."""
        number = fitting(self.context, value, buffer.dtype)
        if buffer.array is not None:
            buffer.array[...] = number
        buffer.is_filled = True
        buffer.shadow.fill()
        task.record.filled_bytes += buffer.nbytes

    def add_buffer(self, name: str, shape: tuple[int, ...], dtype: str, array: Array | None, external: bool) -> Tensor:
        """A tensor for a new buffer."""
        context = self.context
        if not external:
            array = self._fresh(name, shape, dtype)
        scope = self._scopes.innermost.number if self._scopes.innermost is not None else -1
        buffer = Buffer(len(context.buffers), name, shape, dtype, array, external, scope)
        buffer.shadow = Shadow(buffer, context)
        context.buffers.append(buffer)
        return whole(buffer)

    def _fresh(self, name: str, shape: tuple[int, ...], dtype: str) -> Array | None:
        """Memory for a tensor of the runtime; if this computer has too little, that is an error with the size."""
        try:
            return fresh_array(shape, dtype, self.context.carries_data)
        except (MemoryError, ValueError):
            nbytes, heap = prod(shape) * ITEMSIZE[dtype], self.context.chip.tasks.heap
            self.context.fail(
                "misuse",
                f"tensor '{name}' ({'x'.join(map(str, shape))} {dtype}) has {nbytes:,} bytes ({nbytes / 2**30:,.1f} "
                f"GiB): this computer has no room for it, and a ring's heap on chip {self.chip} has {heap:,}",
                "make it smaller, or several of it in turn in scopes of their own; shapes_only=True carries no floats",
            )

    def _bind(self, task: Task, args: Sequence[object]) -> None:
        """Arguments as kernels get them; the tensor map records them."""
        made = iter(task.outputs)
        manual = self._scopes.current.manual
        for position, value in enumerate(args):
            arg = Arg(next(made), WRITES) if isinstance(value, Create) else value
            if isinstance(arg, Arg):
                if not manual:
                    self._map.insert(arg, task.number)
                arg = bound(self.context, task, arg.tensor, arg.direction, position)
            task.arguments.append(arg)

    # Rings

    def _wait_for_room(self, ring: Ring, amounts: tuple[int, int, int]) -> None:
        """Block the orchestrator while the ring is full; prove a deadlock if it can never drain."""
        if not ring.lacking(amounts):
            return
        ring.stalls += 1
        ring.reclaim(self._scopes.closed, self.context.tasks)
        while ring.lacking(amounts) and self._executor.run_one():
            ring.reclaim(self._scopes.closed, self.context.tasks)
        lacking = ring.lacking(amounts)
        if lacking and not self._executor.stopped:
            self._prove(ring, lacking, amounts)
            ring.grow(amounts)

    def _prove(self, ring: Ring, lacking: list[str], amounts: tuple[int, int, int]) -> None:
        if ring.number in self._reported:
            return
        if not ring.slots:
            message = (
                f"ring {ring.number}: one submit needs {amounts} (slots, heap bytes, entries); the ring is smaller"
            )
            self._reported[ring.number] = (self._here(5), message)
            return
        holder = ring.slots[0]
        scope = next(s for s in self._scopes if s.number == holder.scope)
        message = (
            f"the orchestrator waits for ring {ring.number}, which is full ({ring.usage(lacking)}). Every task is "
            f"done, but the oldest, {holder.task.describe()}, belongs to the scope opened at {scope.where} (depth "
            f"{scope.depth}), which only the waiting orchestrator can close"
        )
        self._reported[ring.number] = (self._here(5), message)

    @property
    def ring_deadlocks(self) -> list[Finding]:
        """The proved deadlocks, with the smallest sufficient sizes."""
        found = []
        for number, (where, message) in self._reported.items():
            ring = self.rings[number]
            holder = Other("the orchestrator waits here", where)
            hint = (
                f"close the scope earlier (an inner scope for each round of the loop), or make the ring larger: the "
                f"smallest sizes that work are {ring.least()}"
            )
            found.append(Finding("ring-deadlock", message, where, (holder,), hint))
        return found

    def finish(self) -> None:
        """Run the remaining tasks."""
        while self._executor.run_one():
            pass
        self._executor.stand_still()
