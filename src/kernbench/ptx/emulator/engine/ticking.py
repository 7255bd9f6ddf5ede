"""Time as a kernel reads it: the number of instructions run so far; where every thread only polls, it stops and jumps.

Loops with a back-off read clocks, so that no two of their iterations are the same. When only such loops are left, the
clock stands still, and a loop that changes nothing repeats its state and is parked. Then the clock jumps by weeks,
several times: loops with a timeout give up, and what is still parked waits for something that never comes. Where a
loop waits for nothing but a time, that time comes sooner, and is exceeded by a small part of what has passed.
"""

from kernbench.ptx.emulator.program.meter import Meter

# rounds of polling loops without a change of memory before the clock stops
_PATIENCE = 8
# Two weeks in nanoseconds; the low 32 bits advance by some hundred million as well, for kernels that read 32-bit
# clocks.
_LEAPS = ((1 << 50) + 300_000_007, (1 << 50) + 200_000_122, (1 << 50) + 400_000_317)
# maximal jump of the clock at once: so small that no wait by a 32-bit clock misses its end
_HURRY = 1 << 26


class Time:
    """The clock of one launch."""

    def __init__(self, meter: Meter):
        self._meter = meter
        self._ahead = 0
        self._stands_at: int | None = None
        self._leaps = 0
        self._quiet = 0
        self._changes = -1

    @property
    def stands(self) -> bool:
        """Whether the clock stands still."""
        return self._stands_at is not None

    def now(self, to_come: int = 0) -> int:
        """The value of a clock; steps are counted when a block begins, and `to_come` of them have not run yet."""
        return self._stands_at if self._stands_at is not None else int(self._meter.steps) + self._ahead - to_come

    def polled(self, changes: int) -> None:
        """Only polling loops are left; `changes` is memory's change count."""
        self._quiet = 0 if self.moved(changes) else self._quiet + 1
        if self._quiet >= _PATIENCE and not self.stands:
            self._stands_at = self.now()

    def hurries(self, since: int, part: int) -> None:
        """A loop has waited for a time since `since`: advance the clock by 1 / `part` of the time passed."""
        if self._stands_at is None:
            self._ahead += min((self.now() - since) // part, _HURRY)

    def moved(self, changes: int) -> bool:
        """Whether memory has changed since the last call."""
        before, self._changes = self._changes, changes
        return changes != before

    def leaps(self, progress: bool) -> bool:
        """All loops are parked while the clock stands: let it jump; False if it has jumped often enough without effect.

        With `progress` (something else has happened) the clock runs again instead.
        """
        assert self._stands_at is not None
        if progress:
            self.goes_on()
            return True
        if self._leaps == len(_LEAPS):
            return False
        self._stands_at += _LEAPS[self._leaps]
        self._leaps += 1
        return True

    def goes_on(self) -> None:
        """Let the clock run again, if it stands."""
        if self._stands_at is not None:
            self._ahead = self._stands_at - int(self._meter.steps)
            self._stands_at, self._leaps, self._quiet = None, 0, 0
