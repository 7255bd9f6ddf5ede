"""Leases on a store: which process of which machine is working on it, and whether it still is."""

import os
import socket
from functools import cache
from pathlib import Path

# seconds without a renewal after which a process of another machine counts as gone
LEASE = 60.0


@cache
def this_host() -> str:
    """Identifies this machine since its boot, and the container that its processes can see."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # processes in another container are not visible here
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def this_process() -> str:
    """Identifies this process, distinct from later ones with its number."""
    return f"{os.getpid()} {_started(os.getpid())}"


def is_owner(host: object, process: object, age: object) -> bool:
    """Whether these are a host, a process on it, and the age of a lease, as `this_host` and `this_process` say them."""
    named = isinstance(host, str) and bool(host.split()) and isinstance(process, str)
    return named and str(process).partition(" ")[0].isdecimal() and isinstance(age, int | float)


def is_gone(host: str, process: str, age: float) -> bool:
    """Whether a process that renewed its lease `age` seconds ago has ended."""
    if host != this_host():
        return age > LEASE
    number, _, started = process.partition(" ")
    if not _is_alive(int(number)):
        return True
    # without a start time the number may belong to another process by now
    return started != _started(int(number)) if started else age > LEASE


def _is_alive(number: int) -> bool:
    if os.name == "nt":
        # on this system a signal of 0 is not a query; the lease decides
        return True
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _started(number: int) -> str:
    """The start time of a process, in ticks since boot; empty if unknown."""
    try:
        state, *fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    # a zombie has ended
    return "ended" if state in "ZX" else fields[18]
