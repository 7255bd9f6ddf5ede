"""Whether this computer has room for what a device or a launch asks for, told before it is taken."""

import os
from pathlib import Path

from kernbench.common.errors import MisuseError

# less than this is never asked about
_SMALL = 1 << 27


def free_bytes() -> int | None:
    """Memory of this computer that can still be taken, or None where that cannot be told."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(found.split()[1]) << 10
    except (OSError, StopIteration, ValueError, IndexError):
        names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
        if "SC_AVPHYS_PAGES" in names:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return None


def require_room(nbytes: int, what: str, remedy: str) -> None:
    """Raise if `what` needs more bytes than are free."""
    if nbytes < _SMALL:
        return
    free = free_bytes()
    if free is not None and nbytes > free:
        raise MisuseError(f"{what} needs {nbytes:,} bytes of this computer, and {free:,} are free: {remedy}")
