"""Python operators on tiles and tensors are refused, since they are no NumPy arrays; the error names the operation
to use.
"""

from collections.abc import Callable
from numbers import Number
from typing import NoReturn

__kernbench_internal__ = True
# special methods of Python, and their operations in words
_ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
)
_ALONE = ("neg", "pos", "abs", "invert")
_COMPARISONS = ("lt", "le", "gt", "ge")
_CONVERSIONS = ("int", "float", "complex", "index", "round", "trunc", "floor", "ceil")


class Opaque:
    """An object that a program can name but not compute with; `_refuse_python` reports it, at the program's line."""

    __slots__ = ()
    # NumPy functions refuse it instead of making an array of objects
    __array_ufunc__ = None

    def _refuse_python(self, doing: str) -> NoReturn:
        """Refuse a Python operation."""
        raise NotImplementedError

    def _is_element(self) -> bool:
        """Whether it is a single element, of which comparing can only mean its value."""
        return False

    # what is neither a number nor an element (None, another tile in a list) is compared by identity
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        elements = isinstance(other, Opaque) and (self._is_element() or other._is_element())
        values = isinstance(other, (Number, list, tuple)) or hasattr(other, "__array__")
        if elements or (values and not isinstance(other, Opaque)):
            self._refuse_python("is no number to compare")
        return False

    __hash__ = object.__hash__

    def __format__(self, form: str) -> str:
        if form:
            self._refuse_python(f"is no number to be formatted as {form!r}")
        return str(self)

    def __contains__(self, value: object) -> bool:
        self._refuse_python("cannot be searched with `in`")

    def __setitem__(self, key: object, value: object) -> None:
        self._refuse_python("cannot be written into by index")

    def __array__(self, *how: object, **more: object) -> NoReturn:
        self._refuse_python("is no array of NumPy")


def _refused(doing: str) -> Callable[..., NoReturn]:
    def refuse(self: Opaque, *others: object) -> NoReturn:
        self._refuse_python(doing)

    return refuse


for _name in _ARITHMETIC:
    for _way in ("", "r", "i"):
        setattr(Opaque, f"__{_way}{_name}__", _refused("is no number to compute with"))
for _name in _ALONE:
    setattr(Opaque, f"__{_name}__", _refused("is no number to compute with"))
for _name in _COMPARISONS:
    setattr(Opaque, f"__{_name}__", _refused("is no number to compare"))
for _name in _CONVERSIONS:
    setattr(Opaque, f"__{_name}__", _refused("is no number to convert"))
