"""A time limit for code of the main thread, which also interrupts blocking system calls."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# bound early: code of users may replace it
_now = time.monotonic
# seconds after which the error is raised again, for code that swallows it
_AGAIN = 1.0
_DEBUGGERS = ("pdb", "bdb", "IPython", "debugpy", "pydevd", "_pydevd_bundle", "code")


class TooLateError(BaseException):
    """Raised in code that exceeds its time limit; no `Exception`, so that it is not caught by accident."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `TooLateError` inside the block once it has taken this many seconds.

    There is no limit outside the main thread, on systems without an alarm signal, or if the alarm is already in use.
    The limit does not apply while a debugger is on the stack. A loop in C code that never returns to Python is not
    interrupted: only a separate process helps there.
    """
    if not _possible():
        yield
        return

    began = _now()

    def late(number: int, frame: FrameType | None) -> None:
        if _debugged(frame):
            return
        if _now() - began < seconds - _AGAIN:
            raise TooLateError(
                "the signal SIGALRM of an alarm that it set itself arrived, and it has no handler for it"
            )
        raise TooLateError(f"it did not end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _possible() -> bool:
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getitimer(signal.ITIMER_REAL)[0] == 0


def _debugged(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).split(".")[0] in _DEBUGGERS:
            return True
        frame = frame.f_back
    return False
