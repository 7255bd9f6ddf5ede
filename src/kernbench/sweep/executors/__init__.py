"""Where the points of a sweep are timed: in this process, in several, or on a Ray cluster."""

from kernbench.sweep.executors.base import Executor
from kernbench.sweep.executors.local import Here, Processes
from kernbench.sweep.executors.ray_cluster import RayCluster

__all__ = ["Executor", "Here", "Processes", "RayCluster"]
