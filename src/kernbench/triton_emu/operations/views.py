"""Views: other shapes of the same elements. They cost no command; a view keeps the memory behind it alive."""

from functools import partial
from math import prod
from operator import index
from types import EllipsisType
from typing import SupportsIndex

import numpy as np

from kernbench.common.dtypes import DTYPES, ITEMSIZE
from kernbench.common.pe_commands import TensorHandle
from kernbench.triton_emu.engine.core import Core, Shape
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.engine.written import Sizes
from kernbench.triton_emu.operations.arithmetic import Arithmetic
from kernbench.triton_emu.stacking.forms import copied, picked, reordered, reshaped, stretched, turned

__kernbench_internal__ = True

# parts of values whose geometry is kept
MOST_PARTS = 4096
_BOUNDS = (int, type(None))


# an index of one axis, a new axis, or all axes that are not named
Item = SupportsIndex | slice | None | EllipsisType
Items = Item | tuple[Item, ...]


class Views(Part):
    """The operations of `tl` that only change how memory is looked at."""

    def __init__(self, core: Core, arithmetic: Arithmetic):
        super().__init__(core)
        self._broadcast = arithmetic._broadcast
        # offset, shape, strides and items for an array of the parts that were taken, by what they were taken of:
        # kernels take the same few again and again
        self._parts: dict[tuple[object, ...], tuple[int, Shape, Shape | None, tuple[Item, ...]]] = {}

    def trans(self, input: TensorHandle, *dims: Sizes) -> TensorHandle:
        """The last two axes swapped, or the axes in the order of `dims`."""
        handle = self._handle("trans", input)
        if not dims and handle.strides is None and len(handle.shape) == 2:
            # the usual case, once for each product
            rows, columns = handle.shape
            core = self._core
            if core.trace is not None:
                core.trace.append((core.next_view, turned, ((handle.number, None),)))
            return self._view(handle, (columns, rows), (1, columns), 0, None if handle.data is None else handle.data.T)
        order = self._order(handle, dims)
        strides = _strides(handle)
        if self._core.trace is not None:
            self._core._traced(self._core.next_view, partial(reordered, order), handle)
        return self._view(
            handle,
            tuple(handle.shape[i] for i in order),
            tuple(strides[i] for i in order),
            0,
            None if handle.data is None else handle.data.transpose(order),
        )

    def permute(self, input: TensorHandle, *dims: Sizes) -> TensorHandle:
        """The axes in the order of `dims`."""
        return self.trans(input, *dims)

    def _order(self, handle: TensorHandle, dims: tuple[Sizes, ...]) -> Shape:
        axes = tuple(range(handle.ndim))
        if not dims:
            if handle.ndim < 2:
                self._fail("shape", f"trans needs two axes; got a handle of shape {handle.shape}")
            return (*axes[:-2], axes[-1], axes[-2])
        order = self._whole_numbers(_unwrapped(dims))
        if tuple(sorted(order)) != axes:
            self._fail("shape", f"trans: {order} is not an order of the {handle.ndim} axes of shape {handle.shape}")
        return order

    def reshape(self, input: TensorHandle, *shape: Sizes) -> TensorHandle:
        """The same elements, in row-major order, under another shape; one size may be -1.

        No command, unless the elements do not lie in that order (a reshape of a transposed or sliced handle): then they
        are copied, by one.
        """
        handle = self._handle("reshape", input)
        sizes = self._fill_in(handle, self._whole_numbers(_unwrapped(shape)))
        if handle.strides is not None and not _row_major_view(handle):
            # elements that do not lie in this order are moved: one command, space of its own
            whole = self._data(handle)
            kind = self._kind(sizes, handle.dtype)
            moved = None if whole is None else np.ascontiguousarray(whole).reshape(sizes)
            if self._core.trace is not None:
                self._core._traced(self._core.steps, partial(copied, sizes), handle)
            return self._emit("copy", self._sites.here(), kind, moved, handle.number)
        if self._core.trace is not None:
            self._core._traced(self._core.next_view, partial(reshaped, sizes), handle)
        return self._view(handle, sizes, None, 0, None if handle.data is None else handle.data.reshape(sizes))

    def ravel(self, input: TensorHandle, can_reorder: bool = False) -> TensorHandle:
        """All elements on one axis."""
        return self.reshape(input, -1)

    def squeeze(self, input: TensorHandle, dim: int) -> TensorHandle:
        """Without axis `dim`, which has size 1."""
        handle = self._handle("squeeze", input)
        axis = self._axis("squeeze", handle, dim)
        if handle.shape[axis] != 1:
            self._fail("shape", f"squeeze: axis {dim} of a handle of shape {handle.shape} is not of size 1")
        return self.index(handle, tuple(0 if i == axis else slice(None) for i in range(handle.ndim)))

    def unsqueeze(self, input: TensorHandle, dim: int) -> TensorHandle:
        """The same as `expand_dims`."""
        return self.expand_dims(input, dim)

    def flip(self, input: TensorHandle, dim: int | None = None) -> TensorHandle:
        """Axis `dim` (the last for None) in the opposite order."""
        handle = self._handle("flip", input)
        axis = self._axis("flip", handle, -1 if dim is None else dim)
        return self.index(handle, tuple(slice(None, None, -1 if i == axis else None) for i in range(handle.ndim)))

    def split(self, input: TensorHandle) -> tuple[TensorHandle, TensorHandle]:
        """The two halves of a last axis of size 2."""
        handle = self._handle("split", input)
        if not handle.ndim or handle.shape[-1] != 2:
            self._fail(
                "shape",
                f"split of a handle of shape {handle.shape}: the last axis must have size 2",
                "reshape it to [..., 2] first, or take parts with handle[:, :n]",
            )
        return self.index(handle, (..., 0)), self.index(handle, (..., 1))

    def _bitcast(self, handle: TensorHandle, dtype: str) -> TensorHandle:
        """The same bits as elements of another type of the same size."""
        if ITEMSIZE[handle.dtype] != ITEMSIZE[dtype]:
            self._fail("dtype", f"bitcast of {handle.dtype} to {dtype}: the sizes differ", "cast without bitcast=True")
        whole = self._data(handle)
        view = self._view(handle, handle.shape, handle.strides)
        view.dtype, view.data = dtype, None if whole is None else whole.view(DTYPES[dtype].numpy)
        view.type = self._tables.type_number(view.shape, dtype, view.space)
        return view

    def view(self, input: TensorHandle, *shape: Sizes) -> TensorHandle:
        """The same as `reshape`."""
        return self.reshape(input, *shape)

    def _fill_in(self, handle: TensorHandle, sizes: Shape) -> Shape:
        known = prod(n for n in sizes if n != -1)
        if sizes.count(-1) == 1 and known and handle.size % known == 0:
            sizes = tuple(handle.size // known if n == -1 else n for n in sizes)
        if prod(sizes) != handle.size or min(sizes, default=0) < 0:
            self._fail(
                "shape",
                f"reshape of {handle.shape} ({handle.size} elements) to {sizes} ({prod(sizes)} elements)",
                "a reshape keeps the number of elements; use trans to swap axes",
            )
        return sizes

    def expand_dims(self, input: TensorHandle, axis: Sizes) -> TensorHandle:
        """A new axis of size 1 at `axis` of the result, or several at several."""
        handle = self._handle("expand_dims", input)
        axes = self._whole_numbers(axis)
        ndim = handle.ndim + len(axes)
        positions = {n % ndim for n in axes if -ndim <= n < ndim}
        if len(positions) < len(axes):
            self._fail("shape", f"expand_dims: axis {axis} of a handle of shape {handle.shape}")
        return self.index(handle, tuple(None if n in positions else slice(None) for n in range(ndim)))

    def broadcast(self, input: TensorHandle, other: TensorHandle) -> tuple[TensorHandle, TensorHandle]:
        """Both stretched to the shape they have in common."""
        a, b = self._handle("broadcast", input), self._handle("broadcast", other)
        shape = self._broadcast("broadcast", a.shape, b.shape)
        return self.broadcast_to(a, shape), self.broadcast_to(b, shape)

    def broadcast_to(self, input: TensorHandle, *shape: Sizes) -> TensorHandle:
        """Axes of size 1 repeated to `shape`."""
        handle = self._handle("broadcast_to", input)
        sizes = self._shape(_unwrapped(shape))
        if self._broadcast("broadcast_to", handle.shape, sizes) != sizes:
            self._fail("shape", f"broadcast_to: {handle.shape} does not stretch to {sizes}")
        lead = len(sizes) - handle.ndim
        old = (0,) * lead + _strides(handle)
        grown = (1,) * lead + handle.shape
        strides = tuple(0 if a == 1 and n != 1 else s for a, n, s in zip(grown, sizes, old, strict=True))
        if self._core.trace is not None:
            self._core._traced(self._core.next_view, partial(stretched, sizes), handle)
        return self._view(
            handle, sizes, strides, 0, None if handle.data is None else np.broadcast_to(handle.data, sizes)
        )

    def index(self, input: TensorHandle, items: Items) -> TensorHandle:
        """`input[items]` with whole numbers, slices, None and ...; a view."""
        handle = self._handle("indexing", input)
        several = items if isinstance(items, tuple) else (items,)
        form = _form(several)
        if form is None:
            offset, shape, strides, picks = self._part(handle, several)
        else:
            key = handle.shape, handle.strides, form
            known = self._parts.get(key)
            if known is None:
                if len(self._parts) >= MOST_PARTS:
                    self._parts.clear()
                known = self._parts[key] = self._part(handle, several)
            offset, shape, strides, picks = known
        data = handle.data
        if data is None:
            return self._view(handle, shape, strides, offset)
        if self._core.trace is not None:
            self._core._traced(self._core.next_view, partial(picked, picks), handle)
        return self._view(handle, shape, strides, offset, np.asarray(data[picks]))

    def _part(self, handle: TensorHandle, items: tuple[Item, ...]) -> tuple[int, Shape, Shape | None, tuple[Item, ...]]:
        """Offset, shape and strides of `handle[items]`, and the items for an array."""
        offset, shape, strides = 0, [], []
        axes = iter(zip(handle.shape, _strides(handle), strict=True))
        picks: list[Item] = []
        for item in self._items(handle, items):
            if item is None:
                shape.append(1)
                strides.append(0)
                picks.append(None)
                continue
            size, stride = next(axes)
            start, count, step = self._range(handle, item, size)
            offset += start * stride
            picks.append(start if count is None else item)
            if count is not None:
                shape.append(count)
                strides.append(stride * step)
        return offset, tuple(shape), _row_major(tuple(shape), tuple(strides)), tuple(picks)

    def _items(self, handle: TensorHandle, items: tuple[Item, ...]) -> list[Item]:
        """One item for each axis, with ... spread out."""
        dots = sum(1 for i in items if i is Ellipsis)
        used = sum(1 for i in items if i is not None and i is not Ellipsis)
        if used > handle.ndim or dots > 1:
            self._fail(
                "misuse" if dots > 1 else "shape", f"{used} indices and {dots} ... on a handle of shape {handle.shape}"
            )
        fill = [slice(None)] * (handle.ndim - used)
        spread: list[Item] = []
        for item in items if dots else (*items, Ellipsis):
            spread.extend(fill if item is Ellipsis else [item])
        return spread

    def _range(self, handle: TensorHandle, item: object, size: int) -> tuple[int, int | None, int]:
        """Start, length (None drops the axis) and step of one index."""
        try:
            if isinstance(item, slice):
                return self._slice(handle, item, size)
            if isinstance(item, (bool, np.bool_)) or not isinstance(item, SupportsIndex):
                raise TypeError
            position = index(item)
        except TypeError:
            self._fail("misuse", f"{item!r} is no index: use whole numbers, slices, None and ...")
        if not -size <= position < size:
            self._fail("shape", f"index {position} of an axis of {size} (shape {handle.shape})")
        return position % size, None, 1

    def _slice(self, handle: TensorHandle, item: slice, size: int) -> tuple[int, int, int]:
        for bound in (item.start, item.stop):
            if bound is not None and not -size <= index(bound) <= size:
                self._fail("shape", f"slice {item.start}:{item.stop} of an axis of {size} (shape {handle.shape})")
        if item.step is not None and index(item.step) == 0:
            self._fail("misuse", "a slice with step 0 has no elements to give")
        span = range(*item.indices(size))
        return span.start, len(span), span.step


def _form(items: tuple[Item, ...]) -> tuple[object, ...] | None:
    """Items of an index as a key; None where one is more than a plain number, and may notice that it is looked at."""
    form: list[object] = []
    for item in items:
        if type(item) is slice:
            start, stop, step = item.start, item.stop, item.step
            if type(start) not in _BOUNDS or type(stop) not in _BOUNDS or type(step) not in _BOUNDS:
                return None
            form.append((start, stop, step))
        elif type(item) is int or item is None or item is Ellipsis:
            form.append(item)
        else:
            return None
    return tuple(form)


def _row_major_view(handle: TensorHandle) -> bool:
    """Whether the elements lie packed and in order, so that another shape is only another way to count them."""
    return handle.strides is None or _row_major(handle.shape, handle.strides) is None


def _unwrapped(values: tuple[Sizes, ...]) -> object:
    """The arguments of f(2, 3) and of f((2, 3)) alike."""
    return values[0] if len(values) == 1 and not hasattr(values[0], "__index__") else values


def _strides(handle: TensorHandle) -> Shape:
    if handle.strides is not None:
        return handle.strides
    return _packed(handle.shape)


def _packed(shape: Shape) -> Shape:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _row_major(shape: Shape, strides: Shape) -> Shape | None:
    """None where the strides are those of a packed row-major array (axes of size 1 do not count)."""
    packed = _packed(shape)
    same = all(n == 1 or s == p for n, s, p in zip(shape, strides, packed, strict=True))
    return None if same else strides
