"""Several pieces of work at once, a process for each core: what they give comes back as it is done.

Processes are forked, so that the work may be any function. Where that is not possible (other systems than Linux), or
one process would be as good, everything runs here, one after the other.
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

# what forked processes do: they have it from their parent
_work: list[Callable[[Any], object]] = []


def run_all(
    tasks: Sequence[Task], work: Callable[[Task], Result], most: int | None = None
) -> Iterator[tuple[Task, Result | None]]:
    """(task, what `work` gives for it) as they come, up to `most` at a time (None: one for each core), the first tasks
    first; None for a task whose process died.
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
        # somebody died, nobody knows who: each of the rest in a process of its own
        for task in left:
            yield next(_forked([task], 1), (task, None))
    finally:
        _work.pop()


def _forked(tasks: Sequence[Task], count: int) -> Iterator[tuple[Task, Any]]:
    """What is done before all is done or a process dies."""
    with ProcessPoolExecutor(count, multiprocessing.get_context("fork")) as pool:
        with warnings.catch_warnings():
            # nobody else runs in this process that a fork could surprise
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
