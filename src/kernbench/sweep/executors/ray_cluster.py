"""Sweeps on a Ray cluster (the extra `ray`): each part of the work is one task; kernbench is installed on its nodes."""

import socket
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from kernbench.common.errors import BenchError, KernbenchError
from kernbench.sweep.executors.base import group_rows
from kernbench.sweep.plan import Group, Plan
from kernbench.sweep.points import Row

LOCAL = "local"
_PATIENCE_S = 5


class RayCluster:
    """The cluster at `address`, as `ray.init` understands it; "local" starts Ray on this machine for the sweep."""

    def __init__(self, address: str):
        self._address = address
        self._ray = _ray()

    def __enter__(self) -> "RayCluster":
        options = {"include_dashboard": False} if self._address == LOCAL else {}
        try:
            _knock(self._address)
            self._ray.init(address=self._address, log_to_driver=False, logging_level="error", **options)
        except (OSError, ValueError, RuntimeError) as error:
            raise BenchError(
                f"--ray {self._address}: no Ray cluster answers there ({error}); "
                f"start one with `ray start --head`, or say --ray {LOCAL}"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    @cached_property
    def workers(self) -> int:
        """The CPUs of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def rows(self, plan: Plan, work: list[Group]) -> Iterator[Row]:
        """The rows of each task as it is done."""
        task = self._ray.remote(group_rows)
        pending = [task.remote(plan, group) for group in work]
        while pending:
            finished, pending = self._ray.wait(pending, num_returns=1)
            for reference in finished:
                yield from self._result(reference)

    def _result(self, reference: Any) -> list[Row]:
        try:
            rows: list[Row] = self._ray.get(reference)
        except Exception as error:
            # Ray wraps what a task raised; our own errors are told as they were
            cause = getattr(error, "cause", None)
            if isinstance(cause, KernbenchError):
                raise cause from None
            raise
        return rows


def _knock(address: str) -> None:
    """Whether anyone listens at host:port; Ray itself would wait for minutes. Names without a port are Ray's."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise BenchError("--ray needs Ray: pip install 'kernbench[ray]'") from None
    return ray
