"""The data cache of a scalar unit, which is not coherent.

A line is 64 bytes. A read loads a line, and hits it the next time, whatever others wrote to memory since; a write
changes the line only. `dcci` writes a changed line back, whole, and invalidates it. The runtime invalidates all lines
of a core before each kernel. So a value that a kernel reads again must be invalidated first, and one that it writes
must be written back before others can see it: before the kernel ends.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.common.dtypes import ITEMSIZE
from kernbench.result.finding import SourceLocation

if TYPE_CHECKING:
    from kernbench.npu.tasks.task import Block
    from kernbench.npu.tasks.tensors import Buffer, Tensor

LINE = 64


@dataclass(eq=False)
class Line:
    """One line in a core's cache: its elements when it was loaded, those that the kernel wrote and where,
    and those that others wrote to memory since, by block.
    """

    buffer: "Buffer"
    block: "Block"
    first: int
    values: Any
    where: SourceLocation
    # whether the block had waited for others when it loaded the line
    is_after_wait: bool
    written: dict[int, SourceLocation] = field(default_factory=dict)
    # the argument by which each element was written
    bindings: dict[int, "Tensor"] = field(default_factory=dict)
    overwritten: dict[int, int] = field(default_factory=dict)

    def touches(self, start: int, stop: int) -> range:
        """The elements of the line in a range of the buffer."""
        return range(max(start, self.first), min(stop, self.first + len(self.values)))


class Cache:
    """The lines that one core caches."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, int], Line] = {}

    def line(self, element: "Tensor", block: "Block", where: SourceLocation, is_after_wait: bool) -> tuple[Line, bool]:
        """The line of an element, loaded from memory if it is not cached; and whether it was."""
        buffer, per = element.buffer, LINE // ITEMSIZE[element.dtype]
        key = (buffer.number, element.offset // per)
        found = self._lines.get(key)
        if found is not None:
            return found, True
        assert buffer.array is not None
        first = key[1] * per
        values = np.array(buffer.array[first : first + per])
        made = self._lines[key] = Line(buffer, block, first, values, where, is_after_wait)
        buffer.shadow.cached.append(made)
        return made, False

    def drop(self, tensor: "Tensor | None") -> list[Line]:
        """Remove the lines that a view touches, or all of them."""
        lines = list(self._lines.items())
        if tensor is not None:
            low, high = tensor.extent
            lines = [(k, v) for k, v in lines if v.buffer is tensor.buffer and v.touches(low, high)]
        for key, line in lines:
            del self._lines[key]
            line.buffer.shadow.cached.remove(line)
        return [line for _, line in lines]
