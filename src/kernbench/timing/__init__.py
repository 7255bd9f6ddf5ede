"""Time: a recording and a machine in, a timeline out. No kernel code runs here."""

from kernbench.timing.clock import Timing, time_recording

__all__ = ["Timing", "time_recording"]
