"""The driver library of this process, answered by Python in it: one memory and one session with torch and Triton."""

import _thread
import atexit
import ctypes
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernbench.ptx.doors.driver.bindings import look_out

if TYPE_CHECKING:
    from kernbench.ptx.doors.driver.service import DriverService
    from kernbench.ptx.doors.session import Session

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
# what the library calls must live as long as the process
_KEPT: list[Any] = []


class _Local:
    """Turns calls of the library into requests, for the session that is in use when a call comes."""

    def __init__(self, session: "Callable[[], Session]"):
        self._session = session
        self._services: dict[int, DriverService] = {}
        # bytes of the last answer, for each thread that may still read them
        self._answers: dict[int, ctypes.Array[ctypes.c_char]] = {}

    def _service(self) -> "DriverService":
        from kernbench.ptx.doors.driver.service import DriverService

        session = self._session()
        return self._services.setdefault(id(session), DriverService(session))

    def call(
        self,
        request: int,
        words: Any,
        count: int,
        data: int | None,
        size: int,
        out: Any,
        out_count: Any,
        out_data: Any,
        out_size: Any,
    ) -> int:
        """Answer one call of the library."""
        try:
            given = tuple(words[number] for number in range(count))
            answer = self._service().answer(request, given, ctypes.string_at(data, size) if data and size else b"")
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


# what a session needs; a Python without it leaves the emulation to a worker
_NEEDED = ("numpy", "ml_dtypes", "numba", "llvmlite")


def answer_here(library: Any, session: "Callable[[], Session]") -> None:
    """Let a loaded driver library ask this process's Python; `session` gives the session when it is first needed."""
    local = _Local(session)
    function = _ANSWER(local.call)
    _KEPT.append((local, function))
    library.kernbench_answer.argtypes, library.kernbench_answer.restype = [ctypes.c_void_p], None
    library.kernbench_answer(ctypes.cast(function, ctypes.c_void_p))
    process = os.getpid()

    def end() -> None:
        if os.getpid() == process:
            library.kernbench_answer(None)

    # what libraries give back when they end comes after Python
    atexit.register(end)


def answer_under_exec(session: "Callable[[], Session]") -> None:
    """The same for a program under `kernbench exec`, where the library is loaded before all else."""
    from importlib.util import find_spec

    library = ctypes.CDLL(None)
    if not hasattr(library, "kernbench_answer"):
        return
    look_out(library)
    if all(map(find_spec, _NEEDED)):
        answer_here(library, session)
