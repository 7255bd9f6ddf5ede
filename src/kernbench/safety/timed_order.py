"""Checks that timing agrees with the results, for any target.

Slow and simple, independent of dependence edges and clocks.

Its input is each operation's memory accesses, in the order of the functional pass, and its interval in time. Two
operations that touch a common byte, at least one of them writing, must not overlap in time, and must be timed in the
order in which they were computed. Atomic additions may come in any order among themselves.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array

Bytes = NDArray[np.int64]
Touched = Iterable[tuple[Hashable, Bytes]]

READ, WRITE, ADD = range(3)
# the kinds of earlier accesses that an access must come after
_AFTER = {READ: (WRITE, ADD), WRITE: (READ, WRITE, ADD), ADD: (READ, WRITE)}
_NOBODY = -1


@dataclass(frozen=True)
class Contradiction:
    """Two operations on a common byte whose order in time contradicts the order of computation."""

    earlier: str
    later: str
    memory: Hashable
    byte: int
    earlier_ends: int
    later_begins: int

    def __str__(self) -> str:
        return (
            f"{self.later} begins at {self.later_begins}, before {self.earlier} ends at {self.earlier_ends}; both "
            f"touch byte {self.byte} of {self.memory}"
        )


@dataclass
class _Memory:
    """By byte and kind of access: the latest end so far, and the operation it belongs to."""

    ends: Array = field(default_factory=lambda: np.full((3, 0), -(1 << 62), np.int64))
    who: Array = field(default_factory=lambda: np.full((3, 0), _NOBODY, np.int64))

    def reach(self, size: int) -> None:
        """Grow to `size` bytes."""
        more = size - self.ends.shape[1]
        if more > 0:
            more = max(more, self.ends.shape[1])
            self.ends = np.concatenate([self.ends, np.full((3, more), -(1 << 62), np.int64)], axis=1)
            self.who = np.concatenate([self.who, np.full((3, more), _NOBODY, np.int64)], axis=1)


class TimedOrder:
    """Takes operations in the order in which they were computed, and collects `contradictions`."""

    def __init__(self) -> None:
        self.contradictions: list[Contradiction] = []
        self._memories: dict[Hashable, _Memory] = {}
        self._names: list[str] = []

    def operation(
        self, name: str, begin: int, end: int, reads: Touched = (), writes: Touched = (), adds: Touched = ()
    ) -> None:
        """Add an operation that runs from `begin` to `end`, and the bytes it touches: (memory, byte indices).

        Accesses within one operation are unordered: it may read what it overwrites.
        """
        touched = [
            (kind, memory, np.asarray(numbers, np.int64))
            for kind, parts in ((READ, reads), (WRITE, writes), (ADD, adds))
            for memory, numbers in parts
        ]
        touched = [access for access in touched if access[2].size]
        for kind, memory, numbers in touched:
            held = self._memories.setdefault(memory, _Memory())
            held.reach(int(numbers.max()) + 1)
            for earlier in _AFTER[kind]:
                self._look(name, begin, memory, held, earlier, numbers)
        self._names.append(name)
        for kind, memory, numbers in touched:
            self._mark(self._memories[memory], kind, numbers, end)

    def _look(self, name: str, begin: int, memory: Hashable, held: _Memory, kind: int, numbers: Bytes) -> None:
        late = held.ends[kind, numbers]
        worst = int(np.argmax(late))
        if late[worst] > begin:
            byte = int(numbers.reshape(-1)[worst])
            earlier = self._names[int(held.who[kind, byte])]
            self.contradictions.append(Contradiction(earlier, name, memory, byte, int(late.max()), begin))

    def _mark(self, held: _Memory, kind: int, numbers: Bytes, end: int) -> None:
        later = numbers[held.ends[kind, numbers] < end]
        held.ends[kind, later] = end
        held.who[kind, later] = len(self._names) - 1


@lru_cache(maxsize=1 << 12)
def strided_bytes(offset: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Bytes:
    """The bytes of a strided tile, by enumeration; offset and strides in bytes."""
    numbers = np.array([offset], np.int64)
    for size, step in zip(shape, strides, strict=True):
        numbers = (numbers[:, None] + np.arange(size) * step).reshape(-1)
    touched: Bytes = (numbers[:, None] + np.arange(itemsize)).reshape(-1)
    # cached and shared by callers
    touched.flags.writeable = False
    return touched
