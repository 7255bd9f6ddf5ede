"""Quickly compiled code on trial: it is optimised once it has run long enough to be worth it (ADR 128).

A first run needs a hundred loops, most of them only briefly. Optimising one takes LLVM ten to thousands of times as
long as the loop then runs. Compiled quickly, a loop takes two to five times as long, with the same results.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kernbench.common.native.machine import Code

# estimated seconds to optimise a loop, for each byte of its quick code, and the fraction of that time that code on
# trial may run. The slowdown is less than its run time, so less than that fraction is lost
_OPTIMISING, _PART = 8e-6, 0.5
# granularity of the tally in seconds
_TICK = 2e-3


class Trial:
    """Stands in for the optimised code of a loop, and says when to replace it."""

    def __init__(self, code: Code, size: int, tally: Path | None, settle: Callable[["Trial"], None]):
        """`tally` is a file that grows by a byte for each tick, of all processes; None without a cache."""
        self._code, self._tally, self._settle = code, tally, settle
        self._limit = _PART * _OPTIMISING * size
        self._spent = self._earlier()
        self._noted = self._spent

    def __call__(self, *given: object) -> object:
        """Run the loop, and count this thread's CPU time, which does not depend on the load."""
        begin = time.thread_time()
        found = self._code(*given)
        self._spent += time.thread_time() - begin
        if self._spent - self._noted > _TICK:
            self._note()
        return found

    def _earlier(self) -> float:
        if self._tally is not None:
            with suppress(OSError):
                return self._tally.stat().st_size * _TICK
        return 0.0

    def _note(self) -> None:
        ticks = int((self._spent - self._noted) / _TICK)
        self._noted += ticks * _TICK
        if self._spent > self._limit:
            # only once: if optimising fails, the quick code stays; if it is interrupted, it is tried again
            limit, self._limit = self._limit, float("inf")
            try:
                self._settle(self)
            except BaseException:
                self._limit = limit
                raise
        elif self._tally is not None:
            with suppress(OSError), self._tally.open("ab") as file:
                file.write(b"." * ticks)
