"""Data that warps of a block exchange through volatile shared memory without a barrier.

Volatile accesses are strong, so by PTX's letter they do not race. But warps run in any order, so if the values are data
(`analysis.volatile_data`), the result depends on timing. Lanes of one warp are handled in `warp_synchronous`.
"""

from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.findings.advice import SHARED_BARRIER
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, thread_name
from kernbench.ptx.emulator.checks.memory.warp_synchronous import WORD, WarpClocks, touched_words
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.memory.port import Accessed, Space
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Site


class _Last:
    """The last access of each word: its lane plus one, its warp's clock, and its site."""

    def __init__(self, words: int):
        self.lanes, self.clocks, self.sites = (np.zeros(words, np.int32) for _ in range(3))

    def enter(self, words: Array, lanes: Array, clocks: Array, sites: Array | int) -> None:
        """Lanes access words; if several access one word, the last counts."""
        self.lanes[words], self.clocks[words], self.sites[words] = lanes + 1, clocks, sites

    def warps(self, words: Array) -> Array:
        """The warp of each word's last access; -1 for none."""
        found: Array = (self.lanes[words] - 1) // WARP
        return found


class VolatileData:
    """Volatile accesses of one batch to shared memory, in a program that loads data by some of them."""

    def __init__(self, batch: BatchHub, clocks: WarpClocks, reporter: Reporter, shared_name: Callable[[int], str]):
        self._batch, self._clocks, self._reporter, self._shared_name = batch, clocks, reporter, shared_name
        self._loads = reporter.program.volatile_data
        words = batch.ctas * batch.shared_stride // WORD + 1 if self._loads else 0
        self._written = _Last(words)
        # the last reader, and the last one of another warp: a word is mostly read again by the same warp, or by its
        # owner
        self._read, self._read_before = _Last(words), _Last(words)

    def access(
        self, space: Space, accessed: Accessed, lanes: Array, active: Mask | None, nbytes: int, writes: bool, site: Site
    ) -> None:
        """Lanes make a volatile access."""
        taken = writes or site.number in self._loads
        if space.name != "shared" or nbytes < WORD or not taken or self._clocks.exhausted:
            return
        words, positions = touched_words(space, accessed, lanes, active, nbytes, self._batch.shared_stride)
        lanes = lanes[positions]
        for last in (self._read, self._read_before) if writes else (self._written,):
            self._look(last, words, lanes, site, writes)
        ctas, inside = lanes // WARP % self._batch.ctas, lanes // WARP // self._batch.ctas
        clocks = self._clocks.clocks[ctas, inside, inside]
        if writes:
            self._written.enter(words, lanes, clocks, site.number)
        else:
            self._enter_read(words, lanes, clocks, site)

    def _enter_read(self, words: Array, lanes: Array, clocks: Array, site: Site) -> None:
        last, before = self._read, self._read_before
        known = last.lanes[words], last.clocks[words], last.sites[words], last.warps(words)
        last.enter(words, lanes, clocks, site.number)
        now = last.warps(words)
        moved = (known[3] >= 0) & (known[3] != now)
        before.enter(words[moved], known[0][moved] - 1, known[1][moved], known[2][moved])
        # if several warps read a word in one step, too
        others = lanes // WARP != now
        before.enter(words[others], lanes[others], clocks[others], site.number)

    def _look(self, last: _Last, words: Array, lanes: Array, site: Site, writes: bool) -> None:
        """Report last accesses of words by other warps of the block that are unordered with the new ones."""
        warps, others, ctas = lanes // WARP, last.warps(words), self._batch.ctas
        # a word may also be accessed from another block of the cluster
        near = np.flatnonzero((others >= 0) & (others != warps) & (others % ctas == warps % ctas))
        known = self._clocks.clocks[warps[near] % ctas, warps[near] // ctas, others[near] // ctas]
        near = near[(last.clocks[words[near]] > known) & ~self._clocks.helps(lanes[near])]
        for number in np.unique(last.sites[words[near]]).tolist():
            here = near[last.sites[words[near]] == number]
            first = int(here[0])
            self._report(last, site, number, writes, int(words[first]), int(lanes[first]), len(here))

    def _report(self, last: _Last, site: Site, other: int, writes: bool, word: int, lane: int, count: int) -> None:
        """Report unordered accesses at two sites."""
        earlier = self._reporter.program.sites[other]
        them = thread_name(self._batch, int(last.lanes[word]) - 1)
        where = f"shared memory {self._shared_name(word * WORD % self._batch.shared_stride)}"
        message = (
            f"{thread_name(self._batch, lane)} {'writes' if writes else 'reads'} {where}; {them}, of another warp, "
            f"accesses it in PTX line {earlier.line} (`{earlier.text}`), both volatile, and nothing orders the two: "
            "warps run in any order, and what is read goes into what is stored"
        )
        seen = self._reporter.other(f"the other access, by {them}", earlier)
        hint = f"separate them by {SHARED_BARRIER}"
        array = where.partition("+")[0]
        self._reporter.add("race", site, message, hint, count, seen, about="volatile", array=array, cause=earlier)
