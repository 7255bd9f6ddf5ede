"""Functions of which it is known how they compute the values of several iterations, and what does so.

The values of several iterations lie in one array, along a new first axis.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array

__kernbench_internal__ = True

# what is computed with: arrays, and numbers beside them
Value = Any
Compute = Callable[..., Value]
# of an operand: how many axes it has in one iteration, and whether those of several lie in it
Rank = tuple[int, bool]


class Elementwise(partial[Array]):
    """A function whose result has at each index what comes of its operands there; they are broadcast."""


class Along(partial[Array]):
    """A function of one array that works along the axis in its keyword `axis`."""


class Product(partial[Array]):
    """A function of two matrices, or two rows of matrices, and what is added to their product, if anything."""


# a matrix with its axes swapped
turned = attrgetter("T")


def same(whole: Array) -> Array:
    """The value itself."""
    return whole


def reordered(order: tuple[int, ...], whole: Array) -> Array:
    """With axes in another order."""
    return whole.transpose(order)


def reshaped(sizes: tuple[int, ...], whole: Array) -> Array:
    """The same elements in another shape."""
    return whole.reshape(sizes)


def copied(sizes: tuple[int, ...], whole: Array) -> Array:
    """The elements moved so that they lie in the order of another shape."""
    return np.ascontiguousarray(whole).reshape(sizes)


def stretched(sizes: tuple[int, ...], whole: Array) -> Array:
    """Axes of size 1 repeated."""
    return np.broadcast_to(whole, sizes)


def picked(items: tuple[object, ...], whole: Array) -> Array:
    """A part, as NumPy's indices give it."""
    part: Array = np.asarray(whole[items])  # type: ignore[index]
    return part


def _stretched_all(sizes: tuple[int, ...], whole: Array) -> Array:
    lead = len(sizes) + 1 - whole.ndim
    return np.broadcast_to(_lifted(whole, lead), (len(whole), *sizes))


# views of the values of several iterations, by what makes one
_VIEWS: dict[object, Callable[..., Array]] = {
    same: same,
    turned: lambda whole: whole.transpose(0, 2, 1),
    reordered: lambda order, whole: whole.transpose(0, *[axis + 1 for axis in order]),
    reshaped: lambda sizes, whole: whole.reshape((len(whole), *sizes)),
    copied: lambda sizes, whole: np.ascontiguousarray(whole).reshape((len(whole), *sizes)),
    stretched: _stretched_all,
    picked: lambda items, whole: np.asarray(whole[(slice(None), *items)]),
}


def _lifted(whole: Array, axes: int) -> Array:
    """With so many axes of size 1 after the first."""
    return whole.reshape((len(whole), *(1,) * axes, *whole.shape[1:])) if axes else whole


def _broadcasting(function: Compute, ranks: Sequence[Rank]) -> Compute:
    """Operands with fewer axes than others are aligned by their last ones."""
    most = max(axes for axes, _ in ranks)
    missing = [most - axes if is_stacked else 0 for axes, is_stacked in ranks]
    if not any(missing):
        return function
    return lambda *given: function(*map(_lifted_where, given, missing))


def _lifted_where(value: Value, axes: int) -> Value:
    return _lifted(value, axes) if axes else value


def for_several(function: Compute, ranks: Sequence[Rank]) -> Compute | None:
    """What computes for several iterations what `function` does for one; None where that is not known."""
    if isinstance(function, Elementwise) or (isinstance(function, np.ufunc) and function.signature is None):
        return _broadcasting(function, ranks)
    if function is np.matmul or isinstance(function, Product):
        has_two = all(axes >= 2 for axes, _ in ranks) and any(is_stacked for _, is_stacked in ranks[:2])
        return function if has_two else None
    if isinstance(function, Along):
        axis = function.keywords["axis"]
        moved = {**function.keywords, "axis": axis + 1} if axis is not None else {}
        return Along(function.func, *function.args, **moved) if moved else None
    if type(function) is partial and function.func in _VIEWS:
        return partial(_VIEWS[function.func], *function.args)
    return _VIEWS.get(function)


def name_of(function: Compute) -> Hashable:
    """What is equal for functions that do the same; None for one that is not known here."""
    if isinstance(function, partial):
        known = isinstance(function, (Elementwise, Along, Product)) or function.func in _VIEWS
        return (type(function), function.func, repr(function.args), repr(function.keywords)) if known else None
    return function if isinstance(function, np.ufunc) or function in _VIEWS else None
