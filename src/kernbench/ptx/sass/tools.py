"""NVIDIA's ptxas and nvdisasm: finding them, and machine code from PTX through both.

Both come with the CUDA toolkit and as Python packages (`pip install kernbench[time]`). They are searched for in the
settings KERNBENCH_PTXAS and KERNBENCH_NVDISASM, on PATH, in the packages of the running Python, and in the usual CUDA
folders.
"""

import os
import re
import subprocess
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.ptx.devices.assembler import KernelResources, assemble, find_program, find_ptxas
from kernbench.ptx.sass.flow import Flow, flow
from kernbench.ptx.sass.lines import Statements, one_a_line
from kernbench.ptx.sass.reading import Listing, UnreadableError, read
from kernbench.ptx.text.keeping import Kept

SETTING = "KERNBENCH_NVDISASM"
_RELEASE = re.compile(r"V(\d+\.\d+\.\d+)")
# time limit of either program, in seconds
TIMEOUT = 120.0
# bound of the cache of code, in instructions
_MOST_KEPT = 200_000


class NoMachineCodeError(KernbenchError):
    """There is no machine code for a kernel; the message says why."""


@dataclass(frozen=True)
class Code:
    """The machine code of a kernel: its listing and control flow, its resources, and the ptxas that made it."""

    listing: Listing = field(repr=False)
    flow: Flow = field(repr=False)
    # the text that was assembled: one statement per line
    statements: Statements = field(repr=False)
    resources: KernelResources
    ptxas: str


_CODE: Kept[tuple[str, ...], Code | str] = Kept(_MOST_KEPT)


def machine_code(text: str, entry: str, arch: str, timeout: float = TIMEOUT) -> Code:
    """The machine code that ptxas makes of kernel `entry` of a PTX text for `arch`; cached by content.

    Raises NoMachineCodeError for a missing program, an error of ptxas, unreadable output, or a timeout.
    """
    try:
        ptxas, nvdisasm = find_ptxas(), find_nvdisasm()
    except MisuseError as error:
        raise NoMachineCodeError(str(error)) from None
    key = (sha256(text.encode()).hexdigest(), entry, arch, *_state(ptxas), *_state(nvdisasm))
    found = _CODE.get(key)
    if found is None:
        found = _made(text, entry, arch, ptxas, nvdisasm, timeout)
        _CODE.put(key, found, 1 if isinstance(found, str) else len(found.listing.instructions))
    if isinstance(found, str):
        raise NoMachineCodeError(found)
    return found


def _made(text: str, entry: str, arch: str, ptxas: str, nvdisasm: str, timeout: float) -> "Code | str":
    """The code, or why there is none."""
    statements = one_a_line(text)
    try:
        # line information is stored beside the code, which stays the same
        assembly = assemble(statements.text, arch, ("-lineinfo",), timeout, ptxas)
        listing = read(disassemble(assembly.cubin, nvdisasm, timeout))
        if entry not in listing.sections:
            return f"nvdisasm shows no code of the kernel {entry}"
        resources = assembly.kernels.get(entry, KernelResources())
        return Code(listing, flow(listing, entry), statements, resources, release(ptxas))
    except UnreadableError as error:
        return f"the output of nvdisasm {release(nvdisasm)} cannot be read: {error}"
    except KernbenchError as error:
        return str(error)


def disassemble(cubin: bytes, nvdisasm: str, timeout: float = TIMEOUT) -> str:
    """nvdisasm's output for a cubin: code with its words, and the PTX line of each instruction."""
    with TemporaryDirectory(prefix="kernbench-") as folder:
        path = Path(folder) / "module.cubin"
        path.write_bytes(cubin)
        done = _run([nvdisasm, "-gp", "-c", "-hex", str(path)], timeout)
    if done.returncode:
        raise NoMachineCodeError(f"nvdisasm ended with code {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def _run(command: list[str], timeout: float) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoMachineCodeError(f"{Path(command[0]).name} did not finish within {timeout:g} seconds") from None
    except OSError as error:
        raise NoMachineCodeError(f"{command[0]} could not be started: {error.strerror}") from None


def find_nvdisasm() -> str:
    """Path of nvdisasm, as `find_program` looks for it."""
    missing = "nvdisasm was not found: pip install nvidia-cuda-nvdisasm, or kernbench[time]"
    return find_program("nvdisasm", SETTING, missing)


def release(program: str) -> str:
    """The release of ptxas or nvdisasm as it prints it, "13.0.88"; "of an unknown release" if it prints none."""
    return _release(*_state(program))


@lru_cache(maxsize=64)
def _release(program: str, _size: str, _changed: str) -> str:
    try:
        match = _RELEASE.search(_run([program, "--version"], 30.0).stdout)
    except NoMachineCodeError:
        match = None
    return match[1] if match else "of an unknown release"


def _state(program: str) -> tuple[str, str, str]:
    """A program's path, size and modification time, which change with its content."""
    state = os.stat(program)
    return program, str(state.st_size), str(state.st_mtime_ns)
