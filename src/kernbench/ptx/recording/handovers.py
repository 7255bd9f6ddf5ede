"""Waits through memory: where warps poll for stores of others, and the longest chain of such handovers between CTAs.

A loop that polls a flag until another CTA sets it has one iteration in a recording, since the number of polls is a
matter of timing. The poll may be any instruction: a load that is ordered with the stores of others, or an atomic that
leaves the flag unchanged. What is known is who waited for whom: a CTA that observes a store of another one continues
after it.

So each warp has a depth, the number of handovers before its current point. A word of memory has the depth of the warp
that stored it last, and a warp that observes a word of another CTA gets that depth plus one. The largest depth is a
chain of handovers, each through L2, that no order of the CTAs makes shorter.
"""

from collections.abc import Iterator

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.program import Program, Site, WaitLoop
from kernbench.ptx.recording.naming import may_change, may_wait


class Handovers:
    """The handovers of one launch."""

    def __init__(self, program: Program):
        loops = [block.wait_loop for block in program.blocks if block.wait_loop is not None]
        # loops that only a clock ends take as long as on the emulator, whose clock counts instructions
        self.clocks = {number for loop in loops if not loop.decided_by for number in loop.clocked_by}
        waiting = [(loop, _inside(program, loop)) for loop in loops if loop.decided_by]
        waiting = [(loop, sites) for loop, sites in waiting if all(may_wait(s.effects.event, s.name) for s in sites)]
        # by number: instructions that poll for stores of others; those of them that wait whatever they observe; those
        # that may leave memory unchanged; and barriers in such loops
        self.polls = {number for loop, _ in waiting for number in loop.decided_by}
        self.stays = {number for loop, _ in waiting if _repeats(loop) for number in loop.decided_by}
        self.watched = {s.number for _, sites in waiting for s in sites if may_change(s.effects.event, s.name)}
        self.meetings = {s.number for _, sites in waiting for s in sites if s.effects.event == "barrier"}
        # polls at which warps observed stores of others: in global memory, and in shared memory
        self.met: set[int] = set()
        self.met_in_shared: set[int] = set()
        self.deepest = 0
        # by word of memory: the depth of the warp that stored it last, and its CTA
        self._words: dict[int, tuple[int, int]] = {}

    def stored(self, address: int, depth: int, cta: int, adds: bool) -> None:
        """A CTA stores a word; with `adds` the depth of earlier stores is kept as well."""
        before = self._words.get(address, (0, cta))
        self._words[address] = (max(depth, before[0]), cta) if adds else (depth, cta)

    def seen(self, address: int, cta: int) -> int:
        """The depth of a CTA after it observes a word; 0 if no other CTA has stored it."""
        depth, by = self._words.get(address, (-1, cta))
        found = 0 if by == cta else depth + 1
        self.deepest = max(self.deepest, found)
        return found


class BatchHandovers:
    """The handovers of a batch's CTAs; `whole` is shared by all batches."""

    def __init__(self, whole: Handovers, warps: int, numbers: Array):
        self._whole = whole
        self._numbers = numbers
        self._depth: Int64s = np.zeros(warps, np.int64)
        self._of_cta: Int64s = np.zeros(len(numbers), np.int64)

    def accessed(
        self, site: Site, window: Window, mask: Mask | None, addresses: Array, offset: int, changed: Bools | None = None
    ) -> None:
        """Lanes have accessed global memory: polls observe words, single lanes and atomics change them.

        `changed` says, for an atomic that may leave memory unchanged, which warps changed it.
        """
        access, polls = site.effects.access, site.number in self._whole.polls
        if access == "load" and not polls:
            return
        # an attempt to take a lock counts as a poll: only one of the warps that try changes it
        changes = access != "load" and not polls
        for number, address in _single(window, mask, addresses, offset, access != "store"):
            warp = int(window.warps[number])
            cta = int(self._numbers[warp % len(self._numbers)])
            if changes or (changed is not None and changed[number]):
                self._whole.stored(address, int(self._depth[warp]), cta, access != "store")
                continue
            seen = self._whole.seen(address, cta)
            self._depth[warp] = max(self._depth[warp], seen)
            if seen or site.number in self._whole.stays:
                self._whole.met.add(site.number)

    def in_shared(self, site: Site, changed: Bools | None = None) -> None:
        """Lanes have accessed shared memory."""
        if site.number in self._whole.stays and (changed is None or not changed.all()):
            self._whole.met_in_shared.add(site.number)

    def arrives(self, warps: Array) -> None:
        """Warps arrive at a barrier of their CTA."""
        np.maximum.at(self._of_cta, warps % len(self._of_cta), self._depth[warps])

    def completes(self) -> None:
        """A barrier is complete: all warps of the CTA get the largest depth among them."""
        of_cta = np.resize(self._of_cta, len(self._depth))
        np.maximum(self._depth, of_cta, out=self._depth)


def _single(
    window: Window, mask: Mask | None, addresses: Array, offset: int, several: bool
) -> Iterator[tuple[int, int]]:
    """Warps of a window and the words they access; of stores only those of single lanes, as these set flags."""
    active = np.ones(window.size, bool) if mask is None else np.asarray(mask)
    words = np.broadcast_to(np.asarray(addresses), window.size)
    of_warp = active.reshape(-1, WARP).sum(axis=1)
    for number in np.flatnonzero(of_warp > 0).tolist():
        if of_warp[number] > 1 and not several:
            continue
        lanes = slice(number * WARP, (number + 1) * WARP)
        for address in np.unique(words[lanes][active[lanes]]).tolist():
            yield number, int(address) + offset


def _inside(program: Program, loop: WaitLoop) -> list[Site]:
    """The instructions of a loop; if it has a call, also those of all other functions of the program."""
    own = [site for block in program.blocks if block.number in loop.blocks for site in block.sites]
    if not any(site.effects.flow == "call" for site in own):
        return own
    function = program.blocks[loop.head].function
    return own + [site for block in program.blocks if block.function != function for site in block.sites]


def _repeats(loop: WaitLoop) -> bool:
    """Whether an iteration that observes the same values as before changes nothing except counters of iterations."""
    return loop.waits and (loop.takes or loop.timed or loop.counting.issuperset(loop.carried))
