"""Memory of a GPU that holds what another process has at the same addresses, or where that cannot be, elsewhere.

A process that has nothing mapped there may reserve addresses of its choice, and put memory of the GPU behind them: then
pointers in memory lead where they led. Where the driver refuses, each piece gets an address of the driver's choice, and
parameters that point into a piece are changed; pointers in memory lead nowhere.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.devices.cuda_driver import CudaError, Driver, Handle

# address and contents of a piece
Pieces = Sequence[tuple[int, Array]]


class GpuMemory:
    """Pieces of another process's memory on GPU `index`; `moved` says that they lie at other addresses."""

    def __init__(self, driver: Driver, index: int):
        self._driver, self._index = driver, index
        self.moved = False
        # what is mapped: first address -> bytes; what was allocated instead: address there -> address here
        self._mapped: dict[int, int] = {}
        self._instead: dict[int, tuple[int, int]] = {}

    def put(self, pieces: Pieces) -> None:
        """Hold these bytes."""
        if not self.moved:
            try:
                self._map(pieces)
            except CudaError as problem:
                if problem.code == "CUDA_ERROR_OUT_OF_MEMORY":
                    raise
                self.moved = True
        if self.moved:
            self._allocate(pieces)
        for address, data in pieces:
            if data.nbytes:
                self._driver.call(
                    "cuMemcpyHtoD", self.here(address), np.ascontiguousarray(data).ctypes.data, data.nbytes
                )

    def take(self, pieces: Pieces) -> list[tuple[int, Array]]:
        """The bytes that the GPU has now where these pieces lie."""
        found = []
        for address, data in pieces:
            out: Array = np.empty(data.nbytes, np.uint8)
            if data.nbytes:
                self._driver.call("cuMemcpyDtoH", out.ctypes.data, self.here(address), out.nbytes)
            found.append((address, out))
        return found

    def here(self, address: int) -> int:
        """Where an address of the other process lies on this GPU; one that is of no piece stays as it is."""
        for start, (instead, nbytes) in self._instead.items():
            if start <= address < start + max(nbytes, 1):
                return instead + address - start
        return address

    def release(self) -> None:
        """Give back what was allocated piece by piece; what is mapped stays for the next launch."""
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
        """Put memory behind the addresses of all pieces, as far as there is none yet."""
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
    """First addresses of all pages that pieces touch, each once."""
    found: dict[int, None] = {}
    for address, data in pieces:
        for page in range(address // unit, -(-(address + max(data.nbytes, 1)) // unit)):
            found[page * unit] = None
    return list(found)


def moved_parameters(memory: GpuMemory, parameters: Sequence[bytes], sizes: Mapping[int, int]) -> list[bytes]:
    """Parameters in which pointers into pieces (first address -> bytes) lead to where these lie here."""
    if not memory.moved:
        return list(parameters)
    return [_moved(memory, data, sizes) if len(data) == 8 else data for data in parameters]


def _moved(memory: GpuMemory, data: bytes, sizes: Mapping[int, int]) -> bytes:
    address = int.from_bytes(data, "little")
    inside = any(start <= address < start + max(nbytes, 1) for start, nbytes in sizes.items())
    return memory.here(address).to_bytes(8, "little") if inside else data
