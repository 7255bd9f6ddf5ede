"""Runs a program with our driver library: how it finds the library, and the emulator process that answers it."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from kernbench.ptx.doors.driver.images.kept import FOLDER as KEPT
from kernbench.ptx.doors.driver.images.sources import CUPY_FOLDER
from kernbench.ptx.doors.driver.images.sources import FOLDER as SOURCES
from kernbench.ptx.doors.driver.library import NAME, library_folder
from kernbench.ptx.doors.options import Options

_SOCKET = "KERNBENCH_DRIVER"
_PATH = "LD_LIBRARY_PATH"
_PRELOAD = "LD_PRELOAD"


@contextmanager
def driver_environment(
    options: Options, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """Variables to add to a program's environment, so that it finds an emulated GPU; valid inside the block.

    Records of launches are written to `folder`. The emulator's process starts when a program first uses the GPU. Raises
    `LibraryError` if the library cannot be built.
    """
    given = os.environ if environment is None else environment
    library = library_folder()
    with tempfile.TemporaryDirectory(prefix="kernbench-") as work:
        path = Path(work, "driver")
        kept = given.get(KEPT) or str(Path(work, "kept"))
        Path(kept).mkdir(exist_ok=True)
        server = _Server(path, options, folder, {**os.environ, KEPT: kept, SOURCES: work})
        try:
            yield {
                _SOCKET: str(path),
                _PATH: os.pathsep.join(filter(None, [str(library), given.get(_PATH)])),
                # preloaded, so that a CUDA runtime linked into the program is replaced in time
                _PRELOAD: " ".join(filter(None, [str(library / NAME), given.get(_PRELOAD)])),
                **compiler_switches(given, kept, work),
            }
        finally:
            server.stop()


def compiler_switches(given: Mapping[str, str], kept: str, sources: str) -> dict[str, str]:
    """Environment variables that make front ends produce PTX instead of machine code, or keep it beside it in a folder.

    `sources` is where our driver library keeps the sources that the program compiles.
    """
    return {
        "CUPY_COMPILE_WITH_PTX": "1",
        # kernels compiled by CuPy instead of prebuilt ones, which are machine code
        "CUPY_ACCELERATORS": given.get("CUPY_ACCELERATORS", ""),
        # a cache of its own: kernels compiled for a real GPU are machine code without line information
        CUPY_FOLDER: given.get(CUPY_FOLDER) or str(library_folder().parent.parent / "cupy"),
        "CUPY_CACHE_SAVE_CUDA_SOURCE": "1",
        SOURCES: sources,
        **_cute_switches("CUTE_EXPERIMENTAL_DSL", given, kept),
        **_cute_switches("CUTE_DSL", given, kept),
        KEPT: kept,
    }


def _cute_switches(language: str, given: Mapping[str, str], kept: str) -> dict[str, str]:
    """The variables of CuTe DSL, or of its experimental language, which has its own prefix."""
    wanted = [*filter(None, given.get(f"{language}_KEEP", "").split(",")), "ptx"]
    return {
        f"{language}_KEEP": ",".join(dict.fromkeys(wanted)),
        f"{language}_DUMP_DIR": given.get(f"{language}_DUMP_DIR") or kept,
        # line information, for findings in the Python source
        f"{language}_LINEINFO": given.get(f"{language}_LINEINFO", "1"),
        # kernels compiled earlier left no PTX here
        f"{language}_DISABLE_FILE_CACHING": "1",
    }


class _Server:
    """The socket that programs connect to; the first connection starts the emulator process."""

    def __init__(self, path: Path, options: Options, folder: Path, environment: Mapping[str, str]):
        self._environment = dict(environment)
        self._command = [sys.executable, "-m", "kernbench.ptx.doors.driver.worker"]
        self._arguments = [options.to_json(), str(folder)]
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._wake, self._stop = os.pipe()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        number = self._listener.fileno()
        asked, _, _ = select.select([number, self._wake], [], [])
        if self._wake not in asked:
            command = [*self._command, str(number), *self._arguments]
            # a process group of its own, so that remaining workers can be killed with it
            self._process = subprocess.Popen(command, pass_fds=[number], start_new_session=True, env=self._environment)
            # if that process ends, nobody listens any more, and programs get an error
            self._listener.close()

    def stop(self) -> None:
        """End the process and the workers of programs that still run."""
        os.close(self._stop)
        self._thread.join()
        self._listener.close()
        os.close(self._wake)
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
