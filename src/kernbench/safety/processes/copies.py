"""Forks of this process that continue by themselves, until each sends one answer and ends.

The parent waits. It does not change meanwhile, so that it can go on as if nothing had been tried: a fork that refuses,
dies or is killed is no error.
"""

import ctypes
import gc
import io
import os
import random
import selectors
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import numpy as np

from kernbench.safety.processes.parcels import Packer, new_file, unpack
from kernbench.safety.processes.workers import LENGTH, read_exactly, reaped, widen, write_all
from kernbench.safety.processes.writing import watch

# seconds between two calls of `tick` while the parent waits
_TICK = 0.2
_DEATH_SIGNAL = 1


class Copies:
    """Forks of one process; `number` says which one this is, None in the parent."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._out = self._in = -1
        self._pids: dict[int, int] = {}
        self._failed = False
        # pipes for sending to the forks
        self._orders: list[int] = []
        # files for large arrays: of each fork's answer, by its pipe, and of what is sent to all
        self._files: dict[int, int | None] = {}
        self._sent: int | None = None
        self._answers = Packer(None)
        self._given = Packer(None)
        self._printed: list[io.StringIO] = []
        self._written: int | None = None
        self._shared: object = None

    def make(self, count: int) -> None:
        """Fork; returns in the parent and in each fork."""
        if self._sent is None:
            self._sent = new_file()
            self._given = Packer(self._sent)
        for number in range(count):
            ends: list[int] = []
            try:
                ends += os.pipe()
                ends += os.pipe()
                pid = self._forked(ends)
            except OSError:  # no more processes or files: nothing is answered, as if a copy had ended
                for end in ends:
                    os.close(end)
                self._failed = True
                return
            results, send, hear, speak = ends
            if not pid:
                try:
                    self._begin(number, (results, speak), send, hear)
                except BaseException:  # a copy must never do what the process itself goes on with
                    os._exit(1)
                return
            os.close(send)
            os.close(hear)
            self._pids[results] = pid
            self._orders.append(speak)

    def _forked(self, ends: list[int]) -> int:
        self._files[ends[0]] = new_file()
        widen(ends[1])
        with warnings.catch_warnings():
            # Python warns about any thread
            warnings.simplefilter("ignore", DeprecationWarning)
            return os.fork()

    def _begin(self, number: int, others: tuple[int, int], send: int, hear: int) -> None:
        """Set up a fork; its output is captured, as another process would print it again."""
        self._answers = Packer(self._files.pop(others[0]))
        for end in (*others, *self._pids, *self._orders, *(file for file in self._files.values() if file is not None)):
            os.close(end)
        self.number, self._out, self._in, self._pids, self._orders = number, send, hear, {}, []
        self._files = {}
        # on Ctrl-C the parent kills its forks; a fork also dies with its parent
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        gc.freeze()
        self._printed = [io.StringIO(), io.StringIO()]
        sys.stdout, sys.stderr = self._printed
        self._written = _redirected()
        watch(self.refuse)
        self._shared = _shared_states()

    def send(self, what: object) -> bool:
        """Send an object to each fork; returns whether all are alive."""
        data = self._given.pack(what)
        try:
            for end in self._orders:
                write_all(end, len(data).to_bytes(LENGTH, "little"))
                write_all(end, data)
        except BrokenPipeError:
            return False
        return True

    def heard(self) -> object:
        """In a fork: receive an object; None if the parent is gone."""
        return _received(self._in, self._sent)

    def answer(self, what: object) -> NoReturn:
        """In a fork: send the answer and end.

        Refuse if user code printed, drew random numbers or changed the environment.
        """
        printed = any(text.getvalue() for text in self._printed)
        printed = printed or (self._written is not None and os.fstat(self._written).st_size > 0)
        if printed or _shared_states() != self._shared:
            what = None
        try:
            data = self._answers.pack(what)
            write_all(self._out, len(data).to_bytes(LENGTH, "little"))
            write_all(self._out, data)
        except BaseException:  # nobody is left to report it to: that there was no answer is noticed
            pass
        finally:
            os._exit(0)

    def refuse(self) -> NoReturn:
        """In a fork: refuse, so that the parent does the work itself."""
        self.answer(None)

    def answers(self, tick: Callable[[], None]) -> list[object] | None:
        """The answers of all forks, in order; None if one refuses or dies. All are killed before it returns.

        `tick` is called now and then.
        """
        if self._failed:
            self.close()
            return None
        found: dict[int, object] = {}
        order = list(self._pids)
        try:
            with selectors.DefaultSelector() as selector:
                for results in order:
                    selector.register(results, selectors.EVENT_READ)
                while len(found) < len(order):
                    for key, _ in selector.select(_TICK):
                        selector.unregister(key.fd)
                        found[key.fd] = _received(key.fd, self._files[key.fd])
                        if found[key.fd] is None:
                            return None
                    tick()
        finally:
            self.close()
        return [found[results] for results in order]

    def close(self) -> None:
        """Kill all forks, whatever they do."""
        for end in self._orders:
            os.close(end)
        for results, pid in self._pids.items():
            os.close(results)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            reaped(pid)
        for file in (self._sent, *self._files.values()):
            if file is not None:
                os.close(file)
        self._pids, self._orders, self._files, self._sent = {}, [], {}, None


def _received(results: int, file: int | None) -> object:
    """An unpickled answer, with its large arrays from a file; None for a refusal or the end of the pipe."""
    length = read_exactly(results, LENGTH)
    data = read_exactly(results, int.from_bytes(length, "little")) if length is not None else None
    # pickled by a fork of this very process
    return None if data is None else unpack(data, file)


def _redirected() -> int | None:
    """Redirect output to the terminal that bypasses `sys.stdout`, as of loggers and subprocesses, to a memory file.

    None if the system has none.
    """
    file = new_file()
    if file is not None:
        for end, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
            # without a stream, another file may have this descriptor
            if stream is not None:
                os.dup2(file, end)
    return file


def _shared_states() -> object:
    """Global state that all code shares: random generators and the environment."""
    words = np.random.get_state(legacy=False)
    torch = getattr(sys.modules.get("torch"), "default_generator", None)
    drawn = b"" if torch is None else torch.get_state().numpy().tobytes()
    return random.getstate(), repr(words), drawn, dict(os.environ)
