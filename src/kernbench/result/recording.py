"""What the functional pass recorded, as columns: one stream of commands per program, tables for lines and types.

A command is one row of nine integers, a view (a handle no command made) one row of three; command objects are made from
rows on demand.

| column | meaning |
|---|---|
| op | row of `common.pe_commands.OPERATIONS` |
| site | row of `sites`: the kernel line |
| type, addr | row of `types` and scratch address of the result, -1 for none |
| a, b, c | the operands' handle numbers, `NONE` for none |
| x, y | load, store: address and bytes. send, recv: direction, request or -1. wait: request. reductions: axis |

A handle number from 0 on is the command that made the value. `FIRST_VIEW - n` is row n of the views, (type, address,
producer), whose producer is the command behind it, or -1. So operands are the data dependences.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from struct import Struct, unpack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import ITEMSIZE
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
from kernbench.result.finding import Place

COMMAND_COLUMNS = ("op", "site", "type", "addr", "a", "b", "c", "x", "y")
VIEW_COLUMNS = ("type", "addr", "producer")
NONE = -1
FIRST_VIEW = -2
FLUSH_ROWS = 8192
HandleType = tuple[tuple[int, ...], str, str]
Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScratchType:
    """A type of scratch values: shape, element type, row of `types`, bytes."""

    shape: tuple[int, ...]
    dtype: str
    number: int
    nbytes: int


@dataclass
class Tables:
    """Sites and handle types, shared by all streams of one recording."""

    sites: list[Place] = field(default_factory=list)
    types: list[HandleType] = field(default_factory=list)
    type_numbers: dict[HandleType, int] = field(default_factory=dict)
    scratch_types: dict[tuple[tuple[int, ...], str], ScratchType] = field(default_factory=dict)

    def scratch_type(self, shape: tuple[int, ...], dtype: str) -> ScratchType:
        """The one object for a type of scratch values."""
        key = (shape, dtype)
        found = self.scratch_types.get(key)
        if found is None:
            number = self.type_number(shape, dtype, SCRATCH)
            found = self.scratch_types[key] = ScratchType(shape, dtype, number, prod(shape) * ITEMSIZE[dtype])
        return found

    def type_number(self, shape: tuple[int, ...], dtype: str, space: str) -> int:
        """The row of a type, added when it is first met."""
        key = (shape, dtype, space)
        number = self.type_numbers.get(key)
        if number is None:
            number = self.type_numbers[key] = len(self.types)
            self.types.append(key)
        return number


@dataclass
class Rows:
    """Rows of integers, each packed as bytes when it is made: small, and no work for the garbage collector.

    Fresh rows are in `tail`, older ones joined. Append `encode(...)` to `tail`, and call `join` now and then.
    """

    width: int
    tail: list[bytes] = field(default_factory=list)
    joined: list[NDArray[np.int64]] = field(default_factory=list)
    encode: Callable[..., bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.encode = Struct(f"{self.width}q").pack

    def join(self) -> None:
        """Join the tail when it is long enough to be worth it."""
        if len(self.tail) >= FLUSH_ROWS:
            self.joined.append(self._fresh())
            self.tail.clear()

    def _fresh(self) -> NDArray[np.int64]:
        return np.frombuffer(b"".join(self.tail), np.int64).reshape(-1, self.width)

    def __len__(self) -> int:
        return sum(map(len, self.joined)) + len(self.tail)

    def __getitem__(self, index: int) -> Row:
        for chunk in self.joined:
            if index < len(chunk):
                return tuple(chunk[index].tolist())
            index -= len(chunk)
        return unpack(f"{self.width}q", self.tail[index])

    def columns(self) -> NDArray[np.int64]:
        """All rows as one array, [rows, width]."""
        return np.concatenate([*self.joined, self._fresh()])


@dataclass
class Stream(Sequence[PeCommand]):
    """The commands of one program, in the order its CPU dispatched them; a sequence of command objects."""

    pe: int
    cube: int
    rank: int
    tables: Tables
    rows: Rows = field(default_factory=lambda: Rows(len(COMMAND_COLUMNS)))
    views: Rows = field(default_factory=lambda: Rows(len(VIEW_COLUMNS)))

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
        return self.rows[command][1]

    def producer(self, number: int) -> int:
        """The command behind a handle number, -1 for none."""
        return number if number >= NONE else self.views[FIRST_VIEW - number][2]

    def type_of(self, number: int) -> int:
        """The row of `types` of a handle number."""
        return self.rows[number][2] if number >= 0 else self.views[FIRST_VIEW - number][0]

    def operand_types(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """`type_of` for a column of handle numbers; -1 where there is none."""
        made = np.append(self.rows.columns()[:, 2], NONE)
        views = np.append(self.views.columns()[:, 0], NONE)
        return np.where(numbers >= NONE, made[np.maximum(numbers, NONE)], views[np.maximum(FIRST_VIEW - numbers, NONE)])

    def _handle(self, number: int, type_number: int, address: int) -> TensorHandle:
        shape, dtype, space = self.tables.types[type_number]
        return bare_handle(number, address, shape, dtype, space)

    def _operand(self, number: int) -> TensorHandle:
        row = self.rows[number][2:4] if number >= 0 else self.views[FIRST_VIEW - number][:2]
        return self._handle(number, *row)

    def _command(self, index: int) -> PeCommand:
        op, site, type_number, address, *operands, x, y = self.rows[index]
        out = None if type_number < 0 else self._handle(index, type_number, address)
        inputs = [self._operand(n) for n in operands if n != NONE]
        return _build(OPERATION_NAMES[op], self.tables.sites[site], out, inputs, x, y)


def _build(name: str, where: Place, out: TensorHandle | None, inputs: list[TensorHandle], x: int, y: int) -> PeCommand:
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
    axis = x if OPERATIONS[name].cost in ("reduce", "softmax") and x != NONE else None
    return MathCmd(name, where, tuple(inputs), out, axis)


@dataclass(frozen=True)
class QueueLink:
    """The queue from one program, (cube, pe), that sends in `direction`, to another; `hops` grid steps away."""

    sender: tuple[int, int]
    direction: str
    receiver: tuple[int, int]
    hops: int
    between_cubes: bool


@dataclass(repr=False)
class Recording:
    """The streams of all programs of a launch that dispatched at least one command, the tables they share, and the
    queues between them.
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
