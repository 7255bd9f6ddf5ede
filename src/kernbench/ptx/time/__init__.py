"""How long a recorded launch takes on a GPU, and why: a compiled model of SMs, caches and memory."""

from kernbench.ptx.time.chip.occupancy import Occupancy
from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.result import CtaSpans, LaunchTime, Stalls, Traffic, Unit

__all__ = ["CtaSpans", "LaunchTime", "Occupancy", "Reason", "Stalls", "Traffic", "Unit"]
