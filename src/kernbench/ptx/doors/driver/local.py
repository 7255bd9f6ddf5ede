"""Answers calls of the driver library in this process: it shares memory and session with torch and Triton."""

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
    """Answers calls of the driver library, for the current session.

    Objects that a program got from the driver outlive sessions: a second session takes over the modules and the memory
    of the first.
    """

    def __init__(self, library: ctypes.CDLL):
        self.library = library
        # callables that return the open sessions, innermost last
        self.sessions: list[Callable[[], Session]] = []
        self._service: DriverService | None = None
        # the data of the last answer of each thread, which may still be reading it
        self._answers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        # the callback must stay alive as long as the library may call it
        self._function = _ANSWER(self.call)
        self._process = os.getpid()
        library.kernbench_answer.argtypes, library.kernbench_answer.restype = [ctypes.c_void_p], None
        library.kernbench_answer(ctypes.cast(self._function, ctypes.c_void_p))
        # libraries may still free objects after Python has ended
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
            # no exception may pass through the library: after an interrupt, the program ends by the error it gets
            sys.stderr.write(f"kernbench: {type(problem).__name__} {problem} in a call of the driver library\n")
            return _LAUNCH_FAILED
        for number, word in enumerate(answer.words):
            out[number] = word & 0xFFFF_FFFF_FFFF_FFFF
        out_count[0], out_size[0] = len(answer.words), len(answer.data)
        kept = self._answers[_thread.get_ident()] = ctypes.create_string_buffer(answer.data, len(answer.data) + 1)
        out_data[0] = ctypes.addressof(kept)
        return int(answer.result)


# the instance of this process, once its library is loaded
_HERE: list[Answering] = []
# packages that a session needs; a Python without them leaves the emulation to a worker
_NEEDED = ("numpy", "ml_dtypes", "numba", "llvmlite")


def answering(library: ctypes.CDLL) -> Answering:
    """Connect a loaded driver library to this process's Python."""
    if not _HERE:
        _HERE.append(Answering(library))
    return _HERE[0]


def library_here() -> ctypes.CDLL | None:
    """The driver library if it is preloaded, as under `kernbench exec`."""
    program = ctypes.CDLL(None)
    return program if hasattr(program, "kernbench_answer") else None


def restore() -> None:
    """Let calls of the driver succeed again after the GPU was lost."""
    if _HERE:
        _HERE[0].library.kernbench_restore.argtypes, _HERE[0].library.kernbench_restore.restype = [], None
        _HERE[0].library.kernbench_restore()


def torch_in_use() -> None:
    """Initialise the driver, as a CUDA build of torch would have done, with a context for each thread."""
    library = _HERE[0].library if _HERE else library_here()
    if library is not None:
        library.kernbench_runtime_in_use.argtypes, library.kernbench_runtime_in_use.restype = [], None
        library.kernbench_runtime_in_use()


def new_stream() -> int:
    """The handle of a new stream; 0, the default stream, if the library is not loaded."""
    return _made("cuStreamCreate")


def new_event() -> int:
    """The handle of a new event; 0 for none if the library is not loaded."""
    return _made("cuEventCreate")


def _made(function: str) -> int:
    """Create an object with a function of the driver library, without flags."""
    library = _HERE[0].library if _HERE else library_here()
    made = ctypes.c_void_p()
    if library is None or getattr(library, function)(ctypes.byref(made), 0):
        return 0
    return made.value or 0


def answer_under_exec(session: "Callable[[], Session]") -> None:
    """Answer the library in a program under `kernbench exec`; `session` makes the session on first use."""
    from importlib.util import find_spec

    library = library_here()
    if library is None:
        return
    look_out(library)
    if all(map(find_spec, _NEEDED)):
        answering(library).sessions.append(session)
