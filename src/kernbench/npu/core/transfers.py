"""Operations that reach outside a core (device memory, FIFOs, single values), and those that write two tiles."""

from collections.abc import Callable, Iterator
from math import prod
from sys import _getframe
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kernbench.common.dtypes import DTYPES, ITEMSIZE, cast
from kernbench.npu.core.forms import FORMS
from kernbench.npu.core.methods import install
from kernbench.npu.core.sending import Sending
from kernbench.npu.core.tiles import Tile
from kernbench.npu.isa.mistakes import MISTAKES, refusing
from kernbench.npu.isa.numerics import matmul_bias, move, sort
from kernbench.npu.isa.operations import OPERATIONS, Operation
from kernbench.npu.isa.units import AIC, GM, L0C, LANES, MOVES, MTE2, PIPE_NUMBER, S, V
from kernbench.npu.recording.record import HEAD, NONE, ROW, TAIL
from kernbench.npu.tasks.fifo import FifoState
from kernbench.npu.tasks.shadow import Runs, runs_of
from kernbench.npu.tasks.task import Binding, Context
from kernbench.npu.tasks.tensors import MOST_DIMENSIONS, Tensor

__kernbench_internal__ = True
_LOAD, _STORE, _STORE_ADD, _PUSH, _POP, _GET = (
    OPERATIONS[name] for name in ("tload", "tstore", "tstore_add", "tpush", "tpop", "get")
)
_OUT_PIPES = {source: PIPE_NUMBER[pipe] for (source, target), (pipe, _) in MOVES.items() if target == GM}
_MTE2, _S, _V = (PIPE_NUMBER[pipe] for pipe in (MTE2, S, V))


class _Transfer(NamedTuple):
    """The parts of a row that are the same each time a call moves a tile to or from views of one form.

    The first columns of the row, the pattern, bytes of an element, tile used, part moved, runs in memory, and line.
    """

    head: bytes
    pattern: int
    itemsize: int
    tile: Tile
    part: Tile
    runs: Runs
    site: int


class KernelCore(Sending):
    """A core with all its operations."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., None]:
            """The operations of the table, installed below."""

    def __init__(self, lane: int, context: Context, root: CodeType):
        super().__init__(lane, context, root)
        self._transfers: dict[object, _Transfer] = {}
        self._polled = {}

    def tload(self, dst: Tile, src: Tensor, pad: float | None = None, columns: int = 1) -> None:
        """Device memory to UB or L1. The valid part of `dst` must have the shape of `src` (of a tensor the last
        `columns` axes count as columns, those before as rows); with `pad` the tensor may be smaller, and the rest of
        the whole tile becomes `pad`.
        """
        self._load(_getframe(1), dst, src, pad, columns)

    def _load(self, frame: FrameType, dst: Tile, src: Tensor, pad: float | None = None, columns: int = 1) -> None:
        try:
            if frame is not self._frame:
                self._entered(frame)
            call = self._code + frame.f_lasti
            key = (_LOAD.code, call, dst.number, src.shape, src.strides, src.buffer.dtype, pad is None, columns)
            known = self._transfers.get(key) or self._new_transfer(_LOAD, frame, key, dst, src, pad, columns)
            self._append(known.head + TAIL.pack(src.buffer.number, src.offset * known.itemsize, known.pattern))
            usable = self._may_read(src, known.runs, known.site)
            if dst.data is not None:
                if pad is not None:
                    known.tile.data[...] = pad
                if usable:
                    known.part.data[...] = _matrix(src, known.part.valid)
                else:
                    known.part.data[...] = DTYPES[known.part.dtype].poison
        except MISTAKES as error:
            self.context.refuse(error)
            raise

    def tstore(self, dst: Tensor, src: Tile) -> None:
        """UB, L1 or L0C to device memory; from L0C rounded to the tensor's type."""
        self._store(_getframe(1), _STORE, dst, src)

    def tstore_add(self, dst: Tensor, src: Tile) -> None:
        """Add to device memory, atomically: other blocks and lanes may add to the same elements."""
        self._store(_getframe(1), _STORE_ADD, dst, src)

    def _store(self, frame: FrameType, op: Operation, dst: Tensor, src: Tile) -> None:
        try:
            if frame is not self._frame:
                self._entered(frame)
            call = self._code + frame.f_lasti
            key = (op.code, call, src.number, dst.shape, dst.strides, dst.buffer.dtype, True)
            known = self._transfers.get(key) or self._new_transfer(op, frame, key, src, dst, None)
            self._append(known.head + TAIL.pack(dst.buffer.number, dst.offset * known.itemsize, known.pattern))
            adds = op is _STORE_ADD
            if not self._may_write(dst, known.runs, known.site, adds) or src.data is None:
                return
            target = dst.data()
            value = src.data.reshape(dst.shape)
            value = value if src.dtype == dst.dtype else cast(value, dst.dtype)
            target[...] = cast(target + value, dst.dtype) if adds else value
        except MISTAKES as error:
            self.context.refuse(error)
            raise

    def tput(self, dst: Tensor, src: Tensor, staging: Tile, add: bool = False) -> None:
        """Device memory to device memory through a tile in UB, in parts of the tile's size; with `add` the destination
        is added to. It orders its own transfers, by event 0 between MTE2 and MTE3.
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self._check_put(dst, src, staging)
        rows, columns = staging.shape
        op = _STORE_ADD if add else _STORE
        for one, two in zip(parts(src, rows, columns), parts(dst, rows, columns), strict=True):
            shape = one.shape if len(one.shape) == 2 else (1, one.shape[0])
            tile = staging.view(valid=(shape[0], shape[1]))
            self._load(frame, tile, one)
            self.emit_flags(frame, "MTE2", "MTE3")
            self._store(frame, op, two, tile)
            self.emit_flags(frame, "MTE3", "MTE2")

    @refusing
    def _check_put(self, dst: Tensor, src: Tensor, staging: Tile) -> None:
        for tensor in (dst, src):
            if not isinstance(tensor, Tensor) or not tensor.shape:
                self.context.fail("misuse", f"tput: a tensor is wanted, got {tensor!r}")
        if not isinstance(staging, Tile) or staging.space != "UB":
            self.context.fail("misuse", f"tput: a tile in UB is wanted for staging, got {staging!r}")
        if dst.shape != src.shape or len({dst.dtype, src.dtype, staging.dtype}) > 1:
            operands = f"{dst!r}, {src!r}, {staging.describe()}"
            self.context.fail("shape", f"tput: tensors of one shape, and all of one type; got {operands}")

    @refusing
    def _new_transfer(
        self,
        op: Operation,
        frame: FrameType,
        key: tuple[int | str | tuple[int, ...], ...],
        tile: Tile,
        tensor: Tensor,
        pad: float | None,
        columns: int = 1,
    ) -> "_Transfer":
        """Check a transfer that its call makes for the first time."""
        site, _ = self._new(op, frame, (tile,))
        if not isinstance(tensor, Tensor):
            self.context.fail("misuse", f"{op.name}: a tensor is wanted, got {tensor!r}")
        ends = (GM, tile.space) if op is _LOAD else (tile.space, GM)
        if ends not in MOVES:
            self.context.fail("misuse", f"{op.name}: there is no way from {ends[0]} to {ends[1]} ({tile.describe()})")
        if len(tensor.shape) > MOST_DIMENSIONS or not tensor.shape:
            self.context.fail(
                "shape", f"{op.name}: {tensor!r} has {len(tensor.shape)} axes; 1 to {MOST_DIMENSIONS} can be moved"
            )
        shape = (prod(tensor.shape[:-columns]), prod(tensor.shape[-columns:]))
        part = tile if pad is None else tile.view(valid=(min(shape[0], tile.shape[0]), min(shape[1], tile.shape[1])))
        if part.valid != shape:
            self.context.fail(
                "shape",
                f"{op.name}: {tensor!r} is {shape[0]}x{shape[1]} elements, unlike the valid part of {tile.describe()}",
                "slice the tensor, set the tile's valid part (tile.view(valid=...)), or load with pad=",
            )
        if tile.dtype != tensor.dtype and tile.space != L0C:
            self.context.fail(
                "dtype", f"{op.name}: {tensor!r} and {tile.describe()} differ in type", "convert with tcvt"
            )
        if op is _STORE_ADD and DTYPES[tensor.dtype].kind == "float":
            # rounded sums depend on the order of the additions
            self.context.recording.observers.add(op.name)
        pattern = self.tables.pattern(tensor.shape, tensor.strides, ITEMSIZE[tensor.dtype])
        touched = tile if pad is None else tile.whole
        operands = (touched.number, NONE) if op is _LOAD else (NONE, touched.number)
        pipe = _MTE2 if op is _LOAD else _OUT_PIPES[tile.space]
        head = HEAD.pack(op.code, self.lane, pipe, site, *operands, NONE)
        runs = runs_of(tensor.shape, tensor.strides)
        self._transfers[key] = _Transfer(head, pattern, ITEMSIZE[tensor.dtype], touched, part, runs, site)
        return self._transfers[key]

    def _may_read(self, src: Tensor, runs: Runs, site: int) -> bool:
        """Check a read of device memory; False if the values must not be used."""
        binding = src.binding
        if binding is None or binding.task is not self.block.task:
            self._undeclared("read", src)
        elif not binding.reads and not (
            src.broken or src.buffer.is_filled or src.buffer.shadow.written_by(src, runs, self.block)
        ):
            self.report(
                "argument-direction",
                f"argument {binding.position} ({src.buffer.describe()}) is declared OUT, and the kernel reads it",
                "declare it INOUT, or IN if it is never written",
                (src.buffer.name, "read"),
            )
        if src.broken:
            return False
        src.buffer.shadow.read(src, runs, self.block, site)
        return True

    def _may_write(self, dst: Tensor, runs: Runs, site: int, adds: bool) -> bool:
        binding = dst.binding
        if binding is None or binding.task is not self.block.task:
            self._undeclared("write", dst)
        else:
            self._mark_written(dst)
            if not binding.writes or (adds and not binding.reads):
                self._wrong_direction(dst, binding, adds)
        if dst.broken:
            return False
        dst.buffer.shadow.write(dst, runs, self.block, site, adds)
        return True

    def _mark_written(self, tensor: Tensor) -> None:
        """Record that the kernel writes an argument."""
        binding = tensor.binding
        if binding is not None and not binding.written:
            binding.written = True
            self.context.written.add((binding.task.record.name, binding.position))

    def _wrong_direction(self, dst: Tensor, binding: Binding, adds: bool) -> None:
        does = "adds to it" if adds else "writes it"
        self.report(
            "argument-direction",
            f"argument {binding.position} ({dst.buffer.describe()}) is declared {binding.direction}, and the kernel "
            f"{does}: tasks that read it will not wait for this one, or this one not for those before",
            "declare it INOUT, or OUT if it is only written",
            (dst.buffer.name, "write"),
        )

    def _undeclared(self, verb: str, tensor: Tensor) -> None:
        self.report(
            "undeclared-access",
            f"{verb} of {tensor.buffer.describe()}, which is no argument of {self.block.task.describe()}",
            "pass it in args with its direction; what the kernel closes over is not seen by the tensor map",
            tensor.buffer.name,
        )

    # Single values

    def get(self, tile: Tile, row: int, column: int) -> Any:
        """One element of a tile, as a number; the program waits for it."""
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self._new(_GET, frame, (tile,))
        if not (0 <= row < tile.valid[0] and 0 <= column < tile.valid[1]):
            self.context.fail("out-of-bounds", f"get: element ({row}, {column}) of {tile.describe()}")
        self._append(ROW.pack(_GET.code, self.lane, _S, self.sites.here(), NONE, tile.number, NONE, NONE, 0, 0))
        if tile.data is None:
            self.context.fail(
                "value-needed", f"the kernel needs a value of {tile.describe()}; this run carries no data"
            )
        return tile.data[row, column].item()

    # FIFOs

    def tpush(self, fifo: FifoState, src: Tile) -> None:
        """Put a tile (on an AIV: its share of the rows) into the next slot; waits while all slots are full."""
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        site = self.sites.here()
        where = self.sites.locations[site]
        self._check_end(fifo, fifo.record.producers, "pushes into", src)
        if src.space not in (L0C, "UB", "L1"):
            self.context.fail("misuse", f"tpush: {src.describe()} cannot be stored to device memory")
        if src.dtype != fifo.fifo.dtype and src.space != L0C:
            self.context.fail(
                "dtype", f"tpush: {src.describe()} and {fifo.fifo.describe()} differ in type", "convert with tcvt first"
            )
        if not fifo.has_room(self.lane):
            self.wait(fifo, "push", lambda: fifo.has_room(self.lane), where, None, True)
        number = fifo.pushed[self.lane]
        pipe = _OUT_PIPES[src.space]
        self._append(
            ROW.pack(_PUSH.code, self.lane, pipe, site, NONE, src.number, NONE, fifo.number, number, fifo.itemsize)
        )
        data = None if src.data is None else np.array(cast(src.data, fifo.fifo.dtype))
        fifo.slots[number, self.lane] = (data, src.valid, where)
        fifo.pushed[self.lane] = number + 1

    def tpop(self, fifo: FifoState, dst: Tile) -> None:
        """Take the next message (on an AIV: its share of the rows) into a tile; waits until there is one."""
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        site = self.sites.here()
        where = self.sites.locations[site]
        self._check_end(fifo, fifo.record.consumers, "pops from", dst)
        if (GM, dst.space) not in MOVES or dst.dtype != fifo.fifo.dtype:
            self.context.fail("misuse", f"tpop: {dst.describe()} cannot be loaded from {fifo.fifo.describe()}")
        if not fifo.has_message(self.lane):
            self.wait(fifo, "pop", lambda: fifo.has_message(self.lane), where, None, True)
        number = fifo.popped[self.lane]
        self._append(
            ROW.pack(_POP.code, self.lane, _MTE2, site, dst.number, NONE, NONE, fifo.number, number, fifo.itemsize)
        )
        self._take(fifo, number, dst)
        fifo.popped[self.lane] = number + 1
        if min(fifo.popped.values()) > number:
            for lane in fifo.record.producers:
                del fifo.slots[number, lane]

    def _take(self, fifo: FifoState, number: int, dst: Tile) -> None:
        parts = [fifo.slots[number, lane] for lane in fifo.record.producers]
        share = fifo.rows(self.lane)
        first = 0 if self.lane == AIC else fifo.record.consumers.index(self.lane) * share
        rows = sum([valid[0] for _, valid, _ in parts])
        shape = (max(0, min(share, rows - first)), parts[0][1][1])
        if dst.valid != shape:
            self.report(
                "message-mismatch",
                f"{fifo.fifo.describe()}: message {number} has {shape[0]}x{shape[1]} elements for the "
                f"{LANES[self.lane]}; the valid part of {dst.describe()} is not that",
                "push and pop in the same order, with the same valid part",
                fifo.fifo.name,
            )
        elif dst.data is not None:
            whole = parts[0][0] if len(parts) == 1 else np.concatenate([data for data, _, _ in parts])
            dst.data[...] = whole[first : first + shape[0]]

    def _check_end(self, fifo: FifoState, lanes: tuple[int, ...], verb: str, tile: Tile) -> None:
        if not isinstance(fifo, FifoState):
            self.context.fail("misuse", f"a FIFO of the task is wanted, got {fifo!r}", "pass rt.fifo(...) in args")
        if self.lane not in lanes:
            self.context.fail(
                "misuse", f"{LANES[self.lane]} {verb} {fifo.fifo.describe()}, which goes from {fifo.ends()}"
            )
        rows, columns = fifo.rows(self.lane), fifo.fifo.shape[1]
        if tile.valid[0] > rows or tile.valid[1] > columns:
            self.context.fail(
                "shape", f"{tile.describe()}: {fifo.fifo.describe()} takes {rows}x{columns} elements from or to a lane"
            )

    # Operations with more than one result, or a part of an operand

    def tmatmul_bias(self, dst: Tile, a: Tile, b: Tile, bias: Tile) -> None:
        """dst = a @ b + bias, a row vector in L1."""
        self._plain(OPERATIONS["tmatmul_bias"], dst, (a, b, bias))
        if dst.data is not None:
            matmul_bias(dst.data, a.data, b.data, bias.data)

    def textract(self, dst: Tile, src: Tile, row: int, column: int) -> None:
        """The part of `src` that begins at (row, column), as large as the valid part of `dst`."""
        rows, columns = dst.valid
        if not (0 <= row <= row + rows <= src.valid[0] and 0 <= column <= column + columns <= src.valid[1]):
            self.context.fail(
                "out-of-bounds", f"textract: {rows}x{columns} elements from ({row}, {column}) of {src.describe()}"
            )
        self._plain(OPERATIONS["textract"], dst, (src.rows(row, rows),))
        if dst.data is not None:
            move(dst.data, src.data[row : row + rows, column : column + columns])

    def tfillpad(self, dst: Tile, src: Tile, value: float) -> None:
        """A copy of the valid part of `src`; the rest of the whole `dst` becomes `value`."""
        self._plain(OPERATIONS["tfillpad"], dst.whole, (src,))
        if dst.data is not None:
            whole, kept = dst.whole.data, np.array(src.data)
            whole[...] = value
            whole[: kept.shape[0], : kept.shape[1]] = kept

    def tsort(self, dst: Tile, src: Tile, indices: Tile) -> None:
        """Rows in descending order; `indices` (i32, also written) gives the original position of each element."""
        op = OPERATIONS["tsort"]
        FORMS["sort"][2]("tsort", dst, src, indices)
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        site = self.sites.here()
        for result in (dst, indices):
            self._append(ROW.pack(op.code, self.lane, _V, site, result.number, src.number, NONE, NONE, 0, 0))
        if dst.data is not None:
            sort(dst.data, src.data, indices.data)

    def _plain(self, op: Operation, dst: Tile, sources: tuple[Tile, ...]) -> None:
        frame = _getframe(2)
        if frame is not self._frame:
            self._entered(frame)
        key = (op.code, self._code + frame.f_lasti, dst.number, *(t.number for t in sources))
        row = self._memo.get(key)
        self._append(self.record(op, frame, key, dst, sources) if row is None else row)


def parts(tensor: Tensor, rows: int, columns: int) -> Iterator[Tensor]:
    """A tensor in pieces of at most so many rows and columns."""
    if len(tensor.shape) > 2:
        for index in range(tensor.shape[0]):
            yield from parts(tensor[index], rows, columns)
        return
    for row in range(0, tensor.shape[0], rows) if len(tensor.shape) == 2 else (0,):
        for column in range(0, tensor.shape[-1], columns):
            here = slice(column, min(column + columns, tensor.shape[-1]))
            yield tensor[row : min(row + rows, tensor.shape[0]), here] if len(tensor.shape) == 2 else tensor[here]


def _matrix(src: Tensor, shape: tuple[int, int]) -> object:
    """A tensor's elements as rows and columns."""
    data = src.data()
    return data if data.shape == shape else data.reshape(shape)


install(KernelCore)
