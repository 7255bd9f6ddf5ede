"""C++ source locations: for each line a Python function whose code object is at it, so that calls made through it
appear to come from that line; and the lines of addresses in compiled code.
"""

import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import FunctionType

from kernbench.npu.cpp.compiler import HEADERS
from kernbench.result.finding import SourceLocation

# no module of ours that calls are passed over from: the functions made here stand for the user's lines
Caller = FunctionType
_SOURCE = "def call(method, given): return method(*given)"


@lru_cache(maxsize=65536)
def caller(file: str, line: int, function: str) -> Caller:
    """A function `call(method, arguments)` whose frame is at a line of a C++ file."""
    space: dict[str, object] = {"__name__": "kernel"}
    exec(compile("\n" * (line - 1) + _SOURCE, file, "exec"), space)
    made = space["call"]
    assert isinstance(made, FunctionType)
    made.__code__ = made.__code__.replace(co_name=function, co_qualname=function)
    return made


@lru_cache(maxsize=4096)
def of_address(library: Path, address: int) -> SourceLocation | None:
    """The line of an address of a library, by the compiler's own tools; None if there are none or they fail."""
    program = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if program is None:
        return None
    command = [program, "-e", str(library), "-f", "-C", "-i", hex(address)]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    for function, where in zip(lines[::2], lines[1::2], strict=False):
        file, _, number = where.partition(" ")[0].rpartition(":")
        if number.isdigit() and int(number) and not _is_foreign(file):
            return SourceLocation(file, int(number), function.partition("(")[0])
    return None


def of_calls(library: Path, addresses: Sequence[int]) -> SourceLocation | None:
    """The innermost of some return addresses (0 is none) that is in the user's code."""
    found = (of_address(library, address) for address in addresses if address)
    return next((where for where in found if where is not None), None)


def _is_foreign(file: str) -> bool:
    """Whether a file is a header of kernbench or of the compiler."""
    return Path(file).is_relative_to(HEADERS) or "/include/c++/" in file or file.startswith("/usr/")


def first_line(source: Path, function: str) -> int:
    """The first line of a file that names a function followed by a parameter list; 1 if there is none."""
    try:
        lines = source.read_text(errors="replace").splitlines()
    except OSError:
        return 1
    return next(
        (n for n, line in enumerate(lines, 1) if f"{function}(" in line and not line.strip().startswith("*")), 1
    )
