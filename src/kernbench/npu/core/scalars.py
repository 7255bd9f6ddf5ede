"""Accesses of the scalar unit to device memory: single values read and written through its cache, and dcci."""

from sys import _getframe
from typing import TYPE_CHECKING, Any

from kernbench.common.dtypes import ITEMSIZE
from kernbench.npu.core.signalling import Signalling
from kernbench.npu.isa.operations import OPERATIONS
from kernbench.npu.isa.units import LANES, PIPE_NUMBER, S
from kernbench.npu.recording.record import NONE, ROW
from kernbench.npu.tasks.caching import Cache, Line
from kernbench.npu.tasks.fitting import fitting
from kernbench.npu.tasks.shadow import ELEMENT, Runs
from kernbench.npu.tasks.tensors import ReadValue, Tensor
from kernbench.result.finding import Other

if TYPE_CHECKING:
    from kernbench.npu.isa.operations import Operation

__kernbench_internal__ = True
_READ, _WRITE, _DCCI = (OPERATIONS[name] for name in ("read", "write", "dcci"))
_S = PIPE_NUMBER[S]


class Scalars(Signalling):
    """Single values, through the data cache of the core."""

    def read(self, tensor: Tensor, *index: int) -> Any:
        """One element of a tensor, as a number; the program waits for it. A cached line is not read again."""
        element = tensor[index] if index else tensor
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        site = self.sites.here()
        if element.shape:
            self.context.fail("shape", f"read: an index for each axis of {tensor!r} is wanted; got {index}")
        self._element_row(_READ, element, site)
        if not self._may_read(element, ELEMENT, site):
            return 0
        if element.buffer.array is None:
            self.context.fail(
                "value-needed",
                f"the kernel needs a value of {tensor.buffer.describe()}; this run carries no floats",
                "run with data, or pass the value as an argument",
            )
        line = self._line(element, site)
        value = line.values[element.offset - line.first].item()
        if isinstance(value, int):
            value = ReadValue(value)
            value.source = (tensor.buffer.name, index)
        return value

    def write(self, tensor: Tensor, *index: int, value: float | int) -> None:
        """Set one element of a tensor: only in the cache of the core, until dcci writes its line back."""
        element = tensor[index] if index else tensor
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        site = self.sites.here()
        if element.shape:
            self.context.fail("shape", f"write: an index for each axis of {tensor!r} is wanted; got {index}")
        number = fitting(self.context, value, element.dtype)
        # the whole line is written to memory, including elements of other blocks
        self.context.share()
        self._append(ROW.pack(_WRITE.code, self.lane, _S, site, NONE, NONE, NONE, NONE, 0, 0))
        if element.buffer.array is None or element.broken:
            return
        line = self._line(element, site, is_write=True)
        line.values[element.offset - line.first] = number
        line.written[element.offset] = self.sites.locations[site]
        line.bindings[element.offset] = element

    def dcci(self, tensor: Tensor | None = None) -> None:
        """Write the changed lines of a view back to memory and invalidate them; without a view all lines of the
        core.
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        site = self.sites.here()
        if tensor is not None and not isinstance(tensor, Tensor):
            self.context.fail(
                "misuse", f"dcci: a view of a tensor is wanted, whose lines the cache has; got {tensor!r}"
            )
        lines = self.cache.drop(tensor)
        changed = [line for line in lines if line.written]
        if not changed:
            self._append(ROW.pack(_DCCI.code, self.lane, _S, site, NONE, NONE, NONE, NONE, 0, 0))
        for line in changed:
            self._write_back(line, site)

    def _write_back(self, line: Line, site: int) -> None:
        """Write a whole line to memory, overwriting what others changed there since it was loaded."""
        array: Any = line.buffer.array
        self._check_line(line)
        self._line_row(line, site)
        for offset in sorted(line.written):
            element = line.bindings[offset]
            if self._may_write(element, ELEMENT, site, False):
                array[offset] = line.values[offset - line.first]
        for offset in line.overwritten.keys() - line.written.keys():
            array[offset] = line.values[offset - line.first]

    def _line_row(self, line: Line, site: int) -> None:
        """All bytes of a line are written, so any other access to one of them needs a flag."""
        itemsize = line.values.dtype.itemsize
        pattern = self.tables.pattern((len(line.values),), (1,), itemsize)
        number, offset = line.buffer.number, line.first * itemsize
        self._append(ROW.pack(_DCCI.code, self.lane, _S, site, NONE, NONE, NONE, number, offset, pattern))

    def _check_line(self, line: Line) -> None:
        """Report a line that is written back over elements of another block that nothing orders, or over elements that
        were stored in memory since it was loaded.
        """
        shadow, task = line.buffer.shadow, self.block.task
        for offset in line.touches(0, 1 << 62):
            writer = shadow.writer(offset)
            if offset in line.written or writer < 0 or writer == self.block.number:
                continue
            other = self.context.task_of(writer)
            if not task.after(other.number) and not other.after(task.number):
                whose = self._named(writer)
                self._report_line(
                    line,
                    f"and element {offset} in it is that of {whose}: the last of them overwrites the other",
                    "give each block lines of its own: 64 bytes apart, or store by a tile",
                )
                return
        lost = sorted(line.overwritten.keys() - line.written.keys())
        if lost:
            who = self._named(line.overwritten[lost[0]])
            self._report_line(
                line,
                f"over element {lost[0]}, which {who} stored in memory since the line was taken: that is lost",
                "core.dcci(tensor) before the store, or write after it and a flag; or keep them 64 bytes apart",
            )

    def _named(self, block: int) -> str:
        if block == self.block.number:
            return "this block"
        return f"{self.context.task_of(block).describe()}, block {self.context.recording.block_index[block]}"

    def _report_line(self, line: Line, what: str, hint: str) -> None:
        text = f"a line of 64 bytes of {line.buffer.describe()} is written back whole, {what}"
        self.report("false-sharing", text, hint, line.buffer.name)

    def _line(self, element: Tensor, site: int, is_write: bool = False) -> Line:
        where, waited = self.sites.locations[site], self.block.number in self.context.signals.waited
        line, was_there = self.cache.line(element, self.block, where, waited)
        if was_there and not is_write and element.offset not in line.written:
            self._check_stale(element, line)
        return line

    def _check_stale(self, element: Tensor, line: Line) -> None:
        """Report a read from the cache of elements that may have changed in memory since the line was loaded."""
        writer = line.overwritten.get(element.offset, -1)
        if writer < 0 and not line.is_after_wait:
            writer = element.buffer.shadow.writer(element.offset)
            task = self.context.task_of(writer) if writer >= 0 else self.block.task
            if writer == self.block.number or task is self.block.task or self.block.task.after(task.number):
                same = task is self.block.task and writer >= 0 and writer != self.block.number
                writer = writer if same else -1
        if writer < 0:
            return
        who = "this block" if writer == self.block.number else self.context.task_of(writer).describe()
        self.context.report(
            "stale-read",
            f"element {element.offset} of {element.buffer.describe()} is read from the core's cache, and {who} wrote "
            "it to memory, maybe since its line was taken",
            "drop the line first: core.dcci(tensor) before the read",
            self.block,
            element.buffer.name,
            (Other("the line was taken", line.where),),
        )

    def leave(self) -> None:
        """The kernel has returned: values it wrote and did not write back do not reach others in time."""
        for line in self.cache.drop(None):
            for offset, location in list(line.written.items())[:1]:
                self.context.report(
                    "unflushed-write",
                    f"element {offset} of {line.buffer.describe()} is written by the scalar unit of {LANES[self.lane]} "
                    "and stays in its cache: nobody else sees it",
                    "core.dcci(tensor) after the last write, before the kernel ends or anybody is signalled",
                    self.block,
                    line.buffer.name,
                    where=location,
                )

    def _element_row(self, op: "Operation", element: Tensor, site: int) -> None:
        buffer = element.buffer
        itemsize = ITEMSIZE[buffer.dtype]
        pattern = self._element_patterns.get(itemsize)
        if pattern is None:
            pattern = self._element_patterns[itemsize] = self.tables.pattern((), (), itemsize)
        number, offset = buffer.number, element.offset * itemsize
        self._append(ROW.pack(op.code, self.lane, _S, site, NONE, NONE, NONE, number, offset, pattern))

    @property
    def cache(self) -> Cache:
        """The lines that the core caches."""
        return self._cache

    def _may_read(self, src: Tensor, runs: Runs, site: int) -> bool:
        raise NotImplementedError

    def _may_write(self, dst: Tensor, runs: Runs, site: int, adds: bool) -> bool:
        raise NotImplementedError
