"""Checks that the computer has enough memory for a device or a launch, and allocates it in suitable pages."""

import mmap
import sys
from contextlib import suppress
from math import prod
from threading import Lock

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import Array, dtype_of
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.lanes.arrays import Bytes, UInt64s
from kernbench.safety.confined import free_bytes

# smaller requests are not checked
_SMALL = 1 << 27
# larger ones are mapped without reserve: a system may refuse far more memory than it has, used or not
_MAPPED = 1 << 27
# minimal bytes for large pages, and the usual size of a large page
_LARGE = 1 << 20
_LARGE_PAGE = 1 << 21
# minimal bytes to keep for reuse: smaller ones Python's allocator keeps itself
_KEPT = 1 << 17
# MAP_NORESERVE, which some versions of Python lack
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0


def require_memory(nbytes: int, what: str, remedy: str) -> None:
    """Raise if `what` needs more bytes than are free."""
    if nbytes < _SMALL:
        return
    free = free_bytes()
    if free is not None and nbytes > free:
        raise MisuseError(f"{what} needs {nbytes:,} bytes of this computer, and {free:,} are free: {remedy}")


def is_mapped(words: int) -> bool:
    """Whether sparse zeros of this size get small pages."""
    return words >= _MAPPED


def sparse_zeros(words: int) -> UInt64s:
    """64-bit zeros that are allocated on write; `MemoryError` if even that is too much."""
    if not is_mapped(words):
        found: UInt64s = large_zeros(words, np.uint64)
        return found
    return sparse_bytes(8 * words).view(np.uint64)


def striped_zeros(words: int, stripe: int) -> UInt64s:
    """As `sparse_zeros`, but each `stripe` bytes begin with a large page, if the system supports that."""
    if is_mapped(words) or 8 * words <= stripe or not hasattr(mmap, "MADV_HUGEPAGE"):
        return sparse_zeros(words)
    try:
        block = mmap.mmap(-1, 8 * words + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        first = -np.frombuffer(block, np.uint8).ctypes.data % _LARGE_PAGE
        block.madvise(mmap.MADV_NOHUGEPAGE)
        for start in range(first, first + 8 * words - _LARGE_PAGE, stripe):
            block.madvise(mmap.MADV_HUGEPAGE, start, _LARGE_PAGE)
    except (OSError, OverflowError, ValueError):
        return sparse_zeros(words)
    return np.frombuffer(block, np.uint64, words, first)


def sparse_bytes(nbytes: int, large_pages: bool = False) -> Bytes:
    """Zeros that are allocated on write, page by page, from a page boundary on.

    Large pages are for memory that is written completely: far fewer pages to allocate, and to copy in a fork. The first
    large page's worth uses small pages, as often nothing beyond it is ever written.
    """
    try:
        block = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    except (OSError, OverflowError, ValueError):
        raise MemoryError from None
    # sparse use must not allocate large pages; systems without them refuse the request
    with suppress(OSError, AttributeError):
        block.madvise(mmap.MADV_HUGEPAGE if large_pages else mmap.MADV_NOHUGEPAGE)
        if large_pages and nbytes > _LARGE_PAGE:
            block.madvise(mmap.MADV_NOHUGEPAGE, 0, _LARGE_PAGE)
    return np.frombuffer(block, np.uint8)


def large_zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """As `np.zeros`, for memory that every launch allocates and writes completely: in large pages if available.

    The system allocates memory page by page on first write, which takes longer than most of a launch.
    """
    kind, count = dtype_of(dtype), prod(shape) if isinstance(shape, tuple) else shape
    whole = _large_block(kind.itemsize * count)
    if whole is None:
        return np.zeros(shape, kind)
    found: Array = whole[: kind.itemsize * count].view(kind).reshape(shape)
    return found


def _large_block(nbytes: int) -> Bytes | None:
    """Zeros in large pages; None if too small for them, or if the system has none."""
    if nbytes < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        block = mmap.mmap(-1, nbytes + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.madvise(mmap.MADV_HUGEPAGE)
    except (OSError, OverflowError, ValueError):
        return None
    first = -np.frombuffer(block, np.uint8).ctypes.data % _LARGE_PAGE
    return np.frombuffer(block, np.uint8, nbytes, first)


class ArrayPool:
    """Memory blocks reused by consecutive launches.

    The system takes longer to allocate memory than it takes to clear it. A block is free again when nothing but this
    list refers to it: every view of an array keeps a reference to the array that owns its memory.
    """

    def __init__(self, most: int, largest: int):
        self._most, self._largest = most, largest
        self._blocks: list[Bytes] = []
        self._lock = Lock()

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """As `large_zeros`, in a reused block if possible."""
        return self.full(shape, 0, dtype)

    def full(self, shape: int | tuple[int, ...], value: int, dtype: npt.DTypeLike) -> Array:
        """As `np.full`, in a reused block if possible."""
        kind, count = dtype_of(dtype), prod(shape) if isinstance(shape, tuple) else shape
        found = self._taken(kind.itemsize * count)
        if found is not None:
            values: Array = found.view(kind).reshape(shape)
        else:
            values = large_zeros(shape, dtype)
            if not value:
                return values
        # nothing else refers to it
        values.fill(value)
        return values

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """As `np.empty`, in a reused block if possible."""
        kind = dtype_of(dtype)
        found = self._taken(kind.itemsize * prod(shape))
        return np.empty(shape, kind) if found is None else found.view(kind).reshape(shape)

    def _taken(self, nbytes: int) -> Bytes | None:
        """A block of `nbytes` with arbitrary contents; None if such blocks are not kept."""
        if not _KEPT <= nbytes <= self._largest:
            return None
        with self._lock:
            block = self._free(nbytes)
            return None if block is None else block[:nbytes]

    def _free(self, nbytes: int) -> Bytes | None:
        """An unreferenced block of this size, rounded up; or a new one, if possible."""
        step = _LARGE if nbytes > _LARGE else _KEPT
        size = -(-nbytes // step) * step
        for number in range(len(self._blocks)):
            # references by the list, and by the argument of the call
            if self._blocks[number].size == size and sys.getrefcount(self._blocks[number]) == _HELD_BY_NOBODY:
                return self._blocks[number]
        if sum(block.size for block in self._blocks) + size > self._most:
            # drop the blocks of programs that no longer run
            self._blocks.clear()
        made = _large_block(size) if size >= _LARGE else np.empty(size, np.uint8)
        if made is not None:
            self._blocks.append(made)
        return made


def _held_by_nobody() -> int:
    """The reference count of an array that only one list refers to."""
    held = [np.zeros(1, np.uint8)]
    return sys.getrefcount(held[0])


_HELD_BY_NOBODY = _held_by_nobody()
# for the process: registers, shared and tensor memory of launches, and matrix operands
POOL = ArrayPool(64 << 20, 16 << 20)
