"""The process in which compiled kernels run: records come from it, answers go to it, and its end is never ours."""

import atexit
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

from kernbench.common.errors import KernelError
from kernbench.npu.cpp.compiler import build_host
from kernbench.npu.cpp.ends import crash
from kernbench.result.finding import SourceLocation

__kernbench_internal__ = True
HEAD = Struct("<IHHI")
# of a record without its size: kind, name, source location; its payload follows
KIND = Struct("<HHI")
BODY = KIND.size
OPERATION, QUESTION, NAME, SITE, ENDED, CRASHED, LOADED, FAILED, HELLO = range(9)
LOAD, RUN, ORCHESTRATE = 1, 2, 3
_WORDS = Struct("<II")
_CALLS = Struct("<8Q")
_CHUNK = 1 << 16
# a wait is cut into pieces, so that who watches over a launch can end it
_PIECE = 0.2
_idle: list["Process"] = []
# processes that were ended, and may not have gone yet
_ended: list["subprocess.Popen[bytes]"] = []
# how many were ever begun: copies of this process would share their pipes
begun = [0]


class Process:
    """One process; it runs one kernel at a time and is used again for the next."""

    def __init__(self) -> None:
        begun[0] += 1
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        ours_said, theirs_said = os.pipe()
        theirs = (theirs_in, theirs_out, theirs_said)
        quiet = subprocess.DEVNULL
        self._program = subprocess.Popen(
            [str(build_host()), *map(str, theirs)], stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=theirs
        )
        for number in theirs:
            os.close(number)
        self._in, self._out, self._said = self._pipes = [ours_in, ours_out, ours_said]
        # called while nothing comes
        self.idle: Callable[[], None] = _nothing
        self._libraries: dict[Path, int] = {}
        self._rest = b""
        self.names: dict[int, str] = {}
        # source locations by number: file, line, function
        self.sites: dict[int, tuple[str, int, str]] = {}
        self.is_alive = True
        self.base = int.from_bytes(next(self.records())[BODY:], "little")

    def library(self, path: Path, source: Path) -> int:
        """The number of the library that a source was compiled to, which is loaded the first time."""
        if path not in self._libraries:
            self._send(LOAD, os.fsencode(path))
            record = next(self.records(), b"")
            if not record or record[0] != LOADED:
                raise _not_loaded(record, path, source)
            self._libraries[path] = len(self._libraries)
        return self._libraries[path]

    def call(self, verb: int, words: bytes) -> None:
        """Begin a kernel or an orchestration."""
        self._send(verb, words)

    def _send(self, verb: int, payload: bytes) -> None:
        self._write(_WORDS.pack(verb, len(payload)) + payload)

    def answer(self, payload: bytes) -> None:
        """What the kernel waits for."""
        self._write(len(payload).to_bytes(4, "little") + payload)

    def _write(self, words: bytes) -> None:
        try:
            os.write(self._out, words) if len(words) < select.PIPE_BUF else self._write_long(words)
        except BrokenPipeError:
            self.is_alive = False

    def _write_long(self, words: bytes) -> None:
        while words:
            words = words[os.write(self._out, words) :]

    def records(self) -> Iterator[bytes]:
        """The records that come, each from its kind on (`KIND`); names and locations are kept here. It ends where the
        process does."""
        while True:
            data = self._read()
            if not data:
                self.is_alive = False
                return
            data, at = self._rest + data, 0
            end = len(data)
            while end - at >= HEAD.size:
                size, kind, name, site = HEAD.unpack_from(data, at)
                if end - at < size:
                    break
                record = data[at + 4 : at + size]
                at += size
                if kind == NAME:
                    self.names[name] = record[BODY:].decode()
                elif kind == SITE:
                    file, line, function = record[BODY:].decode(errors="replace").split("\n", 2)
                    # compilers name what a template was made of, which may fill a page
                    self.sites[site] = (file, int(line), function.partition("<")[0] or function)
                else:
                    # whoever takes the last record of a call does not come back for the next
                    self._rest = data[at:] if kind > QUESTION else b""
                    yield record
            self._rest = data[at:]

    def _read(self) -> bytes:
        while not select.select([self._in], [], [], _PIECE)[0]:
            self.idle()
        return os.read(self._in, _CHUNK)

    def addresses(self) -> tuple[int, ...]:
        """The addresses in its library at which a kernel is now, innermost first; none where it does not say."""
        self._program.send_signal(signal.SIGUSR1)
        if not select.select([self._said], [], [], _PIECE)[0]:
            return ()
        return _CALLS.unpack(os.read(self._said, _CALLS.size))

    def end(self) -> None:
        """End the process, whatever it does; nobody waits until it has."""
        self._program.kill()
        self.is_alive = False
        while self._pipes:
            os.close(self._pipes.pop())
        _ended.append(self._program)


def _not_loaded(record: bytes, path: Path, source: Path) -> KernelError:
    """Why a library was not loaded, from the record that came instead; what its source makes of globals runs then."""
    where, who = SourceLocation(str(source), 1, ""), f"{source.name}, as it is loaded,"
    hint = "look at the constructors of its global variables: they run before any kernel"
    if record and record[0] == CRASHED:
        error = crash(record[BODY:], who, path, where)
        return KernelError(error.kind, error.message, hint, error.where)
    if not record:
        return KernelError("kernel-error", f"{who} ends its process", hint, where)
    return KernelError("misuse", f"{source} cannot be loaded: {record[BODY:].decode(errors='replace')}")


def _nothing() -> None:
    """Wait on."""


def take() -> Process:
    """A process that nobody uses."""
    _ended[:] = [program for program in _ended if program.poll() is None]
    return _idle.pop() if _idle else Process()


def give_back(process: Process, is_done: bool) -> None:
    """The kernel has ended, or (`is_done` False) was left half-way: then its process ends."""
    process.idle = _nothing
    if is_done and process.is_alive:
        _idle.append(process)
    else:
        process.end()


@atexit.register
def end_idle() -> None:
    """End the processes that nobody uses, and wait until they have ended."""
    while _idle:
        _idle.pop().end()
    while _ended:
        _ended.pop().wait()
