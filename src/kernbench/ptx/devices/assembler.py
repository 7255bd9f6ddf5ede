"""PTX to machine code with NVIDIA's ptxas: the cubin, resources of each kernel, and errors by PTX line."""

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.ptx.devices.toolkit import find_program, programs

SETTING = "KERNBENCH_PTXAS"
_SOURCE = "module.ptx"
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_PROBLEM = re.compile(r"ptxas (?:.*?, line (?P<line>\d+); )?(?:error|fatal) *: (?P<message>.*)")
_ABORTED = "Ptx assembly aborted due to errors"
# what a ptxas says that is older than a module's version of PTX or its target
_TOO_OLD = re.compile(r"Unsupported \.version|Unsupported \.target|is not defined for option 'gpu-name'")
_NEWER = f"No ptxas found is newer: install one (pip install -U nvidia-cuda-nvcc), or name it in {SETTING}."
_MISSING = (
    "ptxas was not found on PATH or in /usr/local/cuda: install the CUDA toolkit's compiler (nvcc), pip install "
    f"'kernbench[time]', or name the program in {SETTING}. Emulation and `emit()` work without it."
)


class AssemblyError(KernbenchError):
    """ptxas rejected the module: `line` is the first line of the PTX that it names (0: none), `text` is that line, and
    `log` is its output.
    """

    def __init__(self, message: str, line: int = 0, text: str = "", log: str = ""):
        super().__init__(message)
        self.line = line
        self.text = text
        self.log = log


@dataclass(frozen=True)
class KernelResources:
    """Resources of a kernel: registers per thread, stack and spills in bytes per thread, and resources per block."""

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0
    constant_bytes: int = 0
    barriers: int = 0


@dataclass(frozen=True)
class Assembly:
    """Machine code for `arch`, the resources of each kernel by name, and ptxas: its output and its path."""

    arch: str
    cubin: bytes = field(repr=False)
    kernels: dict[str, KernelResources]
    log: str = field(repr=False)
    ptxas: str


class Emitting(Protocol):
    """An object that can be emitted as PTX."""

    def emit(self) -> str:
        """Its text."""
        ...


def assemble(
    module: str | Emitting,
    arch: str = "sm_90a",
    options: Sequence[str] = (),
    timeout: float = 300.0,
    ptxas: str | None = None,
) -> Assembly:
    """Assemble `module` (PTX text, or an object with `emit()`) for `arch`; `options` are passed to ptxas unchanged.

    Unless `ptxas` names one, the first of those found that knows the module's version of PTX and its target does it.
    """
    if not _ARCH.fullmatch(arch):
        raise MisuseError(f"arch {arch!r} is no target: write it as ptxas does, sm_80, sm_90a, sm_100a")
    text = module if isinstance(module, str) else module.emit()
    refused: AssemblyError | None = None
    for program in [ptxas] if ptxas else programs("ptxas", SETTING):
        try:
            return _assembled(text, arch, options, timeout, program)
        except AssemblyError as error:
            if not _TOO_OLD.search(error.log):
                raise
            refused = refused or error
    if refused is None:
        raise MisuseError(_MISSING)
    raise AssemblyError(f"{refused}\n{_newer(ptxas)}", refused.line, refused.text, refused.log)


def _newer(ptxas: str | None) -> str:
    """Where a newer ptxas is to be had; one that was chosen is the only one that was tried."""
    named = os.environ.get(SETTING)
    if ptxas or not named:
        return f"No other ptxas was tried than {ptxas}: name a newer one." if ptxas else _NEWER
    return f"{SETTING} chose {named}, and no other was tried: unset it, or name a newer one in it."


def _assembled(text: str, arch: str, options: Sequence[str], timeout: float, program: str) -> Assembly:
    with TemporaryDirectory(prefix="kernbench-") as folder:
        # ptxas 13.0 with -lineinfo reads past the end of a text whose last line has no newline, and may crash
        ended = text if text.endswith("\n") else f"{text}\n"
        (Path(folder) / _SOURCE).write_text(ended, encoding="utf-8", errors="replace")
        command = [program, "--verbose", f"--gpu-name={arch}", *options, f"--output-file={arch}.cubin", _SOURCE]
        done = _run(command, folder, timeout)
        log = done.stdout
        cubin = Path(folder) / f"{arch}.cubin"
        if done.returncode or not cubin.exists():
            raise refusal(text, log, f"code {done.returncode}")
        return Assembly(arch, cubin.read_bytes(), parse_resources(log.splitlines()), log, program)


def find_ptxas() -> str:
    """The path of ptxas, found by `find_program`."""
    return find_program("ptxas", SETTING, _MISSING)


def _run(command: list[str], folder: str, timeout: float) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            text=True,
            encoding="utf-8",
            errors="replace",
            # ptxas writes temporary files there
            env={**os.environ, "TMPDIR": folder},
        )
    except subprocess.TimeoutExpired:
        raise AssemblyError(f"ptxas did not finish within {timeout:g} seconds; raise `timeout`") from None
    except OSError as error:
        raise MisuseError(f"{command[0]} could not be started: {error.strerror}") from None


def refusal(text: str, log: str, code: str) -> AssemblyError:
    """The error for PTX that ptxas, or the driver's compiler, rejected: each complaint with its line."""
    lines = text.split("\n")
    complaints: list[str] = []
    first = 0
    for match in filter(None, map(_PROBLEM.match, log.splitlines())):
        line = int(match["line"] or 0)
        first = first or line
        if match["message"] != _ABORTED:
            complaints.append(_complaint(match["message"], line, lines))
    message = "\n".join(complaints) or f"it ended with {code}: {log.strip()[-500:] or 'it said nothing'}"
    return AssemblyError(f"ptxas: {message}", first, _line(lines, first), log)


def _complaint(message: str, line: int, lines: list[str]) -> str:
    return f"line {line}: {message}\n    {_line(lines, line)}" if line else message


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


# amounts in "Used ..." and "... stack frame" lines, and their fields
_AMOUNTS = (
    (re.compile(r"Used (\d+) registers"), "registers"),
    (re.compile(r"used (\d+) barriers"), "barriers"),
    (re.compile(r"(\d+) bytes smem"), "shared_bytes"),
    (re.compile(r"(\d+) bytes cmem\[\d+\]"), "constant_bytes"),
    (re.compile(r"(\d+) bytes cumulative stack size"), "stack_bytes"),
    (re.compile(r"(\d+) bytes stack frame"), "stack_bytes"),
    (re.compile(r"(\d+) bytes spill stores"), "spill_stores"),
    (re.compile(r"(\d+) bytes spill loads"), "spill_loads"),
)
_ENTRY = re.compile(r"ptxas info *: Compiling entry function '(.*)' for '.*'")
_PROPERTIES = re.compile(r"ptxas info *: Function properties for (.*)")


def parse_resources(log: Iterable[str]) -> dict[str, KernelResources]:
    """The resources of each kernel from ptxas's verbose log; device functions are skipped, as kernels include them."""
    kernels: dict[str, KernelResources] = {}
    subject = ""
    for line in log:
        if match := _ENTRY.match(line):
            subject = match[1]
            kernels[subject] = KernelResources()
        elif match := _PROPERTIES.match(line):
            subject = match[1]
        elif subject in kernels:
            kernels[subject] = _with_amounts(kernels[subject], line)
    return kernels


def _with_amounts(resources: KernelResources, line: str) -> KernelResources:
    """`resources` with the amounts in `line`; the largest of several amounts counts, and constant banks are summed."""
    for pattern, name in _AMOUNTS:
        amounts = [int(n) for n in pattern.findall(line)]
        if amounts:
            resources = replace(resources, **{name: max(sum(amounts), getattr(resources, name))})
    return resources
