"""One launch: sets up a program for each PE, runs them all, and turns the result into findings and a Run."""

from bdb import BdbQuit
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from greenlet import GreenletExit

from kernbench.common.errors import SHOWN_OF_KERNELS, KernbenchError, KernelError, said, traced, was_raised_by_kernel
from kernbench.common.ipcq_types import OPPOSITE
from kernbench.common.pe_commands import TensorHandle
from kernbench.machine import Machine
from kernbench.machine.grid import Grid
from kernbench.mesh.dividing.divided import Divided
from kernbench.mesh.dividing.division import Division, Outcome
from kernbench.mesh.programs.placement import Placement
from kernbench.mesh.programs.port import MeshPort, waiting
from kernbench.mesh.programs.queues import Message, Queue
from kernbench.mesh.programs.scheduler import Program, Scheduler
from kernbench.mesh.programs.state import State
from kernbench.mesh.programs.tensors import Tensor
from kernbench.mesh.programs.waiters import waiter
from kernbench.mesh.wiring import Wiring
from kernbench.result.checkpoint import Taken
from kernbench.result.finding import Finding, FindingLog, SourceLocation
from kernbench.result.recording import QueueLink, Recording, Stream, Tables
from kernbench.result.run import Status
from kernbench.safety.budget import Budget, OverBudgetError
from kernbench.safety.collector import rare_collections
from kernbench.safety.confined import is_beyond_memory
from kernbench.safety.jobs import one_thread
from kernbench.safety.memory import AddressSpace, Kept, Region
from kernbench.safety.source_locations import SiteTable, is_installed
from kernbench.safety.stopping import StoppedError, Stopper
from kernbench.safety.unrun import check_ran
from kernbench.safety.waits import Waiter, deadlock
from kernbench.triton_emu.repeating.loops import Trust, UnlikeIterationError
from kernbench.triton_emu.repeating.routines import Known
from kernbench.triton_emu.tl_context import TLContext, run_kernel

# file name of lines typed into a debugger
_TYPED = "<stdin>"


@dataclass(frozen=True)
class Setting:
    """Everything a launch consists of besides the kernel and its arguments."""

    machine: Machine
    placements: list[Placement]
    counts: tuple[int, int]
    wiring: Wiring
    inside: Wiring
    grid: Grid
    tensors: list[Tensor]
    carries_data: bool
    schedule: str | int
    budget: Budget
    stop: Stopper | None = None
    taken: Taken | None = None
    # whether repeating loops are recorded without running each iteration
    folds: bool = False
    # the same in a launch with data, whose tensors can be restored if a loop does not repeat
    folds_values: bool = False
    # over how many processes a launch with data may be divided
    jobs: int = 1


class Launch:
    """Runs `kernel` on every PE of the setting."""

    def __init__(
        self,
        setting: Setting,
        kernel: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ):
        self._setting = setting
        self._kernel = kernel
        self._args = args
        self._kwargs = kwargs
        self._tables = Tables()
        self._sites = SiteTable(self._tables.sites)
        self._scheduler = Scheduler(setting.schedule)
        self._programs: list[Program] = []
        self._ports: list[MeshPort] = []
        self._contexts: list[TLContext] = []
        self._queues: list[Queue] = []
        self._routines, self._trust = Known(), Trust()
        # without data only integer tensors are written
        self.kept = Kept() if setting.folds_values or setting.folds else None
        self.log = FindingLog()
        # printed lines, in order of execution
        self.printed: list[str] = []
        self.status = Status.FINISHED
        # how the rest of it was divided over processes, and the most scratch bytes that a PE had in use there
        self.division: Outcome | None = None
        self._peak_elsewhere = 0

    def run(self) -> Recording:
        """Run to the end; findings are in `log`, the outcome in `status`."""
        for placement in self._setting.placements:
            self._add_program(placement)
        self._connect()
        division = self._division()
        self._scheduler.is_due, self._scheduler.divide = division.is_due, division.divide
        # tiles are small: BLAS threads would cost more to synchronise than they save
        with one_thread(), rare_collections(), self._stopping():
            self._scheduler.run(self._programs, self._setting.budget, self._steps, self._settle)
        self.division, self._peak_elsewhere = division.outcome, division.peak
        streams = [division.streams.get(number, c.commands) for number, c in enumerate(self._contexts)]
        return Recording(self._tables, [stream for stream in streams if len(stream)], self._links())

    def _division(self) -> Division:
        """The division of the rest of the launch over processes, once it has taken a while."""
        launch = Divided(
            self._setting.placements, self._programs, self._ports, self._contexts, self._queues, self._setting.tensors,
            self._tables, self._sites, self._scheduler, self.log, self.printed,
            partial(self._kernel, *self._args, **self._kwargs), self._setting.budget,
        )  # fmt: skip
        return Division(launch, self._setting.jobs if self._setting.carries_data else 1)

    def _stopping(self) -> AbstractContextManager[None]:
        """Install the debugger's stopper while programs run."""
        stop = self._setting.stop
        if stop is None:
            return nullcontext()
        self.log.on_finding = stop.found
        return stop.watching(self._running, _shown)

    def _running(self) -> str:
        running = self._scheduler.running
        return "" if running is None else f"rank {self._setting.placements[running.number].rank}"

    def _links(self) -> list[QueueLink]:
        seats = {p.seat: p for p in self._setting.placements}
        return [self._link(seats[q.sender], q.direction, seats[q.receiver]) for q in self._queues]

    def _link(self, sender: Placement, direction: str, receiver: Placement) -> QueueLink:
        between_ranks = sender.leads and receiver.leads
        if between_ranks:
            hops = self._setting.grid.distance(sender.rank, receiver.rank)
        else:
            hops = self._setting.machine.cube.grid.distance(sender.pe, receiver.pe)
        across = between_ranks and self._setting.counts[1] > 1
        return QueueLink((sender.cube, sender.pe), direction, (receiver.cube, receiver.pe), max(1, hops), across)

    @property
    def folded_wrongly(self) -> bool:
        """Whether a loop or a call was wrongly taken to repeat itself: the results of this launch are invalid."""
        return any(c.core.folded_wrongly for c in self._contexts)

    @property
    def recorded_too_little(self) -> bool:
        """Whether it did not end, and a program that repeated messages may have recorded too few commands."""
        return self.status is not Status.FINISHED and any(c.core.passed_unseen for c in self._contexts)

    @property
    def scratch_peak(self) -> int:
        """The most scratch bytes any PE had in use at once."""
        return max([self._peak_elsewhere, *(c.scratch_peak for c in self._contexts)])

    def _steps(self) -> int:
        return sum(c.core.steps for c in self._contexts)

    def _add_program(self, placement: Placement) -> None:
        setting = self._setting
        memory = AddressSpace(setting.carries_data, lambda window: self._region(window, placement), self.kept)
        port = MeshPort(placement, memory, self.log, self._scheduler, setting.carries_data, self.printed)
        stream = Stream(placement.pe, placement.cube, placement.rank, self._tables)
        context = TLContext(
            placement.pe,
            setting.counts[0],
            placement.cube,
            setting.counts[1],
            setting.machine.pe.dispatch_cycles,
            scratch_size=setting.machine.pe.scratch,
            port=port,
            stream=stream,
            sites=self._sites,
            max_steps=setting.budget.steps,
        )
        context.core.folds, context.core.folds_values = setting.folds, setting.folds_values
        context.core.routines.known, context.core.watch.trust = self._routines, self._trust
        program = Program(
            placement.number, lambda: self._body(port, context), lambda error: self._over_budget(port, context, error)
        )
        port.program = program
        port.taken = setting.taken
        self._programs.append(program)
        self._ports.append(port)
        self._contexts.append(context)

    def _region(self, window: int, placement: Placement) -> Region | None:
        tensors = self._setting.tensors
        if not 1 <= window <= len(tensors):
            return None
        return tensors[window - 1].region(placement.number, placement.rank)

    def _connect(self) -> None:
        placements = self._setting.placements
        leaders = {p.rank: p for p in placements if p.leads}
        for rank, around in self._setting.wiring.items():
            for direction, other in around.items():
                self._add_queue(leaders[rank], direction, leaders[other])
        if not self._setting.inside:
            return
        by_pe = {(p.cube, p.pe): p for p in placements}
        for (cube, pe), placement in by_pe.items():
            for direction, other in self._setting.inside[pe].items():
                self._add_queue(placement, direction, by_pe[cube, other])

    def _add_queue(self, sender: Placement, direction: str, receiver: Placement) -> None:
        ipcq = self._setting.machine.ipcq
        queue = Queue(sender.seat, receiver.seat, direction, ipcq.depth, ipcq.slot, (sender.name, receiver.name))
        self._ports[sender.number].outgoing[direction] = queue
        self._ports[receiver.number].incoming[OPPOSITE[direction]] = queue
        self._queues.append(queue)

    def _body(self, port: MeshPort, context: TLContext) -> State:
        """Run one program; returns its final state."""
        try:
            # NumPy keeps its error state per coroutine; NaN and infinity are ordinary values in kernels
            with np.errstate(all="ignore"):
                result = run_kernel(self._kernel, context, *self._args, **self._kwargs)
            _report_caught(port, context)
            check_ran(result)
        except (StoppedError, UnlikeIterationError):
            self._scheduler.stop()
            return State.STOPPED
        except OverBudgetError as error:
            error.taken = True
            self._over_budget(port, context, error)
            return State.STOPPED
        except KernelError as error:
            context.core.refused.pop((error.kind, error.message, error.hint, error.where), None)
            _report_caught(port, context)
            port.report(error.kind, error.message, error.hint, error.where or self._kernel_location())
            return State.FAILED
        except KernbenchError as error:
            port.report("misuse", str(error), "", self._raised_at(error))
            return State.FAILED
        except BdbQuit:
            raise KeyboardInterrupt("the debugger was left") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if _says_nothing(error):
                raise
            if context.core.watch.may_have_caused(error):
                context.core.folded_wrongly = True
            _report_caught(port, context)
            message = said(error, SHOWN_OF_KERNELS)
            port.report("kernel-error", message, _remedy(error), self._raised_at(error))
            return State.FAILED
        return State.RETURNED

    def _kernel_location(self) -> SourceLocation:
        kernel = self._kernel
        while isinstance(kernel, partial):
            kernel = kernel.func
        code = getattr(kernel, "__code__", None)
        if code is None:
            return SourceLocation("<kernel>", 0, getattr(self._kernel, "__name__", "kernel"))
        return SourceLocation(code.co_filename, code.co_firstlineno, code.co_name)

    def _raised_at(self, error: BaseException) -> SourceLocation:
        """The innermost line of the traceback outside kernbench."""
        where = self._kernel_location()
        for frame, line in traced(error):
            file = frame.f_code.co_filename
            if not is_installed(file) and not _is_ours(frame.f_globals.get("__name__", "")):
                where = SourceLocation(file, line, frame.f_code.co_name)
        return where

    def _over_budget(self, port: MeshPort, context: TLContext, error: OverBudgetError) -> None:
        budget = self._setting.budget
        if not error.args:
            spent = f"went {budget.seconds:g} s without a command and had not returned"
            limit = f"{len(context.commands):,} commands so far"
            where, more = self._raised_at(error), "budget=Budget(seconds=...) or --max-seconds"
        else:
            spent, where = error.args
            limit = f"its budget is {budget.steps:,}: {budget.source}"
            more = "budget=Budget(steps=...) or --max-steps"
            if context.core.steps <= budget.steps:
                limit = f"the launch may take {budget.total_seconds:g} s of computing"
                more = "budget=Budget(total_seconds=...) or --max-total-seconds"
        port.report(
            "over-budget",
            f"the program {spent} ({limit})",
            f"look for a loop whose condition never changes; a kernel that really is this long gets more with {more}",
            where,
        )
        self._scheduler.stop()

    def _settle(self) -> None:
        """No program can continue: draw conclusions before programs that never returned are ended."""
        self.log.on_finding = None
        self._conclude()

    def _conclude(self) -> None:
        """Report findings that only the end of a launch can show."""
        states = {p.state for p in self._programs}
        if self._setting.stop is not None and self._setting.stop.met is not None:
            self.status = Status.STOPPED
        elif State.STOPPED in states:
            self.status = Status.OVER_BUDGET
        elif State.FAILED in states:
            self.status = Status.FAILED
        elif State.WAITING in states:
            self.status = Status.DEADLOCKED
            self.log.add(self._deadlock())
        else:
            self._unreceived()
            self._unwaited()

    def _deadlock(self) -> Finding:
        waiters = []
        for placement, program in zip(self._setting.placements, self._programs, strict=True):
            if program.state is State.WAITING:
                waiters.append(self._waiter(placement.seat, program))
        fates = zip(self._setting.placements, self._programs, strict=True)
        ended = {p.seat: str(g.state) for p, g in fates if g.state is not State.WAITING}
        inner = {p.seat: (p.rank, p.name) for p in self._setting.placements if not p.leads}
        return deadlock(waiters, ended, self._deadlock_hint(), inner)

    def _waiter(self, seat: int, program: Program) -> Waiter:
        request, where = waiting(program.waits)
        queue = request.queue
        assert queue is not None
        return waiter(seat, isinstance(request, Message), queue, where)

    def _deadlock_hint(self) -> str:
        blocked = [q for q in self._queues if q.outbox]
        if not blocked:
            return "every receive needs a matching send: check which rank sends in which step, and in which direction"
        depth = max(q.wanted_depth for q in blocked)
        return (
            f"receive before sending more, or send with send_async; or give the queues depth {depth} or more "
            f"(now {blocked[0].depth}, machine key ipcq.depth)"
        )

    def _unreceived(self) -> None:
        ranks = {p.seat: p.rank for p in self._setting.placements}
        for queue in self._queues:
            for message in queue.unreceived:
                self.log.add(
                    Finding(
                        "message-unreceived",
                        f"a message of {message.describe()}, sent {queue.direction} by {queue.names[0]}, was never "
                        f"received by {queue.names[1]}",
                        message.where,
                        (),
                        "add the missing receive, or do not send what nobody expects (the last step of a ring)",
                        1,
                        (ranks[queue.sender],),
                    )
                )

    def _unwaited(self) -> None:
        for placement, context in zip(self._setting.placements, self._contexts, strict=True):
            for pending in context.pending:
                self.log.add(
                    Finding(
                        "missing-wait",
                        f"an asynchronous {pending.verb} {pending.direction} was started and never waited for",
                        pending.where,
                        (),
                        "call wait() on what it returned, before the kernel returns",
                        1,
                        (placement.rank,),
                    )
                )


def _shown(value: object) -> tuple[Any, str] | None:
    """A handle's values, for inspection in a debugger."""
    return (value.data, f"{value.dtype} in {value.space}") if isinstance(value, TensorHandle) else None


def _says_nothing(error: BaseException) -> bool:
    """Whether an error is no fault of the kernel: its coroutine ends, or a limit of this process was reached."""
    return is_beyond_memory(error) or (isinstance(error, GreenletExit) and not was_raised_by_kernel(error))


def _report_caught(port: MeshPort, context: TLContext) -> None:
    """Report refused operations whose error the kernel caught, except lines typed into a debugger."""
    for kind, message, hint, location in context.core.refused:
        if location.file == _TYPED:
            continue
        port.report(kind, f"{message} (the kernel caught the error and went on)", hint, location)


def _remedy(error: BaseException) -> str:
    """The hint for an exception of the kernel's own Python code."""
    if isinstance(error, MemoryError):
        return "this computer's memory does not hold the value: smaller tiles, or a launch with shapes_only=True"
    if isinstance(error, RecursionError):
        return "the function calls itself without end, or too deeply: stop the recursion, or write it as a loop"
    if isinstance(error, OverflowError) and "Python integer" in str(error):
        return "NumPy's narrow numbers hold no addresses, and wrap around: make a plain number of it with int()"
    return "mend the kernel's own code at this line; run_kernel(kernel, TLContext(), ...) gives a full traceback"


def _is_ours(module: str) -> bool:
    """Whether a module is kernbench's own, the bundled kernels aside."""
    return module.startswith("kernbench.") and not module.startswith("kernbench.benches.")
