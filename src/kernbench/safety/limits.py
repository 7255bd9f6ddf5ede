"""Limits that this process has been given, in words: its memory."""

from kernbench.common.files import in_bytes

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
