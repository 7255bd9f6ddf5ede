"""Operations of the fifth-generation tensor core on tensor memory: products, copies from shared memory, shifts."""

from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.fragment_kernels import take_halves
from kernbench.ptx.emulator.asynchronous.matrix.observer import MatrixBatch
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.emulator.lanes.arrays import UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.pages.allocation import POOL
from kernbench.ptx.emulator.memory.tiles import (
    HALVES,
    Layout,
    Operand,
    Tiles,
    gather,
    gather_halves,
    gather_pieces,
    joined_layout,
    tiles_of,
    unpacked,
)
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.numerics.matrix.descriptors import deep_descriptor, tcgen05_descriptor
from kernbench.ptx.numerics.matrix.instruction import InstructionDescriptor, Part, instruction_descriptor, parts
from kernbench.ptx.numerics.matrix.scaled import scale_values
from kernbench.ptx.numerics.matrix.wide import accumulate, float32_of, float32_table, product

_LANE_SHIFT = 16
# operations are equal in all but descriptors of matrices in shared memory, or in everything
_ALIKE, _EQUAL = 1, 2
# indices of the instruction descriptor and the predicate in the operands
_INSTRUCTION, _ADDS = 3, 4


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The static part of an mma instruction."""

    kind: str
    pair: bool
    stationary: bool
    # whether A is in tensor memory, and is shifted down by a row there
    from_tensor: bool
    shifted: bool
    # elements that share a scale, 0 for none
    block: int
    site: Site
    # whether the target supports K = 96, and next-buffer addresses
    deep: bool = False

    def descriptor(self, bits: int) -> InstructionDescriptor:
        """The instruction descriptor."""
        return instruction_descriptor(
            bits, self.kind, "2" if self.pair else "1", self.stationary, self.block, self.deep
        )


@dataclass(eq=False)
class Products:
    """Operations of one mma instruction: for each its CTA and its operands.

    `given` has the addresses of D and A (or a descriptor of A), the descriptor of B, the instruction descriptor, the
    predicate and the addresses of scales: [operands, operations].
    """

    form: Form
    ctas: Array
    given: Array
    # exponent by which D is scaled down, and lanes that are disabled
    shift: int = 0
    lanes: Array | None = None

    def __post_init__(self) -> None:
        given = self.given
        # addresses of the scales of A and B
        self.scales: tuple[Array, Array] | None = (given[5], given[6]) if len(given) > 5 else None
        self.first: tuple[int, ...] = tuple(given[:, 0].tolist())
        self._likeness = _EQUAL if len(self.ctas) == 1 else likeness(given, self.form.from_tensor)

    @property
    def d(self) -> Array:
        """The address of D."""
        found: Array = self.given[0]
        return found

    @property
    def a(self) -> Array:
        """The address or the descriptor of A."""
        found: Array = self.given[1]
        return found

    @property
    def b(self) -> Array:
        """The descriptor of B."""
        found: Array = self.given[2]
        return found

    @property
    def instruction(self) -> Array:
        """The instruction descriptor."""
        found: Array = self.given[_INSTRUCTION]
        return found

    @property
    def adds(self) -> Array:
        """Whether the product is added to D."""
        found: Array = self.given[_ADDS]
        return found

    @property
    def equal(self) -> bool:
        """Whether all operations have equal operands."""
        return self._likeness == _EQUAL

    def alike(self) -> list[tuple[Array, "Products"]]:
        """The operations grouped by addresses in tensor memory, instruction descriptor, and predicate.

        Each group comes with its positions: a CTA may have several operations, by several warps.
        """
        if self._likeness:
            return [(np.arange(len(self.ctas)), self)]
        keys = [self.d, self.instruction, self.adds, *([self.a] if self.form.from_tensor else []), *(self.scales or ())]
        _, inverse = np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)
        groups = [np.flatnonzero(inverse.reshape(-1) == n) for n in range(int(inverse.max()) + 1)]
        return [(chosen, self.part(chosen)) for chosen in groups]

    def part(self, chosen: Array) -> "Products":
        """Some of the operations, at ascending positions."""
        if len(chosen) == len(self.ctas):
            return self
        lanes = None if self.lanes is None else self.lanes[chosen]
        return Products(self.form, self.ctas[chosen], np.ascontiguousarray(self.given[:, chosen]), self.shift, lanes)

    @cached_property
    def described(self) -> InstructionDescriptor:
        """The instruction descriptor of the first operation."""
        return self.form.descriptor(self.first[_INSTRUCTION])

    @cached_property
    def homes(self) -> Array:
        """The CTAs that each operation works on: [operations, 1 or 2]."""
        if not self.form.pair:
            return self.ctas[:, None]
        first = self.ctas - self.ctas % 2
        return np.stack([first, first + 1], axis=1)

    def operand(self, which: str) -> Operand:
        """The tile of A or B that each CTA holds."""
        return _operand(self.described, which, self.homes.shape[1])

    def tiles(self, which: str) -> list[Tiles]:
        """The tiles of A or B in shared memory, for all CTAs of all operations."""
        return self._left if which == "a" else self._right

    @cached_property
    def _left(self) -> list[Tiles]:
        return self._tiles(self.a, "a")

    @cached_property
    def _right(self) -> list[Tiles]:
        return self._tiles(self.b, "b")

    def _tiles(self, descriptors: Array, which: str) -> list[Tiles]:
        decode, width = deep_descriptor if self.form.deep else tcgen05_descriptor, self.homes.shape[1]
        return tiles_of(descriptors if width == 1 else np.repeat(descriptors, width), self.operand(which), decode)

    @cached_property
    def sides(self) -> "tuple[_Side | None, _Side] | None":
        """A and B, if all operations have equal operands and no special features; see `_sides`."""
        plain = self.equal and self.lanes is None and not self.shift
        return _sides(self.form, self.first, len(self.ctas)) if plain else None

    def parts(self) -> tuple[Part, ...]:
        """The parts of tensor memory that hold D."""
        described = self.described
        return parts(described.m, described.n, self.form.pair, self.form.stationary, self.first[0] >> _LANE_SHIFT)


@kernel
def likeness(given: UInt64s, from_tensor: bool) -> int:
    """_EQUAL if each row of operands has one value; _ALIKE if all rows but descriptors of A and B have; else 0."""
    found = _EQUAL
    for row in range(given.shape[0]):
        for i in range(1, given.shape[1]):
            if given[row, i] != given[row, 0]:
                if row != 2 and (row != 1 or from_tensor):
                    return 0
                found = _ALIKE
    return found


@lru_cache(1 << 10)
def _operand(described: InstructionDescriptor, which: str, width: int) -> Operand:
    """The tile of A or B of one of `width` CTAs."""
    rows, side = (described.m, 0) if which == "a" else (described.n, 1)
    return Operand(rows // width, described.k, described.kinds[1 + side], described.transposed[side])


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Products that accumulate in sequence on the same accumulators: the first, and the operands of all."""

    first: Products
    left: list[Array]
    right: list[Array]

    def takes(self, one: Products) -> bool:
        """Whether an operation only continues the same sums."""
        first = self.first
        return (
            one.first[_ADDS] != 0
            and one.first[_INSTRUCTION] == first.first[_INSTRUCTION]
            and one.first[0] == first.first[0]
            and one.form.kind == first.form.kind
            and one.form.pair == first.form.pair
            and one.ctas.tolist() == first.ctas.tolist()
        )


class TensorCore:
    """Performs operations on the tensor memory of a batch; sums of one accumulator are computed together.

    Code that reads tensor memory must call `flush` first.
    """

    def __init__(self, batch: MatrixBatch, memory: TensorMemory):
        self._batch = batch
        self._fast = batch.launch.fast
        self._memory = memory
        self._chain: Chain | None = None

    def multiply(self, several: list[Products]) -> None:
        """Compute D = A B, or D = A B + D, in order; equal operations are computed as one product."""
        first = 0
        while first < len(several):
            operations = several[first]
            first += 1
            sides = operations.sides if self._fast.equal_products else None
            if sides is None:
                self._multiply_apart(operations)
            elif sides[0] is None:
                self.flush()
                self._multiply(operations, gather(self._batch, operations.ctas, *sides[1]))
            else:
                chain, begin = self._chained(operations), first - 1
                while first < len(several) and chain.takes(several[first]) and several[first].sides is not None:
                    first += 1
                self._take(chain, several[begin:first])

    def _take(self, chain: Chain, several: list[Products]) -> None:
        """Gather A and B of operations that continue a chain."""
        batch, ctas = self._batch, several[0].ctas
        joined = None
        if len(several) > 1 and self._fast.half_tiles:
            joined = _joined(tuple((one.form, one.first) for one in several), len(ctas))
        if joined is not None:
            chain.right.append(gather_halves(batch, ctas, *joined[1]))
            chain.left.append(gather_halves(batch, ctas, *joined[0]))
            return
        for left, right in (_known(one.sides) for one in several):
            chain.right.append(gather(batch, ctas, *right))
            chain.left.append(gather(batch, ctas, *left))

    def _multiply_apart(self, operations: Products) -> None:
        """As `multiply`, for operations that differ from each other, or have special features."""
        for _, group in operations.alike():
            if group.described.problem:
                continue
            if not _chains(group):
                self.flush()
                self._multiply(group, self._right(group))
                continue
            chain, ctas = self._chained(group), group.homes.reshape(-1)
            chain.right.append(self._right(group))
            chain.left.append(gather(self._batch, ctas, group.tiles("a"), group.operand("a")))

    def _chained(self, one: Products) -> Chain:
        """The chain that an operation continues or begins."""
        if self._chain is None or not self._chain.takes(one):
            self.flush()
            self._chain = Chain(one, [], [])
        return self._chain

    def flush(self) -> None:
        """Compute the deferred sums."""
        chain, self._chain = self._chain, None
        if chain is None:
            return
        left, right = (x[0] if len(x) == 1 else np.concatenate(x, axis=2) for x in (chain.left, chain.right))
        sums = product(left, right, POOL.empty((len(left), left.shape[1], right.shape[1]), np.float32))
        if chain.first.described.negated:
            np.negative(sums, out=sums)
        self._accumulate(chain.first, chain.first.homes.reshape(-1), chain.first.parts()[0], sums)

    def _right(self, one: Products) -> Array:
        """B for each CTA that works on it: [ctas, n, k]."""
        described, homes = one.described, one.homes
        right = gather(self._batch, homes.reshape(-1), one.tiles("b"), one.operand("b"))
        right = right.reshape(len(homes), described.n, described.k)
        right = np.repeat(right, 2, axis=0) if homes.shape[1] == 2 else right
        return right if one.scales is None else right * self._column_scales(one, homes)

    def _multiply(self, one: Products, right: Array) -> None:
        described, homes = one.described, one.homes
        ctas = homes.reshape(-1)
        kept = None
        if not one.form.from_tensor:
            kept = gather(self._batch, ctas, one.tiles("a"), one.operand("a"))
        for part in one.parts():
            left = self._left(one, ctas, part) if kept is None else kept
            if one.scales is not None:
                left = left * self._row_scales(one, homes)
            sums = product(left, right[:, slice(*part.columns)])
            if described.negated:
                np.negative(sums, out=sums)
            self._accumulate(one, ctas, part, sums)

    def _left(self, one: Products, ctas: Array, part: Part) -> Array:
        """A from tensor memory: [ctas, rows, k]."""
        described = one.described
        kind = described.kinds[1]
        width = {"f16": 2, "bf16": 2, "tf32": 4}.get(kind, 1)
        words = described.k * width // 4 if kind != "b4" else described.k // 8
        if kind in HALVES and not one.form.shifted and self._fast.half_tiles:
            made: Array = np.empty((len(ctas), part.rows, 2 * words), np.float32)
            where = (*part.quarters, *part.lanes)
            take_halves(self._memory.words, ctas, where, one.first[1] & 0xFFFF, float32_table(kind), made)
            return made
        found = np.ascontiguousarray(self._memory.read(ctas, part, one.first[1] & 0xFFFF, words))
        if one.form.shifted:
            found[:, 1:] = found[:, :-1].copy()
        if kind == "b4":
            octets = found.view(np.uint8)
            pairs = np.stack([octets & np.uint8(15), octets >> np.uint8(4)], axis=-1)
            found, kind = pairs.reshape(*octets.shape[:2], -1), "e2m1"
        else:
            found = found.view(f"uint{8 * width}")
        values_: Array = float32_of(found, kind)
        return values_

    def _row_scales(self, one: Products, homes: Array) -> Array:
        assert one.scales is not None
        described = one.described
        rows = described.m // homes.shape[1]
        return self._scales(one, homes.reshape(-1), one.scales[0], rows, described.scale_bytes[0])

    def _column_scales(self, one: Products, homes: Array) -> Array:
        """Scales of B for each CTA; if D is in two halves of the lanes, each half has the scales of its columns."""
        assert one.scales is not None
        described, parts = one.described, one.parts()
        byte, addresses = described.scale_bytes[1], one.scales[1]
        if len(parts) == 1:
            found = self._scales(one, homes[:, 0], addresses, described.n, byte)
            return np.repeat(found, homes.shape[1], axis=0)
        width, ctas = described.n // len(parts), homes.reshape(-1)
        each = [self._scales(one, ctas, addresses, width, byte, part.quarters[0]) for part in parts]
        return np.concatenate(each, axis=1)

    def _scales(self, one: Products, ctas: Array, addresses: Array, rows: int, byte: int, quarter: int = 0) -> Array:
        """Scales of each row and element of K: row r in lane r % 32 of a quarter and column r / 32, one byte a block.

        If they take more than a word, they continue after the columns of all rows, which are counted in units of 128.
        """
        described, block = one.described, one.form.block
        column, count, scales = int(addresses[0]) & 0xFFFF, -(-rows // 32), described.k // block
        step, words = 4 * -(-rows // 128), -(-(byte + scales) // 4)
        lanes = Part((quarter, quarter + 1), (0, 32), (0, 0))
        read = [self._memory.read(ctas, lanes, column + step * n, count) for n in range(words)]
        octets = np.stack([np.ascontiguousarray(word.transpose(0, 2, 1)) for word in read], axis=-1).view(np.uint8)
        octets = octets.reshape(len(ctas), 32 * count, 4 * words)[:, :rows]
        found = scale_values(octets[:, :, byte : byte + scales], described.scale_format)
        return np.repeat(found, block, axis=2)

    def _accumulate(self, one: Products, ctas: Array, part: Part, sums: Array) -> None:
        described, memory, adds = one.described, self._memory, one.first[_ADDS] != 0
        column, width = one.first[0] & 0xFFFF, part.columns[1] - part.columns[0]
        plain = described.kinds[0] == "f32" and not one.shift and one.lanes is None
        if self._fast.products_together and adds and plain and memory.add(ctas, part, column, sums):
            return
        before = memory.read(ctas, part, column, width) if adds else None
        if before is not None:
            before = np.ascontiguousarray(before)
        if before is not None and one.shift:
            # float16 values of D are in the lower half of each word
            held = before.view(np.float32) if described.kinds[0] == "f32" else float32_of(before & 0xFFFF, "f16")
            sums, before = sums + held * np.float32(2.0**-one.shift), None
        result = accumulate(sums, before, described.kinds[0], described.saturates)
        lanes = None if one.lanes is None else one.lanes.reshape(len(ctas), -1)
        memory.write(ctas, part, column, result.astype(np.uint32, copy=False), lanes)

    def copy(self, form: "CopyForm", ctas: Array, addresses: Array, descriptors: Array) -> None:
        """tcgen05.cp: copy rows of shared memory to lanes."""
        self.flush()
        for address in np.unique(addresses):
            chosen = addresses == address
            homes = ctas[chosen]
            tiles = form.tiles(descriptors[chosen])
            data = gather_pieces(self._batch, homes, tiles)
            if form.unpacks:
                data = np.ascontiguousarray(unpacked(data, form.unpacks))
            rows = data.view(np.uint32).reshape(len(homes), form.rows, -1)
            lanes = form.lanes((int(address) >> _LANE_SHIFT) & 127)
            for part, first in lanes:
                self._memory.write(homes, part, int(address) & 0xFFFF, rows[:, first : first + part.rows])

    def shift(self, ctas: Array, addresses: Array) -> None:
        """tcgen05.shift: move 31 of a warp's 32 rows one lane down, eight columns wide; the first stays (.31x256b)."""
        self.flush()
        words = self._memory.words.reshape(len(self._memory.words), 128, -1)
        for cta, address in zip(ctas.tolist(), addresses.tolist(), strict=True):
            lane, column = (address >> _LANE_SHIFT) & 127, address & 0xFFFF
            block = words[cta, lane : lane + WARP, column : column + 8]
            block[1:] = block[:-1].copy()


@dataclass(frozen=True, slots=True, eq=False)
class CopyForm:
    """The static part of a copy: rows, bytes per row in shared memory, and the mapping of rows to lanes."""

    rows: int
    nbytes: int
    spread: str
    # width of elements that are unpacked to bytes, 0 for none
    unpacks: int
    site: Site

    def tiles(self, descriptors: Array) -> list[Tiles]:
        """The tiles of descriptors; with unpacking, each 16 bytes have 16 elements followed by padding."""
        found = tiles_of(descriptors, Operand(self.rows, self.nbytes, "u8"), tcgen05_descriptor)
        return [replace(one, filled=2 * self.unpacks) for one in found] if self.unpacks else found

    def lanes(self, base: int) -> list[tuple[Part, int]]:
        """Parts of tensor memory, and the first row that each receives."""
        return _spread(self.spread, base)


@cache
def _spread(spread: str, base: int) -> list[tuple[Part, int]]:
    none = (0, 0)
    if spread == "4x256b":
        lane = base % 32
        return [(Part((q, q + 1), (lane, lane + 1), none), q) for q in range(4)]
    order = {
        "warpx4": ((0, 0), (1, 0), (2, 0), (3, 0)),
        "warpx2::02_13": ((0, 0), (1, 32), (2, 0), (3, 32)),
        "warpx2::01_23": ((0, 0), (1, 0), (2, 32), (3, 32)),
    }
    if spread in order:
        return [(Part((q, q + 1), (0, 32), none), first) for q, first in order[spread]]
    return [(Part((0, 4), (0, 32), none), 0)]


_Side = tuple[list[Tiles], Operand]


@lru_cache(1 << 10)
def _sides(form: Form, operands: tuple[int, ...], count: int) -> tuple[_Side | None, _Side] | None:
    """A and B of operations of single CTAs with equal operands, without scales.

    A is None if it is in tensor memory. The whole result is None if the operations cannot be deferred although A is
    not.
    """
    given = np.repeat(np.array(operands, np.uint64)[:, None], count, axis=1)
    one = Products(form, np.zeros(count, np.int64), given)
    if form.pair or one.described.problem or one.scales is not None or not (form.from_tensor or _chains(one)):
        return None
    return None if form.from_tensor else (one.tiles("a"), one.operand("a")), (one.tiles("b"), one.operand("b"))


def _known(sides: tuple[_Side | None, _Side] | None) -> tuple[_Side, _Side]:
    """A and B of deferred operations: both are in shared memory."""
    assert sides is not None
    left, right = sides
    assert left is not None
    return left, right


@lru_cache(1 << 8)
def _joined(
    several: tuple[tuple[Form, tuple[int, ...]], ...], count: int
) -> tuple[tuple[Layout, Operand], tuple[Layout, Operand]] | None:
    """The combined layouts of A and B of operations that continue the same sums; None if elements are not 16 bits wide.

    The operations are given by form and operands, and are the same for `count` CTAs.
    """
    sides = [_known(_sides(form, operands, count)) for form, operands in several]
    lefts, rights = [left for left, _ in sides], [right for _, right in sides]
    operands = lefts[0][1], rights[0][1]
    if any(operand.kind not in HALVES for operand in operands):
        return None
    made = [
        joined_layout([one for tiles, _ in side for one in tiles], operand, count)
        for side, operand in zip((lefts, rights), operands, strict=True)
    ]
    return None if made[0] is None or made[1] is None else ((made[0], operands[0]), (made[1], operands[1]))


def _chains(one: Products) -> bool:
    """Whether an operation may be deferred until others continue its sums."""
    return (
        not one.form.from_tensor
        and one.scales is None
        and one.lanes is None
        and not one.shift
        and one.described.kinds[0] == "f32"
        and len(one.parts()) == 1
    )
