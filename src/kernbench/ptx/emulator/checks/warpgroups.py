"""Checks of wgmma: what descriptors point at, and the order of its reads of shared memory with other accesses."""

from typing import Any

from kernbench.common.dtypes import Array


class WarpgroupChecks:
    """The checks of one batch's wgmma operations."""

    def __init__(self, batch: Any):
        self._batch = batch

    def issued(self, event: Any, leaders: Array) -> None:
        """Warps issued an operation; `leaders` are the first warps of their warpgroups."""

    def waited(self, warps: Array, leaders: Array, done: Array) -> None:
        """Warps have waited for their groups below `done`."""
