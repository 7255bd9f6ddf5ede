"""Joining, sorting, picking and folding values: what Triton builds from passes over a tile.

`reduce` and `associative_scan` call the kernel's own function on halves of the value, so that each of its operations
is a command like any other. A sort is the passes of a bitonic network.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from kernbench.common.dtypes import FLOATS, Array, cast, promote
from kernbench.common.pe_commands import TensorHandle
from kernbench.result.recording import NONE
from kernbench.triton_emu.engine.core import Core, Shape
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.engine.written import ElementType
from kernbench.triton_emu.operations import numerics
from kernbench.triton_emu.operations.arithmetic import Arithmetic
from kernbench.triton_emu.operations.computing import Computing
from kernbench.triton_emu.operations.views import Views

__kernbench_internal__ = True

_Values = tuple[TensorHandle, ...]
_Combine = Callable[..., TensorHandle | Sequence[TensorHandle]]
# one handle, or one for each input of a fold
_Given = TensorHandle | Sequence[TensorHandle]


class Rearranging(Part):
    """Operations that move elements within a value, or fold them."""

    # Joining

    def __init__(self, core: Core, arithmetic: Arithmetic, views: Views, computing: Computing):
        super().__init__(core)
        self._reduce, self._cast = arithmetic._reduce, computing.cast
        self._broadcast, self._reshape, self._index = views.broadcast, views.reshape, views.index
        self._ravel, self._flip = views.ravel, views.flip

    def cat(
        self,
        input: _Given,
        other: TensorHandle | None = None,
        axis: int | None = None,
        *,
        dim: int | None = None,
        can_reorder: bool = False,
    ) -> TensorHandle:
        """Two handles, or a list of them, joined along `axis` (or `dim`; else 0): one command for each joint."""
        parts = list(input) if isinstance(input, (list, tuple)) and other is None else [input]
        parts += [] if other is None else [other]
        if len(parts) < 2:
            self._fail(
                "misuse", f"cat of {len(parts)} handle", "pass two, or a list of them: tl.cat(a, b), tl.cat([a, b])"
            )
        along = next((n for n in (axis, dim) if n is not None), 0)
        joined = self._handle("cat", parts[0])
        for part in parts[1:]:
            joined = self._join_two(joined, self._handle("cat", part), along)
        return joined

    def _join_two(self, a: TensorHandle, b: TensorHandle, axis: int) -> TensorHandle:
        axis = self._axis("cat", a, axis)
        rest = [tuple(n for i, n in enumerate(h.shape) if i != axis) for h in (a, b)]
        if a.ndim != b.ndim or rest[0] != rest[1]:
            self._fail("shape", f"cat of shapes {a.shape} and {b.shape} along axis {axis}: the other axes must agree")
        shape = tuple(n + b.shape[i] if i == axis else n for i, n in enumerate(a.shape))
        return self._joined(a, b, shape, lambda x, y: np.concatenate([x, y], axis=axis))

    def join(self, a: TensorHandle, b: TensorHandle) -> TensorHandle:
        """Two handles side by side on a new last axis of size 2: one command."""
        left, right = self._broadcast(a, b)
        return self._joined(left, right, (*left.shape, 2), lambda x, y: np.stack([x, y], axis=-1))

    def interleave(self, a: TensorHandle, b: TensorHandle) -> TensorHandle:
        """The elements of two handles in turn along the last axis: one command."""
        both = self.join(a, b)
        return self._reshape(both, (*both.shape[:-2], 2 * both.shape[-2] if both.ndim > 1 else 2))

    def _joined(self, a: TensorHandle, b: TensorHandle, shape: Shape, how: Callable[..., Array]) -> TensorHandle:
        kind = promote(a.dtype, b.dtype)
        x, y, made = self._data(a), self._data(b), self._kind(shape, kind)
        data = None if x is None or y is None else how(cast(x, kind), cast(y, kind))
        site = self._sites.here(3)
        return self._emit("cat", site, made, data, a.number, b.number)

    # Picking and ordering

    def gather(self, src: TensorHandle, index: TensorHandle, axis: int) -> TensorHandle:
        """The elements of `src` along `axis` that `index` names, which has the shape of the result: one command."""
        site = self._sites.here()
        source, picks = self._handle("gather", src), self._handle("gather", index)
        along = self._axis("gather", source, axis)
        other = [tuple(n for i, n in enumerate(h.shape) if i != along) for h in (source, picks)]
        if source.ndim != picks.ndim or other[0] != other[1]:
            self._fail(
                "shape", f"gather from {source.shape} by {picks.shape} along axis {axis}: the other axes must agree"
            )
        if picks.dtype in FLOATS or picks.dtype == "i1":
            self._fail("dtype", f"gather: the index is {picks.dtype}", "indices are i32 or i8")
        x, i = self._data(source), self._data(picks)
        self._check_picks(i, source.shape[along])
        kind = self._kind(picks.shape, source.dtype)
        data = None if x is None or i is None else np.take_along_axis(x, i.astype(np.int64), along)
        return self._emit("gather", site, kind, data, source.number, picks.number)

    def _check_picks(self, picks: Array | None, size: int) -> None:
        if picks is None:
            return
        wrong = (picks < 0) | (picks >= size)
        if wrong.any():
            first = [int(n) for n in np.unravel_index(int(np.argmax(wrong)), wrong.shape)]
            self._fail("shape", f"gather: index {picks[tuple(first)]} at {first} of an axis of {size}")

    def sort(self, x: TensorHandle, dim: int | None = None, descending: bool = False) -> TensorHandle:
        """Ordered along `dim` (the last for None): k (k + 1) / 2 passes of a bitonic network over 2**k elements."""
        site = self._sites.here()
        handle = self._handle("sort", x)
        axis = self._axis("sort", handle, -1 if dim is None else dim)
        values, kind = self._data(handle), self._kind(handle.shape, handle.dtype)
        data = None if values is None else numerics.sort(values, axis, bool(descending))
        stages = max(handle.shape[axis] - 1, 0).bit_length()
        sorted_ = self._emit("sort_pass", site, kind, data, handle.number, x=axis)
        for _ in range(stages * (stages + 1) // 2 - 1):
            sorted_ = self._emit("sort_pass", site, kind, data, sorted_.number, x=axis, out=sorted_)
        return sorted_

    def topk(self, x: TensorHandle, k: int, dim: int | None = None, descending: bool = True) -> TensorHandle:
        """The `k` largest along `dim` (the last for None), largest first: a sort, and a view of its beginning."""
        handle = self._handle("topk", x)
        axis = self._axis("topk", handle, -1 if dim is None else dim)
        (count,) = self._whole_numbers(k)
        if not 0 < count <= handle.shape[axis]:
            self._fail("shape", f"topk: {count} of an axis of {handle.shape[axis]}")
        return self._along(self.sort(handle, axis, descending), axis, slice(0, count))

    def histogram(self, input: TensorHandle, num_bins: int, mask: TensorHandle | None = None) -> TensorHandle:
        """How often each of 0 .. num_bins - 1 occurs, as i32; other values and those outside `mask` do not count."""
        site = self._sites.here()
        values = self._read("histogram", input)
        (bins,) = self._whole_numbers(num_bins)
        if input.dtype in FLOATS or bins < 1:
            self._fail("dtype", f"histogram of {input.dtype} into {bins} bins", "integers, into at least one bin")
        chosen = None if mask is None else self._read("histogram", mask)
        kind, data = self._kind((bins,), "i32"), None
        if values is not None:
            counted = (values >= 0) & (values < bins)
            counted = counted if chosen is None else counted & chosen
            data = np.bincount(values[counted].astype(np.int64), minlength=bins).astype(np.int32)
        number = NONE if mask is None else mask.number
        return self._emit("histogram", site, kind, data, input.number, number, x=NONE)

    # Folding

    def cumsum(
        self, input: TensorHandle, axis: int = 0, reverse: bool = False, dtype: ElementType = None
    ) -> TensorHandle:
        """Running sums along `axis`, from the end with `reverse`: one command."""
        return self._running("cumsum", input, axis, reverse, dtype)

    def cumprod(
        self, input: TensorHandle, axis: int = 0, reverse: bool = False, dtype: ElementType = None
    ) -> TensorHandle:
        """Running products along `axis`, from the end with `reverse`: one command."""
        return self._running("cumprod", input, axis, reverse, dtype)

    def _running(self, op: str, input: TensorHandle, axis: int, reverse: bool, dtype: ElementType) -> TensorHandle:
        site = self._sites.here(3)
        x = self._read(op, input)
        along = self._axis(op, input, axis)
        narrow = input.dtype in ("i1", "i8")
        kind = ("i32" if narrow else input.dtype) if dtype is None else self._dtype(dtype)
        made = self._kind(input.shape, kind)
        data = None if x is None else numerics.scan(op, x, along, bool(reverse), kind)
        return self._emit(op, site, made, data, input.number, x=along)

    def xor_sum(self, input: TensorHandle, axis: int | None = None, keep_dims: bool = True) -> TensorHandle:
        """All elements along `axis` (all axes for None) combined by exclusive or: one command."""
        return self._fold_bits("xor_sum", input, axis, keep_dims)

    def reduce_or(self, input: TensorHandle, axis: int | None = None, keep_dims: bool = True) -> TensorHandle:
        """All elements along `axis` (all axes for None) combined by or: one command."""
        return self._fold_bits("reduce_or", input, axis, keep_dims)

    def _fold_bits(self, op: str, input: TensorHandle, axis: int | None, keep_dims: bool) -> TensorHandle:
        handle = self._handle(op, input)
        if handle.dtype in FLOATS:
            self._fail("dtype", f"{op} needs integers; got {handle.dtype}", "cast the operand with .to('i32')")
        return self._reduce(op, handle, axis, keep_dims)

    def reduce(self, input: _Given, axis: int | None, combine_fn: _Combine, keep_dims: bool = True) -> _Given:
        """`combine_fn` over all elements along `axis` (all axes for None), neighbours first; `input` may be a tuple.

        It is called with handles, one for each input from the left, then from the right; its operations are commands.
        """
        values, combine = self._folded("reduce", input, combine_fn)
        shape = values[0].shape
        if axis is None:
            values = tuple(self._ravel(v) for v in values)
        along = self._axis("reduce", values[0], 0 if axis is None else axis)
        if not values[0].shape[along]:
            self._fail("shape", f"reduce over an empty axis of a handle of shape {shape}")
        while (count := values[0].shape[along]) > 1:
            even, odd = slice(0, count - count % 2, 2), slice(1, count, 2)
            merged = combine(self._cut(values, along, even), self._cut(values, along, odd))
            tail = self._cut(values, along, slice(count - 1, count))
            values = merged if count % 2 == 0 else self._append(merged, tail, along)
        last = tuple(1 if axis is None or i == along else n for i, n in enumerate(shape))
        kept = last if keep_dims else tuple(n for i, n in enumerate(shape) if axis is not None and i != along)
        return _like(input, tuple(self._reshape(v, kept) for v in values))

    def associative_scan(self, input: _Given, axis: int, combine_fn: _Combine, reverse: bool = False) -> _Given:
        """Running `combine_fn` along `axis`, from the end with `reverse`; for a tuple of inputs the result is one.

        Each of ceil(log2(n)) steps calls it on the value and the value moved on, and joins the result to the beginning.
        """
        values, combine = self._folded("associative_scan", input, combine_fn)
        along = self._axis("associative_scan", values[0], axis)
        if reverse:
            values = tuple(self._flip(v, along) for v in values)
        count, step = values[0].shape[along], 1
        while step < count:
            later = combine(
                self._cut(values, along, slice(0, count - step)), self._cut(values, along, slice(step, count))
            )
            values = self._append(self._cut(values, along, slice(0, step)), later, along)
            step *= 2
        return _like(input, tuple(self._flip(v, along) for v in values) if reverse else values)

    def _folded(
        self, op: str, input: _Given, combine_fn: _Combine
    ) -> tuple[_Values, Callable[[_Values, _Values], _Values]]:
        """The handles to fold, and a function that joins two groups of them."""
        values = tuple(self._handle(op, v) for v in (input if isinstance(input, (list, tuple)) else (input,)))
        if len({v.shape for v in values}) != 1:
            self._fail("shape", f"{op} of values of shapes {[v.shape for v in values]}: they must be equal")
        if not callable(combine_fn):
            self._fail(
                "misuse", f"{op}: {combine_fn!r} is no function", "pass combine_fn(a, b), which gives one handle"
            )
        function = partial(combine_fn, tl=self._core.tl) if _wants_context(combine_fn) else combine_fn
        kinds = [v.dtype for v in values]

        def combine(left: _Values, right: _Values) -> _Values:
            given = function(*left, *right)
            results = tuple(given) if isinstance(given, (list, tuple)) else (given,)
            fits = len(results) == len(left) and all(
                isinstance(r, TensorHandle) and r.shape == v.shape for r, v in zip(results, left, strict=True)
            )
            if not fits:
                hint = "return one handle for each input, of the shape that the function was given"
                wanted = f"{len(left)} handles of shape {left[0].shape}"
                self._fail("shape", f"{op}: combine_fn gave {results!r}, not {wanted}", hint)
            return tuple(self._cast(r, kind) for r, kind in zip(results, kinds, strict=True))

        return values, combine

    def _cut(self, values: _Values, axis: int, part: slice) -> _Values:
        return tuple(self._along(v, axis, part) for v in values)

    def _append(self, values: _Values, tails: _Values, axis: int) -> _Values:
        return tuple(self._join_two(v, t, axis) for v, t in zip(values, tails, strict=True))

    def _along(self, handle: TensorHandle, axis: int, part: slice) -> TensorHandle:
        return self._index(handle, tuple(part if i == axis else slice(None) for i in range(handle.ndim)))


def _like(input: _Given, values: Sequence[TensorHandle]) -> _Given:
    """A tuple for a tuple, one handle for one."""
    return tuple(values) if isinstance(input, (list, tuple)) else values[0]


def _wants_context(function: Callable[..., object]) -> bool:
    """Whether a kernel's own function takes `tl` as a keyword."""
    try:
        parameter = inspect.signature(function).parameters.get("tl")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind is inspect.Parameter.KEYWORD_ONLY
