"""A launch by the executor: it ends without a suspect, or everything that it wrote is taken back.

The executor clears launches in which nothing is wrong. Whatever its fast tests cannot clear ends the run; then memory
is as before, and the emulator runs the launch from the beginning and says what is wrong, if anything is.
"""

import logging
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from threading import Lock
from weakref import WeakKeyDictionary

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.analysis.building import take_decoded
from kernbench.ptx.emulator.analysis.undefined.definedness import unset_accumulators
from kernbench.ptx.emulator.engine.launch import Launch
from kernbench.ptx.emulator.engine.schedule import Schedule
from kernbench.ptx.emulator.program.layout import RESERVED
from kernbench.ptx.emulator.program.meter import Counts
from kernbench.ptx.emulator.program.program import Program, WaitLoop
from kernbench.ptx.executor.block_state import BlockState, Shared
from kernbench.ptx.executor.kept_rows import kept_or_made
from kernbench.ptx.executor.ops import layout
from kernbench.ptx.executor.ops.bulk_copies import MOST_MAPS
from kernbench.ptx.executor.prepared import prepared
from kernbench.ptx.executor.rows import Rows, UnsupportedError, rows_of
from kernbench.ptx.executor.stamps import stamps_of
from kernbench.ptx.executor.tables import accesses_of, arrays_of

_LOG = logging.getLogger(__name__)
# seconds between looks at the clock
_SLICE = 0.05
# seconds of work that one thread does alone
_ALONE = 0.01
_MOST_WARPS = 32
# warps that run an instruction together in the emulator, at most
_TOGETHER = 512

_ROWS: "WeakKeyDictionary[Program, Rows | str]" = WeakKeyDictionary()
# how often a program that was never run to its end was suspect; after so many times it is not tried again
_SUSPECT: "WeakKeyDictionary[Program, int]" = WeakKeyDictionary()
_PATIENCE, _MOST_LAUNCHES = 3, 1 << 60
# the addresses of the tensor maps that a program has used
_MAPS: "WeakKeyDictionary[Program, tuple[int, ...]]" = WeakKeyDictionary()


def rows_for(program: Program) -> Rows | str:
    """The rows of a program, or why the executor cannot run it."""
    found = _ROWS.get(program)
    if found is None:
        found = _ROWS[program] = kept_or_made(program, lambda: _made_or_reason(program))
        _LOG.debug("%s: %s", program.kernel.name, found if isinstance(found, str) else "rows")
    return found


def _made_or_reason(program: Program) -> Rows | str:
    try:
        return _made(program)
    except UnsupportedError as error:
        return str(error)


def _made(program: Program) -> Rows:
    if program.volatile_sites:
        raise UnsupportedError("volatile accesses")
    if program.takes_stack or program.local_bytes or len(program.codes) != 1:
        raise UnsupportedError("calls or local memory")
    if any(variable.name == RESERVED for variable in program.shared):
        raise UnsupportedError("memory that the system reserves")
    if any(block.wait_loop is not None and _may_wait(block.wait_loop) for block in program.blocks):
        raise UnsupportedError("a loop that waits")
    decoded = take_decoded(program)
    unset = unset_accumulators(decoded.bodies[0]) if program.undefined_registers else []
    if unset is None or any(register.bank != "uint32" for register in unset):
        raise UnsupportedError("registers that may be read before they are set")
    ends = frozenset(block.number for block in program.blocks if block.ends)
    return rows_of(decoded, ends, [(register.bank, register.row) for register in unset])


def _may_wait(loop: WaitLoop) -> bool:
    """Whether a loop seems to wait for another thread, which may not have begun; others end, or use up the budget."""
    return (loop.waits and not loop.for_mbarriers) or loop.takes or loop.timed


def is_run(launch: Launch) -> bool:
    """Run a launch; False if the emulator has to, with memory as before."""
    if not _fits(launch):
        return False
    program = launch.program
    rows = rows_for(program)
    if isinstance(rows, str) or _SUSPECT.get(program, 0) >= _PATIENCE:
        return False
    try:
        done = _is_done(launch, rows)
    except (UnsupportedError, MemoryError, RuntimeError, OSError) as error:
        # there may be no compiler here, or no addresses for stamps
        _LOG.debug("%s: %s", program.kernel.name, error)
        return False
    # one that was run once is worth every further attempt
    _SUSPECT[program] = _SUSPECT.get(program, 0) + 1 if not done else -_MOST_LAUNCHES
    return done


def _is_done(launch: Launch, rows: Rows) -> bool:
    """Run a launch; again from the beginning for each tensor map that was not known before."""
    program = launch.program
    threads = min(launch.jobs, prod(launch.grid)) if rows.is_parallel else 1
    while True:
        run = _Run(launch, rows, threads)
        if run.go():
            return True
        address = run.unknown_map
        known = _MAPS.get(program, ())
        if not address or address in known:
            if threads == 1:
                return False
            # blocks that touch each other's words may still be right one after the other
            threads = 1
            continue
        # a program may have other maps in each launch
        _MAPS[program] = (*known[1 - MOST_MAPS :], address)


def _fits(launch: Launch) -> bool:
    """Whether a launch asks for nothing that only the emulator does."""
    return (
        not launch.watched
        and type(launch.schedule) is Schedule
        and launch.part is None
        and prod(launch.cluster) == 1
        and not launch.uses_heap
        and launch.arena.aliases is None
        and launch.warps_per_cta <= _MOST_WARPS
    )


class _Run:
    """One launch: its tables, and the threads that run its blocks."""

    def __init__(self, launch: Launch, rows: Rows, threads: int):
        self.launch, self.blocks = launch, prod(launch.grid)
        stamps = stamps_of(launch.arena)
        first, ready = stamps.begin(self.blocks), prepared(launch.program, rows)
        arrays, self._held = arrays_of(launch, stamps)
        written = sum(held.count for held in self._held)
        maps, accesses = _MAPS.get(launch.program, ()), accesses_of(launch)
        self._shared = Shared(launch, rows, ready, first, stamps.epoch, arrays, accesses, written, maps, threads)
        self.states = [BlockState(self._shared)]
        self._turn, self._next, self._done = Lock(), 0, 0
        self._others: list[Future[None]] = []

    def go(self) -> bool:
        """Run all blocks; False after a suspect, with everything taken back."""
        try:
            with ThreadPoolExecutor(self._shared.threads) as pool:
                try:
                    self._work(self.states[0], pool)
                    for other in self._others:
                        other.result()
                except BaseException:
                    # the others end soon
                    self._next = self.blocks
                    raise
        except BaseException:
            self._take_back()
            raise
        if self._done < self.blocks:
            self._take_back()
            return False
        self._count()
        return True

    def _call_others(self, pool: ThreadPoolExecutor) -> None:
        """The other threads begin."""
        states = [BlockState(self._shared) for _ in range(1, self._shared.threads)]
        with self._turn:
            self.states += states
        self._others = [pool.submit(self._work, state) for state in states]

    def _work(self, state: BlockState, pool: ThreadPoolExecutor | None = None) -> None:
        """Run blocks until there are none left, or there is a suspect; with a pool, others are called for long work."""
        launch, step = self.launch, 1
        while True:
            with self._turn:
                first = self._next
                last = self._next = min(self.blocks, first + step)
            if first >= last:
                return
            began = time.monotonic()
            state.run(first, last)
            with self._turn:
                if state.words[layout.SUSPECT] or launch.meter.late or self._steps() > launch.budget.steps:
                    self._report(state)
                    self._next = self.blocks
                    return
                self._done += last - first
                # the first blocks take longer than the others, and say little of them
                if self._done * launch.warps_per_cta >= _TOGETHER:
                    launch.report_progress(self._done)
            spent = time.monotonic() - began
            left = (self.blocks - self._next) * spent / (last - first)
            if pool is not None and len(self.states) < self._shared.threads and left > _ALONE:
                self._call_others(pool)
            step = max(1, min(4 * step, int(step * _SLICE / max(spent, 1e-6))))
            # no thread takes what would keep the others waiting at the end
            step = min(step, max(1, (self.blocks - self._next) // (2 * self._shared.threads)))

    @property
    def unknown_map(self) -> int:
        """The address of a tensor map that was not known, 0 if there was none."""
        return max(int(state.block[layout.UNKNOWN_MAP]) for state in self.states)

    def _report(self, state: BlockState) -> None:
        """Log why the emulator takes over."""
        number = int(state.words[layout.SUSPECT_SITE])
        text = self.launch.program.sites[number].text if number >= 0 else "a barrier, or the end of a block"
        _LOG.debug("%s: suspect %d at %s", self.launch.program.kernel.name, state.words[layout.SUSPECT], text)

    def _take_back(self) -> None:
        for state in self.states:
            state.take_back()

    def _steps(self) -> int:
        """Instructions so far, each counted once for all warps that could run it together."""
        warps = self.launch.warps_per_cta * self.blocks
        counted = sum((state.counts[1] for state in self.states[1:]), self.states[0].counts[1])
        return -(-self.launch.program.measures.instructions_in(counted) // min(warps, _TOGETHER))

    def _count(self) -> None:
        """What was run counts."""
        counts: Array = sum((state.counts for state in self.states[1:]), self.states[0].counts)
        lanes, warps = (Counter({n: count for n, count in enumerate(row.tolist()) if count}) for row in counts)
        self.launch.meter.admit(Counts(lanes, warps, self._steps()))
