"""Budgets: every launch ends, whatever its kernel does. Steps are counted.

A watchdog stops a kernel that only computes.

The watchdog raises `OverBudgetError` inside the running program, asynchronously. A program that swallows even that is
abandoned: the exception's finaliser runs in the program, and switches back to the scheduler. In the main thread a
signal interrupts calls that block (a sleep, a lock, a read from a pipe). Only C code that computes and never looks for
signals cannot be interrupted; it ends when the call does.
"""

import ctypes
import os
import signal
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
# seconds between two checks of a program
_LOOK = 1.0


# sources of a budget's steps: a default grows with the work of a launch, a given budget does not
FOLLOWS_WORK = "the least that any program may dispatch"
GIVEN = "given with the launch"
# up to this many commands, no launch needs to announce its work
LEAST_STEPS = 1_000_000
# seconds of CPU time after which a launch without data has recorded tens of millions of commands, gigabytes of rows
TOTAL_WITHOUT_DATA = 300.0


@dataclass(frozen=True)
class Budget:
    """The limits of a launch: commands of one program, seconds without a command, and seconds of CPU time in total.

    On the npu `steps` are rows of one block, and twenty times as many for all blocks. `source` says where the steps
    come from. With `FOLLOWS_WORK` they are a minimum, which grows with the announced work of the launch; a given budget
    stays as it is.
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
        """This budget for a launch whose work may take up to `steps`, as `source` says; a given budget does not change.

        Without data a launch is also limited in CPU time: enough steps for any kernel of its size may take very long.
        """
        if self.source != FOLLOWS_WORK:
            return self
        total = min(self.total_seconds, inf if carries_data else TOTAL_WITHOUT_DATA)
        if steps <= self.steps:
            return replace(self, total_seconds=total)
        return replace(self, steps=steps, source=source, total_seconds=total)


class OverBudgetError(BaseException):
    """Raised inside a program that used up its budget; no `Exception`, so that kernels do not catch it by accident.

    The code that ends the program sets `taken`; if it is not set, the program has swallowed the exception.
    """

    taken = False


def _debugger() -> "pdb.Pdb":
    """A debugger that steps through kernels but skips kernbench's own code; pdb is imported only when it is used."""
    import pdb

    class Debugger(pdb.Pdb):
        def is_skipped_module(self, module_name: str) -> bool:
            """Whether to skip a module: kernbench's, except the bundled kernels."""
            return super().is_skipped_module(module_name) and not str(module_name).startswith("kernbench.benches.")

    return Debugger(nosigint=True, skip=["kernbench.*"])


class Watchdog:
    """While entered, stops the thread's program once `progress()` has not changed for `Budget.seconds`, or `over()`.

    If the program has swallowed the exception twice, `abandon` is called with it inside the program; it must not
    return. After `breakpoint()`, which opens a debugger in the program's own frame, the program is no longer watched.
    """

    PATIENCE = 2
    # limit on exceptions raised, for a program that keeps each one alive so that its finaliser never runs
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
        self._interruption = _Interruption()
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
            # interrupted while the thread started: it would watch forever
            self._done.set()
            raise
        self._interruption.open()
        sys.breakpointhook = self._breakpoint
        return self

    def _breakpoint(self, *args: object, **kwargs: object) -> object:
        """`breakpoint()` in a program: pdb in the program's frame, or the debugger the user has configured."""
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
        self._interruption.close()
        if self._room:
            sys.setrecursionlimit(sys.getrecursionlimit() - self._room)

    def _ended(self) -> bool:
        """Whether the watchdog thread has ended; an exception it sent too late is raised and caught here."""
        alone = False
        try:
            self._done.set()
            self._thread.join()
            alone = True
            if self._room:
                # it has raised; an exception still pending is not cancelled: Python 3.11 would keep looking for it, and
                # hang as soon as a trace function is set
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

            # in __del__: Python 3.11 counts an exception under construction, and a greenlet switch there would leave it
            # counted
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
            # a program at its recursion limit needs room for the exception to be created
            self._room += _ROOM
            sys.setrecursionlimit(sys.getrecursionlimit() + _ROOM)
            # retry at short intervals until the program has really stopped
            wait = 0.05
            _send(self._target, self._error)
            self._interruption.send(self._target)


class _Interruption:
    """A signal that ends blocking calls of the main thread, so that an exception that was sent there is raised."""

    def __init__(self) -> None:
        self._number = getattr(signal, "SIGURG", None)
        self._is_ours = False

    def open(self) -> None:
        """Take the signal, unless the program uses it, in a thread that may."""
        if self._number is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(self._number) is signal.SIG_DFL:
            # a function of Python: before its first instruction Python raises what was sent
            signal.signal(self._number, lambda number, frame: None)
            self._is_ours = True

    def close(self) -> None:
        """Give it back; by default it is ignored."""
        if self._is_ours and self._number is not None:
            self._is_ours = False
            signal.signal(self._number, signal.SIG_DFL)

    def send(self, thread: int) -> None:
        """Interrupt what a thread is blocked in."""
        if self._is_ours and self._number is not None:
            signal.pthread_kill(thread, self._number)


def _send(thread: int, error: type[BaseException]) -> None:
    """Raise `error` asynchronously in a thread; it replaces an exception that was sent and is still pending."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
