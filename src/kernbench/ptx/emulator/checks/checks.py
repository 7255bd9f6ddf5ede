"""The checks of a launch: the state that its batches share, and findings about the launch itself."""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.checks.batch_checks import BatchChecks
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, some_threads
from kernbench.ptx.emulator.checks.happens_before.knowledge import Publications
from kernbench.ptx.emulator.checks.happens_before.locks import LockRecord
from kernbench.ptx.emulator.checks.happens_before.order import OrderLog
from kernbench.ptx.emulator.checks.memory.meant import MeantArrays
from kernbench.ptx.emulator.checks.memory.memory import MemoryReporter
from kernbench.ptx.emulator.checks.memory.noncoherent import NoncoherentLoads
from kernbench.ptx.emulator.checks.waiting.waits import deadlock_message
from kernbench.ptx.emulator.lanes.clusters import cluster_members
from kernbench.ptx.emulator.lanes.lanes import Lanes
from kernbench.ptx.emulator.memory.access_sites import AccessSites
from kernbench.ptx.emulator.memory.arena import Allocation, Arena
from kernbench.ptx.emulator.memory.cells import WARP_LIMIT, block_lines, clear, new_cells
from kernbench.ptx.emulator.memory.pages.touched import touched_rows
from kernbench.ptx.emulator.program.meter import Meter
from kernbench.ptx.emulator.program.program import Block, Program, Site, WaitLoop
from kernbench.ptx.emulator.units.batch import Batch, Launch
from kernbench.ptx.emulator.units.observer import LaunchObserver
from kernbench.ptx.names.demangling import demangled
from kernbench.result.finding import Finding

CHECKED = (
    "out-of-bounds",
    "misaligned",
    "use-after-free",
    "uninitialised-read",
    "race",
    "divergent-barrier",
    "warp-mask",
    "inactive-lane",
    "division",
    "output-unwritten",
    "deadlock",
    "endless-loop",
    "over-budget",
    "trap",
    "missing-fence",
    "transaction-bytes",
    "mbarrier-misuse",
    "mbarrier-count",
    "mbarrier-phase",
    "descriptor",
    "in-flight",
    "tensor-memory",
)


class Checks(LaunchObserver):
    """The checks of one launch."""

    checking = True

    def __init__(self, program: Program, arena: Arena, names: dict[int, str], order: bool | str = False):
        self.program = program
        self._ordered = order
        # the log of all accesses, if requested
        self.order: OrderLog | None = None
        self.arena = arena
        self.reporter = Reporter(program)
        self.meant = MeantArrays(program, arena)
        self.memory = MemoryReporter(self.reporter, arena, names, self.meant)
        self._names = names
        self._tracked: list[Allocation] = []
        # called at the end of the launch: races that are reported only if they matter
        self.later: list[Callable[[], None]] = []

    @property
    def keeps_order(self) -> bool:
        """Whether the order of all accesses is kept."""
        return bool(self._ordered)

    @property
    def quiet(self) -> bool:
        """Whether there is no finding, and nothing that may become one."""
        return not (len(self.reporter.log) or self.later or self.memory.carries or self.publications.exhausted)

    @property
    def ended_quietly(self) -> bool:
        """As `quiet`, after what has run so far has ended."""
        return self.quiet and not self.noncoherent.written_since()

    def begin(self, launch: Launch) -> None:
        """A launch is about to run: watch the memory it may write for races."""
        self.launch = launch
        self.meant.begin(launch)
        self.reporter.meter = launch.meter
        self.sites = AccessSites()
        self.order = None
        if self._ordered:
            self.order = OrderLog(launch.actors, self.arena.used // 4 + 1, self._ordered == "conflicts")
        self.publications = Publications(min(prod(launch.grid) * launch.actors.count, WARP_LIMIT))
        self.locks = LockRecord()
        self._tracked = self._written_allocations(launch)
        for allocation in self.arena.allocations():
            # large allocations stay watched until a launch that cannot write them
            if allocation.usual is not None and allocation not in self._tracked:
                self.arena.watch(allocation, False)
        for allocation in self._tracked:
            if not allocation.sparse:
                self.arena.watch(allocation, True)
        self.first_byte = min((a.offset for a in self._tracked), default=0) & ~15
        self._cells: tuple[Array, Array] | None = None
        self.clusters = _clusters(launch)
        self.noncoherent = NoncoherentLoads(launch, self.reporter, self.memory, self.sites, lambda: self.cells)

    @property
    def cells(self) -> tuple[Array, Array]:
        """The shadow cells of the memory that the launch may write, made when a batch first needs them."""
        if self._cells is None:
            last = max((a.offset + a.nbytes for a in self._tracked), default=0)
            self._cells = _cells(self.first_byte, last, self.launch.fast.shared_lines)
        return self._cells

    def _written_allocations(self, launch: Launch) -> list[Allocation]:
        """Allocations that the kernel may write, according to its pointers."""
        live = [a for a in self.arena.allocations() if a.space == "global"]
        written = self.program.written_params
        if written is None:
            return live
        addresses = [self.arena.real(address) for name in written for address in launch.addresses_in(name)]
        pointed = {id(self.arena.holding(address)) for address in addresses}
        symbols = set(launch.variable_addresses())
        if self.arena.heap is not None:
            symbols.add(self.arena.heap.region.address)
        return [a for a in live if a.sparse or id(a) in pointed or a.address in symbols]

    def cells_in_use(self) -> list[tuple[Array, Array]]:
        """The cells that accesses may have touched; there may be far more between and inside allocations."""
        found = []
        for allocation in self._tracked:
            lines = block_lines(self.cells[1], *self._words(allocation))
            for part in touched_rows(self.cells[0][lines]):
                # one more row, since cells have an additional last line
                rows = slice(lines.start + part.start, lines.start + part.stop + 1)
                found.append((self.cells[0][rows], self.cells[1][rows]))
        return found

    def forget(self, allocation: Allocation) -> None:
        """Memory has a new owner: remove its earlier accesses."""
        clear(*self.cells, *self._words(allocation))
        self.noncoherent.forget(*self._words(allocation))

    def _words(self, allocation: Allocation) -> tuple[int, int]:
        """The words of an allocation in the cells: the first, and the last + 1."""
        first = (allocation.offset - self.first_byte) // 4
        return first, first + (allocation.nbytes + 3) // 4

    def unknown_function(self, batch: Batch, lanes: Array, site: Site, name: str) -> None:
        """The kernel called a function that is only declared."""
        who = some_threads(batch, lanes)
        message = f"{demangled(name)} is declared and has no body: it did nothing and gave zeros to {who}"
        hint = "compile the code that defines it into the same module; vprintf, __assertfail, malloc and free are known"
        if name.startswith(("cuda", "__cudaCDP")):
            hint = (
                "kernels launched by kernels (dynamic parallelism) are not emulated: launch the inner one from the host"
            )
        self.reporter.add("misuse", site, message, hint, len(lanes), about=name)

    def batch(self, batch: Batch) -> "BatchChecks":
        """The checks of one batch."""
        return BatchChecks(self, batch)

    @property
    def checked(self) -> tuple[str, ...]:
        """The kinds of findings that were checked to the end."""
        unsure = {"race", "in-flight"} if self.publications.exhausted else set()
        unsure |= {"output-unwritten"} if self.launch.part is not None else set()
        return tuple(kind for kind in CHECKED if kind not in unsure)

    def end(self) -> list[Finding]:
        """The launch has ended: returns all findings, unwritten outputs included."""
        for add_findings in self.later:
            add_findings()
        self.noncoherent.end()
        self.abandon()
        self._unwritten_outputs()
        return self.reporter.log.findings()

    def abandon(self) -> None:
        """The launch has ended or was aborted: stop watching memory."""
        for allocation in self._tracked:
            if not allocation.sparse and allocation.usual is None:
                self.arena.watch(allocation, False)

    def _unwritten_outputs(self) -> None:
        """Report fresh arrays passed to the kernel that it left unwritten, wholly or in part."""
        if self.launch.part is not None:
            return
        if self.launch.unfinished and (self.reporter.log.findings() or self.launch.may_stop):
            return
        for allocation in self.arena.allocations():
            if not allocation.fresh or allocation.address not in self._names or not allocation.nbytes:
                continue
            missing, first = self.arena.unwritten(allocation)
            # an array that an earlier launch wrote in part, and this one cannot write, is an input
            if missing == allocation.nbytes or (missing and allocation in self._tracked):
                self._unwritten(allocation, missing, first)

    def _unwritten(self, allocation: Allocation, missing: int, first: int) -> None:
        name = self._names[allocation.address]
        what = "nothing" if missing == allocation.nbytes else f"all but {missing} of its {allocation.nbytes} bytes"
        copied, others = self.memory.copied_to(allocation)
        self.reporter.general(
            "output-unwritten",
            f"'{name}' was made empty and the kernel wrote {what}; the first byte left is {first}{copied}",
            "check the grid and the conditions around the stores; make scratch arrays of zeros",
            others,
        )

    def stray(self, batch: Batch, lanes: Lanes, site: Site, message: str, kind: str) -> None:
        """Lanes were stopped: control flow left the program, or a trap."""
        active = active_lanes_of(lanes)
        hint = "the condition that leads here says why" if kind == "trap" else "check the index or address"
        self.reporter.add(kind, site, f"{message}; {some_threads(batch, active)} stopped here", hint, len(active))

    def over_budget(self, spent: str, meter: Meter) -> None:
        """The launch was stopped by its budget."""
        assert meter.here is not None
        block, lanes = meter.here
        site = block.sites[0] if block.sites else None
        line = f"line {site.line}" if site is not None else "the end of a function"
        self.reporter.general(
            "over-budget",
            f"the launch did not end within {spent}; it was stopped with {lanes.count} threads at {line}"
            f"{self._loop_around(block)}, and did not come to repeat itself unchanged: it may be long or endless",
            "check the loop's condition, or give more: --max-seconds on the command line, "
            "budget=Budget(steps=..., seconds=...) of a launch in Python",
            site=site,
        )

    def _loop_around(self, block: Block) -> str:
        """The innermost loop that contains a block."""
        loops = [b.wait_loop for b in self.program.blocks if b.wait_loop is not None]
        around = [loop for loop in loops if block.number in loop.blocks]
        if not around:
            return ""
        inner = min(around, key=lambda loop: len(loop.blocks))
        lines = [site.line for number in inner.blocks for site in self.program.blocks[number].sites]
        return f" in the loop of lines {min(lines)} to {max(lines)}" if lines else ""

    def endless(self, batch: Batch, lanes: Lanes, loop: WaitLoop, rounds: int) -> None:
        """Lanes are in an earlier state again, and nothing they read can change."""
        blocks = [self.program.blocks[number] for number in sorted(loop.blocks)]
        sites = [site for block in blocks for site in block.sites]
        who = some_threads(batch, active_lanes_of(lanes))
        cycle = "round after round" if rounds == 1 else f"every {rounds} rounds"
        first, last = min((s.line for s in sites), default=0), max((s.line for s in sites), default=0)
        lines = f"lines {first} to {last}" if first < last else f"line {first}"
        self.reporter.general(
            "endless-loop",
            f"the loop of {lines} never ends for {who}: their registers are the same {cycle}, and it reads nothing "
            f"that another thread could change",
            "let something in the loop lead to its exit, or read what it waits for from memory (volatile)",
            site=sites[0] if sites else None,
        )

    def deadlock(self, batches: Sequence[Batch], queued: int, resident: int) -> None:
        """Nothing can continue."""
        for batch in batches:
            if self.launch.actors.asynchronous:
                batch.checks.asynchronous.stuck()
        message, others, site = deadlock_message(self.reporter, batches, queued, resident)
        hint = "every thread of a barrier must reach it; a flag must be set by a thread that can still run"
        if queued:
            hint = f"launch at most {resident} blocks where blocks wait for each other"
        self.reporter.general("deadlock", message, hint, others, site)


def _cells(first: int, last: int, shared: bool) -> tuple[Array, Array]:
    """The cells of a range of global memory, if there is memory for them; with `shared` lines or not."""
    try:
        return new_cells((last - first + 7) // 4 + 1, first, shared)
    except MemoryError:
        raise MisuseError(
            f"the arrays that the kernel may write lie in {last - first:,} bytes, and the race check has no memory for "
            f"that many: make them smaller, or launch with checks=False (--no-checks)"
        ) from None


def _clusters(launch: Launch) -> Array:
    """The cluster number of each CTA; empty if each CTA is its own cluster."""
    if prod(launch.cluster) == 1:
        return np.zeros(0, np.int64)
    count = prod(launch.grid) // prod(launch.cluster)
    members = cluster_members(launch.grid, launch.cluster, np.arange(count))
    clusters: Array = np.zeros(members.size, np.int64)
    clusters[members] = np.arange(count)[:, None]
    return clusters


def active_lanes_of(lanes: Lanes) -> Array:
    """Lane numbers of a set."""
    numbers = lanes.lane_numbers()
    return numbers if lanes.mask is None else numbers[lanes.mask]
