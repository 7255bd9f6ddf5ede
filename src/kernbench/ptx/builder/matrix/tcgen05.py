"""Tensor memory and the tensor core of sm_100a: allocation, products, loads, stores, and their ordering."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from kernbench.common.errors import unknown
from kernbench.ptx.builder.matrix.tiles import MatrixDescriptor
from kernbench.ptx.builder.matrix.wgmma import Factor, Wgmma
from kernbench.ptx.builder.values.banks import scalar
from kernbench.ptx.builder.values.numbers import is_number
from kernbench.ptx.builder.values.options import Condition, Describing, Tcgen05Copy, Tcgen05Product, Value, Where
from kernbench.ptx.builder.values.pointer import Location
from kernbench.ptx.builder.values.values import Register

__kernbench_internal__ = True

_SYNC = {"sync": True, "aligned": True}
LANES, COLUMNS = 128, 512
# registers and columns of one repeat
_ACCESSES = {"32x32b": (1, 1), "16x64b": (1, 2), "16x128b": (2, 4), "16x256b": (4, 8), "16x32bx2": (1, 1)}
# kind -> depth of one instruction in elements, and codes of the types of A and B
_NARROW = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_KINDS: dict[str, tuple[int, dict[str, int]]] = {
    "f16": (16, {"f16": 0, "bf16": 1}),
    "tf32": (8, {"tf32": 2}),
    "f8f6f4": (32, _NARROW),
    "i8": (32, {"u8": 0, "s8": 1}),
    "mxf8f6f4": (32, _NARROW),
    "mxf4": (64, {"e2m1": 1}),
    "mxf4nvf4": (64, {"e2m1": 1}),
}
_RESULTS = {"f16": 0, "f32": 1, "s32": 2}
_SCALES = {"ue4m3": 0, "ue8m0": 1}
# copies by shape, with the multicasts that they allow
_COPIES = {"64x128b": ("warpx2::02_13", "warpx2::01_23"), "32x128b": ("warpx4",)}


@dataclass(frozen=True, eq=False)
class TensorMemory:
    """`columns` columns of tensor memory from an address on; `at` gives a part of it."""

    base: Register
    columns: int
    offset: int = 0

    def __repr__(self) -> str:
        return f"<tensor memory of {self.columns} columns at {self.base.name}+{self.offset:#x}>"

    @property
    def location(self) -> Location:
        """The address as an instruction's operand."""
        return Location(self.base, self.offset)

    @property
    def address(self) -> Register:
        """The address in a new register."""
        return self.base + self.offset if self.offset else self.base

    def at(self, lane: Value = 0, column: Value = 0, columns: int | None = None) -> "TensorMemory":
        """The part from a lane and column on, relative to this one; `columns` is its number of columns."""
        moved = self._down(lane)._along(column)
        if columns is None:
            return moved
        if not 0 < columns <= moved.columns:
            raise self.base.context.error(f"{columns} columns from column {column} on, of {self!r}")
        return replace(moved, columns=columns)

    def _down(self, lane: Value) -> "TensorMemory":
        if isinstance(lane, Register):
            return replace(self, base=self.base + (lane << 16))
        number = int(lane) + (self.offset >> 16)
        if not 0 <= number < LANES:
            raise self.base.context.error(f"lane {number}: there are {LANES}")
        return replace(self, offset=self.offset + (int(lane) << 16))

    def _along(self, column: Value) -> "TensorMemory":
        if isinstance(column, Register):
            return replace(self, base=self.base + column)
        if not 0 <= column < self.columns:
            raise self.base.context.error(f"column {column} of {self!r}")
        return replace(self, offset=self.offset + int(column), columns=self.columns - int(column))


class Tcgen05(Wgmma):
    """tcgen05. `group` is 1, or 2 for a pair of blocks."""

    # Tensor memory

    def tcgen05_alloc(self, slot: Where, columns: Value, *, group: int = 1, pred: Condition | None = None) -> None:
        """Allocate columns of tensor memory, by one whole warp; their address is written to `slot` in shared memory."""
        if is_number(columns) and (columns not in (32, 64, 128, 256, 512)):
            raise self.error(f"tcgen05.alloc of {columns!r} columns: 32, 64, 128, 256 or 512 are possible")
        location = self.shared_location("tcgen05.alloc", slot, 4, 4)
        slots = {"op": "alloc", "group": self._group(group), **_SYNC, "type": "b32", "space": "shared::cta"}
        self.issue("tcgen05", slots, (location, columns), pred=pred)

    def tensor_memory(self, slot: Where, columns: int) -> TensorMemory:
        """The memory allocated by `tcgen05_alloc`: its address is read from `slot`, after a barrier."""
        if not isinstance(columns, int) or not 0 < columns <= COLUMNS:
            raise self.error(f"tensor memory of {columns!r} columns: there are {COLUMNS}")
        return TensorMemory(self.load(slot, type="u32"), columns)

    def tcgen05_dealloc(self, memory: TensorMemory, columns: Value | None = None, *, group: int = 1) -> None:
        """Free columns, before the block ends. For one whole warp."""
        self._tensor("tcgen05.dealloc", memory)
        slots = {"op": "dealloc", "group": self._group(group), **_SYNC, "type": "b32"}
        self.issue("tcgen05", slots, (memory.address, memory.columns if columns is None else columns))

    def tcgen05_relinquish(self, *, group: int = 1) -> None:
        """Declare that this block allocates no more tensor memory."""
        self.issue("tcgen05", {"op": "relinquish_alloc_permit", "group": self._group(group), **_SYNC}, ())

    # Registers to and from tensor memory

    def tcgen05_ld(
        self,
        source: TensorMemory,
        num: int,
        *,
        shape: str = "32x32b",
        type: str = "b32",
        pack: bool = False,
        split: int | None = None,
        out: Sequence[Register] | None = None,
    ) -> tuple[Register, ...]:
        """Start a load of `num` repeats of `shape`; the registers have their values after `tcgen05_wait_ld`.

        `pack` puts the 16-bit elements of two columns into one register; `split` is the distance of the upper half of
        16x32bx2 from the lower one: columns, and lanes above bit 16.
        """
        self._access("tcgen05.ld", source, shape, num, pack, split)
        slots = {"op": "ld", **_SYNC, "shape": shape, "num": f"x{num}", "type": "b32"}
        slots["pack"] = "pack::16b" if pack else None
        inputs = (source.location, *(() if split is None else (split,)))
        made = self.issue("tcgen05", slots, inputs, keep=type, out=out)
        return made if isinstance(made, tuple) else (made,)

    def tcgen05_st(
        self,
        to: TensorMemory,
        values: Sequence[Register],
        *,
        shape: str = "32x32b",
        unpack: bool = False,
        split: int | None = None,
    ) -> None:
        """Start a store of registers; it is complete after `tcgen05_wait_st`."""
        per = self._known(shape)[0]
        num, rest = divmod(len(values), per)
        if rest or num not in (1, 2, 4, 8, 16, 32, 64, 128):
            raise self.error(
                f"tcgen05.st.{shape} of {len(values)} registers: {per} for each of 1, 2, 4, ... 128 repeats"
            )
        self._access("tcgen05.st", to, shape, num, unpack, split)
        slots = {"op": "st", **_SYNC, "shape": shape, "num": f"x{num}", "type": "b32"}
        slots["unpack"] = "unpack::16b" if unpack else None
        self.issue("tcgen05", slots, (to.location, *(() if split is None else (split,)), tuple(values)))

    def tcgen05_wait_ld(self) -> None:
        """Wait for this thread's loads."""
        self.issue("tcgen05", {"op": "wait::ld", **_SYNC}, ())

    def tcgen05_wait_st(self) -> None:
        """Wait for this thread's stores."""
        self.issue("tcgen05", {"op": "wait::st", **_SYNC}, ())

    def tcgen05_fence_before(self) -> None:
        """Order earlier tensor operations before a following barrier (fence::before_thread_sync)."""
        self.issue("tcgen05", {"op": "fence::before_thread_sync"}, ())

    def tcgen05_fence_after(self) -> None:
        """Order later tensor operations after a preceding barrier (fence::after_thread_sync)."""
        self.issue("tcgen05", {"op": "fence::after_thread_sync"}, ())

    # Products

    def tcgen05_instruction(self, shape: str, types: str, **options: Unpack[Describing]) -> int:
        """The instruction descriptor of a product: its 32 bits. See `tcgen05_mma` for the options."""
        kind, bits = _instruction_bits(self, shape, types, **options)
        group, ws = options.get("group", 1), options.get("ws", False)
        self._group(group)
        if ws and group == 2:
            raise self.error("tcgen05.mma.ws works in one block: leave group out")
        # imported here, as kernels without tcgen05 do not need the emulator's tables
        from kernbench.ptx.numerics.matrix.instruction import instruction_descriptor

        problem = instruction_descriptor(bits, f"kind::{kind}", str(group), ws).problem
        if problem:
            raise self.error(f"tcgen05.mma {shape} of {types}: {problem}")
        return bits

    def tcgen05_mma(
        self,
        shape: str,
        d: TensorMemory,
        a: Factor | TensorMemory,
        b: Factor,
        *,
        types: str,
        accumulate: bool | Condition = True,
        group: int = 1,
        ws: bool = False,
        kind: str | None = None,
        trans_a: bool | None = None,
        trans_b: bool | None = None,
        instruction: Value | None = None,
        disable_lanes: Sequence[Value] | None = None,
        scale_d: int | None = None,
        scales: tuple[TensorMemory, TensorMemory] | None = None,
        zero_mask: Register | None = None,
        pred: Condition | None = None,
        **how: Unpack[Tcgen05Product],
    ) -> None:
        """Start D = A B + D (or A B): `shape` "m128n64k16", `types` those of D, A and B: "f32.bf16.bf16".

        A is a descriptor or tensor memory, B a descriptor. One thread issues it; `tcgen05_commit` makes a barrier
        receive an arrival when it is done. `ws` is the weight-stationary form; `scales` are the scale factors of the mx
        kinds, described by `scale_type` and `scale_ids`. `negate_a`, `negate_b` and `saturate` are flags.
        """
        kind = kind or _kind_of(self, _named(self, types))
        described, modifiers = _divided(how)
        left, right, transposed = self._operands_of(shape, d, a, b, types, group, ws, (trans_a, trans_b))
        if instruction is None:
            described |= {"trans_a": transposed[0], "trans_b": transposed[1], "kind": kind, "group": group, "ws": ws}
            instruction = self.tcgen05_instruction(shape, types, **described)
        slots = {"op": "mma", "ws": ws, "group": self._group(group), "kind": f"kind::{kind}", **modifiers}
        slots["block_scale"] = scales is not None
        inputs: list[object] = [d.location, left, right, instruction]
        inputs += [] if scales is None else [memory.location for memory in scales]
        inputs += [] if disable_lanes is None else [tuple(disable_lanes)]
        inputs.append(self.enabled(accumulate))
        inputs += [value for value in (scale_d, zero_mask) if value is not None]
        self.issue("tcgen05", slots, tuple(inputs), pred=pred)

    def _operands_of(
        self,
        shape: str,
        d: TensorMemory,
        a: Factor | TensorMemory,
        b: Factor,
        types: str,
        group: int,
        ws: bool,
        trans: tuple[bool | None, bool | None],
    ) -> tuple[Location | Register, Register, tuple[bool, bool]]:
        """A and B as operands, and whether they are MN-major, after checks of where all three matrices are."""
        m, n, k = _extents(self, shape)
        _, left, right = _named(self, types)
        self._group(group)
        self._columns("D", d, _result_columns(m, n, group, ws))
        given, transposed = self._operand("B", b, n // group, k, right, trans[1], "tcgen05")
        if isinstance(a, TensorMemory):
            self._columns("A", a, k * scalar(left).bits // 32)
            return a.location, given, (False, transposed)
        register, across = self._operand("A", a, m // group, k, left, trans[0], "tcgen05")
        return register, given, (across, transposed)

    def tcgen05_cp(
        self,
        to: TensorMemory,
        source: Factor,
        shape: str,
        *,
        group: int = 1,
        pred: Condition | None = None,
        **how: Unpack[Tcgen05Copy],
    ) -> None:
        """Start a copy of shared memory, by descriptor, to tensor memory: "128x256b", "4x256b", "32x128b", ..."""
        self._tensor("tcgen05.cp", to)
        multicast = how.pop("multicast", _COPIES.get(shape, (None,))[0])
        slots = {"op": "cp", "group": self._group(group), "shape": shape, "multicast": multicast, **how}
        register = source.register if isinstance(source, MatrixDescriptor) else source
        self.issue("tcgen05", slots, (to.location, register), pred=pred)

    def tcgen05_shift(self, memory: TensorMemory, *, group: int = 1, pred: Condition | None = None) -> None:
        """Start a shift of rows down by one lane."""
        self._tensor("tcgen05.shift", memory)
        self.issue("tcgen05", {"op": "shift", "group": self._group(group), "down": True}, (memory.location,), pred=pred)

    def tcgen05_commit(
        self, barrier: Where, *, multicast: Value | None = None, group: int = 1, pred: Condition | None = None
    ) -> None:
        """Make a barrier receive an arrival when this thread's products, copies and shifts so far are done.

        With `multicast`, a 16-bit mask, also the barriers at the same offset in those blocks of the cluster.
        """
        location = self.shared_location("tcgen05.commit", barrier, 8, 8)
        slots = {"op": "commit", "group": self._group(group), "completion": "mbarrier::arrive::one", "type": "b64"}
        slots["space"] = "shared::cluster"
        given = () if multicast is None else (multicast,)
        if multicast is not None:
            slots["multicast"] = "multicast::cluster"
        self.issue("tcgen05", slots, (location, *given), pred=pred)

    # Parts

    def _group(self, group: int) -> str:
        if group not in (1, 2):
            raise self.error(f"group={group!r}: a block works alone (1) or with its neighbour (2)")
        if self.body.cta_group not in (0, group):
            raise self.error(
                f"group={group}: this kernel uses tcgen05 with group {self.body.cta_group}, and may not mix"
            )
        self.body.cta_group = group
        return f"cta_group::{group}"

    def _tensor(self, what: str, memory: object) -> None:
        if not isinstance(memory, TensorMemory):
            raise self.error(
                f"{what}: {memory!r} is no tensor memory: ctx.tensor_memory(slot, columns) is what was reserved"
            )

    def _columns(self, which: str, memory: TensorMemory, columns: int) -> None:
        """Check that an operand of a product has enough columns."""
        self._tensor(f"tcgen05.mma: {which}", memory)
        if columns > memory.columns:
            raise self.error(f"tcgen05.mma: {which} has {columns} columns, and it lies in {memory!r}")

    def _known(self, shape: str) -> tuple[int, int]:
        if shape not in _ACCESSES:
            raise self.error(unknown("shape of a tensor-memory access", shape, _ACCESSES))
        return _ACCESSES[shape]

    def _access(self, what: str, memory: TensorMemory, shape: str, num: int, packed: bool, split: int | None) -> None:
        """Check that a load or store stays within the columns."""
        self._tensor(what, memory)
        _, columns = self._known(shape)
        if (shape == "16x32bx2") != (split is not None):
            raise self.error(f"{what}.{shape}: split= goes with 16x32bx2 only, and must be there")
        needed = columns * num * (2 if packed else 1) + ((split or 0) & 0xFFFF)
        if needed > memory.columns:
            raise self.error(f"{what}.{shape}.x{num} touches {needed} columns of {memory!r}")


def _divided(how: Tcgen05Product) -> tuple[Describing, Mapping[str, object]]:
    """The options for the instruction descriptor, and those that are modifiers."""
    described: Describing = {}
    if "negate_a" in how:
        described["negate_a"] = how.pop("negate_a")
    if "negate_b" in how:
        described["negate_b"] = how.pop("negate_b")
    if "saturate" in how:
        described["saturate"] = how.pop("saturate")
    if "scale_type" in how:
        described["scale_type"] = how.pop("scale_type")
    if "scale_ids" in how:
        described["scale_ids"] = how.pop("scale_ids")
    return described, how


def _result_columns(m: int, n: int, group: int, ws: bool) -> int:
    """Columns of D in one block; in some layouts the rows of a narrow D are side by side."""
    rows = m // group
    return n if rows == 128 or (rows == 64 and group == 1 and not ws) else n * rows // 128


def _extents(context: Tcgen05, shape: str) -> tuple[int, int, int]:
    rows, _, rest = str(shape).removeprefix("m").partition("n")
    columns, _, depth = rest.partition("k")
    if not (str(shape).startswith("m") and rows.isdecimal() and columns.isdecimal() and depth.isdecimal()):
        raise context.error(f"{shape!r} is no shape of tcgen05.mma; write it like m128n64k16")
    return int(rows), int(columns), int(depth)


def _named(context: Tcgen05, types: str) -> list[str]:
    named = str(types).split(".")
    if len(named) != 3:
        raise context.error(f"types={types!r}: three types are wanted, those of D, A and B: 'f32.bf16.bf16'")
    return named


def _kind_of(context: Tcgen05, named: Sequence[str]) -> str:
    for kind, (_, codes) in _KINDS.items():
        if named[1] in codes and named[2] in codes:
            return kind
    known = ", ".join(sorted({name for _, codes in _KINDS.values() for name in codes}))
    raise context.error(f"tcgen05.mma has no kind for A of {named[1]} and B of {named[2]}; types: {known}")


def _instruction_bits(
    context: Tcgen05,
    shape: str,
    types: str,
    *,
    kind: str | None = None,
    group: int = 1,
    ws: bool = False,
    trans_a: bool = False,
    trans_b: bool = False,
    negate_a: bool = False,
    negate_b: bool = False,
    saturate: bool = False,
    scale_type: str = "ue8m0",
    scale_ids: tuple[int, int] = (0, 0),
) -> tuple[str, int]:
    """Kind and bits of an instruction descriptor."""
    m, n, k = _extents(context, shape)
    named = _named(context, types)
    kind = kind or _kind_of(context, named)
    if kind not in _KINDS:
        raise context.error(unknown("kind of tcgen05.mma", kind, _KINDS))
    depth, codes = _KINDS[kind]
    if k != depth:
        raise context.error(f"tcgen05.mma of kind {kind} has depth {depth}: write m{m}n{n}k{depth}, not {shape}")
    for name, known in ((named[0], _RESULTS), (named[1], codes), (named[2], codes), (scale_type, _SCALES)):
        if name not in known:
            raise context.error(unknown(f"type of kind {kind}", name, known))
    bits = codes[named[1]] << 7 | codes[named[2]] << 10 | negate_a << 13 | negate_b << 14
    bits |= trans_a << 15 | trans_b << 16 | (n >> 3) << 17 | (m >> 4) << 24
    if kind.startswith("mx"):
        return kind, bits | scale_ids[1] << 4 | _SCALES[scale_type] << 23 | scale_ids[0] << 29
    return kind, bits | saturate << 3 | _RESULTS[named[0]] << 4
