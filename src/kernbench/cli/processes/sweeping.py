"""Runs the points of a sweep from the command line: progress, estimated duration, choice of machine."""

import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import typer

from kernbench.cli.output.console import errors, progress
from kernbench.common.errors import BenchError

if TYPE_CHECKING:
    from rich.progress import Progress

    from kernbench.sweep import Executor, Limits, Plan, Store
    from kernbench.sweep.executors import Done
    from kernbench.sweep.planning.plan import Position

# functional passes above which the user is asked
_MANY_PASSES = 1000
# seconds after which the duration can be estimated, and the least duration that is reported
_KNOWN, _LONG = 3.0, 60.0
# passes per worker before the user is asked
_TRIED = 4
# seconds between two refreshes of the progress line
_REFRESH = 0.2


class Pace:
    """The rate of points since the first one: what comes before is the start of processes, the import of the bench
    and compiling, which later points do not repeat.
    """

    def __init__(self) -> None:
        self._first = self._last = 0.0
        self._points = self._before = 0

    @property
    def seconds(self) -> float:
        """The length of the measurement."""
        return self._last - self._first

    def note(self, points: int, now: float) -> None:
        """Record that this many points were done."""
        if not points:
            return
        if not self._points:
            self._first, self._before = now, points
        self._last, self._points = now, self._points + points

    def takes(self, points: float) -> float:
        """Estimated seconds for this many more points; None if not known yet."""
        come = self._points - self._before
        return self.seconds * points / come if come else 0.0


class _Shown:
    """A store that reports its growth on the progress line and, for a long sweep, in a sentence."""

    def __init__(self, store: "Store", bar: "Progress", done: int):
        self._store, self._bar = store, bar
        self._left, self._new = store.plan.points - done, 0
        self.pace = Pace()
        self._silent = self._waits = False
        self._seen = 0.0

    @property
    def held(self) -> int:
        """How many points another sweep is working on."""
        return self._store.held

    def forget_held(self) -> None:
        """Reset the count."""
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
        self.pace.note(len(done), time.monotonic())
        if not self._silent and self.pace.seconds > _KNOWN:
            self._silent = True
            left = self.pace.takes(self._left - self._new)
            if left > _LONG:
                rate = f"{1 / self.pace.takes(1):,.3g} points a second so far"
                errors().print(f"{self._left - self._new:,} points left, {rate}: {_span(left)}", soft_wrap=True)

    def _refresh(self) -> None:
        if time.monotonic() - self._seen > _REFRESH:
            self._seen = time.monotonic()
            self._bar.refresh()


def _span(seconds: float) -> str:
    """A duration in words."""
    for unit, size in (("years", 31_557_600), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"about {seconds / size:,.0f} {unit}"
    return f"about {seconds:,.0f} s" if seconds >= 1 else "less than a second"


def run_points(store: "Store", pool: "AbstractContextManager[Executor]", title: str, yes: bool) -> None:
    """Run the points that are not done yet, and store them."""
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
    """Run some of very many passes, report the estimated duration of all, and let the user decide."""
    from kernbench.sweep import run_sweep

    left = plan.passes - done // plan.in_group()
    if left <= _MANY_PASSES:
        return
    begin = time.monotonic()
    run_sweep(plan, executor, shown, passes=1)
    seconds = time.monotonic() - begin
    tried = 1
    if seconds < _KNOWN:
        # most of that was start-up; a few more per worker show the true rate
        shown.pace = Pace()
        more = max(1, min(_TRIED * executor.workers, left // 10))
        run_sweep(plan, executor, shown, passes=more)
        tried += more
        seconds = shown.pace.takes(plan.in_group()) * executor.workers or seconds
    left -= tried
    span = _span(seconds * left / executor.workers)
    pace = "the first one" if tried == 1 else f"the first {tried}"
    says = f"the kernel has to run {left:,} more times, which takes {span} if all take as long as {pace}"
    if not sys.stdin.isatty():
        raise BenchError(f"{says}; say --yes to begin, or sweep fewer values (rates of the machine need no run)")
    bar.stop()
    typer.confirm(f"{says}; begin?", abort=True, err=True)
    bar.start()
    shown.pace = Pace()


def executor(jobs: int, ray: str | None, limits: "Limits") -> "AbstractContextManager[Executor]":
    """The cluster, or this machine."""
    from kernbench.bench.cluster import refuse_jobs
    from kernbench.sweep import Processes, RayCluster

    if ray is None:
        return nullcontext(Processes(jobs or os.cpu_count() or 1, limits))
    refuse_jobs(jobs)
    return RayCluster(ray, limits)
