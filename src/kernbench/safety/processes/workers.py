"""Processes that are forked from this one, and each do units of its work on their own copy of everything.

What a unit gives is sent through a pipe. Units are handed out one at a time, in order, to whoever is free. A worker
that ends before its time is an error at once; all workers end with the process that made them.
"""

import gc
import os
import pickle
import selectors
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress

from kernbench.common.errors import KernbenchError

# units that wait in the pipe from which workers take them
_AHEAD = 4096
_NUMBER = 4
# bytes of a result that are read at once
_AT_ONCE = 1 << 20
LENGTH = 8


class DeadWorkerError(KernbenchError):
    """A worker process ended in the middle of its work."""


def can_fork() -> bool:
    """Whether a copy of this process can go on with Python code.

    A copy has one thread, and finds locks as they were. Threads of Python may hold any lock. Threads of libraries (of
    the matrix library, of torch) hold locks of these libraries only, which workers do not use: they multiply on one
    thread. Memory is taken from the C library, which puts its own locks right in the copy. Who knows that the threads
    of Python hold no lock says so with KERNBENCH_START_METHOD=fork; another word forbids copies.
    """
    method = os.environ.get("KERNBENCH_START_METHOD", "")
    return sys.platform == "linux" and (method == "fork" or (not method and threading.active_count() == 1))


class Workers:
    """Workers that call `work` with the number of a unit, and send what it returns."""

    def __init__(self, work: Callable[[int], object]):
        self._work = work
        self._take, self._give = os.pipe()
        # the end of the pipe that results of each worker come from
        self._workers: dict[int, int] = {}
        # units that nobody has been given yet
        self._waiting: Iterator[int] | None = None

    def add(self, count: int) -> None:
        """Fork so many more workers."""
        for _ in range(count):
            results, send = os.pipe()
            widen(send)
            with warnings.catch_warnings():
                # Python warns of every thread there is; see `can_fork`
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if not pid:
                self._run(results, send)
            os.close(send)
            self._workers[results] = pid

    def _run(self, results: int, send: int) -> None:
        """A worker: it never returns."""
        try:
            # the process that was asked to stop stops its workers
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for other in (self._give, results, *self._workers):
                os.close(other)
            gc.freeze()
            while len(unit := os.read(self._take, _NUMBER)) == _NUMBER:
                number = int.from_bytes(unit, "little")
                data = pickle.dumps((number, self._work(number)), pickle.HIGHEST_PROTOCOL)
                write_all(send, len(data).to_bytes(LENGTH, "little"))
                write_all(send, data)
        except BaseException:  # nobody is left to report it to: that it ended is noticed
            pass
        finally:
            os._exit(0)

    def begin(self, units: range) -> None:
        """Hand out units: workers begin with them, whatever this process does meanwhile."""
        self._waiting = iter(units)
        for _, number in zip(range(_AHEAD), self._waiting, strict=False):
            self._hand_out(number)

    def results(self, units: range) -> Iterator[tuple[int, object]]:
        """What units give, as they end."""
        if self._waiting is None:
            self.begin(units)
        assert self._waiting is not None
        waiting, missing = self._waiting, len(units)
        with selectors.DefaultSelector() as selector:
            for results in self._workers:
                selector.register(results, selectors.EVENT_READ)
            while missing:
                for key, _ in selector.select():
                    answer = self._answer(key.fd)
                    missing -= 1
                    following = next(waiting, None)
                    if following is not None:
                        self._hand_out(following)
                    yield answer

    def _hand_out(self, number: int) -> None:
        os.write(self._give, number.to_bytes(_NUMBER, "little"))

    def _answer(self, results: int) -> tuple[int, object]:
        length = read_exactly(results, LENGTH)
        data = read_exactly(results, int.from_bytes(length, "little")) if length is not None else None
        if data is None:
            raise DeadWorkerError(self._last_words(results))
        answer: tuple[int, object] = pickle.loads(data)  # written by a copy of this very process
        return answer

    def _last_words(self, results: int) -> str:
        """How a worker ended."""
        pid = self._workers.pop(results)
        os.close(results)
        status = reaped(pid)
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
        return (
            f"a worker process of the launch ended before its work was done ({how}): memory may be short, or somebody "
            "ended it; launch with fewer workers (jobs=1, --jobs 1)"
        )

    def close(self) -> None:
        """End all workers, whatever they do, and give back what they took."""
        for end in (self._take, self._give):
            os.close(end)
        for results, pid in self._workers.items():
            os.close(results)
            os.kill(pid, signal.SIGKILL)
        for pid in self._workers.values():
            reaped(pid)
        self._workers = {}


def widen(end: int) -> None:
    """Let a pipe take as much at once as is read at once, where the system allows it."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _AT_ONCE)


def reaped(pid: int) -> int:
    """The status of a worker that has ended; 0 where somebody else has asked for it before."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def write_all(end: int, data: bytes) -> None:
    """Write to a pipe until all is written."""
    left = memoryview(data)
    while left:
        left = left[os.write(end, left) :]


def read_exactly(end: int, nbytes: int) -> bytes | None:
    """So many bytes; None where there are fewer."""
    data = bytearray()
    while len(data) < nbytes:
        part = os.read(end, min(nbytes - len(data), _AT_ONCE))
        if not part:
            return None
        data += part
    return bytes(data)
