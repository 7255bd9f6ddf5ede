"""Limits the memory of a test, so that too large a test gets an error instead of being killed by the system."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kernbench.safety.confined import free_bytes, private_memory


@contextmanager
def within(nbytes: int | None = None) -> Iterator[int | None]:
    """Inside this context allocations beyond so many bytes (default: what this computer has left) raise an error, if
    the system supports it. Yields that number.
    """
    limit = free_bytes() if nbytes is None else nbytes
    before = None
    with suppress(ImportError, ValueError, OSError):
        import resource

        kind = resource.RLIMIT_DATA
        soft, hard = resource.getrlimit(kind)
        if limit is not None and private_memory():
            taken = private_memory()
            least = min(one for one in (taken + limit, soft, hard) if one != resource.RLIM_INFINITY)
            limit = least - taken
            resource.setrlimit(kind, (least, hard))
            before = kind, (soft, hard)
    try:
        yield limit
    finally:
        if before is not None:
            resource.setrlimit(*before)


def is_for_want_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is exhausted: NumPy has a type for it, torch only a message."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)
