"""The common arguments of the chunk-output kernels of the gated delta rule, and the tiles of their blocks.

A tile is one chunk of 64 rows and one value head. The grid is persistent: block (x, j) computes chunks x,
x + gridDim.x, ... of value head j, or block x tiles x, x + gridDim.x, ... of all heads, up to a count that is read on
the device. Each operand of a tile is one box of a tensor map, with 128-byte swizzle: rows of 64 elements, and the next
64 of a head after all rows of the first.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.builder import Context, PtxKernel, Register
from kernbench.ptx.devices.host import Host
from kernbench.ptx.text.module import Kernel

CHUNK = 64
# elements of a row of 128 bytes, the width of the swizzle
SPAN = 64
ELEMENT_BYTES = 2
ROW_BYTES = SPAN * ELEMENT_BYTES
# eight rows: the period of the swizzle
ATOM_BYTES = 8 * ROW_BYTES
LARGEST = 256
VALUES = ("packed", "padded")
MAPS = ("q_map", "k_map", "v_map", "h_map", "o_map")
POINTERS = ("o_ptr", "g_ptr", "cu_seqlens_ptr", "chunk_indices_ptr", "total_chunks_ptr")


@dataclass(frozen=True)
class Tile:
    """One chunk, in registers: its first row in q, k, g and o, `value_row` in v, and the number of its rows."""

    chunk: Register
    start: Register
    value_row: Register
    length: Register


@dataclass(frozen=True)
class Layout:
    """Heads, sizes and offsets of one problem.

    q, k [T, heads, key_size], v [rows, value_heads, value_size], h [chunks * value_heads, value_size, key_size] and the
    output [T, value_heads, value_size] are bf16; g [T, value_heads], cumulated in each chunk, is f32. `values` says
    whether the rows of v are "packed" as those of q, or "padded" to whole chunks.
    """

    heads: int
    value_heads: int
    key_size: int
    value_size: int
    values: str = "packed"

    def __post_init__(self) -> None:
        for what, size in (("key_size", self.key_size), ("value_size", self.value_size)):
            if size % SPAN or not SPAN <= size <= LARGEST:
                raise MisuseError(f"{what} = {size}: heads are multiples of {SPAN} up to {LARGEST}")
        if self.heads < 1 or self.value_heads < 1 or self.value_heads % self.heads:
            raise MisuseError(f"{self.value_heads} value heads for {self.heads} heads: a multiple of them is wanted")
        if self.values not in VALUES:
            raise MisuseError(unknown("position of the values", self.values, VALUES))

    @property
    def key_bytes(self) -> int:
        """Bytes of a tile of q or k."""
        return CHUNK * self.key_size * ELEMENT_BYTES

    @property
    def value_bytes(self) -> int:
        """Bytes of a tile of v or of the output."""
        return CHUNK * self.value_size * ELEMENT_BYTES

    @property
    def state_bytes(self) -> int:
        """Bytes of a tile of h."""
        return self.value_size * self.key_size * ELEMENT_BYTES

    def grid(self, sms: int) -> tuple[int, int]:
        """Blocks per value head, about one for each SM in all."""
        return max(1, sms // self.value_heads), self.value_heads

    def arguments(self, host: Host, given: Mapping[str, Array], out: object, scale: float) -> list[object]:
        """The kernel's arguments: `given` has q, k, v_new, h, g, cu_seqlens, chunk_indices and total_chunks."""
        x = {name: host.array(array, name) for name, array in given.items()}
        for name in ("q", "k", "v_new"):
            if not x[name].shape[0]:
                raise MisuseError(f"{name} has no rows: a tensor map needs one, so there is nothing to launch")
        pointers = [out, *(x[name] for name in ("g", "cu_seqlens", "chunk_indices", "total_chunks"))]
        tiles = [self._rows(host, array) for array in (x["q"], x["k"], x["v_new"])]
        return [*tiles, self._states(host, x["h"]), self._rows(host, out), *pointers, scale]

    def _rows(self, host: Host, array: Any) -> object:
        """A map of [rows, heads, size]: the box is 64 rows of one head; coordinates (0, row, 0, head)."""
        rows, heads, size = array.shape
        row = heads * size * ELEMENT_BYTES
        dims, strides = (SPAN, rows, size // SPAN, heads), (row, ROW_BYTES, size * ELEMENT_BYTES)
        return host.tensor_map(array, dims, strides, (SPAN, CHUNK, size // SPAN, 1), "128B")

    def _states(self, host: Host, array: Any) -> object:
        """A map of [states, V, K]: the box is one state; coordinates (0, 0, 0, chunk * value_heads + value head)."""
        states, values, size = array.shape
        dims = (SPAN, values, size // SPAN, states)
        strides = (size * ELEMENT_BYTES, ROW_BYTES, values * size * ELEMENT_BYTES)
        return host.tensor_map(array, dims, strides, (SPAN, values, size // SPAN, 1), "128B")

    def tile(self, ctx: Context, chunk: Register) -> Tile:
        """The rows of chunk number `chunk`: chunk_indices gives its sequence and index in it, cu_seqlens the rows."""
        indices, starts = (ctx.pointer(name, "u32") for name in ("chunk_indices_ptr", "cu_seqlens_ptr"))
        sequence, number = ctx.load(indices + 2 * chunk, vec=2)
        bounds = starts + sequence
        start = ctx.mad(number, CHUNK, ctx.load(bounds[0]))
        length = ctx.min(ctx.load(bounds[1]) - start, CHUNK)
        return Tile(chunk, start, chunk * CHUNK if self.values == "padded" else start, length)


class ChunkOutputKernel(ABC):
    """A kernel for one layout: subclasses have a `name`, a `target`, the `threads` of a block and a `program`."""

    name: str
    target: str
    idea: str

    def __init__(self, layout: Layout, stages: int = 2):
        if not isinstance(stages, int) or stages < 1:
            raise MisuseError(f"stages = {stages!r}: a positive whole number is wanted")
        self.layout = layout
        self.stages = stages

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of a block."""

    @property
    @abstractmethod
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""

    def grid(self, sms: int) -> tuple[int, int]:
        """The grid for a number of SMs."""
        return self.layout.grid(sms)

    @abstractmethod
    def program(self, ctx: Context) -> None:
        """The kernel."""

    def build(self, **options: Any) -> Kernel:
        """The kernel, built and checked; `options` are those of `PtxKernel`."""
        kernel = PtxKernel(self.name, target=self.target, **options).maxntid(self.threads)
        for name in MAPS:
            kernel.param("tensormap", name)
        for name in POINTERS:
            kernel.param("u64", name)
        return kernel.param("f32", "scale").build(self.program)


def checkpoint_tile(
    ctx: Context,
    name: str,
    values: Sequence[Register],
    tile: Any,
    row: Register,
    column: Register,
    square: bool,
    head: object = "ctaid.y",
) -> None:
    """Checkpoint of a thread's part of a tile: two of every 8 columns, in two rows eight apart; rows and, if `square`,
    columns past the tile's end are left out.
    """
    rows, columns = f"{row} + 8 * (i / 2 % 2)", f"{column} + 8 * (i / 4) + i % 2"
    inside = f"{rows} < {tile.length}" + (f" and {columns} < {tile.length}" if square else "")
    ctx.checkpoint(name, values, at=(f"{tile.start} + {rows}", f"{head}", columns), when=inside)
