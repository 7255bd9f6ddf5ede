"""Worker processes: forks of this process that run units of its work, each on its own copy of everything.

Workers fork further workers, so that many start in the time of a few. Units are handed out one at a time, in order, to
whichever worker is free. A result is sent through a pipe, its large arrays through a memory file. A worker that dies
early raises an error at once; all workers end with the process that started them.
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

# units queued in the pipe from which workers take them
_AHEAD = 4096
_NUMBER = 4
# bytes of a result read by one call
_AT_ONCE = 1 << 20
LENGTH = 8
# prctl codes of the child-subreaper flag: who becomes the parent of orphaned processes
_SET_ADOPTS, _GET_ADOPTS = 36, 37


class DeadWorkerError(KernbenchError):
    """A worker process died before its work was done."""


def can_fork() -> bool:
    """Whether a fork of this process can run Python code.

    A fork has one thread, and inherits locks in their current state. Other Python threads may hold any lock. Threads of
    libraries (BLAS, torch) hold only locks of these libraries, which workers do not use: they multiply on one thread.
    The C library resets the locks of its allocator in a fork. If the Python threads are known to hold no locks,
    KERNBENCH_START_METHOD=fork permits forks; any other value forbids them.
    """
    method = os.environ.get("KERNBENCH_START_METHOD", "")
    return sys.platform == "linux" and (method == "fork" or (not method and threading.active_count() == 1))


class _Numbers:
    """The pids of workers, and the flag that stops them, in shared memory."""

    def __init__(self, count: int):
        self._shared = mmap.mmap(-1, 4 * (count + 1))
        self._words = memoryview(self._shared).cast("i")

    def __getitem__(self, worker: int) -> int:
        """The pid of a worker; 0 before it has started."""
        return self._words[worker + 1]

    def begins(self, worker: int, pid: int) -> bool:
        """Register a started worker; returns whether it is still wanted."""
        self._words[worker + 1] = pid
        return not self._words[0]

    def forget(self, worker: int) -> None:
        """Clear the pid of an ended worker, as it may be reused."""
        self._words[worker + 1] = 0

    def stop(self) -> None:
        """Set the flag: workers that start from now on end at once."""
        self._words[0] = 1


class Workers:
    """Worker processes that call `work` with the number of a unit, and send its result."""

    def __init__(self, work: Callable[[int], object]):
        self._work = work
        self._take, self._give = os.pipe()
        # by worker: the pipe of its results, and the file for their large arrays
        self._results: list[int] = []
        self._files: list[int | None] = []
        # by worker not started yet: the sending end of its pipe
        self._sends: dict[int, int] = {}
        self._numbers = _Numbers(0)
        # whether this process was a child subreaper before; None if that was not changed
        self._adopted: bool | None = None
        # units not handed out yet
        self._waiting: Iterator[int] | None = None

    def add(self, count: int) -> None:
        """Fork this many workers, or as many as the system permits; an OSError if it permits none."""
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
                # Python warns about any thread; see `can_fork`
                warnings.simplefilter("ignore", DeprecationWarning)
                self._make(0, count)
        except OSError:
            # the first worker does the work of the others
            if not self._numbers[0]:
                raise

    def _make(self, first: int, last: int) -> None:
        """Fork the workers `first` to `last` - 1; each forks half of those that are left."""
        while first < last:
            middle = (first + last + 1) // 2
            pid = os.fork()
            if not pid:
                self._run(first, middle)
            self._numbers.begins(first, pid)
            first = middle

    def _run(self, worker: int, last: int) -> None:
        """Run a worker, which first forks the workers up to `last` - 1; never returns."""
        try:
            # on Ctrl-C the parent kills its workers
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if not self._numbers.begins(worker, os.getpid()):
                return
            self._keep_sends(range(worker, last))
            # if its parent is a worker, these are closed already
            for end in (self._give, *self._results) if self._results else ():
                os.close(end)
            self._results = []
            # workers that cannot be forked take no unit, and are not missed
            with suppress(OSError):
                self._make(worker + 1, last)
            self._keep_sends(range(worker, worker + 1))
            self._serve(self._sends[worker], self._files[worker])
        except BaseException:  # nobody is left to report it to: that it ended is noticed
            pass
        finally:
            os._exit(0)

    def _keep_sends(self, workers: range) -> None:
        """Close the sending ends of other workers' pipes, so that each pipe ends with its worker."""
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
        # an empty message: this worker ends normally while others still work
        write_all(send, bytes(LENGTH))

    def begin(self, units: range) -> None:
        """Hand out units; workers start on them, whatever this process does meanwhile."""
        self._waiting = iter(units)
        for _, number in zip(range(_AHEAD), self._waiting, strict=False):
            self._hand_out(number)

    def results(self, units: range) -> Iterator[tuple[int, object]]:
        """The results of units, in order of completion."""
        if self._waiting is None:
            self.begin(units)
        assert self._waiting is not None
        waiting, missing = self._waiting, len(units)
        following = self._following(waiting)
        # unlike epoll, a PollSelector uses no descriptor
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
        """The next unit to hand out; after the last one the pipe is closed, so that workers end."""
        found = next(waiting, None)
        if found is None:
            os.close(self._give)
            self._give = -1
        return found

    def _hand_out(self, number: int) -> None:
        os.write(self._give, number.to_bytes(_NUMBER, "little"))

    def _answer(self, worker: int) -> tuple[int, object] | None:
        """A worker's next result; None if it has finished, or was never started (the first one always is)."""
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
        """A message on how a worker ended."""
        status = self._ended()[worker]
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
        return (
            f"a worker process of the launch ended before its work was done ({how}): memory may be short, or somebody "
            "ended it; launch with fewer workers (jobs=1, --jobs 1)"
        )

    def stop(self) -> None:
        """Kill all workers; `close` waits for them."""
        self._numbers.stop()
        for pid in filter(None, map(self._numbers.__getitem__, range(len(self._results)))):
            # an ended worker may be reaped already, if this program waits for all its children
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _ended(self) -> list[int]:
        """Wait for all workers to end; returns their exit statuses.

        A worker that was being forked during `stop` has registered its pid by the time its pipe reaches the end.
        Workers whose parent has ended are children of this process (it is a child subreaper). A parent has a smaller
        number than its children, so it is reaped before they are waited for.
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
        """Kill all workers, and close their descriptors."""
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
    """Whether this process is a child subreaper: the new parent of orphaned descendants."""
    found = ctypes.c_int(0)
    _prctl(_GET_ADOPTS, ctypes.byref(found))
    return bool(found.value)


def _adopt(on: bool) -> None:
    _prctl(_SET_ADOPTS, ctypes.c_ulong(on))


def _prctl(what: int, value: object) -> None:
    # without it, orphaned processes go to init, which also reaps them
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(what, value, 0, 0, 0)


def widen(end: int) -> None:
    """Enlarge a pipe's buffer to what one read takes, where supported."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _AT_ONCE)


def reaped(pid: int) -> int:
    """The exit status of an ended worker; 0 if it was already collected elsewhere."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def write_all(end: int, data: bytes) -> None:
    """Write all bytes to a pipe."""
    left = memoryview(data)
    while left:
        left = left[os.write(end, left) :]


def read_exactly(end: int, nbytes: int) -> bytes | None:
    """This many bytes; None if the pipe ends before."""
    data = bytearray()
    while len(data) < nbytes:
        part = os.read(end, min(nbytes - len(data), _AT_ONCE))
        if not part:
            return None
        data += part
    return bytes(data)
