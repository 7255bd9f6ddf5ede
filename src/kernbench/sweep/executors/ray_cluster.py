"""Sweeps on a Ray cluster (the extra `ray`): each part of the work is one task; kernbench is installed on its nodes.

A task runs its points in a process of its own, as on one machine: what dies, or takes more than its limits, becomes the
same row. A task that is lost with its node is tried again elsewhere, a bounded number of times.
"""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile
from typing import Any

from kernbench.common.errors import BenchError
from kernbench.sweep.executors.base import Done, Limits
from kernbench.sweep.executors.local import Crew
from kernbench.sweep.planning.plan import Plan
from kernbench.sweep.planning.points import Failure, Row, failure
from kernbench.sweep.planning.supply import Part, Supply

LOCAL = "local"
TRIES = 3
_PATIENCE_S = 5
_BEAT = 1.0
# what Ray says where it was not let in
_REFUSED = ("authentication", "unauthenticated", "authtoken", "auth token", "unauthorized")
_TOKEN = (
    "set RAY_AUTH_MODE=token, and the cluster's token in RAY_AUTH_TOKEN or in the file that RAY_AUTH_TOKEN_PATH names "
    "(else ~/.ray/auth_token)"
)


@dataclass
class _Task:
    """A part under way, how often it was tried, and which worker's it is."""

    part: Part
    number: int
    tries: int = 1
    since: float = 0.0


class RayCluster:
    """The cluster at `address`, as `ray.init` understands it; "local" starts Ray on this machine for the sweep."""

    def __init__(self, address: str, limits: Limits | None = None):
        self._address, self._limits = address, limits or Limits()
        self._ray = _ray()

    def __enter__(self) -> "RayCluster":
        options = {"include_dashboard": False} if self._address == LOCAL else {}
        with _overheard() as printed:
            try:
                _knock(self._address)
                self._ray.init(address=self._address, log_to_driver=False, logging_level="error", **options)
            except Exception as error:
                raise BenchError(f"--ray {self._address}: {_why(error, printed())}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    @cached_property
    def workers(self) -> int:
        """The CPUs of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def results(self, plan: Plan, supply: Supply) -> Generator[list[Done], None, None]:
        """What came out of each task as it is done; no more are under way than the cluster has CPUs."""
        # what is lost is tried again here, where it can be counted
        run = self._ray.remote(max_retries=0)(run_part)
        tasks: dict[object, _Task] = {}
        free, again = list(range(self.workers)), list[_Task]()
        try:
            while True:
                while free and (task := again.pop() if again else self._next(supply, free)) is not None:
                    task.number, task.since = free.pop(), time.monotonic()
                    tasks[run.remote(plan, task.part, self._limits)] = task
                if not tasks:
                    return
                finished, _ = self._ray.wait(list(tasks), num_returns=1, timeout=_BEAT)
                if not finished:
                    yield []
                for reference in finished:
                    task = tasks.pop(reference)
                    free.append(task.number)
                    yield self._finished(reference, task, supply, again)
        finally:
            for reference in tasks:
                self._ray.cancel(reference, force=True)

    @staticmethod
    def _next(supply: Supply, free: list[int]) -> _Task | None:
        part = supply.take(free[-1])
        return None if part is None else _Task(part, free[-1])

    def _finished(self, reference: object, task: _Task, supply: Supply, again: list[_Task]) -> list[Done]:
        """The rows of a task; where it was lost, another try, or rows that say so."""
        try:
            rows: list[Row] = self._ray.get(reference)
        except Exception as error:
            return self._lost(error, task, again)
        supply.learn(len(rows), time.monotonic() - task.since)
        return list(zip(task.part.positions, rows, strict=True))

    def _lost(self, error: Exception, task: _Task, again: list[_Task]) -> list[Done]:
        # Ray wraps what a task raised
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, ImportError):
            raise BenchError(f"--ray {self._address}: kernbench cannot be loaded on its nodes ({cause})") from None
        if cause is error and task.tries < TRIES:
            again.append(_Task(task.part, task.number, task.tries + 1))
            return []
        why = failure(cause)
        if cause is error:
            why = Failure(f"lost {TRIES} times with its node or Ray worker ({_first_line(error)})")
        return [(position, why.row()) for position in task.part.positions]


_crew: Crew | None = None


def run_part(plan: Plan, part: Part, limits: Limits) -> list[Row]:
    """All rows of a part, in order: what a task does. Its process is kept for the next part of the same group."""
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
        """There is nothing to divide."""


@contextlib.contextmanager
def _overheard() -> Iterator[Callable[[], str]]:
    """While entered, standard error goes to a file; gives what reads it. Ray's own exception does not say that a token
    was refused: only lines that its library prints do, every second.
    """
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, AttributeError):
        yield str
        return
    with TemporaryFile() as file:
        os.dup2(file.fileno(), 2)

        def printed() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield printed
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _why(error: Exception, output: str) -> str:
    """Why there is no connection, and what to do."""
    text = _first_line(error)
    printed = [line.rpartition("] ")[2] for line in output.splitlines() if _is_about_tokens(line)]
    if printed or type(error).__name__ == "AuthenticationError" or _is_about_tokens(text):
        return f"the cluster asks for a token and was given none that it takes ({[text, *printed][-1]}); {_TOKEN}"
    return f"no Ray cluster answers there ({text}); start one with `ray start --head`, or say --ray {LOCAL}"


def _is_about_tokens(text: str) -> bool:
    return any(word in text.lower() for word in _REFUSED)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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
