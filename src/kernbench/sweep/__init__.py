"""Sweeps: one bench at many points; the kernel runs again only where a shape changes, time is new at each point."""

from kernbench.sweep.execute import Row, anomalies, run_sweep
from kernbench.sweep.plan import Plan, make_plan

__all__ = ["Plan", "Row", "anomalies", "make_plan", "run_sweep"]
