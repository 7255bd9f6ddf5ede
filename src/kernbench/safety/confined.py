"""What a child process does to itself before it runs user code, and how it runs that code.

The process gets a session of its own (no signal from the terminal reaches it, and its whole group can be killed), no
input, output to a pipe, a memory limit where the system supports one, and it dies with its parent. On a fatal signal
`faulthandler` writes its position to a pipe; `os._exit` reports where it was called.
"""

import atexit
import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from kernbench.common.files import in_bytes
from kernbench.safety.channel import BrokenChannelError, Sender, identity

# a target function; it gets its argument, and a callable for sending messages
Target = Callable[[object, Callable[[dict[str, object]], None]], None]
# exit code of a process whose channel is broken
CHANNEL_GONE = 113
_DEATH_SIGNAL = 1
# smallest memory limit in bytes: the stacks of threads alone take that much
LEAST_MEMORY = 64 * 2**20


@dataclass(frozen=True)
class Order:
    """Everything that a child process needs to know: what to run, its argument, and its descriptors."""

    target: str
    argument: object
    key: str
    results: int
    output: int
    trace: int
    parent: int
    memory: int | None

    def to_text(self) -> str:
        """As text, for a process that shares no memory."""
        return json.dumps(asdict(self))


def ordered(text: str) -> NoReturn:
    """Confine this new process, and run the `Order` given as text."""
    confined(Order(**json.loads(text)))


def confined(order: Order) -> NoReturn:
    """Confine this process, run the order's target, and end. Never returns, whatever happens."""
    code = CHANNEL_GONE
    try:
        sender = _confine(order)
        module, _, name = order.target.partition(":")
        target: Target = getattr(importlib.import_module(module), name)
        target(order.argument, _flushing(sender))
        sender.send({"end": True})
        code = 0
        # exit handlers registered by the code; ours were cleared
        atexit._run_exitfuncs()
    except BrokenChannelError:
        pass
    except BaseException:
        code = 1
        sys.excepthook(*sys.exc_info())
    finally:
        leave_now(code)


def leave_now(code: int) -> NoReturn:
    """Flush the output and end this process, with no other clean-up."""
    _flush()
    _EXIT(code)


_EXIT = os._exit


def _flushing(sender: Sender) -> Callable[[dict[str, object]], None]:
    """A callable that sends messages after the output printed before them."""

    def send(message: dict[str, object]) -> None:
        _flush()
        sender.send(message)

    return send


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            continue


def _confine(order: Order) -> Sender:
    if os.getsid(0) != os.getpid():
        os.setsid()
    end_with(order.parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _hide_descriptors({order.results, order.output, order.trace})
    _standard_streams(order.output)
    _limit_memory(order.memory)
    atexit._clear()
    faulthandler.enable(order.trace, all_threads=False)
    sender = Sender(order.results, bytes.fromhex(order.key))
    announce_exit(sender)
    sys.breakpointhook = _no_debugger
    return sender


def end_with(parent: int) -> None:
    """Have this process killed when its parent ends, in whatever way."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    # the parent may have ended before
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _watch_parent(parent: int) -> None:
    waiting = threading.Event()
    while os.getppid() == parent:
        waiting.wait(1.0)
    os.kill(os.getpid(), signal.SIGKILL)


def _hide_descriptors(mine: set[int]) -> None:
    """Redirect descriptors inherited from the parent to /dev/null.

    A pipe must not be kept open here after the parent closes it.

    They are not closed, because inherited Python objects would later close whatever file reuses their numbers.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        number = int(name)
        # the descriptor of the listing is already closed
        if number > 2 and number != nowhere and number not in mine and identity(number):
            os.dup2(nowhere, number, inheritable=False)
    os.close(nowhere)


def _standard_streams(output: int) -> None:
    """No input, all output to a pipe; Python's streams are replaced too, as a test may have redirected them."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    made = {"stdin": _stream(0, "r"), "stdout": _stream(1, "w"), "stderr": _stream(2, "w")}
    for name, stream in made.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(descriptor: int, mode: str) -> object:
    return os.fdopen(descriptor, mode, encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def _limit_memory(limit: int | None) -> None:
    """Limit the private memory that this process may allocate in addition, and disable core dumps, where supported."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if limit is not None:
            most = limit + private_memory()
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))
            hold_memory(limit)


# the memory that an option of the command line gives this process, or nothing
_memory: list[int] = []


def hold_memory(nbytes: int | None) -> None:
    """Remember the memory that this process may have; None without a limit."""
    _memory[:] = [] if nbytes is None else [nbytes]


def is_beyond_memory(error: BaseException) -> bool:
    """Whether an error says that such a limit was reached, which is neither right nor wrong of a kernel."""
    return bool(_memory) and isinstance(error, MemoryError)


def memory_in_words() -> str:
    """The limit that was reached."""
    return f"more than the {in_bytes(_memory[0])} of --max-memory"


def private_memory() -> int:
    """Bytes that Linux counts against RLIMIT_DATA for this process: private writable memory, even if only reserved.

    A fork inherits the reservations of its parent (an emulated GPU reserves terabytes). Under a limit below that it
    cannot even start a thread: Python's `Thread.start` then waits forever. 0 if unknown.
    """
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def free_bytes() -> int | None:
    """Available memory of this computer, or None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(found.split()[1]) << 10
    except (OSError, StopIteration, ValueError, IndexError):
        names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
        if "SC_AVPHYS_PAGES" in names:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return None


def announce_exit(sender: Sender) -> None:
    """Make `os._exit` report where it was called before it ends this process; a fork of the process just ends."""

    def leave(status: int) -> NoReturn:
        if not sender.mine:
            _EXIT(status)
        frame = sys._getframe(1)
        try:
            _flush()
            sender.send({"left": [frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name]})
        finally:
            _EXIT(status)

    os._exit = leave


def _no_debugger(*args: object, **kwargs: object) -> None:
    raise RuntimeError("breakpoint() has no terminal here: nobody can answer; use kernbench run to look inside")
