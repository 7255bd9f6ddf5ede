"""Whether this computer has room for what a device or a launch asks for, checked before it is taken."""

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

# less than this is never asked about
_SMALL = 1 << 27
# words beyond this are mapped: a system that is asked for far more memory than it has may refuse, used or not
_MAPPED = 1 << 27
# bytes from which on large pages are asked for, and how large they are on most systems
_LARGE = 1 << 20
_LARGE_PAGE = 1 << 21
# bytes from which on rooms are kept: below, the allocator of Python's process keeps them itself
_KEPT = 1 << 17
# MAP_NORESERVE, which Python does not name in every version
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0


def require_room(nbytes: int, what: str, remedy: str) -> None:
    """Raise if `what` needs more bytes than are free."""
    if nbytes < _SMALL:
        return
    free = free_bytes()
    if free is not None and nbytes > free:
        raise MisuseError(f"{what} needs {nbytes:,} bytes of this computer, and {free:,} are free: {remedy}")


def is_mapped(words: int) -> bool:
    """Whether so many sparse zeros are handed out in small pages."""
    return words >= _MAPPED


def sparse_zeros(words: int) -> UInt64s:
    """Zeros of 64 bits that take memory where they are written; `MemoryError` where even that is too much."""
    if not is_mapped(words):
        found: UInt64s = large_zeros(words, np.uint64)
        return found
    return sparse_bytes(8 * words).view(np.uint64)


def striped_zeros(words: int, stripe: int) -> UInt64s:
    """As `sparse_zeros`, with a large page and then small ones in every `stripe` bytes, if the system has both."""
    if is_mapped(words) or 8 * words <= stripe or not hasattr(mmap, "MADV_HUGEPAGE"):
        return sparse_zeros(words)
    try:
        room = mmap.mmap(-1, 8 * words + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        first = -np.frombuffer(room, np.uint8).ctypes.data % _LARGE_PAGE
        room.madvise(mmap.MADV_NOHUGEPAGE)
        for start in range(first, first + 8 * words - _LARGE_PAGE, stripe):
            room.madvise(mmap.MADV_HUGEPAGE, start, _LARGE_PAGE)
    except (OSError, OverflowError, ValueError):
        return sparse_zeros(words)
    return np.frombuffer(room, np.uint64, words, first)


def sparse_bytes(nbytes: int, large_pages: bool = False) -> Bytes:
    """Zeros that take memory where they are written, page by page; they begin with a page.

    Large pages are for what is written whole: far fewer of them are to be handed out, and to be copied in a fork. What
    lies in the first of them would often be all that is ever written: it is in small pages as well.
    """
    try:
        room = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    except (OSError, OverflowError, ValueError):
        raise MemoryError from None
    # a large page for a few bytes of it would be what this is to avoid; systems without large pages refuse that
    with suppress(OSError, AttributeError):
        room.madvise(mmap.MADV_HUGEPAGE if large_pages else mmap.MADV_NOHUGEPAGE)
        if large_pages and nbytes > _LARGE_PAGE:
            room.madvise(mmap.MADV_NOHUGEPAGE, 0, _LARGE_PAGE)
    return np.frombuffer(room, np.uint8)


def large_zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """As `np.zeros`, for what every launch takes anew and writes all over: in large pages where the system has them.

    A system hands out memory page by page as it is first written, which takes longer than most of what a launch does.
    """
    kind, count = dtype_of(dtype), prod(shape) if isinstance(shape, tuple) else shape
    whole = _room(kind.itemsize * count)
    if whole is None:
        return np.zeros(shape, kind)
    found: Array = whole[: kind.itemsize * count].view(kind).reshape(shape)
    return found


def _room(nbytes: int) -> Bytes | None:
    """Zeros in large pages; None where they would be few, or the system has none."""
    if nbytes < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        room = mmap.mmap(-1, nbytes + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        room.madvise(mmap.MADV_HUGEPAGE)
    except (OSError, OverflowError, ValueError):
        return None
    first = -np.frombuffer(room, np.uint8).ctypes.data % _LARGE_PAGE
    return np.frombuffer(room, np.uint8, nbytes, first)


class Rooms:
    """Memory that launches take one after the other, kept for the next: a system takes longer to hand it out than it
    takes to clear.

    A room is free again when nobody but this list holds it, or a part of it: every view of an array holds the array
    whose memory it has.
    """

    def __init__(self, most: int, largest: int):
        self._most, self._largest = most, largest
        self._rooms: list[Bytes] = []
        self._lock = Lock()

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """As `large_zeros`, in a room that was used before if there is one."""
        return self.full(shape, 0, dtype)

    def full(self, shape: int | tuple[int, ...], value: int, dtype: npt.DTypeLike) -> Array:
        """As `np.full`, in a room that was used before if there is one."""
        kind, count = dtype_of(dtype), prod(shape) if isinstance(shape, tuple) else shape
        found = self._taken(kind.itemsize * count)
        if found is not None:
            values: Array = found.view(kind).reshape(shape)
        else:
            values = large_zeros(shape, dtype)
            if not value:
                return values
        # nobody else has it by now
        values.fill(value)
        return values

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """As `np.empty`, in a room that was used before if there is one."""
        kind = dtype_of(dtype)
        found = self._taken(kind.itemsize * prod(shape))
        return np.empty(shape, kind) if found is None else found.view(kind).reshape(shape)

    def _taken(self, nbytes: int) -> Bytes | None:
        """A room of so many bytes, with whatever it was used for before; None where none is kept."""
        if not _KEPT <= nbytes <= self._largest:
            return None
        with self._lock:
            room = self._free(nbytes)
            return None if room is None else room[:nbytes]

    def _free(self, nbytes: int) -> Bytes | None:
        """A room of so many bytes, or a few more, that nobody holds; a new one where there is room for it."""
        step = _LARGE if nbytes > _LARGE else _KEPT
        size = -(-nbytes // step) * step
        for number in range(len(self._rooms)):
            # the list and the argument of the question itself
            if self._rooms[number].size == size and sys.getrefcount(self._rooms[number]) == _HELD_BY_NOBODY:
                return self._rooms[number]
        if sum(room.size for room in self._rooms) + size > self._most:
            # those of programs that are not run any more make room for others
            self._rooms.clear()
        made = _room(size) if size >= _LARGE else np.empty(size, np.uint8)
        if made is not None:
            self._rooms.append(made)
        return made


def _held_by_nobody() -> int:
    """References that Python counts of an array that is in one list only, where it is asked for them there."""
    rooms = [np.zeros(1, np.uint8)]
    return sys.getrefcount(rooms[0])


_HELD_BY_NOBODY = _held_by_nobody()
# for the process: registers, shared and tensor memory of launches, and matrices that are multiplied
ROOMS = Rooms(64 << 20, 16 << 20)
