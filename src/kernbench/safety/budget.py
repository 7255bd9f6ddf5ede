"""Budgets: a launch ends, whatever its kernel does. Steps are counted; a watchdog stops a kernel that only computes.

The watchdog raises `OverBudgetError` inside the running program from outside. A program that swallows even that is left
where it stands: the exception's own end runs in the program, and hands control back to the scheduler. Only a kernel
that blocks inside a C call (a sleep, a read from a pipe) cannot be reached; it ends when the call does.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from kernbench.common.errors import MisuseError

if TYPE_CHECKING:
    import pdb

_ROOM = 100
# seconds between two looks at a program
_LOOK = 1.0


# the source of a budget whose steps grow with the work of a launch; those of a budget that somebody gave do not
FOLLOWS_WORK = "the least that any program may dispatch"
GIVEN = "given with the launch"
# commands for which no launch needs to announce its work
LEAST_STEPS = 1_000_000
# seconds of computing in which a launch without data has recorded tens of millions of commands, gigabytes of rows
TOTAL_WITHOUT_DATA = 300.0


@dataclass(frozen=True)
class Budget:
    """How much a launch may use: commands of one program (on the npu rows of one block, and twenty times as many in
    all), seconds one program may go without a command, and seconds of computing (CPU time) for the whole launch.

    `source` says where the steps come from. With `FOLLOWS_WORK` they are a least number, which grows with the work that
    is announced for the launch; a budget that is given holds as it is.
    """

    steps: int = LEAST_STEPS
    seconds: float = 20.0
    total_seconds: float = inf
    source: str = GIVEN

    def __post_init__(self) -> None:
        limits = (self.seconds, self.total_seconds)
        numbers = isinstance(self.steps, int) and all(isinstance(limit, (int, float)) for limit in limits)
        if not numbers or self.steps < 1 or not min(limits) > 0:
            raise MisuseError(
                "a budget is a positive number of steps and of seconds; got "
                f"{self.steps!r} and {self.seconds!r} (in all {self.total_seconds!r})"
            )

    def for_work(self, steps: int, source: str, carries_data: bool) -> "Budget":
        """This budget for a launch whose work may take so many steps, as `source` says; one that was given stays.

        Without data a launch also ends by the clock: steps that suffice for any kernel of the size may be many.
        """
        if self.source != FOLLOWS_WORK:
            return self
        total = min(self.total_seconds, inf if carries_data else TOTAL_WITHOUT_DATA)
        if steps <= self.steps:
            return replace(self, total_seconds=total)
        return replace(self, steps=steps, source=source, total_seconds=total)


class OverBudgetError(BaseException):
    """Raised inside a program that used up its budget; no `Exception`, so that kernels do not catch it by accident.

    Whoever ends the program for it sets `taken`; without that, the program itself has swallowed it.
    """

    taken = False


def _debugger() -> "pdb.Pdb":
    """Steps through kernels, not through what kernbench does for them; imported by runs that need it, which are few."""
    import pdb

    class Debugger(pdb.Pdb):
        def is_skipped_module(self, module_name: str) -> bool:
            """Whether to pass over a module: ours, the bundled kernels aside."""
            return super().is_skipped_module(module_name) and not str(module_name).startswith("kernbench.benches.")

    return Debugger(nosigint=True, skip=["kernbench.*"])


class Watchdog:
    """While entered, stops the thread's program once `progress()` has not changed for `Budget.seconds`, or `over()`.

    `abandon` is called in the program, with the exception, when it has swallowed that twice; it must not return. A
    program that calls `breakpoint()` lands in its own frame, and is not watched any more: a person thinks as long as
    they like.
    """

    PATIENCE = 2
    # a program that keeps every exception it catches lets none of them end
    LAST = 12

    def __init__(
        self,
        seconds: float,
        progress: Callable[[], object],
        abandon: Callable[[OverBudgetError], None],
        over: Callable[[], bool] = lambda: False,
    ):
        self._seconds = seconds
        self._progress = progress
        self._over = over
        self._abandon = abandon
        self._target = threading.get_ident()
        self._done = threading.Event()
        self._room = 0
        self._raised = 0
        self._thread = threading.Thread(target=self._watch, name="kernbench-watchdog", daemon=True)
        self._error = self._exception_type()

    def __enter__(self) -> "Watchdog":
        self._hook = sys.breakpointhook
        try:
            self._thread.start()
        except BaseException:
            # interrupted while the thread began: it would watch for ever
            self._done.set()
            raise
        sys.breakpointhook = self._breakpoint
        return self

    def _breakpoint(self, *args: object, **kwargs: object) -> object:
        """`breakpoint()` in a program: the usual debugger in the program's frame, or the one the user has chosen."""
        self._done.set()
        chosen = os.environ.get("PYTHONBREAKPOINT", "") not in ("", "pdb.set_trace")
        if chosen or self._hook is not sys.__breakpointhook__:
            return self._hook(*args, **kwargs)
        _debugger().set_trace(sys._getframe(1))
        return None

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        sys.breakpointhook = self._hook
        while not self._ended():
            pass
        if self._room:
            sys.setrecursionlimit(sys.getrecursionlimit() - self._room)

    def _ended(self) -> bool:
        """Whether nothing more comes from the watchdog; what it sent too late is raised and lost here."""
        alone = False
        try:
            self._done.set()
            self._thread.join()
            alone = True
            if self._room:
                # it has spoken; what may still come is not taken back: Python 3.11 would look for it for ever, and hang
                # as soon as somebody traces
                _send(self._target, self._error)
                while True:
                    pass
        except self._error:
            return alone
        return True

    def _exception_type(self) -> type[OverBudgetError]:
        watchdog = self

        class StoppedByWatchdogError(OverBudgetError):
            def __init__(self, *args: object):
                super().__init__(*args)
                watchdog._raised += 1
                watchdog._leave_after(watchdog.LAST, self)

            # not in __init__: Python 3.11 counts an exception in the making, and a switch would leave it counted
            def __del__(self) -> None:
                if not self.taken:
                    watchdog._leave_after(watchdog.PATIENCE, self)

        return StoppedByWatchdogError

    def _leave_after(self, exceptions: int, error: OverBudgetError) -> None:
        if self._raised > exceptions and not self._done.is_set():
            self._raised = 0
            self._abandon(error)

    def _watch(self) -> None:
        last, since = self._progress(), time.monotonic()
        wait = look = min(self._seconds, _LOOK)
        while not self._done.wait(wait):
            now = self._progress()
            if now != last:
                last, since = now, time.monotonic()
            if time.monotonic() - since < self._seconds - look / 2 and not self._over():
                wait = look
                continue
            # a program at the end of its stack needs room for the exception to be made
            self._room += _ROOM
            sys.setrecursionlimit(sys.getrecursionlimit() + _ROOM)
            # until the program has really stopped, try again at short intervals
            wait = 0.05
            _send(self._target, self._error)


def _send(thread: int, error: type[BaseException]) -> None:
    """Have `error` raised in a thread at its next step, in place of what was sent and has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
