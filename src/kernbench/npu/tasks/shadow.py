"""The shadow of a buffer: who wrote and read each element; finds reads of uninitialised elements, and accesses of two
blocks that nothing orders.

Two tasks are ordered by their dependences (also indirect ones), blocks of one task not at all. A buffer that nobody
has written yet only lists its reads. From the first write on it is cut into pieces with the same history: the writer
(block + 1, negative if the block added, 0 for nobody, from `ORCHESTRATOR` on the orchestrator), and the readers
since (block + 1 for one, minus the number of a set for several, 0 for none).
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from kernbench.npu.tasks.caching import Line
from kernbench.npu.tasks.task import Block, Context, Task
from kernbench.npu.tasks.tensors import Buffer, Shape, Tensor
from kernbench.result.finding import Other, SourceLocation

__kernbench_internal__ = True
NOBODY = 0
# marks from here on are the orchestrator's: the first is that of an initial value
ORCHESTRATOR = 1 << 60
# the starts of the contiguous runs of a view, relative to its first element, and the length of each
Runs = tuple[tuple[int, ...], int]
Ints = NDArray[np.int64]
ELEMENT: Runs = ((0,), 1)


class Shadow:
    """The access history of one buffer."""

    def __init__(self, buffer: Buffer, context: Context):
        self._buffer = buffer
        self.context = context
        self._is_written = False
        # piece k is from one start to the next; the end is the last start
        self._size = prod(buffer.shape)
        self._starts = [0, self._size] if self._size else [0]
        self._pieces = [(NOBODY, NOBODY)] * (len(self._starts) - 1)
        self._reads: list[tuple[Block, int, Tensor, Runs]] = []
        self._write_sites: dict[int, int] = {}
        self._read_sites: dict[int, int] = {}
        self._sets: list[frozenset[int]] = [frozenset()]
        self._set_numbers: dict[frozenset[int], int] = {}
        # for each write of the orchestrator: how many tasks were submitted before it, and its source location
        self._orchestrated: list[tuple[int, SourceLocation | None]] = [(0, None)]
        # lines of this buffer in the caches of scalar units
        self.cached: list[Line] = []
        # elements that predicates read, and their tasks
        self._asked: dict[int, list[Task]] = {}
        # elements that were notified, and by which tasks
        self._notified: dict[int, dict[int, Task]] = {}
        # for each signal the blocks that used it: whether they notified it; and their last lines
        self._signalled: dict[int, dict[int, bool]] = {}
        self._signal_sites: dict[int, int] = {}

    def read(self, tensor: Tensor, runs: Runs, block: Block, site: int) -> None:
        """`block` reads these elements."""
        if self.cached and runs is not ELEMENT:
            self._look_into_caches(tensor, runs, block)
        known = self._look_at_signals(tensor, runs, block, "reads") if self._signalled else 0
        if not self._is_written:
            if not self._buffer.external and prod(tensor.shape) > known:
                self._uninitialised(tensor, prod(tensor.shape) - known)
            self._reads.append((block, site, tensor, runs))
            return
        missing, number = 0, block.number
        for first, last in self._spans(tensor.offset, runs):
            for k in range(first, last):
                mark, readers = self._pieces[k]
                if mark == NOBODY:
                    missing += self._length(k)
                elif abs(mark) - 1 != number:
                    self._check(block, abs(mark) - 1, "reads", "wrote", self._write_sites, "missing-dependence")
                if readers != number + 1:
                    self._pieces[k] = (mark, number + 1 if readers == NOBODY else self._joined(readers, number))
        if missing > known and not self._buffer.external:
            self._uninitialised(tensor, missing - known)
        self._read_sites[number] = site

    def write(self, tensor: Tensor, runs: Runs, block: Block, site: int, adds: bool = False) -> None:
        """`block` writes these elements, or adds to them; blocks of one task may all add to the same."""
        self._begin()
        missing = 0
        if self._asked:
            self._check_asked(tensor, runs, block)
        if self._signalled:
            self._look_at_signals(tensor, runs, block, "writes")
        for line, offset in self._lines_of(tensor, runs) if self.cached else ():
            line.overwritten[offset] = block.number
        piece = (-(block.number + 1) if adds else block.number + 1, NOBODY)
        for first, last in self._spans(tensor.offset, runs):
            for k in range(first, last):
                if adds or self._pieces[k] != (NOBODY, NOBODY):
                    missing += self._look_before_write(k, block, adds)
            if last == first + 1:
                self._pieces[first] = piece
            else:
                self._pieces[first:last] = [piece]
                del self._starts[first + 1 : last]
        if missing and not self._buffer.external:
            self._uninitialised(tensor, missing)
        self._write_sites[block.number] = site

    def writer(self, element: int) -> int:
        """The block that wrote an element last; -1 if none did."""
        mark = self._pieces[bisect_left(self._starts, element + 1) - 1][0]
        return -1 if mark == NOBODY or mark >= ORCHESTRATOR else abs(mark) - 1

    def _lines_of(self, tensor: Tensor, runs: Runs) -> Iterator[tuple[Line, int]]:
        """The elements of a view that are in cached lines."""
        offsets, length = runs
        for line in self.cached:
            for offset in offsets:
                start = tensor.offset + offset
                for element in line.touches(start, start + length):
                    yield line, element

    def _look_into_caches(self, tensor: Tensor, runs: Runs, block: Block) -> None:
        """Transfers read memory, which lacks what a scalar unit wrote and did not write back."""
        for line, element in self._lines_of(tensor, runs):
            if element in line.written:
                self.context.report(
                    "unflushed-write",
                    f"a transfer reads element {element} of {self._buffer.describe()}, which a scalar unit wrote and "
                    "has not written back: memory holds the old value",
                    "core.dcci(tensor) after the write, and a flag from S to the pipe that reads",
                    block,
                    self._buffer.name,
                    (Other("the write", line.written[element]),),
                )
                return

    def ask(self, element: Tensor, task: Task) -> None:
        """The scheduler reads an element to decide whether a task runs, as soon as the task is ready."""
        self._begin()
        ((first, last),) = self._spans(element.offset, ELEMENT)
        for mark, _ in self._pieces[first:last]:
            if mark == NOBODY and not self._buffer.external:
                self._report_predicate(task, None)
            elif mark >= ORCHESTRATOR:
                count, where = self._orchestrated[mark - ORCHESTRATOR]
                if task.number < count:
                    self._report_orchestrator(task, "reads", where, task.where)
            elif mark != NOBODY and not task.after(self.context.task_of(abs(mark) - 1).number):
                self._report_predicate(task, self.context.task_of(abs(mark) - 1))
        for writer in self._notified.get(element.offset, {}).values():
            if writer is not task and not task.after(writer.number):
                self._report_predicate(task, writer)
        self._asked.setdefault(element.offset, []).append(task)

    def notify(self, signal: Tensor, block: Block, site: int) -> None:
        """A block sets a signal, or adds to it: predicates and stores of tasks are checked here, waits elsewhere."""
        if self._asked:
            self._check_asked(signal, ELEMENT, block)
        self.use_signal(signal.offset, block, site, True)
        self._notified.setdefault(signal.offset, {})[block.task.number] = block.task

    def use_signal(self, element: int, block: Block, site: int, notifies: bool = False) -> None:
        """A block uses an element as a signal: tasks that stored it, or load what is notified, must be done."""
        self._begin()
        mark, readers = self._pieces[bisect_left(self._starts, element + 1) - 1]
        verb, writer = "notifies" if notifies else "waits for", abs(mark) - 1
        if mark != NOBODY and (mark >= ORCHESTRATOR or self.context.task_of(writer) is not block.task):
            self._check(block, writer, verb, "wrote", self._write_sites, "missing-dependence")
        for other in (readers - 1,) if readers > 0 else self._sets[-readers]:
            if notifies and self.context.task_of(other) is not block.task:
                self._check(block, other, verb, "read", self._read_sites, "write-after-read")
        blocks = self._signalled.setdefault(element, {})
        blocks[block.number] = notifies or blocks.get(block.number, False)
        self._signal_sites[block.number] = site

    def _look_at_signals(self, tensor: Tensor, runs: Runs, block: Block, verb: str) -> int:
        """A transfer touches elements that are signals, too: tasks that use them must be done. Returns how many of them
        have a value by a notification alone.
        """
        (offsets, length), alone = runs, 0
        for element, blocks in self._signalled.items():
            if any(o <= element - tensor.offset < o + length for o in offsets):
                alone += element in self._notified and not self.holds(element)
                for other, notified in blocks.items():
                    if (notified or verb == "writes") and self.context.task_of(other) is not block.task:
                        past = "notified" if notified else "waited for"
                        self._check(block, other, verb, past, self._signal_sites, "missing-dependence")
        return alone

    def _check_asked(self, tensor: Tensor, runs: Runs, block: Block) -> None:
        """A block writes: predicates must not read these elements, or have read them before."""
        offsets, length = runs
        for element, tasks in self._asked.items():
            for task in tasks if any(o <= element - tensor.offset < o + length for o in offsets) else ():
                if task is not block.task and not block.task.after(task.number):
                    self._report_predicate(task, block.task)

    def _report_predicate(self, task: Task, writer: Task | None) -> None:
        message = f"the predicate of {task.describe()} looks at an element of {self._buffer.describe()} that "
        if writer is None:
            hint = "submit the task that writes it first, and name it in deps="
            kind, message = "uninitialised-read", f"{message}nobody wrote"
        else:
            kind, message = "missing-dependence", f"{message}{writer.describe()} writes; nothing orders them"
            hint = f"a predicate makes no dependence: add deps=[...] for {writer.describe()}, or IN of the tensor"
        others = () if writer is None else (Other(f"{writer.describe()} submitted", writer.where),)
        self.context.report(kind, message, hint, None, (self._buffer.name, task.number), others, where=task.where)

    def fill(self) -> None:
        """The runtime initialises all elements before anybody can see them."""
        self._is_written = True
        self._pieces = [(ORCHESTRATOR, NOBODY)] * len(self._pieces)

    def write_by_orchestrator(self, element: Tensor, known: int, where: SourceLocation) -> None:
        """The orchestrator writes an element; it has waited for the tasks of `known`."""
        self._begin()
        ((first, last),) = self._spans(element.offset, ELEMENT)
        for mark, readers in self._pieces[first:last]:
            if NOBODY != mark < ORCHESTRATOR:
                self._check_orchestrator(abs(mark) - 1, known, where, "wrote", self._write_sites)
            for other in (readers - 1,) if readers > 0 else self._sets[-readers]:
                self._check_orchestrator(other, known, where, "read", self._read_sites)
        self._pieces[first:last] = [(ORCHESTRATOR + len(self._orchestrated), NOBODY)]
        self._orchestrated.append((len(self.context.tasks), where))

    def _check_orchestrator(
        self, other: int, known: int, where: SourceLocation, past: str, sites: dict[int, int]
    ) -> None:
        """Report if the orchestrator did not wait for a block that accessed what it writes."""
        task = self.context.task_of(other)
        if not known >> task.number & 1:
            location = self.context.sites.locations[sites[other]] if other in sites else None
            self._report_orchestrator(task, past, where, location)

    def _report_orchestrator(
        self, task: Task, past: str, where: SourceLocation | None, location: SourceLocation | None
    ) -> None:
        kind = "write-after-read" if past in ("read", "reads") else "missing-dependence"
        others = (Other(f"{task.describe()} {past} it", location), Other(f"{task.describe()} submitted", task.where))
        self.context.report(
            kind,
            f"the orchestrator writes an element of {self._buffer.describe()} that {task.describe()} {past}, and does "
            "not wait for it: it waits for the last writers, the task that made the tensor, and readers of what the "
            "runtime made",
            f"declare the tensor INOUT in {task.describe()}, which the orchestrator then waits for; or write it before "
            "that submit, or write another tensor",
            None,
            (self._buffer.name, task.record.name),
            others,
            where=where,
        )

    def _look_before_write(self, k: int, block: Block, adds: bool) -> int:
        """Check a write of piece k; returns how many uninitialised elements it adds to."""
        mark, readers = self._pieces[k]
        writer = abs(mark) - 1
        both_add = adds and mark < 0 and self.context.task_of(writer) is block.task
        if mark != NOBODY and writer != block.number and not both_add:
            self._check(block, writer, "writes", "wrote", self._write_sites, "missing-dependence")
        for other in (readers - 1,) if readers > 0 else self._sets[-readers]:
            if other != block.number:
                self._check(block, other, "writes", "read", self._read_sites, "write-after-read")
        return self._length(k) if adds and mark == NOBODY else 0

    def written_by(self, tensor: Tensor, runs: Runs, block: Block) -> bool:
        """Whether `block` wrote all of these elements, or other blocks of its task, which may have signalled that."""
        spans = self._spans(tensor.offset, runs)
        marks = {self._pieces[k][0] for first, last in spans for k in range(first, last)} - {block.number + 1}
        return all(self._is_of_task(mark, block.task) for mark in marks)

    def _is_of_task(self, mark: int, task: Task) -> bool:
        is_block = mark not in (NOBODY, ORCHESTRATOR) and mark < ORCHESTRATOR
        return is_block and self.context.task_of(abs(mark) - 1) is task

    def holds(self, element: int) -> bool:
        """Whether an element was written."""
        return self._pieces[bisect_left(self._starts, element + 1) - 1][0] != NOBODY

    def has_value(self, element: int) -> bool:
        """Whether an element was written, notified, or came from the host."""
        return self._buffer.external or element in self._notified or self.holds(element)

    def unwritten(self) -> int:
        """How many elements were neither written nor notified."""
        left = sum(self._length(k) for k, (writer, _) in enumerate(self._pieces) if writer == NOBODY)
        return left - sum(not self.holds(element) for element in self._notified)

    def touched_since(self, block: int) -> tuple[Ints, Ints]:
        """Ranges, (first element, one past the last), that blocks from a number on wrote, and those they read."""
        edges, pieces = np.array(self._starts, np.int64), np.array(self._pieces, np.int64).reshape(-1, 2)
        spans, (marks, readers) = np.column_stack([edges[:-1], edges[1:]]), pieces.T
        numbers, which = np.unique(readers, return_inverse=True)
        last = np.array([n - 1 if n >= 0 else max(self._sets[-n]) for n in numbers.tolist()], np.int64)
        read = spans[last[which] >= block]
        here = [(tensor.offset, runs) for owner, _, tensor, runs in self._reads if owner.number >= block]
        if here:
            # no writes in this process: an overestimate is enough. Views are many, and their shapes few
            forms = {id(runs): runs for _, runs in here}
            reach = {number: max(starts, default=0) + length for number, (starts, length) in forms.items()}
            low, high = min(offset for offset, _ in here), max(offset + reach[id(runs)] for offset, runs in here)
            read = np.concatenate([read, [[low, high]]])
        return spans[(marks != NOBODY) & (marks < ORCHESTRATOR) & (np.abs(marks) > block)], read

    def written_elsewhere(self, spans: list[tuple[int, int]]) -> None:
        """Blocks of another process wrote these ranges; which blocks does not matter any more."""
        self._begin()
        for start, stop in spans:
            first, last = self._cut(start), self._cut(stop)
            self._pieces[first:last] = [(1, NOBODY)]
            del self._starts[first + 1 : last]

    def _length(self, k: int) -> int:
        return self._starts[k + 1] - self._starts[k]

    def _spans(self, start: int, runs: Runs) -> "tuple[tuple[int, int]] | Iterator[tuple[int, int]]":
        """The pieces of each run of a view: first, one past the last. Pieces are cut where a run begins or ends."""
        offsets, length = runs
        if len(offsets) > 1 or not length:
            return self._many_spans(start, runs)
        starts = self._starts
        first = bisect_left(starts, start)
        if starts[first] == start and starts[first + 1] == start + length:
            # most are read as they were written: one piece
            return ((first, first + 1),)
        first = self._cut(start)
        return ((first, self._cut(start + length)),)

    def _many_spans(self, start: int, runs: Runs) -> Iterator[tuple[int, int]]:
        for offset in runs[0]:
            first = self._cut(start + offset)
            yield first, self._cut(start + offset + runs[1])

    def _cut(self, at: int) -> int:
        """The piece that begins at an element."""
        starts = self._starts
        k = bisect_left(starts, at)
        if starts[k] != at:
            starts.insert(k, at)
            self._pieces.insert(k, self._pieces[k - 1])
        return k

    def _joined(self, readers: int, block: int) -> int:
        """Add one reader to the readers so far."""
        found = frozenset((readers - 1,)) if readers > 0 else self._sets[-readers]
        if block in found:
            return readers
        wanted = found | {block}
        number = self._set_numbers.setdefault(wanted, len(self._sets))
        if number == len(self._sets):
            self._sets.append(wanted)
        return -number

    def _begin(self) -> None:
        """The first write: convert the list of reads to pieces."""
        if self._is_written:
            return
        self._is_written = True
        for block, site, tensor, runs in self._reads:
            for first, last in self._spans(tensor.offset, runs):
                for k in range(first, last):
                    mark, readers = self._pieces[k]
                    joined = block.number + 1 if readers == NOBODY else self._joined(readers, block.number)
                    self._pieces[k] = (mark, joined)
            self._read_sites[block.number] = site
        self._reads.clear()

    def _uninitialised(self, tensor: Tensor, count: int) -> None:
        total = prod(tensor.shape)
        self.context.report(
            "uninitialised-read",
            f"{count} of {total} elements read from {self._buffer.describe()} were never written",
            "write it in a task before this one; a task that writes it must name it OUT or INOUT",
            self.context.running,
            self._buffer.name,
        )

    def _check(self, block: Block, other: int, verb: str, past: str, sites: dict[int, int], kind: str) -> None:
        """Report if nothing orders this access of `block` after the earlier one of block `other`."""
        context, task = self.context, block.task
        if other >= ORCHESTRATOR - 1:
            count, where = self._orchestrated[other + 1 - ORCHESTRATOR]
            if task.number < count:
                self._report_orchestrator(task, verb, where, context.sites.locations[context.sites.here()])
            return
        number = context.recording.block_task[other]
        if task.after(number) or context.signals.may_order(other, block.number):
            return
        earlier = context.tasks[number]
        self._report(task, earlier, block, other, verb, past, sites, kind)

    def _report(
        self,
        task: Task,
        earlier: Task,
        block: Block,
        other: int,
        verb: str,
        past: str,
        sites: dict[int, int],
        kind: str,
    ) -> None:
        context, name = self.context, self._buffer.describe()
        location = context.sites.locations[sites[other]] if other in sites else None
        others: tuple[Other, ...] = (Other(f"{earlier.describe()} {past} it", location),)
        if task is earlier:
            index = context.recording.block_index[other]
            message = f"block {block.index} {verb} elements of {name} that block {index} of the same task {past}"
            hint = "blocks of a task run at the same time: give each its own part, or make two tasks of it"
            context.report("race", message, hint, block, self._buffer.name, others)
            return
        others += (Other(f"{earlier.describe()} submitted", earlier.where), Other("submitted", task.where))
        message = f"{task.describe()} {verb} elements of {name} that {earlier.describe()} {past}; nothing orders them"
        hint = (
            f"name the tensor in both submits with its true direction, or add deps=[...] for {earlier.describe()}"
            if kind == "missing-dependence"
            else f"the tensor map does not see a write after a read: add deps=[...] for {earlier.describe()}, "
            "use another tensor, or launch with track_war=True"
        )
        context.report(kind, message, hint, None, (self._buffer.name, task.record.name, earlier.record.name), others)


@lru_cache(maxsize=4096)
def runs_of(shape: Shape, strides: Shape) -> Runs:
    """The runs of a view."""
    if 0 in shape:
        return (), 0
    axes = sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1)
    length = 1
    while axes and axes[0][0] == length:
        length *= axes.pop(0)[1]
    offsets = np.zeros(1, np.int64)
    for stride, size in reversed(axes):
        offsets = (offsets[:, None] + np.arange(size) * stride).reshape(-1)
    return tuple(offsets.tolist()), length
