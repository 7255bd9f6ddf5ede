"""Runs submitted tasks, block by block, in an order the schedule chooses among those that dependences allow.

The lanes of a block that talk over FIFOs run as coroutines; a lane that waits gives way to the others.
"""

import random
from bdb import BdbQuit
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet

from kernbench.common.errors import KernelError, MisuseError, unknown
from kernbench.npu.fifo import FifoState
from kernbench.npu.mistakes import explained
from kernbench.npu.operations import OPERATIONS
from kernbench.npu.places import AIC, AIV0, AIV1, LANES
from kernbench.npu.task import Binding, Block, Context, Task, called_from
from kernbench.npu.tensors import Tensor
from kernbench.npu.transfers import KernelCore
from kernbench.result.finding import Finding, Other, Place
from kernbench.safety.budget import OverBudgetError
from kernbench.safety.unrun import check_ran

__kernbench_internal__ = True


@dataclass
class Waiting:
    """A lane that cannot go on: on which FIFO, to do what, until when, where, and from where that was called."""

    fifo: FifoState
    verb: str
    can_go: Callable[[], bool]
    where: Place
    callers: tuple[Place, ...]


class Executor:
    """`schedule` is "canonical" (oldest ready task first), "reversed" or a seed."""

    def __init__(self, context: Context, schedule: str | int):
        if not isinstance(schedule, int) and schedule not in ("canonical", "reversed"):
            raise MisuseError(f"schedule {schedule!r}: it is 'canonical', 'reversed' or a whole number (a seed)")
        self._context = context
        self._schedule = schedule
        self._random = random.Random(schedule) if isinstance(schedule, int) else None
        self._cores = {lane: KernelCore(lane, context, self._run_lane.__code__) for lane in (AIC, AIV0, AIV1)}
        context.calls = {lane: core.calls for lane, core in self._cores.items()}
        self._waits: dict[int, Waiting] = {}
        self._hub: Any = None
        self.ready: list[Task] = []
        self.failed = False
        self.deadlocked = False
        # the lane that has its turn
        self.lane = AIC

    @property
    def stopped(self) -> bool:
        """Whether nothing more is run."""
        return self.failed or self.deadlocked

    def run_one(self) -> bool:
        """Run one ready task; False if there is none."""
        if not self.ready or self.stopped:
            return False
        self._run(self.ready.pop(self._pick(len(self.ready))))
        return True

    def add(self, task: Task) -> None:
        """A task is ready."""
        insort(self.ready, task, key=lambda t: t.number)

    def _pick(self, count: int) -> int:
        if self._random is not None:
            return self._random.randrange(count)
        return count - 1 if self._schedule == "reversed" else 0

    def _run(self, task: Task) -> None:
        if self._is_wanted(task):
            blocks = list(range(task.record.blocks))
            if self._random is not None:
                self._random.shuffle(blocks)
            elif self._schedule == "reversed":
                blocks.reverse()
            for index in blocks:
                self._run_block(task, index)
                if self.stopped:
                    return
        else:
            task.record.skipped = True
        self.finish(task)

    def finish(self, task: Task) -> None:
        """A task is done: those that waited only for it are ready."""
        task.done = True
        for number in sorted(task.consumers):
            follower = self._context.tasks[number]
            follower.waiting.discard(task.number)
            if not follower.waiting and not follower.done:
                self.add(follower)

    def _is_wanted(self, task: Task) -> bool:
        if task.predicate is None:
            return True
        buffer = task.predicate.element.buffer
        buffer.shadow.ask(task.predicate.element, task)
        if buffer.array is None:
            raise KernelError(
                "value-needed", f"the predicate of {task.describe()} needs a value this run does not carry"
            )
        return task.predicate.holds(buffer.array)

    def _run_block(self, task: Task, index: int) -> None:
        context, recording = self._context, self._context.recording
        number = len(recording.block_task)
        fifos = [FifoState(f, r, i) for i, (f, r) in enumerate(zip(task.fifos, task.record.fifos, strict=True))]
        block = Block(number, task, index, fifos)
        recording.block_first.append(len(recording.rows))
        recording.block_task.append(task.number)
        recording.block_index.append(index)
        context.running = block
        lanes = [lane for lane in (AIC, AIV0, AIV1) if lane in task.kernels]
        if self._random is not None:
            self._random.shuffle(lanes)
        elif self._schedule == "reversed":
            lanes.reverse()
        arguments = self._arguments(task, fifos) if fifos else task.arguments
        for lane in lanes:
            self._cores[lane].begin(block, index, task.record.blocks)
        if fifos:
            self._run_together(block, lanes, arguments)
        else:
            for lane in lanes:
                self._run_lane(task, lane, arguments)
        for lane in lanes:
            self._cores[lane].end()
        context.running = None

    def _arguments(self, task: Task, fifos: list[FifoState]) -> list[Any]:
        by_fifo = {id(f): state for f, state in zip(task.fifos, fifos, strict=True)}
        return [by_fifo.get(id(a), a) for a in task.arguments]

    def _run_alone(self, task: Task, lane: int, arguments: list[Any]) -> None:
        """A lane in a coroutine of its own, for each of which NumPy keeps an error state."""
        with np.errstate(all="ignore"):
            self._run_lane(task, lane, arguments)

    def _run_lane(self, task: Task, lane: int, arguments: list[Any]) -> None:
        context = self._context
        kernel = task.kernels[lane]
        self.lane = lane
        try:
            check_ran(kernel(self._cores[lane], *arguments))
            context.tell_caught(context.running)
            return
        except BdbQuit:
            raise KeyboardInterrupt("the debugger was left") from None
        except (KeyboardInterrupt, GreenletExit, OverBudgetError):
            raise
        except BaseException as error:
            context.forgive(error)
            kind, message, hint = _told(error, kernel)
            where = getattr(error, "where", None) or kernel_place(error) or task.where
            context.report(kind, message, hint, context.running, where=where, others=callers(error))
        context.tell_caught(context.running)
        self.failed = True

    def _run_together(self, block: Block, lanes: list[int], arguments: list[Any]) -> None:
        """Lanes as coroutines, each run until it waits or ends, until all have ended or none can go on."""
        self._hub = getcurrent()
        self._waits.clear()
        running = {lane: greenlet(lambda lane=lane: self._run_alone(block.task, lane, arguments)) for lane in lanes}
        for lane in lanes:
            self._cores[lane].wait = self._waiter(lane)
        while running and not self.failed:
            able = [lane for lane in running if lane not in self._waits or self._waits[lane].can_go()]
            if not able:
                break
            lane = able[0] if self._random is None else self._random.choice(able)
            self._waits.pop(lane, None)
            self.lane = lane
            running[lane].switch()
            if running[lane].dead:
                del running[lane]
        if running and not self.failed:
            self._deadlock(block, sorted(running))
        for coroutine in running.values():
            coroutine.throw(GreenletExit)
        if not running and not self.failed:
            self._left_over(block)

    def _waiter(self, lane: int) -> Callable[..., None]:
        def wait(fifo: FifoState, verb: str, can_go: Callable[[], bool], where: Place) -> None:
            callers = self._context.sites.callers_here()
            while not can_go():
                self._waits[lane] = Waiting(fifo, verb, can_go, where, callers)
                self._hub.switch()

        return wait

    def _deadlock(self, block: Block, lanes: list[int]) -> None:
        self.deadlocked = True
        waits = [(lane, self._waits[lane]) for lane in lanes]
        lines = [f"no lane of {block.task.describe()}, block {block.index} can go on:"]
        for lane, wait in waits:
            state = wait.fifo
            ours = state.pushed[lane] if wait.verb == "push" else state.popped[lane]
            need = "all slots are full" if wait.verb == "push" else "there is no message"
            lines.append(
                f"  {LANES[lane]}: {wait.verb} number {ours + 1} of {state.fifo.describe()} at {wait.where}: {need}"
            )
            counts = [f"{LANES[k]} pushed {n}" for k, n in state.pushed.items()]
            counts += [f"{LANES[k]} popped {n}" for k, n in state.popped.items()]
            lines.append(f"    {', '.join(counts)}")
        ended = [LANES[lane] for lane in block.task.kernels if lane not in lanes]
        if ended:
            lines.append(f"  {' and '.join(ended)} {'has' if len(ended) == 1 else 'have'} returned")
        others = tuple(Other(f"{LANES[lane]} waits to {w.verb}", w.where) for lane, w in waits[1:])
        for lane, w in waits:
            others += called_from(w.where, w.callers, f"{LANES[lane]}: called from")
        hint = "every message is pushed once by each producer and popped once by each consumer; check the loops' ends"
        self._context.log.add(Finding("deadlock", "\n".join(lines), waits[0][1].where, others, hint))

    def _left_over(self, block: Block) -> None:
        for state in block.fifos:
            for number, place in state.left():
                self._context.log.add(
                    Finding(
                        "message-unreceived",
                        f"message {number} of {state.fifo.describe()} was pushed and not popped by all consumers "
                        f"({state.ends()}) [{block.task.describe()}, block {block.index}]",
                        place,
                        (),
                        "pop every message, also those of the last round",
                    ),
                    state.fifo.name,
                )


def kernel_place(error: BaseException) -> Place | None:
    """The innermost line of a traceback that is the user's: neither ours nor in a library."""
    places = _own_places(error)
    return places[-1] if places else None


def callers(error: BaseException) -> tuple[Other, ...]:
    """The kernel's lines that called the function of `kernel_place`, innermost first: which call of a helper it was."""
    return tuple(Other("called from", place) for place in reversed(_own_places(error)[:-1]))


def _own_places(error: BaseException) -> list[Place]:
    return [
        Place(frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in walk_tb(error.__traceback__)
        if "__kernbench_internal__" not in frame.f_globals and not _is_library(frame.f_globals.get("__name__", ""))
    ]


def _is_library(module: str) -> bool:
    ours = module.startswith("kernbench.") and not module.startswith("kernbench.benches.")
    return ours or module.split(".")[0] in ("numpy", "ml_dtypes")


def _told(error: BaseException, kernel: Any) -> tuple[str, str, str]:
    """What an operation refused, a name that no operation has, or a mistake of the kernel's own."""
    if (told := explained(error)) is not None:
        return told
    if isinstance(error, AttributeError) and isinstance(error.obj, KernelCore) and error.name:
        known = (*OPERATIONS, "tile", "alloc", "block_idx", "block_num", "sub_block_id", "tprint", "checkpoint")
        return "misuse", unknown("operation of a core", error.name, known), ""
    hint = f"mend the kernel's own code ({getattr(kernel, '__name__', kernel)}) at this line"
    return "kernel-error", f"{type(error).__name__}: {error}", hint


def bound(context: Context, task: Task, tensor: Tensor, direction: str, position: int) -> Tensor:
    """A tensor as a kernel gets it."""
    binding = Binding(context, task, direction, position, tensor.name)
    return Tensor(tensor.buffer, tensor.offset, tensor.shape, tensor.strides, binding)
