"""How many processes a launch may use: what it is given, or what the environment says, or one; and that the matrix
library uses one thread in each.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from operator import index
from typing import TYPE_CHECKING

from kernbench.common.errors import MisuseError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

VARIABLE = "KERNBENCH_JOBS"


def all_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def wanted_jobs(given: int | None) -> int:
    """Processes for a launch: `given`, or else the variable KERNBENCH_JOBS, or else 1; 0 stands for all cores."""
    what, value = ("jobs", given) if given is not None else (VARIABLE, os.environ.get(VARIABLE, "1").strip() or "1")
    try:
        jobs = int(value) if isinstance(value, str) else index(value)
    except (TypeError, ValueError):
        raise MisuseError(f"{what}={value!r}: give a whole number of processes, 0 for one for each core") from None
    if jobs < 0 or isinstance(given, bool):
        raise MisuseError(f"{what}={value!r}: give a whole number of processes, 0 for one for each core")
    return jobs or all_cores()


def allow(jobs: int) -> None:
    """Let launches of this process, and of those it starts, that say nothing themselves use so many processes."""
    os.environ[VARIABLE] = str(wanted_jobs(jobs))


@cache
def _libraries() -> "ThreadpoolController | None":
    """What limits the threads of the matrix library of this process; None where that is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Tiles are small: threads of the matrix library would wait for each other longer than they multiply."""
    found = _libraries()
    # to limit what uses one thread anyway takes a twentieth of a small launch
    if found is None or all(one.num_threads == 1 for one in found.lib_controllers if one.user_api == "blas"):
        return nullcontext()
    limited: AbstractContextManager[object] = found.limit(limits=1, user_api="blas")
    return limited
