"""Records that are filled in bit by bit while a program is decoded, and do not change afterwards."""

from typing import Self

# the class of closed objects of each class
_CLOSED: dict[type, type] = {}


class Closing:
    """Something whose attributes may be set until it is closed.

    Closing changes the class of the object to one that refuses; until then setting an attribute costs nothing more.
    """

    def close(self) -> Self:
        """From now on nothing of it is set."""
        kind = type(self)
        if not issubclass(kind, Closed):
            self.__class__ = _CLOSED.get(kind) or _closed(kind)
        return self


class Closed(Closing):
    """What was closed."""

    def __setattr__(self, name: str, value: object) -> None:
        kind = type(self).__name__.removeprefix("Closed")
        raise AttributeError(f"{kind}.{name} cannot be set: the program is decoded; let an analysis return a fact")


def _closed(kind: type) -> type:
    made = _CLOSED[kind] = type(f"Closed{kind.__name__}", (Closed, kind), {"__doc__": kind.__doc__})
    return made
