"""GPU memory with a copy of another process's memory, at the same addresses if possible.

A process with nothing mapped there may reserve addresses of its choice and map GPU memory at them: then pointers in
memory stay valid. If the driver refuses, each piece gets an address of the driver's choice, and pointers into pieces
are relocated: every aligned 8-byte word in memory and parameters whose value is an address in a piece counts as a
pointer. The results are relocated back. (Numbers that happen to look like such addresses are changed as well, and
changed back; only a kernel that computes with them would notice.)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.devices.cuda_driver import CudaError, Driver, Handle

# address and contents of a piece
Pieces = Sequence[tuple[int, Array]]
_WORD = 8


@dataclass(frozen=True)
class _Moves:
    """A relocation: start addresses in ascending order, their sizes, and new start addresses."""

    starts: Array
    sizes: Array
    instead: Array

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int, int]]) -> "_Moves":
        """From (start, size, new start), in any order."""
        rows = sorted(ranges)
        columns = np.array(rows, np.uint64).reshape(len(rows), 3)
        return cls(columns[:, 0], columns[:, 1], columns[:, 2])

    def changed(self, data: Array, address: int) -> Array:
        """Bytes at an address with relocated pointers; the same object if there are none."""
        first = -address % _WORD
        count = (data.nbytes - first) // _WORD
        if not len(self.starts) or count <= 0:
            return data
        part = slice(first, first + count * _WORD)
        words = np.ascontiguousarray(data).view(np.uint8)[part].view(np.uint64)
        last = self.starts[-1] + self.sizes[-1]
        # few words are addresses at all
        at = np.flatnonzero((words >= self.starts[0]) & (words < last))
        rows = np.searchsorted(self.starts, words[at], side="right") - 1
        inside = words[at] - self.starts[rows] < self.sizes[rows]
        at, rows = at[inside], rows[inside]
        if not len(at):
            return data
        made = np.ascontiguousarray(data).view(np.uint8).copy()
        made[part].view(np.uint64)[at] = words[at] - self.starts[rows] + self.instead[rows]
        return made


class GpuMemory:
    """Pieces of another process's memory on GPU `index`; `moved` says that they are at other addresses."""

    def __init__(self, driver: Driver, index: int):
        self._driver, self._index = driver, index
        self.moved = False
        # mapped pages: start address -> bytes; relocated pieces: their address -> address here and bytes
        self._mapped: dict[int, int] = {}
        self._instead: dict[int, tuple[int, int]] = {}

    def reserve(self, pieces: Pieces) -> None:
        """Allocate memory for these pieces, which determines their addresses."""
        if not self.moved:
            try:
                self._map(pieces)
            except CudaError as problem:
                if problem.code == "CUDA_ERROR_OUT_OF_MEMORY":
                    raise
                self.moved = True
        if self.moved:
            self._allocate(pieces)

    def put(self, pieces: Pieces) -> None:
        """Write the bytes of reserved pieces."""
        moves = self._moves()
        for address, data in pieces:
            if data.nbytes:
                held = np.ascontiguousarray(moves.changed(data, address))
                self._driver.call("cuMemcpyHtoD", self.here(address), held.ctypes.data, held.nbytes)

    def take(self, pieces: Pieces) -> list[tuple[int, Array]]:
        """The current bytes of these pieces on the GPU, with pointers as there."""
        found = []
        for address, data in pieces:
            out: Array = np.empty(data.nbytes, np.uint8)
            if data.nbytes:
                self._driver.call("cuMemcpyDtoH", out.ctypes.data, self.here(address), out.nbytes)
            found.append((address, out))
        return found

    def back(self, pieces: Pieces) -> list[tuple[int, Array]]:
        """Bytes that were taken, with pointers relocated back."""
        moves = _Moves.of((instead, nbytes, start) for start, (instead, nbytes) in self._instead.items() if nbytes)
        return [(address, moves.changed(data, address)) for address, data in pieces]

    def parameters(self, given: Sequence[bytes]) -> list[bytes]:
        """Parameters with relocated pointers."""
        moves = self._moves()
        return [moves.changed(np.frombuffer(data, np.uint8), 0).tobytes() for data in given]

    def _moves(self) -> _Moves:
        ranges = self._instead.items()
        return _Moves.of((start, max(nbytes, 1), instead) for start, (instead, nbytes) in ranges)

    def here(self, address: int) -> int:
        """The address on this GPU of another process's address; unchanged if it is in no piece."""
        for start, (instead, nbytes) in self._instead.items():
            if start <= address < start + max(nbytes, 1):
                return instead + address - start
        return address

    def release(self) -> None:
        """Free relocated pieces; mapped pages are kept for the next launch."""
        for instead, nbytes in self._instead.values():
            if nbytes:
                self._driver.call("cuMemFree", instead)
        self._instead.clear()

    def _allocate(self, pieces: Pieces) -> None:
        self.release()
        for address, data in pieces:
            instead = int(self._driver.call("cuMemAlloc", data.nbytes)) if data.nbytes else 0
            self._instead[address] = instead, data.nbytes

    def _map(self, pieces: Pieces) -> None:
        """Map memory at the addresses of all pieces, where there is none yet."""
        wanted = self._properties()
        api = self._driver.api
        minimum = api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        unit = int(self._driver.call("cuMemGetAllocationGranularity", wanted, minimum))
        for page in _pages(pieces, unit):
            if page not in self._mapped:
                self._map_page(page, unit, wanted)

    def _map_page(self, page: int, unit: int, wanted: Handle) -> None:
        call, api = self._driver.call, self._driver.api
        address = int(call("cuMemAddressReserve", unit, 0, page, 0))
        if address != page:
            call("cuMemAddressFree", address, unit)
            raise CudaError(f"the driver has no room at address {page:#x}", "CUDA_ERROR_NOT_PERMITTED")
        memory = call("cuMemCreate", unit, wanted, 0)
        call("cuMemMap", address, unit, 0, memory, 0)
        access = api.CUmemAccessDesc()
        access.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self._index
        access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        call("cuMemSetAccess", address, unit, [access], 1)
        self._mapped[page] = unit

    def _properties(self) -> Handle:
        api = self._driver.api
        wanted = api.CUmemAllocationProp()
        wanted.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = self._index
        return wanted


def _pages(pieces: Iterable[tuple[int, Array]], unit: int) -> list[int]:
    """The start addresses of all pages that pieces touch, each once."""
    found: dict[int, None] = {}
    for address, data in pieces:
        for page in range(address // unit, -(-(address + max(data.nbytes, 1)) // unit)):
            found[page * unit] = None
    return list(found)
