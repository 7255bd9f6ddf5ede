"""Who is at work on a store: which process of which machine, and whether it still is."""

import os
import socket
from functools import cache
from pathlib import Path

# seconds after which a process of another machine that was not heard of counts as gone
LEASE = 60.0


@cache
def this_host() -> str:
    """This machine since it was started, as far as its processes can see each other."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # processes in another container cannot be seen from here
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def this_process() -> str:
    """This process, and not a later one with its number."""
    return f"{os.getpid()} {_started(os.getpid())}"


def is_gone(host: str, process: str, age: float) -> bool:
    """Whether a process that was last heard of `age` seconds ago has ended."""
    if host != this_host():
        return age > LEASE
    number, _, started = process.partition(" ")
    if not _is_alive(int(number)):
        return True
    # without a time of start the number may be another's by now
    return started != _started(int(number)) if started else age > LEASE


def _is_alive(number: int) -> bool:
    if os.name == "nt":
        # there a signal of 0 is not a question; its lease decides
        return True
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _started(number: int) -> str:
    """When a process was started, in ticks since the machine was; empty where that cannot be known."""
    try:
        state, *fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    # one that has ended, and waits for its parent to know, runs no more
    return "ended" if state in "ZX" else fields[18]
