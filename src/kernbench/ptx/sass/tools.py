"""NVIDIA's ptxas and nvdisasm: finding them, and machine code from PTX through both.

Both come with the CUDA toolkit and as Python packages (`pip install kernbench[time]`). The settings KERNBENCH_PTXAS and
KERNBENCH_NVDISASM name them; otherwise `toolkit` finds them, and the first that can read its input is taken.
"""

import subprocess
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.ptx.devices.assembler import Assembly, KernelResources, assemble, find_ptxas
from kernbench.ptx.devices.toolkit import find_program, programs, release, state
from kernbench.ptx.sass.flow import Flow, flow
from kernbench.ptx.sass.lines import Statements, one_a_line
from kernbench.ptx.sass.reading import Listing, UnreadableError, read
from kernbench.ptx.text.keeping import Kept

SETTING = "KERNBENCH_NVDISASM"
_MISSING = "nvdisasm was not found: pip install nvidia-cuda-nvdisasm, or kernbench[time]"
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
        ptxas = find_ptxas()
        nvdisasm = find_nvdisasm(ptxas)
    except MisuseError as error:
        raise NoMachineCodeError(str(error)) from None
    key = (sha256(text.encode()).hexdigest(), entry, arch, *state(ptxas), *state(nvdisasm))
    found = _CODE.get(key)
    if found is None:
        found = _made(text, entry, arch, timeout)
        _CODE.put(key, found, 1 if isinstance(found, str) else len(found.listing.instructions))
    if isinstance(found, str):
        raise NoMachineCodeError(found)
    return found


def _made(text: str, entry: str, arch: str, timeout: float) -> "Code | str":
    """The code, or why there is none."""
    statements = one_a_line(text)
    try:
        # line information is stored beside the code, which stays the same
        assembly = assemble(statements.text, arch, ("-lineinfo",), timeout)
        listing = _listing(assembly, timeout)
        if entry not in listing.sections:
            return f"nvdisasm shows no code of the kernel {entry}"
        resources = assembly.kernels.get(entry, KernelResources())
        return Code(listing, flow(listing, entry), statements, resources, release(assembly.ptxas))
    except KernbenchError as error:
        return str(error)


def _listing(assembly: Assembly, timeout: float) -> Listing:
    """What the first nvdisasm that can read the code shows of it."""
    reasons = []
    for program in programs("nvdisasm", SETTING, assembly.ptxas):
        try:
            return read(disassemble(assembly.cubin, program, timeout))
        except UnreadableError as error:
            reasons.append(f"the output of nvdisasm {release(program)} cannot be read: {error}")
        except NoMachineCodeError as error:
            reasons.append(str(error))
    raise NoMachineCodeError(reasons[0] if reasons else _MISSING)


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


def find_nvdisasm(ptxas: str = "") -> str:
    """Path of the nvdisasm beside a ptxas, or of another one."""
    return find_program("nvdisasm", SETTING, _MISSING, ptxas)
