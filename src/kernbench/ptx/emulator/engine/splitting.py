"""A launch on several cores: its CTAs run in parts, in worker processes, speculatively.

Workers run parts of the grid from the same memory, each as if its part came next. The parts give what they would give
one after the other, to the last bit, if no part reads or writes a byte that another has written, if there is no
finding, and if nothing depends on the progress of other parts (clocks, polling). Then they are merged. Otherwise
their results are dropped, and the launch continues on one core from the state before.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice
from statistics import fmean, median
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from kernbench.common.compiled import seconds_compiling
from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.journal import Journal
from kernbench.ptx.emulator.engine.cutting import Plan, cut, halved
from kernbench.ptx.emulator.engine.ticking import Time
from kernbench.ptx.emulator.engine.waves import Waves
from kernbench.ptx.emulator.engine.ways import merged_steps
from kernbench.ptx.emulator.memory.footprint import NOTHING, Admitted, Footprint, Touched
from kernbench.ptx.emulator.memory.pages.large import Extent
from kernbench.ptx.emulator.program.meter import Counts, now
from kernbench.ptx.emulator.program.program import Program
from kernbench.safety.budget import OverBudgetError
from kernbench.safety.confined import free_bytes
from kernbench.safety.processes.threads import together
from kernbench.safety.processes.workers import Workers, can_fork

if TYPE_CHECKING:
    from kernbench.ptx.emulator.engine.launch import Launch

# minimal expected seconds on one core for a launch to be divided
WORTH = 0.3
# seconds after which an unknown launch is restarted in parts
PATIENCE = 0.15
# assumed fixed cost of a part, in threads, until a launch has shown it
FIXED_THREADS = 1000
# measuring the fixed cost: minimal seconds of a part, minimal ratio of widths, and launches to remember
_ENOUGH, _WIDER, _SHOWN = 0.02, 1.5, 3
# halves of parts are tried if they have this many threads: narrower working sets fit into caches
_NARROW = 4096
# launches by which a width is judged
_JUDGED = 2
# share of the launch's seconds left for one core after a worker has run out of time: enough to show where it is
_LAST_SHARE = 0.1
_LATE = "found that there is no time left"


class CannotSplitError(Exception):
    """A part of the launch depends on other parts."""


class RestartError(Exception):
    """A launch that has changed nothing, or whose changes were undone, restarts in parts."""


@dataclass(frozen=True, slots=True)
class Division:
    """How a launch was run: the number of parts and workers, or the reason for one core."""

    workers: int = 1
    parts: int = 1
    reason: str = ""


@dataclass(slots=True)
class _History:
    """What is known of earlier launches of a program."""

    # seconds on one core, per thread of the grid
    seconds: float = 0.0
    # why its CTAs depend on each other; whether CTAs of one batch may be run apart
    refused: str = ""
    pieces: bool = True
    # CPU seconds per thread of the grid in the last launches, by the threads of the widest part
    rates: dict[int, list[float]] = field(default_factory=dict)
    # fixed cost of a part, in threads, from the last launches that measured it
    fixed: list[float] = field(default_factory=list)


_known: "WeakKeyDictionary[Program, _History]" = WeakKeyDictionary()


def forget() -> None:
    """Forget what is known of all programs: how long they take, and whether their CTAs depend on each other."""
    _known.clear()


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The result of one part of the grid."""

    ctas: int
    touched: Touched
    counts: Counts
    printed: list[str]
    # wall time, and CPU time
    seconds: float
    computed: float
    # the journal of the first cluster, if this part has it and it is followed
    journal: Journal | None


class _NoTime(Time):
    """Time in a part: a clock would depend on earlier parts."""

    def now(self, to_come: int = 0) -> int:
        """Refuse: the value is unknown."""
        raise CannotSplitError("it reads a clock, which counts what the blocks before have run")


class Splitting:
    """Decides whether and how one launch is divided, and merges the parts."""

    def __init__(self, launch: "Launch", jobs: int, batch_bytes: int):
        self._launch = launch
        self._jobs = min(jobs, _most_workers(batch_bytes))
        self._history = _known.setdefault(launch.program, _History())
        self._began = now()
        self._restarted = False
        self._fresh: list[Extent] = []
        self.division = Division()
        self.reason = self._unfit()
        if not self.reason:
            launch.arena.footprint = Footprint(launch.arena)
            launch.meter.on_look = self._look
            # of a program's first launch: memory whose writes can be undone
            self._fresh = [] if self._history.seconds else launch.arena.unwritten_extents()

    def _unfit(self) -> str:
        """Why the launch cannot be divided, "" if it can."""
        launch = self._launch
        if not launch.checks.checking:
            return "only checked accesses show what blocks have in common"
        if not launch.schedule.apart:
            return "the order drawn at random for one batch follows that of the batches before"
        if launch.watched:
            return "somebody looks inside, records it, or asks for the order of all accesses"
        if launch.uses_heap or not launch.arena.private:
            return "its memory is handed out as it runs, or belongs to several processes"
        return self._history.refused or ("" if can_fork() else "this process has threads of its own, or cannot fork")

    def close(self, finished: bool) -> None:
        """The launch has ended: remember how long it took."""
        self._launch.arena.footprint = None
        self._launch.meter.on_look = None
        if finished and self.division.workers == 1:
            self._history.seconds = (now() - self._began) / self._threads(self._launch.all_ctas)
        if self.division.workers == 1:
            self.division = Division(reason=self.reason)

    def _threads(self, ctas: int) -> int:
        return max(1, ctas * self._launch.threads)

    def _refuse(self, reason: str, remember: bool = True) -> bool:
        self.reason = reason
        self._launch.meter.renew(_LAST_SHARE if reason == _LATE else 1.0)
        if remember:
            self._history.refused = reason
        return False

    def due(self, waiting: Waves) -> bool:
        """Called when no CTA runs: whether the waiting CTAs are to be run in parts."""
        if self.reason or not self._launch.checks.quiet or _parts_of(self._plan(waiting)) < 2:
            return False
        left, done = waiting.left, self._launch.all_ctas - waiting.left
        each = self._history.seconds
        if done:
            each = (now() - self._began) / self._threads(done)
        return self._restarted or each * self._threads(left) >= WORTH

    def _look(self) -> None:
        """Called now and then within a batch: restart in parts a launch that takes long and can be undone."""
        launch = self._launch
        if self._restarted or self.reason or now() - self._began < PATIENCE:
            return
        launch.meter.on_look = None
        footprint = launch.arena.footprint
        assert footprint is not None
        if launch.untouched and _parts_of(self._plan(launch.waves())) > 1 and footprint.take_back(self._fresh):
            self._restarted = True
            raise RestartError

    def _plan(self, waiting: Waves) -> Plan:
        """The sizes of the parts of each batch, in clusters; halves if these have proved faster."""
        usual = self._usual(waiting)
        finer = halved(usual)
        here, there = (self._history.rates.get(self._width(waiting, plan), []) for plan in (usual, finer))
        narrowest = min(map(min, finer), default=0) * waiting.size * self._launch.threads
        # the first launch has one-time work; each launch shows whether pieces can be merged
        if not self._history.pieces or self._jobs < 2 or narrowest < _NARROW or len(here) < _JUDGED:
            return usual
        return finer if not there or min(there) < min(here) else usual

    def _width(self, waiting: Waves, plan: Plan) -> int:
        """Threads of the widest part."""
        return max(map(max, plan), default=0) * waiting.size * self._launch.threads

    def _usual(self, waiting: Waves) -> Plan:
        """The fewest parts with which all workers end nearly as early as possible."""
        sizes = waiting.sizes
        if not self._history.pieces or self._jobs < 2 or not sizes:
            return [[size] for size in sizes]
        fixed = median(self._history.fixed) if self._history.fixed else FIXED_THREADS
        return cut(sizes, self._jobs, fixed / (waiting.size * self._launch.threads))

    def run(self, waiting: Waves) -> bool:
        """Run all waiting CTAs in parts; False if the parts depend on each other, which drops their results."""
        plan, first = self._plan(waiting), waiting.given
        self._launch.meter.on_look = None
        sizes = [size for pieces in plan for size in pieces]
        units = len(sizes)
        # the first cluster of each part; the longest parts are started first
        starts = list(accumulate(sizes[:-1], initial=first))
        order = sorted(range(units), key=lambda number: -sizes[number])

        def part(unit: int) -> _Part | str:
            start, size = starts[order[unit]], sizes[order[unit]]
            # the first cluster of the grid is followed, if any
            return self._work(waiting.piece(start, size), start == 0)

        jobs = min(self._jobs, units)
        try:
            workers = _begun(part, units, jobs)
        except OSError:
            return self._refuse("the system has no more processes or files", False)
        try:
            found = self._gathered(workers, units, self._launch.all_ctas - waiting.left)
            # let the workers exit in the background
            workers.stop()
            if found is None:
                return False
            parts = [found[unit] for unit in sorted(range(units), key=order.__getitem__)]
            if not self._counted(parts, plan):
                return False
            self._apply(parts)
        finally:
            workers.close()
        waiting.finish()
        self._remember(parts, self._width(waiting, plan))
        self.division = Division(jobs, units)
        return True

    def _remember(self, parts: list[_Part], width: int) -> None:
        """Remember how long parts of a width took; parts without a path are never cut differently."""
        ctas = sum(part.ctas for part in parts)
        self._history.seconds = sum(part.seconds for part in parts) / self._threads(self._launch.all_ctas)
        if all(part.counts.way is not None and not part.printed for part in parts):
            rates = self._history.rates.setdefault(width, [])
            rates[:] = [*rates, sum(part.computed for part in parts) / self._threads(ctas)][-_JUDGED:]
        shown = _fixed([self._threads(part.ctas) for part in parts], [part.computed for part in parts])
        if shown is not None:
            self._history.fixed = [*self._history.fixed, shown][-_SHOWN:]

    def _gathered(self, workers: Workers, count: int, ended: int) -> dict[int, _Part] | None:
        """The results of all parts, None if they are not independent."""
        here, found = self._launch.arena.footprint, dict[int, _Part]()
        assert here is not None
        # compile its loops while the workers run, and not in several threads
        here.apply(NOTHING)
        admitted = Admitted(here)
        for number, part in workers.results(range(count)):
            if not isinstance(part, _Part):
                self._refuse(str(part), not str(part).startswith("found"))
                return None
            if not admitted.admit(part.touched):
                self._refuse("blocks read or write what other blocks write")
                return None
            found[number] = part
            ended += part.ctas
            self._launch.report_progress(ended)
        return found

    def _counted(self, parts: list[_Part], plan: Plan) -> bool:
        """Merge the counters; False if pieces of a batch do not determine what it would count, or the budget ends."""
        total = Counts()
        following = iter(parts)
        for pieces in plan:
            some = [part for part in islice(following, len(pieces)) if part.ctas]
            steps = self._steps(some)
            if steps is None:
                self._history.pieces = False
                self._restarted = True
                return False
            total.steps += steps
            for part in some:
                total.add(part.counts, False)
        return self._launch.meter.admit(total) or self._refuse("the budget is used up", False)

    def _steps(self, pieces: list[_Part]) -> int | None:
        """The instructions that a batch of these pieces would run, None if the pieces do not determine it."""
        first, *others = (part.counts for part in pieces)
        if others and any(part.printed for part in pieces):
            return None
        if all(other.trail == first.trail for other in others):
            return first.steps
        ways = [way for part in pieces if (way := part.counts.way) is not None]
        if len(ways) < len(pieces):
            return None
        blocks = self._launch.program.blocks
        return merged_steps(ways, [block.rank for block in blocks], [len(block.sites) or 1 for block in blocks])

    def _apply(self, parts: list[_Part]) -> None:
        """Apply the parts' writes; no byte was written by two parts, so several threads may do it."""
        footprint = self._launch.arena.footprint
        assert footprint is not None
        together((partial(footprint.apply, part.touched) for part in parts), self._jobs)
        for part in parts:
            self._launch.print(part.printed)
            if part.journal is not None:
                self._launch.journal = part.journal

    def _work(self, ctas: Array, follows: bool) -> "_Part | str":
        """In a worker: run a part of the grid from the current state; a string says why that is impossible."""
        try:
            return self._run_apart(ctas, follows)
        except CannotSplitError as error:
            return str(error)
        except OverBudgetError as error:
            return _LATE if self._launch.meter.late else f"found {type(error).__name__}"
        except Exception as error:  # whatever it is, it comes again on one core, where it is reported
            return f"found {type(error).__name__}"

    def _run_apart(self, ctas: Array, follows: bool) -> _Part:
        launch, began, computed = self._launch, now(), _computed()
        launch.stand_alone(_NoTime(launch.meter), follows)
        footprint = launch.arena.footprint
        assert footprint is not None
        footprint.clear()
        launch.arena.clear_written()
        if len(ctas) and not launch.run_batch(ctas):
            raise CannotSplitError("blocks wait for each other")
        if not launch.checks.ended_quietly:
            raise CannotSplitError("found something")
        touched = footprint.touched()
        if touched is None:
            raise CannotSplitError("it changes memory in a way that is not followed")
        journal = None if launch.journal is None else launch.journal.closed()
        seconds, computed = now() - began, _computed() - computed
        return _Part(len(ctas), touched, launch.meter.counts(), list(launch.printed), seconds, computed, journal)


def _parts_of(plan: Plan) -> int:
    return sum(map(len, plan))


def _fixed(widths: Sequence[int], seconds: Sequence[float]) -> float | None:
    """The fixed cost of a part, in threads, None if these widths do not show it.

    It is the intercept of the line through the mean of the wider parts and the mean of the narrower ones.
    """
    middle = (min(widths) + max(widths)) / 2
    if max(widths) < _WIDER * min(widths) or min(seconds) < _ENOUGH:
        return None
    wider, narrower = list[tuple[int, float]](), list[tuple[int, float]]()
    for one in zip(widths, seconds, strict=True):
        (wider if one[0] >= middle else narrower).append(one)
    more, fewer = (fmean(width for width, _ in some) for some in (wider, narrower))
    longer, shorter = (fmean(spent for _, spent in some) for some in (wider, narrower))
    each = (longer - shorter) / (more - fewer)
    # if wider parts take no longer, the fixed cost is at least the widest width
    return min(max(0.0, shorter / each - fewer), more) if each > 0 else more


def _begun(part: Callable[[int], _Part | str], units: int, jobs: int) -> Workers:
    """Workers that have begun with parts; OSError if the system is out of processes or files."""
    workers = Workers(part)
    try:
        # the first worker runs while the others are forked
        workers.begin(range(units))
        workers.add(jobs)
    except BaseException:
        workers.close()
        raise
    return workers


def _computed() -> float:
    """CPU seconds of this process, without compilation of the emulator's own loops."""
    return time.process_time() - seconds_compiling()


def _most_workers(batch_bytes: int) -> int:
    """How many workers fit into free memory."""
    free = free_bytes()
    return 1 << 16 if free is None else max(1, free // (4 * max(1, batch_bytes)))
