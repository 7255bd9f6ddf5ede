"""Runs submitted tasks, block by block, in an order the schedule chooses among those that dependences allow.

Lanes run as coroutines: a waiting lane yields to the others of its block, and a waiting block to other blocks while it
keeps its cores.
"""

import random
from bdb import BdbQuit
from bisect import insort
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet

from kernbench.common.errors import (
    SHOWN_OF_KERNELS,
    KernelError,
    MisuseError,
    said,
    traced,
    unknown,
    was_raised_by_kernel,
)
from kernbench.npu.core.transfers import KernelCore
from kernbench.npu.execution.dividing import Division
from kernbench.npu.execution.residency import Residency
from kernbench.npu.execution.turns import Started, Waiting, deadlock
from kernbench.npu.isa.mistakes import explained
from kernbench.npu.isa.operations import OPERATIONS
from kernbench.npu.isa.units import AIC, AIV0, AIV1, LANES
from kernbench.npu.tasks.fifo import FifoState
from kernbench.npu.tasks.task import Binding, Block, Context, Task
from kernbench.npu.tasks.tensors import Tensor
from kernbench.result.finding import Finding, Other, SourceLocation
from kernbench.safety.budget import OverBudgetError
from kernbench.safety.confined import is_beyond_memory
from kernbench.safety.source_locations import is_installed
from kernbench.safety.unrun import check_ran

__kernbench_internal__ = True


# what a coroutine yields when a kernel has ended
_ENDED = object()
# most call sites that a finding lists
_CALLERS_SHOWN = 8


class Executor:
    """`schedule` is "canonical" (oldest ready task first), "reversed" or a seed."""

    def __init__(self, context: Context, schedule: str | int, division: Division):
        if not isinstance(schedule, int) and schedule not in ("canonical", "reversed"):
            raise MisuseError(f"schedule {schedule!r}: it is 'canonical', 'reversed' or a whole number (a seed)")
        self._context = context
        self._division = division
        self._schedule = schedule
        self._random = random.Random(schedule) if isinstance(schedule, int) else None
        # cores not held by a block; waiting blocks keep theirs
        self._idle: dict[int, list[KernelCore]] = {lane: [] for lane in (AIC, AIV0, AIV1)}
        self._coroutines: dict[int, Any] = {}
        self._residency = Residency(context.chip.clusters.count)
        self._hub: Any = None
        self.ready: list[Task] = []
        # tasks with blocks that have not begun, blocks that wait, and how many blocks of each task have not ended
        self._begun: list[tuple[Task, list[int]]] = []
        self.suspended: list[Started] = []
        self._left: dict[int, int] = {}
        # (block, first row) of each turn
        self.turns: list[tuple[int, int]] = []
        self.failed = False
        self.deadlocked = False
        # the lane whose turn it is
        self.lane = AIC

    @property
    def is_random(self) -> bool:
        """Whether the order is a random one."""
        return self._random is not None

    @property
    def stopped(self) -> bool:
        """Whether nothing more is run."""
        return self.failed or self.deadlocked

    def run_one(self) -> bool:
        """Continue a block that waited, or begin a task; False if nothing can be done now."""
        if self.stopped:
            return False
        for started in self.suspended:
            if started.able():
                self.suspended.remove(started)
                self._advance(started)
                return True
        for entry in self._begun:
            if self._begin_blocks(*entry):
                return True
        if not self.ready:
            return False
        self._run(self.ready.pop(self._pick(len(self.ready))))
        return True

    def stand_still(self) -> None:
        """Nothing can run, and nothing will change that: report waiting blocks as a deadlock."""
        if self.suspended and not self.stopped:
            self._deadlock(self.suspended)

    def close(self) -> list[object]:
        """End suspended coroutines; returns those that would not end.

        The garbage collector does not see the stack of a suspended coroutine: one that is left suspended keeps the
        whole launch alive.
        """
        waiting = [coroutine for started in self.suspended for coroutine in started.running.values()]
        idle = [self._coroutines.get(id(core)) for cores in self._idle.values() for core in cores]
        for coroutine in (*waiting, *idle):
            if coroutine is not None and not coroutine.dead:
                # the parent may be suspended itself, and must not continue
                coroutine.parent = getcurrent()
                coroutine.throw(GreenletExit)
        self._coroutines.clear()
        return [coroutine for coroutine in waiting if not coroutine.dead]

    def add(self, task: Task) -> None:
        """A task is ready."""
        insort(self.ready, task, key=lambda t: t.number)

    def _pick(self, count: int) -> int:
        if self._random is not None:
            return self._random.randrange(count)
        return count - 1 if self._schedule == "reversed" else 0

    def _run(self, task: Task) -> None:
        self._division.submitted(task)
        if not self._is_wanted(task):
            task.record.skipped = True
        blocks = [] if task.record.skipped else list(range(task.record.blocks))
        if not blocks:
            self.finish(task)
            return
        if self._random is not None:
            self._random.shuffle(blocks)
        elif self._schedule == "reversed":
            blocks.reverse()
        self._left[task.number] = len(blocks)
        self._begun.append((task, blocks))
        self._begin_blocks(task, blocks)

    def _begin_blocks(self, task: Task, left: list[int]) -> bool:
        """Begin the blocks of a task that get cores; whether there was one."""
        lanes, is_first = task.record.lanes, len(left) == task.record.blocks
        if task.record.sync_start and is_first and self._residency.room(lanes) < len(left):
            return False
        any_begun = False
        # if no block waits, all cores are free
        while left and not self.stopped and (not self.suspended or self._residency.room(lanes)):
            any_begun = True
            self._division.look(self)
            others = self._division.others(task, left)
            begun = left[: others or 1]
            del left[: len(begun)]
            if not left:
                self._begun.remove((task, left))
            if others:
                self._pass_over(task, begun)
            else:
                self._run_block(task, begun[0])
        return any_begun

    def _pass_over(self, task: Task, indices: list[int]) -> None:
        """Blocks that another process runs."""
        self._division.note(True)
        self._context.recording.begin_blocks(task.number, indices)
        self._end(task, len(indices))

    def finish(self, task: Task) -> None:
        """A task is done: tasks that waited only for it become ready."""
        task.done = True
        for number in sorted(task.consumers):
            follower = self._context.tasks[number]
            follower.waiting.discard(task.number)
            if not follower.waiting and not follower.done:
                self.add(follower)

    def _is_wanted(self, task: Task) -> bool:
        if task.predicate is None:
            return True
        self._context.share()
        buffer = task.predicate.element.buffer
        buffer.shadow.ask(task.predicate.element, task)
        if buffer.array is None:
            raise KernelError(
                "value-needed", f"the predicate of {task.describe()} needs a value this run does not carry"
            )
        return task.predicate.holds(buffer.array)

    def _run_block(self, task: Task, index: int) -> None:
        """Begin a block, and run it until it ends or waits for another."""
        context, recording = self._context, self._context.recording
        self._division.note(True)
        number = len(recording.block_task)
        fifos = [FifoState(f, r, i) for i, (f, r) in enumerate(zip(task.fifos, task.record.fifos, strict=True))]
        block = Block(number, task, index, fifos)
        recording.begin_blocks(task.number, [index])
        lanes = [lane for lane in (AIC, AIV0, AIV1) if lane in task.kernels]
        if self._random is not None:
            self._random.shuffle(lanes)
        elif self._schedule == "reversed":
            lanes.reverse()
        arguments = self._arguments(task, fifos) if fifos else task.arguments
        started = Started(block, {lane: self._core(lane) for lane in lanes})
        for lane, core in started.cores.items():
            core.begin(block, index, task.record.blocks)
            core.wait, core.mates = partial(self._wait, started, lane), started.cores
            context.calls[number, lane] = core.calls
            started.running[lane] = self._coroutine(core)
            started.jobs[lane] = (task, lane, core, arguments)
        self._advance(started)
        self._division.note(False)

    def _coroutine(self, core: KernelCore) -> object:
        """The coroutine in which a core runs its kernels, one after the other."""
        found = self._coroutines.get(id(core))
        if found is None or found.dead:
            found = self._coroutines[id(core)] = greenlet(self._serve)
        return found

    def _core(self, lane: int) -> KernelCore:
        idle = self._idle[lane]
        return idle.pop() if idle else KernelCore(lane, self._context, self._run_lane.__code__)

    def _arguments(self, task: Task, fifos: list[FifoState]) -> list[FifoState | Tensor]:
        by_fifo = {id(f): state for f, state in zip(task.fifos, fifos, strict=True)}
        return [by_fifo.get(id(a), a) for a in task.arguments]

    def _serve(self, *job: Any) -> None:
        """Run kernels as they come; each coroutine has its own NumPy error state."""
        with np.errstate(all="ignore"):
            while True:
                self._run_lane(*job)
                job = self._hub.switch(_ENDED)

    def _run_lane(self, task: Task, lane: int, core: KernelCore, arguments: list[object]) -> None:
        context = self._context
        kernel = task.kernels[lane]
        try:
            check_ran(kernel(core, *arguments))
            core.leave()
            context.report_caught(context.running)
            return
        except BdbQuit:
            raise KeyboardInterrupt("the debugger was left") from None
        except (KeyboardInterrupt, OverBudgetError):
            raise
        except BaseException as error:
            ended = isinstance(error, GreenletExit) and not was_raised_by_kernel(error)
            if ended or is_beyond_memory(error):
                raise
            context.forgive(error)
            kind, message, hint = _diagnosis(error, kernel)
            where = getattr(error, "where", None) or kernel_location(error) or task.where
            context.report(kind, message, hint, context.running, where=where, others=callers(error))
        context.report_caught(context.running)
        self.failed = True

    def _advance(self, started: Started) -> None:
        """Run the lanes of a block in turns, until all have ended or none can continue."""
        context, block = self._context, started.block
        context.running, self._hub = block, getcurrent()
        self.turns.append((block.number, len(context.recording.rows)))
        while started.running and not self.failed:
            able = started.able()
            if not able:
                break
            lane = able[0] if self._random is None else self._random.choice(able)
            started.waits.pop(lane, None)
            self.lane = lane
            if started.running[lane].switch(*started.jobs.pop(lane, ())) is _ENDED or started.running[lane].dead:
                del started.running[lane]
        context.running = None
        if started.running and not self.failed:
            self._suspend(started)
            return
        self._drop(started)
        if not self.failed:
            self._left_over(block)
            self._end(block.task)

    def _suspend(self, started: Started) -> None:
        """The block waits for others and keeps its cores; if only its own lanes could wake it, that is a deadlock."""
        if started.is_local:
            self._deadlock([started])
            return
        self._context.share()
        if not started.held:
            started.held = self._residency.take(started.block.task.record.lanes)
        self.suspended.append(started)

    def _drop(self, started: Started) -> None:
        """The block is over: release its cores."""
        for coroutine in started.running.values():
            coroutine.throw(GreenletExit)
        self._residency.give_back(started.held)
        for lane, core in started.cores.items():
            core.cache.drop(None)
            core.end()
            self._idle[lane].append(core)

    def _end(self, task: Task, count: int = 1) -> None:
        """`count` blocks of a task have ended."""
        self._left[task.number] -= count
        if not self._left[task.number]:
            self._flags_left(task)
            self.finish(task)

    def _wait(
        self,
        started: Started,
        lane: int,
        fifo: FifoState | None,
        verb: str,
        can_go: Callable[[], bool],
        where: SourceLocation,
        explain: Callable[[], str] | None,
        is_local: bool,
    ) -> None:
        """Yield until the lane can continue."""
        callers = self._context.sites.callers_here()
        while not can_go():
            started.waits[lane] = Waiting(fifo, verb, can_go, where, callers, explain, is_local)
            self._hub.switch()

    def _deadlock(self, blocks: list[Started]) -> None:
        self.deadlocked = True
        waiting = [f"{len(left)} of {task.record.blocks} blocks of {task.describe()}" for task, left in self._begun]
        unstarted = f"{', '.join(waiting)} have not begun: blocks that wait hold all cores they need" if waiting else ""
        self._context.log.add(deadlock(blocks, unstarted))
        for started in blocks:
            for coroutine in started.running.values():
                coroutine.throw(GreenletExit)

    def _left_over(self, block: Block) -> None:
        for state in block.fifos:
            for number, location in state.left():
                self._context.log.add(
                    Finding(
                        "message-unreceived",
                        f"message {number} of {state.fifo.describe()} was pushed and not popped by all consumers "
                        f"({state.ends()}) [{block.task.describe()}, block {block.index}]",
                        location,
                        (),
                        "pop every message, also those of the last round",
                    ),
                    state.fifo.name,
                )

    def _flags_left(self, task: Task) -> None:
        for key, post in self._context.signals.left(task):
            self._context.log.add(
                Finding(
                    "flag-misuse",
                    f"flag {key[-1]} is counted up and {LANES[key[-2]]} never waits for it; it stays up for the next "
                    f"kernel on that core [{task.describe()}, block {post.block.index}]",
                    post.where,
                    (),
                    "wait for every count, also after the last round of a loop",
                ),
                key[-2:],
            )
        self._context.signals.forget(task)


def kernel_location(error: BaseException) -> SourceLocation | None:
    """The innermost line of a traceback in the user's code: neither in kernbench nor in a library."""
    locations = _own_lines(error)
    return locations[-1] if locations else None


def callers(error: BaseException) -> tuple[Other, ...]:
    """The kernel's lines that called the function of `kernel_location`, innermost first: which call of a helper."""
    found = [Other("called from", location) for location in reversed(_own_lines(error)[:-1])]
    # a recursive function repeats its lines
    return tuple(dict.fromkeys(found))[:_CALLERS_SHOWN]


def _own_lines(error: BaseException) -> list[SourceLocation]:
    """The lines of a traceback that are not ours: those of the kernel, or of a library if there are no others."""
    found = [
        SourceLocation(frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traced(error)
        if "__kernbench_internal__" not in frame.f_globals and not _is_ours(frame.f_globals.get("__name__", ""))
    ]
    return [line for line in found if not is_installed(line.file)] or found


def _is_ours(module: str) -> bool:
    return module.startswith("kernbench.") and not module.startswith("kernbench.benches.")


def _diagnosis(error: BaseException, kernel: Callable[..., object]) -> tuple[str, str, str]:
    """Kind, message and hint: an operation's refusal, an unknown name, or an error of the kernel's own code."""
    if (refusal := explained(error)) is not None:
        return refusal
    if isinstance(error, AttributeError) and isinstance(error.obj, KernelCore) and error.name:
        known = (*OPERATIONS, "tile", "alloc", "block_idx", "block_num", "sub_block_id", "tprint", "checkpoint")
        return "misuse", unknown("operation of a core", error.name, known), ""
    hint = f"mend the kernel's own code ({getattr(kernel, '__name__', kernel)}) at this line"
    return "kernel-error", said(error, SHOWN_OF_KERNELS), hint


def bound(context: Context, task: Task, tensor: Tensor, direction: str, position: int) -> Tensor:
    """A tensor as the kernel receives it."""
    binding = Binding(context, task, direction, position, tensor.name)
    return Tensor(tensor.buffer, tensor.offset, tensor.shape, tensor.strides, binding)
