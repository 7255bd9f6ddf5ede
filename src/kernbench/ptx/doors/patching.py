"""Temporary patches of other modules' attributes, undone in reverse order."""

from collections.abc import Callable, MutableMapping
from typing import Any

_ABSENT = object()


class Patches:
    """Patches that can be undone, the last one first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module or class."""
        # for a class its own attribute, not an inherited one
        old = vars(owner).get(name, _ABSENT) if isinstance(owner, type) else getattr(owner, name, _ABSENT)
        setattr(owner, name, value)

        def undo() -> None:
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

        self._undo.append(undo)

    def set_if_there(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute if it exists; releases differ."""
        if hasattr(owner, name):
            self.set(owner, name, value)

    def item(self, table: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Set an entry of a table."""
        old = table.get(key, _ABSENT)
        table[key] = value

        def undo() -> None:
            if old is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = old

        self._undo.append(undo)

    def later(self, undo: Callable[[], None]) -> None:
        """Call a function when the patches are undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Undo all patches."""
        while self._undo:
            self._undo.pop()()
