"""Address space that is allocated on touch: anonymous mappings, and copy-on-write ranges of one value.

Linux lets a process reserve far more addresses than the computer has memory. A range whose bytes all have one value is
mapped privately from a small file with that value, repeatedly: the kernel copies a page when it is written.
"""

import ctypes
import mmap
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError

_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
# Linux constants that some versions of Python's mmap module lack
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_FIXED = 0x10
_REMOVE = 9
_LARGE_PAGES = 14
_FIXED_UNUSED = 0x10_0000 if sys.platform == "linux" else 0
# size of a template file: few mappings for a large range, little memory for each value
_TEMPLATE = 8 << 20


def _mmap() -> Callable[..., int | None]:
    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    number, size = ctypes.c_int, ctypes.c_size_t
    function.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    return function


_FAILED = ctypes.c_void_p(-1).value


def reserve(nbytes: int, address: int | None = None, file: int | None = None) -> int | None:
    """Reserve zeros that are allocated on write, at any address or a given one; None if impossible.

    Memory of a `file`, which is extended to that size, is shared with all that map the file.
    """
    if file is not None:
        os.ftruncate(file, nbytes)
    flags = (_ANONYMOUS if file is None else mmap.MAP_SHARED) | _NO_RESERVE | (_FIXED_UNUSED if address else 0)
    found = _mmap()(address, nbytes, _READ_WRITE, flags, -1 if file is None else file, 0)
    if found is None or found == _FAILED:
        return None
    # systems without MAP_FIXED_NOREPLACE treat the address as a hint
    return found if address is None or found == address else None


def bytes_at(address: int, nbytes: int) -> Array:
    """Memory of this process as an array, in place."""
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    found: Array = np.frombuffer(memory, np.uint8)
    return found


def _pages(address: int, nbytes: int) -> tuple[int, int]:
    """First and last address of the complete pages in a range."""
    page = mmap.PAGESIZE
    return -(-address // page) * page, (address + nbytes) // page * page


def give_up(address: int, nbytes: int) -> None:
    """Reset a range of shared memory to zeros for all that map it, and free its complete pages."""
    first, last = _pages(address, nbytes)
    if first >= last or _madvise()(first, last - first, _REMOVE):
        bytes_at(address, nbytes)[...] = 0
        return
    bytes_at(address, first - address)[...] = 0
    bytes_at(last, address + nbytes - last)[...] = 0


def ask_for_large_pages(address: int, nbytes: int) -> None:
    """Ask for large pages for a range that is about to be written completely."""
    first, last = _pages(address, nbytes)
    if first < last:
        # fails if the system has none
        _madvise()(first, last - first, _LARGE_PAGES)


def _madvise() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


class Templates:
    """Fills ranges of mapped memory with one value, with a few mappings."""

    def __init__(self) -> None:
        self._files: dict[int, Any] = {}

    def _file(self, value: int) -> int:
        known = self._files.get(value)
        if known is None:
            known = self._files[value] = tempfile.TemporaryFile()  # noqa: SIM115 - kept for the life of the process
            known.write(bytes([value]) * _TEMPLATE)
            known.flush()
        return int(known.fileno())

    def fill(self, address: int, nbytes: int, value: int) -> None:
        """Set all bytes of a range to `value`; incomplete pages at its ends are written."""
        first, last = _pages(address, nbytes)
        if first >= last:
            bytes_at(address, nbytes)[...] = value
            return
        bytes_at(address, first - address)[...] = value
        bytes_at(last, address + nbytes - last)[...] = value
        if value:
            for start in range(first, last, _TEMPLATE):
                self._map(start, min(_TEMPLATE, last - start), mmap.MAP_PRIVATE | _FIXED, self._file(value))
        else:
            self._map(first, last - first, _ANONYMOUS | _NO_RESERVE | _FIXED, -1)

    def _map(self, address: int, nbytes: int, flags: int, file: int) -> None:
        if _mmap()(address, nbytes, _READ_WRITE, flags, file, 0) != address:
            problem = os.strerror(ctypes.get_errno())
            raise MisuseError(f"{nbytes:,} bytes of memory cannot be mapped: {problem}")
