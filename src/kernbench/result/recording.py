"""What the functional pass recorded, as columns: one stream of commands per program, tables for lines and types.

A command is one row of eight integers, a handle one row of three; command objects are made from rows on demand.

| column | meaning |
|---|---|
| op | row of `common.pe_commands.OPERATIONS` |
| site | row of `sites`: the kernel line |
| out, a, b, c | handle numbers of the result and the operands, -1 for none |
| x, y | load, store: address and bytes. send, recv: direction, request or -1. wait: request. reductions: axis |

A handle row is (address, row of `types`, command that produced it or -1): that last column is the data dependence.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.ipcq_types import DIRECTIONS, IpcqRecvCmd, IpcqSendCmd
from kernbench.common.pe_commands import (
    OPERATION_NAMES,
    OPERATIONS,
    DmaReadCmd,
    DmaWriteCmd,
    GemmCmd,
    MathCmd,
    PeCommand,
    ReadValueCmd,
    TensorHandle,
    WaitCmd,
)
from kernbench.result.finding import Place

COMMAND_COLUMNS = ("op", "site", "out", "a", "b", "c", "x", "y")
HANDLE_COLUMNS = ("addr", "type", "producer")
HandleType = tuple[tuple[int, ...], str, str]


@dataclass
class Tables:
    """Sites and handle types, shared by all streams of one recording."""

    sites: list[Place] = field(default_factory=list)
    types: list[HandleType] = field(default_factory=list)
    type_numbers: dict[HandleType, int] = field(default_factory=dict)


@dataclass
class Stream(Sequence[PeCommand]):
    """The commands of one program, in the order its CPU dispatched them; a sequence of command objects."""

    pe: int
    cube: int
    rank: int
    tables: Tables
    rows: "array[int]" = field(default_factory=lambda: array("q"))
    handle_rows: "array[int]" = field(default_factory=lambda: array("q"))

    def columns(self) -> NDArray[np.int64]:
        """All command rows, [commands, 8], as a copy."""
        return np.array(self.rows, dtype=np.int64).reshape(-1, len(COMMAND_COLUMNS))

    def handle_columns(self) -> NDArray[np.int64]:
        """All handle rows, [handles, 3], as a copy."""
        return np.array(self.handle_rows, dtype=np.int64).reshape(-1, len(HANDLE_COLUMNS))

    def __len__(self) -> int:
        return len(self.rows) // len(COMMAND_COLUMNS)

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
        return repr(list(self))

    def _handle(self, number: int) -> TensorHandle:
        width = len(HANDLE_COLUMNS)
        address, type_number, _ = self.handle_rows[number * width : (number + 1) * width]
        shape, dtype, space = self.tables.types[type_number]
        handle = object.__new__(TensorHandle)
        handle.block = None
        handle.number, handle.id, handle.addr = number, number, address
        handle.shape, handle.dtype, handle.space = shape, dtype, space
        handle.nbytes = prod(shape) * ITEMSIZE[dtype]
        handle.data, handle.pinned, handle.strides = None, False, None
        return handle

    def _command(self, index: int) -> PeCommand:
        width = len(COMMAND_COLUMNS)
        op, site, *operands, x, y = self.rows[index * width : (index + 1) * width]
        name = OPERATION_NAMES[op]
        where = self.tables.sites[site]
        out, *inputs = (self._handle(n) if n >= 0 else None for n in operands)
        return _build(name, where, out, [h for h in inputs if h is not None], x, y)


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
    axis = x if OPERATIONS[name].cost in ("reduce", "softmax") else None
    return MathCmd(name, where, tuple(inputs), out, axis)


@dataclass
class Recording:
    """The streams of all programs of a launch that dispatched at least one command, and the tables they share."""

    tables: Tables
    streams: list[Stream]

    @property
    def commands(self) -> int:
        """Commands in all streams together."""
        return sum(len(stream) for stream in self.streams)

    def of_rank(self, rank: int) -> Stream | None:
        """The stream of `rank`, None if it dispatched nothing."""
        return next((s for s in self.streams if s.rank == rank), None)
