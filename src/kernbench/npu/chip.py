"""The host of the npu: launches an orchestration function on arrays and returns a Run."""

import inspect
import os
import platform
import re
from bdb import BdbQuit
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import process_time
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from kernbench import __version__
from kernbench.common.dtypes import DTYPES, Array, as_array, dtype_name
from kernbench.common.errors import SHOWN_OF_KERNELS, KernbenchError, KernelError, MisuseError, said, unknown
from kernbench.npu.execution.dividing import Division, Limits
from kernbench.npu.execution.execute import Executor, callers, kernel_location
from kernbench.npu.execution.inside import stopping
from kernbench.npu.isa.model import ChipModel, load
from kernbench.npu.isa.operations import CLASSES, TABLE
from kernbench.npu.order.checks import check_order
from kernbench.npu.order.signal_order import conclude_signals
from kernbench.npu.recording.record import NpuRecording, repeated
from kernbench.npu.runtime.runtime import Runtime
from kernbench.npu.tasks.task import READS, UNTRACKED, Context
from kernbench.npu.tasks.tensors import Tensor
from kernbench.result.checkpoint import Taken
from kernbench.result.finding import Finding, SourceLocation
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget, OverBudgetError, Watchdog
from kernbench.safety.collector import rare_collections
from kernbench.safety.confined import is_beyond_memory
from kernbench.safety.jobs import one_thread, wanted_jobs
from kernbench.safety.source_locations import SiteTable
from kernbench.safety.stopping import StoppedError, Stopper
from kernbench.safety.unrun import check_ran

__kernbench_internal__ = True

# programs that could not be stopped; dropping the last reference to one would resume it
_abandoned: list[object] = []
# a whole launch may use the budget of this many blocks
_BLOCKS = 20
# a block that records only repeated rows for this fraction of its budget is in an endless loop
_LOOPS, _LEAST_LOOP = 20, 10_000

CHECKED = (
    "race", "missing-barrier", "flag-misuse", "deadlock", "tile-bounds", "tile-overlap", "misaligned",
    "uninitialised-read", "out-of-bounds", "argument-direction", "undeclared-access", "missing-dependence",
    "write-after-read", "use-after-free", "message-mismatch", "message-unreceived", "ring-deadlock",
    "stale-read", "unflushed-write", "undrained-store", "false-sharing",
    "output-unwritten", "over-budget", "shape", "dtype", "misuse", "kernel-error", "value-needed",
)  # fmt: skip


class Chip:
    """A chip to launch on: a bundled name ("a2a3", "a5"), a TOML path or a `ChipModel`; `changes` are dotted keys.

    With `shapes_only` launches carry no floats. `schedule` and `budget` are the defaults of launches.
    `kernels` are those that orchestrations submit by number: number -> (function, "aic" or "aiv"). Independent blocks
    of a long launch run in `jobs` processes (0: one per core), with the same outcome; the default is the variable
    KERNBENCH_JOBS, or one.
    """

    def __init__(
        self,
        chip: "str | os.PathLike[str] | ChipModel" = "a2a3",
        changes: Mapping[str, float | str] | None = None,
        shapes_only: bool = False,
        schedule: str | int = "canonical",
        budget: Budget | None = None,
        kernels: Mapping[int, tuple[Callable[..., object], str]] | None = None,
        jobs: int | None = None,
    ):
        self.machine = load(chip).override(changes or {})
        self.kernels = dict(kernels or {})
        self.shapes_only = shapes_only
        self.schedule = schedule
        self.budget = budget or Budget()
        # processes for a long launch, as given to `wanted_jobs`
        self.jobs = jobs
        # set to stop a launch inside a kernel, and to record checkpoints
        self.stop: Stopper | None = None
        self.checkpoints: Taken | None = None
        self.launches: list[Run] = []

    def __repr__(self) -> str:
        return f"<npu.Chip {self.machine.name}: {self.machine.clusters.count} clusters>"

    def launch(
        self,
        orchestrate: Callable[..., object],
        *args: object,
        schedule: str | int | None = None,
        budget: Budget | None = None,
        shapes_only: bool | None = None,
        track_war: bool = False,
        **kwargs: object,
    ) -> Run:
        """Run `orchestrate(rt, *args)`: arrays become tensors, everything else is passed on.

        `schedule` chooses among the orders that dependences allow. With `track_war` a task also waits for tasks that
        read what it overwrites; without it such a hazard is a finding. Arrays are copied; outputs are in the Run.
        """
        wanted = self.shapes_only if shapes_only is None else shapes_only or self.shapes_only
        chosen = self.schedule if schedule is None else schedule
        given = budget or self.budget
        jobs = 1 if self.stop is not None else wanted_jobs(self.jobs)
        launch = _Launch(self.machine, not wanted, chosen, track_war, self.kernels, given, jobs)
        launch.context.taken = self.checkpoints
        launch.run(orchestrate, args, kwargs, given, self.stop)
        self.division = launch.division
        run = Run(
            launch.outputs(),
            launch.context.log.findings(),
            CHECKED,
            launch.status,
            launch.context.recording,
            metrics=launch.metrics(),
            views=launch.views(self.stop),
            origin=self._origin(orchestrate, launch),
        )
        self.launches.append(replace(run))
        return run

    def retime(self, run: Run, changes: Mapping[str, object] | None = None) -> Run:
        """The run timed on this chip, with `changes` applied to its rates; only a safe run is timed."""
        # compiled code, imported only if times are wanted
        from kernbench.npu.time.measure import retime

        return retime(run, self.machine.override(changes or {}))

    def order_digest(self, run: Run) -> str:
        """A digest of the happens-before relation over all accesses of a run: equal if the order is the same."""
        from kernbench.npu.order.relation import order_digest

        assert run.recording is not None
        return order_digest(run.recording, self.machine)

    def _origin(self, orchestrate: Callable[..., object], launch: "_Launch") -> dict[str, dict[str, str] | int | str]:
        return {
            "target": "npu",
            "kernel": getattr(orchestrate, "__qualname__", repr(orchestrate)),
            "arguments": launch.described,
            "machine": self.machine.name,
            "machine_hash": self.machine.hash,
            "schedule": launch.schedule,
            "versions": {"kernbench": __version__, "numpy": np.__version__, "python": platform.python_version()},
        }


class _Launch:
    """One launch, from arrays to findings."""

    def __init__(
        self,
        chip: ChipModel,
        carries_data: bool,
        schedule: str | int,
        track_war: bool,
        kernels: dict[int, tuple[Callable[..., object], str]],
        budget: Budget,
        jobs: int,
    ):
        recording = NpuRecording()
        self.schedule = schedule
        self.context = Context(chip, carries_data, recording, SiteTable(recording.tables.sites))
        limits = Limits(_BLOCKS * budget.steps, budget.total_seconds)
        self.division = Division(self.context, jobs, limits, lambda: self._watchdog(budget, self._drop_copy))
        self.executor = Executor(self.context, schedule, self.division)
        self.runtime = Runtime(self.context, self.executor, track_war, kernels)
        self.status = Status.FINISHED
        self.described: dict[str, str] = {}
        # processor time at the start, and why the launch was stopped, if not by the limit on rows
        self.started, self.why = process_time(), ""
        self._budget = budget

    def run(
        self,
        orchestrate: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        budget: Budget,
        stop: Stopper | None = None,
    ) -> None:
        """Run to the end; findings are in the context's log."""
        names = _parameter_names(orchestrate, len(args))
        given = [self._argument(name, value) for name, value in zip(names, args, strict=True)]
        more = {name: self._argument(name, value) for name, value in kwargs.items()}
        where = _location(orchestrate)
        hub = getcurrent()

        def abandon(error: OverBudgetError) -> None:
            if getcurrent() is not hub:
                _abandoned.append(getcurrent())
                self._over_budget(error, where)
                hub.switch()

        program = greenlet(lambda: self._orchestrate(orchestrate, given, more, where))
        # tiles are small: BLAS threads would cost more to synchronise than they save
        with (
            rare_collections(),
            one_thread(),
            self._watchdog(budget, abandon),
            stopping(self.context, self.executor, stop),
        ):
            try:
                program.switch()
            finally:
                self.division.answer(self._is_fine)
                _abandoned.extend(self.executor.close())
        self.division.merge()
        if stop is not None and stop.met is not None:
            self.status = Status.STOPPED
        else:
            self._conclude(where)
        self.context.recording.finish()

    def _watchdog(self, budget: Budget, abandon: Callable[[OverBudgetError], None]) -> Watchdog:
        rows, division = self.context.recording.rows, self.division
        return Watchdog(budget.seconds, lambda: (len(rows), division.ticks), abandon, lambda: self._is_over(budget))

    def _drop_copy(self, error: OverBudgetError) -> None:
        self.division.give_up()

    def _is_fine(self) -> bool:
        """In a forked copy: whether the launch ended by itself and its rows are consistent in their order."""
        if self.status is not Status.FINISHED or self.executor.stopped or self.executor.suspended:
            return False
        return check_order(self.context, len(self.context.buffers), True)

    def views(self, stop: Stopper | None) -> dict[str, object]:
        """What reports draw besides the metrics."""
        views: dict[str, object] = {"printf": self.context.printed} if self.context.printed else {}
        if self.status is Status.STOPPED and stop is not None and stop.met is not None:
            views["stopped"] = stop.met.view()
        return views

    def _is_over(self, budget: Budget) -> bool:
        """Whether a block exceeds its budget of rows, or the launch `_BLOCKS` such budgets."""
        recording, running = self.context.recording, self.context.running
        count = recording.count
        own = count - recording.block_first[-1] if running is not None else 0
        if process_time() - self.started > budget.total_seconds:
            self.why = f"{budget.total_seconds:g} s of computing are over"
        elif own > (many := max(budget.steps // _LOOPS, min(budget.steps, _LEAST_LOOP))) and (
            period := repeated(recording.rows, many)
        ):
            self.why = f"its last {many:,} rows are {period} operation{'s'[: period > 1]} again and again, all the same"
        return bool(self.why) or own > budget.steps or count > _BLOCKS * budget.steps

    def _over_budget(self, error: OverBudgetError, where: SourceLocation) -> None:
        self.status = Status.OVER_BUDGET
        running = "" if self.context.running is None else f" in {self.context.running.task.describe()}"
        message = f"stopped after {self.context.recording.count:,} rows without an end in sight{running}"
        if not self.why and not self._is_over(self._budget):
            self.why = f"the last {self._budget.seconds:g} s went by without an operation"
        message += f": {self.why}" if self.why else ""
        hint = (
            "look for a loop whose condition never changes; a kernel that really is this long gets more with "
            "budget=Budget(steps=..., seconds=...), --max-steps or --max-seconds"
        )
        location = kernel_location(error) or where
        self.context.log.add(Finding("over-budget", message, location, callers(error), hint))

    def _argument(self, name: str, value: object) -> object:
        if (not hasattr(value, "__array__") and not hasattr(value, "__dlpack__")) or np.isscalar(value):
            self.described[name] = repr(value)
            return value
        try:
            array = as_array(value)
            dtype = dtype_name(array.dtype)
        except MisuseError as error:
            raise MisuseError(f"argument {name}: {error}") from None
        self.described[name] = f"{'x'.join(map(str, array.shape))} {dtype}"
        keeps = self.context.carries_data or DTYPES[dtype].kind != "float"
        flat = np.array(array, order="C").reshape(-1) if keeps else None
        return self.runtime.add_buffer(name, array.shape, dtype, flat, True)

    def _orchestrate(
        self, orchestrate: Callable[..., object], given: list[object], more: dict[str, object], where: SourceLocation
    ) -> None:
        try:
            # NaN and infinity are ordinary values in kernels, not errors
            with np.errstate(all="ignore"):
                self.runtime.open(False, where)
                check_ran(orchestrate(self.runtime, *given, **more), "orchestration")
                self.context.report_caught(None)
                self.runtime.close_all()
                self.runtime.finish()
        except StoppedError:
            self.status = Status.STOPPED
        except OverBudgetError as error:
            error.taken = True
            self._over_budget(error, where)
        except KernelError as error:
            self.context.forgive(error)
            self._failed(error.kind, error.message, error.hint, error.where or kernel_location(error) or where)
        except KernbenchError as error:
            self.context.forgive(error)
            self._failed("misuse", str(error), "", kernel_location(error) or where)
        except BdbQuit:
            raise KeyboardInterrupt("the debugger was left") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if is_beyond_memory(error):
                raise
            self._failed(*_diagnosis(error), kernel_location(error) or where)

    def _failed(self, kind: str, message: str, hint: str, where: SourceLocation) -> None:
        self.status = Status.FAILED
        self.context.report_caught(None)
        self.context.log.add(Finding(kind, message, where, (), hint))

    def _conclude(self, where: SourceLocation) -> None:
        context = self.context
        for finding in self.runtime.ring_deadlocks:
            context.log.add(finding, finding.message)
            self.status = Status.DEADLOCKED
        runs = self.division.is_merged or self._check_order()
        if self.status is Status.FINISHED:
            if self.executor.failed:
                self.status = Status.FAILED
            elif self.executor.deadlocked or not runs:
                self.status = Status.DEADLOCKED
        if self.status is Status.FINISHED:
            self._check_outputs(where)
            self._check_directions()

    def _check_order(self) -> bool:
        """Check the rows for races and other violations of order; False if a pipe would wait for ever."""
        context = self.context
        context.made_at = context.recording.settle(self.executor.turns)
        conclude_signals(context)
        ended = self.status is not Status.OVER_BUDGET and not self.executor.stopped
        return check_order(context, len(context.buffers), ended)

    def _written_args(self) -> dict[int, list[Any]]:
        """Arguments that tasks may write, by buffer."""
        found: dict[int, list[object]] = {}
        for task in self.context.tasks:
            for value in task.arguments:
                if isinstance(value, Tensor) and value.binding is not None and value.binding.direction != READS:
                    found.setdefault(value.buffer.number, []).append((task, value.binding))
        return found

    def _check_outputs(self, where: SourceLocation) -> None:
        for number, args in self._written_args().items():
            buffer = self.context.buffers[number]
            only_out = all(binding.direction == "OUT" for _, binding in args)
            if buffer.external and only_out and (left := buffer.shadow.unwritten()):
                total = int(np.prod(buffer.shape))
                self.context.log.add(
                    Finding(
                        "output-unwritten",
                        f"{left:,} of {total:,} elements of output {buffer.describe()} were never written",
                        args[0][0].where,
                        (),
                        "check which blocks store which part, and the last, ragged ones; what is to keep its values is "
                        "INOUT",
                    ),
                    buffer.name,
                )

    def _check_directions(self) -> None:
        """Report arguments that are declared as written by tasks that never write them."""
        for number, args in self._written_args().items():
            buffer = self.context.buffers[number]
            for task, binding in args:
                key = (task.record.name, binding.position)
                # a dummy task writes nothing, and a tensor with an initial value need not be written again
                excused = task.record.skipped or not task.kernels or binding.direction == UNTRACKED or buffer.is_filled
                if key not in self.context.written and not excused:
                    self.context.log.add(
                        Finding(
                            "argument-direction",
                            f"argument {binding.position} of {task.record.name} ({buffer.describe()}) is declared "
                            f"{binding.direction}, and no block ever writes it: tasks wait for it in vain",
                            task.where,
                            (),
                            "declare it IN, or store to it",
                        ),
                        key,
                    )

    def outputs(self) -> dict[str, Array]:
        """The arrays that tasks may have written, by name."""
        if not self.context.carries_data:
            return {}
        written = {*self._written_args(), *(c.target for c in self.context.recording.commands if c.verb == "write")}
        return {
            b.name: b.array.reshape(b.shape).copy()
            for b in self.context.buffers
            if b.external and b.number in written and b.array is not None
        }

    def metrics(self) -> dict[str, dict[str, int] | int | list[dict[str, object]]]:
        """Counts of the functional pass."""
        recording = self.context.recording
        counts = recording.operations()
        return {
            "commands": int(counts[CLASSES < 5].sum()),
            "rows": recording.count,
            "tasks": sum(bool(t.lanes) for t in recording.tasks),
            "blocks": len(recording.block_task),
            "operations": {op.name: int(n) for op, n in zip(TABLE, counts, strict=True) if n},
            "rings": [
                {"peak": list(ring.peak), "stalls": ring.stalls} for ring in self.runtime.rings if any(ring.peak)
            ],
        }


def _parameter_names(orchestrate: Callable[..., object], count: int) -> list[str]:
    if not callable(orchestrate):
        raise MisuseError(f"{orchestrate!r} is no orchestration: a function orchestrate(rt, ...) is wanted")
    names = list(inspect.signature(orchestrate).parameters)[1:]
    if len(names) < count:
        raise MisuseError(
            f"{count} arguments for {getattr(orchestrate, '__name__', 'orchestrate')}(rt, {', '.join(names)})"
        )
    return names[:count]


def _location(function: Callable[..., object]) -> SourceLocation:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (
        SourceLocation(code.co_filename, code.co_firstlineno, code.co_name)
        if code
        else SourceLocation("<orchestration>", 0)
    )


# the TypeError of Python for an argument that a method of the runtime does not have
_ARGUMENT = re.compile(r"Runtime\.(?P<method>\w+)\(\) got an unexpected keyword argument '(?P<name>\w+)'")
# methods of the runtime that an orchestration may use
_OF_THE_RUNTIME = (
    "submit", "submit_dummy", "tensor", "fifo", "scope", "read", "write", "clusters", "aivs", "chip",
)  # fmt: skip


def _diagnosis(error: BaseException) -> tuple[str, str, str]:
    """Kind, message and remedy for an error of the orchestration; for an unknown name the known ones are listed."""
    if isinstance(error, AttributeError) and isinstance(error.obj, Runtime) and error.name:
        return "misuse", unknown("name of the runtime", error.name, _OF_THE_RUNTIME), ""
    found = _ARGUMENT.fullmatch(str(error)) if isinstance(error, TypeError) else None
    if found is not None:
        known = [n for n in inspect.signature(getattr(Runtime, found["method"])).parameters if n != "self"]
        return "misuse", unknown(f"argument of rt.{found['method']}", found["name"], known), ""
    return "kernel-error", said(error, SHOWN_OF_KERNELS), "mend the orchestration's own code at this line"
