"""The recording of a functional pass, as columns: one stream of commands per program, and tables of lines and types.

A command is one row of nine integers (`CommandRow`), a view (a handle that no command made) one row of three
(`ViewRow`). Command objects are made from rows on demand.

A load or store describes its bytes by an address and a row of `patterns`, so that equal patterns are stored once.

A handle number from 0 on is the command that made the value. `FIRST_VIEW - n` is row n of the views, whose producer is
a command, or -1. So operands are the data dependences.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.common.ipcq_types import DIRECTIONS, IpcqRecvCmd, IpcqSendCmd
from kernbench.common.pe_commands import (
    OPERATION_NAMES,
    OPERATIONS,
    SCRATCH,
    DmaReadCmd,
    DmaWriteCmd,
    GemmCmd,
    MathCmd,
    PeCommand,
    ReadValueCmd,
    TensorHandle,
    WaitCmd,
    bare_handle,
)
from kernbench.result.finding import SourceLocation

NONE = -1
FIRST_VIEW = -2
FIRST_CHUNK, LARGEST_CHUNK = 128, 8192
# largest number of chunks; more are joined
MOST_CHUNKS = 64
HandleType = tuple[tuple[int, ...], str, str]


class CommandRow(NamedTuple):
    """One command.

    | column | meaning |
    |---|---|
    | op | row of `common.pe_commands.OPERATIONS` |
    | site | row of `sites`: the kernel line |
    | type, addr | row of `types` and scratch address of the result, -1 for none |
    | a, b, c | the operands' handle numbers, `NONE` for none |
    | x, y | load, store: address, row of `patterns`. send, recv: direction, request or -1. wait: request |
    | x | reductions: axis |
    """

    op: int
    site: int
    type: int
    a: int
    b: int
    c: int
    addr: int
    x: int
    y: int


class ViewRow(NamedTuple):
    """One view: its type, the command that produced its value, and its address."""

    type: int
    producer: int
    addr: int


COMMAND_LAYOUT, VIEW_LAYOUT = "iiiiiiqqq", "iiq"
AnyRow = TypeVar("AnyRow", CommandRow, ViewRow)


@dataclass(frozen=True, slots=True)
class Pattern:
    """The bytes that a load or store touches, relative to its address.

    `strides` are the bytes between neighbouring indices of each axis; None if contiguous. A stride of 0 repeats an
    element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    itemsize: int

    @property
    def nbytes(self) -> int:
        """Bytes moved; an element that is read several times counts each time."""
        return prod(self.shape) * self.itemsize


@dataclass(frozen=True, slots=True)
class ScratchType:
    """A type of scratch values: shape, element type, row of `types`, bytes."""

    shape: tuple[int, ...]
    dtype: str
    number: int
    nbytes: int


@dataclass
class Tables:
    """Sites, handle types and access patterns, shared by all streams of one recording."""

    sites: list[SourceLocation] = field(default_factory=list)
    types: list[HandleType] = field(default_factory=list)
    patterns: list[Pattern] = field(default_factory=list)
    pattern_numbers: dict[tuple[tuple[int, ...], tuple[int, ...] | None, int], int] = field(default_factory=dict)
    type_numbers: dict[HandleType, int] = field(default_factory=dict)
    scratch_types: dict[tuple[tuple[int, ...], str], ScratchType] = field(default_factory=dict)

    def scratch_type(self, shape: tuple[int, ...], dtype: str) -> ScratchType:
        """The unique object for a type of scratch values."""
        key = (shape, dtype)
        found = self.scratch_types.get(key)
        if found is None:
            number = self.type_number(shape, dtype, SCRATCH)
            found = self.scratch_types[key] = ScratchType(shape, dtype, number, prod(shape) * ITEMSIZE[dtype])
        return found

    def type_number(self, shape: tuple[int, ...], dtype: str, space: str) -> int:
        """The row of a type, added on first use."""
        key = (shape, dtype, space)
        number = self.type_numbers.get(key)
        if number is None:
            number = self.type_numbers[key] = len(self.types)
            self.types.append(key)
        return number

    def pattern(self, shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> int:
        """The row of an access pattern, added on first use; here `strides` count elements."""
        key = (shape, strides, itemsize)
        number = self.pattern_numbers.get(key)
        if number is None:
            number = self.pattern_numbers[key] = len(self.patterns)
            steps = None if strides is None else tuple(step * itemsize for step in strides)
            self.patterns.append(Pattern(shape, steps, itemsize))
        return number

    def copied(self) -> "Tables":
        """A copy of the tables."""
        return Tables(
            self.sites.copy(), self.types.copy(), self.patterns.copy(), self.pattern_numbers.copy(),
            self.type_numbers.copy(), self.scratch_types.copy(),
        )  # fmt: skip

    def become(self, other: "Tables") -> None:
        """Take over another one's state, and share it from then on."""
        vars(self).update(vars(other))

    def pattern_bytes(self) -> NDArray[np.int64]:
        """The bytes that each pattern moves."""
        return np.array([pattern.nbytes for pattern in self.patterns] or [0], np.int64)


class Rows(Generic[AnyRow]):
    """Rows of integers, packed into chunks: compact, in order, and no work for the garbage collector.

    `add` adds a row. Where that is too slow, call `pack(chunk, offset, ...)`, advance `offset` by `size`, and call
    `turn` when there is no `room` for another row.
    """

    __slots__ = ("_ends", "_full", "_row", "_struct", "chunk", "dtype", "offset", "pack", "size")

    def __init__(self, row: type[AnyRow], layout: str):
        """`layout` is a struct format character for each field of `row`."""
        self._row: type[AnyRow] = row
        self._struct = Struct(f"={layout}")
        self.dtype = np.dtype([(name, {"i": "i4", "q": "i8"}[c]) for name, c in zip(row._fields, layout, strict=True)])
        self.size = self._struct.size
        self.pack = self._struct.pack_into
        self._full: list[bytearray | bytes] = []
        # the end of each full chunk, in bytes from the first
        self._ends: list[int] = []
        self.chunk = bytearray(FIRST_CHUNK * self.size)
        self.offset = 0

    def add(self, *values: int) -> None:
        """Add a row."""
        self.pack(self.chunk, self.offset, *values)
        self.offset += self.size
        if self.offset == len(self.chunk):
            self.turn()

    @property
    def room(self) -> int:
        """Rows that still fit into the chunk."""
        return (len(self.chunk) - self.offset) // self.size

    def turn(self) -> None:
        """Begin a new chunk if the current one is full."""
        if self.offset == len(self.chunk):
            self._keep(self.chunk)
            self.chunk = bytearray(min(2 * len(self.chunk), LARGEST_CHUNK * self.size))
            self.offset = 0

    def extend(self, rows: Array) -> None:
        """Add many rows at once, as an array of `dtype`."""
        if self.offset:
            self._keep(self.chunk[: self.offset])
        if len(rows):
            self._keep(rows.tobytes())
        self.offset = 0

    def _keep(self, chunk: bytearray | bytes) -> None:
        self._full.append(chunk)
        self._ends.append(len(chunk) + (self._ends[-1] if self._ends else 0))

    def tail(self, count: int) -> Array:
        """A copy of the last `count` rows."""
        found: list[Array] = []
        wanted = count
        for chunk, used in chain([(self.chunk, self.offset)], ((chunk, len(chunk)) for chunk in reversed(self._full))):
            have = used // self.size
            taken = min(have, wanted)
            found.append(np.frombuffer(chunk, self.dtype, taken, (have - taken) * self.size))
            wanted -= taken
            if not wanted:
                break
        return np.concatenate(found[::-1])

    def __len__(self) -> int:
        return ((self._ends[-1] if self._ends else 0) + self.offset) // self.size

    def __getitem__(self, index: int) -> AnyRow:
        offset = index * self.size
        which = bisect_right(self._ends, offset)
        chunk = self._full[which] if which < len(self._full) else self.chunk
        begin = self._ends[which - 1] if which else 0
        return self._row(*self._struct.unpack_from(chunk, offset - begin))

    def parts(self) -> list[Array]:
        """All rows in order, as structured arrays that share memory with the chunks."""
        if len(self._full) > MOST_CHUNKS:
            # loops and subroutines add many short ones
            self._full, self._ends = [bytearray().join(self._full)], self._ends[-1:]
        fresh = np.frombuffer(self.chunk, self.dtype, self.offset // self.size)
        return [*(np.frombuffer(chunk, self.dtype) for chunk in self._full), fresh]

    def column(self, name: str) -> Array:
        """One field of all rows."""
        return np.concatenate([part[name] for part in self.parts()])

    def values(self, name: str, numbers: NDArray[np.int64]) -> Array:
        """One field of some rows."""
        parts = self.parts()
        if len(parts) > 2:
            return self.column(name)[numbers]
        # all rows in one chunk, except the last ones
        whole, last = parts[0], parts[-1]
        late = np.flatnonzero(numbers >= len(whole))
        found: Array = whole[name][np.minimum(numbers, len(whole) - 1)]
        if len(late):
            found[late] = last[name][numbers[late] - len(whole)]
        return found

    def columns(self) -> NDArray[np.int64]:
        """All rows as one integer array, [rows, fields]."""
        return np.stack([self.column(name).astype(np.int64) for name in self._row._fields], axis=1)


@dataclass
class Stream(Sequence[PeCommand]):
    """The commands of one program, in the order its CPU dispatched them; a sequence of command objects."""

    pe: int
    cube: int
    rank: int
    tables: Tables
    rows: Rows[CommandRow] = field(default_factory=lambda: Rows(CommandRow, COMMAND_LAYOUT))
    views: Rows[ViewRow] = field(default_factory=lambda: Rows(ViewRow, VIEW_LAYOUT))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._command(i) for i in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"command {index} of {len(self)}")
        return self._command(position)

    def __iter__(self) -> Iterator[PeCommand]:
        return (self._command(i) for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return list(self) == other if isinstance(other, list) else self is other

    def __repr__(self) -> str:
        return f"<{len(self)} commands of cube {self.cube} PE {self.pe}>"

    def site(self, command: int) -> int:
        """The kernel line of a command."""
        return self.rows[command].site

    def producer(self, number: int) -> int:
        """The command that produced the value of a handle number, -1 for none."""
        return number if number >= NONE else self.views[FIRST_VIEW - number].producer

    def type_of(self, number: int) -> int:
        """The row of `types` of a handle number."""
        return self.rows[number].type if number >= 0 else self.views[FIRST_VIEW - number].type

    def operand_types(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """`type_of` for a column of handle numbers; -1 for `NONE`."""
        found = np.full(len(numbers), NONE, np.int64)
        made, viewed = np.flatnonzero(numbers >= 0), np.flatnonzero(numbers <= FIRST_VIEW)
        found[made] = self.rows.values("type", numbers[made])
        found[viewed] = self.views.values("type", FIRST_VIEW - numbers[viewed])
        return found

    def _handle(self, number: int, type_number: int, address: int) -> TensorHandle:
        shape, dtype, space = self.tables.types[type_number]
        return bare_handle(number, address, shape, dtype, space)

    def _operand(self, number: int) -> TensorHandle:
        row = self.rows[number] if number >= 0 else self.views[FIRST_VIEW - number]
        return self._handle(number, row.type, row.addr)

    def _command(self, index: int) -> PeCommand:
        row = self.rows[index]
        out = None if row.type < 0 else self._handle(index, row.type, row.addr)
        inputs = [self._operand(n) for n in (row.a, row.b, row.c) if n != NONE]
        name = OPERATION_NAMES[row.op]
        y = self.tables.patterns[row.y].nbytes if name in ("load", "store") else row.y
        return _build(name, self.tables.sites[row.site], out, inputs, row.x, y)


def _build(
    name: str, where: SourceLocation, out: TensorHandle | None, inputs: list[TensorHandle], x: int, y: int
) -> PeCommand:
    """The command object for one row."""
    match name:
        case "dot":
            assert out is not None
            return GemmCmd(name, where, inputs[0], inputs[1], out, inputs[2] if len(inputs) > 2 else None)
        case "load":
            assert out is not None
            return DmaReadCmd(name, where, x, y, out)
        case "store":
            return DmaWriteCmd(name, where, x, y, inputs[0])
        case "send" | "send_async":
            return IpcqSendCmd(name, where, DIRECTIONS[x], inputs[0], name == "send")
        case "recv" | "recv_async":
            assert out is not None
            return IpcqRecvCmd(name, where, DIRECTIONS[x], out, name == "recv")
        case "wait":
            return WaitCmd(name, where, x)
        case "read_value":
            return ReadValueCmd(name, where, inputs[0])
    assert out is not None
    axis = x if OPERATIONS[name].cost in ("reduce", "softmax", "twice") and x != NONE else None
    return MathCmd(name, where, tuple(inputs), out, axis)


@dataclass(frozen=True)
class QueueLink:
    """A queue from program `sender`, (cube, pe), which sends in `direction`, to `receiver`, `hops` grid steps away."""

    sender: tuple[int, int]
    direction: str
    receiver: tuple[int, int]
    hops: int
    between_cubes: bool


@dataclass(repr=False)
class Recording:
    """The streams of all programs of a launch, their shared tables, and the queues between programs.

    Programs that dispatched no command have no stream.
    """

    tables: Tables
    streams: list[Stream]
    links: list[QueueLink] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Recording of {self.commands:,} commands of {len(self.streams)} programs>"

    @property
    def commands(self) -> int:
        """Commands in all streams together."""
        return sum(len(stream) for stream in self.streams)

    def of_rank(self, rank: int) -> Stream | None:
        """The stream of `rank`, None if it dispatched nothing."""
        return next((s for s in self.streams if s.rank == rank), None)
