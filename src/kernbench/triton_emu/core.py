"""The engine under `tl`: gives values scratch space and numbers, records a row for each command, computes where there
is data, and says what is wrong at the kernel's line.
"""

from math import prod
from typing import Any, NoReturn

import numpy as np

from kernbench.common.dtypes import DTYPES, FLOATS, ITEMSIZE, Array, cast, dtype_name, poisoned, promote
from kernbench.common.errors import KernelError, MisuseError
from kernbench.common.pe_commands import OPERATIONS, SCRATCH, TensorHandle
from kernbench.result.finding import Other, Place
from kernbench.result.recording import COMMAND_COLUMNS, HANDLE_COLUMNS, Stream, Tables
from kernbench.safety.places import SiteTable
from kernbench.triton_emu import numerics
from kernbench.triton_emu.port import Port
from kernbench.triton_emu.scratch import Block, ScratchPool

__kernbench_internal__ = True

Shape = tuple[int, ...]
CODE = {name: row.code for name, row in OPERATIONS.items()}
_WIDTH = len(COMMAND_COLUMNS)
_HANDLE_WIDTH = len(HANDLE_COLUMNS)
_LIVE_SHOWN = 8
_new_handle = object.__new__


class Core:
    """Recording, scratch and execution for one PE. `TLContext` adds the names a kernel sees."""

    def __init__(
        self,
        stream: Stream,
        sites: SiteTable,
        port: Port,
        scratch_base: int,
        scratch_size: int,
        max_steps: int,
    ):
        self.stream = stream
        self._rows = stream.rows
        self._handle_rows = stream.handle_rows
        self._tables: Tables = stream.tables
        self._sites = sites
        self._here = sites.here
        self._port = port
        self._row_limit = max_steps * _WIDTH
        self._scratch = ScratchPool(scratch_base, scratch_size, self._place_of, self._overflow)

    # Places and errors

    def _place_of(self, handle: TensorHandle) -> Place | None:
        producer = self._handle_rows[handle.number * _HANDLE_WIDTH + 2] if handle.number >= 0 else -1
        return None if producer < 0 else self._tables.sites[self._rows[producer * _WIDTH + 1]]

    def _fail(self, kind: str, message: str, hint: str = "") -> NoReturn:
        """Refuse what the kernel asks for, at its own line."""
        raise KernelError(kind, message, hint, self._tables.sites[self._sites.here()])

    def _overflow(self, size: int) -> None:
        pool = self._scratch
        gap = pool.largest_gap()
        free = pool.size - pool.used
        blocks = list(pool.live())
        shown = [self._describe_block(b) for b in blocks[:_LIVE_SHOWN]]
        if len(blocks) > _LIVE_SHOWN:
            rest = blocks[_LIVE_SHOWN:]
            shown.append(f"{len(rest)} smaller ones, {_size(sum(b.nbytes for b in rest))} together")
        broken = f", the largest gap {_size(gap)}" if gap < free else ""
        message = (
            f"a value of {_size(size)} does not fit the scratch memory: {_size(pool.used)} of {_size(pool.size)} are "
            f"in use{broken}. Live: " + "; ".join(shown)
        )
        others = tuple(Other("made a live value", self._block_place(b)) for b in blocks[:3])
        self._port.report(
            "scratch-overflow",
            message,
            "use smaller blocks, drop handles that are no longer needed (del), or write in place (out=)",
            self._tables.sites[self._sites.here()],
            others,
        )

    def _block_place(self, block: Block) -> Place | None:
        producer = self._handle_rows[block.number * _HANDLE_WIDTH + 2] if block.number >= 0 else -1
        return None if producer < 0 else self._tables.sites[self._rows[producer * _WIDTH + 1]]

    def _describe_block(self, block: Block) -> str:
        if block.number < 0:
            return f"{_size(block.nbytes)} for a receive under way"
        shape, dtype, _ = self._tables.types[self._handle_rows[block.number * _HANDLE_WIDTH + 1]]
        where = self._block_place(block)
        made = f" from {where} `{where.text}`" if where else ""
        return f"{'x'.join(map(str, shape))} {dtype} ({_size(block.nbytes)}){made}"

    # Handles

    def _type_number(self, shape: Shape, dtype: str, space: str) -> int:
        key = (shape, dtype, space)
        number = self._tables.type_numbers.get(key)
        if number is None:
            number = self._tables.type_numbers[key] = len(self._tables.types)
            self._tables.types.append(key)
        return number

    def _make(self, shape: Shape, dtype: str, data: Array | None, producer: int, block: Block | None = None) -> Any:
        """A handle on a fresh block (or on `block`, already reserved), produced by command row `producer`."""
        nbytes = ITEMSIZE[dtype]
        for n in shape:
            nbytes *= n
        if block is None:
            block = self._scratch.allocate(nbytes)
        else:
            block.users += 1
        handle = _new_handle(TensorHandle)
        handle.block = block
        handle.addr = block.addr
        handle.shape = shape
        handle.dtype = dtype
        handle.nbytes = nbytes
        handle.data = block.data = data
        handle.space = SCRATCH
        handle.pinned = False
        handle.strides = None
        rows = self._handle_rows
        handle.number = block.number = handle.id = len(rows) // _HANDLE_WIDTH
        rows.extend((block.addr, self._type_number(shape, dtype, SCRATCH), producer))
        return handle

    def _view(
        self,
        parent: TensorHandle,
        shape: Shape,
        strides: Shape | None,
        offset: int = 0,
        data: Array | None = None,
    ) -> TensorHandle:
        """A handle on the same block as `parent`, `offset` elements on; no command."""
        handle: TensorHandle = _new_handle(TensorHandle)
        handle.block = block = parent.block
        if block is not None:
            block.users += 1
        handle.addr = parent.addr + offset * ITEMSIZE[parent.dtype]
        handle.shape = shape
        handle.dtype = parent.dtype
        handle.nbytes = prod(shape) * ITEMSIZE[parent.dtype]
        handle.data = data
        handle.space = parent.space
        handle.pinned = parent.pinned
        handle.strides = strides
        self._number(handle, self._producer(parent))
        return handle

    def _number(self, handle: TensorHandle, producer: int) -> None:
        rows = self._handle_rows
        handle.number = handle.id = len(rows) // _HANDLE_WIDTH
        rows.extend((handle.addr, self._type_number(handle.shape, handle.dtype, handle.space), producer))

    def _producer(self, handle: TensorHandle) -> int:
        return self._handle_rows[handle.number * _HANDLE_WIDTH + 2] if handle.number >= 0 else -1

    def adopt(self, handle: TensorHandle) -> None:
        """Take in a handle the kernel built itself: tie it to the memory it names, so that it sees its bytes."""
        identity = handle.id
        handle.nbytes = prod(handle.shape) * ITEMSIZE[handle.dtype]
        block = self._scratch.block_at(handle.addr, handle.nbytes) if handle.space != "hbm" else None
        producer = -1
        if block is not None:
            handle.block = block
            block.users += 2 if handle.pinned else 1
            producer = self._handle_rows[block.number * _HANDLE_WIDTH + 2] if block.number >= 0 else -1
        self._number(handle, producer)
        handle.id = identity
        if self._port.carries_data:
            handle.data = self._adopted_data(handle, block)

    def _adopted_data(self, handle: TensorHandle, block: Block | None) -> Array | None:
        target = DTYPES[handle.dtype].numpy
        given = handle.data
        if isinstance(given, np.ndarray) and given.dtype == target and given.size == prod(handle.shape):
            return given.reshape(handle.shape)
        if block is None or block.data is None:
            return None
        raw = np.ascontiguousarray(block.data).reshape(-1).view(np.uint8)
        start = handle.addr - block.addr
        if start + handle.nbytes > raw.size:
            return None
        return raw[start : start + handle.nbytes].view(target).reshape(handle.shape)

    def _data(self, handle: TensorHandle) -> Array | None:
        """The operand's array, None in a run without data."""
        data = handle.data
        if data is not None:
            block = handle.block
            if block is None or not block.replaced:
                return data  # type: ignore[no-any-return]
        if not self._port.carries_data:
            return None
        return self._missing_data(handle)

    def _missing_data(self, handle: TensorHandle) -> Array:
        """An operand without an array in a run with data: HBM the kernel points at itself, or nothing at all."""
        where = self._tables.sites[self._sites.here()]
        if handle.block is None and self._port.tensor_name(handle.addr) is not None:
            data, _ = self._port.load(handle.addr, handle.shape, None, handle.dtype, where)
            return poisoned(handle.shape, handle.dtype) if data is None else data
        if handle.block is None or not handle.block.replaced:
            what = f"no value lies at scratch address {handle.addr:#x}"
        else:
            what = "its space was taken over by a later value (out=)"
        self._port.report(
            "uninitialised-read",
            f"{handle!r} is read, but {what}",
            "build a view from the addr of a live handle, and keep using the handle that out= returned",
            where,
        )
        return poisoned(handle.shape, handle.dtype)

    # Commands

    def _record(self, op: str, site: int, out: int, a: int, b: int, c: int, x: int, y: int) -> None:
        """One command row that makes no value."""
        rows = self._rows
        rows.extend((CODE[op], site, out, a, b, c, x, y))
        if len(rows) > self._row_limit:
            self._port.over_budget(len(rows) // _WIDTH, self._tables.sites[site])

    def _emit(
        self,
        op: str,
        site: int,
        shape: Shape,
        dtype: str,
        data: Array | None,
        a: int = -1,
        b: int = -1,
        c: int = -1,
        x: int = 0,
        y: int = 0,
        out: TensorHandle | None = None,
    ) -> TensorHandle:
        """One command row, and the handle of the value it makes."""
        rows = self._rows
        producer = len(rows) // _WIDTH
        if out is None:
            handle: TensorHandle = self._make(shape, dtype, data, producer)
        else:
            handle = self._into(out, shape, dtype, data, producer, site)
        rows.extend((CODE[op], site, handle.number, a, b, c, x, y))
        if len(rows) > self._row_limit:
            self._port.over_budget(len(rows) // _WIDTH, self._tables.sites[site])
        return handle

    def _into(
        self, out: TensorHandle, shape: Shape, dtype: str, data: Array | None, producer: int, site: int
    ) -> TensorHandle:
        """Let the new value take over the space of `out`, which becomes its handle; other views of it end."""
        block = out.block
        nbytes = prod(shape) * ITEMSIZE[dtype]
        if block is None or out.strides is not None or out.addr != block.addr:
            self._fail("misuse", f"out= needs a whole scratch value, not the view {out!r}")
        if nbytes > block.nbytes:
            self._fail("shape", f"out= holds {block.nbytes} bytes, the result {shape} {dtype} needs {nbytes}")
        for pending in block.sends:
            self._port.report(
                "race",
                f"{out!r} is overwritten while an asynchronous send may still be reading it",
                "wait for the send before writing in place, or give the result space of its own",
                self._tables.sites[site],
                (Other("the send in flight", pending.where),),
            )
        # handles on the old value keep the old block object: reading one is a finding from now on
        fresh = self._scratch.replace(block)
        out.block = fresh
        block.users -= 1
        out.data = fresh.data = data
        out.shape, out.dtype, out.nbytes = shape, dtype, nbytes
        self._number(out, producer)
        fresh.number = out.number
        return out

    def _scalar(self, value: Any) -> float | int | bool:
        """A Python number from whatever a kernel wrote as one."""
        kind = type(value)
        if kind is float or kind is int or kind is bool:
            return value  # type: ignore[no-any-return]
        value = getattr(value, "value", value)
        if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
            value = value.item()
        if isinstance(value, (int, float)):
            return value
        self._fail(
            "misuse",
            f"{value!r} is neither a handle nor a number",
            "wait for an asynchronous receive before using it" if hasattr(value, "wait") else "load it first",
        )

    def _operand(self, value: Any) -> tuple[TensorHandle | None, Any]:
        """(handle, its data) or (None, number)."""
        if type(value) is TensorHandle:
            return value, self._data(value)
        return None, self._scalar(value)

    def _broadcast(self, op: str, left: Shape, right: Shape) -> Shape:
        try:
            return np.broadcast_shapes(left, right)
        except ValueError:
            self._fail(
                "shape",
                f"{op}: shapes {left} and {right} do not broadcast",
                "each axis must be equal or 1, counted from the last; reductions keep their axis as size 1",
            )

    def _meet(self, op: str, a: Any, b: Any) -> str:
        """The element type two operands compute in; at least one is a handle."""
        if type(a) is TensorHandle and type(b) is TensorHandle:
            return a.dtype if a.dtype == b.dtype else promote(a.dtype, b.dtype)
        handle, number = (a, b) if type(a) is TensorHandle else (b, a)
        dtype: str = handle.dtype
        if dtype in FLOATS or type(number) is bool:
            return dtype
        if type(number) is float:
            return "f32"
        if dtype == "i1":
            return "i32"
        limits = np.iinfo(DTYPES[dtype].numpy)
        if not limits.min <= number <= limits.max:
            self._fail("dtype", f"{op}: {number} does not fit {dtype}", f"cast the handle to a wider type than {dtype}")
        return dtype

    def _binary(self, op: str, a: Any, b: Any, out: TensorHandle | None = None) -> Any:
        """An elementwise operation of two operands, at least one of them a handle."""
        site = self._here()
        a_handle, x = self._operand(a)
        b_handle, y = self._operand(b)
        if a_handle is None:
            if b_handle is None:
                return numerics.BINARY[op](x, y).item()
            shape = b_handle.shape
            dtype = self._meet(op, x, b)
        elif b_handle is None:
            shape = a_handle.shape
            dtype = self._meet(op, a, y)
        else:
            shape = a_handle.shape
            if shape != b_handle.shape:
                shape = self._broadcast(op, shape, b_handle.shape)
            dtype = a_handle.dtype
            if dtype != b_handle.dtype:
                dtype = promote(dtype, b_handle.dtype)
        result = dtype
        if op in numerics.COMPARISONS:
            result = "i1"
        elif dtype not in FLOATS:
            result = self._integer_result(op, dtype)
        elif op in numerics.INTEGER_ONLY:
            self._fail("dtype", f"{op} needs integers; got {dtype}", "cast the operands with .to('i32')")
        data = None if x is None or y is None else numerics.binary(op, x, y, dtype, result)
        a_number = -1 if a_handle is None else a_handle.number
        b_number = -1 if b_handle is None else b_handle.number
        return self._emit(op, site, shape, result, data, a_number, b_number, out=out)

    def _integer_result(self, op: str, dtype: str) -> str:
        if op == "div":
            return "f32"
        if dtype == "i1" and op not in ("and", "or", "xor"):
            self._fail("dtype", f"{op} has no meaning on masks (i1)", "cast the mask with .to('i32')")
        return dtype

    def _unary(self, op: str, value: Any, out: TensorHandle | None = None) -> Any:
        """An elementwise operation of one operand."""
        site = self._here()
        handle, x = self._operand(value)
        if handle is None:
            return numerics.UNARY[op](np.asarray(x, np.float32)).item()
        dtype = handle.dtype
        if dtype not in FLOATS:
            if op not in numerics.KEEPS_INTEGERS:
                dtype = "f32"
        elif op in numerics.INTEGER_ONLY:
            self._fail("dtype", f"{op} needs integers; got {dtype}", "cast the operand with .to('i32')")
        data = None if x is None else numerics.unary(op, x, dtype)
        return self._emit(op, site, handle.shape, dtype, data, handle.number, out=out)

    def _handle(self, op: str, value: Any) -> TensorHandle:
        if type(value) is not TensorHandle:
            hint = "wait for an asynchronous receive before using it" if hasattr(value, "wait") else "load it first"
            self._fail("misuse", f"{op} needs a tensor handle; got {value!r}", hint)
        return value

    def _shape(self, dimensions: Any) -> Shape:
        """A shape as a tuple of sizes, from an int or a sequence."""
        values = (dimensions,) if isinstance(dimensions, (int, np.integer)) else dimensions
        try:
            sizes = tuple(int(n) for n in values)
        except (TypeError, ValueError):
            self._fail("shape", f"a shape is a sequence of whole numbers; got {dimensions!r}")
        if any(n < 0 for n in sizes):
            self._fail("shape", f"a shape has no negative sizes; got {sizes}")
        return sizes

    def _dtype(self, dtype: Any) -> str:
        try:
            return dtype_name(dtype)
        except MisuseError as error:
            self._fail("dtype", str(error))

    def _axis(self, op: str, handle: TensorHandle, axis: int) -> int:
        if not -len(handle.shape) <= axis < len(handle.shape):
            self._fail("shape", f"{op}: axis {axis} of a handle of shape {handle.shape}")
        return axis % len(handle.shape)

    def _reduce(self, op: str, value: Any, axis: int | None, keep_dims: bool, dtype: str | None = None) -> TensorHandle:
        site = self._here()
        handle = self._handle(op, value)
        if axis is not None:
            axis = self._axis(op, handle, axis)
        shape = tuple(1 if axis is None or i == axis else n for i, n in enumerate(handle.shape))
        if 0 in handle.shape and op != "sum" and 0 not in shape:
            self._fail("shape", f"{op} over an empty axis of a handle of shape {handle.shape}")
        result = dtype or handle.dtype
        if op in ("argmax", "argmin") or (op == "sum" and result in ("i1", "i8")):
            result = "i32"
        x = self._data(handle)
        data = None if x is None else numerics.reduce(op, x, axis, result)
        out = self._emit(op, site, shape, result, data, handle.number, x=-1 if axis is None else axis)
        if keep_dims:
            return out
        kept = tuple(n for i, n in enumerate(shape) if axis is not None and i != axis)
        return self._view(out, kept, None, 0, None if out.data is None else out.data.reshape(kept))

    def _convert(self, handle: TensorHandle, dtype: str, out: TensorHandle | None) -> TensorHandle:
        site = self._here()
        if handle.dtype == dtype:
            return handle
        x = self._data(handle)
        data = None if x is None else cast(x, dtype)
        return self._emit("cast", site, handle.shape, dtype, data, handle.number, out=out)

    def _provenance(self, handle: TensorHandle) -> str:
        """Which tensors a value comes from, by name, following the recorded commands back to their loads."""
        pending, seen, names = [handle.number], set(), set()
        while pending:
            number = pending.pop()
            producer = self._handle_rows[number * _HANDLE_WIDTH + 2] if number >= 0 else -1
            if producer < 0 or producer in seen:
                continue
            seen.add(producer)
            op, _, _, a, b, c, x, _ = self._rows[producer * _WIDTH : (producer + 1) * _WIDTH]
            if op == CODE["load"]:
                names.add(self._port.tensor_name(x) or f"the memory at {x:#x}")
            pending.extend((a, b, c))
        made = self._place_of(handle)
        origin = f" loaded from {', '.join(repr(n) for n in sorted(names))}" if names else ""
        return f"the value{origin}" + (f", made at {made} `{made.text}`" if made else "")


def _size(nbytes: int) -> str:
    """Bytes as people read them."""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.4g} {unit}"
    return f"{nbytes} bytes"
