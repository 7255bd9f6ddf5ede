"""Commands run user files in a forked copy of this process; this process reports how the copy ended.

The copy has the terminal, so that `breakpoint()` and Ctrl-C work as usual. It sends its exit code before it ends. If it
ends without (by `os._exit(0)` in the bench, or a crash in C code), there is no verdict, and the exit code is never 0.
"""

import atexit
import faulthandler
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kernbench.cli.output.console import FOUND, INTERRUPTED, errors
from kernbench.cli.output.document import error_data, is_descriptor, write_document
from kernbench.common.errors import BenchError
from kernbench.result.finding import SourceLocation
from kernbench.result.reading import Data
from kernbench.safety.channel import BrokenChannelError, Receiver, Sender, Tail, identity, new_key
from kernbench.safety.children import CRASHES, REMEDY, Ended, is_deep, location_in, start_method
from kernbench.safety.confined import CHANNEL_GONE, announce_exit, end_with, leave_now
from kernbench.safety.processes.interpreter import restore_builtins

_FOLDERS = ("-k", "--kernels")
_MUTE = (
    "what was found could not be printed: the file that was run has closed the descriptors of standard output or "
    "standard error; leave those open (sys.stdout = open(os.devnull, 'w') silences code)"
)
_NEXT = "a bench returns its Run or raises an error, and does not end its process"


def runs_files(words: Sequence[str]) -> bool:
    """Whether the words after a command name a user's file, and this system can fork."""
    if not is_descriptor(sys.stdout, 1):
        return False
    named = any(word.endswith(".py") or word.startswith(_FOLDERS) or os.sep in word for word in words)
    return named and start_method() == "fork"


def guarded(words: Sequence[str], body: Callable[[], None]) -> int:
    """Run `body`, which ends with SystemExit, in a forked copy; returns its exit code, or `FOUND` if it sent none."""
    (results, to_results), (trace, to_trace) = os.pipe(), os.pipe()
    key, me = new_key(), os.getpid()
    with warnings.catch_warnings():
        # no Python threads run; those of the matrix library are restarted in the copy
        warnings.simplefilter("ignore", DeprecationWarning)
        copy = os.fork()
    if copy == 0:
        os.close(results)
        os.close(trace)
        _run_in_copy(body, Sender(to_results, key), to_trace, me)
    os.close(to_results)
    os.close(to_trace)
    return _verdict(words, copy, Receiver(results, key), Tail(trace))


def _run_in_copy(body: Callable[[], None], sender: Sender, trace: int, parent: int) -> NoReturn:
    """Run the command and send its exit code. Threads that the bench has left running are not waited for."""
    code = FOUND
    try:
        end_with(parent)
        announce_exit(sender)
        faulthandler.enable(trace, all_threads=False)
        heard = _open_outputs()
        code = _code_of(body)
        sender.send({"code": code, "mute": _open_outputs() < heard})
        atexit._run_exitfuncs()
    except BrokenChannelError:
        code = CHANNEL_GONE
    finally:
        leave_now(code)


def _open_outputs() -> int:
    """How many of standard output and standard error are open."""
    return sum(identity(number) is not None for number in (1, 2))


def _code_of(body: Callable[[], None]) -> int:
    try:
        body()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException:
        restore_builtins()
        sys.excepthook(*sys.exc_info())
        return FOUND
    return 0


def _verdict(words: Sequence[str], copy: int, results: Receiver, trace: Tail) -> int:
    """The exit code that a copy has sent; if there is none, its end is reported."""
    status = _waited(copy)
    messages: list[Data] = []
    with suppress(BrokenChannelError):
        messages, _ = results.read()
    trace.read()
    sent = next((int(message["code"]) for message in messages if "code" in message), None)
    if sent == INTERRUPTED:
        errors().print("interrupted: there is no verdict")
    if any(message.get("mute") for message in messages):
        _report(words, BenchError(_MUTE))
        return sent or FOUND
    if sent is not None:
        return sent
    left = next((message["left"] for message in messages if "left" in message), None)
    where = location_in(trace.text()) if left is None else (str(left[0]), int(left[1]), str(left[2]))
    code, number = (status, None) if status >= 0 else (None, -status)
    deep = number in CRASHES and is_deep(trace.text())
    ended = Ended(False, code, number, where=where, left=left is not None, deep=deep)
    _report(words, _NoVerdictError(ended))
    return FOUND


class _NoVerdictError(BenchError):
    """The process of a bench ended before its verdict."""

    def __init__(self, ended: Ended):
        super().__init__(f"there is no verdict: the process of the bench {ended.reason()}; {self._next(ended)}")
        self.where = None if ended.where is None else SourceLocation(*ended.where)
        self.hint = self._next(ended)

    @staticmethod
    def _next(ended: Ended) -> str:
        return REMEDY if ended.deep else _NEXT


def _report(words: Sequence[str], error: BenchError) -> None:
    text = str(error)
    errors().print(f"error: {text}", style="red", soft_wrap=True)
    targets = [Path(value) for option, value in pairwise(words) if option == "--json"]
    targets += [Path(word.partition("=")[2]) for word in words if word.startswith("--json=")]
    for target in targets[-1:]:
        write_document(target, words[0], error_data(error, text))


def _waited(copy: int) -> int:
    """The exit status of a copy. Ctrl-C reaches it by itself; other signals to this process are passed on."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(copy, number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
