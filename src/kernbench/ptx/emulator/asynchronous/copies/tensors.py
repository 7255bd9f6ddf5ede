"""Tensor copies: boxes of tensors described by a tensor map, between global and shared memory."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.asynchronous.agents import Agent, Chosen
from kernbench.ptx.emulator.asynchronous.copies import tile_kernels as kernels
from kernbench.ptx.emulator.asynchronous.copies.begin_kernels import (
    are_same,
    find_legal,
    find_repeated,
    have_neighbours,
    part_starts,
)
from kernbench.ptx.emulator.asynchronous.copies.bulk import ALIGNMENT as BULK_ALIGNMENT
from kernbench.ptx.emulator.asynchronous.copies.bulk import Ends, Reduction, report_trouble
from kernbench.ptx.emulator.asynchronous.copies.completion import Completion, InGroup, OnBarrier, distinct
from kernbench.ptx.emulator.asynchronous.copies.tensor_maps import decode
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousBatch
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, LOCAL_BASE, SHARED_BASE, TRACKED, Arena
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.launching.tensor_map import SWIZZLES, TENSOR_MAP_BYTES, TensorMapDescription
from kernbench.ptx.numerics.matrix.descriptors import PIECE

ALIGNMENT = 128
# swizzle -> mask and shift of the address bits that are XORed, and whether 8-byte halves are swapped
_SWIZZLES = {
    "none": (0, 0, 0),
    "32B": (1, 4, 0),
    "64B": (3, 4, 0),
    "128B": (7, 4, 0),
    "128B.atom32B": (3, 5, 0),
    "128B.atom32B.flip8B": (3, 5, 1),
    "128B.atom64B": (1, 6, 0),
}
_NOTHING: Array = np.zeros(0, np.int64)
# what fills boxes outside of the tensor where their map says "nan"
_NAN = b"\xf7\x7f" * 8
_FILL = np.uint32(int.from_bytes(_NAN[:4], "little"))
# bits of f32's infinity, and of the NaN that loads through maps of tf32 make of every NaN (measured on an H200)
_INFINITY, _TF32_NAN = np.uint32(0x7F80_0000), np.uint32(0x7FFF_E000)


@dataclass(frozen=True, eq=False)
class Box:
    """A tensor map in the form that compiled moves need."""

    description: TensorMapDescription
    base: int
    # rows: sizes, byte strides, elements copied, element strides; narrow elements that move together count as one
    shape: Array
    element: int
    swizzle: Array
    fill: Array

    @cached_property
    def rank(self) -> int:
        """The number of dimensions of the tensor."""
        return self.description.rank

    @cached_property
    def im2col(self) -> bool:
        """Whether boxes are columns of pixels."""
        return self.description.im2col

    @cached_property
    def legal_step(self) -> tuple[int, int]:
        """The factor for an innermost coordinate, and the number that must divide the product."""
        return (self.element, BULK_ALIGNMENT) if self._grain == 1 else (1, self.description.step)

    @cached_property
    def _grain(self) -> int:
        return self.description.grain

    @cached_property
    def parts(self) -> tuple[int, Array, int, Array, Array]:
        """Arguments of the compiled moves: the parts of `kernels.Box`."""
        return self.base, self.shape, self.element, self.swizzle, self.fill

    def grains(self, coordinates: Array) -> Array:
        """Coordinates in units of elements that move together."""
        if self._grain == 1:
            return coordinates
        found: Array = coordinates // np.array([self._grain] + [1] * (coordinates.shape[1] - 1))
        return found

    @cached_property
    def nbytes(self) -> int:
        """Bytes of a box without gaps; of one pixel for im2col."""
        return int(self.shape[2].prod()) * self.element

    @cached_property
    def inner(self) -> int:
        """Bytes of a row in global memory."""
        return int(self.shape[2, 0]) * self.element

    @cached_property
    def room(self) -> int:
        """Bytes of a box in shared memory, including gaps inside rows."""
        return self.nbytes // self.description.filled * PIECE

    @cached_property
    def span(self) -> int:
        """Bytes of shared memory from the first row to the last, including the unused part of short rows."""
        return self.nbytes // self.inner * int(self.swizzle[3])


def _pitch(description: TensorMapDescription) -> int:
    """Row stride in shared memory: a swizzled row takes a whole span."""
    return SWIZZLES[description.swizzle] or description.row_bytes


def box_of(data: bytes, arena: Arena, whole_rows: bool = True) -> Box:
    """Decode the tensor map of memory in `arena`; raises `MisuseError` if it is invalid.

    With `whole_rows`, rows without faults are moved as such.
    """
    description = decode(data)
    rank = description.rank
    shape = np.zeros((4, rank), np.int64)
    shape[0], shape[1] = description.dims, description.byte_strides
    shape[2] = (description.box[0], *[1] * (rank - 1)) if description.im2col else description.copied
    shape[(0, 2), 0] //= description.grain
    shape[3] = description.element_strides
    swizzle: Array = np.array((*_SWIZZLES[description.swizzle], _pitch(description), description.filled, 1), np.int64)
    if not whole_rows:
        piece_by_piece(swizzle)
    fill = _NAN if description.oob_fill == "nan" else bytes(16)
    return Box(
        description,
        arena.real(description.address) - GLOBAL_BASE,
        shape,
        description.grain_bytes,
        swizzle,
        np.frombuffer(fill, np.uint8),
    )


def piece_by_piece(swizzle: Array) -> None:
    """Let no row be moved as such."""
    swizzle[-1] = 0


def pixels(box: Box, points: Array, count: int) -> Array:
    """The coordinates [operations, count, rank] of the pixels of columns, from `points` on.

    After the last pixel of a row comes the first of the next row in the pixel box, and then the next image.
    """
    now, found = points.astype(np.int64), []
    steps, limits = box.shape[3], box.description.pixel_box
    for _ in range(count):
        found.append(now.copy())
        now[:, 1] += steps[1]
        for dimension, (first, last) in enumerate(limits, 1):
            beyond = now[:, dimension] > last
            now[beyond, dimension] = first
            now[beyond, dimension + 1] += steps[dimension + 1]
    return np.stack(found, axis=1)


def _wrong_with(address: int) -> str:
    """Why an address is not that of a tensor map."""
    if LOCAL_BASE <= address < SHARED_BASE:
        return (
            "it is in local memory, where compilers copy a parameter whose address is taken; in CUDA C++ declare the "
            "parameter `const __grid_constant__ CUtensorMap`"
        )
    return "it must be aligned to 64 bytes, and in global, constant or parameter memory"


class TensorMaps:
    """Tensor maps that a launch reads from memory; equal bytes are decoded once."""

    def __init__(self, arena: Arena, whole_rows: bool = True):
        self._arena, self._whole_rows = arena, whole_rows
        self._known: dict[bytes, Box] = {}

    def at(self, address: int) -> Box:
        """The tensor map at an address of global, constant or parameter memory."""
        offset = self._arena.real(address) - GLOBAL_BASE
        if address % 64 or not 0 <= offset <= self._arena.used - TENSOR_MAP_BYTES:
            raise MisuseError(f"{address:#x} is no address of a tensor map: {_wrong_with(address)}")
        if self._arena.footprint is not None:
            self._arena.footprint.ranges(np.array([offset]), np.array([TENSOR_MAP_BYTES]), False, everything=True)
        data = self._arena.words[1][offset : offset + TENSOR_MAP_BYTES].tobytes()
        found = self._known.get(data)
        if found is None:
            found = self._known[data] = box_of(data, self._arena, self._whole_rows)
        return found

    def at_all(self, addresses: Array) -> Box | None:
        """The tensor map at each of some addresses, if all are equal; else None."""
        if self._arena.footprint is not None or self._arena.aliases is not None:
            return None
        whole = self._arena.words[8][: self._arena.used // 8]
        if not are_same(whole, addresses, GLOBAL_BASE, TENSOR_MAP_BYTES):
            return None
        with suppress(MisuseError):
            return self.at(int(addresses[0]))
        return None


def is_watched(batch: AsynchronousBatch, box: Box) -> bool:
    """Whether the memory of a tensor is watched for races."""
    state = batch.launch.arena.state[1]
    return 0 <= box.base < len(state) and bool(state[box.base] & TRACKED)


def begin_load(
    batch: AsynchronousBatch, box: Box, target: Ends, coordinates: Array, completion: OnBarrier, site: Site
) -> None:
    """Begin loads of boxes to shared memory."""
    move = _Move(batch, box, target, coordinates, completion, site, None)
    if batch.checks.checking:
        once = move.once()
        completion.enter("global", False, move.global_ranges(once, 1))
        ranges = move.shared_ranges(once, completion.apart)
        completion.enter("shared", True, ranges)
        batch.checks.asynchronous.laid_out(ranges, box.description.swizzle, site)
    batch.agents.begin(Agent(completion.kind, site, completion.lanes, move.load, completion.signal))


def begin_store(
    batch: AsynchronousBatch,
    box: Box,
    source: Ends,
    coordinates: Array,
    completion: InGroup,
    site: Site,
    reduction: Reduction | None = None,
) -> None:
    """Begin stores of boxes to global memory."""
    move = _Move(batch, box, source, coordinates, completion, site, reduction)
    if batch.checks.checking:
        once = move.once()
        completion.enter("shared", False, move.shared_ranges(once))
        completion.enter("global", True, move.global_ranges(once, PIECE), reduction is not None)
    if reduction is None and batch.launch.fast.repeated_boxes:
        move.join_repeated()
    batch.agents.begin(
        Agent(completion.kind, site, completion.lanes, move.store, completion.signal, move.take, completion.group)
    )


class _Move:
    """The state of one instruction's boxes."""

    def __init__(
        self,
        batch: AsynchronousBatch,
        box: Box,
        ends: Ends,
        coordinates: Array,
        completion: Completion,
        site: Site,
        reduction: Reduction | None,
    ):
        self._batch, self._box, self._ends = batch, box, ends
        self._coordinates = box.grains(coordinates)
        self._completion, self._site, self._reduction = completion, site, reduction
        self._origins, self._offsets = np.empty((2, len(ends.starts)), np.int64)
        part_starts(ends.starts, ends.limits, batch.shared_stride, self._origins, self._offsets)
        self._staged: Array | None = None
        # if several lanes of a warp store the same box: for each operation, its index among the boxes to move
        self._runs: Array | None = None

    def once(self) -> Chosen:
        """Distinct boxes: identical boxes to the same address by lanes of a warp count once."""
        return distinct(self._completion.lanes, self._ends.starts, self._coordinates)

    def join_repeated(self) -> None:
        """Move identical consecutive boxes of a warp's lanes only once, as long as they are performed together."""
        lanes = self._completion.lanes
        if not have_neighbours(lanes):
            return
        runs: Array = np.empty(len(lanes), np.int64)
        count = find_repeated(lanes, self._ends.starts, self._coordinates, runs)
        if count < len(lanes):
            first = np.searchsorted(runs, np.arange(count))
            self._runs = runs
            self._offsets, self._origins = self._offsets[first], self._origins[first]
            self._coordinates = self._coordinates[first]

    def _moved(self, chosen: Chosen) -> Chosen:
        """The boxes to move for some operations: separate ones, unless all merged operations are performed together."""
        if self._runs is not None:
            if len(chosen) == len(self._runs):
                return np.arange(len(self._offsets))
            self._part()
        return chosen

    def _part(self) -> None:
        """From now on, move each merged box separately."""
        runs, self._runs = self._runs, None
        assert runs is not None
        self._offsets, self._origins = self._offsets[runs], self._origins[runs]
        self._coordinates = self._coordinates[runs]
        if self._staged is not None:
            self._staged = self._staged[runs]

    def shared_ranges(self, chosen: Chosen, apart: bool = False) -> Ranges:
        """The bytes of shared memory that boxes fill."""
        box, firsts = self._box, self._ends.starts
        if box.span == box.room:
            found: Array = np.empty((3, len(chosen)), np.int64)
            count = find_legal(firsts, self._ends.limits, chosen, box.span, found)
            return Ranges(found[0, :count], found[1, :count], found[2, :count], apart)
        legal = chosen[(firsts + box.span <= self._ends.limits)[chosen]]
        rows = np.arange(box.nbytes // box.inner)
        pieces = np.arange(0, box.description.row_bytes, PIECE)
        inside = (rows[:, None] * box.swizzle[3] + pieces).reshape(-1)
        offsets = self._offsets[legal, None] + inside
        offsets ^= ((offsets >> 7) & box.swizzle[0]) << box.swizzle[1]
        starts = (self._origins[legal, None] + offsets).reshape(-1)
        owners = np.repeat(legal, len(rows) * len(pieces))
        return Ranges(starts, np.full(len(starts), PIECE), owners, apart)

    def global_ranges(self, chosen: Chosen, unit: int) -> Ranges:
        """The bytes of boxes inside the tensor that are watched for races.

        Rows are extended to a multiple of `unit`.
        """
        box = self._box
        if not is_watched(self._batch, box):
            return Ranges(_NOTHING, _NOTHING, _NOTHING)
        found: Array = np.empty((3, len(chosen) * (box.nbytes // box.inner)), np.int64)
        count = kernels.find_rows(box.parts, self._coordinates, chosen, unit, found)
        return Ranges(found[0, :count], found[1, :count], found[2, :count])

    def _tensor(self) -> kernels.GivenTensor:
        """The parts of `kernels.Tensor`."""
        memory = self._batch.port.space("global")
        return memory.words[1], memory.words[8], memory.state[1], memory.state[8]

    def _tiles(self, offsets: Array, origins: Array) -> kernels.GivenTiles:
        """The parts of `kernels.Tiles`."""
        shared = self._batch.port.space("shared")
        return shared.words[1], shared.words[8], shared.state[1], shared.state[8], offsets, origins, shared.size

    def load(self, chosen: Chosen) -> None:
        """Read the boxes and write them to shared memory."""
        batch, box, report = self._batch, self._box, kernels.new_report()
        shared, checked = batch.port.space("shared"), batch.checks.checking
        offsets, origins, coordinates = self._offsets, self._origins, self._coordinates
        if len(chosen) < len(offsets):
            offsets, origins, coordinates = offsets[chosen], origins[chosen], coordinates[chosen]
        tiles = self._tiles(offsets, origins)
        kernels.load_boxes(self._tensor(), tiles, box.parts, coordinates, checked, report)
        if box.description.element.startswith("tf32"):
            ranges = self.shared_ranges(chosen)
            _round_to_tf32(shared.words[4], ranges.starts // 4, ranges.lengths // 4)
        batch.port.changes += 1
        if np.count_nonzero(report):
            report_trouble(batch, report, self._completion.lanes[chosen], self._site, "load")

    def take(self, chosen: Chosen) -> None:
        """Read the boxes from shared memory."""
        batch, box, report = self._batch, self._box, kernels.new_report()
        moved = self._moved(chosen)
        if self._staged is None:
            # rounded up to whole pieces, which move as such
            pieces = -(-box.nbytes // PIECE)
            self._staged = np.zeros((len(self._offsets), pieces * PIECE), np.uint8)
        tiles, checked = self._tiles(self._offsets, self._origins), batch.checks.checking
        staged = self._staged
        kernels.take_boxes(tiles, box.parts, self._coordinates, moved, staged, staged.view(np.uint64), checked, report)
        if self._runs is not None and np.count_nonzero(report):
            # faults are counted for each operation
            self._part()
            self.take(chosen)
            return
        report_trouble(batch, report, self._completion.lanes, self._site, "load")

    def store(self, chosen: Chosen) -> None:
        """Write the boxes that were read; reductions run one after the other, as boxes may overlap."""
        if self._reduction is None:
            self._put(chosen)
            return
        for number in range(len(chosen)):
            one = chosen[number : number + 1]
            self._combine(one, self._reduction)
            self._put(one)

    def _put(self, chosen: Chosen) -> None:
        batch, box, report = self._batch, self._box, kernels.new_report()
        moved = self._moved(chosen)
        assert self._staged is not None
        dirty, checked = batch.port.space("global").dirty, batch.checks.checking
        staged, coordinates = self._staged, self._coordinates
        kernels.put_boxes(
            self._tensor(), dirty, box.parts, coordinates, moved, staged, staged.view(np.uint64), checked, report
        )
        if self._runs is not None and np.count_nonzero(report):
            self._part()
            self._put(chosen)
            return
        batch.port.changes += 1
        report_trouble(batch, report, self._completion.lanes, self._site, "store")

    def _combine(self, chosen: Chosen, reduction: Reduction) -> None:
        """Replace staged bytes by their reduction with the tensor's."""
        batch, box, report = self._batch, self._box, kernels.new_report()
        assert self._staged is not None
        whole = box.shape.copy()
        whole[0, 0] = -(-whole[0, 0] * box.element // PIECE) * PIECE // box.element
        for op in chosen:
            room = self._staged.shape[1] + PIECE
            one, state = np.zeros(room, np.uint8), np.zeros(room, np.uint8)
            plain = np.array((0, 0, 0, box.inner, PIECE, box.swizzle[5]), np.int64)
            zero = np.zeros(1, np.int64)
            tiles = (one, one.view(np.uint64), state, state.view(np.uint64), zero, zero, box.nbytes)
            parts = (box.base, whole, box.element, plain, box.fill)
            coordinates, checked = self._coordinates[op : op + 1], batch.checks.checking
            kernels.load_boxes(self._tensor(), tiles, parts, coordinates, checked, report)
            staged = self._staged[op, : box.nbytes]
            staged[...] = reduction(one[: box.nbytes], staged)
        report_trouble(batch, report, self._completion.lanes[chosen], self._site, "store")


def _round_to_tf32(words: Array, starts: Array, lengths: Array) -> None:
    """Round loaded tf32 elements to the nearest value of 10 mantissa bits, ties to even; every NaN becomes tf32's.

    What fills the box outside of the tensor stays as it is. An element of the tensor with the bits of that NaN stays,
    too, which a GPU makes tf32's NaN.
    """
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        part = words[start : start + length]
        rounded = (part + ((part >> np.uint32(13) & np.uint32(1)) + np.uint32(0xFFF))) & np.uint32(0xFFFF_E000)
        magnitude = part & np.uint32(0x7FFF_FFFF)
        nan = np.where(part == _FILL, part, _TF32_NAN)
        part[...] = np.where(magnitude > _INFINITY, nan, np.where(magnitude == _INFINITY, part, rounded))
