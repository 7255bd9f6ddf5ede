"""Tuples of plain values, however deep, as marks that are equal only if nothing distinguishes the values."""

from kernbench.triton_emu.repeating.libraries import Held
from kernbench.triton_emu.repeating.reached_code import is_value, plain_mark

__kernbench_internal__ = True


class Value:
    """A mark for a tuple of plain values, however deep: equal to one with values that nothing distinguishes."""

    __slots__ = ("_known", "_value", "number")

    def __init__(self, value: tuple[object, ...]):
        self._value = value
        self._known: object = None
        # the same for all that are equal
        self.number = hash(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value) or self.number != other.number:
            return self is other
        return self._value is other._value or self._typed() == other._typed()

    def _typed(self) -> object:
        """The values with their types, put together when first asked for."""
        if self._known is None:
            self._known = _typed(self._value)
        return self._known

    def __hash__(self) -> int:
        return self.number


def _typed(value: Held) -> object:
    """Plain values with their types."""
    return tuple(map(_typed, value)) if type(value) is tuple else (type(value), plain_mark(value))


# tuples of plain values that were met lately, by identity: they cannot change, and are not looked into again
_MET: dict[int, tuple[tuple[object, ...], Value]] = {}
_MOST_MET = 4096


def as_value(value: tuple[object, ...]) -> Value | None:
    """The mark of a tuple of plain values, None for any other."""
    found = _MET.get(id(value))
    if found is not None:
        return found[1]
    if not is_value(value):
        return None
    if len(_MET) >= _MOST_MET:
        _MET.clear()
    mark = Value(value)
    _MET[id(value)] = value, mark
    return mark
