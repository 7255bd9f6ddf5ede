"""Drawing inputs: normal numbers from a seeded generator, or only their shape if a run carries no data."""

from math import prod
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from kernbench.bench.definition import drawing
from kernbench.common.dtypes import DTYPES, Array, dtype_of

# numbers from which they are drawn in blocks, by several threads if possible
WORTH = 1 << 20

# a shape as NumPy's generators take it
Size = int | tuple[int, ...] | None
_NO_VALUES = (
    "this run carries no data (shapes only), and these values of inputs were not drawn: draw whole numbers, lengths "
    "and masks without the generator, or leave --shapes-only away"
)


class ShapesOnly:
    """Replaces the generator in a run without data: its results have a shape and a type, and take no memory.

    It draws real numbers like a NumPy generator. Integers are indices and lengths, which a run without data
    needs, too: it draws none.
    """

    def standard_normal(self, size: Size = None, dtype: DTypeLike = np.float64) -> Array:
        """Zeros in place of standard normal numbers."""
        return _without_data(size, dtype)

    def random(self, size: Size = None, dtype: DTypeLike = np.float64) -> Array:
        """Zeros in place of numbers between 0 and 1."""
        return _without_data(size, dtype)

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: Size = None) -> Array:
        """Zeros in place of normal numbers."""
        return _without_data(size, np.float64)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Size = None) -> Array:
        """Zeros in place of numbers of a range."""
        return _without_data(size, np.float64)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"this run carries no data (shapes only), and its generator draws no {name}: draw inputs with "
            "kernbench.bench.normal(rng, shape, dtype), which gives a shape without data here"
        )


class _WithoutData(np.ndarray[tuple[int, ...], np.dtype[np.generic]]):
    """Read-only zeros in the memory of one element, in place of real numbers. Arithmetic with them and other real
    numbers gives the same; operations whose result depends on values (a comparison, a sum, integers) are refused.
    """

    def astype(self, dtype: DTypeLike, *args: object, **kwargs: object) -> Array:  # type: ignore[override]
        """The same shape, without data."""
        return np.asarray(_real(self.shape, dtype))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: ArrayLike, **kwargs: object) -> Array:
        """The result of the function, without data."""
        if method != "__call__" or kwargs or ufunc.nout != 1:
            raise TypeError(_NO_VALUES)
        with np.errstate(all="ignore"):
            kind = ufunc(*(np.zeros((), one.dtype) if isinstance(one, np.ndarray) else one for one in inputs)).dtype
        return _real(np.broadcast_shapes(*(np.shape(one) for one in inputs)), kind)


def _real(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    if dtype_of(dtype).kind in "biu":
        raise TypeError(_NO_VALUES)
    return _without_data(shape, dtype)


def _without_data(size: Size, dtype: DTypeLike) -> Array:
    return np.broadcast_to(np.zeros((), dtype), () if size is None else size).view(_WithoutData)


def normal(rng: np.random.Generator | ShapesOnly, shape: tuple[int, ...], dtype: str) -> Array:
    """Normally distributed numbers, rounded to `dtype`; read-only zeros without memory from `ShapesOnly`."""
    numpy_type = DTYPES[dtype].numpy
    if isinstance(rng, ShapesOnly):
        return np.broadcast_to(np.zeros((), numpy_type), shape)
    if prod(shape) < WORTH:
        return rng.standard_normal(shape, np.float32).astype(numpy_type, copy=False)
    found = np.empty(prod(shape), numpy_type)
    drawing.fill(found, rng)
    return found.reshape(shape)
