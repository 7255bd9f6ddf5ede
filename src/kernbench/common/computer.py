"""What this computer has left."""

import os
from pathlib import Path


def free_bytes() -> int | None:
    """Memory of this computer that can still be taken, or None where that is unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(found.split()[1]) << 10
    except (OSError, StopIteration, ValueError, IndexError):
        names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
        if "SC_AVPHYS_PAGES" in names:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return None
