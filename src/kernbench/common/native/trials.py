"""Machine code on trial: translated quickly, and optimised when it has run for as long as that is worth (ADR 128).

A first run needs a hundred loops, most of them for a moment. Optimised code of one takes LLVM ten to thousands of times
as long as the loop then runs; translated quickly it runs two to five times as long, with the same results.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kernbench.common.native.machine import Code

# seconds that LLVM takes to optimise a loop, for each byte of its quick code, and the part of them that code on trial
# may run: it is slower by less than what it runs, so that less than that part is lost
_OPTIMISING, _PART = 8e-6, 0.5
# seconds that are written down together
_TICK = 2e-3


class Trial:
    """What stands in for the optimised code of a loop, and says when that is to take its place."""

    def __init__(self, code: Code, size: int, tally: Path | None, settle: Callable[["Trial"], None]):
        """`tally`: a file that grows by a byte for each tick, of all processes; None where nothing is kept."""
        self._code, self._tally, self._settle = code, tally, settle
        self._limit = _PART * _OPTIMISING * size
        self._spent = self._earlier()
        self._noted = self._spent

    def __call__(self, *given: object) -> object:
        """What the loop gives. The time is this thread's own: others at work make no difference."""
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
            # once: where it cannot be optimised, it stays; where somebody interrupts that, it is tried again
            limit, self._limit = self._limit, float("inf")
            try:
                self._settle(self)
            except BaseException:
                self._limit = limit
                raise
        elif self._tally is not None:
            with suppress(OSError), self._tally.open("ab") as file:
                file.write(b"." * ticks)
