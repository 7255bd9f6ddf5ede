"""Sweeps: one bench at many points; the kernel runs again only where a shape changes, time is new at each point."""

from kernbench.sweep.execute import anomalies, in_order, run_sweep
from kernbench.sweep.executors import Executor, Here, Processes, RayCluster
from kernbench.sweep.plan import Plan, make_plan
from kernbench.sweep.points import Row

__all__ = [
    "Executor",
    "Here",
    "Plan",
    "Processes",
    "RayCluster",
    "Row",
    "anomalies",
    "in_order",
    "make_plan",
    "run_sweep",
]
