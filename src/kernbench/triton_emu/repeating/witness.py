"""What was looked at when a state was taken down, and states that were taken down before (`loop_state`).

Looking costs a tenth of a millisecond, and a routine is called thousands of times with the same objects. So what can
change of them is kept beside the state, with what it held: lists, dictionaries, the attributes of objects, the code of
functions. While each holds the very same objects, looking again would find the same state. Tuples of plain values are
known by a mark (`as_value`).
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import is_
from types import FunctionType
from typing import TYPE_CHECKING

from kernbench.triton_emu.repeating.libraries import Held
from kernbench.triton_emu.repeating.reached_code import contents, is_value, plain_mark

if TYPE_CHECKING:
    from kernbench.triton_emu.repeating.loop_state import State
    from kernbench.triton_emu.repeating.reached_code import Reached

__kernbench_internal__ = True

# states that a program keeps
MOST_STATES = 1024
# values that are the same if they are equal, by the identity of their types: classes may have an equality of their own
_AS_THEY_ARE = frozenset(map(id, (int, bool, str, bytes, type(None))))


class Witness:
    """What a state was taken from. `is_whole`: all of it that can change is known here."""

    def __init__(self) -> None:
        self.is_whole = True
        self._lists: list[tuple[list[object], tuple[object, ...]]] = []
        self._mappings: list[tuple[Mapping[Held, object], tuple[object, ...], tuple[object, ...]]] = []
        self._objects: list[tuple[object, type, object]] = []
        self._functions: list[tuple[FunctionType, tuple[object, ...]]] = []
        self._reached: Reached | None = None
        self._changing: list[object] = []
        # what was met more than once, by identity
        self.shared: set[int] = set()

    def of_list(self, held: list[object]) -> None:
        """The elements of a list."""
        self._lists.append((held, tuple(held)))

    def of_mapping(self, held: Mapping[Held, object]) -> None:
        """The keys and values of a dictionary."""
        self._mappings.append((held, tuple(held), tuple(held.values())))

    def of_object(self, held: object, kind: type, attributes: Mapping[Held, object] | None) -> None:
        """The class and the attributes of an object."""
        self._objects.append((held, kind, attributes))
        if attributes:
            self.of_mapping(attributes)

    def of_function(self, function: FunctionType) -> None:
        """The parts of a function, and what it closes over."""
        self._functions.append((function, _parts(function)))
        if function.__kwdefaults__ is not None:
            self.of_mapping(function.__kwdefaults__)

    def of_code(self, reached: "Reached", changing: list[object]) -> None:
        """The code that can be reached, and what variables hold that it can name; more than was noted before."""
        self._reached, self._changing = reached, changing

    @property
    def holds(self) -> bool:
        """Whether everything is as it was."""
        reached = self._reached
        return (
            all(type(one) is kind and getattr(one, "__dict__", None) is known for one, kind, known in self._objects)
            and all(
                len(held) == len(keys) and _same(held, keys) and _same(held.values(), values)
                for held, keys, values in self._mappings
            )
            and all(len(held) == len(was) and _same(held, was) for held, was in self._lists)
            # a function always closes over as many cells
            and all(_same(_parts(function), parts) for function, parts in self._functions)
            and (reached is None or (reached.is_current and _same(reached.changing(), self._changing)))
        )


def _parts(function: FunctionType) -> tuple[object, ...]:
    held = [contents(cell) for cell in function.__closure__ or ()]
    return function.__code__, function.__defaults__, function.__kwdefaults__, function.__dict__, *held


def _same(values: Iterable[object], others: Iterable[object]) -> bool:
    """Whether as many objects as there were are the very same."""
    return all(map(is_, values, others))


class _Known:
    """A state with the values that it was taken from."""

    def __init__(self, values: tuple[object, ...], tuples: list[Held], state: "State", witness: Witness):
        # known by their addresses: they may not die while this is kept
        self._values, self._tuples = values, tuples
        self.state = state
        self._witness = witness

    def is_for(self, tuples: list[Held]) -> bool:
        """Whether values with the same key, which have these tuples, are in the same state. A tuple may be another one
        with the same elements if no other way leads to either of them.
        """
        met, shared = self.state.met, self._witness.shared
        for was, now in zip(self._tuples, tuples, strict=True):
            if was is not now and (id(now) in met or id(was) in shared):
                return False
        return self._witness.holds


class KnownStates:
    """States of some values, by those values."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _Known] = {}

    def find(self, values: tuple[object, ...]) -> "State | None":
        """The state of values that are what they were when it was kept."""
        tuples: list[Held] = []
        found = self._known.get(tuple(_key(values, tuples)))
        return found.state if found is not None and found.is_for(tuples) else None

    def keep(self, values: tuple[object, ...], state: "State") -> None:
        """Keep a state, if what it was taken from is known, and not too many."""
        witness = state.witness
        if witness is None or not witness.is_whole:
            return
        if len(self._known) >= MOST_STATES:
            self._known.clear()
        tuples: list[Held] = []
        key = tuple(_key(values, tuples))
        self._known[key] = _Known(values, tuples, state, witness)


def _key(values: Iterable[Held], tuples: list[Held]) -> Iterator[object]:
    """Plain values by what they are, tuples by their elements and by which of them are one, all others by identity."""
    for value in values:
        kind = type(value)
        if id(kind) in _AS_THEY_ARE:
            yield id(kind)
            yield value
        elif kind is tuple and (mark := as_value(value)) is not None:
            tuples.append(value)
            yield mark
        elif issubclass(kind, tuple) and not kind.__dictoffset__:
            tuples.append(value)
            yield id(kind)
            yield len(value)
            yield next(i for i, one in enumerate(tuples) if one is value)
            yield from _key(tuple.__iter__(value), tuples)
        else:
            yield 0
            yield id(value)


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
