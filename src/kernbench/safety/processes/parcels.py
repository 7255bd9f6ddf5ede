"""Objects sent between processes: pickled, with large arrays out of band in a memory file.

A pipe would split the data and copy it several times. The receiver maps an array's pages of the file instead.
"""

import mmap
import os
import pickle
from contextlib import suppress

# arrays of at least this many bytes go through the file, each page-aligned
_LARGE = 1 << 16
_PAGE = mmap.PAGESIZE


def new_file() -> int | None:
    """An anonymous file in memory; None if the system has none."""
    with suppress(OSError, AttributeError):
        return os.memfd_create("kernbench")
    return None


class Packer:
    """Pickles objects for one receiver; their large arrays are appended to one file."""

    def __init__(self, file: int | None):
        self._file = file
        self._end = 0

    def pack(self, what: object) -> bytes:
        """Bytes from which `unpack` restores the object; its large arrays stay in the file while that is open."""
        if self._file is not None:
            # if there is no memory for the file, there may be some for the pipe
            with suppress(OSError):
                return self._through(self._file, what)
        return pickle.dumps((pickle.dumps(what, pickle.HIGHEST_PROTOCOL), []), pickle.HIGHEST_PROTOCOL)

    def _through(self, file: int, what: object) -> bytes:
        large: list[memoryview] = []

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes >= _LARGE:
                large.append(raw)
            return raw.nbytes < _LARGE

        data = pickle.dumps(what, pickle.HIGHEST_PROTOCOL, buffer_callback=is_small)
        ranges = [(self._append(file, raw), raw.nbytes) for raw in large]
        return pickle.dumps((data, ranges), pickle.HIGHEST_PROTOCOL)

    def _append(self, file: int, raw: memoryview) -> int:
        start = self._end
        self._end = -(-(start + raw.nbytes) // _PAGE) * _PAGE
        # a mapped page must lie in the file completely
        os.ftruncate(file, self._end)
        done = 0
        while done < raw.nbytes:
            done += os.pwrite(file, raw[done:], start + done)
        return start


def unpack(data: bytes, file: int | None) -> object:
    """Restore an object packed by a fork of this very process; its arrays are mapped copy-on-write."""
    packed, ranges = pickle.loads(data)
    found: object = pickle.loads(packed, buffers=[_mapped(file, start, nbytes) for start, nbytes in ranges])
    return found


def _mapped(file: int | None, start: int, nbytes: int) -> memoryview:
    assert file is not None
    return memoryview(mmap.mmap(file, nbytes, access=mmap.ACCESS_COPY, offset=start))
