"""Loop indices that may be used for addresses, and notice every other use.

In a run without data an index of `tl.range` is an `Affine`: a whole number that knows by how much it grows with each
iteration of the loops it was made in. Sums and multiples of it are `Affine` again, and memory accesses take one as an
address. Whatever else asks for its value (a comparison, a branch, a list, a shape) gets it, and the loops are marked:
what their bodies do may depend on the iteration, so that each has to run. The numbers that a routine is given are such
indices too; they may also be the ends of a row of numbers (`arange`), which is recorded by its length alone.
"""

import operator
from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from kernbench.common.dtypes import Array

__kernbench_internal__ = True


_COMPUTING = ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__index__")
# terms of a value that was used, the least and the largest that it stood for
Span = tuple["Terms", int, int]


class Watched:
    """A loop whose iterations may turn out to be alike, or a number that a routine is given: the identity that indices
    refer to. `spans`: where ends of rows of numbers are noted; None where these are looked at like all else.
    """

    __slots__ = ("is_open", "spans", "was_seen")

    def __init__(self, spans: list[Span] | None = None) -> None:
        self.spans = spans
        # whether the loop still runs, and its iterations are still compared
        self.is_open = True
        # whether somebody looked at a value that depends on the iteration
        self.was_seen = False


Terms = tuple[tuple[Watched, int], ...]


class Affine:
    """A whole number that is `now`, and `step` more in the next iteration of each loop in `terms`."""

    __slots__ = ("now", "terms")

    def __init__(self, now: int, terms: Terms):
        self.now = now
        self.terms = terms

    def seen(self) -> int:
        """The value, for somebody who does more with it than add and multiply."""
        for loop, _ in self.terms:
            loop.was_seen = True
        return self.now

    def step_of(self, loop: Watched) -> int:
        """How much more it is in the next iteration of `loop`."""
        return sum(step for known, step in self.terms if known is loop)

    def __add__(self, other: object) -> "Affine | int":
        if type(other) is Affine:
            return _made(self.now + other.now, (*self.terms, *other.terms))
        number = _whole(other)
        return _add(self, other) if number is None else _made(self.now + number, self.terms)

    def __radd__(self, other: object) -> "Affine | int":
        return _radd(self, other) if _whole(other) is None else self + other

    def __mul__(self, other: object) -> "Affine | int":
        number = _whole(other)
        if number is None:
            return _mul(self, other)
        return _made(self.now * number, tuple((loop, step * number) for loop, step in self.terms))

    def __rmul__(self, other: object) -> "Affine | int":
        return _rmul(self, other) if _whole(other) is None else self * other

    def __neg__(self) -> "Affine | int":
        return self * -1

    def __pos__(self) -> "Affine | int":
        return self

    def __sub__(self, other: object) -> "Affine | int":
        if type(other) is Affine:
            return self + other * -1
        number = _whole(other)
        return _sub(self, other) if number is None else self + -number

    def __rsub__(self, other: object) -> "Affine | int":
        number = _whole(other)
        return _rsub(self, other) if number is None else self * -1 + number

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self.seen(), dtype)

    def __array_ufunc__(self, function: np.ufunc, method: str, *given: object, **how: object) -> object:
        """Sums and products with NumPy's whole numbers are such indices as well; all else of NumPy gets the value."""
        exact = _EXACT.get(function) if method == "__call__" and not how else None
        if exact is not None and all(type(one) is Affine or _whole(one) is not None for one in given):
            return exact(*(one if type(one) is Affine else _whole(one) for one in given))
        return getattr(function, method)(*map(_value, given), **{name: _value(one) for name, one in how.items()})

    def __index__(self) -> int:
        return self.seen()

    # an index is a whole number to whoever asks what it is, in every iteration
    __class__ = property(lambda self: int)
    real = numerator = property(seen)
    imag = property(lambda self: 0)
    denominator = property(lambda self: 1)

    def __hash__(self) -> int:
        return hash(self.seen())


def ends(first: object, last: object) -> tuple[int, int] | None:
    """The values of two numbers that are always equally far apart and that routines watch, who note them; else None."""
    if type(first) is not Affine or type(last) is not Affine or first.terms != last.terms:
        return None
    spans = [loop.spans for loop, _ in first.terms]
    if any(one is None for one in spans):
        return None
    if spans and spans[0] is not None:
        spans[0].append((first.terms, first.now, max(first.now, last.now - 1)))
    return first.now, last.now


def _whole(value: object) -> int | None:
    """A number that may be added to or multiplied with an index exactly; None for anything else.

    NumPy's narrow and unsigned numbers wrap around, in an iteration that is not run too, and classes of others may
    compute as they like: with these the operation itself is carried out, on the value.
    """
    kind = type(value)
    if kind is int:
        return value  # type: ignore[return-value]
    if kind is bool or isinstance(value, np.int64):
        return int(value)  # type: ignore[call-overload,no-any-return]
    return int(value) if isinstance(value, int) and kind is not Affine and _is_plain(kind) else None


def _is_plain(kind: type) -> bool:
    """Whether numbers of a class that derives from int, such as an IntEnum, compute as whole numbers do."""
    return all(getattr(kind, name) is getattr(int, name) for name in _COMPUTING)


def _is_handle(value: object) -> bool:
    # a handle of one element can be an index, but arithmetic with it is a command
    return hasattr(value, "block")


def _made(now: int, terms: Terms) -> "Affine | int":
    """A plain number once no loop that it depends on is watched any more."""
    steps: dict[Watched, int] = {}
    for loop, step in terms:
        if loop.is_open:
            steps[loop] = steps.get(loop, 0) + step
    kept = tuple((loop, step) for loop, step in steps.items() if step)
    return Affine(now, kept) if kept else now


def _value(given: object) -> object:
    return given.seen() if type(given) is Affine else given


def _with(function: Callable[..., "Affine | int"], *, reflected: bool = False) -> Callable[..., "Affine | int"]:
    """An operation with another operand: on the value itself, but for handles, for which it is a command of theirs.

    Of whole numbers it gives a whole number, of others what Python gives.
    """

    def operate(self: Affine, other: object, *more: object) -> "Affine | int":
        if _is_handle(other):
            return NotImplemented  # type: ignore[no-any-return]
        if reflected:
            return function(_value(other), self.seen(), *more)
        return function(self.seen(), _value(other), *more)

    return operate


def _looking(name: str) -> Callable[..., object]:
    def look(self: Affine, *others: object) -> object:
        return getattr(self.seen(), name)(*map(_value, others))

    look.__name__ = name
    return look


_EXACT: dict[np.ufunc, Callable[..., object]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul,
}  # fmt: skip
_add, _radd = _with(operator.add), _with(operator.add, reflected=True)
_sub, _rsub = _with(operator.sub), _with(operator.sub, reflected=True)
_mul, _rmul = _with(operator.mul), _with(operator.mul, reflected=True)
# everything else that whole numbers can do, with the value itself
_OPERATORS: dict[str, Callable[..., Affine | int]] = {
    "floordiv": operator.floordiv, "mod": operator.mod, "divmod": divmod, "truediv": operator.truediv, "pow": pow,
    "lshift": operator.lshift, "rshift": operator.rshift, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor,
}  # fmt: skip
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_LOOKING = (
    "__bool__", "__int__", "__float__", "__complex__", "__str__", "__repr__", "__format__", "__abs__", "__invert__",
    "__round__", "__trunc__", "__floor__", "__ceil__", "bit_length", "bit_count", "as_integer_ratio", "to_bytes",
    "conjugate", "is_integer",
)  # fmt: skip
for _name, _function in _OPERATORS.items():
    setattr(Affine, f"__{_name}__", _with(_function))
    setattr(Affine, f"__r{_name}__", _with(_function, reflected=True))
for _name in _COMPARISONS:
    setattr(Affine, f"__{_name}__", _with(getattr(operator, _name)))
for _name in _LOOKING:
    setattr(Affine, _name, _looking(_name))
