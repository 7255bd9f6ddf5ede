"""Waits through memory: where warps wait for what others store, and how many of CTAs must follow one another.

A loop that reads a flag until another CTA has set it has one turn in a recording, since how often it looks is a
matter of time. Which instruction reads it is no matter: a load that others' stores are ordered with, or an atomic that
leaves the flag as it is. What is known is who waited for whom: a CTA that saw what another stored goes on after it.
Each warp has a number, that of the handovers which led to where it is; a word in memory has the number of the warp that
stored it last, and who sees the word of another CTA has one more than that. The largest number is a chain of handovers,
each through L2, that no order of the CTAs makes shorter.
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
    """Those of one launch."""

    def __init__(self, program: Program):
        loops = [block.wait_loop for block in program.blocks if block.wait_loop is not None]
        # that of which nothing but a clock decides takes as long as on the emulator, whose clock counts instructions
        self.clocks = {number for loop in loops if not loop.decided_by for number in loop.clocked_by}
        waiting = [(loop, _inside(program, loop)) for loop in loops if loop.decided_by]
        waiting = [(loop, sites) for loop, sites in waiting if all(may_wait(s.effects.event, s.name) for s in sites)]
        # instructions that look at what others store, by number; of them those that wait whatever they see; those that
        # may leave memory as it is; and barriers beside them
        self.polls = {number for loop, _ in waiting for number in loop.decided_by}
        self.stays = {number for loop, _ in waiting if _repeats(loop) for number in loop.decided_by}
        self.watched = {s.number for _, sites in waiting for s in sites if may_change(s.effects.event, s.name)}
        self.meetings = {s.number for _, sites in waiting for s in sites if s.effects.event == "barrier"}
        # at which of them warps met what others had stored: words of global memory, and of shared memory
        self.met: set[int] = set()
        self.met_in_shared: set[int] = set()
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

    def accessed(
        self, site: Site, window: Window, mask: Mask | None, addresses: Array, offset: int, changed: Bools | None = None
    ) -> None:
        """Lanes have accessed global memory: polls look at words, single lanes and atomics change them.

        `changed` says of an atomic that may leave memory as it is in which warps it did not.
        """
        access, polls = site.effects.access, site.number in self._whole.polls
        if access == "load" and not polls:
            return
        # what a lock is taken with is a look at it: only one of those who try changes it
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
        """Warps come to a barrier of their CTA."""
        np.maximum.at(self._of_cta, warps % len(self._of_cta), self._depth[warps])

    def completes(self) -> None:
        """A barrier is complete: no warp of the CTA goes on before what the others waited for."""
        of_cta = np.resize(self._of_cta, len(self._depth))
        np.maximum(self._depth, of_cta, out=self._depth)


def _single(
    window: Window, mask: Mask | None, addresses: Array, offset: int, several: bool
) -> Iterator[tuple[int, int]]:
    """Warps of a window and the words that they access: of stores those of single lanes, by which flags are set."""
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
    """The instructions of a loop; what it calls may be any function of the program."""
    own = [site for block in program.blocks if block.number in loop.blocks for site in block.sites]
    if not any(site.effects.flow == "call" for site in own):
        return own
    function = program.blocks[loop.head].function
    return own + [site for block in program.blocks if block.function != function for site in block.sites]


def _repeats(loop: WaitLoop) -> bool:
    """Whether a turn that sees what it saw before leaves all as it was, but for what counts turns."""
    return loop.waits and (loop.takes or loop.timed or loop.counting.issuperset(loop.carried))
