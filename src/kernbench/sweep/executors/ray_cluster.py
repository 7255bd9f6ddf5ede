"""Sweeps on a Ray cluster (the extra `ray`): each part of the work is one task; kernbench is installed on its nodes.

A task runs its points in a process of its own, as on one machine: points that crash, or exceed their limits, become the
same rows. A task that is lost with its node is retried elsewhere, a bounded number of times.
"""

import contextlib
import os
from collections.abc import Generator

from kernbench.bench.cluster import Cluster, LostError, Outcome
from kernbench.sweep.executors.base import Done, Limits
from kernbench.sweep.executors.local import Crew
from kernbench.sweep.planning.plan import Plan
from kernbench.sweep.planning.points import Failure, Row, failure
from kernbench.sweep.planning.supply import Part, Supply


class RayCluster:
    """The cluster at `address`, as `ray.init` understands it; "local" starts Ray on this machine for the sweep."""

    def __init__(self, address: str, limits: Limits | None = None):
        self._cluster, self._limits = Cluster(address), limits or Limits()

    def __enter__(self) -> "RayCluster":
        self._cluster.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._cluster.__exit__(*exc)

    @property
    def workers(self) -> int:
        """The CPUs of the cluster."""
        return self._cluster.workers

    def results(self, plan: Plan, supply: Supply) -> Generator[list[Done], None, None]:
        """The results of each task as it is done; at most one task per CPU of the cluster runs at once."""
        coming = self._cluster.outcomes(run_part, supply.take, lambda part: (plan, part, self._limits))
        with contextlib.closing(coming):
            for outcome in coming:
                yield [] if outcome is None else _rows(outcome, supply)


def _rows(outcome: Outcome[Part, list[Row]], supply: Supply) -> list[Done]:
    """The rows of a task; if it has none, failed rows."""
    positions, error = outcome.work.positions, outcome.error
    if error is not None:
        why = Failure(str(error)) if isinstance(error, LostError) else failure(error)
        return [(position, why.row()) for position in positions]
    assert outcome.result is not None
    supply.learn(len(outcome.result), outcome.seconds)
    return list(zip(positions, outcome.result, strict=True))


_crew: Crew | None = None


def run_part(plan: Plan, part: Part, limits: Limits) -> list[Row]:
    """The task: all rows of a part, in order. Its process is kept for the next part of the same group."""
    global _crew
    if _crew is None or not _crew.is_of(plan, limits, os.getpid()):
        if _crew is not None:
            _crew.end()
        _crew = Crew(plan, 1, limits)
    rows = dict(done for some in _crew.results(OnePart(part)) for done in some)
    return [rows[position] for position in part.positions]


class OnePart:
    """A supply of one part."""

    def __init__(self, part: Part):
        self._parts = [part]

    def take(self, worker: int) -> Part | None:
        """The part, once."""
        return self._parts.pop() if self._parts else None

    def learn(self, points: int, seconds: float) -> None:
        """Nothing to adapt."""
