"""What a text gives is kept by its content, within bounds; and many long-lived objects are made without collections."""

import gc
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """Values that were used last, up to a total weight; what weighs more than all of it is not kept."""

    def __init__(self, most: int):
        self._most = most
        self._weight = 0
        self._found: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Key) -> Value | None:
        """The value of a key, which is now the one used last; or None."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def put(self, key: Key, value: Value, weight: int) -> None:
        """Keep a value, and forget those that were not used for longest where it is too much."""
        with self._lock:
            if key in self._found or weight > self._most:
                return
            self._found[key] = (value, weight)
            self._weight += weight
            while self._weight > self._most:
                _, (_, gone) = self._found.popitem(last=False)
                self._weight -= gone


class _Frozen:
    """Whether somebody froze objects, so that they must not be unfrozen here.

    Python counts frozen objects one by one, which takes longer than to parse a kernel where there are many: once there
    were some, none are counted again.
    """

    def __init__(self) -> None:
        self._seen = False

    def any(self) -> bool:
        """Whether there are any, or were once."""
        self._seen = self._seen or gc.get_freeze_count() > 0
        return self._seen


_FROZEN = _Frozen()


@contextmanager
def no_collections() -> Iterator[None]:
    """Python's garbage collector waits: it would look again and again at objects that all stay.

    What was made meanwhile counts as old, so that the next collections of young objects do not look at it either.
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
