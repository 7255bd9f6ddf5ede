"""What one process sends to another: pickled, and large arrays as they are, through a file that lies in memory.

A pipe takes what is sent apart and copies it several times over. Of an array in the file the receiver maps the pages.
"""

import mmap
import os
import pickle
from contextlib import suppress

# arrays of so many bytes or more go through the file, each from a whole page on
_LARGE = 1 << 16
_PAGE = mmap.PAGESIZE


def new_file() -> int | None:
    """A file without a name that lies in memory; None where the system has none."""
    with suppress(OSError, AttributeError):
        return os.memfd_create("kernbench")
    return None


class Packer:
    """Packs what is sent through one file, one thing behind the other."""

    def __init__(self, file: int | None):
        self._file = file
        self._end = 0

    def pack(self, what: object) -> bytes:
        """Bytes from which `unpack` makes the same again; its arrays stay in the file for as long as it is open."""
        if self._file is not None:
            # where there is no memory for the file there may be some for the pipe
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
        # a page that is mapped has to be there as a whole
        os.ftruncate(file, self._end)
        done = 0
        while done < raw.nbytes:
            done += os.pwrite(file, raw[done:], start + done)
        return start


def unpack(data: bytes, file: int | None) -> object:
    """What was packed, by a copy of this very process. Its arrays may be written to: that changes no file."""
    packed, ranges = pickle.loads(data)
    found: object = pickle.loads(packed, buffers=[_mapped(file, start, nbytes) for start, nbytes in ranges])
    return found


def _mapped(file: int | None, start: int, nbytes: int) -> memoryview:
    assert file is not None
    return memoryview(mmap.mmap(file, nbytes, access=mmap.ACCESS_COPY, offset=start))
