"""A cache of bounded weight, and creation of many long-lived objects without garbage collections."""

import gc
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """A least-recently-used cache with a bounded total weight; values heavier than the bound are not cached."""

    def __init__(self, most: int):
        self._most = most
        self._weight = 0
        self._found: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used one; None if it is not cached."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def put(self, key: Key, value: Value, weight: int) -> None:
        """Cache a value, and evict the least recently used ones while the total weight is too large."""
        with self._lock:
            if key in self._found or weight > self._most:
                return
            self._found[key] = (value, weight)
            self._weight += weight
            while self._weight > self._most:
                _, (_, gone) = self._found.popitem(last=False)
                self._weight -= gone


class _Frozen:
    """Whether the program froze objects with gc.freeze, so that they must not be unfrozen here.

    Python counts frozen objects one by one; with many of them that takes longer than parsing a kernel. Once there were
    some, they are not counted again.
    """

    def __init__(self) -> None:
        self._seen = False

    def any(self) -> bool:
        """Whether there are frozen objects, or were at an earlier call."""
        self._seen = self._seen or gc.get_freeze_count() > 0
        return self._seen


_FROZEN = _Frozen()


@contextmanager
def no_collections() -> Iterator[None]:
    """Disable the garbage collector, which would traverse new objects again and again although all of them stay.

    Objects made meanwhile are moved to the oldest generation, so that later young collections skip them, too.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not _FROZEN.any():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
