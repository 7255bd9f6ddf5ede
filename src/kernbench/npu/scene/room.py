"""What a test makes may be larger than this computer: that is said, before the system ends whoever asks for it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kernbench.safety.confined import free_bytes, private_memory


@contextmanager
def within(nbytes: int | None = None) -> Iterator[int | None]:
    """Who takes more memory than so many bytes (without a number: than this computer has left) gets an error, where the
    system permits to say so. Gives that number."""
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
    """Whether an error says that there is no memory: NumPy has a kind for it, torch only words."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)
