"""A program as rows of numbers: what the executor runs.

Each row is an operation, the offsets of its operands in the registers of a warp, an immediate, and its instruction's
number. The rows of a block begin with one for the block itself. Registers, constants and values of a launch lie side by
side, each a row of one element for each lane.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.analysis.analysis import retried_waits
from kernbench.ptx.emulator.analysis.in_flight import may_touch_in_flight
from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.lanes.slots import RegisterSlot, Slot
from kernbench.ptx.emulator.program.access_order import GPU_SCOPE
from kernbench.ptx.emulator.program.operands import Decoding, Row
from kernbench.ptx.emulator.program.steps import Computed, Step
from kernbench.ptx.executor.compiling import Guard, Operation, Warpwide, is_plain
from kernbench.ptx.executor.lanewise import division, lanewise
from kernbench.ptx.executor.ops import (
    barriers,
    bulk_copies,
    copies,
    flow,
    loads_stores,
    mbarriers,
    products,
    updates,
    warpgroups,
    warps,
)
from kernbench.ptx.executor.ops.layout import DIVISION, LANES, MOST_OPERANDS, OPERANDS, RECORD_BYTES, SOME_OPERANDS

# rows of registers begin at multiples of this
_ALIGNMENT = 64
_PRODUCTS = {"f16": products.F16, "bf16": products.BF16, "tf32": products.TF32}
_FACTORS = {**_PRODUCTS, "e4m3": products.E4M3, "e5m2": products.E5M2}


class UnsupportedError(Exception):
    """The executor cannot run the program yet; the emulator does."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a listing of rows says beside their numbers.

    - `registers`: offsets of rows of registers, and their names.
    - `blocks`: the records at which blocks begin, and the numbers of the blocks.
    - `counts`: for each row how many of its operands are offsets of rows of registers, and how many operands it has.
    """

    registers: tuple[tuple[int, str], ...]
    blocks: tuple[tuple[int, int], ...]
    counts: Array


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A program for the executor. `code` has a record for each row, without the addresses of the operations.

    - `operations`: the operation of each row, as an index into `known`.
    - `values`: constants and values of a launch, each with the offset of its row.
    - `nbytes`: bytes of a warp's registers.
    - `entry`: the record at which warps begin.
    - `clocked`: whether vector clocks are needed, as there is asynchronous work, or there are barriers of some warps.
    - `is_parallel`: whether its blocks may run at the same time; the order of atomics in global memory would show.
    - `unset`: the offsets of registers that wgmma may read before they are set.
    """

    code: Array
    operations: Array
    known: tuple[Operation, ...]
    values: tuple[tuple[int, Slot], ...]
    nbytes: int
    entry: int
    clocked: bool
    is_parallel: bool
    unset: tuple[int, ...]
    names: Names


@dataclass(eq=False)
class _Writer:
    decoded: Decoded
    body: Body
    ends: frozenset[int]
    unset: Sequence[tuple[str, int]] = ()
    lines: list[tuple[int, tuple[int, ...], int, int]] = field(default_factory=list)
    # for each line the numbers of its operands, without and with those that are no rows of registers
    counts: list[tuple[int, int]] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    room: int = 0
    banks: dict[tuple[str, int], int] = field(default_factory=dict)
    # the record of each block, and branches with their target blocks
    blocks: dict[int, int] = field(default_factory=dict)
    branches: list[tuple[int, int]] = field(default_factory=list)
    clocked: bool = False
    is_parallel: bool = True

    def __post_init__(self) -> None:
        self.table = self.decoded.table

    def offset(self, slot: int) -> int:
        """The offset of a slot's row."""
        found = self.offsets.get(slot)
        if found is None:
            spec = self.table.slots[slot]
            if isinstance(spec, RegisterSlot):
                key = spec.bank, spec.row
                if key not in self.banks:
                    self.banks[key] = self._new(spec.bank)
                found = self.banks[key]
            else:
                found = self._new(spec.dtype)
            self.offsets[slot] = found
        return found

    def _new(self, dtype: str) -> int:
        found = self.room
        size = LANES * (1 if dtype == "bool" else np.dtype(dtype).itemsize)
        self.room += -(-size // _ALIGNMENT) * _ALIGNMENT
        return found

    def add(
        self, operation: Operation | None, operands: Sequence[int] = (), immediate: int = 0, site: int = -1, *raw: int
    ) -> None:
        """Append a row, of no instruction if `site` is -1; `raw` operands are no rows of registers."""
        if operation is None:
            raise UnsupportedError("an operation without a compiled form")
        number = self.known.get(operation.name)
        if number is None:
            number = self.known[operation.name] = len(self.operations)
            self.operations.append(operation)
        if len(operands) + len(raw) > MOST_OPERANDS:
            raise UnsupportedError("an operation of too many operands")
        self.lines.append((number, (*(self.offset(slot) for slot in operands), *raw), immediate, site))
        self.counts.append((len(operands), len(operands) + len(raw)))

    def finish(self) -> Rows:
        """The program."""
        code = np.zeros((len(self.lines) + 1, RECORD_BYTES), np.uint8)
        for number, block in self.branches:
            operation, operands, _, site = self.lines[number]
            self.lines[number] = operation, operands, (self.blocks[block] - number) * RECORD_BYTES, site
        for number, (_, operands, immediate, site) in enumerate(self.lines):
            code[number, 8:24].view(np.int64)[:] = immediate, site
            code[number, OPERANDS : OPERANDS + 4 * len(operands)].view(np.uint32)[:] = np.array(
                operands, np.int64
            ).astype(np.uint32)
        operations = np.array([line[0] for line in self.lines], np.int32)
        slots = self.table.slots
        values = tuple((at, slots[n]) for n, at in self.offsets.items() if not isinstance(slots[n], RegisterSlot))
        entry = self.blocks[self.body.code.entry]
        unset = tuple(self.banks[one] for one in self.unset if one in self.banks)
        needs = self.clocked, self.is_parallel, unset
        return Rows(code, operations, tuple(self.operations), values, self.room, entry, *needs, self._names())

    def _names(self) -> Names:
        registers = self.body.all_registers()
        called = {(r.bank, r.row + n): f"{r.name}{'.high' * n}" for r in registers for n in range(r.rows)}
        named = tuple((at, called.get(key, f"{key[0]}.{key[1]}")) for key, at in self.banks.items())
        blocks = tuple((record, number) for number, record in self.blocks.items())
        return Names(named, blocks, np.array(self.counts, np.uint8).reshape(-1, 2))


def rows_of(decoded: Decoded, ends: frozenset[int], unset: Sequence[tuple[str, int]] = ()) -> Rows:
    """The rows of a decoded kernel; `ends` are the blocks that only end a thread. Raises `UnsupportedError`.

    `unset` are registers (a bank and a row) that wgmma may read before they are set.
    """
    if len(decoded.bodies) != 1:
        raise UnsupportedError("calls")
    (body,) = decoded.bodies
    writer = _Writer(decoded, body, ends, unset)
    order = sorted(range(len(body.starts)), key=lambda position: body.order.ranks[position])
    # blocks that are not joined by a branch follow each other in the text
    for index, position in enumerate(order):
        _block(writer, body, position)
        behind = position + 1
        follows = order[index + 1] if index + 1 < len(order) else -1
        if behind < len(body.starts) and follows != behind and _falls(body, position):
            writer.branches.append((len(writer.lines), body.code.entry + behind))
            writer.add(Warpwide(flow.branch, (False, False, int(body.code.entry + behind in ends))))
    return writer.finish()


def _falls(body: Body, position: int) -> bool:
    """Whether a block without a branch at its end continues at the next one."""
    decodings = body.decodings[position]
    return body.starts[position] != len(body.lines) and not (
        decodings
        and decodings[-1].effects.flow in ("branch", "exit", "return")
        and decodings[-1].instruction.guard is None
    )


def _block(writer: _Writer, body: Body, position: int) -> None:
    number = body.code.entry + position
    writer.blocks[number] = len(writer.lines)
    if number in writer.ends or body.starts[position] == len(body.lines):
        writer.add(Warpwide(flow.begin_block), (), -1 if number in writer.ends else number)
        writer.add(Warpwide(flow.end_lanes))
        return
    writer.add(Warpwide(flow.begin_block), (), number)
    for decoding in body.decodings[position]:
        _instruction(writer, decoding)


def _instruction(writer: _Writer, d: Decoding) -> None:
    """The rows of an instruction, with the conversions of its operands."""
    if d.looking or d.line.checkpoint is not None:
        raise UnsupportedError("probes")
    for step in d.before:
        _computed(writer, step, d, None)
    guard = d.guard()
    if guard is not None and d.writes_guard() and (d.after or d.row is not None):
        raise UnsupportedError("an instruction that overwrites its guard")
    if d.row is not None:
        _ROWS[d.row.operation](writer, d, d.row, guard)
    elif isinstance(d.made, Step):
        _computed(writer, d.made, d, guard)
    else:
        raise UnsupportedError(d.instruction.name)
    for step in d.after:
        _computed(writer, step, d, guard)


def _guarded(writer: _Writer, guard: tuple[int, bool] | None) -> None:
    if guard is not None:
        writer.add(Guard(guard[1]), guard[:1])


def _computed(writer: _Writer, step: Step, d: Decoding, guard: tuple[int, bool] | None) -> None:
    computed = step.computed
    if computed is None:
        raise UnsupportedError(d.instruction.name)
    _lanes(writer, computed, d, guard)


def _lanes(writer: _Writer, computed: Computed, d: Decoding, guard: tuple[int, bool] | None) -> None:
    slots = writer.table.slots
    sources = tuple(slots[slot].dtype for slot in computed.sources)
    targets = tuple(slots[slot].dtype for slot in computed.targets)
    made = lanewise(computed.function, sources, targets)
    if made is None or not is_plain(made):
        raise UnsupportedError(f"{d.instruction.name}: no compiled form")
    _guarded(writer, guard)
    writer.add(made, (*computed.targets, *computed.sources), 0, d.site.number)


Given = tuple[int, bool] | None
# adds the rows of an instruction
Adder = Callable[[_Writer, Decoding, Row, Given], None]


def _is_wide(writer: _Writer, slot: int) -> int:
    dtype = writer.table.slots[slot].dtype
    if dtype not in ("uint32", "uint64"):
        raise UnsupportedError(f"an address of type {dtype}")
    return int(dtype == "uint64")


def _signed(offset: int) -> int:
    """An offset that was kept modulo 2**64."""
    return offset - (1 << 64) if offset >> 63 else offset


def _access(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    """ld and st: registers, and the address."""
    what, _, space = row.operation.partition(".")
    shared = space == "shared"
    if space not in ("global", "generic", "shared", "const"):
        raise UnsupportedError(f"{what} in {space}")
    if d.order.strong and d.mod("sem") == "volatile":
        raise UnsupportedError("volatile accesses")
    sizes = {writer.table.slots[slot].dtype for slot in row.slots[:-1]}
    if len(sizes) != 1 or "bool" in sizes:
        raise UnsupportedError("registers of several types")
    size = np.dtype(sizes.pop()).itemsize
    functions = (
        (loads_stores.load_shared, loads_stores.store_shared)
        if shared
        else (loads_stores.load_global, loads_stores.store_global)
    )
    statics = (size, size, len(row.slots) - 1, _is_wide(writer, row.slots[-1]))
    _guarded(writer, guard)
    writer.add(Warpwide(functions[what == "store"], statics), row.slots, _signed(row.immediate), d.site.number)


def _update(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    space = row.operation.partition(".")[2]
    code, scope = row.constants
    slots = writer.table.slots
    size = np.dtype(slots[row.slots[-2]].dtype).itemsize
    shared = space == "shared"
    if space not in ("global", "generic", "shared") or size not in (4, 8) or (not shared and scope < GPU_SCOPE):
        raise UnsupportedError(f"{d.instruction.name} in {space}")
    if code == 12 and size == 4 and not shared:
        code = 13
    statics = (code, size, int(len(row.slots) == 4), _is_wide(writer, row.slots[-1]), int(shared))
    writer.is_parallel &= shared
    _guarded(writer, guard)
    writer.add(Warpwide(updates.update, statics), row.slots, _signed(row.immediate), d.site.number)


def _matrices(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    _guarded(writer, guard)
    statics = (*row.constants, _is_wide(writer, row.slots[-1]))
    function = loads_stores.load_matrices if row.operation.startswith("load") else loads_stores.store_matrices
    writer.add(Warpwide(function, statics), row.slots, _signed(row.immediate), d.site.number)


def _vectors(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    """Atomics of vectors: sums of f32 alone."""
    count, returns, scope = row.constants
    plain = d.mod("op") == "add" and d.mod("type") == "f32" and d.has("vec") and scope >= GPU_SCOPE
    if not plain or row.operation.partition(".")[2] not in ("global", "generic"):
        raise UnsupportedError(d.instruction.name)
    _guarded(writer, guard)
    statics = (4, count, returns, _is_wide(writer, row.slots[-1]))
    writer.is_parallel = False
    writer.add(Warpwide(updates.add_vectors, statics), row.slots, _signed(row.immediate), d.site.number)


def _product(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    kinds = (d.mod("dtype"), d.mod("atype"), d.mod("btype"), d.mod("ctype"))
    shape, kind = d.mod("shape"), kinds[1]
    depth = {"m16n8k16": 16, "m16n8k8": 8}.get(shape, 0)
    plain = kinds[0] == kinds[3] == "f32" and kinds[1] == kinds[2] and not d.has("kind") and not d.has("block_scale")
    if not plain or kind not in _PRODUCTS or not depth or (kind == "tf32" and depth == 16):
        raise UnsupportedError(f"{d.instruction.name}")
    _guarded(writer, guard)
    writer.add(Warpwide(products.multiply, (_PRODUCTS[kind], depth)), row.slots, 0, d.site.number)


def _group_product(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    to, *kinds = (d.mod(name) for name in ("dtype", "atype", "btype"))
    if guard is not None or to != "f32" or any(kind not in _FACTORS for kind in kinds):
        raise UnsupportedError(d.instruction.name)
    if may_touch_in_flight(writer.decoded, writer.body):
        raise UnsupportedError("registers that may be touched while a product is in flight")
    rows, in_registers, *how = row.constants
    across_a, across_b, negated, adds = how
    statics = (
        (rows, *(_FACTORS[kind] for kind in kinds)),
        in_registers,
        (across_a, across_b),
        negated,
        adds,
        int(bool(writer.unset)),
    )
    first, *more = (row.slots[at : at + SOME_OPERANDS] for at in range(0, len(row.slots), SOME_OPERANDS))
    writer.add(Warpwide(warpgroups.begin_product, statics), first, 0, d.site.number)
    for some in more:
        writer.add(Warpwide(flow.more_operands), some, 0, d.site.number)
    writer.clocked = True


def _copy(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    size, offset = row.constants
    limited, to = int(len(row.slots) == 3), _is_wide(writer, row.slots[0])
    if not _is_wide(writer, row.slots[1]) or not -(1 << 31) <= _signed(offset) < 1 << 31:
        raise UnsupportedError("cp.async from a narrow address")
    _guarded(writer, guard)
    slots = row.slots if limited else (*row.slots, row.slots[1])
    statics = (size, limited, to)
    writer.add(
        Warpwide(copies.begin_copy, statics), slots, _signed(row.immediate), d.site.number, _signed(offset) & 0xFFFFFFFF
    )


def _mbarrier(function: Callable[..., object]) -> Adder:
    """An operation on mbarriers, whose address is the last operand."""

    def add(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
        _guarded(writer, guard)
        statics = (*row.constants, _is_wide(writer, row.slots[-1]))
        writer.add(Warpwide(function, statics), row.slots, _signed(row.immediate), d.site.number)
        writer.clocked = True

    return add


def _size(writer: _Writer, slot: int) -> int:
    return np.dtype(writer.table.slots[slot].dtype).itemsize


def _arrive(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    _guarded(writer, guard)
    count, nbytes = (_size(writer, slot) for slot in row.slots[-3:-1])
    statics = (*row.constants, (count, nbytes), _is_wide(writer, row.slots[-1]))
    writer.add(Warpwide(mbarriers.arrive, statics), row.slots, _signed(row.immediate), d.site.number)
    writer.clocked = True


def _wait_for_phase(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    if guard is not None:
        raise UnsupportedError("a wait with a guard")
    retried, ignored = retried_waits([writer.body])
    how = row.constants[0] | 2 * (d.site.number in retried) | 4 * (d.site.number not in ignored)
    statics = (how, _size(writer, row.slots[1]), _is_wide(writer, row.slots[-1]))
    writer.add(Warpwide(mbarriers.wait_for_phase, statics), row.slots, _signed(row.immediate), d.site.number)
    writer.clocked = True


def _bulk(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    """Bulk copies: addresses, a size or coordinates, and the offsets of the addresses."""
    wide = [_is_wide(writer, slot) for slot in row.slots[:3]]
    ends = len(row.constants)
    rank, sizes = len(row.slots) - ends, {_size(writer, slot) for slot in row.slots[ends:]}
    offsets = [_signed(one) for one in row.constants]
    if sizes != {4} or any(not -(1 << 31) <= one < 1 << 31 for one in offsets):
        raise UnsupportedError(d.instruction.name)
    made: dict[str, tuple[Callable[..., object], tuple[int, ...], list[int]]] = {
        "bulk load": (bulk_copies.load_range, (wide[0], wide[1]), offsets),
        "bulk store": (bulk_copies.store_range, (wide[0],), offsets),
        "box load": (bulk_copies.load_box, (rank, wide[0], wide[1]), offsets),
        "box store": (bulk_copies.store_box, (rank, wide[0]), offsets[1:]),
    }
    function, statics, raw = made[row.operation]
    _guarded(writer, guard)
    writer.add(Warpwide(function, statics), row.slots, 0, d.site.number, *(one & 0xFFFFFFFF for one in raw))
    writer.clocked = True


def _barrier(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    _guarded(writer, guard)
    # where warps only arrive, a barrier for all threads of the block is none of the block
    counted = any(one.row is not None and one.row.constants[:1] == (0,) for one in writer.body if _is_barrier(one))
    statics = (*row.constants, int(counted))
    writer.add(Warpwide(barriers.wait_at_barrier, statics), row.slots, row.immediate, d.site.number)
    writer.clocked |= row.immediate >> 8 != 0


def _is_barrier(d: Decoding) -> bool:
    return d.row is not None and d.row.operation == "barrier"


def _asynchronous(function: Callable[..., object]) -> Adder:
    add = _plain(function)

    def made(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
        add(writer, d, row, guard)
        writer.clocked = True

    return made


def _plain(function: Callable[..., object], *statics: int) -> Adder:
    def add(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
        _guarded(writer, guard)
        writer.add(Warpwide(function, (*statics, *row.constants)), row.slots, row.immediate, d.site.number)

    return add


def _branch(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    target, following = row.immediate, d.following
    ends = int(target in writer.ends) | 2 * int(guard is not None and following in writer.ends)
    writer.branches.append((len(writer.lines), target))
    negated = bool(row.constants[0]) if row.constants else False
    writer.add(Warpwide(flow.branch, (guard is not None, negated, ends)), row.slots, 0, d.site.number)


def _end(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    if guard is not None:
        raise UnsupportedError("an exit with a guard")
    writer.add(Warpwide(flow.end_lanes), (), 0, d.site.number)


def _divide(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    slots = writer.table.slots
    size = np.dtype(slots[row.slots[1]].dtype).itemsize
    _guarded(writer, guard)
    writer.add(Warpwide(flow.require_divisor, (size, DIVISION)), row.slots[1:2], 0, d.site.number)
    _guarded(writer, guard)
    name = d.resolved.meaning.partition(".")[0]
    writer.add(division(name, d.mod("type")), (row.slots[2], *row.slots[:2]), 0, d.site.number)


def _nothing(writer: _Writer, d: Decoding, row: Row, guard: Given) -> None:
    """No row: the instruction has no effect."""


_ROWS: dict[str, Adder] = {
    **dict.fromkeys(
        (
            f"{what}.{space}"
            for what in ("load", "store")
            for space in ("global", "generic", "shared", "const", "local", "param", "param::func", "cluster")
        ),
        _access,
    ),
    **dict.fromkeys((f"update.{space}" for space in ("global", "generic", "shared", "local", "cluster")), _update),
    **dict.fromkeys(
        (f"vector update.{space}" for space in ("global", "generic", "shared", "local", "cluster")), _vectors
    ),
    "store matrices": _matrices,
    "barrier": _barrier,
    "meet": _plain(flow.meet_warp),
    "shuffle": _plain(warps.shuffle),
    "vote": _plain(warps.vote),
    "reduce": _plain(warps.reduce),
    "elect": _plain(warps.elect),
    "copy": _copy,
    "commit": _plain(copies.commit),
    "wait": _plain(copies.wait),
    "load matrices": _matrices,
    "product": _product,
    "group product": _group_product,
    "commit products": _asynchronous(warpgroups.commit_products),
    "wait for products": _asynchronous(warpgroups.wait_for_products),
    "show writes": _asynchronous(warpgroups.show_writes),
    "show mbarriers": _asynchronous(mbarriers.fence_initialisation),
    "mbarrier init": _mbarrier(mbarriers.initialise),
    "mbarrier inval": _mbarrier(mbarriers.invalidate),
    "mbarrier bytes": _mbarrier(mbarriers.transact),
    "mbarrier arrive": _arrive,
    "mbarrier wait": _wait_for_phase,
    **dict.fromkeys(("bulk load", "bulk store", "box load", "box store"), _bulk),
    "commit stores": _asynchronous(bulk_copies.commit_stores),
    "wait for stores": _asynchronous(bulk_copies.wait_for_stores),
    "branch": _branch,
    "end": _end,
    "whole warp": _plain(flow.require_warp),
    "divide": _divide,
    "nothing": _nothing,
}
