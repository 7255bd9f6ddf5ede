"""Goldens on several threads: NumPy releases Python's lock while it computes with large arrays.

Each part is computed as on one thread and writes only its own results, so results are the same.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

# scores of a block may take a quarter of a gigabyte, and each thread has a block
MOST = 8
_count: ContextVar[int] = ContextVar("threads of a golden", default=1)
Part = TypeVar("Part")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Inside this context goldens may use `count` threads."""
    token = _count.set(max(1, min(count, MOST)))
    try:
        yield
    finally:
        _count.reset(token)


def in_threads(work: Callable[[Part], None], parts: Iterable[Part]) -> None:
    """Call `work` with each part, on as many threads as goldens may use."""
    count = _count.get()
    if count == 1:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(count) as pool:
        # re-raises the error of a part
        for _ in pool.map(work, parts):
            pass
