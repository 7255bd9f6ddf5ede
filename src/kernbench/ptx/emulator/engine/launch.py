"""A launch: CTAs run in batches, as many at once as are resident, until all have exited or none can continue."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from weakref import WeakSet

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.copies.tensors import TensorMaps
from kernbench.ptx.emulator.asynchronous.journal import Journal
from kernbench.ptx.emulator.engine.batch import Batch
from kernbench.ptx.emulator.engine.machine import Architecture
from kernbench.ptx.emulator.engine.schedule import Schedule
from kernbench.ptx.emulator.engine.spinning import EndlessError
from kernbench.ptx.emulator.engine.splitting import CannotSplitError, Division, RestartError, Splitting
from kernbench.ptx.emulator.engine.ticking import Time
from kernbench.ptx.emulator.engine.waves import Waves
from kernbench.ptx.emulator.engine.ways import ARRIVED, MOST, WOKEN
from kernbench.ptx.emulator.fast_paths import ALL, FastPaths
from kernbench.ptx.emulator.inspect.naming import Naming
from kernbench.ptx.emulator.inspect.probing import Probe
from kernbench.ptx.emulator.instructions.calls.externals import MOST_LINES, needs_heap
from kernbench.ptx.emulator.lanes.actors import Actors
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.arena import Allocation, Arena
from kernbench.ptx.emulator.memory.heap import Heap
from kernbench.ptx.emulator.memory.pages.allocation import require_memory
from kernbench.ptx.emulator.program.meter import Meter
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.emulator.units.observer import LaunchObserver
from kernbench.ptx.emulator.units.recorder import LaunchRecorder
from kernbench.ptx.names.demangling import title
from kernbench.result.run import Status
from kernbench.safety.budget import Budget, OverBudgetError
from kernbench.safety.jobs import one_thread
from kernbench.safety.stopping import StoppedError

Extent = tuple[int, int, int]

# lanes of one batch: enough to amortise the fixed cost of an instruction in Python, few enough for the caches
_LANES = 16384
# bytes that one batch may hold, and bytes per byte of shared memory, its shadow included
_BATCH_BYTES = 1 << 29
_SHADOW = 8
_WORKSPACE = 256


@dataclass(frozen=True)
class Setting:
    """How a program is launched: extents, parameters and their address, addresses of the module's variables.

    - `dynamic_shared`: bytes of dynamic shared memory.
    - `number`: the index of this launch on its device.
    - `clusters`: the numbers of the clusters to run, None for all; without clusters, each block is one.
    - `progress`: called with the number of CTAs that have exited; may raise.
    - `jobs`: processes for CTAs that share nothing.
    - `fast`: which fast paths it may take.
    """

    grid: Extent
    block: Extent
    cluster: Extent
    parameters: bytes
    parameter_address: int
    symbols: dict[str, int]
    dynamic_shared: int
    schedule: Schedule
    budget: Budget
    number: int
    clusters: tuple[int, ...] | None = None
    progress: Callable[[int], None] | None = None
    jobs: int = 1
    fast: FastPaths = ALL


class Launch:
    """One launch of a program on a device's memory; `probe` inspects it, `naming` gets the values that it names.

    `attempt` may run it instead: it returns whether it has, and leaves no trace if not.
    """

    # the CTAs that have not begun
    _waiting: Waves | None = None

    def __init__(
        self,
        program: Program,
        arena: Arena,
        machine: Architecture,
        setting: Setting,
        checks: LaunchObserver,
        probe: Probe | None = None,
        naming: Naming | None = None,
        recorder: LaunchRecorder | None = None,
        attempt: "Callable[[Launch], bool] | None" = None,
    ):
        self.program, self.arena, self.machine = program, arena, machine
        self.recorder, self._attempt = recorder or LaunchRecorder(), attempt
        # whether a probe, a recorder or a log of all accesses needs every step
        self.watched = any(one is not None for one in (probe, naming, recorder)) or checks.keeps_order
        self.checks, self.probe, self.naming = checks, probe, naming
        self.grid, self.block, self.cluster = setting.grid, setting.block, setting.cluster
        self.schedule, self.number = setting.schedule, setting.number
        self.fast = setting.fast
        self.threads = prod(self.block)
        self.warps_per_cta = -(-self.threads // WARP)
        self.explicit_cluster = self.cluster != (1, 1, 1)
        self.actors = Actors(self.warps_per_cta, program.asynchronous)
        self.dynamic_shared = setting.dynamic_shared
        self.shared_bytes = program.static_shared + self.dynamic_shared
        self.shared_parts = _shared_parts(program, self.dynamic_shared)
        self.local_bytes = program.local_bytes
        self.budget, self.meter = setting.budget, Meter(setting.budget)
        self.time = Time(self.meter)
        # output of printf
        self.printed: list[str] = []
        self.unfinished = True
        self.tensor_maps = TensorMaps(arena, self.fast.whole_rows)
        self._chosen = setting.clusters
        self._progress = setting.progress
        self._symbols = setting.symbols
        self._parameters = setting.parameters
        self._parameter_address = setting.parameter_address
        self._offsets = {p.name: p.offset for p in program.kernel.params}
        self._live: list[Batch] = []
        # all batches, exited ones included, that are still referenced
        self._batches: WeakSet[Batch] = WeakSet()
        self._made = 0
        self._ended_changes = 0
        self._ended_stores = 0
        # records the first CTAs, if there is asynchronous work to follow
        self.journal: Journal | None = None
        self._follows = checks.checking and program.asynchronous
        self._workspace: Allocation | None = None
        self.uses_heap = needs_heap(program.kernel.module.functions)
        if self.uses_heap and arena.heap is None:
            arena.heap = Heap(arena)
        self.all_ctas = 0
        # how the launch was divided between cores; blocks that take over others cannot be
        self.division = Division()
        self.jobs = setting.jobs if self.fast.processes and not program.cancels_blocks else 1
        self._splitting: Splitting | None = None
        self._alone = False
        checks.begin(self)

    def run(self) -> Status:
        """Run all CTAs."""
        waiting = self._waiting = self.waves()
        self.all_ctas = waiting.left
        resident = self.machine.resident(self.threads, self.shared_bytes)
        try:
            if self.fast.executor and self._is_attempted():
                self.unfinished = False
                return Status.FINISHED
            with np.errstate(all="ignore"), one_thread(), self._divided():
                return self._run(waiting, resident)
        except StoppedError:
            return Status.STOPPED
        except OverBudgetError as spent:
            self.checks.over_budget(str(spent), self.meter)
            return Status.OVER_BUDGET
        except EndlessError as loop:
            self.checks.endless(loop.fragment.window.batch, loop.fragment.lanes, loop.loop, loop.rounds)
            return Status.OVER_BUDGET

    def _is_attempted(self) -> bool:
        """Whether somebody else has run the launch."""
        return self._attempt is not None and self._attempt(self)

    def close(self) -> None:
        """Free what the launch has allocated for itself."""
        if self._workspace is not None:
            self.arena.free(self._workspace)
            self._workspace = None

    def forget(self) -> None:
        """Drop all references; the launch cannot be used any more.

        A launch, its batches and their checks refer to each other. Their memory would otherwise be kept until Python's
        cycle collector runs, which is rare in a large process.
        """
        for batch in tuple(self._batches):
            batch.forget()
        if self.checks.checking:
            vars(self.checks).clear()
        vars(self).clear()

    @contextmanager
    def _divided(self) -> Iterator[None]:
        """Context in which the launch may run on several cores."""
        if self.jobs < 2:
            yield
            return
        self._splitting = splitting = Splitting(self, self.jobs, self._cta_bytes * self.waves().most)
        try:
            yield
        finally:
            splitting.close(not self.unfinished)
            self.division, self._splitting = splitting.division, None

    @property
    def _cta_bytes(self) -> int:
        """Bytes of one resident CTA."""
        registers = sum(rows * np.dtype(bank).itemsize for bank, rows in self.program.table.rows.items())
        lanes = self.warps_per_cta * WARP
        return int(lanes * (registers + 2 * self.local_bytes) + _SHADOW * self.shared_bytes)

    def waves(self) -> Waves:
        """CTA numbers in the order they become resident, a batch at a time."""
        lanes, nbytes = self.warps_per_cta * WARP, self._cta_bytes
        size = prod(self.cluster)
        name, threads = title(self.program.kernel.name), self.threads * size
        require_memory(size * nbytes, f"'{name}' with {threads} threads that run together", "use smaller blocks")
        most = min(_LANES // lanes, _BATCH_BYTES // max(1, nbytes)) // size
        if self.program.cancels_blocks:
            # those that begin leave some for others to take over, also in grids that are resident as a whole
            clusters = prod(self.grid) // size if self._chosen is None else len(self._chosen)
            most = min(most, -(-clusters // 2))
        return Waves(self.grid, self.cluster, max(1, most), self.schedule, self._chosen)

    def _run(self, waiting: Waves, resident: int) -> Status:
        while waiting.left or self._live:
            if not self._live and self._splitting is not None and self._splitting.due(waiting):
                self._splitting.run(waiting)
                continue
            running = sum(batch.ctas for batch in self._live)
            room = waiting.left > 0 and (not self._live or running + waiting.following <= resident)
            if room:
                self._admit(waiting.take())
            elif not self._yielded() and not self._later() and not self._settle():
                self._stuck(waiting.left, resident)
                return Status.DEADLOCKED
            try:
                self._advance()
            except RestartError:
                self._begin_again()
                waiting = self._waiting = self.waves()
            self.report_progress(self.all_ctas - waiting.left - sum(batch.ctas for batch in self._live))
        self.unfinished = False
        return Status.FINISHED

    def report_progress(self, ended: int) -> None:
        """Report that `ended` CTAs have exited."""
        if self._progress is not None and ended < self.all_ctas:
            self._progress(ended)

    @property
    def part(self) -> tuple[int, int] | None:
        """The number of CTAs to run and of all CTAs; None if all are run."""
        chosen, size = self._chosen, prod(self.cluster)
        whole = chosen is None or len(chosen) * size == prod(self.grid)
        return None if chosen is None or whole else (len(chosen) * size, prod(self.grid))

    @property
    def untouched(self) -> bool:
        """Whether the launch can restart without a trace.

        The first batch is running, without findings or output so far.
        """
        return self._made == 1 and self.checks.quiet and not self.printed and self._workspace is None

    def _begin_again(self) -> None:
        """Reset a launch that is `untouched`; its writes to memory have been taken back."""
        for batch in tuple(self._batches):
            batch.forget()
        self._live, self._batches, self._made, self.journal = [], WeakSet(), 0, None
        self.meter.reset()
        self.time = Time(self.meter)
        if self.arena.footprint is not None:
            self.arena.footprint.clear()
        self.checks.begin(self)

    def cancel_cluster(self) -> int:
        """Let a cluster that has not begun never begin: the number of its first CTA, -1 if all have begun."""
        return -1 if self._waiting is None else self._waiting.cancel()

    def run_batch(self, ctas: Array) -> bool:
        """Run CTAs that are resident together; False if they wait for other CTAs."""
        self._admit(ctas)
        self._advance()
        return not self._live

    def _admit(self, ctas: Array) -> None:
        """Make CTAs resident together."""
        self._live.append(Batch(self, ctas))
        self._batches.add(self._live[-1])
        self._made += 1

    def stand_alone(self, time: Time, follows: bool) -> None:
        """Prepare a worker: drop earlier batches, and refuse what depends on all CTAs.

        With `follows`, the first cluster that the worker runs is recorded in the journal.
        """
        self._follows, self.journal = follows and self.program.asynchronous, None
        for batch in tuple(self._batches):
            batch.forget()
        self._live, self._batches, self._alone, self.time = [], WeakSet(), True, time
        self.meter.on_look = None
        self.meter.reset()
        self.meter.keep_way(MOST)
        self.printed.clear()

    def print(self, lines: list[str]) -> None:
        """Add output of printf from a worker."""
        self.printed += lines[: max(0, MOST_LINES - len(self.printed))]

    def _advance(self) -> None:
        """Run all resident batches until each waits for something outside them; drop those that have exited."""
        progress = True
        while progress:
            for batch in self._live:
                batch.scheduler.run()
            for batch in [b for b in self._live if not b.alive_count]:
                batch.agents.drain()
                batch.ended()
                batch.recorder.ended()
                self._ended_changes += batch.port.changes
                self._ended_stores += batch.port.shared_stores
                self._live.remove(batch)
            progress = self._woken() or self._arrived()

    def _woken(self) -> bool:
        """Wake polling loops if memory has changed, and waits whose phase has completed."""
        woken = [batch.scheduler.spinning.wake_changed() for batch in self._live]
        if any(woken):
            self.time.goes_on()
        phases = [batch.scheduler.waiting.wake() for batch in self._live]
        meet = [not passed and batch.scheduler.cluster.wake() for passed, batch in zip(phases, self._live, strict=True)]
        self.meter.mark(4 * any(woken) + 2 * any(phases) + any(meet))
        if any(woken) or any(meet):
            self.meter.lose_way()
        elif any(phases):
            self.meter.happens(WOKEN)
        return any([*woken, *phases, *meet])

    def _arrived(self) -> bool:
        """No warp can continue: complete everything that is in flight, at once."""
        arrived = [batch.agents.drain() for batch in self._live]
        self.meter.mark(8 + any(arrived))
        if any(arrived):
            self.meter.happens(ARRIVED)
        return any(arrived)

    def _yielded(self) -> bool:
        """Wake loops that only yielded to others."""
        woken = [batch.scheduler.spinning.wake_yielded() for batch in self._live]
        if any(woken):
            self.time.polled(self.changes())
        return any(woken)

    def _later(self) -> bool:
        """Only loops that read a clock are left, if any.

        Wake them at a later time, unless that was tried often enough.
        """
        loops = [batch.scheduler.spinning for batch in self._live if batch.scheduler.spinning.timed]
        if not self.time.stands or not loops:
            return False
        progress = any([self.time.moved(self.changes()), *(spinning.left for spinning in loops)])
        if not self.time.leaps(progress):
            return False
        for spinning in loops:
            spinning.wake_timed(progress)
        return True

    def _settle(self) -> bool:
        """Nothing runs and no CTA can become resident: let warps continue without lanes that will never arrive."""
        settled = [batch.scheduler.gathering.settle() for batch in self._live]
        return any(settled)

    def _stuck(self, waiting: int, resident: int) -> None:
        self.checks.deadlock(self._live, waiting, resident)

    def follow(self, batch: Batch) -> Journal | None:
        """The journal for the first batch, if checks are on and there is asynchronous work; else None."""
        if not self._follows or self.journal is not None:
            return None
        self.journal = Journal(batch)
        return self.journal

    @property
    def may_stop(self) -> bool:
        """Whether a probe may stop the launch before its end."""
        return self.probe is not None

    def changes(self) -> int:
        """How often memory has changed."""
        return self._ended_changes + sum(batch.port.changes for batch in self._live)

    def changes_beside_stores_to_shared(self) -> int:
        """As `changes`, without stores of threads to shared memory."""
        return self.changes() - self._ended_stores - sum(batch.port.shared_stores for batch in self._live)

    def addresses_in(self, parameter: str) -> list[int]:
        """The 64-bit words of a parameter; any of them may be a pointer."""
        found = next(p for p in self.program.kernel.params if p.name == parameter)
        data = self._parameters[found.offset : found.offset + found.size]
        return [int.from_bytes(data[n : n + 8], "little") for n in range(0, len(data) - 7, 8)]

    @property
    def parameter_words(self) -> bytes:
        """All parameters, as whole 64-bit words; any of them may be a pointer."""
        return self._parameters.ljust(-(-len(self._parameters) // 8) * 8, b"\0")

    def variable_addresses(self) -> list[int]:
        """The addresses of the module's variables."""
        return list(self._symbols.values())

    @cached_property
    def arguments(self) -> Array:
        """Values of parameters that instructions load: a row of bytes for each, repeated to fill the row."""
        # bytes outside the parameters read as zero
        padded, at = np.frombuffer(self._parameters + b"\0", np.uint8), self.program.argument_bytes
        return padded[np.where((at >= 0) & (at < len(padded)), at, -1)]

    def symbol(self, space: str, name: str) -> int:
        """The address of a module variable or kernel parameter."""
        if space == "param":
            return self._parameter_address + self._offsets[name]
        return self._symbols[name]

    def parameter(self, name: str, offset: int, dtype: str, count: int) -> Array:
        """`count` values at an offset of a kernel parameter."""
        start = self._offsets[name] + offset
        width = np.dtype(dtype).itemsize
        data = self._parameters[start : start + width * count]
        return np.frombuffer(data.ljust(width * count, b"\0"), dtype)

    def grid_workspace(self) -> int:
        """The address of the workspace of a cooperative launch's grid barrier, zero at first."""
        if self._alone:
            raise CannotSplitError("its blocks meet at a barrier of the grid")
        if self._workspace is None:
            zeros = np.zeros(_WORKSPACE, np.uint8)
            self._workspace = self.arena.allocate(_WORKSPACE, "grid barrier", "workspace", zeros)
        return self._workspace.address


def _shared_parts(program: Program, dynamic: int) -> list[tuple[int, int]]:
    """The [begin, end) bytes of the variables in shared memory."""
    parts = [(v.offset, v.offset + v.size) for v in program.shared if v.size is not None]
    return [*parts, (program.static_shared, program.static_shared + dynamic)]
