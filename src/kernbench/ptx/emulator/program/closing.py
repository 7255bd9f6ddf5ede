"""Records that are filled in while a program is decoded, and are immutable afterwards."""

from typing import Self

# the class of closed objects, by the class of open ones
_CLOSED: dict[type, type] = {}


class Closing:
    """An object whose attributes may be set until it is closed.

    Closing changes the object's class to one that refuses; until then setting an attribute has no extra cost.
    """

    def close(self) -> Self:
        """Make the object immutable."""
        kind = type(self)
        if not issubclass(kind, Closed):
            self.__class__ = _CLOSED.get(kind) or _closed(kind)
        return self


class Closed(Closing):
    """A closed object."""

    def __setattr__(self, name: str, value: object) -> None:
        kind = type(self).__name__.removeprefix("Closed")
        raise AttributeError(f"{kind}.{name} cannot be set: the program is decoded; let an analysis return a fact")


def _closed(kind: type) -> type:
    made = _CLOSED[kind] = type(f"Closed{kind.__name__}", (Closed, kind), {"__doc__": kind.__doc__})
    return made
