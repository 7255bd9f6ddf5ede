"""The clock under power limits: it falls while tensor cores draw more than the GPU's limit, the longer they do."""

from math import exp

from kernbench.ptx.machine import Gpu

# power drawn by tensor cores grows with this exponent of the clock: frequency times the square of a voltage that
# follows it
POWER = 3
# relative change of the clock; a smaller one is not worth another simulation
WORTH = 0.005


def settled_clock(gpu: Gpu, use: float) -> float:
    """The clock in MHz that is reached in the end if tensor cores are used for the share `use`.

    Their power at `clock.settled` in full use is what the limit leaves to them, whatever else draws power. Lower use
    allows a higher clock.
    """
    root = float(max(use, 1e-9) ** (1 / POWER))
    return min(float(gpu.clock.products), float(gpu.clock.settled) / root)


def clock_under_power(gpu: Gpu, use: float, seconds: float) -> float:
    """The mean clock in MHz of a launch that takes `seconds` and uses tensor cores for the share `use`.

    It starts at `clock.products` and falls exponentially towards the settled clock. It stays constant if the GPU's file
    does not say how fast it falls.
    """
    begins, lasts = float(gpu.clock.products), float(gpu.clock.settles) * 1e-9
    if lasts <= 0 or seconds <= 0:
        return begins
    ends = settled_clock(gpu, use)
    share = lasts / seconds * (1 - exp(-seconds / lasts))
    return ends + (begins - ends) * share
