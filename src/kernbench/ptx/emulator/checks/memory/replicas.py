"""Replicas: threads of a block that hold one value and all store it, and which of these stores race.

If a tile has fewer elements than a block has threads, compilers let several lanes hold each element and store it to
shared memory, without a predicate; Triton also lets several warps. Mostly they store the same bits, which is no race.
Values that differ by rounding only count as one result (`rounding`). If they differ otherwise, a CUDA or PTX program
has a race. But in Triton no programmer writes stores to shared memory: its lanes differ where the value of the element
is arbitrary, such as the argmax of a row of NaN that a mask drops later. There the word is *contested*: it holds one of
the values, so it is treated as undefined, and the race is reported if something depends on it (ADR 124).

A word is contested by one execution of one instruction. A conflicting store by another execution or instruction is no
replica: it is a race at once.
"""

from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.happens_before.knowledge import bits
from kernbench.ptx.emulator.checks.memory.rounding import differ_by_rounding
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.access_sites import AccessSites
from kernbench.ptx.emulator.memory.cells import OWN, decode
from kernbench.ptx.emulator.memory.port import Space, Spot, starts_of
from kernbench.ptx.emulator.observer.origins import Origin
from kernbench.ptx.emulator.program.program import Program, Site

# the epoch of an access in the format of a cell, and its lanes
Access = tuple[int, int]


class Clocks(Protocol):
    """What is needed from the clocks of a batch."""

    numbers: Array

    def table(self) -> Array:
        """Per-warp data for the compiled loops: see `cells`."""


class BatchChecks(Protocol):
    """What is needed of the checks of a batch."""

    sites: AccessSites

    @property
    def clocks(self) -> Clocks:
        """The vector clocks."""

    def beside(self, warp: int, number: int) -> int | None:
        """The warp of a number, if it is in the same block as `warp`."""

    def knows_of(self, lane: int, cell: int, mask: int) -> bool:
        """Whether accesses of lanes, in the epoch of a cell, happen before what a lane does now."""


class ContestedWords(Protocol):
    """Undefined-value tracking of contested words."""

    def contested(self, space: Space, site: Site, one: int, other: int, offsets: Array, nbytes: int) -> Origin:
        """Two lanes have stored different values at offsets of a space: these become undefined."""

    def contested_again(self, space: Space, offset: int, nbytes: int, origin: Origin) -> None:
        """A value stays undefined, since another store was not ordered after the conflict."""


class Replicas:
    """Stores of one value by several threads of a batch."""

    def __init__(self, checks: BatchChecks, program: Program, undefined: ContestedWords):
        self._checks, self._program, self._undefined = checks, program, undefined
        self._compiler = program.kernel.module.compiler
        # sites of contesting stores
        self.contested: set[int] = set()
        # by the offset of a contested value in shared memory: its size, two of its writers, and its origin
        self._words: dict[int, tuple[int, tuple[Access, Access], Origin]] = {}

    def differing(self, space: Space, site: Site, spot: Spot, races: Array) -> Array:
        """The races, as rows of suspects in `cells`, that are not between stores of one result."""
        if spot.stored is None or not len(races) or not self._compiler:
            return races
        races = races[[not self._one_result(site, spot, spot.stored, *race[:3].tolist()) for race in races]]
        if self._compiler == "LLVM" and space.name == "shared" and site.effects.access == "store" and not spot.scope:
            return self._contest(space, site, spot, spot.stored, races)
        return races

    def _one_result(self, site: Site, spot: Spot, stored: Array, position: int, cell: int, mask: int) -> bool:
        """Whether lanes store the same result, up to rounding, in one instruction of a compiler."""
        others = self._others(site, spot, position, cell, mask)
        if not others or site.number in self._program.integer_stores:
            return False
        return self._near(site, stored, int(spot.lanes[position]), others, stored[:, spot.lanes])

    def _near(self, site: Site, stored: Array, lane: int, others: list[int], kin: Array) -> bool:
        reduced = self._program.reduced_stores.get(site.number)
        return differ_by_rounding(stored[:, lane], stored[:, others], kin, reduced)

    def _others(self, site: Site, spot: Spot, position: int, cell: int, mask: int) -> list[int]:
        """The lanes of a cell's access, if it was by the same instruction and they may hold the same results."""
        number, other, _ = decode(cell & (1 << 64) - 1)
        warp = self._replica(int(spot.lanes[position]) // WARP, other)
        if warp is None or self._checks.sites.numbered[number] is not site:
            return []
        return [warp * WARP + one for one in bits(mask)]

    def _replica(self, warp: int, number: int) -> int | None:
        """The warp of a number if it may hold the same results as `warp`.

        The same warp, or for Triton any in the block.

        Triton lets all warps of a block that hold the same elements store them to shared memory, without a predicate.
        """
        triton = self._compiler == "LLVM"
        return self._checks.beside(warp, number) if triton or number == self._checks.clocks.numbers[warp] else None

    def _contest(self, space: Space, site: Site, spot: Spot, stored: Array, races: Array) -> Array:
        """Make words undefined that lanes contest in this execution of an instruction; returns the other races."""
        starts, legal = starts_of(space, spot)
        begins = {int(lane): int(start) for lane, start in zip(spot.lanes[legal], starts[legal], strict=True)}
        left = []
        for race in races:
            position, cell, mask = race[:3].tolist()
            others, lane = self._others(site, spot, position, cell, mask), int(spot.lanes[position])
            if not others or any(begins.get(other) != begins[lane] for other in others):
                left.append(race)
                continue
            differing = self._differing_values(site, spot, stored, lane, others)
            if not len(differing):
                # all store the same value now, so the conflict is with a store of another execution
                left.append(race)
                continue
            offsets = differing * stored.itemsize + begins[lane]
            origin = self._undefined.contested(space, site, lane, others[0], offsets, stored.itemsize)
            own = int(self._checks.clocks.table()[lane // WARP, OWN])
            both = (cell & (1 << 64) - 1, mask), (own, 1 << lane % WARP)
            self._words.update((offset, (stored.itemsize, both, origin)) for offset in offsets.tolist())
            self.contested.add(site.number)
        return np.array(left, races.dtype).reshape(-1, races.shape[1])

    def _differing_values(self, site: Site, spot: Spot, stored: Array, lane: int, others: list[int]) -> Array:
        """The indices of stored values that differ between lanes by more than rounding."""
        exact, kin = site.number in self._program.integer_stores, stored[:, spot.lanes]
        found = []
        for index in range(len(stored)):
            one = stored[index : index + 1]
            differ = bool((one[:, others] != one[:, lane, None]).any())
            if differ and (exact or not self._near(site, one, lane, others, kin)):
                found.append(index)
        return np.array(found, np.int64)

    def stored_again(self, space: Space, spot: Spot) -> None:
        """Lanes have stored to contested words: if ordered after all conflicting stores, the word is defined again."""
        starts, legal = starts_of(space, spot)
        lanes = spot.lanes
        settled: dict[int, bool] = {}
        for position in np.flatnonzero(legal).tolist() if space.name == "shared" else ():
            first = int(starts[position])
            for offset in range(first, first + spot.nbytes):
                if offset in self._words:
                    accesses, lane = self._words[offset][1], int(lanes[position])
                    known = all(self._checks.knows_of(lane, *access) for access in accesses)
                    settled[offset] = settled.get(offset, True) and known
        for offset, known in settled.items():
            nbytes, _, origin = self._words[offset]
            if known:
                del self._words[offset]
            else:
                self._undefined.contested_again(space, offset, nbytes, origin)
