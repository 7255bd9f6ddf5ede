"""Why a file cannot be written, in words: the system's own, and the limit on the size of files where it was reached."""

import errno
from contextlib import suppress

_UNITS = ("TiB", "GiB", "MiB", "KiB")


def why(error: OSError) -> str:
    """What the system says, and the limit where a file would have been larger."""
    said = error.strerror or str(error)
    limit = size_limit()
    return f"{said}: {size_in_words(limit)}" if error.errno == errno.EFBIG and limit is not None else said


def size_limit() -> int | None:
    """Bytes that a file which this process writes may have at most; None if there is no limit."""
    with suppress(ImportError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        return None if limit == resource.RLIM_INFINITY else limit
    return None


def size_in_words(limit: int) -> str:
    """A limit on the size of files, and the remedy."""
    return f"files of this process may have {in_bytes(limit)} at most (RLIMIT_FSIZE): raise that with `ulimit -f`"


def in_bytes(count: int) -> str:
    """So many bytes, in the largest unit that they fill."""
    for power, unit in zip(range(len(_UNITS), 0, -1), _UNITS, strict=True):
        if count >= 1 << 10 * power:
            return f"{count / (1 << 10 * power):.4g} {unit}"
    return f"{count:,} bytes"
