"""CUDA C++ to PTX: with nvcc if installed, else with NVRTC, the compiler library in pip packages.

A template is compiled only where it is used. So a line that names the requested kernel is appended to the source, and
the compiler reports its symbol: template arguments can be spelled in many ways.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernbench.common.errors import BenchError

_SECONDS = 600
_NONE = (
    "no compiler for CUDA C++ was found: put nvcc on PATH (or name its toolkit in CUDA_HOME), or install NVRTC with "
    "pip install nvidia-cuda-nvrtc"
)
# a device variable with the address of the requested kernel
_VARIABLE = "kernbench_kernel"
_ADDRESS = re.compile(rf"^.*\b{_VARIABLE} = (\S+);\n?", re.MULTILINE)
# compiler errors for an unknown name, and for a missing file
_UNKNOWN_NAME = re.compile(r"identifier \"(\w+)\" is undefined|has no member \"(\w+)\"")
_NO_FILE = re.compile(r"(\S+): No such file or directory|cannot open source file \"([^\"]+)\"")


@dataclass(frozen=True, slots=True)
class Compiled:
    """PTX, and the requested kernel: its symbol if the compiler reported one, else the given name."""

    text: str
    kernel: str


def compile_to_ptx(file: Path, arch: str, kernel: str = "", options: Sequence[str] = ()) -> Compiled:
    """The PTX of a file, with source lines; `kernel` may be a template with arguments: softmax<float, 256>."""
    if not file.is_file():
        raise BenchError(f"{file}: there is no such file")
    nvcc = find_nvcc()
    if nvcc is not None:
        return _by_nvcc(nvcc, file, arch, kernel, options)
    library = find_nvrtc()
    if library is None:
        raise BenchError(_NONE)
    return _by_nvrtc(library, file, arch, kernel, options)


def find_nvcc() -> str | None:
    """The path of nvcc, None if not installed."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return shutil.which("nvcc") or next(
        filter(None, (shutil.which(f"{home}/bin/nvcc") for home in homes if home)), None
    )


def find_nvrtc() -> Path | None:
    """The path of NVRTC in the packages of this Python."""
    roots = [Path(entry) / "nvidia" for entry in sys.path if entry]
    found = [path for root in roots for path in root.glob("*/lib/libnvrtc.so.*") if "builtins" not in path.name]
    return max(found, default=None)


def _virtual(arch: str) -> str:
    return "compute_" + arch.removeprefix("sm_")


def _remedy(said: str, kernel: str) -> str:
    """A hint on how to fix a compiler error, if it is a known one."""
    name, missing = _UNKNOWN_NAME.search(said), _NO_FILE.search(said)
    if missing is not None:
        return f"\nwhere {missing[1] or missing[2]} lies is said with --option -IFOLDER"
    if name is not None and "<" in kernel and (name[1] or name[2]) in kernel:
        return f"\na kernel in a namespace is named with it: --kernel 'my_namespace::{kernel}'"
    return ""


def _by_nvcc(nvcc: str, file: Path, arch: str, kernel: str, options: Sequence[str]) -> Compiled:
    with tempfile.TemporaryDirectory(prefix="kernbench-cuda-") as work:
        source = file.absolute()
        if "<" in kernel:
            using = Path(work, "using.cu")
            using.write_text(f'#include "{source}"\n__device__ void *{_VARIABLE} = (void *)({kernel});\n')
            source = using
        made = Path(work, "made.ptx")
        flags = ["-ptx", "-lineinfo", f"-arch={_virtual(arch)}", f"-I{file.absolute().parent}", *options]
        command = [nvcc, *flags, "-o", str(made), str(source)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise BenchError(f"{file}: {nvcc} failed: {problem}") from None
        if run.returncode or not made.exists():
            said = (run.stderr or run.stdout).strip()
            raise BenchError(f"{file} does not compile:\n{said[:4000]}{_remedy(said, kernel)}")
        text = made.read_text()
    symbol = _ADDRESS.search(text)
    return Compiled(_ADDRESS.sub("\n", text), symbol[1] if symbol else kernel)


class _Nvrtc:
    """Calls of NVRTC; an error is raised with the compiler's log."""

    def __init__(self, path: Path, file: Path):
        self._library, self._file = ctypes.CDLL(str(path)), file
        self._program = ctypes.c_void_p()

    def call(self, name: str, *arguments: object) -> int:
        return int(getattr(self._library, name)(*arguments))

    def compile(self, text: str, kernel: str, options: Sequence[str]) -> Compiled:
        name = str(self._file).encode()
        self.call("nvrtcCreateProgram", ctypes.byref(self._program), text.encode(), name, 0, None, None)
        if kernel:
            self.call("nvrtcAddNameExpression", self._program, kernel.encode())
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if self.call("nvrtcCompileProgram", self._program, len(options), given):
            said = self._text("ProgramLog").strip()
            raise BenchError(f"{self._file} does not compile with NVRTC:\n{said[:4000]}{_remedy(said, kernel)}")
        symbol = ctypes.c_char_p()
        if kernel:
            self.call("nvrtcGetLoweredName", self._program, kernel.encode(), ctypes.byref(symbol))
        return Compiled(self._text("PTX"), symbol.value.decode() if symbol.value else kernel)

    def _text(self, what: str) -> str:
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", self._program, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value + 1)
        self.call(f"nvrtcGet{what}", self._program, room)
        return room.value.decode(errors="replace")


def _by_nvrtc(library: Path, file: Path, arch: str, kernel: str, options: Sequence[str]) -> Compiled:
    flags = [f"--gpu-architecture={_virtual(arch)}", "-lineinfo", f"-I{file.absolute().parent}", *options]
    return _Nvrtc(library, file).compile(file.read_text(), kernel, flags)
