"""Processes that are forked from this one, and each do units of its work on their own copy of everything.

Workers fork further workers, so that many are made in the time of a few. Units are handed out one at a time, in order,
to whoever is free. What a unit gives is sent through a pipe, its large arrays through a file that lies in memory. A
worker that ends before its time is an error at once; all workers end with the process that made them.
"""

import ctypes
import gc
import mmap
import os
import selectors
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress

from kernbench.common.errors import KernbenchError
from kernbench.safety.processes.parcels import Packer, new_file, unpack

# units that wait in the pipe from which workers take them
_AHEAD = 4096
_NUMBER = 4
# bytes of a result that are read at once
_AT_ONCE = 1 << 20
LENGTH = 8
# numbers of prctl: who becomes the parent of processes whose parent has ended
_SET_ADOPTS, _GET_ADOPTS = 36, 37


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


class _Numbers:
    """The process numbers of workers, and whether they are to stop: memory that all of them share."""

    def __init__(self, count: int):
        self._shared = mmap.mmap(-1, 4 * (count + 1))
        self._words = memoryview(self._shared).cast("i")

    def __getitem__(self, worker: int) -> int:
        """The number of a worker's process; 0 as long as it has not begun."""
        return self._words[worker + 1]

    def begins(self, worker: int, pid: int) -> bool:
        """A worker is there; whether it is wanted."""
        self._words[worker + 1] = pid
        return not self._words[0]

    def forget(self, worker: int) -> None:
        """A worker has ended: its number may be somebody else's from now on."""
        self._words[worker + 1] = 0

    def stop(self) -> None:
        """No worker is wanted that begins from now on."""
        self._words[0] = 1


class Workers:
    """Workers that call `work` with the number of a unit, and send what it returns."""

    def __init__(self, work: Callable[[int], object]):
        self._work = work
        self._take, self._give = os.pipe()
        # of each worker, by its number: where its results come from, and the file for what is large in them
        self._results: list[int] = []
        self._files: list[int | None] = []
        # where the results of those go that are still to be made, by their number
        self._sends: dict[int, int] = {}
        self._numbers = _Numbers(0)
        # whether this process took over children whose parent has ended before; None as long as it need not
        self._adopted: bool | None = None
        # units that nobody has been given yet
        self._waiting: Iterator[int] | None = None

    def add(self, count: int) -> None:
        """Fork so many workers, or as many as the system has processes for; an OSError if it has none, or no files."""
        self._numbers = _Numbers(count)
        try:
            for number in range(count):
                results, self._sends[number] = os.pipe()
                self._results.append(results)
                self._files.append(new_file())
            self._adopted = _adopts()
            _adopt(True)
            self._make_all(count)
        finally:
            self._keep_sends(range(0))

    def _make_all(self, count: int) -> None:
        try:
            with warnings.catch_warnings():
                # Python warns of every thread there is; see `can_fork`
                warnings.simplefilter("ignore", DeprecationWarning)
                self._make(0, count)
        except OSError:
            # the first does what the others would have done
            if not self._numbers[0]:
                raise

    def _make(self, first: int, last: int) -> None:
        """Fork the workers from the first to before the last: each makes half of those that are left."""
        while first < last:
            middle = (first + last + 1) // 2
            pid = os.fork()
            if not pid:
                self._run(first, middle)
            self._numbers.begins(first, pid)
            first = middle

    def _run(self, worker: int, last: int) -> None:
        """A worker, which makes those behind it up to before the last: it never returns."""
        try:
            # the process that was asked to stop stops its workers
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if not self._numbers.begins(worker, os.getpid()):
                return
            self._keep_sends(range(worker, last))
            # its maker may be a worker, which has closed them
            for end in (self._give, *self._results) if self._results else ():
                os.close(end)
            self._results = []
            # those that cannot be made take no unit, and are not missed
            with suppress(OSError):
                self._make(worker + 1, last)
            self._keep_sends(range(worker, worker + 1))
            self._serve(self._sends[worker], self._files[worker])
        except BaseException:  # nobody is left to report it to: that it ended is noticed
            pass
        finally:
            os._exit(0)

    def _keep_sends(self, workers: range) -> None:
        """Close where the results of all other workers go: what nobody else holds ends with its worker."""
        for number in [number for number in self._sends if number not in workers]:
            os.close(self._sends.pop(number))

    def _serve(self, send: int, file: int | None) -> None:
        gc.freeze()
        packer = Packer(file)
        while len(unit := os.read(self._take, _NUMBER)) == _NUMBER:
            number = int.from_bytes(unit, "little")
            data = packer.pack((number, self._work(number)))
            write_all(send, len(data).to_bytes(LENGTH, "little"))
            write_all(send, data)
        # nothing is left to do: it ends while others still work, and says so
        write_all(send, bytes(LENGTH))

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
        following = self._following(waiting)
        # this kind takes no file
        with selectors.PollSelector() as selector:
            for worker, results in enumerate(self._results):
                selector.register(results, selectors.EVENT_READ, worker)
            while missing:
                for key, _ in selector.select():
                    answer = self._answer(key.data)
                    if answer is None:
                        selector.unregister(key.fd)
                        continue
                    missing -= 1
                    if following is not None:
                        self._hand_out(following)
                        following = self._following(waiting)
                    yield answer

    def _following(self, waiting: Iterator[int]) -> int | None:
        """The unit that is handed out next; where there is none, workers learn that by the end of their pipe."""
        found = next(waiting, None)
        if found is None:
            os.close(self._give)
            self._give = -1
        return found

    def _hand_out(self, number: int) -> None:
        os.write(self._give, number.to_bytes(_NUMBER, "little"))

    def _answer(self, worker: int) -> tuple[int, object] | None:
        """What a worker sends; None where it has nothing left to do, or was never made, which the first always is."""
        results = self._results[worker]
        length = read_exactly(results, LENGTH)
        data = read_exactly(results, int.from_bytes(length, "little")) if length is not None else None
        if data == b"" or (data is None and worker and not self._numbers[worker]):
            return None
        if data is None:
            raise DeadWorkerError(self._last_words(worker))
        answer = unpack(data, self._files[worker])
        assert isinstance(answer, tuple)
        return answer

    def _last_words(self, worker: int) -> str:
        """How a worker ended."""
        status = self._ended()[worker]
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
        return (
            f"a worker process of the launch ended before its work was done ({how}): memory may be short, or somebody "
            "ended it; launch with fewer workers (jobs=1, --jobs 1)"
        )

    def stop(self) -> None:
        """End all workers, whatever they do; `close` waits for it."""
        self._numbers.stop()
        for pid in filter(None, map(self._numbers.__getitem__, range(len(self._results)))):
            # one that ended may be gone, where this program waits for all its children
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _ended(self) -> list[int]:
        """Wait for the end of all workers; the status of each.

        One that was being made when they were stopped has its number once nobody can write to its pipe any more. Those
        whose maker has ended are children of this process. A maker has a smaller number than those that it made, so
        that it is gone before they are waited for.
        """
        self.stop()
        for results in self._results:
            while os.read(results, _AT_ONCE):
                pass
        found = []
        for worker in range(len(self._results)):
            pid = self._numbers[worker]
            found.append(reaped(pid) if pid else 0)
            self._numbers.forget(worker)
        return found

    def close(self) -> None:
        """End all workers, and give back what they took."""
        for end in (self._take, self._give):
            if end >= 0:
                os.close(end)
        self._ended()
        for end in (*self._results, *(file for file in self._files if file is not None)):
            os.close(end)
        self._results, self._files = [], []
        if self._adopted is not None:
            _adopt(self._adopted)


def _adopts() -> bool:
    """Whether this process becomes the parent of processes below it whose own parent has ended."""
    found = ctypes.c_int(0)
    _prctl(_GET_ADOPTS, ctypes.byref(found))
    return bool(found.value)


def _adopt(on: bool) -> None:
    _prctl(_SET_ADOPTS, ctypes.c_ulong(on))


def _prctl(what: int, value: object) -> None:
    # a system without it gives such processes to its first one, which waits for them as well
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(what, value, 0, 0, 0)


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
