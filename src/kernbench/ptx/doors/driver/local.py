"""The driver library of this process, answered by Python in it: one memory and one session with torch and Triton."""

import _thread
import atexit
import ctypes
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernbench.ptx.doors.driver.bindings import look_out

if TYPE_CHECKING:
    from kernbench.ptx.doors.driver.service import DriverService
    from kernbench.ptx.doors.session import Session

    Words = ctypes._Pointer[ctypes.c_uint64]
    Count = ctypes._Pointer[ctypes.c_uint32]
    Address = ctypes._Pointer[ctypes.c_void_p]
    Size = ctypes._Pointer[ctypes.c_size_t]

_WORDS = ctypes.POINTER(ctypes.c_uint64)
_ANSWER = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_uint32,
    _WORDS,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_size_t,
    _WORDS,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
)
_LAUNCH_FAILED = 719


class Answering:
    """Answers the driver library's calls, for the session that is in use when a call comes.

    What a program has from the driver outlives sessions: a second one finds the modules and the memory of the first.
    """

    def __init__(self, library: ctypes.CDLL):
        self.library = library
        # what gives the session in use, the innermost last
        self.sessions: list[Callable[[], Session]] = []
        self._service: DriverService | None = None
        # bytes of the last answer, for each thread that may still read them
        self._answers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        # what the library calls must live as long as it may call
        self._function = _ANSWER(self.call)
        self._process = os.getpid()
        library.kernbench_answer.argtypes, library.kernbench_answer.restype = [ctypes.c_void_p], None
        library.kernbench_answer(ctypes.cast(self._function, ctypes.c_void_p))
        # what libraries give back when they end comes after Python
        atexit.register(self._end)

    def _end(self) -> None:
        if os.getpid() == self._process:
            self.library.kernbench_answer(None)

    def _service_in_use(self) -> "DriverService":
        from kernbench.ptx.doors.driver.service import DriverService

        if self._service is None:
            if not self.sessions:
                raise RuntimeError("no emulated GPU is in use: open one with kernbench.ptx.emulated('sm_90a')")
            self._service = DriverService(self.sessions[-1]())
        self._service.use(self.sessions[-1]() if self.sessions else None)
        return self._service

    def call(
        self,
        request: int,
        words: "Words",
        count: int,
        data: int | None,
        size: int,
        out: "Words",
        out_count: "Count",
        out_data: "Address",
        out_size: "Size",
    ) -> int:
        """Answer one call of the library."""
        try:
            given = tuple(words[number] for number in range(count))
            service = self._service_in_use()
            answer = service.answer(request, given, ctypes.string_at(data, size) if data and size else b"")
        except BaseException as problem:
            # nothing may be raised through the library: an interrupt ends the program by the error that it gets
            sys.stderr.write(f"kernbench: {type(problem).__name__} {problem} in a call of the driver library\n")
            return _LAUNCH_FAILED
        for number, word in enumerate(answer.words):
            out[number] = word & 0xFFFF_FFFF_FFFF_FFFF
        out_count[0], out_size[0] = len(answer.words), len(answer.data)
        kept = self._answers[_thread.get_ident()] = ctypes.create_string_buffer(answer.data, len(answer.data) + 1)
        out_data[0] = ctypes.addressof(kept)
        return int(answer.result)


# the one of this process, once its library is loaded
_HERE: list[Answering] = []
# what a session needs; a Python without it leaves the emulation to a worker
_NEEDED = ("numpy", "ml_dtypes", "numba", "llvmlite")


def answering(library: ctypes.CDLL) -> Answering:
    """Let a loaded driver library ask this process's Python."""
    if not _HERE:
        _HERE.append(Answering(library))
    return _HERE[0]


def library_here() -> ctypes.CDLL | None:
    """The driver library where it is loaded before all else, as under `kernbench exec`."""
    program = ctypes.CDLL(None)
    return program if hasattr(program, "kernbench_answer") else None


def restore() -> None:
    """Let calls of the driver succeed again after a launch that took the GPU with it."""
    if _HERE:
        _HERE[0].library.kernbench_restore.argtypes, _HERE[0].library.kernbench_restore.restype = [], None
        _HERE[0].library.kernbench_restore()


def torch_in_use() -> None:
    """torch's CPU build stands for one that would have initialised the driver, and given threads its context."""
    library = _HERE[0].library if _HERE else library_here()
    if library is not None:
        library.kernbench_runtime_in_use.argtypes, library.kernbench_runtime_in_use.restype = [], None
        library.kernbench_runtime_in_use()


def new_stream() -> int:
    """The handle of a stream of the driver library; 0, which is the default stream, where the library is not there."""
    return _made("cuStreamCreate")


def new_event() -> int:
    """The handle of an event of the driver library; 0, which is none, where the library is not there."""
    return _made("cuEventCreate")


def _made(function: str) -> int:
    """What a function of the driver library makes, without flags."""
    library = _HERE[0].library if _HERE else library_here()
    made = ctypes.c_void_p()
    if library is None or getattr(library, function)(ctypes.byref(made), 0):
        return 0
    return made.value or 0


def answer_under_exec(session: "Callable[[], Session]") -> None:
    """Answer the library in a program under `kernbench exec`; `session` gives the session when it is first needed."""
    from importlib.util import find_spec

    library = library_here()
    if library is None:
        return
    look_out(library)
    if all(map(find_spec, _NEEDED)):
        answering(library).sessions.append(session)
