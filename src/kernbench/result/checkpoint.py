"""A value that a kernel names as a checkpoint, to be compared with the golden."""

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.common.dtypes import Array
from kernbench.result.finding import SourceLocation
from kernbench.result.reading import Data


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The values at source location `where`, in the program `who`; `keys` say which part of the whole they are.

    For scattered values `positions` are their indices in the whole, an array for each axis, and `owner` names the
    program that holds an element, by its number.
    """

    name: str
    array: Array
    where: SourceLocation
    who: str
    keys: Data
    positions: tuple[Array, ...] | None = None
    owner: Callable[[int], str] | None = None


Taken = Callable[[Checkpoint], None]
