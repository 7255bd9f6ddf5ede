"""Runs the rest of a launch in several processes, once it has taken a while (docs/adr/0084).

Each process is a forked copy that continues the whole launch: it runs the orchestration to its end, but only its own
share of the blocks. The results count only if no process touched what another wrote, and nothing happened that could
make blocks depend on each other in another way. Otherwise the parent, whose state is unchanged, continues alone.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.npu.recording.merging import Notes, Part, merge, part_of
from kernbench.npu.tasks.footprint import Footprint, adopt, are_apart, footprints
from kernbench.npu.tasks.task import Context, Task
from kernbench.npu.tasks.tensors import Tensor
from kernbench.safety.processes.copies import Copies
from kernbench.safety.processes.outside import Outside
from kernbench.safety.processes.workers import can_fork

if TYPE_CHECKING:
    from kernbench.npu.execution.execute import Executor
    from kernbench.safety.budget import Watchdog

__kernbench_internal__ = True
# seconds of computing after which a launch is divided
AFTER = 0.15
# after SOON seconds of running blocks, a launch is divided at once if all known blocks would take MUCH seconds more
# at that pace
SOON, MUCH = 0.02, 1.0
# bytes of arguments for each block of a task from which a launch is divided before its first block: blocks that read
# so much take tens of milliseconds or more, and all but one would wait for the first
LARGE = 1 << 26
_COMPILED = "kernbench.npu.cpp.process"


@dataclass(frozen=True)
class Limits:
    """What a launch may take in all: rows, and seconds of computing."""

    rows: int
    seconds: float


@dataclass(frozen=True)
class Answer:
    """The results of a copy."""

    part: Part
    footprint: Footprint
    written: set[tuple[str, int]]
    values: dict[int, list[Array]]
    seconds: float


def _runs_compiled_kernels() -> bool:
    programs = sys.modules.get(_COMPILED)
    return programs is not None and bool(programs.begun[0])


class Division:
    """How the blocks of a launch are divided over `jobs` processes; with one job they are not."""

    def __init__(self, context: Context, jobs: int, limits: Limits, watchdog: "Callable[[], Watchdog]"):
        self._context, self._jobs, self._limits, self._watchdog = context, jobs, limits, watchdog
        # asked before the thread of the watchdog is started
        self._can_fork = jobs > 1 and can_fork()
        self._threads = threading.active_count() + 1
        self._is_due = self._can_fork
        self._is_large = False
        self._begun = process_time()
        # when blocks began to run, and whether the time of all blocks was already estimated
        self._first, self._is_asked = self._begun, False
        self._copies = Copies()
        self._outside = Outside()
        self._homes: dict[int, int] = {}
        self._first_block = 0
        self._notes: Notes | None = None
        self._answers: list[Answer] = []
        # incremented while this process waits for its copies
        self.ticks = 0
        # into how many processes the launch was divided, or why it was not
        self.parts, self.why = 1, "it took less time" if self._can_fork else "it may use one process"

    @property
    def is_copy(self) -> bool:
        """Whether this process is a copy, which only sends its results."""
        return self._copies.number is not None

    @property
    def is_merged(self) -> bool:
        """Whether other processes have run and checked blocks."""
        return bool(self._answers)

    def look(self, executor: "Executor") -> None:
        """Between two blocks: divide the launch if it is time to. Returns in the parent and in each copy."""
        if not self._is_due or not (self._is_large or self._is_long()):
            return
        self._is_due = False
        # more processes than runnable blocks would be idle
        tasks = [task for task in self._context.tasks if not task.done]
        self._jobs = min(self._jobs, max(len(tasks), *(task.record.blocks for task in tasks)))
        self.why = self._unfit(executor) if self._jobs > 1 else "it has one block"
        if not self.why:
            self._divide()

    def _is_long(self) -> bool:
        """Whether the launch has taken a while, or is expected to."""
        now, run = process_time(), len(self._context.recording.block_task)
        if now - self._begun >= AFTER:
            return True
        if not run:
            self._first = now
        if self._is_asked or not run or now - self._first < SOON:
            return False
        self._is_asked = True
        left = sum(task.record.blocks for task in self._context.tasks if not task.done)
        return (now - self._first) / run * left >= MUCH

    def _unfit(self, executor: "Executor") -> str:
        context = self._context
        reasons = {
            "its order is a random one": executor.is_random,
            "somebody looks inside": context.taken is not None or context.log.on_finding is not None,
            "something was found": len(context.log) > 0 or bool(context.refused),
            "blocks wait for each other": bool(executor.suspended),
            "cores signal each other": bool(context.signals.posts or context.signals.waits),
            "kernels print": bool(context.printed),
            "compiled kernels run in a process of their own": _runs_compiled_kernels(),
            "other threads run": threading.active_count() > self._threads,
        }
        return next((why for why, holds in reasons.items() if holds), "")

    def _divide(self) -> None:
        context, recording = self._context, self._context.recording
        self._first_block = len(recording.block_task)
        self._notes = Notes(recording.tables)
        self._notes.note(self._first_block, True)
        self._copies.make(self._jobs)
        if self.is_copy:
            self._begin()
            return
        found = self._copies.answers(self._tick)
        answers = [one for one in found or () if isinstance(one, Answer)]
        self.why = self._unusable(answers)
        if self.why:
            self._notes = None
            return
        self._answers, self.parts = answers, self._jobs
        context.asked = []

    def _tick(self) -> None:
        self.ticks += 1

    def _begin(self) -> None:
        """This is a copy: it ends as soon as something needs the blocks of other processes."""
        context = self._context
        context.apart = self.give_up
        context.log.on_finding = lambda finding: self.give_up()
        context.asked = []
        for task in context.tasks:
            self._outside.add(task.kernels.values())
        self._watchdog().__enter__()
        sys.breakpointhook = self._breakpoint

    def _breakpoint(self, *args: object, **kwargs: object) -> NoReturn:
        self.give_up()

    def give_up(self) -> NoReturn:
        """End a copy without results: the launch continues in one process."""
        self._copies.refuse()

    def _unusable(self, answers: list[Answer]) -> str:
        if len(answers) < self._jobs:
            return "blocks depend on each other, something was found, or a process ended"
        rows = self._context.recording.count + sum(int(one.part.counts.sum()) for one in answers)
        seconds = process_time() - self._begun + sum(one.seconds for one in answers)
        if rows > self._limits.rows or seconds > self._limits.seconds:
            return "it goes beyond its budget"
        return "" if are_apart([one.footprint for one in answers]) else "blocks touch what others write"

    # Which blocks are whose

    def submitted(self, task: Task) -> None:
        """A task begins: one with few blocks is run in the same process as the task before it."""
        if self._is_due:
            self._is_large = _is_large(task)
        if self._notes is None:
            return
        earlier = [n for n in task.record.dependences if n in self._homes]
        self._homes[task.number] = self._homes[max(earlier)] if earlier else len(self._homes) % self._jobs
        if self.is_copy:
            self._outside.add(task.kernels.values())

    def others(self, task: Task, indices: list[int]) -> int:
        """How many of the blocks with these indices come before the first that runs in this process."""
        if self._notes is None:
            return 0
        if not self.is_copy:
            return len(indices)
        blocks, jobs, own = task.record.blocks, self._jobs, self._copies.number
        home = self._homes.get(task.number, 0) if blocks < jobs else 0
        whose = ((home + index * jobs // blocks) % jobs for index in indices)
        return next((count for count, one in enumerate(whose) if one == own), len(indices))

    def note(self, by_orchestrator: bool) -> None:
        """Record the sizes of the tables of lines, tiles and patterns at this point."""
        if self._notes is not None:
            self._notes.note(len(self._context.recording.block_task), by_orchestrator)

    # The end

    def answer(self, is_fine: Callable[[], bool]) -> None:
        """The launch is over: a copy sends its results, unless `is_fine` returns False, and exits."""
        if not self.is_copy:
            return
        assert self._notes is not None
        context = self._context
        try:
            self.note(True)
            signals = context.signals.posts or context.signals.waits
            if signals or context.printed or not is_fine() or self._outside.changed():
                self.give_up()
            footprint = footprints(context, self._first_block)
            values = _values(context, footprint)
            part = part_of(context.recording, self._first_block, self._notes)
            self._copies.answer(Answer(part, footprint, context.written, values, process_time()))
        except BaseException:
            self.give_up()

    def merge(self) -> None:
        """The launch is over in the parent: merge what the copies recorded and wrote."""
        if not self._answers:
            return
        assert self._notes is not None
        context = self._context
        self.note(True)
        own = part_of(context.recording, self._first_block, self._notes)
        merge(context.recording, self._first_block, own, [one.part for one in self._answers])
        for one in self._answers:
            context.written |= one.written
            adopt(context, one.footprint)
            for number, values in one.values.items():
                array = context.buffers[number].array
                assert array is not None
                for (start, stop), found in zip(one.footprint.writes[number].tolist(), values, strict=True):
                    array[start:stop] = found


def _is_large(task: Task) -> bool:
    """Whether a task has several blocks that each read much, if they share its arguments evenly."""
    buffers = {one.buffer.number: one.buffer for one in task.arguments if isinstance(one, Tensor)}
    blocks = task.record.blocks
    return blocks > 1 and sum(buffer.nbytes for buffer in buffers.values()) >= blocks * LARGE


def _values(context: Context, footprint: Footprint) -> dict[int, list[Array]]:
    """What the blocks of a copy wrote to arrays of the host."""
    return {
        number: [np.array(array[start:stop]) for start, stop in spans.tolist()]
        for number, spans in footprint.writes.items()
        if context.buffers[number].external and (array := context.buffers[number].array) is not None
    }
