"""Executors of sweeps: in this process, in several, or on a Ray cluster."""

from kernbench.sweep.executors.base import Done, Executor, Limits
from kernbench.sweep.executors.local import Here, Processes
from kernbench.sweep.executors.ray_cluster import RayCluster

__all__ = ["Done", "Executor", "Here", "Limits", "Processes", "RayCluster"]
