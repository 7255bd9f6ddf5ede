"""Sweeps: one bench at many points; the kernel runs again only if a shape changes, each point is timed."""

from kernbench.sweep.anomalies import anomalies
from kernbench.sweep.execute import Collected, Ledger, in_order, run_sweep
from kernbench.sweep.executors import Executor, Here, Limits, Processes, RayCluster
from kernbench.sweep.planning.plan import Plan, make_plan
from kernbench.sweep.planning.points import Row
from kernbench.sweep.store import Store

__all__ = [
    "Collected",
    "Executor",
    "Here",
    "Ledger",
    "Limits",
    "Plan",
    "Processes",
    "RayCluster",
    "Row",
    "Store",
    "anomalies",
    "in_order",
    "make_plan",
    "run_sweep",
]
