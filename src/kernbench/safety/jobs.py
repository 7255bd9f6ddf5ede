"""How many processes a launch may use: as given, as the environment says, or one; each with one BLAS thread."""

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
    """Processes for a launch: `given`, else the variable KERNBENCH_JOBS, else 1; 0 means all cores."""
    what, value = ("jobs", given) if given is not None else (VARIABLE, os.environ.get(VARIABLE, "1").strip() or "1")
    try:
        jobs = int(value) if isinstance(value, str) else index(value)
    except (TypeError, ValueError):
        raise MisuseError(f"{what}={value!r}: give a whole number of processes, 0 for one for each core") from None
    if jobs < 0 or isinstance(given, bool):
        raise MisuseError(f"{what}={value!r}: give a whole number of processes, 0 for one for each core")
    return jobs or all_cores()


def allow(jobs: int) -> None:
    """Set the default number of processes for launches of this process and its children."""
    os.environ[VARIABLE] = str(wanted_jobs(jobs))


@cache
def _libraries() -> "ThreadpoolController | None":
    """The controller of this process's BLAS threads; None if threadpoolctl is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Limits BLAS to one thread: tiles are small, and threads would synchronise longer than they multiply."""
    found = _libraries()
    # limiting a library that already uses one thread takes a twentieth of a small launch
    if found is None or all(one.num_threads == 1 for one in found.lib_controllers if one.user_api == "blas"):
        return nullcontext()
    limited: AbstractContextManager[object] = found.limit(limits=1, user_api="blas")
    return limited
