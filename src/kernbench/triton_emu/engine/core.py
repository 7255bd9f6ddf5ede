"""The engine under `tl`: gives values scratch space and numbers, records a row for each command, computes where there
is data, and says what is wrong at the kernel's line.
"""

from functools import cache
from math import prod
from operator import index
from typing import Any, NoReturn

import numpy as np

from kernbench.common.dtypes import DTYPES, FLOATS, ITEMSIZE, Array, dtype_name, poisoned
from kernbench.common.errors import KernelError, MisuseError
from kernbench.common.pe_commands import HBM, NO_BLOCK, OPERATIONS, SCRATCH, TensorHandle
from kernbench.result.finding import Other, SourceLocation
from kernbench.result.recording import FIRST_VIEW, NONE, ScratchType, Stream, Tables
from kernbench.safety.memory import WINDOW
from kernbench.safety.source_locations import SiteTable
from kernbench.triton_emu.pe.port import Port
from kernbench.triton_emu.pe.scratch import Block, ScratchPool
from kernbench.triton_emu.repeating.affine import Affine
from kernbench.triton_emu.repeating.loops import Watch
from kernbench.triton_emu.repeating.recorder import Traced
from kernbench.triton_emu.repeating.routines import Routines
from kernbench.triton_emu.repeating.values import MOST_TRACED
from kernbench.triton_emu.stacking.forms import Compute

__kernbench_internal__ = True

Shape = tuple[int, ...]
CODE = {name: row.code for name, row in OPERATIONS.items()}
_LIVE_SHOWN = 8
# times the scratch memory that a kernel may use before it is stopped
_HOPELESS = 64
_MOST_ELEMENTS = 1 << 34
_NO_MASK = "the second argument of load is a shape; there are no masks: load the part that exists"
_new_handle = object.__new__


class Core:
    """Recording, scratch and execution for one PE: the engine that the parts of a `TLContext` share."""

    def __init__(
        self,
        stream: Stream,
        sites: SiteTable,
        port: Port,
        scratch_base: int,
        scratch_size: int,
        max_steps: int,
    ):
        self.stream = stream
        self.steps = 0
        self._views_made = 0
        self._tables: Tables = stream.tables
        self._rows = stream.rows
        self._max_steps = max_steps
        self._checkpoint = min(stream.rows.room, max_steps + 1)
        self._sites = sites
        self._port: Port = port
        self._carries_data = port.carries_data
        self._scratch = ScratchPool(scratch_base, scratch_size, self._location_of, self._overflow, self)
        self._known_shapes: dict[Shape, Shape] = {}
        # what was refused so far (kind, message, hint, location), whether or not the kernel caught it
        self.refused: dict[tuple[str, str, str, SourceLocation], None] = {}
        # whether iterations that are alike are recorded without running, and one of them was not as predicted
        self.folds = self.folded_wrongly = False
        # whether messages of a repeated routine were passed before its commands were recorded
        self.passed_unseen = False
        # the same for a run with data; while a loop is watched there: how each value since then came about
        self.folds_values = False
        self.trace: list[Traced] | None = None
        self.watch = Watch(self)
        self.routines = Routines(self)
        # handles that the kernel built itself, by address
        self.adopted = 0
        # how often the program asked which one it is
        self.ids_asked = 0
        # what the kernel is handed, which has this engine; and what of it all a kernel's loop may only name, not change
        self.tl: Any = None
        self.opaque: tuple[type, ...] = ()
        # what parts use, bound once for all of them
        self.lent_state = (sites, self._tables, self._scratch, self._carries_data)
        self.lent_steps = (
            self._fail, self._emit, self._record, self._view, self._read, self._data, self._missing_data
        )  # fmt: skip
        self.lent_values = (self._handle, self._scalar, self._dtype, self._fit)
        self.lent_shapes = (self._shape, self._whole_numbers, self._axis, self._kind, self._require_room)
        # bytes of a value at which a kernel is stopped before the value is computed; only data takes our memory
        self._hopeless = _HOPELESS * max(scratch_size, 1 << 20) if self._carries_data else 1 << 62
        # what was reported of each line whose value did not fit
        self._overflows: dict[int, tuple[str, tuple[Other, ...]]] = {}

    # Locations and errors

    def _location_of(self, handle: Any) -> SourceLocation | None:
        """The kernel line that made the value of a handle or block."""
        producer = self.stream.producer(handle.number)
        return None if producer < 0 else self._tables.sites[self.stream.site(producer)]

    def _fail(self, kind: str, message: str, hint: str = "") -> NoReturn:
        """Refuse what the kernel asks for, at its own line."""
        location = self._tables.sites[self._sites.here()]
        self.refused[kind, message, hint, location] = None
        raise KernelError(kind, message, hint, location)

    def _overflow(self, size: int) -> None:
        """Report a value that does not fit, in full once for each line; give up on a kernel that only grows."""
        site = self._sites.here()
        known = self._overflows.get(site)
        if known is None:
            known = self._overflows[site] = self._overflow_text(size)
        message, others = known
        hint = "use smaller blocks, drop handles that are no longer needed (del), or write in place (out=)"
        self._port.report("scratch-overflow", message, hint, self._tables.sites[site], others)
        if self._carries_data and self._scratch.used + size > self._hopeless:
            self._fail("scratch-overflow", f"{message}. The kernel is stopped here", hint)

    def _require_room(self, nbytes: int) -> None:
        """Stop a kernel before so many bytes are computed that it would be stopped for their size afterwards."""
        if nbytes > self._hopeless:
            self._overflow(nbytes)

    def _kind(self, shape: Shape, dtype: str) -> ScratchType:
        """The type of a value that is about to be computed."""
        kind = self._tables.scratch_type(shape, dtype)
        if kind.nbytes > self._hopeless:
            self._overflow(kind.nbytes)
        return kind

    def _overflow_text(self, size: int) -> tuple[str, tuple[Other, ...]]:
        pool = self._scratch
        gap = pool.largest_gap()
        free = pool.size - pool.used
        blocks = list(pool.live())
        shown = [self._describe_block(b) for b in blocks[:_LIVE_SHOWN]]
        if len(blocks) > _LIVE_SHOWN:
            rest = blocks[_LIVE_SHOWN:]
            shown.append(f"{len(rest)} smaller ones, {_size(sum(b.nbytes for b in rest))} together")
        broken = f", the largest gap {_size(gap)}" if gap < free else ""
        live = ". Live: " + "; ".join(shown) if shown else ", and that is all it has"
        message = (
            f"a value of {_size(size)} does not fit the scratch memory: {_size(pool.used)} of {_size(pool.size)} are "
            f"in use{broken}{live}"
        )
        return message, tuple(Other("made a live value", self._location_of(b)) for b in blocks[:3])

    def _describe_block(self, block: Block) -> str:
        if block.number < 0:
            return f"{_size(block.nbytes)} for a receive under way"
        shape, dtype, _ = self._tables.types[self.stream.type_of(block.number)]
        where = self._location_of(block)
        made = f" from {where} `{where.text}`" if where else ""
        return f"{'x'.join(map(str, shape))} {dtype} ({_size(block.nbytes)}){made}"

    # Handles

    def _view(
        self,
        parent: TensorHandle,
        shape: Shape,
        strides: Shape | None,
        offset: int = 0,
        data: Array | None = None,
    ) -> TensorHandle:
        """A handle on the same block as `parent`, `offset` elements on; no command."""
        handle: TensorHandle = _new_handle(TensorHandle)
        handle.block = block = parent.block
        block.users += 1
        handle.addr = parent.addr + offset * ITEMSIZE[parent.dtype]
        handle.shape = shape
        handle.dtype = parent.dtype
        handle.nbytes = prod(shape) * ITEMSIZE[parent.dtype]
        handle.data = data
        handle.space = parent.space
        handle.pinned = parent.pinned
        handle.strides = strides
        number = parent.number
        self._number_view(handle, number if number >= NONE else self.stream.producer(number))
        return handle

    def _number_view(self, handle: TensorHandle, producer: int) -> None:
        handle.type = self._tables.type_number(handle.shape, handle.dtype, handle.space)
        handle.number = handle.id = FIRST_VIEW - self._views_made
        self.stream.views.add(handle.type, producer, handle.addr)
        self._views_made += 1

    def adopt(self, handle: TensorHandle) -> None:
        """Take in a handle the kernel built itself: tie it to the memory it names, so that it sees its bytes."""
        self.adopted += 1
        identity = handle.id
        handle.nbytes = prod(handle.shape) * ITEMSIZE[handle.dtype]
        block = self._scratch.block_at(handle.addr, handle.nbytes) if handle.space != HBM else None
        producer = -1
        if block is not None:
            handle.block = block
            block.users += 1
            block.pinned = block.pinned or handle.pinned
            producer = self.stream.producer(block.number)
        self._number_view(handle, producer)
        handle.id = identity
        handle.data = self._adopted_data(handle, block)
        if self._carries_data and block is not None:
            self._check_view(handle, block)

    def _check_view(self, handle: TensorHandle, block: Block) -> None:
        """A view the kernel built must be aligned, and must not read one float type as another."""
        _, held, _ = (
            self._tables.types[self.stream.type_of(block.number)] if block.number != -1 else ((), handle.dtype, "")
        )
        where = self._tables.sites[self._sites.here()]
        if (handle.addr - block.addr) % ITEMSIZE[handle.dtype]:
            message = f"{handle!r} begins at byte {handle.addr - block.addr} of the value it views"
            hint = f"{handle.dtype} values begin at multiples of {ITEMSIZE[handle.dtype]} bytes"
            self._port.report("misaligned", message, hint, where)
        elif held != handle.dtype and held in FLOATS and handle.dtype in FLOATS:
            message = f"{handle!r} views a value of {held} as {handle.dtype}"
            self._port.report("type-confusion", message, f"build it with dtype='{held}', and cast with .to(...)", where)

    def _adopted_data(self, handle: TensorHandle, block: Block | None) -> Array | None:
        """The array of a handle the kernel built: what it brought, unless that belongs to another address."""
        target = DTYPES[handle.dtype].numpy
        given = handle.data
        fits = isinstance(given, np.ndarray) and given.dtype == target and given.size == prod(handle.shape)
        if block is None or block.data is None:
            return given.reshape(handle.shape) if fits else None
        start = handle.addr - block.addr
        if fits and self._belongs(given, block, start):
            return given.reshape(handle.shape)  # type: ignore[no-any-return]
        raw = np.ascontiguousarray(block.data).reshape(-1).view(np.uint8)
        if start + handle.nbytes > raw.size:
            return None
        return raw[start : start + handle.nbytes].view(target).reshape(handle.shape)

    def _belongs(self, given: Array, block: Block, start: int) -> bool:
        """Whether an array may stand for the bytes at `start` of `block`: it is them, or belongs to no live value."""
        offset = _offset_in(block.data, given)
        if offset is not None:
            return offset == start
        return not any(b.data is not None and np.may_share_memory(b.data, given) for b in self._scratch.live())

    def _data(self, handle: TensorHandle) -> Array | None:
        """The operand's array, None in a run without data."""
        data = handle.data
        if handle.block.live_in is not self._scratch or (data is None and self._carries_data):
            return self._missing_data(handle)
        return data  # type: ignore[no-any-return]

    def _read(self, op: str, value: Any) -> Array | None:
        """The array of an operand that must be a handle, None in a run without data."""
        if type(value) is not TensorHandle:
            self._handle(op, value)
        data = value.data
        if value.block.live_in is not self._scratch or (data is None and self._carries_data):
            return self._missing_data(value)
        return data  # type: ignore[no-any-return]

    def _missing_data(self, handle: TensorHandle) -> Array | None:
        """An operand that is not simply a live value of this PE with its array."""
        block = handle.block
        if handle.type < 0:
            # built before the kernel ran
            self.adopt(handle)
            block = handle.block
        if block.replaced:
            return self._unreadable(handle, "its space was taken over by a later value (out=)")
        if block is not NO_BLOCK and block.pool is not self._scratch:
            return self._unreadable(handle, "it is a value of another PE, whose scratch this one cannot reach")
        if handle.data is not None:
            return handle.data  # type: ignore[no-any-return]
        if block is NO_BLOCK and self._port.tensor_name(handle.addr) is not None:
            return self._in_place(handle)
        if not self._carries_data:
            return None
        begins = self._scratch.block_at(handle.addr, 1)
        if begins is not None and begins.arriving is not None:
            return self._unreadable(handle, "the receive that fills it has not been waited for")
        if begins is not None:
            over = handle.addr + handle.nbytes - begins.addr - begins.nbytes
            return self._unreadable(handle, f"it runs {over} bytes past the end of the value it begins in")
        return self._unreadable(handle, f"no value lies at scratch address {handle.addr:#x}")

    def _in_place(self, handle: TensorHandle) -> Array | None:
        """An operand in HBM: the DMA engine brings it, as if the kernel had loaded it."""
        site = self._sites.here()
        where = self._tables.sites[site]
        data, kind = self._port.load(handle.addr, handle.shape, handle.strides, handle.dtype, where)
        pattern = self._tables.pattern(handle.shape, handle.strides, ITEMSIZE[kind])
        brought = self._emit(
            "load", site, self._tables.scratch_type(handle.shape, kind), data, x=handle.addr, y=pattern
        )
        handle.number, handle.type = brought.number, brought.type
        return data

    def _unreadable(self, handle: TensorHandle, why: str) -> Array | None:
        self._port.report(
            "uninitialised-read",
            f"{handle!r} is read, but {why}",
            "use handles of this PE only, build views from the addr of a live one, and go on with what out= returned",
            self._tables.sites[self._sites.here()],
        )
        return poisoned(handle.shape, handle.dtype) if self._carries_data else None

    # Commands

    def _traced(self, number: int, compute: Compute, *operands: object) -> None:
        """While a loop is watched in a run with data: how the next value, or view, comes about.

        The most frequent operations do this themselves.
        """
        if self.trace is not None:
            given = [(one.number, None) if type(one) is TensorHandle else (NONE, one) for one in operands]
            self.trace.append((number, compute, given))

    @property
    def next_view(self) -> int:
        """The number that the next view will have."""
        return FIRST_VIEW - self._views_made

    def _record(self, op: str, site: int, a: int, x: int, y: int) -> None:
        """One command row that makes no value."""
        rows = self._rows
        rows.pack(rows.chunk, rows.offset, CODE[op], site, NONE, a, NONE, NONE, NONE, x, y)
        rows.offset += rows.size
        self.steps = steps = self.steps + 1
        if steps >= self._checkpoint:
            self._check_budget(site)

    def _emit(
        self,
        op: str,
        site: int,
        kind: ScratchType,
        data: Array | None,
        a: int = NONE,
        b: int = NONE,
        c: int = NONE,
        x: int = 0,
        y: int = 0,
        out: TensorHandle | None = None,
    ) -> TensorHandle:
        """One command row, and the handle of the value it makes: on a fresh block, or in the place of `out`."""
        steps = self.steps
        if out is None:
            pool, nbytes = self._scratch, kind.nbytes
            shelf = pool.at_hand.get(nbytes)
            if shelf:
                # as `allocate` does it: every command comes here
                block = shelf.popleft()
                block.users = 1
                block.used = nbytes
                pool.moment += 1
                pool.used = used = pool.used + block.nbytes
                if used > pool.peak:
                    pool.peak = used
            else:
                block = pool.allocate(nbytes)
            handle: TensorHandle = _new_handle(TensorHandle)
            handle.block = block
            handle.addr = block.addr
            handle.shape = kind.shape
            handle.dtype = kind.dtype
            handle.type = kind.number
            handle.nbytes = nbytes
            handle.data = block.data = data
            handle.space = SCRATCH
            handle.pinned = False
            handle.strides = None
            handle.number = block.number = handle.id = steps
        else:
            handle = self._into(out, kind, data, site)
        rows = self._rows
        rows.pack(rows.chunk, rows.offset, CODE[op], site, kind.number, a, b, c, handle.addr, x, y)
        rows.offset += rows.size
        self.steps = steps = steps + 1
        if steps >= self._checkpoint:
            self._check_budget(site)
            self._port.pause()
        return handle

    def _check_budget(self, site: int) -> None:
        """Every so often: make room for more rows, and stop a kernel that has used up its steps or its time."""
        self._rows.turn()
        if self.trace is not None and len(self.trace) > 2 * MOST_TRACED:
            # nothing so long is repeated, and what is missing shows it
            self.trace.clear()
        if self.steps > self._max_steps or self._port.is_late():
            self._port.over_budget(self.steps, self._tables.sites[site])
        self._checkpoint = min(self.steps + self._rows.room, self._max_steps + 1)

    def _into(self, out: TensorHandle, kind: ScratchType, data: Array | None, site: int) -> TensorHandle:
        """Let the new value take over the space of `out`, which becomes its handle; other views of it end."""
        if type(out) is not TensorHandle or out.type < 0:
            self._handle("out=", out)
        block = out.block
        if (
            block.live_in is not self._scratch
            or out.nbytes != block.used
            or out.addr != block.addr
            or out.strides is not None
        ):
            self._fail("misuse", f"out= needs a whole live scratch value of this PE, not {out!r}")
        if kind.nbytes > block.nbytes:
            self._fail(
                "shape", f"out= holds {block.nbytes} bytes, the result {kind.shape} {kind.dtype} needs {kind.nbytes}"
            )
        if block.sends or block.arriving is not None:
            self._report_in_flight(out, block, site)
        if block.users > 1:
            # other handles on the old value keep the old block object: reading one is a finding from now on
            block.users -= 1
            block = out.block = self._scratch.replace(block)
        if out.type != kind.number:
            out.shape, out.dtype, out.nbytes, out.type = kind.shape, kind.dtype, kind.nbytes, kind.number
        block.used = kind.nbytes
        out.data = block.data = data
        out.number = out.id = block.number = self.steps
        return out

    def _report_in_flight(self, out: TensorHandle, block: Block, site: int) -> None:
        """`out` is about to be overwritten while a send reads it or a receive will fill it."""
        for pending in (*block.sends, block.arriving):
            if pending is None:
                continue
            doing = "send may still be reading" if pending.verb == "send" else "receive will still fill"
            self._port.report(
                "race",
                f"{out!r} is overwritten while an asynchronous {doing} it",
                f"wait for the {pending.verb} before writing in place, or give the result space of its own",
                self._tables.sites[site],
                (Other(f"the {pending.verb} in flight", pending.where),),
            )

    def _scalar(self, value: Any) -> float | int | bool:
        """A Python number from whatever a kernel wrote as one."""
        kind = type(value)
        if kind is float or kind is int or kind is bool:
            return value  # type: ignore[no-any-return]
        if kind is Affine:
            return value.seen()  # type: ignore[no-any-return]
        value = getattr(value, "value", value)
        if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
            value = value.item()
        if isinstance(value, (int, float)):
            return value
        self._fail(
            "misuse",
            f"{value!r} is neither a handle nor a number",
            _not_a_handle(value),
        )

    def _handle(self, op: str, value: object) -> TensorHandle:
        if type(value) is TensorHandle:
            if value.type < 0:
                self.adopt(value)
            return value
        else:
            self._fail("misuse", f"{op} needs a tensor handle; got {value!r}", _not_a_handle(value))

    def _shape(self, dimensions: object) -> Shape:
        """A shape as a tuple of sizes, from an int or a sequence."""
        known = self._known_shapes.get(dimensions) if type(dimensions) is tuple else None
        if known is not None:
            return known
        sizes = self._whole_numbers(dimensions)
        if any(n < 0 for n in sizes):
            self._fail("shape", f"a shape has no negative sizes; got {sizes}")
        if prod(sizes) > _MOST_ELEMENTS:
            self._fail("shape", f"a tile of shape {sizes} has {prod(sizes):,} elements; no scratch memory holds that")
        return self._known_shapes.setdefault(sizes, sizes)

    def _whole_numbers(self, values: Any) -> Shape:
        """A tuple of ints from an int or a sequence of them."""
        if type(values) is TensorHandle and values.size != 1:
            self._fail("shape", f"a sequence of whole numbers is wanted; got {values!r}", _NO_MASK)
        try:
            return tuple(index(n) for n in ((values,) if hasattr(values, "__index__") else values))
        except TypeError:
            self._fail("shape", f"a sequence of whole numbers is wanted; got {values!r}")

    def _fit(self, number: float, dtype: str) -> None:
        """A number that an integer type cannot hold is a mistake."""
        if dtype in FLOATS:
            return
        low, high = _bounds(dtype)
        if not low <= number <= high:
            self._fail("dtype", f"{number} does not fit {dtype}", f"{dtype} holds {low} to {high}")

    def _dtype(self, dtype: object) -> str:
        try:
            return dtype_name(dtype)
        except MisuseError as error:
            self._fail("dtype", str(error))

    def _axis(self, op: str, handle: TensorHandle, axis: int) -> int:
        if not hasattr(axis, "__index__") or not -len(handle.shape) <= axis < len(handle.shape):
            count = len(handle.shape)
            hint = (
                f"one of 0 to {count - 1}, or -{count} to -1" if count else "a handle without axes has none to choose"
            )
            self._fail("shape", f"{op}: axis {axis!r} of a handle of shape {handle.shape}", hint)
        return axis % len(handle.shape)

    def _provenance(self, handle: TensorHandle) -> str:
        """Which tensors a value comes from, by name, following the recorded commands back to their loads."""
        pending, seen, names = [handle.number], set(), set()
        while pending:
            producer = self.stream.producer(pending.pop())
            if producer < 0 or producer in seen:
                continue
            seen.add(producer)
            row = self.stream.rows[producer]
            if row.op == CODE["load"]:
                names.add(self._port.tensor_name(row.x) or f"the memory at {row.x:#x}")
            pending.extend((row.a, row.b, row.c))
        made = self._location_of(handle)
        origin = f" loaded from {', '.join(repr(n) for n in sorted(names))}" if names else ""
        return f"the value{origin}" + (f", made at {made} `{made.text}`" if made else "")


@cache
def _bounds(dtype: str) -> tuple[int, int]:
    """The least and the largest number that an integer type holds."""
    if dtype == "i1":
        return 0, 1
    limits = np.iinfo(DTYPES[dtype].numpy)
    return int(limits.min), int(limits.max)


def _not_a_handle(value: object) -> str:
    """What to do with something used where a handle is wanted."""
    if hasattr(value, "wait"):
        return "wait for an asynchronous receive before using it, and go on with the handle that wait() returns"
    if isinstance(value, float) or (isinstance(value, int) and value < WINDOW):
        return "make a value of it with tl.full(shape, number, dtype)"
    if isinstance(value, (list, tuple)):
        return "pass one handle; tl.cat joins several"
    return "load it first"


def _offset_in(base: Array, other: Array) -> int | None:
    """Bytes from the start of `base` to that of `other`, None where `other` lies elsewhere."""
    offset = other.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return offset if 0 <= offset < max(base.nbytes, 1) and np.may_share_memory(base, other) else None


def _size(nbytes: int) -> str:
    """Bytes as people read them."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.4g} {unit}"
    return f"{nbytes} bytes"
