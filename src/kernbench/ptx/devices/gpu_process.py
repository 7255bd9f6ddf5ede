"""A GPU in a separate process, which gets launches as bytes and returns their results.

A program under `kernbench exec` finds an emulated driver, and its memory is at the addresses that the GPU's memory
should have. The separate process (`gpu_server`) has NVIDIA's driver and its own address space. A kernel that faults
kills that process, not the program; the next launch starts another one.
"""

import os
import pickle
import selectors
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from kernbench.common.dtypes import Array
from kernbench.common.errors import KernbenchError
from kernbench.ptx.devices.cuda_driver import CudaUnavailableError
from kernbench.ptx.devices.gpu_memory import Pieces
from kernbench.ptx.launching.device_base import Extent

_LENGTH = 8
_SERVER = "kernbench.ptx.devices.gpu_server"
# seconds the driver may take to compile a kernel, in addition to those of its launch; and seconds for a killed process
# to end, which waits for its GPU
_ASSEMBLING, _ENDING = 300.0, 5.0


class LaunchFailedError(KernbenchError):
    """A launch did not run to its end on the GPU, or could not start."""


@dataclass(frozen=True)
class BytesLaunch:
    """A launch as bytes: PTX and kernel name, extents, parameters, and all memory it may access.

    `variables` are the module's: name -> address of the piece with its value. `rows`, if any, are another array, the
    kernel's last parameter.
    """

    text: str
    kernel: str
    grid: Extent
    block: Extent
    cluster: Extent
    shared_bytes: int
    parameters: tuple[bytes, ...]
    memory: Pieces
    variables: Mapping[str, int] = field(default_factory=dict)
    rows: Array | None = None
    seconds: float = 60.0


@dataclass(frozen=True)
class BytesLeft:
    """The results of a launch: pieces as they were given, the rows, and whether addresses were relocated."""

    memory: Pieces
    rows: Array | None
    moved: bool


class Failure(NamedTuple):
    """Why a launch was not run: "unavailable" if there is no GPU, and a message."""

    kind: str
    text: str


class GpuProcess:
    """The client: starts the process on first use, and again after a launch that lost the GPU."""

    name = "the GPU"

    def __init__(self, environment: Mapping[str, str]):
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        # a forked child has its own process
        self._owner = 0

    def run(self, launch: BytesLaunch) -> BytesLeft:
        """Run a launch; raises `LaunchFailedError`, or `CudaUnavailableError` if there is no GPU."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process.stdin, launch)
            if not _answers(process.stdout, launch.seconds + _ASSEMBLING):
                raise TimeoutError
            answer = receive(process.stdout)
        except TimeoutError:
            self.close()
            waited = f"{launch.seconds:g} s, and {_ASSEMBLING:g} s more for assembling it"
            raise LaunchFailedError(f"'{launch.kernel}' gave no answer within {waited}") from None
        except (OSError, EOFError):
            self.close()
            raise LaunchFailedError("the process of the GPU ended in the midst of a launch") from None
        except BaseException:
            # an interrupt: the answer would be taken for that of the next launch
            self.close()
            raise
        if isinstance(answer, BytesLeft):
            return answer
        assert isinstance(answer, Failure)
        kind, text = answer
        self.close()
        raise CudaUnavailableError(text) if kind == "unavailable" else LaunchFailedError(text)

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            process, self._process = self._process, None
            for stream in (process.stdin, process.stdout):
                # an ended process reads nothing any more
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            process.kill()
            # a process that the driver blocks ends when it can; nobody waits for it
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING)

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._owner = os.getpid()
            root = str(Path(__file__).parents[3])
            paths = [*filter(None, [self._environment.get("PYTHONPATH")]), root]
            self._process = subprocess.Popen(
                [sys.executable, "-m", _SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**self._environment, "PYTHONPATH": os.pathsep.join(paths)},
            )
        return self._process


def _answers(stream: IO[bytes], seconds: float) -> bool:
    """Whether the stream has data, or is closed, within some seconds; it must not be read ahead."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def send(stream: IO[bytes], value: object) -> None:
    """Send a value to the other end."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> object:
    """Receive a value; EOFError if the stream was closed."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError
    data = stream.read(int.from_bytes(head, "little"))
    # from a process that we started, or our parent
    received: object = pickle.loads(data)
    return received
