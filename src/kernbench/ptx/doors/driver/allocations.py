"""Memory allocated through the driver: the kind of each allocation, and the bytes that copies and fills write."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.doors.driver.requests import Answer, FaultyCallError, HostAccessError, RefusedError, Request, Result
from kernbench.ptx.doors.memory import DeviceMemory, Made
from kernbench.ptx.doors.terms.sites import launch_site
from kernbench.ptx.doors.terms.unwritten import Gap

_DEVICE, _HOST, _MANAGED = 1, 2, 3
_KINDS = {_DEVICE: "device memory", _HOST: "pinned memory of the host", _MANAGED: "managed memory"}
_FREED_BY = {
    _DEVICE: "cudaFree (cuMemFree)",
    _HOST: "cudaFreeHost (cuMemFreeHost)",
    _MANAGED: "cudaFree (cuMemFree)",
}
# which memory a copy names for one side
_ON_HOST, _ON_DEVICE = 1, 2
# the most bytes between members of a structure, or behind its last one
_PADDING = 15
# addresses below are null pointers
_FIRST_PAGE = 4096
Words = Sequence[int]


@dataclass(frozen=True)
class _Piece:
    address: int
    nbytes: int
    kind: int
    number: int


class Allocations:
    """The allocations of a program; with `shared`, it is another process, of which only registered memory is copied."""

    def __init__(self, memory: DeviceMemory, used: Callable[[Gap], tuple[int, ...]], *, capacity: int, shared: bool):
        """`used` records what nobody wrote and the host gets; it returns the words of the answer."""
        self._memory, self._used = memory, used
        self._capacity = capacity
        self._shared = shared
        # freed allocations whose addresses are not reused, by address
        self._freed: dict[int, _Piece] = {}
        self._pieces: dict[int, _Piece] = {}
        # allocations freed by a device reset: number by address
        self._gone_with_context: dict[int, int] = {}
        self._registered: dict[int, int] = {}
        self._numbers = count(1)
        self.in_use = 0
        self.handlers: dict[Request, Callable[[Words, bytes], Answer]] = {
            Request.ALLOCATE: self._allocate,
            Request.FREE: self._free,
            Request.RESET: self._reset,
            Request.RANGE: self._range,
            Request.COPY: self._copy,
            Request.SET: self._set,
            Request.REGISTER: self._register,
            Request.UNREGISTER: self._unregister,
            Request.TOUCHED: self._touched,
        }

    def _allocate(self, words: Words, data: bytes) -> Answer:
        nbytes, kind = words
        if self.in_use + nbytes > self._capacity:
            free = max(0, self._capacity - self.in_use)
            text = f"{nbytes:,} bytes cannot be allocated: the GPU has {self._capacity:,}, of which {free:,} are free"
            raise RefusedError(Result.OUT_OF_MEMORY, text)
        number = next(self._numbers)
        try:
            # the host writes pinned and managed memory without a call
            address = self._memory.allocate(nbytes, self._name(number), written=kind != _DEVICE)
        except MisuseError as problem:
            raise RefusedError(Result.OUT_OF_MEMORY, str(problem)) from None
        if kind == _DEVICE and not self._shared:
            self._memory.note_made(address, Made(launch_site()))
        self._freed.pop(address, None)
        self._pieces[address] = _Piece(address, nbytes, kind, number)
        self.in_use += nbytes
        return Answer(words=(address,))

    def _name(self, number: int) -> str:
        """The name of an allocation in findings: its number, and the line that allocated it, if known."""
        site = None if self._shared else launch_site()
        return f"allocation {number}" + (f" ({Path(site.file).name}:{site.line})" if site is not None else "")

    def _free(self, words: Words, data: bytes) -> Answer:
        address, wanted = words
        piece = self._pieces.get(address)
        if piece is None:
            hint = "free what an allocation gave, at the address that it gave, once"
            raise FaultyCallError("misuse", self._not_to_free(address), hint)
        if (piece.kind == _HOST) != (wanted == _HOST):
            text = f"the memory at {address:#x} is {_KINDS[piece.kind]}, and is freed as {_KINDS[wanted]}"
            raise FaultyCallError("misuse", text, f"{_FREED_BY[piece.kind]} frees it; it stays allocated until then")
        self._give_back(piece)
        return Answer()

    def _give_back(self, piece: _Piece) -> None:
        del self._pieces[piece.address]
        self._freed[piece.address] = piece
        self._memory.free(piece.address)
        self.in_use -= piece.nbytes

    def _reset(self, words: Words, data: bytes) -> Answer:
        """Destroy the context, with all its allocations."""
        for piece in list(self._pieces.values()):
            self._give_back(piece)
            self._gone_with_context[piece.address] = piece.number
        return Answer()

    def _not_to_free(self, address: int) -> str:
        """Why an address cannot be freed."""
        if address in self._freed:
            if self._gone_with_context.get(address) == self._freed[address].number:
                return f"the memory at {address:#x} is freed, and was freed by the reset of the device before"
            return f"the memory at {address:#x} is freed for the second time"
        held = self._memory.array_at(address) if self._memory.holds(address) else None
        inside = f"; it lies {address - held.address:,} bytes into the memory at {held.address:#x}" if held else ""
        return f"{address:#x} is freed, and is no address that an allocation gave{inside}"

    def _range(self, words: Words, data: bytes) -> Answer:
        held = self._memory.array_at(words[0]) if self._memory.holds(words[0]) else None
        if held is None:
            return self._registered_range(words[0])
        piece = self._pieces.get(held.address) or _Piece(held.address, held.nbytes, _DEVICE, 0)
        return Answer(words=(piece.address, piece.nbytes, piece.kind, piece.number))

    def _touched(self, words: Words, data: bytes) -> Answer:
        """The host reads or writes through a device pointer."""
        (address,) = words
        held = self._memory.array_at(address) if self._memory.holds(address) else None
        where = (
            f"in {held.name}, which is memory of the device" if held is not None else "in no allocation of the device"
        )
        hint = "copy it with cudaMemcpy, or allocate it with cudaMallocManaged or cudaMallocHost"
        raise HostAccessError("misuse", f"the host accesses {address:#x}, {where}", hint)

    def _registered_range(self, address: int) -> Answer:
        for start, nbytes in self._registered.items():
            if start <= address < start + nbytes:
                return Answer(words=(start, nbytes, _HOST, start))
        raise RefusedError(Result.INVALID_VALUE)

    def _copy(self, words: Words, data: bytes) -> Answer:
        to, to_pitch, to_slice, source, pitch, slice_, width, height, depth, named = words
        for there, layer, row in ((to, to_slice, to_pitch), (source, slice_, pitch)):
            self._check(there, width)
            # before rows are listed, of which a wrong call may have very many
            self._check(there + (depth - 1) * layer + (height - 1) * row, width)
        for side, there, where in (("destination", to, named & 3), ("source", source, named >> 2)):
            self._check_kind(side, there, where)
        sources = _rows(source, pitch, slice_, width, height, depth)
        if not self._memory.holds(to):
            for start, nbytes in sources:
                self._check(start, nbytes)
            return Answer(words=self._to_host(sources))
        targets = _rows(to, to_pitch, to_slice, width, height, depth)
        if self._is_host(to):
            for start, nbytes in (*targets, *sources):
                self._check(start, nbytes)
            for start, nbytes in targets:
                self._memory.written(start, nbytes)
            return Answer(words=self._to_host(sources))
        if len(targets) != len(sources):
            targets, sources = (
                [(start + z * s + y * p, width) for z in range(depth) for y in range(height)]
                for start, p, s in ((to, to_pitch, to_slice), (source, pitch, slice_))
            )
        for (target, nbytes), (start, _) in zip(targets, sources, strict=True):
            self._check(target, nbytes)
            self._check(start, nbytes)
            self._carry(target, start, nbytes)
        return Answer()

    def _is_host(self, address: int) -> bool:
        """Whether an address is in pinned memory, which the host reads and writes without a call."""
        held = self._memory.array_at(address)
        piece = self._pieces.get(held.address) if held is not None else None
        return piece is not None and piece.kind == _HOST

    def _to_host(self, ranges: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """The host gets these ranges: report what nobody wrote of them.

        Holes as between the members of a structure are left out: nobody knows the types of a copy's bytes.
        """
        holes: list[tuple[int, int]] = []
        for start, nbytes in ranges:
            undefined = self._memory.undefined(start, nbytes) if self._memory.holds(start) else None
            if undefined is not None:
                holes += [(start + first, last - first) for first, last in _runs(undefined) if last - first > _PADDING]
        held = self._memory.array_at(holes[0][0]) if holes else None
        if held is None:
            return ()
        count, total = sum(nbytes for _, nbytes in holes), sum(nbytes for _, nbytes in ranges)
        made = self._memory.made.get(held)
        first = f"byte {holes[0][0] - held.address:,} of {held.nbytes:,}"
        return self._used(Gap(held.name, count, total, count, first, None if made is None else made.site, held=held))

    def _carry(self, target: int, source: int, nbytes: int) -> None:
        """Propagate undefined bytes: unwritten source bytes make the copied bytes unwritten."""
        undefined = self._memory.undefined(source, nbytes) if self._memory.holds(source) else None
        self._memory.written(target, nbytes)
        for first, last in () if undefined is None else _runs(undefined):
            self._memory.unwritten(target + first, last - first)

    def _set(self, words: Words, data: bytes) -> Answer:
        address, pitch, width, height = words
        self._check(address, width)
        self._check(address + (height - 1) * pitch, width)
        for start, nbytes in _rows(address, pitch, 0, width, height, 1):
            self._check(start, nbytes)
            if self._memory.holds(start):
                self._memory.written(start, nbytes)
        return Answer()

    def _check(self, address: int, nbytes: int) -> None:
        """Raise an error if a range of device addresses is not in one live allocation, or at a null pointer."""
        what = f"a copy or fill of {nbytes:,} bytes at {address:#x}"
        if address < _FIRST_PAGE:
            hint = "the pointer was never set, or an allocation that should have set it was refused"
            raise FaultyCallError("out-of-bounds", f"{what}, which is a null pointer", hint)
        if not self._memory.holds(address):
            return
        held = self._memory.array_at(address)
        if held is not None and address + nbytes <= held.address + held.nbytes:
            return
        if held is not None:
            text = f"{what} begins {address - held.address:,} bytes into {held.name}, which has {held.nbytes:,}"
            raise FaultyCallError("out-of-bounds", text, "the size, pitch or offset of the call, or of the allocation")
        for piece in self._freed.values():
            if piece.address <= address < piece.address + piece.nbytes:
                text = f"{what} lies in allocation {piece.number}, which was freed"
                raise FaultyCallError("use-after-free", text, "free memory after the last call that uses it")
        raise FaultyCallError("out-of-bounds", f"{what} lies in no allocation", "the address of the call")

    def _check_kind(self, side: str, address: int, named: int) -> None:
        """Raise an error if a copy names a side as host memory (2 bits: 1) or device memory (2), and it is the other.

        Pinned and managed memory may be named as either. Device pointers of a Python program may come from other front
        ends, such as torch, which the driver does not know.
        """
        held = self._memory.array_at(address) if self._memory.holds(address) else None
        piece = self._pieces.get(held.address) if held is not None else None
        unknown = self._shared and not self._memory.holds(address) and not self._is_registered(address)
        if named == _ON_HOST and held is not None and piece is not None and piece.kind == _DEVICE:
            claim, truth = "memory of the host", f"it lies in {held.name} on the device"
        elif named == _ON_DEVICE and unknown:
            claim, truth = "device memory", "it is memory of the host"
        else:
            return
        hint = "the kind of the copy, or the order of its two pointers; CUDA does not say what such a copy does"
        raise FaultyCallError("misuse", f"the copy names its {side}, {address:#x}, as {claim}, and {truth}", hint)

    def _is_registered(self, address: int) -> bool:
        return any(start <= address < start + nbytes for start, nbytes in self._registered.items())

    def _register(self, words: Words, data: bytes) -> Answer:
        address, nbytes = words
        if any(address < start + size and start < address + nbytes for start, size in self._registered.items()):
            raise RefusedError(Result.HOST_MEMORY_ALREADY_REGISTERED)
        copy = self._memory.adopt(address, nbytes, out_of_reach=self._shared)
        self._registered[address] = nbytes
        # the program itself keeps the copy up to date
        return Answer(words=(copy,) if self._shared else ())

    def _unregister(self, words: Words, data: bytes) -> Answer:
        if self._registered.pop(words[0], None) is None:
            raise RefusedError(Result.HOST_MEMORY_NOT_REGISTERED)
        self._memory.disown(words[0])
        return Answer()


def _runs(undefined: Array) -> list[tuple[int, int]]:
    """The beginning and end of each run of undefined bytes."""
    if not undefined.any():
        return []
    edges = np.flatnonzero(np.diff(np.concatenate(([0], undefined.view(np.int8), [0]))))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def _rows(address: int, pitch: int, slice_: int, width: int, height: int, depth: int) -> list[tuple[int, int]]:
    """The ranges of a copy; contiguous rows are one range."""
    if height * depth == 1 or (pitch == width and (depth == 1 or slice_ == width * height)):
        return [(address, width * height * depth)]
    return [(address + z * slice_ + y * pitch, width) for z in range(depth) for y in range(height)]
