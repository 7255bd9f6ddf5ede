"""Debug output of a core while it runs: printed lines, and named intermediates. No rows, no time."""

from typing import Any

from kernbench.common.dtypes import Array
from kernbench.npu.core.core import Core
from kernbench.npu.core.tiles import Tile
from kernbench.npu.isa.units import LANES
from kernbench.npu.tasks.tensors import Tensor
from kernbench.result.checkpoint import Checkpoint
from kernbench.safety.printing import lines_of

__kernbench_internal__ = True
# most printed lines that a launch keeps
MOST_LINES = 10_000


class Debugging(Core):
    """Printing and naming tiles."""

    def tprint(self, *values: object, hex: bool = False) -> None:
        """Print tiles, tensors and numbers with their current values, after a text if one is given first."""
        prefix, shown = (values[0], values[1:]) if values and isinstance(values[0], str) else ("", values)
        location = self.sites.locations[self.sites.here()]
        described = [(value, _data(value), _described(value)) for value in shown]
        for line in lines_of(prefix, described, hex):
            if len(self.context.printed) < MOST_LINES:
                self.context.printed.append(f"{self._name()} at {location}: {line.lstrip()}")

    def checkpoint(self, name: str, tile: Tile, **keys: object) -> None:
        """Name the valid part of a tile after an intermediate of the golden, to compare its current values with it.

        `keys` select the part: `at` is an index into the golden's array, others are passed to its function.
        """
        if not isinstance(tile, Tile):
            self.context.fail("misuse", f"checkpoint {name!r}: a tile is wanted, got {tile!r}")
        if self.context.taken is not None and tile.data is not None:
            location = self.sites.locations[self.sites.here()]
            self.context.taken(Checkpoint(name, tile.data, location, self._name(), keys))

    def _name(self) -> str:
        return f"{LANES[self.lane]} of {self.block.task.describe()}, block {self.block.index}"


def _data(value: Any) -> Array | None:
    """The elements of a tile or tensor; None where there are none to show."""
    if isinstance(value, Tile):
        return value.data  # type: ignore[no-any-return]
    if isinstance(value, Tensor) and value.buffer.array is not None and not value.broken:
        return value.data()  # type: ignore[no-any-return]
    return None


def _described(value: object) -> str:
    if isinstance(value, Tile):
        return value.describe()
    return f"{value.dtype} {list(value.shape)} of {value.name}" if isinstance(value, Tensor) else ""
