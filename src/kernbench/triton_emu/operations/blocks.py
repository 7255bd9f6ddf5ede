"""Tiles of a larger tensor by offset: Triton's block pointers and tensor descriptors, and the part of one that exists.

They are what a DMA descriptor holds: a base address, sizes and steps of the whole, position and shape of the tile.
Offsets, sizes and steps count elements.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from kernbench.common.pe_commands import TensorHandle
from kernbench.triton_emu.engine.written import Sizes

__kernbench_internal__ = True

Shape = tuple[int, ...]


@dataclass(frozen=True)
class BlockPointer:
    """A tile of `block_shape` at `offsets` in a tensor of `shape` and `strides` that begins at byte address `base`."""

    base: int
    shape: Shape
    strides: Shape
    offsets: Shape
    block_shape: Shape

    def advanced(self, offsets: Shape) -> "BlockPointer":
        """The tile that lies `offsets` further on."""
        return replace(self, offsets=tuple(a + b for a, b in zip(self.offsets, offsets, strict=True)))

    def clipped(self, checked: Shape) -> "Clip":
        """The part of the tile inside the tensor, looking only at the axes in `checked`."""
        first, sizes = [], []
        for axis, (offset, count) in enumerate(zip(self.offsets, self.block_shape, strict=True)):
            low, high = offset, offset + count
            if axis in checked:
                low, high = max(low, 0), min(high, self.shape[axis])
            first.append(low)
            sizes.append(max(high - low, 0))
        start = sum(a * s for a, s in zip(first, self.strides, strict=True))
        inside = tuple(slice(a - o, a - o + n) for a, o, n in zip(first, self.offsets, sizes, strict=True))
        return Clip(start, tuple(sizes), inside)


@dataclass(frozen=True)
class Clip:
    """What of a tile exists: its first element counted from the base, its sizes, and where in the tile it lies."""

    start: int
    sizes: Shape
    inside: tuple[slice, ...]


class Tiles(Protocol):
    """What a descriptor asks of the kernel's context."""

    def element_type(self, ptr: int) -> str:
        """The element type of the tensor at a byte address."""
        ...

    def load_tensor_descriptor(self, desc: "TensorDescriptor", offsets: Sizes) -> TensorHandle:
        """The tile at `offsets`."""
        ...

    def store_tensor_descriptor(self, desc: "TensorDescriptor", offsets: Sizes, value: TensorHandle) -> None:
        """`value` to the tile at `offsets`."""
        ...


@dataclass(frozen=True)
class TensorDescriptor:
    """Loads and stores tiles of `block_shape` at any offsets; what lies outside the tensor is filled or not stored."""

    context: "Tiles"
    tile: BlockPointer
    padding_option: str

    def __repr__(self) -> str:
        tile = self.tile
        return f"<descriptor of a tensor {tile.shape} at {tile.base:#x} in tiles of {tile.block_shape}>"

    @property
    def shape(self) -> Shape:
        """Sizes of the whole tensor."""
        return self.tile.shape

    @property
    def strides(self) -> Shape:
        """Elements from one index to the next, of each axis."""
        return self.tile.strides

    @property
    def block_shape(self) -> Shape:
        """Sizes of a tile."""
        return self.tile.block_shape

    @property
    def dtype(self) -> str:
        """The tensor's element type."""
        return self.context.element_type(self.tile.base)

    def load(self, offsets: Sizes) -> TensorHandle:
        """The tile at `offsets`."""
        return self.context.load_tensor_descriptor(self, offsets)

    def store(self, offsets: Sizes, value: TensorHandle) -> None:
        """`value` to the tile at `offsets`."""
        self.context.store_tensor_descriptor(self, offsets, value)
