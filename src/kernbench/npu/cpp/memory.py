"""Addresses of device memory as compiled kernels see them: each buffer of a launch has an address range of its own,
with gaps between them, so that an address identifies its buffer, or is in none.
"""

from bisect import bisect_right
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.common.errors import KernelError
from kernbench.npu.tasks.shadow import Runs, Shadow, runs_of
from kernbench.npu.tasks.task import Block, Context
from kernbench.npu.tasks.tensors import Buffer, Tensor

__kernbench_internal__ = True
# gap after each buffer, so that a write past its end reaches no other
_GAP = 1 << 20
_ALIGNMENT = 1 << 9
# numbers of element types in records and tensors -> names here; those without a name of their own are moved as bits
ELEMENTS = (
    "f32", "f16", "i32", "", "i8", "i8", "bf16", "", "", "", "i32", "i8", "f8e4m3", "i8", "i8", "f8e5m2",
    "i8",
)  # fmt: skip
SIZES = (4, 2, 4, 2, 1, 1, 2, 8, 8, 2, 4, 1, 1, 1, 1, 1, 1)
# type number of block scales (powers of two)
SCALE = 13
# 64-bit integers are pairs of i32, along an axis of their own
WIDE = (7, 8)
# storage of host arrays that the chip has no type for: type number, and the stored type
STORED = {"int64": (7, "i4"), "uint64": (8, "i4"), "uint32": (10, "i4"), "uint8": (5, "i1")}
NUMBERS = {"f32": 0, "f16": 1, "i32": 2, "i8": 4, "bf16": 6, "i1": 11, "f8e4m3": 12, "f8e5m2": 15}


class Memory:
    """The addresses of one launch, relative to the beginning of device memory."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._buffers: list[Buffer] = []
        self._by_number: dict[int, int] = {}
        self._end = _GAP
        self._aliases: dict[tuple[int, str], Buffer] = {}
        # type numbers of buffers that programs see as elements of a type that the chip does not have
        self.shown_as: dict[int, int] = {}

    def address(self, buffer: Buffer) -> int:
        """The address of a buffer."""
        found = self._by_number.get(buffer.number)
        if found is None:
            found = self._by_number[buffer.number] = self._end
            self._starts.append(found)
            self._buffers.append(buffer)
            self._end = -(-(found + buffer.nbytes) // _ALIGNMENT) * _ALIGNMENT + _GAP
        return found

    def find(self, address: int) -> tuple[Buffer, int] | None:
        """The buffer that an address belongs to, and the byte offset in it; addresses slightly outside belong to it,
        too.
        """
        at = bisect_right(self._starts, address + _GAP // 2) - 1
        if at < 0 or address >= self._starts[at] + self._buffers[at].nbytes + _GAP // 2:
            return None
        return self._buffers[at], address - self._starts[at]

    def as_type(self, buffer: Buffer, dtype: str) -> Buffer | None:
        """A buffer seen as elements of another type; None if it does not hold a whole number of them, or has no
        data.
        """
        if buffer.dtype == dtype:
            return buffer
        key = (buffer.number, dtype)
        if key not in self._aliases:
            size, count = ITEMSIZE[dtype], buffer.nbytes // ITEMSIZE[dtype]
            same = size == ITEMSIZE[buffer.dtype]
            if buffer.nbytes % size or (not same and buffer.array is None):
                return None
            array = _seen_as(buffer.array, dtype)
            alias = replace(buffer, dtype=dtype, array=array, shape=buffer.shape if same else (count,))
            alias.shadow = buffer.shadow if same else _OtherSize(buffer, size)
            self._aliases[key] = alias
        return self._aliases[key]


class _OtherSize(Shadow):
    """The shadow of a buffer that is accessed as elements of another size: kept by the buffer's own elements."""

    def __init__(self, whole: Buffer, size: int):
        super().__init__(whole, whole.shadow.context)
        self._size_here = size
        self.cached = whole.shadow.cached

    def read(self, tensor: Tensor, runs: Runs, block: Block, site: int) -> None:
        """`block` reads these elements."""
        own = self._own(tensor)
        self._buffer.shadow.read(own, runs_of(own.shape, own.strides), block, site)

    def write(self, tensor: Tensor, runs: Runs, block: Block, site: int, adds: bool = False) -> None:
        """`block` writes these elements, or adds to them."""
        own = self._own(tensor)
        self._buffer.shadow.write(own, runs_of(own.shape, own.strides), block, site, adds)

    def written_by(self, tensor: Tensor, runs: Runs, block: Block) -> bool:
        """Whether `block` or another of its task wrote all of these elements."""
        own = self._own(tensor)
        return self._buffer.shadow.written_by(own, runs_of(own.shape, own.strides), block)

    def _own(self, tensor: Tensor) -> Tensor:
        """The elements of the buffer that a view touches."""
        size, here = ITEMSIZE[self._buffer.dtype], self._size_here
        if here > size:
            each = here // size
            strides = (*(step * each for step in tensor.strides), 1)
            return Tensor(self._buffer, tensor.offset * each, (*tensor.shape, each), strides)
        share = size // here
        *outer, step = tensor.strides or (1,)
        *rows, count = tensor.shape or (1,)
        if step != 1 or any(one % share for one in outer):
            message = f"a view of {tensor.dtype} has neighbours in the same element of {self._buffer.describe()}"
            raise KernelError("dtype", message, "make the tensor of the type that it is used as")
        length = -(-(tensor.offset % share + count) // share)
        strides = (*(one // share for one in outer), 1)
        return Tensor(self._buffer, tensor.offset // share, (*rows, length), strides)


def stored(array: Array) -> tuple[Array, int]:
    """An array as it is stored, and the number of its type if programs know it as another (else 0)."""
    if array.dtype.name not in STORED:
        return array, 0
    number, kind = STORED[array.dtype.name]
    seen: Array = np.ascontiguousarray(array).view(kind)
    return (seen.reshape(*array.shape, 2) if number in WIDE else seen), number


def _seen_as(array: Array | None, dtype: str) -> Array | None:
    from kernbench.common.dtypes import DTYPES

    return None if array is None else array.view(DTYPES[dtype].numpy)


_memories: "WeakKeyDictionary[Context, Memory]" = WeakKeyDictionary()


def memory_of(context: Context) -> Memory:
    """The addresses of a launch."""
    found = _memories.get(context)
    if found is None:
        found = _memories[context] = Memory()
    return found
