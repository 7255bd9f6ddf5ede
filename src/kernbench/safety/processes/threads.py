"""Work of NumPy on large arrays, done by several threads: it holds no lock of Python meanwhile.

The threads end before it is over, so that the process can be copied afterwards as one that has none.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TypeVar

from kernbench.common.deferred import beside_others
from kernbench.safety.jobs import wanted_jobs

# more threads than this wait for the memory
_MOST = 8
One = TypeVar("One")
Two = TypeVar("Two")


def thread_count(jobs: int | None = None, most: int = _MOST) -> int:
    """How many threads do something at once where a launch may use so many processes."""
    return min(wanted_jobs(jobs), most)


def together(works: Iterable[Callable[[], object]], jobs: int | None = None, most: int = _MOST) -> None:
    """Do all of some works, in any order, on as many threads as a launch may use processes, or on so many; on
    `most` at most.

    What one of them raises is raised when all threads have ended; works that nobody began by then are not done.
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
                # next() of a list's iterator is one step of Python: no two threads get the same
                for one in waiting:
                    if errors:
                        return
                    one()
        except BaseException as error:  # it belongs to who asked for the work
            errors.append(error)

    threads: list[threading.Thread] = []
    try:
        # where the system has no more threads, this one and those that there are do the rest
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
        # one that the system refused was never begun
        if thread.ident is not None:
            thread.join()


def both(one: Callable[[], One], two: Callable[[], Two], worth: bool = True) -> tuple[One, Two]:
    """What two works give, done at once if that is `worth` a thread."""
    if not worth:
        return one(), two()
    first: list[One] = []
    second: list[Two] = []
    together([lambda: first.append(one()), lambda: second.append(two())])
    return first[0], second[0]


def in_stretches(work: Callable[[int, int], One], stretches: Sequence[tuple[int, int]]) -> list[One]:
    """What a work gives of each of some stretches, (begin, end), all at once."""
    found: dict[tuple[int, int], One] = {}
    together(partial(_into, found, work, stretch) for stretch in stretches)
    return [found[stretch] for stretch in stretches]


def _into(found: dict[tuple[int, int], One], work: Callable[[int, int], One], stretch: tuple[int, int]) -> None:
    found[stretch] = work(*stretch)
