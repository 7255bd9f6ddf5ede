"""Addresses of device memory as compiled kernels see them: each buffer of a launch has a range of its own, with room
between two, so that an address says which buffer it is of, or that it is of none.
"""

from bisect import bisect_right
from dataclasses import replace
from weakref import WeakKeyDictionary

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.npu.tasks.task import Context
from kernbench.npu.tasks.tensors import Buffer

__kernbench_internal__ = True
# room after each buffer: what is written past its end meets no other
_GAP = 1 << 20
_ALIGNMENT = 1 << 9
# numbers of element types in records and tensors -> names here; those without a name of their own are moved as bits
ELEMENTS = (
    "f32", "f16", "i32", "", "i8", "i8", "bf16", "", "", "", "i32", "i8", "f8e4m3", "i8", "i8", "f8e5m2",
)  # fmt: skip
SIZES = (4, 2, 4, 2, 1, 1, 2, 8, 8, 2, 4, 1, 1, 1, 1, 1)
NUMBERS = {"f32": 0, "f16": 1, "i32": 2, "i8": 4, "bf16": 6, "i1": 11, "f8e4m3": 12, "f8e5m2": 15}


class Memory:
    """The addresses of one launch, counted from the beginning of device memory."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._buffers: list[Buffer] = []
        self._by_number: dict[int, int] = {}
        self._end = _GAP
        self._aliases: dict[tuple[int, str], Buffer] = {}

    def address(self, buffer: Buffer) -> int:
        """Where a buffer begins."""
        found = self._by_number.get(buffer.number)
        if found is None:
            found = self._by_number[buffer.number] = self._end
            self._starts.append(found)
            self._buffers.append(buffer)
            self._end = -(-(found + buffer.nbytes) // _ALIGNMENT) * _ALIGNMENT + _GAP
        return found

    def find(self, address: int) -> tuple[Buffer, int] | None:
        """The buffer that an address belongs to, and how many bytes into it; what lies a little outside belongs to it
        too."""
        at = bisect_right(self._starts, address + _GAP // 2) - 1
        if at < 0 or address >= self._starts[at] + self._buffers[at].nbytes + _GAP // 2:
            return None
        return self._buffers[at], address - self._starts[at]

    def as_type(self, buffer: Buffer, dtype: str) -> Buffer | None:
        """A buffer seen as elements of another type of the same size; None where sizes differ."""
        if buffer.dtype == dtype:
            return buffer
        if ITEMSIZE[buffer.dtype] != ITEMSIZE[dtype]:
            return None
        key = (buffer.number, dtype)
        if key not in self._aliases:
            alias = replace(buffer, dtype=dtype, array=_seen_as(buffer.array, dtype))
            alias.shadow = buffer.shadow
            self._aliases[key] = alias
        return self._aliases[key]


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
