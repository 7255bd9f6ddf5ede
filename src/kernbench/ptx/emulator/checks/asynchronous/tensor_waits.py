"""When warps waited for their loads and stores of tensor memory, for races whose accesses lack fences only."""

import numpy as np

from kernbench.common.dtypes import Array

# remembered waits of each warp
_WAITS = 16


class Waits:
    """The last waits of each warp for its loads and stores: how many were complete then, and the warp's clock."""

    def __init__(self, families: int, warps: int):
        self._last: Array = np.zeros((families, _WAITS, 2, warps), np.int64)
        self._count: Array = np.zeros((families, warps), np.int64)

    def note(self, family: int, warps: Array, done: Array, clocks: Array) -> None:
        """Warps have waited for so many operations, at these clocks."""
        at = self._count[family, warps] % _WAITS
        self._last[family, at, 0, warps], self._last[family, at, 1, warps] = done, clocks
        self._count[family, warps] += 1

    def since(self, family: int, warp: int, number: int) -> int | None:
        """The warp's clock at its first wait, among the last ones, for an operation; None without any."""
        done, clocks = self._last[family, :, :, warp].T
        found = clocks[done >= number]
        return int(found.min()) if len(found) else None
