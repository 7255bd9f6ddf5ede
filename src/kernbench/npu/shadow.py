"""Who wrote and read each element of a buffer: finds reads of what nobody wrote, and accesses of two blocks that
nothing orders.

Two tasks are ordered by their dependences (also through others), blocks of one task not at all. A buffer that nobody
has written yet only lists its reads; the first write turns the list into marks. Marks of writers hold block + 1,
negative where the block added; marks of readers hold the number of a set of blocks that read the element since it was
last written.
"""

from math import prod
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.npu.task import Block, Context, Task
from kernbench.npu.tensors import Buffer, Tensor
from kernbench.result.finding import Other

__kernbench_internal__ = True
NOBODY = 0


class Shadow:
    """The history of one buffer."""

    def __init__(self, buffer: Buffer, context: Context):
        self._buffer = buffer
        self._context = context
        self.writer: Array | None = None
        self._readers: Array | None = None
        self._reads: list[tuple[Block, int, Tensor]] = []
        self._write_sites: dict[int, int] = {}
        self._read_sites: dict[int, int] = {}
        self._sets: list[frozenset[int]] = [frozenset()]
        self._set_numbers: dict[frozenset[int], int] = {frozenset(): NOBODY}

    def read(self, tensor: Tensor, block: Block, site: int) -> None:
        """`block` reads these elements."""
        if self.writer is None or self._readers is None:
            if not self._buffer.external:
                self._uninitialised(tensor, prod(tensor.shape))
            self._reads.append((block, site, tensor))
            return
        marks = tensor.marks(self.writer)
        for value, count in _values(marks):
            if value == NOBODY:
                if not self._buffer.external:
                    self._uninitialised(tensor, count)
            elif abs(value) - 1 != block.number:
                self._check(block, abs(value) - 1, "reads", "wrote", self._write_sites, "missing-dependence")
        self._add_reader(tensor, block, site)

    def write(self, tensor: Tensor, block: Block, site: int, adds: bool = False) -> None:
        """`block` writes these elements, or adds to them; blocks of one task may all add to the same."""
        self._materialise()
        assert self.writer is not None
        assert self._readers is not None
        marks, readers = tensor.marks(self.writer), tensor.marks(self._readers)
        for value, count in _values(marks):
            writer = abs(value) - 1
            if value == NOBODY:
                if adds and not self._buffer.external:
                    self._uninitialised(tensor, count)
            elif writer != block.number and not (adds and value < 0 and self._context.task_of(writer) is block.task):
                self._check(block, writer, "writes", "wrote", self._write_sites, "missing-dependence")
        for number, _ in _values(readers):
            for other in self._sets[number]:
                if other != block.number:
                    self._check(block, other, "writes", "read", self._read_sites, "write-after-read")
        marks[...] = -(block.number + 1) if adds else block.number + 1
        readers[...] = NOBODY
        self._write_sites[block.number] = site

    def written_by(self, tensor: Tensor, block: Block) -> bool:
        """Whether `block` itself wrote all of these elements."""
        return self.writer is not None and bool((tensor.marks(self.writer) == block.number + 1).all())

    def unwritten(self) -> int:
        """How many elements nobody wrote."""
        if self.writer is None:
            return prod(self._buffer.shape)
        return int(np.count_nonzero(self.writer == NOBODY))

    def _add_reader(self, tensor: Tensor, block: Block, site: int) -> None:
        assert self._readers is not None
        readers = tensor.marks(self._readers)
        values = _values(readers)
        for number, _ in values:
            added = self._set_with(number, block.number)
            if len(values) == 1:
                readers[...] = added
            else:
                readers[readers == number] = added
        self._read_sites[block.number] = site

    def _set_with(self, number: int, block: int) -> int:
        """The number of a set with one more block."""
        wanted = self._sets[number] | {block}
        found = self._set_numbers.get(wanted)
        if found is None:
            found = self._set_numbers[wanted] = len(self._sets)
            self._sets.append(wanted)
        return found

    def _materialise(self) -> None:
        if self.writer is None:
            count = prod(self._buffer.shape)
            self.writer, self._readers = np.zeros(count, np.int32), np.zeros(count, np.int32)
            for block, site, tensor in self._reads:
                self._add_reader(tensor, block, site)
            self._reads.clear()

    def _uninitialised(self, tensor: Tensor, count: int) -> None:
        total = prod(tensor.shape)
        self._context.report(
            "uninitialised-read",
            f"{count} of {total} elements read from {self._buffer.describe()} were never written",
            "write it in a task before this one; a task that writes it must name it OUT or INOUT",
            self._context.running,
            self._buffer.name,
        )

    def _check(self, block: Block, other: int, verb: str, past: str, sites: dict[int, int], kind: str) -> None:
        """Report if nothing orders what `block` does now after what block `other` did."""
        task, earlier = block.task, self._context.task_of(other)
        if task is not earlier and task.after(earlier.number):
            return
        self._report(task, earlier, block, other, verb, past, sites, kind)

    def _report(
        self, task: Task, earlier: Task, block: Block, other: int, verb: str, past: str, sites: Any, kind: str
    ) -> None:
        context, name = self._context, self._buffer.describe()
        place = context.sites.places[sites[other]] if other in sites else None
        others: tuple[Other, ...] = (Other(f"{earlier.describe()} {past} it", place),)
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


def _values(marks: Any) -> list[tuple[int, int]]:
    """The different values of some marks and how often each occurs; nearly always there is one."""
    if not marks.size:
        return []
    first = marks.flat[0]
    if (marks == first).all():
        return [(int(first), marks.size)]
    values, counts = np.unique(marks, return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))
