"""Reads of warps that make nothing of what they read.

Where a tile has fewer elements than a block has threads, Triton lets several warps load the same elements and reduce
them, and lets one of them store the results. In a kernel that works in place the store may come before, or after, the
others' loads: nothing orders the two, and nothing comes of what the others loaded. Whether a warp ever stores what it
has read is known when the launch has ended, so races with such reads are kept until then.
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
    """What is needed of the checks of the launch: its program, its sites, and what is reported when it has ended."""

    program: Program
    sites: AccessSites
    later: list[Callable[[], None]]


class BatchChecks(Protocol):
    """What is needed of the checks of the batch."""

    def beside(self, warp: int, number: int) -> int | None:
        """The warp of a number, if it belongs to the block of `warp`."""


class IdleReads:
    """Which warps of one batch store what they have read."""

    def __init__(self, checks: LaunchChecks, batch: BatchChecks, warps: int):
        self._checks = checks
        self._batch = batch
        self._warps = warps
        self._left: dict[tuple[int, int], Array] = {}

    def leave(self, key: tuple[int, int], lanes: Array) -> None:
        """Lanes store something that comes from a load, or might."""
        if key not in self._left:
            self._left[key] = np.zeros(self._warps, bool)
        self._left[key][lanes // WARP] = True

    def stores(self, load: int, warp: int) -> bool:
        """Whether a warp has stored what it read with a load."""
        ways = self._checks.program.idle_loads[load]
        return any(bool(self._left[way][warp]) for way in ways if way in self._left)

    def split(self, site: Site, spot: Spot, races: Array, add_findings: AddFindings) -> Array:
        """Races that are reported at once; the others are kept until it is known whether they matter."""
        if not len(races) or not self._checks.program.idle_loads:
            return races
        readers = [self._reader(site, spot, race) for race in races]
        kept: dict[tuple[int, int], list[int]] = {}
        for number, reader in enumerate(readers):
            if reader is not None and not self.stores(*reader):
                kept.setdefault(reader, []).append(number)
        if not kept:
            return races
        # what lies behind the spot changes before the launch has ended
        copied = replace(spot, lanes=spot.lanes.copy(), addresses=np.array(spot.addresses))
        for reader, numbers in kept.items():
            self._checks.later.append(self._late(reader, add_findings, copied, races[numbers]))
        return np.delete(races, [number for numbers in kept.values() for number in numbers], axis=0)

    def _late(self, reader: tuple[int, int], add_findings: AddFindings, spot: Spot, races: Array) -> Callable[[], None]:
        report = new_report()
        report[RACE, :2] = len(races), races[0, 0]
        return lambda: add_findings(spot, report, races) if self.stores(*reader) else None

    def _reader(self, site: Site, spot: Spot, race: Array) -> tuple[int, int] | None:
        """The load and the warp of a race whose read may be for nothing."""
        loads, warp = self._checks.program.idle_loads, int(spot.lanes[race[0]]) // WARP
        if site.number in loads:
            return site.number, warp
        number, other, _ = decode(int(race[1]) & (1 << 64) - 1)
        load, beside = self._checks.sites.site(number).number, self._batch.beside(warp, other)
        return (load, beside) if load in loads and beside is not None else None
