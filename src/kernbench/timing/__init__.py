"""Time: a recording and a machine in, a timeline out. No kernel code runs here."""

from kernbench.timing.clock import Timing, time_recording
from kernbench.timing.critical import CriticalPath, critical_path
from kernbench.timing.gap import CAUSES
from kernbench.timing.measure import measure, retime, summary, timeline

__all__ = [
    "CAUSES",
    "CriticalPath",
    "Timing",
    "critical_path",
    "measure",
    "retime",
    "summary",
    "time_recording",
    "timeline",
]
