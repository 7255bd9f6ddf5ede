"""Global tensors: strided views of buffers in device memory, and when two of them overlap."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from kernbench.common.dtypes import DTYPES, ITEMSIZE, Array
from kernbench.npu.tasks.opaque import Opaque

if TYPE_CHECKING:
    from kernbench.npu.tasks.shadow import Shadow
    from kernbench.npu.tasks.task import Binding

__kernbench_internal__ = True
MOST_DIMENSIONS = 5
Shape = tuple[int, ...]


@dataclass
class Buffer:
    """`shape` elements of `dtype` in device memory, made by the host (`external`) or by the runtime.

    `array` is flat; None in a run without data. `closed` is set when the scope that owns it has ended.
    `maker` is the task that made it (-1: the host, or the runtime alone); `is_filled` that it has an initial value.
    The tensor map does not track one with `manual_dep`.
    `creator` is the task whose slot holds its memory, -1 for none.
    """

    number: int
    name: str
    shape: Shape
    dtype: str
    array: Array | None
    external: bool
    scope: int = 0
    closed: bool = False
    maker: int = -1
    is_filled: bool = False
    manual_dep: bool = False
    creator: int = -1
    shadow: "Shadow" = field(init=False, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return prod(self.shape) * ITEMSIZE[self.dtype]

    def describe(self) -> str:
        """Name, shape and type."""
        return f"'{self.name}' ({'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype})"


class ReadValue(int):
    """An integer read from a tensor, with its origin for messages."""

    source: "tuple[str, Shape] | None" = None

    @property
    def origin(self) -> str:
        """The element it was read from."""
        return "" if self.source is None else f"{self.source[0]}[{', '.join(map(str, self.source[1]))}]"


class Tensor(Opaque):
    """A view of a buffer: from element `offset`, `shape` elements with `strides` (in elements).

    Indexing with numbers and slices gives smaller views; `T` exchanges the last two axes. In a kernel a tensor is bound
    to an argument of the task (`binding`), and an index outside it is a finding, not an error.
    """

    __slots__ = ("binding", "broken", "buffer", "offset", "shape", "strides")

    def __init__(
        self,
        buffer: Buffer,
        offset: int,
        shape: Shape,
        strides: Shape,
        binding: "Binding | None" = None,
        broken: bool = False,
    ):
        self.buffer = buffer
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.binding = binding
        self.broken = broken

    def _refuse_python(self, doing: str) -> NoReturn:
        """Refuse Python operators: a tensor in device memory has no value here."""
        hint = (
            "an element is read with core.read(tensor, index) in a kernel and rt.read(tensor, index) in an "
            "orchestration; core.tload(tile, tensor) brings a part to a core"
        )
        self.buffer.shadow.context.fail("misuse", f"{self!r} {doing}", hint)

    def _is_element(self) -> bool:
        return not self.shape

    def __bool__(self) -> bool:
        # `if bias:` asks whether there is one; `if gate[0]:` wants the element
        if not self.shape:
            self._refuse_python("cannot be true or false: its value is not known here")
        return True

    def __len__(self) -> int:
        if not self.shape:
            self._refuse_python("has no axis to count along")
        return self.shape[0]

    def __iter__(self) -> Iterator["Tensor"]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        return f"<Tensor {'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype} of {self.buffer.describe()}>"

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.buffer.dtype

    @property
    def name(self) -> str:
        """The buffer's name."""
        return self.buffer.name

    @property
    def T(self) -> "Tensor":  # noqa: N802
        """The last two axes exchanged: the transposed ("DN") form of a matrix."""
        if len(self.shape) < 2:
            self.buffer.shadow.context.fail("shape", f"{self!r} has no two axes to exchange")
        shape, strides = self.shape, self.strides
        return Tensor(
            self.buffer,
            self.offset,
            (*shape[:-2], shape[-1], shape[-2]),
            (*strides[:-2], strides[-1], strides[-2]),
            self.binding,
            self.broken,
        )

    def reshape(self, *shape: int) -> "Tensor":
        """The same elements in another shape; they must be contiguous."""
        if prod(shape) != prod(self.shape) or self.strides != packed(self.shape):
            self.buffer.shadow.context.fail(
                "shape", f"{self!r} as {shape}: the number of elements must agree, and they must lie without gaps"
            )
        return Tensor(self.buffer, self.offset, shape, packed(shape), self.binding, self.broken)

    def __getitem__(self, key: object) -> "Tensor":
        parts = key if type(key) is tuple else (key,)
        axis = len(parts)
        if axis > len(self.shape):
            self.buffer.shadow.context.fail("shape", f"{axis} indices for {self!r}")
        offset, broken = self.offset, self.broken
        sizes, steps = self.shape, self.strides
        shape, strides = sizes[axis:], steps[axis:]
        # hot loop, for each index of each transfer: common cases are handled inline, without a call
        while axis:
            axis -= 1
            part, size, stride = parts[axis], sizes[axis], steps[axis]
            if type(part) is int and 0 <= part < size:
                offset += part * stride
            elif type(part) is slice:
                start, stop, step = part.start, part.stop, 1
                start, stop = 0 if start is None else start, size if stop is None else stop
                if type(start) is type(stop) is int and 0 <= start <= stop <= size and part.step is None:
                    count = stop - start
                else:
                    start, count, step, broken = self._bounds(axis, part, size, broken)
                shape, strides = (count, *shape), (stride * step, *strides)
                offset += start * stride
            else:
                at = self._whole(part)
                if not 0 <= at < size:
                    broken = self._outside(axis, part, str(at))
                offset += at * stride
        return Tensor(self.buffer, offset, shape, strides, self.binding, broken)

    def _whole(self, part: object) -> int:
        """A part of an index that is an integer, of any type."""
        try:
            return index(part)  # type: ignore[arg-type]
        except TypeError:
            hint = "numbers are divided with // for an index; core.read(tensor, ...) reads one from a table"
            message = f"{part!r} is no index of a tensor: whole numbers and slices are"
            self.buffer.shadow.context.fail("misuse", message, hint)

    def _bounds(self, axis: int, part: slice, size: int, broken: bool) -> tuple[int, int, int, bool]:
        """First element, size and step of a slice; and whether it, or the view it is part of, is out of bounds."""
        start = 0 if part.start is None else self._whole(part.start)
        stop = size if part.stop is None else self._whole(part.stop)
        step = 1 if part.step is None else self._whole(part.step)
        if step < 1:
            self.buffer.shadow.context.fail(
                "misuse", f"a slice of a tensor goes forward, by steps from 1 on; got {step}"
            )
        count = len(range(start, stop, step))
        if 0 <= start <= stop <= size:
            return start, count, step, broken
        return start, count, step, self._outside(axis, part.start or part.stop, f"{start}:{stop}")

    def _outside(self, axis: int, value: ReadValue | int, shown: str) -> bool:
        """An index outside the tensor: an error in the orchestrator, a finding in a kernel."""
        origin = f"; the index was read from {value.origin}" if isinstance(value, ReadValue) and value.origin else ""
        message = (
            f"index {shown} of axis {axis} of {self.buffer.describe()}, which has {self.shape[axis]} there{origin}"
        )
        hint = f"valid indices are 0 to {self.shape[axis] - 1}; check the index, or the table it comes from"
        if self.binding is None:
            self.buffer.shadow.context.fail("out-of-bounds", message, hint)
        self.binding.report("out-of-bounds", message, hint, self.buffer.name)
        return True

    def data(self) -> Any:
        """The elements as an array on the buffer's memory."""
        array = self.buffer.array
        assert array is not None
        size = array.itemsize
        return np.ndarray(self.shape, array.dtype, array, self.offset * size, tuple([s * size for s in self.strides]))

    @property
    def extent(self) -> tuple[int, int]:
        """First and one past the last element touched."""
        return extent(self.offset, self.shape, self.strides)


def whole(buffer: Buffer) -> Tensor:
    """All of a buffer."""
    return Tensor(buffer, 0, buffer.shape, packed(buffer.shape))


def packed(shape: Shape) -> Shape:
    """Strides of a row-major array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def extent(offset: int, shape: Shape, strides: Shape) -> tuple[int, int]:
    """First and one past the last element touched; strides are not negative."""
    if 0 in shape:
        return offset, offset
    return offset, offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two views may overlap: same buffer, then 1-D ranges, then boxes if the strides match, else yes."""
    if a.buffer is not b.buffer:
        return False
    (a_low, a_high), (b_low, b_high) = a.extent, b.extent
    if a_high <= b_low or b_high <= a_low:
        return False
    boxes = _boxes(a, b)
    if boxes is None:
        return True
    return all(p < q + m and q < p + n for p, n, q, m in boxes)


def covers(a: Tensor, b: Tensor) -> bool:
    """Whether `a` surely contains all of `b`."""
    if a.buffer is not b.buffer:
        return False
    if a.strides == packed(a.shape):
        (a_low, a_high), (b_low, b_high) = a.extent, b.extent
        return a_low <= b_low and b_high <= a_high
    boxes = _boxes(a, b)
    return boxes is not None and all(p <= q and q + m <= p + n for p, n, q, m in boxes)


def _boxes(a: Tensor, b: Tensor) -> list[tuple[int, int, int, int]] | None:
    """For each axis (start of a, size of a, start of b, size of b); None if the strides do not match."""
    if a.strides != b.strides or 0 in a.strides:
        return None
    order = sorted(range(len(a.strides)), key=lambda i: -a.strides[i])
    rest_a, rest_b, boxes = a.offset, b.offset, []
    for i in order:
        start_a, rest_a = divmod(rest_a, a.strides[i])
        start_b, rest_b = divmod(rest_b, a.strides[i])
        boxes.append((start_a, a.shape[i], start_b, b.shape[i]))
    if rest_a != rest_b:
        return None
    # a box that runs over the end of a coarser axis is not a box
    for coarse, fine in pairwise(order):
        per = a.strides[coarse] // a.strides[fine]
        for start, size in ((boxes[order.index(fine)][:2]), (boxes[order.index(fine)][2:])):
            if start + size > per:
                return None
    return boxes


def fresh_array(shape: Shape, dtype: str, carries_data: bool) -> Array | None:
    """Poisoned memory; None for floats in a run without data."""
    row = DTYPES[dtype]
    if not carries_data and row.kind == "float":
        return None
    return np.full(prod(shape), row.poison, row.numpy)
