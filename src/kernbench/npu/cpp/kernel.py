"""A compiled kernel as the executor calls it: with a core and the arguments of its task, like one in Python."""

import re
from functools import lru_cache
from linecache import getline
from pathlib import Path
from struct import Struct
from typing import NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from kernbench.common.dtypes import DTYPES, ITEMSIZE
from kernbench.common.errors import KernelError
from kernbench.npu.core.tiles import Tile
from kernbench.npu.core.transfers import KernelCore
from kernbench.npu.cpp import process as programs
from kernbench.npu.cpp.decoding import MX_A_ZZ, Given, TensorWords, TileWords, decode
from kernbench.npu.cpp.ends import crash
from kernbench.npu.cpp.locations import Caller, caller, first_line, of_address, of_calls
from kernbench.npu.cpp.memory import ELEMENTS, NUMBERS, SCALE, WIDE, Memory, memory_of
from kernbench.npu.cpp.operations import Call, as_given, handler, nothing, position
from kernbench.npu.cpp.process import BODY, CRASHED, ENDED, FAILED, KIND, OPERATION, QUESTION, Process
from kernbench.npu.isa.units import ALIGNMENT
from kernbench.npu.tasks.tensors import Buffer, Tensor
from kernbench.result.finding import SourceLocation
from kernbench.safety.budget import OverBudgetError

__kernbench_internal__ = True
CALL = Struct("<IIiiii128s")
_ARGUMENT = Struct("<4Q12I")
_ACCESS = Struct("<3Q16s")
_ASSIGN = re.compile(r"\b(?:T(?:ASSIGN|RESHAPE|LOAD)\s*\(\s*|TPOP\s*<[^;]*>\s*\(\s*[A-Za-z_]\w*\s*,\s*)([A-Za-z_]\w*)")


class CppKernel:
    """A kernel of a C++ file: `library` is its compiled form, `source` its file."""

    def __init__(self, library: Path, source: Path, name: str, symbol: str = "kernel_entry"):
        self.library, self.source, self.symbol = library, source, symbol
        self.__name__ = self.__qualname__ = name
        # a line whose flags and barriers are skipped
        self.left_out: tuple[str, int] | None = None

    def without(self, file: str, line: int) -> "CppKernel":
        """The same kernel without the flags and barriers of one line."""
        made = CppKernel(self.library, self.source, self.__name__, self.symbol)
        made.left_out = (file, line)
        return made

    def __repr__(self) -> str:
        return f"<C++ kernel {self.__name__} of {self.source}>"

    def __call__(self, core: KernelCore, *arguments: object) -> None:
        """Run the kernel on a core, in a process of its own."""
        process, is_done = programs.take(), False
        running = Running(self, core, process, arguments)
        try:
            try:
                running.begin()
                is_done = running.serve()
            finally:
                programs.give_back(process, is_done)
        except OverBudgetError as error:
            running.raise_there(error)


def _raise(error: BaseException) -> None:
    raise error


def argument_words(memory: Memory, value: object) -> bytes:
    """An argument of a kernel in its binary form: a tensor's description, or the bits of a number."""
    if not isinstance(value, Tensor):
        return _ARGUMENT.pack(0, number_bits(value), 0, 0, 0, 0, *([0] * 10))
    buffer, offset = value.buffer, value.offset
    shape, strides = value.shape or (1,), value.strides or (1,)
    element = memory.shown_as.get(buffer.number, NUMBERS[buffer.dtype])
    if element in WIDE:
        shape, strides, offset = shape[:-1] or (1,), tuple(step // 2 for step in strides[:-1]) or (1,), offset // 2
    if len(shape) > 5:
        raise KernelError("shape", f"{value!r} has more than five axes")
    sizes = [*shape, *([0] * (5 - len(shape))), *strides, *([0] * (5 - len(strides)))]
    head = (1, memory.address(buffer), buffer.nbytes, offset, element, len(shape))
    return _ARGUMENT.pack(*head, *sizes)


def number_bits(value: object) -> int:
    """A number as the 64 bits that a kernel takes: whole numbers as they are, others as f32."""
    if isinstance(value, (bool, int, np.integer)):
        return int(value) & 0xFFFFFFFFFFFFFFFF
    if isinstance(value, (float, np.floating)):
        return int(np.float32(value).view(np.uint32))
    raise KernelError("misuse", f"{value!r}: kernels in C++ take tensors and numbers")


class Running:
    """One call of a kernel: reads its records and performs them on the core."""

    def __init__(self, kernel: CppKernel, core: KernelCore, process: Process, arguments: tuple[object, ...]):
        self.kernel, self.core, self.process = kernel, core, process
        self._arguments = arguments
        self._memory = memory_of(core.context)
        self._memo = _memo(core, process)
        self._last = 0
        # the location of the last operation; for a kernel that hangs, its current location
        self._at = caller(str(kernel.source), first_line(kernel.source, kernel.symbol), kernel.symbol)
        self._waited = False
        process.idle = self._look

    def begin(self) -> None:
        """Have the process call the kernel."""
        words = b"".join(argument_words(self._memory, value) for value in self._arguments)
        core, number = self.core, self.process.library(self.kernel.library, self.kernel.source)
        head = (number, len(self._arguments), core.block_idx, core.block_num, core.sub_block_id, 0)
        self.process.call(programs.RUN, CALL.pack(*head, self.kernel.symbol.encode()) + words)

    def serve(self) -> bool:
        """Perform the kernel's records until it has ended."""
        memo = self._memo
        for record in self.process.records():
            known = memo.get(record)
            if known is not None:
                self._at = known[0]
                known[0](known[1], known[2])
                continue
            kind, name, site = KIND.unpack_from(record)
            if kind == OPERATION:
                self._last = site
                self._operate(record, self.process.names[name], site)
            elif kind == QUESTION:
                self._last = site
                self.process.answer(self._answer(self.process.names[name], site, record[BODY:]))
            elif kind == ENDED:
                return True
            elif kind == CRASHED:
                raise crash(record[BODY:], self.kernel.__name__, self.kernel.library, self._location(site))
            elif kind == FAILED:
                raise KernelError("misuse", f"{self.kernel.source} has no function {record[BODY:].decode()}")
        raise KernelError("kernel-error", f"{self.kernel!r} ended its process", "", self._location(self._last))

    # Operations

    def _operate(self, record: bytes, name: str, site: int) -> None:
        if name == "gm_write":
            self._write(record[BODY:])
            return
        call = self._at = self._caller(site)
        found = call(self._prepared, (name, record[BODY:], self._location(site)))
        assert isinstance(found, tuple)
        method, given, is_same = found
        if is_same:
            self._memo[record] = (call, method, given)
        call(method, given)

    def _prepared(self, name: str, payload: bytes, where: SourceLocation) -> Call:
        if (where.file, where.line) == self.kernel.left_out and name in ("set_flag", "wait_flag", "pipe_barrier"):
            return nothing, (), True
        return handler(name)(self, self.decoded(payload))

    def decoded(self, payload: bytes) -> list[object]:
        """The arguments of an operation."""
        return as_given(decode(payload), self)

    def operand(self, value: Given) -> object:
        """An argument of an operation; tiles become tiles of the core."""
        if not isinstance(value, TileWords):
            return value
        dtype = ELEMENTS[value.element]
        if not dtype:
            raise KernelError("dtype", "tiles of 16- and 64-bit integers are not known to the machine")
        shape, valid = value.shape, (min(value.valid[0], value.shape[0]), min(value.valid[1], value.shape[1]))
        # scales lie in blocks of 32 bytes: neither their rows nor their columns need whole lines
        is_tall = value.element == SCALE and shape[1] * ITEMSIZE[dtype] % ALIGNMENT
        layout = "col" if is_tall else value.layout
        tile = self.core.tile(value.space, shape, dtype, value.offset, valid, layout, self._tile_name(value.site))
        self.core.tables.nesting.add(tile.root)
        return tile

    def _tile_name(self, site: int) -> str:
        spot = self.process.sites.get(site)
        return _assigned(spot[0], spot[1]) if spot is not None else ""

    # Device memory

    def transfer(self, tile: object, tensor: object, writes: bool) -> tuple[Tile, Tensor]:
        """The tile and the tensor of a transfer, cut to their common shape."""
        if not isinstance(tile, Tile) or not isinstance(tensor, TensorWords):
            raise KernelError("misuse", "a transfer moves between a tile and a tensor")
        shape, strides = _matrix(tensor, tile)
        rows, columns = _rows(shape), shape[-1]
        valid = (min(rows, tile.valid[0]), min(columns, tile.valid[1]))
        if rows > valid[0] and len(shape) > 1 and rows == shape[-2]:
            shape = (*shape[:-2], valid[0], shape[-1])
        if columns > valid[1]:
            shape = (*shape[:-1], valid[1])
        part = tile if tile.valid == valid else tile.view(valid=valid)
        return part, self.view(tensor.address, tensor.element, shape, strides, writes)

    def scales(self, tile: object, tensor: TensorWords) -> tuple[Tile, Tensor]:
        """The tile and the tensor of a load of scales, which lie in blocks of 16 by 2: [block, 16, block, 2] for the
        left operand, and for the right one the same by columns."""
        if not isinstance(tile, Tile):
            raise KernelError("misuse", "a transfer moves between a tile and a tensor")
        order = (1, 3, 2, 4) if tensor.layout == MX_A_ZZ else (2, 4, 1, 3)
        shape, strides = (tuple(sizes[axis] for axis in order) for sizes in (tensor.shape, tensor.strides))
        valid = (shape[0] * shape[1], shape[2] * shape[3])
        part = tile if tile.valid == valid else tile.view(valid=valid)
        return part, self.view(tensor.address, tensor.element, shape, strides, False)

    def view(
        self, address: int, element: int, shape: tuple[int, ...], strides: tuple[int, ...], writes: bool
    ) -> Tensor:
        """A view of what lies at an address, tied to the argument that it is of."""
        dtype = ELEMENTS[element]
        found = self._memory.find(address - self.process.base)
        if found is None:
            raise KernelError(
                "out-of-bounds",
                f"address {address - self.process.base:#x} of device memory is in no tensor",
                "check how the address is worked out; a tensor's is buffer.addr, its first element start_offset",
            )
        whole, at = found
        buffer = self._memory.as_type(whole, dtype) if dtype else None
        if buffer is None or at % ITEMSIZE[dtype]:
            raise KernelError("dtype", f"{whole.describe()} is used as elements of {dtype or 'an unknown type'}")
        offset = at // ITEMSIZE[dtype]
        tensor = Tensor(buffer, offset, shape, strides)
        return self._bound(whole, tensor, writes)

    def _bound(self, whole: Buffer, tensor: Tensor, writes: bool) -> Tensor:
        """The view as part of an argument of the task: of several one with a suitable direction that covers it."""
        own = [a for a in self._arguments if isinstance(a, Tensor) and a.buffer is whole and a.binding is not None]
        low, high = _in_bytes(tensor)

        def fit(argument: Tensor) -> tuple[bool, bool]:
            first, last = _in_bytes(argument)
            binding = argument.binding
            assert binding is not None
            return (first <= low and high <= last, binding.writes if writes else binding.reads)

        if own:
            tensor.binding = max(own, key=fit).binding
        if low < 0 or high > whole.nbytes:
            item = ITEMSIZE[tensor.dtype]
            size = whole.nbytes // item
            kind = "" if item == ITEMSIZE[whole.dtype] else f" as {tensor.dtype}"
            self.core.report(
                "out-of-bounds",
                f"elements {low // item} to {high // item - 1} of {whole.describe()}{kind}, which has {size}",
                f"valid elements are 0 to {size - 1}; check the address, the shape and the strides of the view",
                whole.name,
            )
            tensor.broken = True
        return tensor

    def signal_at(self, address: int, writes: bool) -> Tensor:
        """The i32 element at an address."""
        return self.view(address, ELEMENTS.index("i32"), (), (), writes)

    def line_at(self, address: int) -> Tensor:
        """The element at an address, for operations on its cache line."""
        found = self._memory.find(address - self.process.base)
        if found is None:
            raise KernelError("out-of-bounds", f"address {address - self.process.base:#x} is in no tensor")
        buffer, at = found
        return self._bound(buffer, Tensor(buffer, at // ITEMSIZE[buffer.dtype], (), ()), False)

    def _elements(self, offset: int, size: int, writes: bool) -> list[Tensor]:
        """The elements touched by a load or store of the program itself."""
        found = self._memory.find(offset)
        if found is None:
            raise KernelError("out-of-bounds", f"address {offset:#x} of device memory is in no tensor")
        buffer, at = found
        item = ITEMSIZE[buffer.dtype]
        return [
            self._bound(buffer, Tensor(buffer, number, (), ()), writes)
            for number in range(at // item, -(-(at + size) // item))
        ]

    # Single values

    def _answer(self, name: str, site: int, payload: bytes) -> bytes:
        if name == "gm_read":
            offset, size, pc, _ = _ACCESS.unpack(payload)
            found = self._call_at(pc)(self._read, (offset, size))
        elif name == "ld_dev":
            found = self._caller(site)(self._poll, tuple(self.decoded(payload)))
        else:
            found = self._caller(site)(self._get_value, tuple(self.decoded(payload)))
        assert isinstance(found, bytes)
        return found

    def _poll(self, address: int) -> bytes:
        return _bytes(self.core.poll(self.signal_at(address, False)), "i32")

    def _read(self, offset: int, size: int) -> bytes:
        elements = self._elements(offset, size, False)
        values = b"".join(_bytes(self.core.read(element), element.dtype) for element in elements)
        skipped = offset - self._memory.address(elements[0].buffer) - elements[0].offset * ITEMSIZE[elements[0].dtype]
        return values[skipped : skipped + size]

    def _write(self, payload: bytes) -> None:
        offset, size, pc, value = _ACCESS.unpack(payload)
        self._call_at(pc)(self._write_value, (offset, size, value[:size]))

    def _write_value(self, offset: int, size: int, value: bytes) -> None:
        elements = self._elements(offset, size, True)
        item = ITEMSIZE[elements[0].dtype]
        if len(elements) * item != size:
            raise KernelError("dtype", f"{size} bytes are written to {elements[0].buffer.describe()}")
        numbers = np.frombuffer(value, DTYPES[elements[0].dtype].numpy)
        for element, number in zip(elements, numbers, strict=True):
            self.core.write(element, value=number.item())

    def _get_value(self, tile: Tile, element: int) -> bytes:
        row, column = position(tile, element)
        return _bytes(self.core.get(tile.whole, row, column), tile.dtype)

    # Source locations

    def _caller(self, site: int) -> Caller:
        file, line, function = self.process.sites.get(site) or (str(self.kernel.source), 1, self.kernel.symbol)
        return caller(file, line, function)

    def _location(self, site: int) -> SourceLocation:
        return SourceLocation(*(self.process.sites.get(site) or (str(self.kernel.source), 1, self.kernel.symbol)))

    def _call_at(self, pc: int) -> Caller:
        """The line of a load or store that the program makes itself; if unknown, that of the last operation."""
        where = of_address(self.kernel.library, pc - 1) or self._location(self._last)
        return caller(where.file, where.line, where.function)

    def _look(self) -> None:
        """The kernel has not reported for a while: record its current location, in case it is stopped."""
        if not self._waited:
            self._waited = True
            return
        where = of_calls(self.kernel.library, self.process.addresses())
        if where is not None:
            self._at = caller(where.file, where.line, where.function)

    def raise_there(self, error: BaseException) -> NoReturn:
        """Raise an error at the current line of the kernel."""
        error.__traceback__ = None
        self._at(_raise, (error,))
        raise error


Memo = dict[bytes, tuple[Caller, object, tuple[object, ...]]]
_memos: "WeakKeyDictionary[KernelCore, WeakKeyDictionary[Process, Memo]]" = WeakKeyDictionary()


def _memo(core: KernelCore, process: Process) -> "dict[bytes, tuple[Caller, object, tuple[object, ...]]]":
    """Decoded calls of a process on a core, by their records."""
    return _memos.setdefault(core, WeakKeyDictionary()).setdefault(process, {})


@lru_cache(maxsize=65536)
def _assigned(file: str, line: int) -> str:
    """The name of the tile that a line assigns its address."""
    found = _ASSIGN.search(getline(file, line))
    return found.group(1) if found is not None else ""


def _in_bytes(tensor: Tensor) -> tuple[int, int]:
    """First byte and one past the last byte of a view in its buffer."""
    low, high = tensor.extent
    return low * ITEMSIZE[tensor.dtype], high * ITEMSIZE[tensor.dtype]


def _matrix(tensor: TensorWords, tile: Tile) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a tensor, without axes of size 1 before the last two."""
    axes = [axis for axis in range(3) if tensor.shape[axis] != 1] + [3, 4]
    return tuple(tensor.shape[a] for a in axes), tuple(tensor.strides[a] for a in axes)


def _rows(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape[:-1]:
        count *= size
    return count


def _bytes(value: object, dtype: str) -> bytes:
    return np.array(value, DTYPES[dtype].numpy).tobytes()
