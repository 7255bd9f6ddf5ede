"""Running the points of a sweep from the command line: progress, how long it will take, where it runs."""

import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import typer

from kernbench.cli.output.console import errors, progress
from kernbench.common.errors import BenchError, MachineError
from kernbench.machine.units import parse

if TYPE_CHECKING:
    from rich.progress import Progress

    from kernbench.sweep import Executor, Limits, Plan, Store
    from kernbench.sweep.executors import Done
    from kernbench.sweep.planning.plan import Position

# functional passes above which a person is asked
_MANY_PASSES = 1000
# seconds after which it is known how long a sweep takes, and how long it takes at least to be worth a word
_KNOWN, _LONG = 3.0, 60.0
# seconds between two looks at the progress line
_REFRESH = 0.2


class _Shown:
    """A store whose growth is seen: on the progress line, and, of a long sweep, in a sentence."""

    def __init__(self, store: "Store", bar: "Progress", done: int):
        self._store, self._bar = store, bar
        self._begin, self._left, self._new = time.monotonic(), store.plan.points - done, 0
        self._silent = self._waits = False
        self._seen = 0.0

    @property
    def held(self) -> int:
        """How many points another sweep is at."""
        return self._store.held

    def forget_held(self) -> None:
        """Begin to count anew."""
        if self._store.held and not self._waits:
            self._waits = True
            errors().print(f"waiting for {self._store.held:,} points that another sweep is at", soft_wrap=True)
        self._store.forget_held()

    def claim(self, positions: "list[Position]") -> "list[Position]":
        """As the store does."""
        return self._store.claim(positions)

    def keep(self, done: "list[Done]") -> None:
        """As the store does."""
        self._store.keep(done)
        self._bar.advance(self._bar.task_ids[0], len(done))
        self._refresh()
        self._new += len(done)
        passed = time.monotonic() - self._begin
        if not self._silent and passed > _KNOWN and self._new:
            self._silent = True
            left = passed * (self._left - self._new) / self._new
            if left > _LONG:
                rate = f"{self._new / passed:,.3g} points a second"
                errors().print(f"{self._left - self._new:,} points left, {rate}: {_span(left)}", soft_wrap=True)

    def _refresh(self) -> None:
        if time.monotonic() - self._seen > _REFRESH:
            self._seen = time.monotonic()
            self._bar.refresh()


def _span(seconds: float) -> str:
    """A stretch of time as people say it."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"about {seconds / size:,.0f} {unit}"
    return f"about {seconds:,.0f} s" if seconds >= 1 else "less than a second"


def run_points(store: "Store", pool: "AbstractContextManager[Executor]", title: str, yes: bool) -> None:
    """Run what is not done yet, and keep it."""
    from kernbench.sweep import run_sweep

    plan = store.plan
    with pool as executor, progress(plan.points, by_itself=False) as bar:
        done = store.counts().done
        if done:
            errors().print(f"going on: {store.file} holds {done:,} of {plan.points:,} points", soft_wrap=True)
        bar.update(bar.task_ids[0], description=title, completed=done)
        shown = _Shown(store, bar, done)
        try:
            if plan.passes > _MANY_PASSES and not yes:
                _ask(plan, executor, shown, done, bar)
            run_sweep(plan, executor, shown)
        except KeyboardInterrupt:
            done = store.counts().done
            held = f"{store.file} holds {done} of {plan.points} points" if done else "no point is done"
            errors().print(f"stopped: {held}; the same command goes on", soft_wrap=True)
            raise


def _ask(plan: "Plan", executor: "Executor", shown: _Shown, done: int, bar: "Progress") -> None:
    """Run one pass of very many, say how long all of them will take, and let a person decide."""
    from kernbench.sweep import run_sweep

    left = plan.passes - done // plan.in_group()
    if left <= _MANY_PASSES:
        return
    begin = time.monotonic()
    run_sweep(plan, executor, shown, passes=1)
    seconds = (time.monotonic() - begin) * left / executor.workers
    says = f"the kernel has to run {left:,} times, which takes {_span(seconds)}"
    if not sys.stdin.isatty():
        raise BenchError(f"{says}; say --yes to begin, or sweep fewer values (rates of the machine need no run)")
    bar.stop()
    typer.confirm(f"{says}; begin?", abort=True, err=True)
    bar.start()


def executor(jobs: int, ray: str | None, limits: "Limits") -> "AbstractContextManager[Executor]":
    """The cluster, or this machine."""
    from kernbench.bench.cluster import refuse_jobs
    from kernbench.sweep import Processes, RayCluster

    if ray is None:
        return nullcontext(Processes(jobs or os.cpu_count() or 1, limits))
    refuse_jobs(jobs)
    return RayCluster(ray, limits)


def memory_limit(text: str | None) -> int | None:
    """The bytes that --max-memory names; None without it."""
    if text is None:
        return None
    try:
        return int(parse(text, "bytes"))
    except MachineError as error:
        raise BenchError(f"--max-memory {text}: {error}") from None
