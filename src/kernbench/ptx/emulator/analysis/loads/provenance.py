"""Provenance of values: what registers and frames hold, over the blocks of a kernel and all functions it calls.

A value is a *symbol* and *marks*. Two pieces of storage with the same symbol hold the same value at any time; symbol 0
is an unknown value. Marks are bits of whatever is followed, and propagate through computation. A call is a context of
its own, so each frame and register has its own storage.
"""

from collections.abc import Iterator
from typing import Any

Symbol = int
Value = tuple[Symbol, int]
Storage = tuple[Any, ...]
Node = tuple[int, int]

UNKNOWN: Symbol = 0
NOTHING: Value = (UNKNOWN, 0)
_WIDTHS = (1, 2, 4, 8, 16)
# a symbol with more changing parts than this is treated as unknown
_MOST_CHANGING = 12


class Symbols:
    """Symbols by their definition."""

    def __init__(self) -> None:
        self._numbers: dict[Any, Symbol] = {None: UNKNOWN}
        self._keys: list[Any] = [None]
        # for each symbol, the changing symbols that it depends on; these have another value each time they are defined
        self._changing: list[frozenset[Symbol]] = [frozenset()]

    def key(self, symbol: Symbol) -> Any:
        """The definition of a symbol."""
        return self._keys[symbol]

    def depends(self, symbol: Symbol) -> frozenset[Symbol]:
        """The changing symbols that a symbol depends on."""
        return self._changing[symbol]

    def fixed(self, *key: Any) -> Symbol:
        """A value that never changes: a constant, a parameter, an address in a frame."""
        return self._make(key, frozenset())

    def changing(self, *key: Any) -> Symbol:
        """A value that is new each time."""
        known = key in self._numbers
        symbol = self._make(key, frozenset())
        if not known:
            self._changing[symbol] = frozenset((symbol,))
        return symbol

    def made(self, operation: Any, sources: list[Symbol]) -> Symbol:
        """The result of an operation on values."""
        if UNKNOWN in sources:
            return UNKNOWN
        changing = frozenset[Symbol]().union(*(self._changing[source] for source in sources))
        return UNKNOWN if len(changing) > _MOST_CHANGING else self._make((operation, *sources), changing)

    def plus(self, symbol: Symbol, offset: int) -> Symbol:
        """A value plus a constant."""
        if not offset or symbol == UNKNOWN:
            return symbol
        key = self._keys[symbol]
        if key[0] == "frame":
            return self.fixed("frame", key[1], key[2] + offset)
        if key[0] == "plus":
            base, total = key[1], self._keys[key[2]][1] + offset
            return self.plus(base, total)
        return self.made("plus", [symbol, self.fixed("constant", offset)])

    def frame(self, symbol: Symbol) -> tuple[int, int] | None:
        """The context and offset of an address in a frame."""
        key = self._keys[symbol]
        return (key[1], key[2]) if key is not None and key[0] == "frame" else None

    def _make(self, key: Any, changing: frozenset[Symbol]) -> Symbol:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._keys)
            self._keys.append(key)
            self._changing.append(changing)
        return found


def overlapping(values: dict[Storage, Value], context: int, offset: int, nbytes: int) -> Iterator[Storage]:
    """Known parts of a frame that overlap some bytes."""
    for width in _WIDTHS:
        for start in range(offset - width + 1, offset + nbytes):
            storage = ("frame", context, start, width)
            if storage in values:
                yield storage


class State:
    """The contents of all storage at one point; absent storage was never written."""

    def __init__(self, symbols: Symbols, values: dict[Storage, Value]):
        self._symbols = symbols
        self.values = values

    def copy(self) -> "State":
        """A copy, for another path."""
        return State(self._symbols, dict(self.values))

    def load(self, context: int, offset: int, nbytes: int) -> Value:
        """Load bytes of a frame."""
        found = list(overlapping(self.values, context, offset, nbytes))
        if found == [("frame", context, offset, nbytes)]:
            return self.values[found[0]]
        marks = 0
        for storage in found:
            marks |= self.values[storage][1]
        return UNKNOWN, marks

    def store(self, context: int, offset: int, nbytes: int, value: Value) -> None:
        """Store bytes of a frame."""
        for storage in list(overlapping(self.values, context, offset, nbytes)):
            _, _, start, width = storage
            if offset <= start and start + width <= offset + nbytes:
                del self.values[storage]
            else:
                self.values[storage] = UNKNOWN, self.values[storage][1]
        self.values["frame", context, offset, nbytes] = value

    def move(self, source: tuple[int, int], target: tuple[int, int], nbytes: int) -> None:
        """Copy bytes of one frame to another, part by part."""
        parts = [
            (storage[2] - source[1], storage[3], self.values[storage])
            for storage in overlapping(self.values, *source, nbytes)
            if storage[2] >= source[1] and storage[2] + storage[3] <= source[1] + nbytes
        ]
        for storage in list(overlapping(self.values, *target, nbytes)):
            del self.values[storage]
        for offset, width, value in parts:
            self.values["frame", target[0], target[1] + offset, width] = value

    def forget(self, context: int) -> None:
        """A call has returned: drop its registers and frame."""
        self.values = {
            storage: value for storage, value in self.values.items() if storage[0] == "note" or storage[1] != context
        }

    def renew(self, symbol: Symbol) -> None:
        """A changing symbol is redefined: storage with its old value becomes unknown."""
        for storage, (held, marks) in self.values.items():
            if symbol in self._symbols.depends(held):
                self.values[storage] = UNKNOWN, marks

    def unmark(self, marks: int) -> None:
        """Remove marks."""
        for storage, (held, there) in self.values.items():
            if there & marks:
                self.values[storage] = held, there & ~marks

    def remark(self, old: int, new: int) -> None:
        """Replace a mark by another."""
        for storage, (held, there) in self.values.items():
            if there & old:
                self.values[storage] = held, there & ~old | new


class Joined:
    """The common state of all paths to a node."""

    def __init__(self, symbols: Symbols, node: Node, state: State):
        self._symbols, self._node = symbols, node
        self.values = dict(state.values)
        self._own: set[Symbol] = set()
        # symbols whose storage in memory was lost at the join
        self.lost: set[Symbol] = set()

    def join(self, other: State) -> bool:
        """Merge another path; returns whether anything changed."""
        before = dict(self.values)
        names = self._names(other.values)
        for storage in {*before, *other.values}:
            self.values[storage] = self._one(storage, before, other.values, names)
        return self.values != before

    def _names(self, coming: dict[Storage, Value]) -> dict[tuple[Symbol, Symbol], Symbol]:
        """The symbol of storage that agrees before, and in the new path."""
        groups: dict[Symbol, dict[Symbol, None]] = {}
        for storage, (held, _) in self.values.items():
            if storage in coming:
                groups.setdefault(held, {})[coming[storage][0]] = None
        names = {}
        for held, others in groups.items():
            for other in others:
                names[held, other] = self._name(held, other, len(others) == 1)
        return names

    def _name(self, held: Symbol, other: Symbol, alone: bool) -> Symbol:
        if UNKNOWN in (held, other) or (held == other and held not in self._own):
            return held if held == other else self._lose(held, other)
        if alone and held in self._own:
            return held
        self._lose(held, other)
        symbol = self._symbols.changing("met", self._node, len(self._own))
        self._own.add(symbol)
        return symbol

    def _lose(self, *symbols: Symbol) -> Symbol:
        self.lost.update(symbol for symbol in symbols if self._symbols.frame(symbol))
        return UNKNOWN

    def _one(
        self,
        storage: Storage,
        before: dict[Storage, Value],
        coming: dict[Storage, Value],
        names: dict[tuple[Symbol, Symbol], Symbol],
    ) -> Value:
        if storage in before and storage in coming:
            (held, marks), (other, more) = before[storage], coming[storage]
            return names[held, other], marks | more
        symbol, marks = before[storage] if storage in before else coming[storage]
        absent = coming if storage in before else before
        if storage in coming and self._symbols.depends(symbol) & self._own:
            return UNKNOWN, marks
        if storage[0] == "frame" and any(overlapping(absent, *storage[1:])):
            return self._lose(symbol), marks
        return symbol, marks
