"""Reads whose values a warp never uses.

If a tile has fewer elements than a block has threads, Triton lets several warps load the same elements and reduce them,
and lets one of them store the results. In an in-place kernel the store may come before or after the others' loads:
nothing orders them, and the others' values are unused. Whether a warp ever stores a value is known only at the end of
the launch, so races with such reads are deferred until then.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.access import RACE, new_report
from kernbench.ptx.emulator.memory.access_sites import AccessSites
from kernbench.ptx.emulator.memory.cells import decode
from kernbench.ptx.emulator.memory.port import Spot
from kernbench.ptx.emulator.program.program import Program, Site

AddFindings = Callable[[Spot, Array, Array], None]


class LaunchChecks(Protocol):
    """What is needed from the launch's checks: the program, its sites, and the callbacks at the end of the launch."""

    program: Program
    sites: AccessSites
    later: list[Callable[[], None]]


class BatchChecks(Protocol):
    """What is needed of the checks of the batch."""

    def beside(self, warp: int, number: int) -> int | None:
        """The warp of a number, if it belongs to the block of `warp`."""


class IdleReads:
    """Which warps of one batch store values of speculative loads."""

    def __init__(self, checks: LaunchChecks, batch: BatchChecks, warps: int):
        self._checks = checks
        self._batch = batch
        self._warps = warps
        self._left: dict[tuple[int, int], Array] = {}

    def leave(self, key: tuple[int, int], lanes: Array) -> None:
        """Lanes store a value that comes, or may come, from a load."""
        if key not in self._left:
            self._left[key] = np.zeros(self._warps, bool)
        self._left[key][lanes // WARP] = True

    def stores(self, load: int, warp: int) -> bool:
        """Whether a warp has stored the value of a load."""
        ways = self._checks.program.idle_loads[load]
        return any(bool(self._left[way][warp]) for way in ways if way in self._left)

    def split(self, site: Site, spot: Spot, races: Array, add_findings: AddFindings) -> Array:
        """The races to report now; races with possibly unused reads are deferred."""
        if not len(races) or not self._checks.program.idle_loads:
            return races
        readers = [self._reader(site, spot, race) for race in races]
        kept: dict[tuple[int, int], list[int]] = {}
        for number, reader in enumerate(readers):
            if reader is not None and not self.stores(*reader):
                kept.setdefault(reader, []).append(number)
        if not kept:
            return races
        # the spot's arrays change before the launch ends
        copied = replace(spot, lanes=spot.lanes.copy(), addresses=np.array(spot.addresses))
        for reader, numbers in kept.items():
            self._checks.later.append(self._late(reader, add_findings, copied, races[numbers]))
        return np.delete(races, [number for numbers in kept.values() for number in numbers], axis=0)

    def _late(self, reader: tuple[int, int], add_findings: AddFindings, spot: Spot, races: Array) -> Callable[[], None]:
        report = new_report()
        report[RACE, :2] = len(races), races[0, 0]
        return lambda: add_findings(spot, report, races) if self.stores(*reader) else None

    def _reader(self, site: Site, spot: Spot, race: Array) -> tuple[int, int] | None:
        """The load and the warp of a race's read, if its value may be unused."""
        loads, warp = self._checks.program.idle_loads, int(spot.lanes[race[0]]) // WARP
        if site.number in loads:
            return site.number, warp
        number, other, _ = decode(int(race[1]) & (1 << 64) - 1)
        load, beside = self._checks.sites.numbered[number].number, self._batch.beside(warp, other)
        return (load, beside) if load in loads and beside is not None else None
