"""Asynchronous copies of threads (cp.async): data arrives in shared memory when its group is waited for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.agents import Agent
from kernbench.ptx.emulator.asynchronous.copies.completion import distinct
from kernbench.ptx.emulator.asynchronous.copies.thread_kernels import (
    Arrays,
    find_done,
    find_targets,
    part_copies,
    take_copies,
    take_words,
)
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousBatch
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.memory.arena import WRITTEN
from kernbench.ptx.emulator.observer.origins import Origin
from kernbench.ptx.emulator.program.program import Site

_WRITTEN = np.uint32(WRITTEN * 0x0101_0101)
_EVERYWHERE = (1 << 64) - 1
_UNLIMITED = np.zeros(0, np.uint32)
# the unwritten source bytes of each lane, [lanes, bytes], and their origin
Undefined = tuple[Array, Origin] | None


class Taking(NamedTuple):
    """Copies that have been read: words, targets and groups as in `Copy`, and the lanes that copy anything.

    `many` is the number of these lanes; `repeated` says whether neighbours copy to the same address.
    """

    words: Array
    targets: Array
    groups: Array
    whole: Mask
    many: int
    repeated: bool


@dataclass(eq=False)
class Landed:
    """A copy that has written without an observed wait: the mbarrier that signals it, and its phase."""

    copy: "Copy"
    slot: int
    phase: int


@dataclass(eq=False)
class Copy:
    """Copies that one instruction began: for each lane its destination, its words and its group.

    `targets` are the destinations as in `thread_kernels`. `undefined` has the unwritten source bytes, [lanes, bytes],
    and their origin.
    """

    lanes: Array
    addresses: Array
    targets: Array
    words: Array
    groups: Array
    rows: Array
    site: Site
    number: int
    undefined: tuple[Array, Origin] | None = None

    def part(self, chosen: Mask) -> "Copy":
        """The copies of some lanes."""
        which = np.flatnonzero(chosen)
        return Copy(
            self.lanes.take(which),
            self.addresses.take(which),
            self.targets.take(which),
            self.words.take(which, axis=1),
            self.groups.take(which),
            self.rows,
            self.site,
            self.number,
            None if self.undefined is None else (self.undefined[0][which], self.undefined[1]),
        )

    def parted(self, chosen: Mask, count: int) -> tuple["Copy", "Copy"]:
        """The copies of the `count` lanes where `chosen` holds, and those of the others."""
        if self.undefined is not None:
            return self.part(chosen), self.part(~chosen)
        those, others = (self._blank(many) for many in (count, len(chosen) - count))
        part_copies(chosen, self._arrays(), those._arrays(), others._arrays())
        return those, others

    def _arrays(self) -> Arrays:
        return self.lanes, self.addresses, self.targets, self.words, self.groups

    def _blank(self, count: int) -> "Copy":
        """A copy of the same instruction with buffers for `count` lanes."""
        lanes, targets, groups = np.empty((3, count), np.int64)
        words: Array = np.empty((len(self.rows), count), np.uint32)
        addresses: Array = np.empty(count, np.uint64)
        return Copy(lanes, addresses, targets, words, groups, self.rows, self.site, self.number)


class Copies:
    """The copies in flight of one batch."""

    def __init__(self, batch: AsynchronousBatch):
        self._batch = batch
        self._pending: list[Copy] = []
        # number of groups that each lane has committed
        self._committed: Array = np.zeros(batch.lanes, np.int64)
        self._begun = 0
        # the last copy of each lane whose completion an mbarrier signals
        self._last_on_mbarrier: Array = np.zeros(batch.lanes, np.int64)
        self._any_on_mbarrier = False
        # their targets must not be accessed before an observed wait, however early the data arrived
        self._landed: list[Landed] = []

    def begin(
        self, lanes: Array, addresses: Array, rows: Array, site: Site, undefined: tuple[Array, Origin] | None = None
    ) -> None:
        """Lanes begin to copy the words in their registers `rows` to shared addresses."""
        words: Array = np.empty((len(rows), len(lanes)), np.uint32)
        take_words(self._batch.banks["uint32"], rows, lanes, words)
        once = _differing(lanes, addresses, words)
        self._batch.port.announce(addresses[once], lanes[once], 4 * len(rows), None, site)
        targets, groups = self._targets(lanes, addresses, 4 * len(rows)), self._committed[lanes]
        self._add(Copy(lanes, addresses, targets, words, groups, rows, site, self._begun + 1, undefined))

    def _add(self, copy: Copy) -> None:
        self._begun = copy.number
        self._pending.append(copy)
        self._batch.checks.copies.begin(copy.targets, len(copy.rows), copy.site)

    def take(
        self, lanes: Array, origins: Array, offset: int, left: Array | None, addresses: Array, rows: Array
    ) -> Taking | None:
        """Read what lanes are about to copy from global to shared addresses, at most `left` bytes each.

        Returns None if any of them has a fault. Nothing is begun yet.
        """
        batch, count = self._batch, len(rows)
        source = batch.port.plain_source()
        if source is None or (left is not None and (left.dtype != np.uint32 or not left.flags.c_contiguous)):
            return None
        memory, states, base, size = source
        words, whole = np.empty((count, len(lanes)), np.uint32), np.empty(len(lanes), bool)
        targets, groups = np.empty((2, len(lanes)), np.int64)
        many, repeated = take_copies(
            (memory, states, origins, np.uint64((offset - base) & _EVERYWHERE), np.uint64(size)),
            _UNLIMITED if left is None else left,
            (addresses, batch.ctas, batch.cluster.size, batch.shared_stride, batch.port.space("shared").size),
            lanes,
            self._committed,
            (words, targets, groups, whole),
        )
        return None if many < 0 else Taking(words, targets, groups, whole, int(many), bool(repeated))

    def begin_taken(
        self, taken: Taking, lanes: Array, addresses: Array, rows: Array, site: Site, undefined: Undefined = None
    ) -> None:
        """As `begin`, for data that was read by `take`."""
        once = _differing(lanes, addresses, taken.words) if taken.repeated else slice(None)
        self._batch.port.announce(addresses[once], lanes[once], 4 * len(rows), None, site)
        copy = Copy(lanes, addresses, taken.targets, taken.words, taken.groups, rows, site, self._begun + 1, undefined)
        self._add(copy)

    def commit(self, lanes: Array) -> None:
        """Close the lanes' current group."""
        self._committed[lanes] += 1

    def wait(self, lanes: Array, keep: int | None) -> None:
        """Complete all groups of lanes but the last `keep`; for None everything, committed or not."""
        limit = np.full(self._batch.lanes, -1, np.int64)
        limit[lanes] = np.iinfo(np.int64).max if keep is None else self._committed[lanes] - keep
        self._finish(lambda copy, done: find_done(copy.groups, copy.lanes, limit, done), self._waited_for)
        if self._landed:
            self._seen(lambda one: bool((one.copy.groups < limit[one.copy.lanes]).all()))

    def passed(self, slots: Array, passed: Array) -> None:
        """Lanes have waited for phases of mbarriers, which may signal the completion of copies; some `passed`."""
        if self._landed:
            slots = slots[passed]
            now = dict(zip(slots.tolist(), self._batch.mbarriers.phases(slots).tolist(), strict=True))
            self._seen(lambda one: now.get(one.slot, one.phase) > one.phase)

    def _seen(self, chosen: Callable[[Landed], bool]) -> None:
        """Landed copies are known to be complete."""
        staying = []
        for one in self._landed:
            if chosen(one):
                self._batch.checks.copies.end(one.copy.targets, len(one.copy.rows))
            else:
                staying.append(one)
        self._landed = staying

    def _waited_for(self, copy: Copy) -> None:
        """Copies that their threads have waited for, which write now.

        Some of them may already be signalled by an mbarrier.
        """
        self._batch.checks.copies.end(copy.targets, len(copy.rows))
        if not self._any_on_mbarrier:
            self._complete(copy)
            return
        on_mbarrier = copy.number <= self._last_on_mbarrier[copy.lanes]
        if on_mbarrier.any():
            self._land(copy.part(on_mbarrier))
        if not on_mbarrier.all():
            self._complete(copy.part(~on_mbarrier) if on_mbarrier.any() else copy)

    def _finish(self, choose: Callable[[Copy, Mask], int], complete: Callable[[Copy], None]) -> None:
        """Complete copies of the lanes that `choose` sets; it returns their number."""
        staying = []
        for copy in self._pending:
            done: Mask = np.empty(len(copy.lanes), bool)
            count = choose(copy, done)
            if count == len(done):
                complete(copy)
            elif count:
                those, others = copy.parted(done, count)
                complete(those)
                staying.append(others)
            else:
                staying.append(copy)
        self._pending = staying

    def arrive(self, lanes: Array, addresses: Array, counted: bool, site: Site) -> None:
        """Lanes arrive on mbarriers when their copies so far are complete; `counted` arrivals are added to a phase."""
        barriers, last = self._batch.mbarriers, self._begun
        slots = barriers.known(addresses, lanes, site)
        which = np.flatnonzero(slots >= 0)
        slots, lanes = slots[which], lanes[which]
        if self._batch.recorder.recording:
            self._batch.recorder.mbarrier(site, slots, lanes, barriers.phases(slots))
        self._last_on_mbarrier[lanes] = last
        self._any_on_mbarrier = True
        if counted:
            barriers.raise_pending(slots)
        barriers.publish(slots, lanes)

        def perform(chosen: Array) -> None:
            arrives_on = np.full(self._batch.lanes, -1, np.int64)
            arrives_on[lanes[chosen]] = slots[chosen]

            def choose(copy: Copy, done: Mask) -> int:
                done[:] = (arrives_on[copy.lanes] >= 0) & (copy.number <= last)
                return int(np.count_nonzero(done))

            self._finish(choose, lambda copy: self._land_unwaited(copy, arrives_on))

        def signal(chosen: Array) -> None:
            barriers.signal(slots[chosen], lanes[chosen], site)

        if len(lanes):
            self._batch.agents.begin(Agent("copy", site, lanes, perform, signal))

    def _land_unwaited(self, copy: Copy, arrives_on: Array) -> None:
        """Copies land, which the mbarriers named by lanes will signal.

        Until a wait they count as in flight: another schedule may deliver them as late as that.
        """
        self._land(copy)
        # landed copies are recorded for findings only
        if not self._batch.checks.checking:
            return
        slots = arrives_on[copy.lanes]
        for slot in np.unique(slots).tolist():
            phase = int(self._batch.mbarriers.phases(np.array([slot]))[0])
            self._landed.append(Landed(copy.part(slots == slot), slot, phase))

    def _targets(self, lanes: Array, addresses: Array, nbytes: int) -> Array:
        """The destinations of lanes, as in `thread_kernels`."""
        batch, targets = self._batch, np.empty(len(lanes), np.int64)
        size = batch.port.space("shared").size
        find_targets(addresses, lanes, batch.ctas, batch.cluster.size, batch.shared_stride, size, nbytes, targets)
        return targets

    def _land(self, copy: Copy) -> None:
        """Write words whose races were checked when the copy began."""
        shared = self._batch.port.space("shared")
        legal = copy.targets >= 0
        for number, words in enumerate(copy.words[:, legal]):
            target = copy.targets[legal] + number
            shared.words[4][target] = words
            shared.state[4][target] |= _WRITTEN
        self._unwrite(copy)
        self._batch.port.changes += 1
        if not legal.all():
            self._complete(copy.part(~legal))

    def _complete(self, copy: Copy) -> None:
        port, rows, fast = self._batch.port, copy.rows, self._batch.launch.fast.delivered_copies
        if not fast or not port.deliver(copy.addresses, copy.targets, copy.lanes, copy.words, copy.site):
            self._batch.banks["uint32"][rows[:, None], copy.lanes[None, :]] = copy.words
            port.store("shared", copy.addresses, copy.lanes, np.uint64(0), "uint32", rows, None, copy.site)
        self._unwrite(copy)

    def _unwrite(self, copy: Copy) -> None:
        """Bytes that were undefined in the source are undefined in shared memory."""
        if copy.undefined is None:
            return
        bad, origin = copy.undefined
        legal = copy.targets >= 0
        if bad[legal].any():
            first = 4 * copy.targets[legal][:, None] + np.arange(bad.shape[1])
            self._batch.checks.undefined.copied(first[bad[legal]], origin, copy.site)


def _differing(lanes: Array, addresses: Array, words: Array) -> Array | slice:
    """Distinct copies: identical words to the same address by lanes of a warp count once, as for stores."""
    if not (addresses[1:] == addresses[:-1]).any():
        return slice(None)
    return distinct(lanes, addresses.astype(np.int64), *words.astype(np.int64))
