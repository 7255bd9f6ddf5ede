"""Limits that this process has been given, in words: its memory."""

_UNITS = ("TiB", "GiB", "MiB", "KiB")
# the memory that this process may have, or nothing
_memory: list[int] = []


def hold_memory(nbytes: int | None) -> None:
    """Remember the memory that an option of the command line gives this process; None without a limit."""
    _memory[:] = [] if nbytes is None else [nbytes]


def is_beyond_memory(error: BaseException) -> bool:
    """Whether an error says that such a limit was reached, which is neither right nor wrong of a kernel."""
    return bool(_memory) and isinstance(error, MemoryError)


def memory_in_words() -> str:
    """The limit that was reached."""
    return f"more than the {in_bytes(_memory[0])} of --max-memory"


def in_bytes(count: int) -> str:
    """So many bytes, in the largest unit that they fill."""
    for power, unit in zip(range(len(_UNITS), 0, -1), _UNITS, strict=True):
        if count >= 1 << 10 * power:
            return f"{count / (1 << 10 * power):.4g} {unit}"
    return f"{count:,} bytes"
