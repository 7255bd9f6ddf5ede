"""Recorders: what the emulator reports on the warps of a batch is logged, with the properties of accesses."""

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import NO_MASK, WARP, Lanes, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE
from kernbench.ptx.emulator.observer.recorder import BoxParts, Recorder
from kernbench.ptx.emulator.program.program import Block, Site, WaitLoop
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.recording import survey
from kernbench.ptx.recording.grouping import grouped
from kernbench.ptx.recording.handovers import BatchHandovers
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.log import CHANGED, EVENT, STEP, TURN, Log, WarpSet
from kernbench.ptx.recording.naming import OF_EVENT, access_kind
from kernbench.ptx.recording.recording import RANK_SHIFT, Int32s
from kernbench.ptx.recording.reuse import BatchReuse
from kernbench.ptx.recording.slow_paths import leaves
from kernbench.ptx.recording.store import Store

if TYPE_CHECKING:
    from kernbench.ptx.emulator.units.batch import Batch

_ZERO = np.uint64(0)
_GLOBAL = np.uint64(GLOBAL_BASE)
_SHARED_WINDOW = np.uint64((1 << 32) - 1)
_BARRIERS = 16
# longest duration of `nanosleep` in nanoseconds
_LONGEST_SLEEP = 1_000_000
_SERIAL = frozenset(("atomic", "reduction"))


class _Watched(NamedTuple):
    """An access that lanes are about to make, and the content of memory before."""

    report: Report
    window: Window
    mask: Mask | None
    held: Array


class BatchRecorder(Recorder):
    """Records one batch."""

    recording: ClassVar[bool] = True

    def __init__(self, batch: "Batch", store: Store):
        self._batch, self._store = batch, store
        self._log = Log()
        self._scratch = survey.new_scratch()
        self._reuse = BatchReuse(store.reuse, batch.ctas)
        # the running lanes, and their set
        self._lanes: Lanes | None = None
        self._set = -1
        # only if the kernel polls for stores of others
        self._handovers = BatchHandovers(store.handovers, batch.warps, batch.numbers) if store.handovers.polls else None
        # an access that may leave memory unchanged, with the content before; checked at the next report
        self._watched: _Watched | None = None
        # the rounds of each barrier of each CTA
        self._rounds: Int64s = np.zeros((batch.ctas, _BARRIERS), np.int64)
        # by wait loop: the values carried around it when lanes were at its head last, and which lanes of each warp
        # these were
        self._heads: dict[int, tuple[list[Array], UInt32s]] = {}

    def _look(self) -> None:
        """Check the memory limit of the log."""
        self._store.log_takes(int(self._batch.numbers[0]), self._log.nbytes)

    def step(self, block: Block, lanes: Lanes) -> None:
        """Lanes are about to run a block."""
        self._settle()
        if lanes is not self._lanes:
            self._lanes, self._set = lanes, self._log.of_lanes(lanes)
        if self._log.add(STEP, block.number, self._set):
            self._look()

    def _event(
        self, site: Site, kind: int, of: int, data: tuple[int, int] = (-1, 0), reuse: tuple[int, int] = (-1, 0)
    ) -> None:
        if self._log.add(EVENT, site.number, of, kind, *data, *reuse):
            self._look()

    def _of(self, window: Window, mask: Mask | None) -> int:
        """The set of the lanes of a window that execute an instruction."""
        running = self._lanes
        if running is not None and mask is running.mask and len(window.warps) == running.warp_count:
            first = running.first if running.warps is None else running.warps[0]
            if not len(window.warps) or window.warps[0] == first:
                return self._set
        return self._log.of_mask(window.warps, mask, window.in_place)

    def executed(self, report: Report, window: Window, mask: Mask | None) -> None:
        """Lanes are about to execute an instruction."""
        self._settle()
        if report.slot < 0:
            self._plain(report, window, mask)
        elif report.event == "slow path":
            self._slow_path(report, window, mask)
        elif report.event == "sleep":
            self._sleep(report, window, mask)
        elif report.event == "async copy":
            self._lane_copies(report, window, mask)
        else:
            self._access(report, window, mask)
            if report.site.number in self._store.handovers.watched:
                self._watched = _Watched(report, window, mask, self._held(report, window, mask))

    def _held(self, report: Report, window: Window, mask: Mask | None) -> Array:
        """The content of memory where lanes access it; 0 for other lanes."""
        port = self._batch.port
        found = np.zeros((window.size, report.nbytes), np.uint8)
        addresses = np.broadcast_to(port.addresses(window, report.slot), window.size)
        given = report.space, addresses, window.lane_numbers, np.uint64(report.offset), 1, mask
        for part, where, inside in port.located(*given):
            inside = inside & (where <= len(part.words[1]) - report.nbytes)
            found[inside] = part.words[1][where[inside][:, None] + np.arange(report.nbytes)]
        return found

    def _settle(self) -> None:
        """Check whether the last access has changed memory, if that matters."""
        watched, self._watched = self._watched, None
        if watched is None:
            return
        report, window, mask = watched.report, watched.window, watched.mask
        lanes = (self._held(report, window, mask) != watched.held).any(axis=1)
        changed = lanes.reshape(-1, WARP).any(axis=1)
        self._met(report, window, mask, changed)
        if changed.any():
            chosen = window.warps[changed].astype(np.int32)
            one = np.ones(len(chosen), np.uint8)
            self._log.add(CHANGED, report.site.number, self._log.add_set(WarpSet(0, len(chosen), chosen, one)))

    def _met(self, report: Report, window: Window, mask: Mask | None, changed: Bools | None) -> None:
        """Lanes have observed what others did, by an access."""
        if self._handovers is None:
            return
        addresses = self._batch.port.addresses(window, report.slot)
        for space, active in self._spaces(report, mask, addresses):
            if space == "global":
                self._handovers.accessed(report.site, window, active, addresses, report.offset, changed)
            elif space == "shared":
                self._handovers.in_shared(report.site, changed)

    def _spaces(self, report: Report, mask: Mask | None, addresses: Array) -> list[tuple[str, Mask | None]]:
        """The spaces that lanes access, and the lanes that do."""
        if report.space in ("global", "shared"):
            return [(report.space, mask)]
        parts = self._batch.port.parts(report.space, addresses, np.uint64(report.offset), mask)
        return [(part.name, active) for part, _, active in parts]

    def _plain(self, report: Report, window: Window, mask: Mask | None) -> None:
        """An instruction for which only the lanes are recorded; for waits also the number of groups left in flight."""
        kind = OF_EVENT[report.event]
        data = (-1, 0)
        if kind in _WAITS:
            room = self._log.data.room(1)
            room[0] = (0, 0, 0, 0, -1, report.keep)
            data = self._kept(True, 1)
        self._event(report.site, kind, self._of(window, mask), data)

    def _slow_path(self, report: Report, window: Window, mask: Mask | None) -> None:
        """A division or root: recorded only if an operand makes the machine code call a subroutine."""
        slots = [slot for slot in (report.slot, report.target_slot) if slot >= 0]
        slow = leaves(report.site.opcode, report.nbytes, [window.rows[slot] for slot in slots], window.size)
        slow = slow if mask is None else slow & mask
        if slow.any():
            self._event(report.site, int(Kind.SLOW_PATH), self._of(window, slow))

    def _sleep(self, report: Report, window: Window, mask: Mask | None) -> None:
        """A sleep: its phase is the longest sleep of any lane in nanoseconds, at most a millisecond."""
        each = np.minimum(np.broadcast_to(window.rows[report.slot], window.size).astype(np.int64), _LONGEST_SLEEP)
        each = each if mask is None else np.where(mask, each, 0)
        longest = each.reshape(-1, WARP).max(axis=1)
        rows = self._log.data.room(len(longest))
        rows[:, :5] = 0
        rows[:, survey.PHASE] = longest
        same = bool((longest == longest[0]).all())
        self._event(report.site, int(Kind.SLEEP), self._of(window, mask), self._kept(same, len(longest)))

    def _kept(self, uniform: bool, count: int) -> tuple[int, int]:
        """Keep what was written into the room of the data pool.

        Returns its first row, and 1 if each warp has its own.
        """
        pool = self._log.data
        begin = pool.used
        pool.used += 1 if uniform else count
        return begin, 0 if uniform else 1

    def _kept_reuse(self, uniform: bool, count: int) -> tuple[int, int]:
        pool = self._log.reuse
        begin = pool.used
        pool.used += 1 if uniform else count
        return begin, 0 if uniform else 1

    def _access(self, report: Report, window: Window, mask: Mask | None) -> None:
        """A per-lane access, split by the spaces it touches."""
        batch = self._batch
        addresses, offset = batch.port.addresses(window, report.slot), np.uint64(report.offset)
        if report.space in ("global", "const"):
            self._global(report, window, mask, addresses, offset, self._of(window, mask))
        elif report.space == "shared":
            self._shared(report, window, mask, addresses, offset)
        else:
            for part, base, active in batch.port.parts(report.space, addresses, offset, mask):
                if part.name == "global":
                    self._global(report, window, active, addresses, offset, self._of(window, active))
                elif part.name == "shared":
                    self._shared(report, window, active, addresses & _SHARED_WINDOW, offset)
                else:
                    self._local(report, window, active, addresses, offset, np.uint64(base))

    def _global(
        self, report: Report, window: Window, mask: Mask | None, addresses: Array, offset: np.uint64, of: int
    ) -> None:
        kind = access_kind(report, "global")
        if self._handovers is not None and report.site.number not in self._store.handovers.watched:
            self._handovers.accessed(report.site, window, mask, addresses, report.offset)
        data, reuse = self._survey_global(report, window, mask, addresses, offset)
        self._event(report.site, kind, of, data, reuse)

    def _survey_global(
        self, report: Report, window: Window, mask: Mask | None, addresses: Array, offset: np.uint64
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """The rows of a global access in the pools."""
        batch, log, count = self._batch, self._log, len(window.warps)
        arena = batch.launch.arena
        if arena.aliases is not None:
            addresses = arena.aliases.translated(addresses, offset)
        rows, known = log.data.room(count), log.reuse.room(count)
        known[...] = 0
        serial = report.event in _SERIAL
        cached = report.cached and not serial
        act = survey.ADDS if serial else survey.STORES if report.event == "store" else survey.LOADS
        most = batch.warps_per_cta * WARP * (1 + -(-report.nbytes // 32))
        touching = self._reuse.touching(arena.used, most if cached else 0)
        same, known_same = survey.survey_global(
            (addresses, offset, _GLOBAL),
            NO_MASK if mask is None else mask,
            report.nbytes,
            cached,
            act,
            window.warps % batch.ctas,
            touching,
            rows,
            known,
            self._scratch,
        )
        return self._kept(same, count), self._kept_reuse(known_same, count)

    def _shared(self, report: Report, window: Window, mask: Mask | None, addresses: Array, offset: np.uint64) -> None:
        """An access to shared memory, of the own CTA or of others in the cluster."""
        if self._handovers is not None and report.site.number not in self._store.handovers.watched:
            self._handovers.in_shared(report.site)
        cluster = self._batch.cluster
        if cluster.size == 1:
            self._banks(report, window, mask, addresses, offset, access_kind(report, "shared"))
            return
        lanes = window.lane_numbers
        ctas, offsets = cluster.find(addresses + offset, lanes)
        active = np.ones(len(lanes), bool) if mask is None else mask
        remote = active & (ctas != cluster.own(lanes))
        near = offsets.astype(np.uint64)
        if (active & ~remote).any():
            here = None if mask is None and not remote.any() else active & ~remote
            self._banks(report, window, here, near, _ZERO, access_kind(report, "shared"))
        if remote.any():
            further = (ctas - cluster.own(lanes)) % cluster.size
            self._banks(report, window, remote, near, _ZERO, access_kind(report, "cluster"), further)

    def _banks(
        self, report: Report, window: Window, mask: Mask | None, addresses: Array, offset: np.uint64, kind: int,
        further: Array | None = None,
    ) -> None:  # fmt: skip
        count = len(window.warps)
        rows = self._log.data.room(count)
        given = NO_MASK if mask is None else mask
        act = survey.SERIAL if report.event in _SERIAL else survey.PAIRED if kind == Kind.SHARED_LOAD else survey.APART
        accessed = (addresses, offset, _ZERO)
        same = survey.survey_shared(accessed, given, report.nbytes, report.rows or WARP, act, rows, self._scratch)
        if further is not None:
            same = _named(rows, same, further, given)
        self._event(report.site, kind, self._of(window, mask), self._kept(same, count))

    def _local(
        self, report: Report, window: Window, mask: Mask | None, addresses: Array, offset: np.uint64, base: np.uint64
    ) -> None:
        count = len(window.warps)
        rows = self._log.data.room(count)
        given = NO_MASK if mask is None else mask
        same = survey.survey_local((addresses, offset, base), given, report.nbytes, rows, self._scratch)
        self._event(report.site, access_kind(report, "local"), self._of(window, mask), self._kept(same, count))

    def _lane_copies(self, report: Report, window: Window, mask: Mask | None) -> None:
        """cp.async: sectors of what is read, and passes over the banks of what is written."""
        reads = mask
        if report.limit >= 0:
            # lanes that copy 0 bytes write zeros, and read nothing
            active = np.ones(window.size, bool) if mask is None else mask
            reads = active & (np.broadcast_to(window.rows[report.limit], window.size) > 0)
            reading = np.repeat(reads.reshape(-1, WARP).any(axis=1), WARP)
            self._unread_copies(report, window, active & ~reading)
            mask = active & reading
            if not mask.any():
                return
        port, count = self._batch.port, len(window.warps)
        passes = self._passes_of_copies(report, window, mask)
        of = self._of(window, mask)
        rows = self._log.data.room(count)
        addresses = port.addresses(window, report.slot)
        (begin, spread), reuse = self._survey_global(report, window, reads, addresses, np.uint64(report.offset))
        wavefronts = passes[:, survey.WAVEFRONTS]
        if spread == 0:
            live = np.ones(count, bool) if mask is None else mask.reshape(-1, WARP).any(axis=1)
            found = wavefronts[live]
            if len(found) and (found == found[0]).all():
                rows[0, survey.WAVEFRONTS] = found[0]
            else:
                # the pool has one row for all warps: replicate it, as they differ in passes
                self._log.data.used = begin
                rows = self._log.data.room(count)
                rows[1:] = rows[0]
                rows[:, survey.WAVEFRONTS] = wavefronts
                begin, spread = self._kept(False, count)
        else:
            rows[:, survey.WAVEFRONTS] = wavefronts
        self._event(report.site, int(Kind.ASYNC_COPY), of, (begin, spread), reuse)

    def _passes_of_copies(self, report: Report, window: Window, mask: Mask | None) -> Int32s:
        """Rows with the passes over the banks for the writes of cp.async."""
        passes: Int32s = np.zeros((len(window.warps), survey.COLUMNS), np.int32)
        target = np.array(self._batch.port.addresses(window, report.target_slot)) & _SHARED_WINDOW
        accessed = (target, np.uint64(report.target_offset), _ZERO)
        given = NO_MASK if mask is None else mask
        survey.survey_shared(accessed, given, report.nbytes, WARP, survey.APART, passes, self._scratch)
        return passes

    def _unread_copies(self, report: Report, window: Window, mask: Bools) -> None:
        """cp.async of warps in which no lane reads anything."""
        if not mask.any():
            return
        count = len(window.warps)
        wavefronts = self._passes_of_copies(report, window, mask)[:, survey.WAVEFRONTS]
        rows = self._log.data.room(count)
        rows[...] = 0
        rows[:, [survey.OBJECT, survey.PHASE]] = -1
        rows[:, survey.WAVEFRONTS] = wavefronts
        live = mask.reshape(-1, WARP).any(axis=1)
        same = bool((wavefronts[live] == wavefronts[live][0]).all())
        rows[0] = rows[live][0] if same else rows[0]
        self._event(report.site, int(Kind.ASYNC_COPY), self._of(window, mask), self._kept(same, count))

    def turn(self, fragment: Fragment, loop: WaitLoop) -> None:
        """Lanes are at the head of a wait loop: log the warps whose last iteration has changed nothing."""
        self._settle()
        number = self._store.loops.get(loop.head, -1)
        if number < 0:
            return
        batch, lanes = self._batch, fragment.lanes
        warps, active = lanes.warp_numbers(), lanes.active()
        bits = np.packbits(active.reshape(-1, WARP), axis=1, bitorder="little").view(np.uint32).reshape(-1)
        # counters of iterations may change in an iteration that only waited
        compared = [slot for slot in loop.carried if slot not in loop.counting]
        values = [np.broadcast_to(fragment.window.rows[slot], len(active)) for slot in compared]
        known = self._heads.get(loop.head)
        if known is None:
            rows = [np.zeros(batch.lanes, value.dtype) for value in values]
            known = self._heads[loop.head] = rows, np.zeros(batch.warps, np.uint32)
        rows, held = known
        where = fragment.window.index
        differs = np.zeros(len(active), bool)
        for row, value in zip(rows, values, strict=True):
            differs |= (row[where] != value) & active
        same = (held[warps] == bits) & (bits != 0) & ~differs.reshape(-1, WARP).any(axis=1)
        for row, value in zip(rows, values, strict=True):
            before = row[where]
            row[where] = np.where(active, value, before)
        held[warps] = np.where(bits != 0, bits, held[warps])
        if same.any():
            counts = np.bitwise_count(bits[same]).astype(np.uint8)
            chosen = WarpSet(0, int(same.sum()), warps[same].astype(np.int32), counts)
            self._log.add(TURN, number, self._log.add_set(chosen))

    def arrives(self, number: int, lanes: Lanes, waits: bool, site: Site) -> None:
        """Lanes arrive at a barrier of their CTA."""
        self._settle()
        kind = Kind.BARRIER_SYNC if waits else Kind.BARRIER_ARRIVE
        warps = lanes.warp_numbers()
        if self._handovers is not None:
            self._handovers.arrives(warps)
        rows = self._log.data.room(len(warps))
        rows[:, :4] = 0
        rows[:, survey.OBJECT] = number
        rows[:, survey.PHASE] = self._rounds[warps % self._batch.ctas, number]
        same = bool((rows[:, survey.PHASE] == rows[0, survey.PHASE]).all())
        self._event(site, int(kind), self._log.of_lanes(lanes), self._kept(same, len(warps)))

    def completes(self, number: int, ctas: Bools | None) -> None:
        """A barrier is complete in some CTAs."""
        if self._handovers is not None:
            self._handovers.completes()
        if ctas is None:
            self._rounds[self._batch.alive_by_cta > 0, number] += 1
        else:
            self._rounds[ctas, number] += 1

    def cluster_barrier(self, lanes: Array, phases: Array, waits: bool, site: Site) -> None:
        """Lanes arrive at phases of their cluster's barrier, or wait for them."""
        kind = Kind.CLUSTER_WAIT if waits else Kind.CLUSTER_ARRIVE
        self._by_warp(site, int(kind), lanes, np.zeros(len(lanes), np.int64), phases)

    def _objects(self, slots: Array, lanes: Array) -> Array:
        """The name of an mbarrier in events.

        Its offset in shared memory, and the rank of its CTA relative to the lane's.
        """
        barriers, cluster = self._batch.mbarriers, self._batch.cluster
        further = (barriers.homes[slots] - cluster.own(lanes)) % cluster.size
        found: Array = np.where(slots >= 0, barriers.offsets[slots] + (further << RANK_SHIFT), -1)
        return found

    def mbarrier(self, site: Site, slots: Array, lanes: Array, phases: Array, nbytes: Array | None = None) -> None:
        """Lanes use mbarriers."""
        objects = self._objects(slots, lanes)
        kind = OF_EVENT[site.effects.event]
        # a commit may arrive at mbarriers of several CTAs
        more = int(Kind.BULK_MULTICAST) if kind == Kind.TENSOR_COMMIT else None
        self._by_warp(site, int(kind), lanes, objects, phases, nbytes, more=more)

    def multiplied(self, site: Site, lanes: Array, shapes: Array, targets: Array, nbytes: Array) -> None:
        """Lanes issue tcgen05 products."""
        self._by_warp(site, int(Kind.TENSOR_MMA), lanes, shapes, targets, nbytes)

    def copied(
        self, site: Site, lanes: Array, sizes: Array, starts: Array | None, slots: Array | None, inward: bool
    ) -> None:
        """Lanes issue bulk copies."""
        rows, reuse = self._zeros(len(lanes))
        if starts is not None:
            once = _once(lanes, starts[:, None], slots)
            ctas = self._batch.cluster.own(lanes)
            touching = self._reuse.touching(self._batch.launch.arena.used, 0)
            lengths = np.where(once, sizes, 0)
            survey.survey_ranges(starts, lengths, ctas, not inward, touching, rows, reuse, self._scratch)
        kind = Kind.BULK_LOAD if inward else Kind.BULK_CLUSTER if slots is not None else Kind.BULK_STORE
        self._copies(site, kind, lanes, slots, sizes, rows, reuse)

    def boxes_copied(
        self, site: Site, lanes: Array, box: BoxParts, nbytes: int, corners: Array, slots: Array | None
    ) -> None:
        """Lanes issue bulk copies of tensor boxes."""
        rows, reuse = self._zeros(len(lanes))
        once = np.flatnonzero(_once(lanes, corners, slots))
        base, shape, element = box[:3]
        ctas = self._batch.cluster.own(lanes)[once]
        touching = self._reuse.touching(self._batch.launch.arena.used, 0)
        some, known = self._zeros(len(once))
        stores = slots is None
        survey.survey_boxes(base, shape, element, corners[once], ctas, stores, touching, some, known, self._scratch)
        rows[once], reuse[once] = some, known
        kind = Kind.BULK_LOAD if slots is not None else Kind.BULK_STORE
        self._copies(site, kind, lanes, slots, np.full(len(lanes), nbytes), rows, reuse)

    def _zeros(self, count: int) -> tuple[Int32s, Int32s]:
        return np.zeros((count, survey.COLUMNS), np.int32), np.zeros((count, survey.REUSE), np.int32)

    def _copies(
        self, site: Site, kind: Kind, lanes: Array, slots: Array | None, sizes: Array, rows: Int32s, reuse: Int32s
    ) -> None:
        if kind == Kind.BULK_STORE and site.effects.event == "bulk reduce":
            kind = Kind.BULK_REDUCE
        if slots is None:
            none = np.full(len(lanes), -1, np.int64)
            self._by_warp(site, int(kind), lanes, none, none, sizes, rows, reuse)
            return
        objects, phases = self._objects(slots, lanes), self._batch.mbarriers.phases(slots)
        more = int(Kind.BULK_MULTICAST) if kind == Kind.BULK_LOAD else int(kind)
        self._by_warp(site, int(kind), lanes, objects, phases, sizes, rows, reuse, more)

    def _by_warp(
        self,
        site: Site,
        kind: int,
        lanes: Array,
        objects: Array,
        phases: Array,
        nbytes: Array | None = None,
        rows: Int32s | None = None,
        reuse: Int32s | None = None,
        more: int | None = None,
    ) -> None:
        """Record operations of single lanes as events of their warps: one for each object and phase.

        Rows and bytes of merged operations are summed. With `more`, events after the first one of a warp that touch no
        sector get that kind.
        """
        if not len(lanes):
            return
        warps = lanes // WARP
        for level, events in enumerate(grouped(warps, objects, phases)):
            data = np.zeros((len(events.first), survey.COLUMNS), np.int32)
            if rows is not None:
                data[...] = events.total(rows)
            if nbytes is not None:
                data[:, survey.BYTES] = events.total(nbytes)
            data[:, survey.OBJECT], data[:, survey.PHASE] = objects[events.first], phases[events.first]
            counts = np.minimum(events.counts, WARP).astype(np.uint8)
            of = self._log.add_set(WarpSet(0, len(counts), warps[events.first].astype(np.int32), counts))
            here = kind if not level or more is None or data[:, survey.SECTORS].any() else more
            self._add_rows(site, here, of, data, None if reuse is None else events.total(reuse))

    def _add_rows(self, site: Site, kind: int, of: int, data: Int32s, reuse: Array | None) -> None:
        same = bool((data == data[0]).all())
        self._log.data.room(len(data))[...] = data
        begin = self._kept(same, len(data))
        known = (-1, 0)
        if reuse is not None:
            alike = bool((reuse == reuse[0]).all())
            self._log.reuse.room(len(reuse))[...] = reuse
            known = self._kept_reuse(alike, len(reuse))
        self._event(site, kind, of, begin, known)

    def ended(self) -> None:
        """All threads have ended: move the log to the recording."""
        self._settle()
        batch = self._batch
        self._store.add(self._log.closed(), batch.warps, batch.ctas, batch.numbers)
        self._log = Log()


_WAITS = frozenset((Kind.ASYNC_COPY_WAIT, Kind.BULK_WAIT, Kind.WGMMA_WAIT))


def _named(rows: Int32s, same: bool, further: Array, mask: Bools) -> bool:
    """Set the object of accesses to other CTAs: the relative rank of the first lane's target.

    Returns whether all rows are equal.
    """
    by_warp = mask.reshape(-1, WARP)
    first, live = by_warp.argmax(axis=1), by_warp.any(axis=1)
    objects = further.reshape(-1, WARP)[np.arange(len(rows)), first] << RANK_SHIFT
    if same:
        rows[1:] = rows[0]
    rows[:, survey.OBJECT] = objects
    named = objects[live]
    if not same or not (named == named[0]).all():
        return False
    rows[0, survey.OBJECT] = named[0]
    return True


def _once(lanes: Array, sources: Array, slots: Array | None) -> Bools:
    """Which operations are the first of their lane with their source: a multicast has one operation per CTA."""
    if slots is None or len(lanes) < 2 or (lanes[1:] != lanes[:-1]).all():
        return np.ones(len(lanes), bool)
    table = np.column_stack([lanes, sources])
    first = np.unique(table, axis=0, return_index=True)[1]
    found = np.zeros(len(lanes), bool)
    found[first] = True
    return found
