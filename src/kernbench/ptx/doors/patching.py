"""Names of other people's modules that are replaced for a while, and put back as they were."""

from collections.abc import Callable, MutableMapping
from typing import Any

_ABSENT = object()


class Patches:
    """Replacements that can be undone, the last first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Give an attribute of a module or class another value."""
        # of a class its own, not what it inherits
        old = vars(owner).get(name, _ABSENT) if isinstance(owner, type) else getattr(owner, name, _ABSENT)
        setattr(owner, name, value)

        def undo() -> None:
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

        self._undo.append(undo)

    def set_if_there(self, owner: Any, name: str, value: Any) -> None:
        """The same where the name is known; releases differ."""
        if hasattr(owner, name):
            self.set(owner, name, value)

    def item(self, table: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Give an entry of a table another value."""
        old = table.get(key, _ABSENT)
        table[key] = value

        def undo() -> None:
            if old is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = old

        self._undo.append(undo)

    def later(self, undo: Callable[[], None]) -> None:
        """Call something when all is undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()
