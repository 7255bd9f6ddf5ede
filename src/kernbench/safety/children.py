"""User code in child processes: started, limited, read from, and killed with everything they started.

`Children` runs functions by name ("module:function") with a JSON argument. A function gets that argument and a callable
for sending messages. Whatever happens in it (an endless loop, a crash, `os._exit`, out of memory), the caller gets an
`Ended` that says how it ended and at which line.

    with Children() as children:
        child = children.start("kernbench.bench.checking.worker:check_file", {"file": "a.py"}, seconds=60)
        for event in children.events():   # (child, message), then (child, Ended)
            ...

A process is forked where that is safe, with everything imported already: on Linux, if no other Python thread runs.
Otherwise a new interpreter is spawned. The environment variable KERNBENCH_START_METHOD (fork or spawn) overrides the
choice.
"""

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from kernbench.common.errors import MisuseError
from kernbench.safety.channel import BrokenChannelError, Receiver, Tail, new_key
from kernbench.safety.confined import CHANNEL_GONE, Order, confined

_METHOD = "KERNBENCH_START_METHOD"
# poll intervals in seconds, for states that no descriptor announces
_LOOK = 0.5
_POLL = 0.02
# seconds for a process to report its position before it is killed
_LAST_WORDS = 2.0
# chunks that a full pipe may contain
_FULL_PIPE = 64
_FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+) in (?P<function>.+)')
# faulthandler ends a trace so that has more frames than it shows, of which a recursion has one again and again
_CUT = re.compile(r"^ *\.\.\.$", re.M)
_AGAIN = 10
CRASHES = tuple(getattr(signal, name) for name in ("SIGSEGV", "SIGBUS") if hasattr(signal, name))
OVERFLOWED = ": its stack overflowed, as calls were nested too deeply"
REMEDY = "stop the recursion there, or write it as a loop: a higher sys.setrecursionlimit gives no larger stack"
_BEGIN = (
    "import json, sys; given = json.load(sys.stdin); sys.path[:] = given['path']; "
    "from kernbench.safety.confined import ordered; ordered(given['order'])"
)
# the guardian: kills the process groups listed on its input, once the process that wrote them is gone
_GUARDIAN = """
import os, signal, sys
os.setsid()
alive = set()
for line in sys.stdin:
    (alive.add if line[0] == "+" else alive.discard)(int(line[1:]))
for group in alive:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended: `finished` if its function returned; `over` names the limit that it exceeded, if any; `deep`
    if its stack overflowed.
    """

    finished: bool
    code: int | None = None
    signal: int | None = None
    over: str = ""
    where: tuple[str, int, str] | None = None
    left: bool = False
    deep: bool = False

    @property
    def lost(self) -> bool:
        """Whether its channel to the parent is broken."""
        return self.over == "channel" or self.code == CHANNEL_GONE

    def reason(self) -> str:
        """How and where it ended, as the rest of a sentence about the process."""
        where = f" at {self.where[0]}:{self.where[1]} in {self.where[2]}" if self.where else ""
        if self.over == "time":
            return f"was ended{where}: it had gone beyond its limit of time"
        if self.lost:
            return "closed a descriptor that is not its own, or wrote to it: its results cannot be received"
        if self.signal is not None:
            why = OVERFLOWED if self.deep else _likely(self.signal)
            return f"was killed by {_signal_name(self.signal)}{where}{why}"
        called = "os._exit was called" if self.left else "something ended it without an error of Python"
        return f"ended with exit code {self.code} before it was done: {called}{where}"


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return f"{signal.Signals(number).name} ({signal.strsignal(number) or 'signal'})"
    return f"signal {number}"


def _likely(number: int) -> str:
    if number != signal.SIGKILL:
        return ""
    return ": by itself, by somebody else, or by a system that had no memory left"


@dataclass(eq=False)
class Child:
    """One child process: its pid, its `output`, and its deadline."""

    pid: int
    results: Receiver
    output: Tail
    trace: Tail
    clock: Callable[[], float]
    deadline: float = float("inf")
    over: str = ""
    killed_at: float | None = None
    exit_descriptor: int | None = None
    popen: "subprocess.Popen[bytes] | None" = None
    done: bool = False
    left: tuple[str, int, str] | None = None
    status: int | None = None
    open: set[int] = field(default_factory=set)

    @property
    def received(self) -> int:
        """Bytes received from it."""
        return self.results.total + self.output.total + self.trace.total

    def limit(self, seconds: float) -> None:
        """Set its deadline to this many seconds from now."""
        self.deadline = self.clock() + seconds

    def location(self) -> tuple[str, int, str] | None:
        """The last known position: the innermost frame outside of kernbench and Python."""
        if self.left is not None:
            return self.left
        return location_in(self.trace.text())


def location_in(trace: str) -> tuple[str, int, str] | None:
    """File, line and function of the innermost frame of user code in a faulthandler trace."""
    frames = [(m["file"], int(m["line"]), m["function"].strip()) for m in _FRAME.finditer(trace)]
    return next((frame for frame in frames if _somebodys(frame[0])), None)


def is_deep(trace: str) -> bool:
    """Whether a faulthandler trace of a crash is that of a recursion that took the whole stack."""
    frames = Counter(m.group() for m in _FRAME.finditer(trace))
    return _CUT.search(trace) is not None and max(frames.values(), default=0) >= _AGAIN


def _somebodys(file: str) -> bool:
    """Whether a file is user code: neither kernbench nor an installed package."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    library = os.path.dirname(os.__file__)
    installed = "site-packages" in file or "dist-packages" in file
    return not installed and not file.startswith((ours + os.sep, library + os.sep, "<frozen"))


def start_method() -> str:
    """How processes are started: "fork", or "spawn" for a new interpreter."""
    chosen = os.environ.get(_METHOD, "")
    if chosen not in ("", "fork", "spawn"):
        raise MisuseError(f"{_METHOD}={chosen}: fork or spawn is wanted")
    return chosen or ("fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn")


class Children:
    """Child processes that run user code; on exit, those still running are killed with everything they started."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._alive: list[Child] = []

    def __enter__(self) -> "Children":
        words = [sys.executable, "-I", "-S", "-c", _GUARDIAN]
        self._guardian = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *exc: object) -> None:
        for child in list(self._alive):
            self._kill(child)
            self._reap(child)
        self._selector.close()
        assert self._guardian.stdin is not None
        with suppress(OSError):
            self._guardian.stdin.close()
        self._guardian.wait()

    def __len__(self) -> int:
        return len(self._alive)

    def start(self, target: str, argument: object, seconds: float, memory: int | None = None) -> Child:
        """Start a process that runs a function; it has `seconds` until `Child.limit` sets another deadline."""
        pipes = [os.pipe() for _ in range(3)]
        key = new_key()
        reading, writing = [pipe[0] for pipe in pipes], [pipe[1] for pipe in pipes]
        results, output, trace = writing
        order = Order(target, argument, key.hex(), results, output, trace, os.getpid(), memory)
        deadline = self._clock() + seconds
        popen = None if start_method() == "fork" else _spawn(order)
        pid = _fork(order) if popen is None else popen.pid
        for descriptor in writing:
            os.close(descriptor)
        child = Child(pid, Receiver(reading[0], key), Tail(reading[1]), Tail(reading[2]), self._clock, deadline)
        child.popen = popen
        self._add(child)
        return child

    def _add(self, child: Child) -> None:
        self._notify_guardian(f"+{child.pid}\n")
        self._alive.append(child)
        for descriptor in (child.results.descriptor, child.output.descriptor, child.trace.descriptor):
            child.open.add(descriptor)
            self._selector.register(descriptor, selectors.EVENT_READ, child)
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                child.exit_descriptor = os.pidfd_open(child.pid)
                self._selector.register(child.exit_descriptor, selectors.EVENT_READ, child)

    def _notify_guardian(self, line: str) -> None:
        assert self._guardian.stdin is not None
        # without the guardian, children still end with their parent if the system supports that
        with suppress(OSError):
            self._guardian.stdin.write(line.encode())
            self._guardian.stdin.flush()

    def events(self) -> Iterator[tuple[Child, dict[str, object] | Ended]]:
        """Messages as they arrive, and how each process ended, until none is left; more may be started meanwhile."""
        while self._alive:
            ready: dict[Child, None] = dict.fromkeys(key.data for key, _ in self._selector.select(self._patience()))
            for child in ready:
                yield from self._received(child)
            for child in list(self._alive):
                self._end_if_late(child)
                if _exited(child):
                    _signal_group(child.pid, signal.SIGKILL)
                    yield from self._drained(child)
                    yield child, self._reap(child)

    def _patience(self) -> float:
        """Seconds to wait for something to read."""
        polled = any(child.exit_descriptor is None or child.killed_at is not None for child in self._alive)
        # a process that is being killed has no deadline any more
        deadlines = [child.deadline for child in self._alive if child.killed_at is None]
        left = min(deadlines, default=inf) - self._clock()
        return max(0.0, min(_POLL if polled else _LOOK, left))

    def _received(self, child: Child) -> Iterator[tuple[Child, dict[str, object]]]:
        for tail in (child.output, child.trace):
            if tail.descriptor in child.open and not tail.read():
                self._forget(child, tail.descriptor)
        if child.results.descriptor not in child.open:
            return
        try:
            messages, more = child.results.read()
        except BrokenChannelError:
            self._forget(child, child.results.descriptor)
            child.over = child.over or "channel"
            self._kill(child)
            return
        if not more:
            self._forget(child, child.results.descriptor)
        for message in messages:
            if "end" in message:
                child.done = True
                # its exit handlers get a short deadline
                child.limit(_LAST_WORDS)
            elif "left" in message:
                file, line, function = message["left"]
                child.left = (file, line, function)
            else:
                yield child, message

    def _drained(self, child: Child) -> Iterator[tuple[Child, dict[str, object]]]:
        """Messages left in the pipes of an ended process, but not what other holders of the pipes would still write."""
        for _ in range(_FULL_PIPE):
            before = child.received
            yield from self._received(child)
            if child.received == before:
                return

    def _forget(self, child: Child, descriptor: int) -> None:
        child.open.discard(descriptor)
        self._selector.unregister(descriptor)

    def _end_if_late(self, child: Child) -> None:
        now = self._clock()
        if child.killed_at is None and now >= child.deadline:
            if child.done:
                self._kill(child)
                return
            child.over = child.over or "time"
            child.killed_at = time.monotonic()
            # faulthandler answers SIGABRT with a trace
            _signal_group(child.pid, signal.SIGABRT, group=False)
        elif child.killed_at is not None and time.monotonic() - child.killed_at > _LAST_WORDS:
            self._kill(child)

    def _kill(self, child: Child) -> None:
        child.killed_at = time.monotonic()
        _signal_group(child.pid, signal.SIGKILL)

    def _reap(self, child: Child) -> Ended:
        """Collect the exit status of an ended process, and close its descriptors."""
        if child.status is None:
            child.status = child.popen.wait() if child.popen is not None else _waited(child.pid, 0)
        status = child.status or 0
        self._notify_guardian(f"-{child.pid}\n")
        self._alive.remove(child)
        for descriptor in list(child.open):
            self._forget(child, descriptor)
        if child.exit_descriptor is not None:
            self._selector.unregister(child.exit_descriptor)
            os.close(child.exit_descriptor)
        for end in (child.results, child.output, child.trace):
            end.close()
        code, number = (status, None) if status >= 0 else (None, -status)
        deep = number in CRASHES and is_deep(child.trace.text())
        return Ended(child.done, code, number, child.over, child.location(), child.left is not None, deep)


def _exited(child: Child) -> bool:
    """Whether a process has ended; its status is not collected if possible, so that its pid is not reused."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    child.status = child.popen.poll() if child.popen is not None else _waited(child.pid, os.WNOHANG)
    return child.status is not None


def _waited(pid: int, how: int) -> int | None:
    """The exit code of a process, or minus the signal that killed it; None if it still runs."""
    ended, status = os.waitpid(pid, how)
    return os.waitstatus_to_exitcode(status) if ended else None


def _signal_group(pid: int, number: int, group: bool = True) -> None:
    """Send a signal to a process and, if asked, to its group, which may not exist yet."""
    for send in (os.kill, os.killpg) if group else (os.kill,):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def _fork(order: Order) -> int:
    """Fork this process to run an order; returns the pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python warns about the threads of the BLAS library, which starts new ones in a fork
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        confined(order)
    return pid


def _spawn(order: Order) -> "subprocess.Popen[bytes]":
    """Start a new interpreter that runs an order."""
    with tempfile.TemporaryFile() as text:
        text.write(json.dumps({"path": sys.path, "order": order.to_text()}).encode())
        text.seek(0)
        return subprocess.Popen(
            [sys.executable, "-c", _BEGIN],
            stdin=text,
            stdout=order.output,
            stderr=order.output,
            pass_fds=(order.results, order.output, order.trace),
            start_new_session=True,
        )
