"""Checks of asynchronous work: barriers and copies in the wrong order, at the wrong time, or missing."""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.copies.begin_kernels import all_shown
from kernbench.ptx.emulator.barriers.mbarrier_kernels import (
    ALIVE,
    LAST_LANE,
    LAST_SITE,
    LIVE,
    PENDING,
    PHASE,
    START,
    TX,
    unordered,
)
from kernbench.ptx.emulator.checks.asynchronous.block_ends import BlockEnds
from kernbench.ptx.emulator.checks.asynchronous.block_starts import BlockStarts
from kernbench.ptx.emulator.checks.asynchronous.descriptors import Swizzles
from kernbench.ptx.emulator.checks.asynchronous.handover import Handover
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.asynchronous.phases import Phases
from kernbench.ptx.emulator.checks.asynchronous.relaxed import RelaxedSignals
from kernbench.ptx.emulator.checks.asynchronous.same_copies import SameCopies
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, actor_name, block_name, some_threads, thread_name
from kernbench.ptx.emulator.checks.happens_before.released_along import HINTS, REASONS
from kernbench.ptx.emulator.checks.memory.elections import not_elected, not_elected_in
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE
from kernbench.ptx.emulator.memory.cells import LANES, STRONG_WRITE, WRITE, decode, lines_of
from kernbench.ptx.emulator.memory.shadow import Ranges, Shadow, Trouble
from kernbench.ptx.emulator.observer.asynchronous import Address, AsynchronousObserver
from kernbench.ptx.emulator.program.program import Program, Site
from kernbench.ptx.emulator.units.batch import Batch

_ALL_BYTES = "give expect_tx the sum of the bytes of all copies of a phase"


def leaves_init_fences_out(program: Program) -> bool:
    """Whether the compiler orders mbarrier.init before copies by the block's barrier alone.

    Triton's PTX, signed by LLVM's back end, has a fence after mbarrier.init only for other blocks. libcu++, compiled by
    nvcc, has none for memcpy_async, whose relaxed expect_tx is on its own.
    """
    compiler = program.kernel.module.compiler
    if compiler == "LLVM":
        return not _has(program, "fence.mbarrier_init")
    library = compiler == "NVVM" and _has(program, "mbarrier.expect_tx.relaxed.cta.")
    return library and not _has(program, "fence.mbarrier_init") and not _has(program, "fence.proxy.async")


def _has(program: Program, instruction: str) -> bool:
    return instruction in program.text


class AsynchronousChecks(AsynchronousObserver):
    """The asynchronous checks of one batch."""

    def __init__(self, batch: Batch, checks: BatchFindings, reporter: Reporter):
        self._batch = batch
        self._checks = checks
        self._reporter = reporter
        self._clocks = checks.clocks
        self._actors = batch.launch.actors
        self.shadow = Shadow(batch, checks)
        self.ends, self.starts = BlockEnds(batch, checks, reporter), BlockStarts(batch, checks, reporter)
        self.swizzles = Swizzles(batch, checks)
        self.same = SameCopies(batch, checks.clocks.first_numbers)
        self.handover = Handover(batch, checks)
        self.relaxed = RelaxedSignals(batch, checks, self.handover)
        self._phases = Phases(batch, checks, reporter, self.name, self._unwaited)
        # whether the order of threads alone makes barriers visible to copies
        self._unfenced = leaves_init_fences_out(batch.program)
        # tensor maps written in this launch, with the warp that acquired each for the copy engine, and its clock then
        self._maps: dict[int, tuple[int, int] | None] = {}
        # where too few bytes were expected, so that a phase ended before all had come
        self._late: set[int] = set()

    def access(
        self,
        space: str,
        writes: bool,
        ranges: Ranges,
        lanes: Array,
        columns: Array,
        clocks: Array,
        site: Site,
        homes: Array | None = None,
        atomic: bool = False,
        generic: bool = False,
    ) -> None:
        """Operations that lanes began may access ranges of bytes from now on, as actors of `columns` at `clocks`."""
        if not len(ranges.starts) and self._checks.log is None and not writes and space == "global":
            return
        first, warps = self._actors.proxied(0, space), self._batch.warps_per_cta
        footprint = self._batch.launch.arena.footprint
        if footprint is not None and space == "global":
            footprint.ranges(ranges.starts, ranges.lengths, writes)
        self.same.access(space, writes, ranges, lanes, site)
        # a generic operation: what the warp knows is visible to it
        shown = np.arange(first, first + warps)[:, None] if generic else None
        self.shadow.enter(space, writes, ranges, lanes, columns, clocks, site, shown, homes, atomic)

    def laid_out(self, ranges: Ranges, swizzle: str, site: Site) -> None:
        """Copies will fill ranges of shared memory, with boxes laid out by a swizzle."""
        self.swizzles.note(ranges.starts, ranges.lengths, swizzle, site)

    def reaches(self, ctas: Array, lanes: Array, site: Site) -> None:
        """Lanes access shared memory of CTAs of their cluster."""
        self.ends.accessed(ctas, lanes, site)
        self.starts.accessed(ctas, lanes, site)

    def signals(self, slots: Array, lanes: Array, site: Site) -> None:
        """Lanes signal mbarriers, now or by operations that they begin; some may be in other CTAs."""
        self.ends.arriving(slots, lanes, site)

    def blocks_ended(self, ctas: Array) -> None:
        """CTAs have no living thread left."""
        self.ends.ended(ctas)

    def moment(self, lane: int) -> tuple[int, int]:
        """The index of a lane's warp in its CTA, and its clock."""
        cta, inside = self._cta_and_warp(lane // WARP)
        return inside, int(self._clocks.clocks[cta, inside, inside])

    def _cta_and_warp(self, warp: int) -> tuple[int, int]:
        return warp % self._batch.ctas, warp // self._batch.ctas

    def used(self, slots: Array, lanes: Array, site: Site) -> None:
        """Lanes use barriers: their initialisation must be ordered before."""
        barriers = self._batch.mbarriers
        count, first, touched = self._unordered(slots, lanes)
        if count:
            count, first, _ = self._unordered(np.where(self._lanes_know(slots, lanes), -1, slots), lanes)
        if count:
            slot = int(slots[first])
            message = (
                f"{thread_name(self._batch, int(lanes[first]))} uses {self.name(slot)}, which warp "
                f"{int(barriers.opened[slot, 0])} initialised, and nothing orders the two"
            )
            hint = "put bar.sync (or barrier.cluster) between mbarrier.init and the first use by another warp"
            self._reporter.add("race", site, message, hint, count, about="mbarrier")
        if touched >= 0:
            self._overwritten(int(slots[touched]), int(lanes[touched]), site)

    def _unordered(self, slots: Array, lanes: Array) -> tuple[int, int, int]:
        """Count lanes that use barriers whose initialisation their warps do not know; also returns the first position.

        The third result is the first position of a barrier whose memory something else has overwritten, -1 for none.
        """
        barriers, clocks = self._batch.mbarriers, self._clocks
        return unordered(
            slots, lanes, self._batch.ctas, barriers.homes, barriers.opened, clocks.clocks, clocks.known,
            clocks.known_column, clocks.first_numbers, barriers.written(),
        )  # fmt: skip

    def _lanes_know(self, slots: Array, lanes: Array, fence: bool = False) -> Array:
        """Which lanes know the initialisation of their barrier, or its `fence`, by single lanes; or are reported."""
        clocks, barriers = self._clocks, self._batch.mbarriers
        known = np.zeros(len(lanes), bool)
        for i in np.flatnonzero(slots >= 0).tolist():
            warp, clock, who = barriers.opened[slots[i], [2, 3, 5] if fence else [0, 1, 4]].tolist()
            number = int(clocks.first_numbers[barriers.homes[slots[i]]]) + warp
            explained = not fence and self.starts.explains(int(lanes[i]), number, clock)
            known[i] = warp >= 0 and (explained or not clocks.unknown(int(lanes[i]), number, clock, 1 << who))
        return known

    def fenced(self, warps: Array, masks: Array) -> None:
        """Lanes of warps pass a fence that makes initialised barriers visible to the async proxy."""
        barriers, ctas = self._batch.mbarriers, self._batch.ctas
        slots = np.flatnonzero(barriers.opened[: barriers.count, 2] < 0)
        if not len(slots):
            return
        makers, clocks, lanes = barriers.opened[slots][:, [0, 1, 4]].T
        inside, rows = warps // ctas, self._clocks.rows_of(warps)
        # of the warps that know a barrier, its initialiser comes first, then the others in order
        makes = inside == makers[:, None]
        knows = (warps % ctas == barriers.homes[slots][:, None]) & (makes | (clocks[:, None] <= rows[:, makers].T))
        rank = np.where(makes, -1, np.arange(len(warps)))
        first = np.argmin(np.where(knows, rank, len(warps)), axis=1)
        some = knows.any(axis=1)
        slots, first, lanes = slots[some], first[some], lanes[some]
        passed, own = masks[first].astype(np.int64), inside[first]
        lowest = np.bitwise_count((passed & -passed) - 1).astype(np.int64)
        who = np.where((own == makers[some]) & (passed >> lanes & 1 == 1), lanes, lowest)
        barriers.opened[slots[:, None], [2, 3, 5]] = np.stack([own, rows[first, own], who], axis=1)

    def proxy_fence(self, warps: Array, masks: Array, space: str = "") -> None:
        """fence.proxy.async: what the warps know of a space (both if "") becomes visible to the async proxy."""
        if space != "global":
            self.fenced(warps, masks)
        self._clocks.show_proxy(
            warps, [self._actors.proxied(0, one) for one in ("shared", "global") if space in (one, "")]
        )
        # Triton uses relaxed arrivals at the cluster's barrier after stores that a proxy fence made visible to the
        # tensor core
        if self._batch.cluster.size > 1 and self._batch.program.kernel.module.compiler == "LLVM":
            self._checks.patterns.show(warps, masks)

    def all_shown(self, slots: Array, lanes: Array) -> bool:
        """Whether the initialisation of each barrier is visible to the async proxy, as warps of its own block know."""
        barriers, columns = self._batch.mbarriers, (0, 1) if self._unfenced else (2, 3)
        return bool(all_shown(slots, lanes, barriers.homes, barriers.opened, self._clocks.clocks, *columns))

    def completes_on(self, slots: Array, lanes: Array, site: Site) -> None:
        """Copies begun by lanes will complete on barriers, whose initialisation must be visible to the async proxy."""
        if self._batch.launch.fast.usable_barriers and self.all_shown(slots, lanes):
            return
        barriers, ctas = self._batch.mbarriers, self._batch.ctas
        warps = lanes // WARP
        inside = warps // ctas
        guard, clock = barriers.opened[slots, 2], barriers.opened[slots, 3]
        local = warps % ctas == barriers.homes[slots]
        if self._unfenced:
            # another thread's fence, made for something else, is not required
            guard = np.where(local, barriers.opened[slots, 0], guard)
            clock = np.where(local, barriers.opened[slots, 1], clock)
        known = self._clocks.rows_of(warps)[np.arange(len(warps)), np.maximum(guard, 0)]
        if not local.all():
            known = np.where(local, known, self._clocks.of_others(warps, barriers.homes[slots], guard))
        ordered = (known >= clock) | (local & (guard == inside))
        bad = np.flatnonzero((slots >= 0) & ((guard < 0) | ~ordered))
        if len(bad):
            bad = bad[~self._lanes_know(slots[bad], lanes[bad], fence=True)]
        if len(bad):
            # another block's barrier does harm, the block's own does not
            remote = bad[~local[bad]]
            harmful = remote if len(remote) else bad
            self._unshown(slots[harmful], lanes[harmful], bool(len(remote)), site)

    def _unshown(self, slots: Array, lanes: Array, remote: bool, site: Site) -> None:
        """Copies that lanes begin complete on barriers of other blocks (`remote`) or their own, without a fence."""
        name = self.name(int(slots[0])) + (f" of {self._block(int(slots[0]))}" if remote else "")
        message = (
            f"{thread_name(self._batch, int(lanes[0]))} begins a copy that completes on {name}, "
            "and no fence has shown the barrier's initialisation to the async proxy"
        )
        barrier, why = ("the cluster's barrier", "") if remote else ("the CTA barrier", _INIT_FORMAL)
        hint = f"after mbarrier.init: fence.mbarrier_init.release.cluster (or fence.proxy.async), then {barrier}"
        self._reporter.add("missing-fence", site, message, hint, len(slots), about="init", formal=why)

    def map_written(self, address: int) -> None:
        """A kernel wrote a tensor map to global memory."""
        self._maps[address] = None

    def maps_acquired(self, addresses: Array, lanes: Array) -> None:
        """fence.proxy.tensormap: lanes make tensor maps visible to the copy engine."""
        for address, lane in zip(addresses.tolist(), lanes.tolist(), strict=True):
            if address in self._maps:
                self._maps[address] = (lane // WARP, self._clocks.own(lane // WARP))
        self._clocks.advance(np.unique(lanes // WARP))

    def map_used(self, address: int, lanes: Array, site: Site) -> None:
        """Lanes begin copies with a tensor map: one that was written in this launch must have been acquired."""
        if address not in self._maps:
            return
        acquired, ctas = self._maps[address], self._batch.ctas
        maker, clock = acquired or (-1, 0)
        for warp in sorted({lane // WARP for lane in lanes.tolist()}):
            near = maker >= 0 and maker % ctas == warp % ctas
            if near and (maker == warp or self._clocks.rows_of(np.array([warp]))[0][maker // ctas] >= clock):
                continue
            message = (
                f"{thread_name(self._batch, int(lanes[0]))} uses the tensor map at {address:#x}, which was written in "
                "this launch, and no proxy fence has shown it to the copy engine"
            )
            hint = "run fence.proxy.tensormap::generic.acquire on the map after it was written, then a barrier"
            self._reporter.add("missing-fence", site, message, hint, about="map")
            return

    def arriving(self, slots: Array, lanes: Array) -> None:
        """Lanes are about to arrive in their own CTAs: release what they know beyond their warps' clocks."""
        self.handover.arriving(slots, lanes)

    def arrived(self, slots: Array, lanes: Array, release: bool, wide: bool = True) -> None:
        """Lanes have arrived, and begin a new epoch; other blocks acquire only if their scope is `wide`."""
        if release:
            self.handover.arrived(slots, lanes, wide)

    def arriving_relaxed(self, slots: Array, lanes: Array, wide: bool) -> None:
        """Lanes are about to arrive: they release what fences before have, and nothing else."""
        self.relaxed.arriving(slots, lanes, wide)

    def seen(self, slots: Array, lanes: Array, passed: Array, wide: bool) -> None:
        """Lanes have passed a relaxed wait: they acquire what the arrivals released at a later fence."""
        self.relaxed.passed(slots[passed], lanes[passed], wide)

    def acquired(self, slots: Array, lanes: Array, passed: Array, wide: bool) -> None:
        """Lanes have passed a wait: they acquire what the arrivals released."""
        self.handover.acquired(slots, lanes, passed, wide)

    def passed_by_parity(self, slots: Array, lanes: Array, passed: Array, site: Site) -> None:
        """Lanes pass a wait for a parity, before acquiring from it: they must know that the previous phase is over."""
        self._phases.passed(slots, lanes, passed, site)

    def groups_done(self, warps: Array, clocks: Array, sources: bool) -> None:
        """Warps know that their bulk groups up to clocks have read (`sources`) or written."""
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        columns = (2 if sources else 7) * self._batch.warps_per_cta + inside
        known = self._clocks.clocks[ctas, inside, columns]
        self._clocks.clocks[ctas, inside, columns] = np.maximum(known, clocks)
        self._clocks.changed()

    def late_bytes(self, slot: int, phase: int, amount: int, lane: int, site: Site) -> None:
        """Bytes arrived after the phase in which their copy was begun."""
        barriers = self._batch.mbarriers
        began = phase - int(barriers.state[slot, START])
        message = (
            f"{amount} bytes of the copy that {thread_name(self._batch, lane)} began in phase {began} of "
            f"{self.name(slot)} arrive after that phase is over: it did not expect them. "
            f"{self._expectations(slot, phase, amount)}"
        )
        hint = (
            "give expect_tx the sum of the bytes of all copies of a phase, and wait for a phase before the next begins"
        )
        expecting: int = barriers.expecting(slot, phase)
        if expecting < 0:
            self._reporter.add("transaction-bytes", site, message, hint, about=slot)
            return
        # the phase ended too early by what it expected, and the copy is not to blame
        others = self._reporter.other("the copy that arrives late", site)
        culprit = self._reporter.program.sites[expecting]
        self._late.add(expecting)
        self._reporter.add("transaction-bytes", culprit, message, hint, 1, others, about="late")

    def _expectations(self, slot: int, phase: int, amount: int) -> str:
        expected, delivered = self._batch.mbarriers.history(slot, phase)
        return f"The phase expected {expected} bytes, and {delivered + amount} or more are delivered"

    def misuse(
        self,
        what: str,
        lanes: Array,
        site: Site,
        slot: int,
        address: Address,
        value: int | None,
        home: int | None = None,
    ) -> None:
        """An mbarrier (of the block `home`, if it is not the thread's own) is misused."""
        kind, text, hint = _MISUSES[what]
        who = some_threads(self._batch, lanes)
        name = self.name(slot) if slot >= 0 else f"shared address {int(address or 0) & 0xFFFFFFFF:#x}"
        name += "" if home is None else f" of {block_name(self._batch, home)}"
        last = self._last(slot) if what == "too many" else ""
        self._reporter.add(
            kind, site, text.format(who=who, name=name, value=value, last=last), hint, len(lanes), about=what
        )

    def _unwaited(self, slot: int, lane: int, site: Site) -> None:
        self.misuse("unwaited", np.array([lane]), site, slot, None, None)

    def _overwritten(self, slot: int, lane: int, site: Site) -> None:
        """Report the use of a barrier whose memory was overwritten after its initialisation."""
        barriers = self._batch.mbarriers
        message = (
            f"{thread_name(self._batch, lane)} uses {self.name(slot)}, and its memory was written after its "
            f"initialisation{self._writer(int(barriers.homes[slot]), int(barriers.offsets[slot]))}"
        )
        hint = (
            "keep data apart from live barriers: check sizes and offsets in shared memory, or run mbarrier.inval first"
        )
        self._reporter.add("mbarrier-misuse", site, message, hint, about="overwritten")

    def _writer(self, cta: int, offset: int) -> str:
        """The last writer of one of eight bytes of a block's shared memory from an offset on."""
        cells, lanes, _, _ = self._checks.agent_memory("shared")
        first = (cta * self._batch.shared_stride + offset) // 4
        for line in lines_of(lanes, np.array([first, first + 1])).tolist():
            for column in (WRITE, STRONG_WRITE):
                cell = int(cells[line, column])
                if cell:
                    number, other, _ = decode(cell & ((1 << 64) - 1))
                    mask = int(lanes[line, LANES + column]) or 1
                    by = actor_name(self._batch.launch, other, (mask & -mask).bit_length() - 1)
                    site = self._checks.sites.numbered[number]
                    return f", by {by} in PTX line {site.line} (`{site.text}`)"
        return ""

    def multicast(self, masks: Array, lanes: Array, site: Site) -> None:
        """Lanes select blocks of their clusters by masks: these blocks must exist."""
        size = self._batch.cluster.size
        beyond = masks.astype(np.int64) >> size != 0
        if beyond.any():
            first = int(np.argmax(beyond))
            message = (
                f"{thread_name(self._batch, int(lanes[first]))} gives the multicast mask {int(masks[first]):#x}, and "
                f"its cluster has {size} {'block' if size == 1 else 'blocks'}: bits from {size} on name none"
            )
            hint = "bit i of the mask names the block of rank i (%cluster_ctarank); check the cluster of the launch"
            self._reporter.add("misuse", site, message, hint, int(np.count_nonzero(beyond)), about="multicast")

    def signals_elsewhere(self, into: Array, homes: Array, lanes: Array, site: Site) -> None:
        """Lanes begin copies into blocks, with mbarriers of other blocks for their completion."""
        target, home = block_name(self._batch, int(into[0])), block_name(self._batch, int(homes[0]))
        message = (
            f"{thread_name(self._batch, int(lanes[0]))} copies into the shared memory of {target}, and names an "
            f"mbarrier of {home}: a bulk copy completes in the block it copies into, so that the wait may never end"
        )
        hint = (
            "name the mbarrier of the block that the destination lies in (mapa of both to the same rank), and let "
            "threads there wait; only a tensor copy with .cta_group::2 may signal the other block of its pair"
        )
        self._reporter.add("mbarrier-misuse", site, message, hint, len(lanes), about="elsewhere")

    def arrived_twice(self, lanes: Array, site: Site) -> None:
        """Lanes arrive at the cluster's barrier again without a wait in between."""
        message = f"{some_threads(self._batch, lanes)} arrives at the cluster's barrier twice without a wait between"
        self._reporter.add(
            "misuse", site, message, "pair each barrier.cluster.arrive with a barrier.cluster.wait", len(lanes)
        )

    def never_arrived(self, lanes: Array, site: Site) -> None:
        """Lanes wait at the cluster's barrier without an arrival."""
        message = f"{some_threads(self._batch, lanes)} waits at the cluster's barrier without an arrival before it"
        self._reporter.add(
            "misuse", site, message, "run barrier.cluster.arrive before barrier.cluster.wait", len(lanes)
        )

    def _last(self, slot: int) -> str:
        row = self._batch.mbarriers.state[slot]
        if row[LAST_LANE] < 0:
            return ""
        line = self._reporter.program.sites[int(row[LAST_SITE])].line
        return f" (the last arrival before was by {thread_name(self._batch, int(row[LAST_LANE]))} in PTX line {line})"

    def name(self, slot: int) -> str:
        """The name of a barrier: its variable and address."""
        offset = int(self._batch.mbarriers.offsets[slot])
        return f"mbarrier {self._checks.shared_name(offset)}"

    def _block(self, slot: int) -> str:
        return str(block_name(self._batch, int(self._batch.mbarriers.homes[slot])))

    def lanes_ended(self, lanes: Lanes) -> None:
        """Threads exit: their copies from shared memory must have been read."""
        numbers = lanes.lane_numbers()
        left = self._batch.groups.unread(numbers if lanes.mask is None else numbers[lanes.mask])
        if len(left):
            site = self._batch.groups.last_site(int(left[0]))
            more, remedy = not_elected_in(self._batch, int(left[0]) // WARP, site)
            message = f"{some_threads(self._batch, left)} ends while this copy may still read shared memory{more}"
            hint = remedy or "commit the copy and run cp.async.bulk.wait_group.read 0 in the same thread before it ends"
            self._reporter.unwaited.add(site.number)
            self._reporter.add("in-flight", site, message, hint, len(left), about="end", formal=_END_FORMAL)

    def stuck(self) -> None:
        """Nothing can continue: report phases with all arrivals that lack bytes, or got too many."""
        self._phases.stuck()
        barriers = self._batch.mbarriers
        state = barriers.state[: barriers.count]
        waiting = (state[:, LIVE] == ALIVE) & (state[:, PENDING] == 0) & (state[:, TX] != 0)
        for slot in np.flatnonzero(waiting).tolist():
            if self._expecting(slot) in self._late:
                # the bytes of an earlier phase are among those of this one, which was reported
                continue
            expected, delivered, _ = barriers.bytes_of(slot)
            message = (
                f"all have arrived for phase {int(state[slot, PHASE] - state[slot, START])} of {self.name(slot)} of "
                f"{self._block(slot)}; it expects {expected} bytes, {delivered} are delivered, and no copy is under way"
            )
            site = self._reporter.program.sites[self._expecting(slot)]
            self._reporter.add("transaction-bytes", site, message, _ALL_BYTES, about="stuck")

    def ended(self) -> None:
        """All threads have exited: no barrier may have outstanding bytes.

        Expected bytes that never arrive are formal, since a thread that waited for them would not have exited.
        """
        barriers = self._batch.mbarriers
        state = barriers.state[: barriers.count]
        left = np.flatnonzero((state[:, LIVE] == ALIVE) & (state[:, TX] != 0))
        for slot in left[state[left, TX] < 0][:1].tolist():
            self._too_many_bytes(slot)
        for slot in left[state[left, TX] > 0][:1].tolist():
            expected, delivered, _ = barriers.bytes_of(slot)
            bytes_ = f"it expects {expected} bytes and {delivered} are delivered"
            message = f"{self._phase(slot)} is left incomplete: {bytes_}"
            self._reporter.general("transaction-bytes", message, _ALL_BYTES, formal=_ARMED_FORMAL)

    def _phase(self, slot: int) -> str:
        row = self._batch.mbarriers.state[slot]
        return f"phase {int(row[PHASE] - row[START])} of {self.name(slot)} of {self._block(slot)}"

    def _too_many_bytes(self, slot: int) -> None:
        """More bytes arrived than expected: reported where too few were expected, or at the last arrival."""
        row = self._batch.mbarriers.state[slot]
        expected, delivered, _ = self._batch.mbarriers.bytes_of(slot)
        message = f"{delivered} bytes are delivered in {self._phase(slot)}, which expects {expected}"
        if row[PHASE] > row[START]:
            message += "; the phase before may have completed while copies that it is for were under way"
        if row[LAST_LANE] < 0:
            self._reporter.general("transaction-bytes", message, _ALL_BYTES)
        elif self._expecting(slot) not in self._late:
            site = self._reporter.program.sites[self._expecting(slot)]
            self._reporter.add("transaction-bytes", site, message, _ALL_BYTES, about="end")

    def _expecting(self, slot: int) -> int:
        """The site of the last expect_tx in the open phase, else in the one before, else of the last arrival."""
        barriers = self._batch.mbarriers
        phase = int(barriers.state[slot, PHASE])
        found = [one for one in (barriers.expecting(slot, phase), barriers.expecting(slot, phase - 1)) if one >= 0]
        return found[0] if found else int(barriers.state[slot, LAST_SITE])

    def trouble(self, space: str, writes: bool, lane: int, site: Site, trouble: Trouble) -> None:
        """An asynchronous access is not ordered after another one, or a proxy fence between them is missing."""
        other_site, number, _ = decode(trouble.cell & ((1 << 64) - 1))
        other_lane = (trouble.mask & -trouble.mask).bit_length() - 1
        other = self._checks.sites.numbered[other_site]
        them = actor_name(self._batch.launch, number, other_lane)
        where = self._where(space, trouble.offset)
        verb = "writes" if writes else "reads"
        who = f"the operation that {thread_name(self._batch, lane)} begins {verb} {where}"
        line = f"in PTX line {other.line} (`{other.text}`)"
        if trouble.kind == "race":
            message = f"{who}; {them} accesses it {line}, and nothing orders the two"
            message += "" if writes else self._reporter.usual.read_first(site, other)
            more, remedy = not_elected(self._batch, number, other)
            message, hint = message + more, HINTS[trouble.reason] or remedy or _RACE_HINT
        else:
            message = f"{who}; {them} wrote it {line}, with no proxy fence on the way from there to here"
            hint = HINTS[trouble.reason] or _FENCE_HINT
        others = self._reporter.other(f"the other access, by {them}", other)
        about, array = self._reporter.location(other), self._array(space, trouble.offset)
        self._reporter.add(
            trouble.kind, site, message, hint, trouble.count, others, about=about, array=array, cause=other,
            formal=REASONS[trouble.reason],
        )  # fmt: skip

    def _array(self, space: str, offset: int) -> str:
        """The variable or array at an offset, without the offset in it."""
        return self._where(space, offset).partition("+" if space == "shared" else " at ")[0]

    def _where(self, space: str, offset: int) -> str:
        if space == "shared":
            return f"shared memory {self._checks.shared_name(offset % self._batch.shared_stride)}"
        return str(self._checks.global_name(GLOBAL_BASE + offset))


_INIT_FORMAL = (
    "every GPU so far orders the initialisation before a copy of the same block that begins behind the block's barrier"
)
_ARMED_FORMAL = "nobody waits for the phase, and a barrier ends with its block"
_END_FORMAL = "every GPU so far keeps the block's shared memory until its bulk stores have read it"
_RACE_HINT = (
    "begin it only after a wait on the mbarrier (or bar.sync) at which every earlier user of these bytes has arrived; "
    "copies become visible by a wait on the mbarrier they complete on, or for their bulk group"
)
_FENCE_HINT = "put fence.proxy.async between the ordinary stores and the barrier, or before the operation"
_INIT_HINT = "let one thread run mbarrier.init, then fence and bar.sync, before anybody uses the barrier"
_MISUSES = {
    "outside": (
        "mbarrier-misuse",
        "{who}: {name} cannot hold an mbarrier (8 bytes of shared memory, aligned)",
        _INIT_HINT,
    ),
    "unused": ("mbarrier-misuse", "{who} uses the mbarrier at {name}, which was never initialised", _INIT_HINT),
    "dead": (
        "mbarrier-misuse",
        "{who} uses {name} after mbarrier.inval",
        "invalidate a barrier only when nobody uses it any more",
    ),
    "awaited": (
        "mbarrier-misuse",
        "{who} invalidates {name} in a phase of which {value} bytes are still outstanding: a copy that completes later "
        "writes into memory that is no mbarrier any more",
        "wait for the phase before mbarrier.inval",
    ),
    "twice": (
        "mbarrier-misuse",
        "{who} initialises {name} again without mbarrier.inval",
        "run mbarrier.inval before the memory is used anew, or keep the barrier and its phases",
    ),
    "count": (
        "mbarrier-misuse",
        "{who} gives {name} an arrival count of {value}; allowed are 1 to 1048575",
        "the count is the number of arrivals of a phase",
    ),
    "range": (
        "mbarrier-misuse",
        "the bytes outstanding on {name} exceed 1048575 in an operation of {who}",
        "split the copies over several phases or barriers",
    ),
    "completes": (
        "mbarrier-misuse",
        "{who}: an arrival with .noComplete completes the phase of {name}",
        "use a plain arrive for the last one",
    ),
    "too many": (
        "mbarrier-count",
        "{who} arrives on {name} more often than its count allows in one phase{last}",
        "make the count of mbarrier.init the number of arrivals in each phase",
    ),
    "unwaited": (
        "mbarrier-phase",
        "{who} arrives on {name} for the next phase before anybody waited for the one that completed",
        "a second completion makes the first unseen: wait for each phase; check the init count and who arrives",
    ),
}
