"""Waits of CTAs for each other through global memory: where they are, and how many must follow one another.

A loop that reads a flag until another CTA has set it has one turn in a recording, since how often it looks is a
matter of time. What is known is who waited for whom: a CTA that saw what another stored goes on after it. Each warp
has a number, that of the handovers which led to where it is; a word in memory has the number of the warp that stored
it last, and who sees the word of another CTA has one more than that. The largest number is a chain of handovers, each
through L2, that no order of the CTAs makes shorter.
"""

from collections.abc import Iterator

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Int64s
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.program import Program, Site, WaitLoop
from kernbench.ptx.recording.naming import only_waits

_STRONG = frozenset(("volatile", "relaxed", "acquire", "acq_rel"))
_CLOCKS = ("%clock", "%globaltimer")
# spaces in which other CTAs write
_COMMON = frozenset(("global", ""))


class Handovers:
    """Those of one launch."""

    def __init__(self, program: Program):
        loops = [block.wait_loop for block in program.blocks if block.wait_loop is not None]
        sites = {block.number: block.sites for block in program.blocks}
        loops = [loop for loop in loops if _changes_nothing(loop, sites)]
        # instructions that look at what others store, and those that look at a clock, by number
        self.polls = {site.number for loop in loops for site in _polls(loop, sites)}
        self.clocks = {site.number for loop in loops if loop.timed for site in _clocks(loop, sites)}
        self.deepest = 0
        # what each word of memory was stored by: handovers before it, and the CTA
        self._words: dict[int, tuple[int, int]] = {}

    def stored(self, address: int, depth: int, cta: int, adds: bool) -> None:
        """A CTA stores a word; what `adds` to it leaves what others have added."""
        before = self._words.get(address, (0, cta))
        self._words[address] = (max(depth, before[0]), cta) if adds else (depth, cta)

    def seen(self, address: int, cta: int) -> int:
        """Handovers before a CTA that has seen a word goes on; 0 where nobody else has stored it."""
        depth, by = self._words.get(address, (-1, cta))
        found = 0 if by == cta else depth + 1
        self.deepest = max(self.deepest, found)
        return found


class BatchHandovers:
    """Those of the CTAs of a batch; `whole` has what all batches share."""

    def __init__(self, whole: Handovers, warps: int, numbers: Array):
        self._whole = whole
        self._numbers = numbers
        self._depth: Int64s = np.zeros(warps, np.int64)
        self._of_cta: Int64s = np.zeros(len(numbers), np.int64)

    def accessed(self, site: Site, window: Window, mask: Mask | None, addresses: Array, offset: int) -> None:
        """Lanes load from, or store to, global memory: polls look at words, single lanes and atomics change them."""
        access, polls = site.effects.access, site.number in self._whole.polls
        if access == "load" and not polls:
            return
        # what a lock is taken with is a look at it: only one of those who try changes it
        changes = access != "load" and not polls
        for warp, address in _single(window, mask, addresses, offset, access != "store"):
            cta = int(self._numbers[warp % len(self._numbers)])
            if changes:
                self._whole.stored(address, int(self._depth[warp]), cta, access != "store")
            else:
                self._depth[warp] = max(self._depth[warp], self._whole.seen(address, cta))

    def arrives(self, warps: Array) -> None:
        """Warps come to a barrier of their CTA."""
        np.maximum.at(self._of_cta, warps % len(self._of_cta), self._depth[warps])

    def completes(self) -> None:
        """A barrier is complete: no warp of the CTA goes on before what the others waited for."""
        of_cta = np.resize(self._of_cta, len(self._depth))
        np.maximum(self._depth, of_cta, out=self._depth)


def _single(
    window: Window, mask: Mask | None, addresses: Array, offset: int, several: bool
) -> Iterator[tuple[int, int]]:
    """Warps and the words that they access: of stores those of single lanes only, which flags are stored by."""
    active = np.ones(window.size, bool) if mask is None else np.asarray(mask)
    words = np.broadcast_to(np.asarray(addresses), window.size)
    of_warp = active.reshape(-1, WARP).sum(axis=1)
    for number in np.flatnonzero(of_warp > 0).tolist():
        if of_warp[number] > 1 and not several:
            continue
        lanes = slice(number * WARP, (number + 1) * WARP)
        for address in np.unique(words[lanes][active[lanes]]).tolist():
            yield int(window.warps[number]), int(address) + offset


def _changes_nothing(loop: WaitLoop, sites: dict[int, tuple[Site, ...]]) -> bool:
    events = [(site.effects.event, site.name) for block in loop.blocks for site in sites[block]]
    return all(not event or only_waits(event, name) for event, name in events)


def _polls(loop: WaitLoop, sites: dict[int, tuple[Site, ...]]) -> Iterator[Site]:
    """What a loop looks at that others store, where nothing but that lets it end."""
    sleeps = any(site.effects.event == "sleep" for block in loop.blocks for site in sites[block])
    if not loop.waits or (loop.carried and not loop.takes and not sleeps and not loop.timed):
        return
    for read in loop.reads:
        words = read.site.name.split(".")
        strong = read.site.effects.access == "atomic" or not _STRONG.isdisjoint(words)
        if strong and read.space in _COMMON and not read.site.effects.polls:
            yield read.site


def _clocks(loop: WaitLoop, sites: dict[int, tuple[Site, ...]]) -> Iterator[Site]:
    for block in sorted(loop.blocks):
        yield from (site for site in sites[block] if any(name in site.text for name in _CLOCKS))
