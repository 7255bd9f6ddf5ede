"""A value that a kernel calls by a name, on its way to whoever compares it with the golden."""

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.common.dtypes import Array
from kernbench.result.finding import Place
from kernbench.result.reading import Data


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The values as they are at `where`, in the program that `who` names; `keys` say which part of the whole it is.

    Where they lie scattered, `places` holds their indices in the whole, an array for each axis, and `owner` gives for
    the number of an element who has it.
    """

    name: str
    array: Array
    where: Place
    who: str
    keys: Data
    places: tuple[Array, ...] | None = None
    owner: Callable[[int], str] | None = None


Taken = Callable[[Checkpoint], None]
