"""The checks of one batch: everything its parts report, and the state needed to judge it."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.observer import BatchObserver, TensorObserver
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.emulator.checks.asynchronous.asynchronous import AsynchronousChecks
from kernbench.ptx.emulator.checks.asynchronous.tensor import TensorChecks
from kernbench.ptx.emulator.checks.asynchronous.warpgroups import WarpgroupChecks
from kernbench.ptx.emulator.checks.findings.reporter import some_threads, thread_name
from kernbench.ptx.emulator.checks.happens_before.clocks import Clocks, masks_of
from kernbench.ptx.emulator.checks.happens_before.ended_lanes import part_from_lanes
from kernbench.ptx.emulator.checks.happens_before.knowledge import EVERYBODY, Knowledge
from kernbench.ptx.emulator.checks.happens_before.locks import Locks
from kernbench.ptx.emulator.checks.happens_before.named_barriers import NamedBarriers
from kernbench.ptx.emulator.checks.happens_before.patterns import MemoryOrder
from kernbench.ptx.emulator.checks.happens_before.released_along import ALIKE, COPIED, ReleasedAlong
from kernbench.ptx.emulator.checks.memory.idle_reads import IdleReads
from kernbench.ptx.emulator.checks.memory.memory import COPIES
from kernbench.ptx.emulator.checks.memory.pending_copies import PendingCopies
from kernbench.ptx.emulator.checks.memory.replicas import Replicas
from kernbench.ptx.emulator.checks.memory.undefined import DIVISION_HINT, UndefinedValues
from kernbench.ptx.emulator.checks.memory.variables import leaves, strays_from
from kernbench.ptx.emulator.checks.memory.volatile_data import VolatileData
from kernbench.ptx.emulator.checks.memory.warp_synchronous import WarpSynchronous
from kernbench.ptx.emulator.checks.waiting.endings import Endings
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes, Mask
from kernbench.ptx.emulator.lanes.warp_bits import given
from kernbench.ptx.emulator.lanes.warp_kernels import are_parted
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.memory.access import RACE, UNINITIALISED, UNSEEN
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE
from kernbench.ptx.emulator.memory.cells import SUSPECTS, decode, new_cells, sites_of
from kernbench.ptx.emulator.memory.port import (
    EVERYWHERE,
    UNCHECKED,
    Accessed,
    Checker,
    Entering,
    Space,
    Spot,
    offsets_of,
)
from kernbench.ptx.emulator.memory.shadow import Ranges, Trouble
from kernbench.ptx.emulator.observer.definedness import Definedness
from kernbench.ptx.emulator.observer.meetings import Operation
from kernbench.ptx.emulator.observer.observer import Clocks as ArrivalClocks
from kernbench.ptx.emulator.program.access_order import Order
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.steps import Loaded
from kernbench.ptx.emulator.units.batch import Batch

if TYPE_CHECKING:
    from kernbench.ptx.emulator.checks.checks import Checks


class BatchChecks(BatchObserver):
    """The checks of one batch: its vector clocks, and the shadow of its shared memory."""

    checking = True

    def __init__(self, checks: "Checks", batch: Batch):
        self._checks = checks
        self._meant = checks.program.meant
        self._meant_variables = checks.program.meant_variables
        self.batch = self._batch = batch
        self._fast = batch.launch.fast
        self.reporter = self._reporter = checks.reporter
        self.sites = checks.sites
        self.clocks = Clocks(batch, checks.publications, self.part_from)
        self.along = ReleasedAlong(batch, self.clocks)
        self.patterns = MemoryOrder(batch, self.clocks)
        self.locks = Locks(batch, self.clocks.numbers, self.clocks.clocks, checks.locks)
        self._released: Array = np.zeros(0, np.int64)
        self._shared_cells = new_cells(batch.ctas * batch.shared_stride // 4 + 1, shared=batch.launch.fast.shared_lines)
        self.log = None if checks.order is None else checks.order.batch(batch, self.clocks)
        self.asynchronous: AsynchronousChecks = AsynchronousChecks(batch, self, checks.reporter)
        self.endings = Endings(batch, checks.reporter)
        self.barriers = NamedBarriers(batch, self, checks.reporter)
        self.warpgroups = WarpgroupChecks(batch, self)
        self.warp_synchronous = WarpSynchronous(batch, self.clocks, checks.reporter, checks.memory.shared_name)
        self.volatile_data = VolatileData(batch, self.clocks, checks.reporter, checks.memory.shared_name)
        self._volatile = checks.program.volatile_sites
        self.copies: PendingCopies = PendingCopies(batch, checks.reporter, checks.memory.shared_name)
        self.idle = IdleReads(checks, self, batch.warps)
        self.definedness = Definedness(batch.lanes)
        self.undefined = UndefinedValues(batch, self.definedness, checks.reporter, checks.memory)
        self.replicas = Replicas(self, checks.program, self.undefined)
        # sites of stores that must be checked at every execution: see `Replicas`
        self.contested = self.replicas.contested
        self.noncoherent = checks.noncoherent.sites
        self.definedness.flags.begin(checks.program.undefined_registers, checks.program.undefined_numbers)

    @property
    def checker(self) -> Checker:
        """The checker of memory accesses."""
        return self

    def tensor(self, memory: TensorMemory) -> TensorObserver:
        """The checks of the batch's tensor memory."""
        return TensorChecks(self._batch, self, memory)

    def began(self, warps: Array) -> None:
        """Warps began something visible to others: a new epoch."""
        self.clocks.advance(warps)

    def lanes_ended(self, warps: Int64s, active: Bools) -> None:
        """Lanes have exited; a row of 32 for each warp."""
        self.clocks.ended(warps, active)

    def cluster_arrives(self, warp: int, mask: int, key: tuple[str, int, int], releases: bool) -> None:
        """Lanes of a warp arrive at a phase of a cluster's barrier."""
        self.patterns.publish(warp, mask, key, releases)
        if not releases:
            self.along.arrives_relaxed(warp, mask, key)
            self.asynchronous.relaxed.publish(warp, key)

    def cluster_waited(self, lanes: Array) -> None:
        """Lanes have waited for a phase of a cluster's barrier, with or without an acquire."""
        self.asynchronous.starts.waited(lanes)

    def cluster_passes(self, warp: int, mask: int, key: tuple[str, int, int]) -> None:
        """Lanes of a warp have waited for a phase of a cluster's barrier, and acquire."""
        self.patterns.take(warp, mask, key)
        self.along.passes(warp, key)

    def arrival_clocks(self) -> ArrivalClocks:
        """The clocks that arrivals on mbarriers publish."""
        return self.clocks.clocks, self.clocks.met_column, self.clocks.peers

    def apart(self, alive: UInt32s) -> UInt32s:
        """The lanes of each warp that must all arrive for the warp's own clock to be published."""
        return self.clocks.apart()

    def value_leaves(self, key: tuple[int, int], lanes: Array) -> None:
        """The value of a speculative load, identified by `key`, is used by a guarded store of lanes."""
        self.idle.leave(key, lanes)

    def note(
        self, space: Space, writes: bool, site: Site, lanes: Array, active: Mask | None, accessed: Accessed, nbytes: int
    ) -> None:
        """Lanes are about to access `nbytes` bytes of a space."""
        if space.name != "local":
            self.clocks.touched(lanes, active)
        if space.name == "shared":
            self.along.accessed(lanes, active)
            if site.number in self._meant_variables:
                self._check_variables(space, writes, site, lanes, active, accessed, nbytes)
        if space.name == "global" and site.number in self._meant and self._may_leave(site, accessed):
            self._check_meant(writes, site, lanes, active, accessed, nbytes)
        self.copies.touched(space, writes, site, lanes, active, accessed, nbytes)
        if site.number in self._volatile:
            self.warp_synchronous.access(space, accessed, lanes, active, nbytes, writes, site)
            if self._checks.program.volatile_data:
                self.volatile_data.access(space, accessed, lanes, active, nbytes, writes, site)
        if self.log is not None:
            starts = offsets_of(accessed)
            if space.origins.size:
                starts = starts + space.origins[lanes].astype(np.int64)
            self.log.threads(space.name, writes, site, lanes, active, starts, nbytes)

    def loads_plainly(self, loads: tuple[Loaded, ...], window: Window) -> bool:
        """All lanes of a window are about to load from global memory; no load has a fault.

        Returns whether the checks need nothing else.
        """
        if self.log is not None:
            return False
        if all(load.guard is not None for load in loads):
            # guards decide which lanes load, and they are not known here
            return self.clocks.all_touched
        self.clocks.touched(window.lane_numbers, None)
        return True

    def reads_plainly(self, space: Space, site: Site, addresses: Array, lanes: Array) -> tuple[Entering, Array] | None:
        """Whole warps are about to read shared memory at `addresses`; no word has a fault.

        Returns what is needed to enter the reads, and the words that copies will fill; None if each access must be
        checked.
        """
        entering = self.arguments(space, site, 0)
        if self.log is not None or site.number in self._volatile or entering[2] == UNSEEN:
            return None
        variables = self._meant_variables.get(site.number)
        if variables is not None and leaves(variables, (addresses, 0, 0), space.size):
            return None
        self.clocks.touched(lanes, None)
        return entering, self.copies.filled_by

    def limits(self, site: int) -> tuple[int, int] | None:
        """The first offset and the size of the array that a load is meant for.

        That is all memory if unknown, and None if each access must be checked.
        """
        if site not in self._meant:
            return 0, EVERYWHERE
        where = self._checks.program.sites[site]
        one = self._checks.meant.only(where)
        if one is not None:
            return one.offset, one.nbytes
        return None if self._checks.meant.arrays(where) else (0, EVERYWHERE)

    def _may_leave(self, site: Site, accessed: Accessed) -> bool:
        """Whether an access may leave the array that it is meant for."""
        return not self._fast.meant_bounds or self._checks.meant.leaves(site, accessed)

    def _check_meant(
        self, writes: bool, site: Site, lanes: Array, active: Mask | None, accessed: Accessed, nbytes: int
    ) -> None:
        """Report accesses that leave the array of their pointer for another array."""
        starts = offsets_of(accessed)
        strays = self._checks.meant.strays(site, starts, active, nbytes)
        if len(strays):
            first = int(strays[0])
            address, lane = GLOBAL_BASE + int(starts[first]), int(lanes[first])
            self._checks.memory.stray(self._batch, site, writes, address, nbytes, lane, len(strays))

    def _check_variables(
        self, space: Space, writes: bool, site: Site, lanes: Array, active: Mask | None, accessed: Accessed, nbytes: int
    ) -> None:
        """Report accesses that leave the shared variables of their address for another variable."""
        variables = self._meant_variables[site.number]
        if self._fast.meant_bounds and not leaves(variables, accessed, space.size):
            return
        starts = offsets_of(accessed)
        strays = strays_from(variables, self._checks.program.shared, starts, active, space.size - nbytes)
        if len(strays):
            first = int(strays[0])
            offset, lane = int(starts[first]), int(lanes[first])
            self._checks.memory.stray_variable(self._batch, site, writes, offset, nbytes, lane, len(strays))

    def arguments(self, space: Space, site: Site, scope: int) -> Entering:
        """The space's shadow, the site's number and the scope of the access, for compiled kernels."""
        clocks = self.clocks
        if space.name == "local":
            return UNCHECKED, 0, scope
        number = self.sites.number(site)
        cells = self._shared_cells if space.name == "shared" else self._checks.cells
        clusters = self._checks.clusters
        scope = UNSEEN if site.number in self._checks.program.deferred else scope
        return (*cells, clocks.table(), clocks.clocks, clocks.peers, clocks.known, clusters), number, scope

    def part_from(self, warps: Array, clocks: Array) -> None:
        """Withhold the accesses of exited lanes at their last clocks, by warp and lane."""
        if not self.clocks.exhausted:
            cells = (self._shared_cells, *self._checks.cells_in_use())
            part_from_lanes(cells, self.clocks.numbers[warps], clocks[warps])

    def reached(self, ctas: Array, lanes: Array, active: Mask | None, site: Site) -> None:
        """Lanes are about to access shared memory of CTAs of their cluster."""
        which = slice(None) if active is None else active
        self.asynchronous.reaches(ctas[which], lanes[which], site)

    def outside_parameter(self, site: Site, problem: str) -> None:
        """A load at a fixed offset reaches beyond its kernel parameter."""
        hint = "compare the type of the load with the parameter's; each is a variable of its own"
        self._reporter.add("out-of-bounds", site, problem, hint)

    def agent_memory(self, space: str) -> tuple[Array, Array, int, Array]:
        """Cells, lanes, their first byte, and the states of bytes, for a space that agents access."""
        state = self._batch.port.space(space).state[1]
        if space == "shared":
            return *self._shared_cells, 0, state
        return *self._checks.cells, self._checks.first_byte, state

    def agent_meets_copies(self, writes: bool, ranges: Ranges, lanes: Array, site: Site) -> None:
        """Operations that lanes began access ranges of shared memory, which copies of threads may still fill."""
        self.copies.met(writes, ranges, lanes, site)

    def agent_trouble(self, space: str, writes: bool, lane: int, site: Site, trouble: Trouble) -> None:
        """An access of an agent is not ordered."""
        _, number, clock = decode(trouble.cell & (1 << 64) - 1)
        met = space == "shared" and trouble.kind == "race" and self.asynchronous.starts.explains(lane, number, clock)
        if not self.clocks.exhausted and not met:
            self.asynchronous.trouble(space, writes, lane, site, trouble)

    def bad_copy(self, space: str, site: Site, what: str, kind: str, address: int, lane: int, count: int) -> None:
        """An asynchronous copy accesses invalid or unwritten memory."""
        self._checks.memory.bad_copy(self, self._batch.port.space(space), site, what, kind, address, lane, count)

    def misaligned_copy(self, site: Site, what: str, value: int, unit: int, lane: int, count: int) -> None:
        """An operand of an asynchronous copy is not aligned."""
        who = thread_name(self._batch, lane)
        message = f"the {what} {value:#x} of the copy that {who} begins is no multiple of {unit}"
        self._reporter.add("misaligned", site, message, f"this copy needs a {what} that is a multiple of {unit}", count)

    def negative_point(self, site: Site, point: tuple[int, ...], lane: int, count: int) -> None:
        """A tensor store begins before the tensor, which the copy engine rejects."""
        message = (
            f"{thread_name(self._batch, lane)} stores a box at {point}: a store may reach past a tensor's end only"
        )
        hint = "give coordinates of 0 or more; loads alone may begin before the tensor"
        self._reporter.add("out-of-bounds", site, message, hint, count, about="negative")

    def outside_pixels(
        self, site: Site, point: tuple[int, ...], limits: tuple[tuple[int, int], ...], lane: int, count: int
    ) -> None:
        """A column begins at a pixel outside the map's pixel box."""
        box = ", ".join(f"{first} to {last}" for first, last in limits)
        message = f"{thread_name(self._batch, lane)} begins at {point}, outside the pixel box of {box}"
        hint = "begin inside the pixel box of the tensor map, and reach further with the offsets"
        self._reporter.add("out-of-bounds", site, message, hint, count, about="pixels")

    def bad_tensor_map(self, site: Site, problem: str, address: int, lanes: Array) -> None:
        """An instruction uses an invalid tensor map."""
        who = some_threads(self._batch, lanes)
        hint = "pass device.tensor_map(...) for a 128-byte .param aligned to 64, and use that parameter's address"
        self._reporter.add("misuse", site, f"{who}: tensor map at {address:#x}: {problem}", hint, len(lanes))

    def shared_name(self, offset: int) -> str:
        """The variable and address of an offset in shared memory."""
        return self._checks.memory.shared_name(offset)

    def global_name(self, address: int) -> str:
        """The array of a global address."""
        return self._checks.memory.global_name(address)

    def trouble(self, space: Space, site: Site, what: str, spot: Spot, report: Int64s) -> None:
        """A compiled access found faults."""
        if what == "load" and report[UNINITIALISED, 0] and self._is_followed(space, site):
            self.undefined.loaded(space, site, spot)
            report[UNINITIALISED, 0] = 0
        races = self._races(space, site, spot, report[SUSPECTS:][: report[RACE, 0]])
        memory = self._checks.memory
        completed = memory.completed_loads(self.batch, site) if len(races) else {}
        add_findings = partial(memory.add_findings, self, space, site, what, completed)
        races = self.idle.split(site, spot, races, add_findings)
        report[RACE, :2] = len(races), races[0, 0] if len(races) else 0
        if report[UNINITIALISED, 0] and self._reads_early(int(report[UNINITIALISED, 1]), races):
            report[UNINITIALISED, 0] = 0
        add_findings(spot, report, races)

    def stored_again(self, space: Space, spot: Spot) -> None:
        """A store at a site of `contested` is complete."""
        self.replicas.stored_again(space, spot)

    def read_noncoherently(self, site: Site, lanes: Array, starts: Array, nbytes: int) -> None:
        """Lanes read memory that the launch may write, through the non-coherent cache."""
        threads = self.clocks.numbers[lanes // WARP] * WARP + lanes % WARP
        self._checks.noncoherent.read(site, threads, starts.astype(np.int64), nbytes)

    def _is_followed(self, space: Space, site: Site) -> bool:
        """Whether unwritten bytes that a load returns are tracked, and reported only where they have an effect."""
        program = self._checks.program
        if site.number in program.carrying:
            return True
        return site.number in program.caught and (space.name == "local" or bool(program.kernel.module.compiler))

    def loaded(self, site: Site) -> None:
        """A load with a fault is complete: undefined values are tracked from here on."""
        if site.number in self._checks.program.caught:
            self.definedness.follow(site)

    def _reads_early(self, position: int, races: Array) -> bool:
        """Whether the unwritten bytes at a position are the target of a copy that is not awaited."""
        actors = self._batch.launch.actors
        here = races[races[:, 0] == position, 1].tolist()
        numbers = [decode(cell & (1 << 64) - 1)[1] for cell in here]
        return self.copies.reads_early(position) or any(actors.kind(n % actors.count) in COPIES for n in numbers)

    def _races(self, space: Space, site: Site, spot: Spot, found: Array) -> Array:
        """The suspects that are unordered by everything known."""
        if self.clocks.exhausted or not len(found):
            return found[:0]
        lanes = spot.lanes[found[:, 0]]
        for i in np.flatnonzero(self.clocks.helps(lanes)).tolist():
            found[i, 2] = self.unknown(int(lanes[i]), *found[i, 1:].tolist())
        races: Array = found[found[:, 2] != 0]
        if space.name == "shared":
            races = self.asynchronous.starts.others(spot.lanes, races)
        return self.replicas.differing(space, site, spot, races)

    def beside(self, warp: int, number: int) -> int | None:
        """The warp of a number, if it is in the same block as `warp`."""
        ctas, apart = self._batch.ctas, number - int(self.clocks.numbers[warp])
        return warp + apart * ctas if 0 <= warp // ctas + apart < self._batch.warps_per_cta else None

    def unknown(self, lane: int, cell: int, mask: int, seen: int = 0, seen_mask: int = 0) -> int:
        """The lanes of a cell's access that a lane does not know; none if it knows a read that observed the access."""
        if seen:
            _, number, clock = decode(seen & (1 << 64) - 1)
            if not self.clocks.unknown(lane, number, clock, seen_mask):
                return 0
        _, number, clock = decode(cell & (1 << 64) - 1)
        return self.clocks.unknown(lane, number, clock, mask)

    def knows_of(self, lane: int, cell: int, mask: int) -> bool:
        """Whether accesses of lanes of its block, in the epoch of a cell, happen before what a lane does now."""
        _, number, clock = decode(cell)
        warp, ctas = lane // WARP, self._batch.ctas
        other = self.beside(warp, number)
        if other == warp and (clock <= self.clocks.met_column[warp] or mask == 1 << lane % WARP):
            return True
        if other not in (None, warp) and self.clocks.clocks[warp % ctas, warp // ctas, other // ctas] >= clock:
            return True
        return not self.clocks.unknown(lane, number, clock, mask)

    def alike(self, lanes: Array, found: Array, site: Site) -> Array:
        """For each race of operations in global memory, why it is formal, as in `released_along`."""
        cells = found[:, 2]
        sites = np.array([self.sites.numbered[site].number for site in sites_of(cells).tolist()])
        return ALIKE * self.asynchronous.same.alike(lanes, found[:, 0], cells, sites, site)

    def released_along(self, lanes: Array, cells: Array) -> Array:
        """For each lane and the cell of an earlier, unordered access: why that access is complete."""
        return self.along.reasons(lanes, cells)

    def shown_along(self, cells: Array, site: Site) -> Array:
        """For the cell of each write without a proxy fence: why that is formal, as in `released_along`.

        Copies of threads (cp.async) are shown to wgmma by their wait.
        """
        found: Array = np.zeros(len(cells), np.int64)
        if site.effects.in_flight == "multiply":
            sites, which = np.unique(sites_of(cells), return_inverse=True)
            copied = [self.sites.numbered[site].effects.event == "async copy" for site in sites.tolist()]
            found[np.array(copied, bool)[which]] = COPIED
        return found

    def synchronise(
        self, space: str, window: Window, slot: int, offset: np.uint64, mask: Mask | None, order: Order, site: Site
    ) -> None:
        """A strong access: it may release or acquire."""
        addresses = np.broadcast_to(window.rows[slot], window.size).astype(np.uint64) + offset
        lanes = window.lane_numbers
        if mask is not None:
            addresses, lanes = addresses[mask], lanes[mask]
        self._released = self.patterns.access(space, lanes, addresses, order, site.number)
        if space != "shared" and len(let_go := self.locks.access(lanes, addresses, order, site)):
            self._released = np.union1d(self._released, let_go)

    def synchronised(self) -> None:
        """The access is complete: warps that released begin a new epoch."""
        if len(self._released):
            self.clocks.advance(self._released)

    def fence(self, window: Window, mask: Mask | None, order: Order) -> None:
        """Lanes pass a fence."""
        warps, masks = masks_of(window, mask)
        if order.releases:
            self.warp_synchronous.fenced(warps, masks)
        self.patterns.fence(warps, masks, order)

    def barrier(self, done: Bools | None, present: Bools | None) -> None:
        """The warps of CTAs met at a barrier; None for all of them."""
        self.met(done, present, None, None)

    def met(
        self, done: Array | None, present: Array | None, given: Array | None, published: dict[int, Knowledge] | None
    ) -> None:
        """Warps met at a CTA barrier; `given` and `published` are what warps that only arrived released."""
        self.clocks.barrier(done, present, given, published)
        if self.patterns.unheard:
            self._hear(done, present)

    def _hear(self, done: Array | None, present: Array | None) -> None:
        ctas, warps = self._batch.ctas, self._batch.warps_per_cta
        for cta in np.arange(ctas) if done is None else np.flatnonzero(done):
            members = np.arange(warps) if present is None else np.flatnonzero(present[cta])
            self.patterns.meet([(int(inside) * ctas + int(cta), EVERYBODY) for inside in members])

    def arrived(self, warps: Array, published: dict[int, Knowledge]) -> None:
        """Warps arrive at a CTA barrier and do not wait: what they know beyond their clocks is released at its end."""
        lanes = (warps[:, None] * WARP + np.arange(WARP)).reshape(-1)
        for warp in warps[self.clocks.aware(lanes).reshape(-1, WARP).any(axis=1)].tolist():
            knowledge, cta = self.clocks.snapshot(warp).released_by(EVERYBODY), warp % self._batch.ctas
            before, actors = published.get(cta), self._checks.publications.actors
            published[cta] = knowledge if before is None else before.join(knowledge, actors)

    def warp_barrier(self, window: Window, lanes: Lanes, members: int) -> None:
        """Lanes met at bar.warp.sync, each with the lanes of its mask."""
        if not self.patterns.unheard and self.clocks.meet_whole(*given(lanes), window.rows[members]):
            return
        masks = np.broadcast_to(window.rows[members], window.size).reshape(-1, WARP).astype(np.int64)
        warps, groups = window.warps, masks[:, 0]
        if lanes.mask is not None or (masks != masks[:, :1]).any():
            rows, threads = np.nonzero(lanes.active().reshape(-1, WARP))
            warps, groups = np.unique(np.stack([warps[rows], masks[rows, threads]]), axis=1)
        self.clocks.meet(warps, groups)
        for warp, mask in zip(warps.tolist(), groups.tolist(), strict=True) if self.patterns.unheard else ():
            self.patterns.meet([(warp, mask if self.clocks.alive(warp) & ~mask else EVERYBODY)])

    def bad_free(self, site: Site, lane: int, address: int, problem: str) -> None:
        """A thread frees memory that malloc did not give, or twice."""
        kind = "use-after-free" if "freed" in problem else "misuse"
        message = f"{thread_name(self._batch, lane)} frees {address:#x}, {problem}"
        self._reporter.add(kind, site, message, "free once each pointer that malloc gave, and nothing else", about=kind)

    def divisors(self, window: Window, divisor: Array, mask: Mask | None, site: Site) -> None:
        """An integer division is about to run."""
        zero = np.broadcast_to(divisor == 0, window.size)
        zero = zero if mask is None else zero & mask
        if zero.any():
            lanes = window.lane_numbers[zero]
            if site.number in self._checks.program.caught:
                self.definedness.meet_zero(lanes.tolist())
                return
            who = some_threads(self._batch, lanes)
            self._reporter.add("division", site, f"integer division by zero in {who}", DIVISION_HINT, len(lanes))

    def inactive_source(self, window: Window, site: Site, count: int, position: int) -> None:
        """A shuffle read a lane that does not take part."""
        who = thread_name(self._batch, int(window.lane_numbers[position]))
        message = f"{who} reads a lane that does not take part, whose value is not defined"
        hint = "name the source lanes in the mask and let them run the shuffle too"
        self._reporter.add("inactive-lane", site, message, hint, count)

    def whole_warps(self, window: Window, mask: Mask, site: Site) -> None:
        """An instruction that whole warps must execute together."""
        if not are_parted(mask, self._batch.alive, self._batch.ended_in, window.warps):
            return
        rows = mask.reshape(-1, WARP)
        # exited lanes are missed too, as they have no value to contribute
        meant: Bools = (self._batch.alive | (self._batch.ended_in >= 0)).reshape(-1, WARP)[window.warps]
        parted = rows.any(axis=1) & (meant & ~rows).any(axis=1)
        who = thread_name(self._batch, int(window.lane_numbers[int(np.argmax(np.repeat(parted, WARP) & mask))]))
        message = f"{who} runs this without the rest of its warp, which must run it together"
        hint = "move the instruction out of the branch"
        self._reporter.add("warp-mask", site, message, hint, int(np.count_nonzero(parted)))

    def missing_lanes(
        self, fragment: Fragment, operation: Operation, members: Array, missing: Array, bad: Mask
    ) -> None:
        """Lanes that a mask names never arrived."""
        lanes = fragment.window.lane_numbers[bad]
        position = int(np.argmax(bad))
        absent = [lane for lane in range(WARP) if int(missing[position]) >> lane & 1]
        who = thread_name(self._batch, int(lanes[0]))
        what = f"lanes {absent} of its mask {int(members[position]):#010x} never come"
        if not absent:
            what = "other lanes of its mask stand at another instruction"
        message = f"{who} waits in {operation.site.opcode} and {what}"
        hint = "every lane named in the mask must run this very instruction: use the mask of those that do"
        self._reporter.add("warp-mask", operation.site, message, hint, len(lanes))
