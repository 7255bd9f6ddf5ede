"""A limit on the seconds that code of the main thread may take, also where it waits inside a call of the system."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# seconds after which code that swallows the error meets it again
_AGAIN = 1.0
_DEBUGGERS = ("pdb", "bdb", "IPython", "debugpy", "pydevd", "_pydevd_bundle", "code")


class TooLateError(BaseException):
    """Raised in code that has gone beyond its limit; no `Exception`, so that it is not caught by accident."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `TooLateError` in what is inside once it has taken so many seconds.

    Outside of the main thread, where the system has no alarm, or where somebody else waits for it already, nothing is
    limited. While a debugger is on the stack a person is thinking, and has as long as they like. A loop in C code that
    never returns to Python is not reached: only a process of its own helps there.
    """
    if not _possible():
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        if not _debugged(frame):
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
