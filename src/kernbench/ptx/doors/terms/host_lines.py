"""Source lines of machine-code programs by address, from debug information, with binutils' addr2line if installed."""

import shutil
import struct
import subprocess
from functools import lru_cache
from pathlib import Path

from kernbench.result.finding import SourceLocation

_SECONDS = 20
# in the header of an ELF file: an executable with fixed load addresses
_TYPE_AT, _AT_FIXED_ADDRESSES = 16, 2


@lru_cache(maxsize=256)
def line_of(file: str, base: int, returned_to: int) -> SourceLocation | None:
    """The line of a call, from its return address and the load address of its file; None if unknown."""
    tool = shutil.which("addr2line")
    address = _address_in(file, base, returned_to)
    if tool is None or address is None:
        return None
    command = [tool, "-C", "-f", "-e", file, hex(address)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return _location(done.stdout)


def _address_in(file: str, base: int, returned_to: int) -> int | None:
    """The last byte of the call, as an address within the file."""
    try:
        with open(file, "rb") as program:
            head = program.read(_TYPE_AT + 2)
    except OSError:
        return None
    if head[:4] != b"\x7fELF" or len(head) < _TYPE_AT + 2:
        return None
    (kind,) = struct.unpack_from("<H", head, _TYPE_AT)
    return returned_to - 1 if kind == _AT_FIXED_ADDRESSES else returned_to - base - 1


def _location(printed: str) -> SourceLocation | None:
    """Parse the output of addr2line: a function, then its file and line."""
    function, _, where = printed.strip().partition("\n")
    file, _, line = where.partition(" (discriminator")[0].rpartition(":")
    if not file or file.startswith("?") or not line.isdecimal() or line == "0":
        return None
    return SourceLocation(str(Path(file)), int(line), function.partition("(")[0])
