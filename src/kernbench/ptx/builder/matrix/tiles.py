"""Matrices in shared memory in the layouts of tensor cores, and their descriptors.

A tile has rows (M of A, N of B) and a depth (K). It consists of panels: contiguous lines of `width` bytes, as a tensor
copy with a box of (`width` bytes, all lines) writes them. K-major tiles have the depth along a line and a line for each
row, MN-major ones the rows along a line and a line for each k.
"""

from dataclasses import dataclass, replace
from typing import Any

from kernbench.common.errors import unknown
from kernbench.ptx.builder.asynchronous.locations import Locations
from kernbench.ptx.builder.values.banks import scalar
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.builder.values.options import Value
from kernbench.ptx.builder.values.pointer import Pointer
from kernbench.ptx.builder.values.values import Register

__kernbench_internal__ = True

PIECE = 16
# swizzle -> bytes per line, lines per period of the pattern, code for wgmma, code for tcgen05
_SWIZZLES: dict[str, tuple[int, int, int | None, int]] = {
    "none": (16, 8, 0, 0),
    "32B": (32, 8, 3, 6),
    "64B": (64, 8, 2, 4),
    "128B": (128, 8, 1, 2),
    "128B.atom32B": (128, 4, None, 1),
}
_MAJORS = ("K", "MN")
UNITS = ("wgmma", "tcgen05")


@dataclass(frozen=True, eq=False)
class Tile:
    """`rows` by `depth` elements of `type` from `pointer` on, in `stages` contiguous copies."""

    pointer: Pointer
    type: str
    rows: int
    depth: int
    swizzle: str = "128B"
    major: str = "K"
    stages: int = 1

    def __post_init__(self) -> None:
        if self.swizzle not in _SWIZZLES:
            raise PtxBuildError(unknown("swizzle", self.swizzle, _SWIZZLES))
        if self.major not in _MAJORS:
            raise PtxBuildError(unknown("major", self.major, _MAJORS))
        along, across = (self.depth, self.rows) if self.major == "K" else (self.rows, self.depth)
        names = ("depth", "rows") if self.major == "K" else ("rows", "depth")
        if along <= 0 or along * self.element_bytes % self.width:
            raise PtxBuildError(
                f"a {self.major}-major tile with swizzle {self.swizzle} has lines of {self.width} bytes, and "
                f"{names[0]} {along} of {self.type} is no multiple of {self.width // self.element_bytes}"
            )
        if across <= 0 or across % 8:
            raise PtxBuildError(
                f"a {self.major}-major tile has lines in groups of 8: {names[1]} {across} is no multiple"
            )

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return scalar(self.type).nbytes

    @property
    def width(self) -> int:
        """Bytes of a line."""
        return _SWIZZLES[self.swizzle][0]

    @property
    def lines(self) -> int:
        """Number of lines in a panel."""
        return self.rows if self.major == "K" else self.depth

    @property
    def panels(self) -> int:
        """Number of panels in a stage."""
        return (self.depth if self.major == "K" else self.rows) * self.element_bytes // self.width

    @property
    def panel_bytes(self) -> int:
        """Bytes of one panel."""
        return self.lines * self.width

    @property
    def nbytes(self) -> int:
        """Bytes of one stage: the total of its tensor copies."""
        return self.panels * self.panel_bytes

    @property
    def box(self) -> tuple[int, int]:
        """The box of a tensor map that fills one panel: elements per line, lines."""
        return self.width // self.element_bytes, self.lines

    @property
    def alignment(self) -> int:
        """The required alignment, for the swizzle's pattern and for tensor copies."""
        return max(128, self.width * 8 if self.swizzle != "none" else 128)

    def stage(self, index: Value) -> "Tile":
        """One of the stages, by number or register."""
        if isinstance(index, Register):
            context = self.pointer.base.context
            base = context.element_address(self.pointer.base, index, self.nbytes)
            return replace(self, pointer=replace(self.pointer, base=base), stages=1)
        return replace(self, pointer=self.pointer.shifted(self._stage(index) * self.nbytes), stages=1)

    def _stage(self, index: float) -> int:
        if not (isinstance(index, int) and 0 <= index < self.stages):
            raise PtxBuildError(f"stage {index!r} of a tile with {self.stages}")
        return index

    def panel(self, index: int) -> Pointer:
        """The start of one of its panels."""
        if not 0 <= index < self.panels:
            raise PtxBuildError(f"panel {index} of a tile with {self.panels}")
        return self.pointer.shifted(index * self.panel_bytes)

    def offset(self, row: int, k: int) -> int:
        """Offset in bytes at which the descriptor of the part from (row, k) begins."""
        if not (0 <= row < self.rows and 0 <= k < self.depth):
            raise PtxBuildError(f"({row}, {k}) lies outside a tile of {self.rows} rows and depth {self.depth}")
        along, line = (k, row) if self.major == "K" else (row, k)
        nbytes = along * self.element_bytes
        # along K a start may be inside the pattern, at multiples of an instruction's depth
        step = min(self.width, 32) if self.major == "K" else self.width
        if line % 8 or nbytes % step:
            raise PtxBuildError(
                f"a descriptor cannot begin at row {row}, k {k} of a {self.major}-major tile with swizzle "
                f"{self.swizzle}: whole groups of 8 lines and {step // self.element_bytes} elements are possible"
            )
        return nbytes // self.width * self.panel_bytes + nbytes % self.width + line * self.width

    def bits(self, unit: str) -> int:
        """The descriptor without its start address."""
        width, period, *codes = _SWIZZLES[self.swizzle]
        code = codes[UNITS.index(unit)]
        if code is None:
            raise PtxBuildError(f"{unit} has no swizzle {self.swizzle}")
        leading, stride = self._offsets(width, period)
        fields = (leading >> 4) << 16 | (stride >> 4) << 32
        return fields | (code << 62 if unit == "wgmma" else 1 << 46 | code << 61)

    def _offsets(self, width: int, period: int) -> tuple[int, int]:
        """Leading and stride byte offsets."""
        if self.major == "K":
            return (self.panel_bytes if self.swizzle == "none" else PIECE), 8 * width
        # without swizzle, the two offsets are exchanged
        return (8 * width, self.panel_bytes) if self.swizzle == "none" else (self.panel_bytes, period * width)


@dataclass(frozen=True, eq=False)
class MatrixDescriptor:
    """The descriptor of a tile's part from (row, k) on, in a 64-bit register."""

    register: Register
    tile: Tile
    unit: str
    row: int = 0
    k: int = 0

    def at(self, *, row: int = 0, k: int = 0, stage: Value = 0) -> "MatrixDescriptor":
        """The descriptor `row` rows, `k` elements and `stage` stages further on."""
        tile = self.tile
        row, k = self.row + row, self.k + k
        delta = tile.offset(row, k) - tile.offset(self.row, self.k)
        register = self.register
        if isinstance(stage, Register):
            register = register.context.element_address(register, stage, tile.nbytes >> 4)
        else:
            delta += tile._stage(stage) * tile.nbytes
        if delta:
            register = register + (delta >> 4) if delta > 0 else register - (-delta >> 4)
        return MatrixDescriptor(register, tile, self.unit, row, k)


class Tiles(Locations):
    """Tiles, and descriptors of them."""

    def shared_tile(
        self,
        type: str,
        rows: int,
        depth: int,
        *,
        swizzle: str = "128B",
        major: str = "K",
        stages: int = 1,
        at: Pointer | None = None,
        name: str = "tile",
    ) -> Tile:
        """Shared memory for `stages` matrices of rows (M or N) by depth (K), or, with `at`, existing memory.

        `swizzle` is "none", "32B", "64B", "128B" (or "128B.atom32B", tcgen05 only) as in the tensor map; `major` is "K"
        or "MN", the dimension along a line.
        """
        if not isinstance(stages, int) or stages < 1:
            raise self.error(f"stages={stages!r}: a tile has one or more")
        # check the layout before memory is allocated for it
        plan = Tile(at or Pointer(self.sink("u32"), type, "shared"), type, rows, depth, swizzle, major, stages)
        size = plan.nbytes * stages
        if at is None:
            at = self.shared(type, size // plan.element_bytes, align=plan.alignment, name=name)
        self.shared_location("shared_tile", at, plan.alignment, size)
        return replace(plan, pointer=at.retyped(type))

    def wgmma_descriptor(self, tile: Tile, *, row: int = 0, k: int = 0) -> MatrixDescriptor:
        """The descriptor of a tile, for wgmma; `.at(row=, k=, stage=)` moves it."""
        return self._descriptor(tile, "wgmma", row, k)

    def tcgen05_descriptor(self, tile: Tile, *, row: int = 0, k: int = 0) -> MatrixDescriptor:
        """The descriptor of a tile, for tcgen05; `.at(row=, k=, stage=)` moves it."""
        return self._descriptor(tile, "tcgen05", row, k)

    def _descriptor(self, tile: Tile, unit: str, row: int, k: int) -> MatrixDescriptor:
        if not isinstance(tile, Tile):
            raise self.error(f"{unit} descriptors describe tiles, not {tile!r}: ctx.shared_tile makes one")
        self.shared_location(f"descriptor for {unit}", tile.pointer, tile.alignment, tile.nbytes)
        context: Any = self
        address = tile.pointer.shifted(tile.offset(row, k)).address
        field = context.bfe(context.bitcast(address, "u32"), 4, 14).to("u64")
        return MatrixDescriptor(field | tile.bits(unit), tile, unit, row, k)
