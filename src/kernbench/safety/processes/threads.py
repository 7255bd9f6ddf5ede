"""NumPy work on large arrays in several threads: NumPy releases the GIL meanwhile.

The threads end with the work, so that the process can be forked safely afterwards.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TypeVar

from kernbench.common.deferred import beside_others
from kernbench.safety.jobs import wanted_jobs

# more threads than this are limited by memory bandwidth
_MOST = 8
One = TypeVar("One")
Two = TypeVar("Two")


def thread_count(jobs: int | None = None, most: int = _MOST) -> int:
    """Number of threads for parallel work: one for each process that a launch may use, at most `most`."""
    return min(wanted_jobs(jobs), most)


def together(works: Iterable[Callable[[], object]], jobs: int | None = None, most: int = _MOST) -> None:
    """Run some functions in any order, on as many threads as `thread_count` says.

    An exception in one of them is raised when all threads have ended; functions not started by then are skipped.
    """
    wanted = list(works)
    if len(wanted) == 1:
        wanted[0]()
        return
    waiting = iter(wanted)
    errors: list[BaseException] = []
    count = min(thread_count(jobs, most), len(wanted))

    def work() -> None:
        try:
            with beside_others() if count > 1 else nullcontext():
                # next() of a list iterator is atomic under the GIL: no two threads get the same item
                for one in waiting:
                    if errors:
                        return
                    one()
        except BaseException as error:  # it belongs to who asked for the work
            errors.append(error)

    threads: list[threading.Thread] = []
    try:
        # if the system has no more threads, the existing ones do the rest
        with suppress(RuntimeError):
            for _ in range(count - 1):
                threads.append(threading.Thread(target=work))
                threads[-1].start()
        work()
        _joined(threads)
    except BaseException as error:  # Ctrl-C outside of a work: nothing more is begun, and no thread is left
        errors.append(error)
        _joined(threads)
    if errors:
        raise errors[0]


def _joined(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        # a thread that the system refused was never started
        if thread.ident is not None:
            thread.join()


def both(one: Callable[[], One], two: Callable[[], Two], worth: bool = True) -> tuple[One, Two]:
    """The results of two functions, run in parallel if that is `worth` a thread."""
    if not worth:
        return one(), two()
    first: list[One] = []
    second: list[Two] = []
    together([lambda: first.append(one()), lambda: second.append(two())])
    return first[0], second[0]


def in_stretches(work: Callable[[int, int], One], stretches: Sequence[tuple[int, int]]) -> list[One]:
    """The results of `work(begin, end)` for each stretch, in parallel."""
    found: dict[tuple[int, int], One] = {}
    together(partial(_into, found, work, stretch) for stretch in stretches)
    return [found[stretch] for stretch in stretches]


def _into(found: dict[tuple[int, int], One], work: Callable[[int, int], One], stretch: tuple[int, int]) -> None:
    found[stretch] = work(*stretch)
