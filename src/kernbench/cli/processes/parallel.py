"""Several tasks in parallel, a process for each core; results are returned as they are done.

Processes are forked, so that tasks may be any function. If that is not possible (on other systems than Linux), or
one process is enough, everything runs here, in order.
"""

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# the function that forked processes inherit
_work: list[Callable[[Any], object]] = []


def run_all(
    tasks: Sequence[Task], work: Callable[[Task], Result], most: int | None = None
) -> Iterator[tuple[Task, Result | None]]:
    """(task, result of `work`) in order of completion, up to `most` at a time (None: one per core), started in order;
    None for a task whose process died.
    """
    count = min(len(tasks), len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1, most or len(tasks))
    if count < 2:
        yield from ((task, work(task)) for task in tasks)
        return
    _work.append(work)
    try:
        left = list(tasks)
        for task, found in _forked(left, count):
            left.remove(task)
            yield task, found
        # it is unknown which process died: run each remaining task in a process of its own
        for task in left:
            yield next(_forked([task], 1), (task, None))
    finally:
        _work.pop()


def _forked(tasks: Sequence[Task], count: int) -> Iterator[tuple[Task, Any]]:
    """The results before all are done or a process dies."""
    with ProcessPoolExecutor(count, multiprocessing.get_context("fork")) as pool:
        with warnings.catch_warnings():
            # no other threads run in this process that a fork could break
            warnings.simplefilter("ignore", DeprecationWarning)
            waiting: dict[Future[object], Task] = {pool.submit(_call, task): task for task in tasks}
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                task = waiting.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    return
                yield task, future.result()


def _call(task: object) -> object:
    return _work[-1](task)
