"""Worker processes: end with their parent, keep to their limits, run parts and send their rows."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from kernbench.bench.discovery.libraries import replaced_functions
from kernbench.common.errors import BenchError
from kernbench.safety.confined import LEAST_MEMORY, hold_memory, private_memory
from kernbench.sweep.executors.base import Limits, Passes
from kernbench.sweep.planning.plan import Plan
from kernbench.sweep.planning.points import OUT_OF_MEMORY, Row
from kernbench.sweep.planning.supply import Part

# seconds for which rows are collected before they are sent
_COLLECT = 0.1
# how often a worker checks for its parent, if the system does not end it
_LOOK = 0.5
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# sent by the parent to a worker that is out of time: it writes its stack
STACK_SIGNAL = getattr(signal, "SIGUSR1", None)
PASSED, FINISHED, LEAVING = "passed", "finished", "leaving"
_EXIT = os._exit


class Descriptor:
    """An open file that a worker inherits, forked or spawned; None if not supported (Windows)."""

    def __init__(self, number: int | None):
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        if os.name == "nt" or self.number is None:
            return Descriptor, (None,)
        from multiprocessing import reduction

        return _received, (reduction.DupFd(self.number),)


def _received(sent: Any) -> Descriptor:
    return Descriptor(sent.detach())


def work(
    pipe: Connection, plan: Plan, limits: Limits, parent: int, stacks: "Descriptor", printed: "Descriptor"
) -> None:
    """Answer every part: `PASSED` once its kernel has run, lists of rows, `FINISHED`.

    `stacks` is a file for the stack of a crash, `printed` takes what is printed.
    """
    # the parent of all that a kernel starts and leaves behind
    _control(_PR_SET_CHILD_SUBREAPER, 1)
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # printed output of kernels is not a result
    if printed.number is not None:
        os.dup2(printed.number, 2)
        os.close(printed.number)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    if stacks.number is not None:
        _write_stacks(stacks.number)
    _end_forks_with(os.getpid())
    passes, answers = Passes(), _Answers(pipe)
    with contextlib.suppress(EOFError, OSError), limited_memory(limits.memory):
        while True:
            _answer(answers, plan, passes, pipe.recv())


def _end_forks_with(worker: int) -> None:
    """Forks that a kernel makes of this process end with it; they would wait for ever, and hold its output open."""

    def forked() -> None:
        if os.getppid() == worker:
            end_with(worker)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forked)


class _Answers:
    """What this process sends. A fork of it that comes back from a kernel ends: one of the two answers."""

    def __init__(self, pipe: Connection):
        self._pipe, self._process = pipe, os.getpid()

    def send(self, what: object) -> None:
        """Send something, in the process that made this."""
        if os.getpid() != self._process:
            _EXIT(0)
        self._pipe.send(what)


def _write_stacks(stacks: int) -> None:
    """Have the stack written on a crash, the parent's signal or `os._exit`."""
    faulthandler.enable(stacks, all_threads=False)
    if STACK_SIGNAL is not None:
        faulthandler.register(STACK_SIGNAL, stacks, all_threads=False)
    worker = os.getpid()

    def leave(status: int) -> NoReturn:
        # forks made by the bench end as they like
        if os.getpid() == worker:
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                faulthandler.dump_traceback(stacks, all_threads=False)
        _EXIT(status)

    os._exit = leave


def _answer(pipe: _Answers, plan: Plan, passes: Passes, part: Part) -> None:
    judged = passes.judged(plan, part.group)
    pipe.send(PASSED)
    rows: list[Row] = []
    since = time.monotonic()
    memory = False
    for row in judged.rows(part.group.rates):
        rows.append(row)
        memory = memory or str(row.get("failed", "")).startswith(OUT_OF_MEMORY)
        if part.careful or time.monotonic() - since > _COLLECT:
            pipe.send(rows)
            rows, since = [], time.monotonic()
    pipe.send(rows)
    # after a lack of memory a fresh process continues, as memory of this one is fragmented, and if the bench has
    # replaced functions of NumPy, which would be blamed on the next point
    pipe.send(LEAVING if memory or replaced_functions() else FINISHED)


def end_with(parent: int) -> None:
    """Let this process end when `parent` does, however that ends."""
    if not _killed_with_parent():
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    # it may have ended before
    if os.getppid() != parent:
        _EXIT(1)


def _killed_with_parent() -> bool:
    """Ask Linux to kill this process with the thread that started it; False on other systems."""
    return _control(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _control(what: int, value: int) -> bool:
    """Change something of this process; False on systems other than Linux."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(what, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    _EXIT(1)


def check_memory(most: int | None) -> None:
    """Refuse a memory limit that cannot be enforced."""
    if most is None:
        return
    if most < LEAST_MEMORY:
        raise BenchError(f"--max-memory: a point needs {LEAST_MEMORY // 2**20} MiB at least; give it more")
    try:
        _set_limit(_limits()[0], _limits()[1])
    except (ImportError, AttributeError, ValueError, OSError) as error:
        raise BenchError(f"--max-memory cannot be held on this system ({error}): leave it out") from None


@contextlib.contextmanager
def limited_memory(most: int | None) -> Iterator[None]:
    """Limit the memory that this process may allocate further, inside this context."""
    if most is None:
        yield
        return
    kind, (soft, hard) = _limits()
    allowed = most + private_memory()
    _set_limit(kind, (allowed if hard < 0 else min(allowed, hard), hard))
    hold_memory(most)
    try:
        yield
    finally:
        hold_memory(None)
        _set_limit(kind, (soft, hard))


def _limits() -> tuple[int, tuple[int, int]]:
    import resource

    # on Linux RLIMIT_DATA leaves out shared and read-only memory, which RLIMIT_AS counts
    kind = resource.RLIMIT_DATA if sys.platform.startswith("linux") else resource.RLIMIT_AS
    return kind, resource.getrlimit(kind)


def _set_limit(kind: int, limits: tuple[int, int]) -> None:
    import resource

    resource.setrlimit(kind, limits)
