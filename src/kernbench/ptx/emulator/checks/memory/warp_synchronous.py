"""Warp-synchronous code: lanes of one warp that exchange data through shared memory without bar.warp.sync.

Code from before Volta relies on the lanes of a warp running in lockstep: `volatile float *s; s[t] += s[t + 16]; ...`.
PTX orders nothing there. Volatile accesses are strong, so they do not race, but the value that is read depends on
timing. Such code can still rely on one instruction being executed for several lanes at once, and on assemblers keeping
the order of volatile accesses, and of accesses around a fence. So a pair of accesses is formal in these cases:

- The earlier one was executed together with the lane of the later one.
- Both lanes passed a fence together in between.
- A lane stores what depends on an exchange of values that others came to with what they had loaded
  (`analysis.exchanged`).

Other pairs are faults: volatile accesses of diverged lanes, and ordinary accesses, which compilers move and drop.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, thread_name
from kernbench.ptx.emulator.lanes.arrays import Bools, Int32s, Int64s
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask, lane_bits
from kernbench.ptx.emulator.memory.cells import decode
from kernbench.ptx.emulator.memory.port import Accessed, Space, offsets_of
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Program, Site
from kernbench.ptx.isa.forms.effects import Effects

WORD = 4
_LANES = 0xFFFF_FFFF
TOGETHER = (
    "the lanes ran the earlier access together, so that every GPU so far has done it for all of them before the later "
    "one begins"
)
FENCED = "the lanes passed a fence together between the two, which every GPU so far does for all of them at once"
EXCHANGED = (
    "the lanes gave each other what they had loaded, or what they branched by it, and the store depends on that, so "
    "that every load is done before a lane can store"
)
SYNCWARP = "put __syncwarp() (bar.warp.sync) between the two, for all lanes that take part"


def polled_sites(program: Program) -> frozenset[int]:
    """Reads of loops that only wait: they may observe a value early or late."""
    found = set()
    for block in program.blocks:
        loop = block.wait_loop
        if loop is None or not loop.waits:
            continue
        inside = [site for number in loop.blocks for site in program.blocks[number].sites]
        if not any(_does_more_than_wait(site.effects) for site in inside):
            found |= {read.site.number for read in loop.reads}
    return frozenset(found)


def _does_more_than_wait(effects: Effects) -> bool:
    """Whether an instruction of a loop passes data to others or is a barrier; an atomic may be the wait itself."""
    return effects.barrier or (effects.writes and effects.access != "atomic")


@dataclass(frozen=True, slots=True, eq=False)
class _Last:
    """The last volatile access of each word: warp plus one, clock, lanes, lanes that ran it along, and site."""

    warps: Array
    clocks: Array
    who: Array
    along: Array
    sites: Array

    @classmethod
    def of(cls, words: int) -> "_Last":
        """No access for any word."""
        return cls(*(np.zeros(words, kind) for kind in (np.int32, np.int32, np.uint32, np.uint32, np.int32)))

    def enter(self, words: Array, lanes: Array, clocks: Array, along: Array, site: Site) -> None:
        """Lanes access words; lanes of one warp at one word count together."""
        self.who[words] = 0
        np.bitwise_or.at(self.who, words, np.uint32(1) << (lanes % WARP).astype(np.uint32))
        self.warps[words], self.clocks[words] = lanes // WARP + 1, clocks
        self.along[words], self.sites[words] = along, site.number


class SitesOfAccesses(Protocol):
    """Resolves the numbers of instructions in cells."""

    @property
    def numbered(self) -> Sequence[Site]:
        """The instructions."""


class WarpClocks(Protocol):
    """The vector clocks of warps and lanes: see `checks.happens_before.clocks`."""

    clocks: Int32s
    met: Int64s
    numbers: Int64s
    peers: Int32s

    def helps(self, lanes: Array) -> Bools:
        """Which lanes may know more than the compiled loops."""

    @property
    def exhausted(self) -> bool:
        """Whether there were more releases than cells can count."""

    def unknown(self, lane: int, number: int, clock: int, mask: int) -> int:
        """The lanes of a warp's access that a lane does not know."""


class WarpSynchronous:
    """The volatile accesses to shared memory of one batch, and the fences of its warps."""

    def __init__(self, batch: BatchHub, clocks: WarpClocks, reporter: Reporter, shared_name: Callable[[int], str]):
        self._batch, self._clocks, self._reporter, self._shared_name = batch, clocks, reporter, shared_name
        # made at the first volatile access
        self._reads: _Last | None = None
        self._writes: _Last | None = None
        self._polled: frozenset[int] = frozenset()
        # clock and lanes of each warp's last fence
        self._fence_clocks: Array = np.full(batch.warps, -1, np.int64)
        self._fence_lanes: Array = np.zeros(batch.warps, np.int64)

    def fenced(self, warps: Array, masks: Array) -> None:
        """Lanes of warps are about to pass a releasing fence."""
        inside = warps // self._batch.ctas
        self._fence_clocks[warps] = self._clocks.clocks[warps % self._batch.ctas, inside, inside]
        self._fence_lanes[warps] = masks

    def fences_between(self, lanes: Array, races: Array) -> Array:
        """For each race of lanes (see `cells`), whether both sides, of one warp, passed a fence together in between."""
        found = np.zeros(len(races), np.uint64)
        if self._fence_clocks.max(initial=-1) < 0:
            return found
        for i, (position, cell, mask, *_) in enumerate(races.tolist()):
            _, number, clock = decode(cell & (1 << 64) - 1)
            warp = int(lanes[position]) // WARP
            apart = (mask | 1 << int(lanes[position]) % WARP) & ~int(self._fence_lanes[warp])
            found[i] = number == self._clocks.numbers[warp] and clock <= self._fence_clocks[warp] and not apart
        return found

    def exchanges_between(
        self, lanes: Array, races: Array, loads: Mapping[int, Array], sites: "SitesOfAccesses"
    ) -> Bools:
        """For each race of lanes, whether the other side is one of `loads` by lanes of the same warp.

        `loads` has for each lane of the batch the mask of those lanes.
        """
        found = np.zeros(len(races), bool)
        for i, (position, cell, mask, *_) in enumerate(races.tolist() if loads else ()):
            other, number, _ = decode(cell & (1 << 64) - 1)
            same = number == self._clocks.numbers[int(lanes[position]) // WARP]
            done = loads.get(sites.numbered[other].number) if same else None
            found[i] = done is not None and not mask & _LANES & ~int(done[int(lanes[position])])
        return found

    def access(
        self, space: Space, accessed: Accessed, lanes: Array, active: Mask | None, nbytes: int, writes: bool, site: Site
    ) -> None:
        """Lanes of whole warps, with their active ones, make a volatile access."""
        if space.name != "shared" or nbytes < WORD:
            return
        words, positions = touched_words(space, accessed, lanes, active, nbytes, self._batch.shared_stride)
        self._enter(words, lanes[positions], _along(lanes, active)[positions], writes, site)

    def _enter(self, words: Array, lanes: Array, along: Array, writes: bool, site: Site) -> None:
        if self._reads is None or self._writes is None:
            size = self._batch.ctas * self._batch.shared_stride // WORD + 1
            self._reads, self._writes = _Last.of(size), _Last.of(size)
            self._polled = polled_sites(self._reporter.program)
        if not self._clocks.exhausted:
            self._look(self._writes, words, lanes, site, "writes" if writes else "reads")
            if writes:
                self._look(self._reads, words, lanes, site, "writes")
        ctas, inside = lanes // WARP % self._batch.ctas, lanes // WARP // self._batch.ctas
        target = self._writes if writes else self._reads
        target.enter(words, lanes, self._clocks.clocks[ctas, inside, inside], along, site)

    def _look(self, last: _Last, words: Array, lanes: Array, site: Site, verb: str) -> None:
        """Report last accesses of words by other lanes of the same warp that are unordered with the new ones."""
        bit = np.uint32(1) << (lanes % WARP).astype(np.uint32)
        others = last.who[words] & ~bit
        warps = lanes // WARP
        near = np.flatnonzero((last.warps[words] == warps + 1) & (others != 0))
        near = near[last.clocks[words[near]] > self._clocks.met[warps[near]]]
        asks = self._clocks.helps(lanes[near]) | (len(self._clocks.peers) > 1)
        for i in np.flatnonzero(asks).tolist():
            word, lane = words[near[i]], int(lanes[near[i]])
            number = int(self._clocks.numbers[lane // WARP])
            others[near[i]] = self._clocks.unknown(lane, number, int(last.clocks[word]), int(others[near[i]]))
        near = near[others[near] != 0]
        together = (last.along[words[near]] & bit[near]) != 0
        for kind in (True, False):
            chosen = near[together == kind]
            for number in np.unique(last.sites[words[chosen]]).tolist():
                here = chosen[last.sites[words[chosen]] == number]
                self._report(site, number, verb, words[here], lanes[here], others[here], kind)

    def _report(
        self, site: Site, other: int, verb: str, words: Array, lanes: Array, others: Array, together: bool
    ) -> None:
        """Report unordered pairs of accesses at two sites."""
        if not together and {site.number, other} & self._polled:
            return
        earlier, lane = self._reporter.program.sites[other], int(lanes[0])
        mask = int(others[0])
        them = thread_name(self._batch, lane // WARP * WARP + (mask & -mask).bit_length() - 1)
        where = f"shared memory {self._shared_name(int(words[0]) * WORD % self._batch.shared_stride)}"
        message = (
            f"{thread_name(self._batch, lane)} {verb} {where}; {them}, of the same warp, accesses it in PTX line "
            f"{earlier.line} (`{earlier.text}`), both volatile, and nothing orders the two"
        )
        if not together:
            message += ": the lanes had parted, and a GPU may run either first"
        seen = self._reporter.other(f"the other access, by {them}", earlier)
        about, array = "volatile", where.partition("+")[0]
        formal = TOGETHER if together else ""
        self._reporter.add(
            "race", site, message, SYNCWARP, len(words), seen, about=about, array=array, cause=earlier, formal=formal,
            habit="warp-synchronous",
        )  # fmt: skip


def touched_words(
    space: Space, accessed: Accessed, lanes: Array, active: Mask | None, nbytes: int, size: int
) -> tuple[Array, Array]:
    """The words of shared memory that lanes access, and the position of each; each block has `size` bytes.

    Invalid accesses are left out, and reported elsewhere.
    """
    starts = offsets_of(accessed)
    good = (starts >= 0) & (starts + nbytes <= size) & (starts % WORD == 0)
    positions = np.flatnonzero(good if active is None else good & active)
    first = (space.origins[lanes[positions]].astype(np.int64) + starts[positions]) // WORD
    count = nbytes // WORD
    return (first[:, None] + np.arange(count)).reshape(-1), np.repeat(positions, count)


def _along(lanes: Array, active: Mask | None) -> Array:
    """For each lane of whole warps, the active lanes of its warp, as bits."""
    if active is None:
        return np.full(len(lanes), 0xFFFFFFFF, np.uint32)
    masks: Array = np.repeat(lane_bits(active), WARP)
    return masks
