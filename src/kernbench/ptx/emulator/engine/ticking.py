"""Time as a kernel reads it: the number of instructions run so far; where every thread only polls, it stops and jumps.

Loops with a back-off read clocks, so that no two of their iterations are the same. When only such loops are left, the
clock stands still, and a loop that changes nothing repeats its state and is parked. Then the clock jumps by weeks,
several times: loops with a timeout give up, and what is still parked waits for something that never comes. Where a
loop waits for nothing but a time, that time comes sooner, and is exceeded by a small part of what has passed.
"""

from kernbench.ptx.emulator.program.meter import Meter

# rounds in which all loops let each other go first and memory stayed as it was, before time stands still
_PATIENCE = 8
# two weeks in nanoseconds; as 32 bits some hundred million more, so that a short clock goes forward, too
_LEAPS = ((1 << 50) + 300_000_007, (1 << 50) + 200_000_122, (1 << 50) + 400_000_317)
# how much sooner a time comes at most, at once: so little that no wait of 32 bits misses its end
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
        """Whether it stands still."""
        return self._stands_at is not None

    def now(self, to_come: int = 0) -> int:
        """What a clock shows; steps are counted when a block begins, of which some are still `to_come`."""
        return self._stands_at if self._stands_at is not None else int(self._meter.steps) + self._ahead - to_come

    def polled(self, changes: int) -> None:
        """Nothing is left but loops that poll; `changes` of memory so far."""
        self._quiet = 0 if self.moved(changes) else self._quiet + 1
        if self._quiet >= _PATIENCE and not self.stands:
            self._stands_at = self.now()

    def hurries(self, since: int, part: int) -> None:
        """A loop waits for a time, and has done so `since` then: that part of what has passed goes by at once."""
        if self._stands_at is None:
            self._ahead += min((self.now() - since) // part, _HURRY)

    def moved(self, changes: int) -> bool:
        """Whether memory has changed since this was asked."""
        before, self._changes = self._changes, changes
        return changes != before

    def leaps(self, progress: bool) -> bool:
        """All loops are parked while time stands: set it forward, unless that was done often enough for nothing.

        With `progress`, where anything else has happened, it simply goes on.
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
        """It runs again from where it stands, if it does."""
        if self._stands_at is not None:
            self._ahead = self._stands_at - int(self._meter.steps)
            self._stands_at, self._leaps, self._quiet = None, 0, 0
