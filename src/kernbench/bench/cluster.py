"""A Ray cluster (the extra `ray`): runs tasks on its nodes, a bounded number at once; lost ones are retried.

kernbench is installed on the nodes, with the same sources as here. A task is lost when its node or Ray's process there
ends; it is retried on another node, a bounded number of times. An exception of the task itself is its outcome.
"""

import contextlib
import importlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Generic, Protocol, TextIO, TypeVar, cast

import kernbench
from kernbench.common.errors import BenchError

LOCAL = "local"
TRIES = 3
_PATIENCE_S = 5
# seconds to wait for a task, and for several of very many
_BEAT, _SHORT_BEAT = 1.0, 0.1
_LOOKED_AT = 64
# Ray's messages when authentication fails
_REFUSED = ("authentication", "unauthenticated", "authtoken", "auth token", "unauthorized")
_TOKEN = (
    "set RAY_AUTH_MODE=token, and the cluster's token in RAY_AUTH_TOKEN or in the file that RAY_AUTH_TOKEN_PATH names "
    "(else ~/.ray/auth_token)"
)
Work = TypeVar("Work")
Result = TypeVar("Result")


class LostError(Exception):
    """A task that was lost with its node as often as it was tried."""


class OtherNodeError(Exception):
    """A node that differs from what the command needs: other sources, other files."""


class _Remote(Protocol):
    def remote(self, *arguments: object) -> object:
        """Submit a task; its reference."""


class _Ray(Protocol):
    """The part of Ray's interface that is used."""

    def init(self, *, address: str, log_to_driver: bool, logging_level: str, **options: object) -> object:
        """Connect."""

    def shutdown(self) -> None:
        """Disconnect."""

    def cluster_resources(self) -> Mapping[str, float]:
        """The resources of all nodes together."""

    def remote(self, *, max_retries: int) -> Callable[[Callable[..., object]], _Remote]:
        """Return a decorator that makes a function a task."""

    def wait(
        self, references: Sequence[object], *, num_returns: int, timeout: float
    ) -> tuple[list[object], list[object]]:
        """Those that are done, and the others."""

    def get(self, reference: object) -> object:
        """The result of a task; raises its exception."""

    def cancel(self, reference: object, *, force: bool) -> None:
        """Cancel a task."""


@dataclass(frozen=True)
class Outcome(Generic[Work, Result]):
    """The outcome of some work: a result, or the exception it raised; `seconds` is how long its last try took."""

    work: Work
    seconds: float
    result: Result | None = None
    error: Exception | None = None


@dataclass
class _Task(Generic[Work]):
    """Work in progress: how often it was tried, which CPU of the cluster it counts for, and since when."""

    work: Work
    number: int
    tries: int = 1
    since: float = 0.0


class Cluster:
    """The cluster at `address`, as `ray.init` understands it; "local" starts Ray on this machine."""

    def __init__(self, address: str):
        self._address = address
        self._ray = _ray()
        self._printing = contextlib.ExitStack()

    def __enter__(self) -> "Cluster":
        options = {"include_dashboard": False} if self._address == LOCAL else {}
        with _overheard() as printed:
            try:
                _knock(self._address)
                self._ray.init(address=self._address, log_to_driver=False, logging_level="error", **options)
            except Exception as error:
                raise BenchError(f"--ray {self._address}: {_why(self._address, error, printed())}") from None
        self._printing.enter_context(contextlib.redirect_stdout(cast(TextIO, _ByThread())))
        return self

    def __exit__(self, *_: object) -> None:
        # it prints buffered messages
        with contextlib.redirect_stdout(sys.stderr):
            self._ray.shutdown()
        self._printing.close()

    @cached_property
    def workers(self) -> int:
        """The CPUs of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def outcomes(
        self,
        function: Callable[..., Result],
        take: Callable[[int], Work | None],
        arguments: Callable[[Work], tuple[object, ...]],
    ) -> Generator[Outcome[Work, Result] | None, None, None]:
        """`function(*arguments(work))` on some node for all work, in order of completion; None about once a
        second while nothing completes. At most one task per CPU of the cluster runs at once: `take` is called with the
        number of a free one. On leaving, running tasks are cancelled.
        """
        # lost tasks are retried here, where retries are counted
        run = self._ray.remote(max_retries=0)(on_node)
        tasks: dict[object, _Task[Work]] = {}
        free, again = list(range(self.workers)), list[_Task[Work]]()
        try:
            while True:
                while free and (task := again.pop() if again else _next(take, free[-1])) is not None:
                    task.number, task.since = free.pop(), time.monotonic()
                    tasks[run.remote(sources(), function, *arguments(task.work))] = task
                if not tasks:
                    return
                done = self._done(list(tasks))
                if not done:
                    yield None
                for reference in done:
                    task = tasks.pop(reference)
                    free.append(task.number)
                    outcome: Outcome[Work, Result] | None = self._outcome(reference, task)
                    if outcome is None:
                        again.append(_Task(task.work, task.number, task.tries + 1))
                    yield outcome
        finally:
            for reference in tasks:
                self._ray.cancel(reference, force=True)

    def _done(self, tasks: list[object]) -> list[object]:
        """Some completed tasks, none after a while. Each call costs time for every running task, so with many tasks
        more than one is waited for, up to a short time.
        """
        some = 1 + len(tasks) // _LOOKED_AT
        return self._ray.wait(tasks, num_returns=some, timeout=_BEAT if some == 1 else _SHORT_BEAT)[0]

    def _outcome(self, reference: object, task: _Task[Work]) -> Outcome[Work, Result] | None:
        """The outcome of a task; None if it was lost and is to be retried."""
        seconds = time.monotonic() - task.since
        try:
            return Outcome(task.work, seconds, cast(Result, self._ray.get(reference)))
        except Exception as error:
            # Ray wraps the task's exception
            cause: Exception = getattr(error, "cause", None) or error
            if isinstance(cause, ImportError):
                raise BenchError(f"--ray {self._address}: kernbench cannot be loaded on its nodes ({cause})") from None
            if isinstance(cause, OtherNodeError):
                raise BenchError(f"--ray {self._address}: {cause}") from None
            if cause is error and task.tries < TRIES:
                return None
            if cause is error:
                cause = LostError(f"lost {TRIES} times with its node or Ray worker ({_first_line(error)})")
            return Outcome(task.work, seconds, error=cause)


def _next(take: Callable[[int], Work | None], number: int) -> _Task[Work] | None:
    work = take(number)
    return None if work is None else _Task(work, number)


def on_node(theirs: str, function: Callable[..., Result], *arguments: object) -> Result:
    """The task on its node: calls the function if kernbench is the same there."""
    if theirs != sources():
        raise OtherNodeError(
            f"kernbench on the node {socket.gethostname()} ({Path(kernbench.__file__).parent}, version "
            f"{kernbench.__version__}) has other sources than here: its results would not be those of this machine; "
            "install the same there"
        )
    return function(*arguments)


@cache
def sources() -> str:
    """A digest of kernbench's sources on this machine."""
    package = Path(kernbench.__file__).parent
    digest = sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package)} {sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def refuse_jobs(jobs: int) -> None:
    """Refuse a number of processes of this machine for work on a cluster."""
    if jobs:
        raise BenchError("--jobs is for processes on this machine; with --ray the cluster says how many there are")


class _ByThread:
    """Standard output for the thread that made it; other threads, in which Ray reports on nodes, get standard error:
    their output is not a result.
    """

    def __init__(self) -> None:
        self._mine, self._owner = sys.stdout, threading.get_ident()

    def __getattr__(self, name: str) -> object:
        return getattr(self._mine if threading.get_ident() == self._owner else sys.stderr, name)


@contextlib.contextmanager
def _overheard() -> Iterator[Callable[[], str]]:
    """Redirects standard error to a file; yields a function that reads it. Ray's own exception does not say that a
    token was refused: only lines that its library prints every second do.
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


def _why(address: str, error: Exception, output: str) -> str:
    """Why there is no connection, and what to do."""
    text = _first_line(error)
    printed = [line.rpartition("] ")[2] for line in output.splitlines() if _is_about_tokens(line)]
    if printed or type(error).__name__ == "AuthenticationError" or _is_about_tokens(text):
        return f"the cluster asks for a token and was given none that it takes ({[text, *printed][-1]}); {_TOKEN}"
    if address == LOCAL:
        return f"Ray could not be started on this machine ({text}); it may be too busy: try again, or name a cluster"
    return f"no Ray cluster answers there ({text}); start one with `ray start --head`, or say --ray {LOCAL}"


def _is_about_tokens(text: str) -> bool:
    return any(word in text.lower() for word in _REFUSED)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _knock(address: str) -> None:
    """Check that host:port accepts connections; Ray itself would wait for minutes. Names without a port are Ray's."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()


def _ray() -> _Ray:
    try:
        return cast(_Ray, importlib.import_module("ray"))
    except ImportError:
        raise BenchError("--ray needs Ray: pip install 'kernbench[ray]'") from None
