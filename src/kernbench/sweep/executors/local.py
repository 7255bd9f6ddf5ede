"""Sweeps on this machine: in this process, or in processes whose crash does not affect other points."""

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

import kernbench
from kernbench.safety.children import CRASHES, OVERFLOWED, is_deep
from kernbench.sweep.executors.base import Done, Limits, Passes
from kernbench.sweep.executors.printed import Printed, descendants, made
from kernbench.sweep.executors.worker import FINISHED, LEAVING, PASSED, STACK_SIGNAL, Descriptor, check_memory, work
from kernbench.sweep.planning.plan import Plan, Position
from kernbench.sweep.planning.points import Failure, Row
from kernbench.sweep.planning.supply import Part, Supply

_BEAT = 1.0
_GRACE = 2.0
_SOME = 64
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_PACKAGE = str(Path(kernbench.__file__).parent)


class Here:
    """This process, one point after the other: an exception becomes a row, but a crash ends the sweep."""

    workers = 1

    def results(self, plan: Plan, supply: Supply) -> Generator[list[Done], None, None]:
        """The results of the points of each part."""
        passes = Passes()
        while (part := supply.take(0)) is not None:
            rows = passes.judged(plan, part.group).rows(part.group.rates)
            positions = iter(part.positions)
            while done := [(position, next(rows)) for position in islice(positions, _SOME)]:
                yield done


@dataclass
class _Worker:
    """A process, its current part, and the deadline of its next message."""

    number: int
    process: Any
    pipe: Connection
    stacks: IO[bytes]
    printed: Printed | None = None
    part: Part | None = None
    done: int = 0
    passed: bool = False
    due: float = 0.0
    since: float = 0.0


class Processes:
    """Separate processes. A point whose process dies, or exceeds its limits, is a failed row."""

    def __init__(self, workers: int, limits: Limits | None = None):
        self.workers = max(1, workers)
        self._limits = limits or Limits()
        check_memory(self._limits.memory)

    def results(self, plan: Plan, supply: Supply) -> Generator[list[Done], None, None]:
        """The results of the points, as workers send them."""
        crew = Crew(plan, self.workers, self._limits)
        try:
            yield from crew.results(supply)
        finally:
            crew.end()


class Parts(Protocol):
    """The source of parts: a `Supply`, or a substitute."""

    def take(self, worker: int) -> Part | None:
        """The next part for a worker."""

    def learn(self, points: int, seconds: float) -> None:
        """Record the time of this many points."""


class Crew:
    """The processes of one sweep."""

    def __init__(self, plan: Plan, workers: int, limits: Limits):
        self._plan, self._limits = plan, limits
        self._parent = os.getpid()
        self._supply: Parts
        self._context = _context()
        self._free = list(range(workers))
        self._busy: dict[Connection, _Worker] = {}
        self._idle: list[_Worker] = []
        self._again: deque[Part] = deque()
        # passes that killed their process: their other points need not be tried
        self._deadly: dict[Position, Failure] = {}
        self._suspected: set[Position] = set()

    def is_of(self, plan: Plan, limits: Limits, parent: int) -> bool:
        """Whether these processes are for that plan, with these limits, and children of this process."""
        return (self._plan, self._limits, self._parent) == (plan, limits, parent)

    def results(self, supply: Parts) -> Iterator[list[Done]]:
        """All results, until the supply is empty and all workers are done."""
        self._supply = supply
        while True:
            yield from self._hand_out()
            if not self._busy:
                return
            sources = wait(self._sources(), timeout=min(_BEAT, self._patience()))  # type: ignore[arg-type]
            pipes = [one for one in sources if not _is_printed(one)]
            for pipe in pipes:
                worker = self._busy[pipe]  # type: ignore[index]
                yield self._heard(worker)
            if not pipes:
                yield []
            for worker in [w for w in self._busy.values() if time.monotonic() > w.due]:
                yield self._late(worker)

    def _sources(self) -> list[Connection | Printed]:
        """What may have something to read."""
        printed = [worker.printed for worker in self._busy.values()]
        return [*self._busy, *(one for one in printed if one is not None and not one.ended)]

    def end(self) -> None:
        """End all processes at once."""
        for worker in [*self._busy.values(), *self._idle]:
            self._dismiss(worker)
        self._busy, self._idle = {}, []

    def _hand_out(self) -> Iterator[list[Done]]:
        """Give every idle worker a part, as long as there are any."""
        waiting = [*(worker.number for worker in self._idle), *self._free]
        for number in waiting:
            part = self._next(number)
            while part is not None and part.choice in self._deadly:
                row = self._deadly[part.choice].row()
                yield [(position, row) for position in part.positions]
                part = self._next(number)
            if part is not None:
                self._begin(self._called(number), part)

    def _next(self, number: int) -> Part | None:
        return self._again.popleft() if self._again else self._supply.take(number)

    def _called(self, number: int) -> _Worker:
        """The worker with this number; starts a process if it has none."""
        for worker in self._idle:
            if worker.number == number:
                self._idle.remove(worker)
                return worker
        self._free.remove(number)
        return self._started(number)

    def _started(self, number: int) -> _Worker:
        here, there = self._context.Pipe()
        stacks = TemporaryFile()  # noqa: SIM115 - closed with the worker
        printed = made()
        files = Descriptor(stacks.fileno()), Descriptor(None if printed is None else printed.writing)
        arguments = (there, self._plan, self._limits, os.getpid(), *files)
        process = self._context.Process(target=work, args=arguments, daemon=True)  # type: ignore[attr-defined]
        with warnings.catch_warnings():
            # libraries have threads of their own (BLAS), which tolerate a fork
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        there.close()
        if printed is not None:
            os.close(printed.writing)
        return _Worker(number, process, here, stacks, printed)

    def _begin(self, worker: _Worker, part: Part) -> None:
        worker.part, worker.done, worker.passed = part, 0, False
        worker.since = time.monotonic()
        worker.due = self._due()
        self._busy[worker.pipe] = worker
        with contextlib.suppress(OSError):
            # a dead worker is noticed when its answer is due
            worker.pipe.send(part)

    def _due(self) -> float:
        return time.monotonic() + self._limits.seconds if self._limits.seconds else float("inf")

    def _patience(self) -> float:
        return max(0.0, min(w.due for w in self._busy.values()) - time.monotonic()) + 0.01

    def _heard(self, worker: _Worker) -> list[Done]:
        """Handle a worker's message: that its kernel has run, rows, the end of its part, or the end of the process."""
        try:
            heard = worker.pipe.recv()
        except (EOFError, OSError):
            return self._lost(worker, _ending(worker))
        worker.due = self._due()
        assert worker.part is not None
        if heard == PASSED:
            worker.passed, worker.since = True, time.monotonic()
            return []
        if heard in (FINISHED, LEAVING):
            self._supply.learn(worker.done, time.monotonic() - worker.since)
            self._busy.pop(worker.pipe)
            self._dismiss(worker) if heard == LEAVING else self._idle.append(worker)
            return []
        rows: list[Row] = heard
        first, worker.done = worker.done, worker.done + len(rows)
        return list(zip(worker.part.positions[first : worker.done], rows, strict=True))

    def _dismiss(self, worker: _Worker) -> None:
        """Replace this process by a new one."""
        _kill(worker)
        self._free.append(worker.number)

    def _late(self, worker: _Worker) -> list[Done]:
        """Kill a worker that missed its deadline; its last location is part of the failure."""
        where = _where(worker, ask=True)
        why = f"out of time: more than the {self._limits.seconds:g} s of --max-seconds"
        return self._lost(worker, Failure(why, where))

    def _lost(self, worker: _Worker, why: Failure) -> list[Done]:
        """Handle the end of a worker: which point is to blame, and what is retried."""
        self._busy.pop(worker.pipe)
        self._dismiss(worker)
        part = worker.part
        if part is None or worker.done == len(part.positions):
            return []
        left = part.rest(worker.done, careful=True)
        if not worker.passed:
            return self._lost_in_pass(left, why, worker)
        if not part.careful and len(left.positions) > 1:
            # retry one whose result was not sent yet
            self._again.append(left)
            return []
        if len(left.positions) > 1:
            self._again.append(left.rest(1, careful=True))
        return [(left.positions[0], why.row())]

    def _lost_in_pass(self, part: Part, why: Failure, worker: _Worker) -> list[Done]:
        """The kernel killed its process; it is retried only if another point may be to blame."""
        killed = worker.process.exitcode == -getattr(signal, "SIGKILL", 9) and not why.why.startswith("out of time")
        if killed and part.choice not in self._suspected:
            self._suspected.add(part.choice)
            self._again.append(part)
            return []
        self._deadly[part.choice] = why
        return [(position, why.row()) for position in part.positions]


def _context() -> BaseContext:
    """Linux forks, which is fast. Elsewhere libraries do not support it, and if this process has other threads
    the child might wait for ever for a lock that one of them held.
    """
    forks = sys.platform.startswith("linux") and threading.active_count() == 1
    return multiprocessing.get_context("fork" if forks else "spawn")


def _is_printed(source: object) -> bool:
    """Whether it was something printed, which is passed on."""
    if isinstance(source, Printed):
        source.pass_on()
    return isinstance(source, Printed)


def _kill(worker: _Worker) -> None:
    """End a process with the programs that it has started."""
    started = descendants(worker.process.pid)
    worker.process.kill()
    for one in started:
        with contextlib.suppress(OSError):
            os.kill(one, signal.SIGKILL)
    worker.process.join()
    worker.pipe.close()
    worker.stacks.close()
    if worker.printed is not None:
        worker.printed.close()


def _ending(worker: _Worker) -> Failure:
    """How a process ended, in words."""
    worker.process.join(_GRACE)
    code = worker.process.exitcode
    if code is None:
        return Failure("its process closed its pipe", _where(worker))
    if code >= 0:
        where = _where(worker)
        called = ": os._exit was called" if where else ""
        return Failure(f"its process ended with exit code {code}{called}", where)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = ": the system may have run out of memory; --max-memory limits each point" if name == "SIGKILL" else ""
    deep = OVERFLOWED if -code in CRASHES and is_deep(_trace(worker)) else ""
    return Failure(f"its process was killed by {name}{memory}{deep}", _where(worker))


def _trace(worker: _Worker) -> str:
    """The stack that a process has written."""
    worker.stacks.seek(0)
    return worker.stacks.read().decode(errors="replace")


def _where(worker: _Worker, ask: bool = False) -> str:
    """The line of the kernel, or of what it called, at which a process died, if known."""
    if ask and STACK_SIGNAL is not None:
        with contextlib.suppress(OSError, TypeError):
            os.kill(worker.process.pid, STACK_SIGNAL)
            end = time.monotonic() + _GRACE
            while not os.fstat(worker.stacks.fileno()).st_size and time.monotonic() < end:
                time.sleep(0.01)
    frames = [(m["file"], m["line"]) for m in _FRAME.finditer(_trace(worker))]
    own = [f for f in frames if not f[0].startswith((_PACKAGE, sys.prefix, sys.base_prefix, "<"))]
    return ":".join(own[0]) if own else ""
