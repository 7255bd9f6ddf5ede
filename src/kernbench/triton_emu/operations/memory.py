"""Memory as `tl` sees it: HBM by byte address, whole tiles, tiles with strides, and tiles by offset."""

from math import prod

import numpy as np

from kernbench.common.dtypes import DTYPES, FLOATS, ITEMSIZE, Array
from kernbench.common.pe_commands import TensorHandle
from kernbench.result.recording import NONE, ScratchType
from kernbench.safety.memory import WINDOW_BITS
from kernbench.triton_emu.engine.core import Core, Shape
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.engine.written import ElementType, Sizes
from kernbench.triton_emu.operations.blocks import BlockPointer, TensorDescriptor
from kernbench.triton_emu.repeating.affine import Affine
from kernbench.triton_emu.stacking.transfers import Load, Store

__kernbench_internal__ = True

# an address is recorded in 63 bits
_MOST_ADDRESS = (1 << 63) - 1
_PADDING = {"": 0, "zero": 0, "nan": float("nan")}


class Memory(Part):
    """Loads, stores, workspaces and descriptors."""

    def __init__(self, core: Core):
        super().__init__(core)
        self._watch = core.watch
        # shapes and element types of loads that are not too large by far
        self._fitting: set[tuple[Shape, str | None]] = set()
        self._known_steps: dict[Shape, Shape] = {}
        # type and pattern of what loads give, by shape, strides and element type
        self._made: dict[tuple[Shape, Shape | None, str], tuple[ScratchType, int]] = {}
        self._plain_loads: dict[tuple[object, ...], tuple[tuple[int, int, int, int], ScratchType, int]] = {}
        self._plain_stores: dict[tuple[object, ...], tuple[tuple[int, int, int, int], int]] = {}

    def load(
        self,
        ptr: "int | BlockPointer | TensorHandle | Affine",
        shape: Sizes = (1,),
        dtype: ElementType = None,
        *,
        strides: Sizes | None = None,
        boundary_check: Sizes = (),
        padding_option: str = "",
        cache_modifier: str = "",
        eviction_policy: str = "",
        volatile: bool = False,
    ) -> TensorHandle:
        """`shape` elements of HBM from byte address `ptr`; `strides` (in elements) for a tile of a larger tensor.

        Without `dtype` they have the tensor's own type (f16 while a kernel is only recorded). A block pointer has
        its own shape and strides; what `boundary_check` cuts off is filled with zeros, or NaN. There is no cache: the
        last three change nothing.
        """
        site = self._sites.here()
        if not self._carries_data and dtype is None and type(ptr) is int and type(shape) is tuple:
            # most loads of a run without data are like an earlier one that was looked at
            known = self._plain_loads.get((ptr >> WINDOW_BITS, shape, strides if type(strides) is tuple else None))
            if known is not None and (strides is None or type(strides) is tuple):
                (first, last, base, itemsize), kind, pattern = known
                if first <= ptr <= last and not (ptr - base) % itemsize:
                    return self._emit("load", site, kind, None, NONE, NONE, NONE, ptr, pattern)
        if type(ptr) is Affine:
            sizes = self._shape(shape)
            ptr = self._watch.take(ptr, sizes, None if strides is None else self._steps(sizes, strides))
        if type(ptr) is BlockPointer:
            return self._load_tile(ptr, self._whole_numbers(boundary_check), padding_option)
        sizes = self._shape(shape)
        address = ptr if type(ptr) is int and 0 <= ptr <= _MOST_ADDRESS else self._address("load", ptr)
        steps = None if strides is None else self._steps(sizes, strides)
        name = dtype if dtype is None or (type(dtype) is str and dtype in DTYPES) else self._dtype(dtype)
        self._require_fit(sizes, name, address)
        where = self._sites.locations[site]
        core = self._core
        if core.trace is not None:
            core.trace.append((core.steps, Load(core, (sizes, steps, name, where)), ()))
        data, name = core._port.load(address, sizes, steps, name, where)
        made = self._made.get((sizes, steps, name))
        if made is None:
            made = self._tables.scratch_type(sizes, name), self._tables.pattern(sizes, steps, ITEMSIZE[name])
            self._made[sizes, steps, name] = made
        kind, pattern = made
        if dtype is None and not self._carries_data:
            unwatched = self._core._port.unwatched(address, sizes, steps)
            if unwatched is not None:
                self._plain_loads[address >> WINDOW_BITS, sizes, steps] = (unwatched, kind, pattern)
        return core._emit("load", site, kind, data, NONE, NONE, NONE, address, pattern)

    def _require_fit(self, sizes: Shape, name: str | None, address: int) -> None:
        """Stop a kernel that loads a tile far larger than its scratch memory, before there is one."""
        if (sizes, name) not in self._fitting:
            self._require_room(prod(sizes) * ITEMSIZE[name or self._core._port.element_type(address)])
            self._fitting.add((sizes, name))

    def store(
        self,
        ptr: "int | BlockPointer | TensorHandle | Affine",
        value: TensorHandle,
        *,
        strides: Sizes | None = None,
        boundary_check: Sizes = (),
        cache_modifier: str = "",
        eviction_policy: str = "",
    ) -> None:
        """`value` to HBM at byte address `ptr`, rounded to the tensor's own type.

        A block pointer brings its strides, and `boundary_check` cuts off what lies outside. There is no cache: the last
        two change nothing.
        """
        if type(ptr) is BlockPointer:
            return self._store_tile(ptr, value, self._whole_numbers(boundary_check))
        site = self._sites.here()
        data = self._read("store", value)
        if data is None and strides is None and type(ptr) is int:
            # as with loads
            known = self._plain_stores.get((ptr >> WINDOW_BITS, value.shape, value.dtype))
            if known is not None:
                (first, last, base, itemsize), pattern = known
                if first <= ptr <= last and not (ptr - base) % itemsize:
                    self._record("store", site, value.number, ptr, pattern)
                    return None
        steps = None if strides is None else self._steps(value.shape, strides)
        if type(ptr) is Affine:
            ptr = self._watch.take(ptr, value.shape, steps)
        address, where = self._address("store", ptr), self._sites.locations[site]
        if self._core.trace is not None:
            self._core._traced(self._core.steps, Store(self._core, (value.shape, steps, value.dtype, where)), value)
        itemsize = self._core._port.store(address, data, value.shape, steps, value.dtype, where)
        pattern = self._tables.pattern(value.shape, steps, itemsize)
        self._record("store", site, value.number, address, pattern)
        if steps is None and not self._carries_data:
            unwatched = self._core._port.unwatched(address, value.shape, None)
            if unwatched is not None:
                self._plain_stores[address >> WINDOW_BITS, value.shape, value.dtype] = (unwatched, pattern)

    def element_type(self, ptr: int) -> str:
        """The element type of the tensor at byte address `ptr` (f16 while a kernel is only recorded); no command."""
        return self._core._port.element_type(self._address("element_type", ptr))

    def workspace(self, shape: Sizes, dtype: ElementType = "f32", name: str = "workspace") -> int:
        """The address of fresh HBM memory that belongs to this PE until the kernel returns; no command."""
        location = self._sites.locations[self._sites.here()]
        return self._core._port.workspace(self._shape(shape), self._dtype(dtype), name, location)

    def _address(self, verb: str, ptr: "int | BlockPointer | TensorHandle | Affine") -> int:
        if type(ptr) is int and 0 <= ptr <= _MOST_ADDRESS:
            return ptr
        if isinstance(ptr, TensorHandle) and ptr.space == "hbm":
            return ptr.addr
        number = -1 if isinstance(ptr, (TensorHandle, bool, float)) else self._scalar(ptr)
        address = int(number) if isinstance(number, int) else -1
        if address < 0:
            self._fail(
                "misuse",
                f"{verb}: {ptr!r} is no byte address",
                "pass the tensor to the launch; addresses are whole numbers of bytes (divide with //)",
            )
        self._not_beyond(f"{verb} at {address:#x}", address)
        return address

    def _steps(self, shape: Shape, strides: Sizes) -> Shape:
        known = self._known_steps.get(strides) if type(strides) is tuple else None
        if known is None:
            known = self._whole_numbers(strides)
            self._known_steps[known] = known
        steps = known
        if len(steps) != len(shape):
            self._fail("shape", f"{len(steps)} strides for a shape of {len(shape)} axes: {steps} and {shape}")
        return steps

    # Tiles by offset

    def make_block_ptr(
        self, base: int, shape: Sizes, strides: Sizes, offsets: Sizes, block_shape: Sizes, order: object = None
    ) -> BlockPointer:
        """A tile of `block_shape` at `offsets` in a tensor of `shape` and `strides`; no command; `order` is idle."""
        return self._block_pointer("make_block_ptr", base, shape, strides, offsets, block_shape)

    def _block_pointer(
        self, verb: str, base: int, shape: Sizes, strides: Sizes, offsets: Sizes, block_shape: Sizes
    ) -> BlockPointer:
        parts = [self._whole_numbers(values) for values in (shape, strides, offsets)]
        block = self._shape(block_shape)
        if {len(part) for part in parts} != {len(block)}:
            self._fail(
                "shape",
                f"{verb}: shape {parts[0]}, strides {parts[1]}, offsets {parts[2]} and block_shape {block} must have "
                "one entry for each axis",
            )
        return BlockPointer(self._address(verb, base), parts[0], parts[1], parts[2], block)

    def advance(self, base: BlockPointer, offsets: Sizes) -> BlockPointer:
        """The block pointer `offsets` elements further on; no command."""
        steps = self._whole_numbers(offsets)
        if not isinstance(base, BlockPointer):
            self._fail("misuse", f"advance: {base!r} is no block pointer", "make one with tl.make_block_ptr")
        if len(steps) != len(base.offsets):
            self._fail("shape", f"advance by {steps} of a block pointer of {len(base.offsets)} axes")
        return base.advanced(steps)

    def make_tensor_descriptor(
        self, base: int, shape: Sizes, strides: Sizes, block_shape: Sizes, padding_option: str = "zero"
    ) -> TensorDescriptor:
        """Loads and stores tiles of `block_shape`: `d.load(offsets)`, `d.store(offsets, value)`; no command."""
        sizes = self._shape(block_shape)
        self._padding(padding_option, "f32")
        tile = self._block_pointer("make_tensor_descriptor", base, shape, strides, (0,) * len(sizes), sizes)
        return TensorDescriptor(self._core.tl, tile, padding_option)

    def load_tensor_descriptor(self, desc: TensorDescriptor, offsets: Sizes) -> TensorHandle:
        """The tile at `offsets`; what lies outside the tensor is filled."""
        tile = self._tile_at("load_tensor_descriptor", desc, offsets)
        return self._load_tile(tile, tuple(range(len(tile.shape))), desc.padding_option)

    def store_tensor_descriptor(self, desc: TensorDescriptor, offsets: Sizes, value: TensorHandle) -> None:
        """`value` to the tile at `offsets`; what lies outside the tensor is not stored."""
        tile = self._tile_at("store_tensor_descriptor", desc, offsets)
        self._store_tile(tile, value, tuple(range(len(tile.shape))))

    def _tile_at(self, verb: str, desc: TensorDescriptor, offsets: Sizes) -> BlockPointer:
        if not isinstance(desc, TensorDescriptor):
            self._fail("misuse", f"{verb}: {desc!r} is no descriptor", "make one with tl.make_tensor_descriptor")
        return self.advance(desc.tile, offsets)

    def _load_tile(self, tile: BlockPointer, checked: Shape, padding_option: str) -> TensorHandle:
        """One load command: the bytes of the part that exists, in a value of the whole tile's shape."""
        site = self._sites.here(3)
        clip = tile.clipped(self._checked_axes(tile, checked))
        dtype = self._core._port.element_type(tile.base)
        fill = self._padding(padding_option, dtype)
        self._kind(tile.block_shape, dtype)
        data: Array | None = None
        address = tile.base + clip.start * ITEMSIZE[dtype]
        if 0 not in clip.sizes:
            self._in_memory(tile, address)
            data, dtype = self._core._port.load(address, clip.sizes, tile.strides, None, self._sites.locations[site])
        # without data, too, whole numbers of a tensor are known, and so is what lies around it
        is_known = data is not None or self._carries_data or (0 in clip.sizes and dtype not in FLOATS)
        if is_known and clip.sizes != tile.block_shape:
            whole = np.full(tile.block_shape, fill, DTYPES[dtype].numpy)
            if data is not None:
                whole[clip.inside] = data
            data = whole
        kind = self._tables.scratch_type(tile.block_shape, dtype)
        pattern = self._tables.pattern(clip.sizes, tile.strides, ITEMSIZE[dtype])
        return self._emit("load", site, kind, data, x=max(address, 0), y=pattern)

    def _store_tile(self, tile: BlockPointer, value: TensorHandle, checked: Shape) -> None:
        """One store command: the part of the tile that exists."""
        site = self._sites.here(3)
        data = self._read("store", value)
        if value.shape != tile.block_shape:
            self._fail("shape", f"store of a value of shape {value.shape} to a tile of {tile.block_shape}")
        clip = tile.clipped(self._checked_axes(tile, checked))
        if 0 in clip.sizes:
            return
        address = tile.base + clip.start * ITEMSIZE[self._core._port.element_type(tile.base)]
        self._in_memory(tile, address)
        part = None if data is None else data[clip.inside]
        itemsize = self._core._port.store(
            address, part, clip.sizes, tile.strides, value.dtype, self._sites.locations[site]
        )
        self._record("store", site, value.number, address, self._tables.pattern(clip.sizes, tile.strides, itemsize))

    def _in_memory(self, tile: BlockPointer, address: int) -> None:
        if address < 0:
            self._fail("out-of-bounds", f"a tile at offsets {tile.offsets} begins before all memory")
        self._not_beyond(f"a tile at offsets {tile.offsets}", address)

    def _not_beyond(self, access: str, address: int) -> None:
        if address > _MOST_ADDRESS:
            self._fail("out-of-bounds", f"{access} lies beyond all memory: addresses have 63 bits")

    def _checked_axes(self, tile: BlockPointer, axes: Shape) -> Shape:
        count = len(tile.shape)
        if any(not -count <= axis < count for axis in axes):
            self._fail("shape", f"boundary_check {axes} of a tile of {count} axes")
        return tuple(axis % count for axis in axes)

    def _padding(self, option: str, dtype: str) -> float:
        if option not in _PADDING:
            self._fail("misuse", f"padding_option {option!r}: 'zero' or 'nan'")
        if option == "nan" and dtype not in FLOATS:
            self._fail("dtype", f"padding_option 'nan' of a tensor of {dtype}", "integers have no NaN: use 'zero'")
        return _PADDING[option]
