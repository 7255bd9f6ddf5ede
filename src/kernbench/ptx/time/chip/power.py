"""The clock under power: it falls while tensor cores take more than the GPU may, the longer they do."""

from math import exp

from kernbench.ptx.machine import Gpu

# by which power of the clock what tensor cores take rises: clock times the square of a voltage that follows it
POWER = 3
# of the clock: a fall that is less changes no time worth simulating again
WORTH = 0.005


def settled_clock(gpu: Gpu, use: float) -> float:
    """MHz in the end where so much of all tensor cores is used: what they take at `clock.settled` in full use is what
    they may take, whatever else takes power, and less use allows a higher clock.
    """
    root = float(max(use, 1e-9) ** (1 / POWER))
    return min(float(gpu.clock.products), float(gpu.clock.settled) / root)


def clock_under_power(gpu: Gpu, use: float, seconds: float) -> float:
    """MHz on average over a launch of so many seconds that uses so much of all tensor cores and begins at the clock of
    products; that clock where it is not known how it falls.
    """
    begins, lasts = float(gpu.clock.products), float(gpu.clock.settles) * 1e-9
    if lasts <= 0 or seconds <= 0:
        return begins
    ends = settled_clock(gpu, use)
    share = lasts / seconds * (1 - exp(-seconds / lasts))
    return ends + (begins - ends) * share
