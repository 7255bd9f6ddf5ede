"""Shared memory that threads' copies (cp.async) still fill: no access before the copying thread has waited."""

from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.copies.thread_kernels import mark_words
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, thread_name
from kernbench.ptx.emulator.lanes.arrays import Bools, Flag, Int, Int32s, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import NO_MASK, Mask
from kernbench.ptx.emulator.memory.pages.allocation import large_zeros
from kernbench.ptx.emulator.memory.port import Accessed, Space, offsets_of
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.observer.values import CopiesObserver
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Site

_HINT = (
    "let the threads that began the copies wait (cp.async.wait_group or wait_all), then a barrier, before the access; "
    "of wait_group N, the last N groups may still be under way"
)

_NOBODY: Array = np.zeros(0, np.int64)
_NOTHING: Array = np.zeros(0, np.int32)


@kernel
def _meets(
    filled_by: Int32s,
    addresses: UInt64s,
    offset: np.uint64,
    size: np.uint64,
    nbytes: Int,
    origins: UInt64s,
    lanes: Int64s,
    mask: Bools,
) -> Flag:
    """Whether an active position accesses a word that a copy will fill; nearly always none does."""
    span, masked = np.uint64(nbytes), mask.size > 0
    for i in range(lanes.size):
        start = addresses[i] + offset
        if (masked and not mask[i]) or size < span or start > size - span:
            continue
        first = np.int64(start + origins[lanes[i]])
        for k in range(0, nbytes, 4):
            if filled_by[(first + k) >> 2] >= 0:
                return True
    return False


@kernel
def _first_filled(filled_by: Int32s, starts: Int64s, lengths: Int64s) -> tuple[Int, Int]:
    """The first range with a word that a copy will fill, and the first byte there; (-1, 0) for none."""
    for i in range(starts.size):
        end = (starts[i] + lengths[i] + 3) >> 2 if lengths[i] > 0 else np.int64(0)
        for word in range(starts[i] >> 2, end):
            if filled_by[word] >= 0:
                return np.int64(i), 4 * np.int64(word)
    return np.int64(-1), np.int64(0)


class PendingCopies(CopiesObserver):
    """The words of one batch's shared memory that copies in flight will fill."""

    def __init__(self, batch: BatchHub, reporter: Reporter, shared_name: Callable[[int], str]):
        self._batch = batch
        self._reporter = reporter
        self._shared_name = shared_name
        # for each word the number of the copy's site, -1 for none; made at the first copy
        self._filled_by: Array = _NOTHING
        self._count = 0
        self._early: Array = _NOBODY

    @property
    def filled_by(self) -> Array:
        """For each word of shared memory the number of the site whose copy fills it, -1 for none.

        Empty if no copy is in flight.
        """
        return self._filled_by if self._count else _NOTHING

    def begin(self, targets: Array, words: int, site: Site) -> None:
        """Copies may fill `words` words from each target on, from now on."""
        if not self._filled_by.size:
            self._filled_by = large_zeros(self._batch.ctas * self._batch.shared_stride // 4 + 1, np.int32)
            self._filled_by[:] = -1
        self._count += mark_words(self._filled_by, targets, words, site.number)

    def end(self, targets: Array, words: int) -> None:
        """The copies into words are complete."""
        self._count -= mark_words(self._filled_by, targets, words, -1)

    def touched(
        self, space: Space, writes: bool, site: Site, lanes: Array, active: Mask | None, accessed: Accessed, nbytes: int
    ) -> None:
        """Lanes are about to access shared memory."""
        self._early = _NOBODY
        if not self._count or space.name != "shared":
            return
        mask = NO_MASK if active is None else active
        (addresses, offset, base), far = accessed, np.uint64(space.size)
        if not _meets(
            self._filled_by, addresses, np.uint64(offset) - np.uint64(base), far, nbytes, space.origins, lanes, mask
        ):
            return
        inside = offsets_of(accessed)
        legal = (inside >= 0) & (inside + nbytes <= space.size)
        which = np.flatnonzero(legal if active is None else legal & active)
        starts = inside[which] + space.origins[lanes[which]].astype(np.int64)
        filled = np.maximum.reduce([self._filled_by[(starts + k) // 4] for k in range(0, nbytes, 4)])
        bad = np.flatnonzero(filled >= 0)
        if len(bad):
            self._early = which[bad]
            position = which[bad[0]]
            copy = self._reporter.program.sites[int(filled[bad[0]])]
            who = thread_name(self._batch, int(lanes[position]))
            self._report(who, writes, site, int(inside[position]), copy, len(bad))

    def met(self, writes: bool, ranges: Ranges, lanes: Array, site: Site) -> None:
        """Operations that lanes began access ranges of shared memory."""
        if not self._count:
            return
        found, first = _first_filled(self._filled_by, ranges.starts, ranges.lengths)
        if found >= 0:
            offset = int(first)
            copy = self._reporter.program.sites[int(self._filled_by[offset // 4])]
            lane = int(lanes[ranges.owners[found]])
            who = f"the operation that {thread_name(self._batch, lane)} begins"
            self._report(who, writes, site, offset % self._batch.shared_stride, copy, 1)

    def fills(self, offset: int) -> bool:
        """Whether a copy may still fill a byte of shared memory, which is why nobody has written it."""
        return self._count > 0 and self._filled_by[offset // 4] >= 0

    def reads_early(self, position: int) -> bool:
        """Whether the last access, at a position, was to memory that a copy still fills."""
        return bool((self._early == position).any())

    def _report(self, who: str, writes: bool, site: Site, address: int, copy: Site, count: int) -> None:
        message = (
            f"{who} {'writes' if writes else 'reads'} shared memory "
            f"{self._shared_name(address)}, which a copy begun in PTX line {copy.line} (`{copy.text}`) still fills: "
            f"the thread that began it has not waited for it"
        )
        others = self._reporter.other("the copy", copy)
        self._reporter.unwaited |= {site.number, copy.number}
        about = ("copy", self._reporter.location(copy))
        self._reporter.add("in-flight", site, message, _HINT, count, others, about=about, cause=copy)
