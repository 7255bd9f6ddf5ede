"""Tiles: rectangles of elements at byte offsets of a core's memories, given by the kernel or by an allocator."""

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from kernbench.common.dtypes import DTYPES, ITEMSIZE, Array, dtype_name
from kernbench.common.errors import KernelError
from kernbench.npu.isa.mistakes import MISTAKES
from kernbench.npu.isa.units import ALIGNMENT
from kernbench.npu.recording.record import NONE, TileKey
from kernbench.npu.tasks.opaque import Opaque

if TYPE_CHECKING:
    from kernbench.npu.core.core import Core
    from kernbench.npu.tasks.task import Context

__kernbench_internal__ = True
POISON = 0xFF
ROW, COL = "row", "col"
_LARGEST = 1 << 24


class Tile(Opaque):
    """`shape` elements of `dtype` at byte `offset` of `space`; operations work on the `valid` part.

    `view`, `reshape` and `rows` give other tiles on the same bytes, deliberately; two tiles that were created
    separately and overlap are two uses of the same memory.
    """

    __slots__ = (
        "_views",
        "core",
        "data",
        "dtype",
        "layout",
        "name",
        "number",
        "offset",
        "root",
        "shape",
        "space",
        "valid",
    )

    def __init__(self, core: "Core", key: TileKey, root: int, name: str):
        self.space: str = key[0]
        self.offset: int = key[1]
        self.shape: tuple[int, int] = key[2]
        self.dtype: str = key[3]
        self.layout: str = key[4]
        self.valid: tuple[int, int] = key[5]
        self.core = core
        if root == NONE and self.valid != self.shape:
            root = core.tables.tile((*key[:5], self.shape), NONE, name)
        self.number = core.tables.tile(key, root, name)
        self.root = self.number if root == NONE else root
        self.name = name
        self.data: Any = self._data()
        # views with the same element type, by their parameters
        self._views: dict[object, Tile] = {}

    def _refuse_python(self, doing: str) -> NoReturn:
        """Refuse Python operators: tiles are computed with by methods of the core."""
        hint = (
            "operations on tiles are methods of the core, destinations first: core.tadd(dst, a, b), core.tmuls(dst, a, "
            "2.0); core.get(tile, row, column) gives one element, tile.rows(first, count) some rows"
        )
        self.core.context.fail("misuse", f"{self!r} {doing}", hint)

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse_python("cannot be indexed")

    def __iter__(self) -> NoReturn:
        self._refuse_python("cannot be looped over or unpacked")

    def __len__(self) -> NoReturn:
        self._refuse_python("has no length: tile.shape has its rows and columns")

    def __bool__(self) -> bool:
        # `if bias:` asks whether there is one
        return True

    def __repr__(self) -> str:
        return f"<Tile {self.describe()}>"

    def describe(self) -> str:
        """Name, shape, type and offset."""
        return describe(self.name, self.space, self.offset, self.shape, self.dtype, self.valid)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tile."""
        return self.shape[0] * self.shape[1] * ITEMSIZE[self.dtype]

    @property
    def whole(self) -> "Tile":
        """The same tile with all of it valid."""
        return self.view(valid=self.shape)

    @property
    def context(self) -> "Context":
        """The context of the launch."""
        return self.core.context

    def view(
        self,
        shape: tuple[int, int] | None = None,
        dtype: object = None,
        valid: tuple[int, int] | None = None,
        layout: str | None = None,
    ) -> "Tile":
        """The same bytes seen differently; the valid part is the whole unless given."""
        try:
            if dtype is not None:
                return self._view(shape, dtype_name(dtype), valid, layout)
            key = (shape, valid, layout)
            found = self._views.get(key)
            if found is None:
                found = self._views[key] = self._view(shape, self.dtype, valid, layout)
            return found
        except MISTAKES as error:
            self.context.refuse(error)
            raise

    def _view(
        self, shape: tuple[int, int] | None, kind: str, valid: tuple[int, int] | None, layout: str | None
    ) -> "Tile":
        shape = self.shape if shape is None else shape
        key = (self.space, self.offset, shape, kind, layout or self.layout, valid or shape)
        cached = self.core.tile_cache.get((key, self.root))
        if cached is None:
            if shape[0] * shape[1] * ITEMSIZE[kind] > self.nbytes:
                self.core.context.fail("shape", f"a view of {shape} {kind} is larger than {self.describe()}")
            check_shape(key)
            cached = self.core.tile_cache[key, self.root] = Tile(self.core, key, self.root, self.name)
        return cached

    def reshape(self, rows: int, columns: int, layout: str = ROW) -> "Tile":
        """The same elements in another shape."""
        return self.view((rows, columns), layout=layout)

    def rows(self, first: int, count: int) -> "Tile":
        """Some rows of a row-major tile."""
        if self.layout != ROW or not 0 <= first <= first + count <= self.shape[0]:
            self.core.context.fail("shape", f"rows {first} to {first + count} of {self.describe()}")
        pitch = self.shape[1] * ITEMSIZE[self.dtype]
        columns = self.valid[1]
        key = (self.space, self.offset + first * pitch, (count, self.shape[1]), self.dtype, ROW, (count, columns))
        cached = self.core.tile_cache.get((key, self.root))
        if cached is None:
            cached = self.core.tile_cache[key, self.root] = Tile(self.core, key, self.root, self.name)
        return cached

    def element(self, row: int, column: int) -> "Tile":
        """A tile of one element, in either layout."""
        index = row * self.shape[1] + column if self.layout == ROW else column * self.shape[0] + row
        key = (self.space, self.offset + index * ITEMSIZE[self.dtype], (1, 1), self.dtype, ROW, (1, 1))
        cached = self.core.tile_cache.get((key, self.root))
        if cached is None:
            cached = self.core.tile_cache[key, self.root] = Tile(self.core, key, self.root, self.name)
        return cached

    def _data(self) -> Array | None:
        """The valid part as an array on the core's memory; None in a run without data."""
        arena = self.core.arena(self.space)
        if arena is None:
            return None
        rows, columns = self.shape
        kind = DTYPES[self.dtype].numpy
        end = self.offset + self.nbytes
        if self.offset < 0 or end > len(arena) or self.offset % kind.itemsize:
            # reported when it was created; it gets memory of its own
            arena, start = np.full(self.nbytes, POISON, np.uint8), 0
        else:
            start = self.offset
            self.core.touched(self.space, end)
        flat = arena[start : start + self.nbytes].view(kind)
        full = flat.reshape(rows, columns) if self.layout == ROW else flat.reshape(columns, rows).T
        return full[: self.valid[0], : self.valid[1]]


def describe(
    name: str, space: str, offset: int, shape: tuple[int, int], dtype: str, valid: tuple[int, int] | None = None
) -> str:
    """Name, shape, type and offset of a tile, for messages."""
    part = "" if valid is None or valid == shape else f", valid {valid[0]}x{valid[1]}"
    called = f"'{name}' " if name else ""
    return f"{called}({shape[0]}x{shape[1]} {dtype} at {space} {offset:#x}{part})"


def check_shape(key: TileKey) -> None:
    """Check the shape of a tile: positive, valid part inside, lines of whole alignment units."""
    offset: object = key[1]
    _, _, shape, dtype, layout, valid = key
    pairs = isinstance(shape, tuple) and isinstance(valid, tuple) and len(shape) == len(valid) == 2
    if not isinstance(offset, (int, np.integer)):
        raise KernelError("misuse", f"a tile lies at a whole number of bytes; got offset {offset!r}")
    if not pairs or not all(isinstance(n, (int, np.integer)) for n in (*shape, *valid)) or min(shape) < 1:
        raise KernelError("shape", f"a tile has two sizes from 1 on, whole numbers; got {shape} with valid {valid}")
    if shape[0] * shape[1] > _LARGEST:
        raise KernelError("tile-bounds", f"a tile of {shape} is larger than any memory of a core")
    if not (0 <= valid[0] <= shape[0] and 0 <= valid[1] <= shape[1]):
        raise KernelError("shape", f"valid part {valid} of a tile of shape {shape}: it must lie inside")
    if layout not in (ROW, COL):
        raise KernelError("misuse", f"layout {layout!r}: a tile is laid out by '{ROW}' or by '{COL}'")
    line = (shape[1] if layout == ROW else shape[0]) * ITEMSIZE[dtype]
    lines = shape[0] if layout == ROW else shape[1]
    if line % ALIGNMENT and lines > 1:
        what = "row" if layout == ROW else "column"
        raise KernelError(
            "misaligned",
            f"a {what} of a {shape[0]}x{shape[1]} {dtype} tile is {line} bytes: not a multiple of {ALIGNMENT}",
            f"widen the tile and set valid=, or lay a column vector out by columns (layout='{COL}')",
        )
