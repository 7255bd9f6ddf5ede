"""Time: a recording and a machine in, a timeline out. No kernel code runs here."""

from kernbench.mesh.time.clock import Timing, time_recording
from kernbench.mesh.time.critical import CriticalPath, critical_path
from kernbench.mesh.time.gap import CAUSES
from kernbench.mesh.time.measure import measure, retime, summary, timeline

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
