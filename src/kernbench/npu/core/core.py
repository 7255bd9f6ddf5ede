"""The core object of a kernel: allocates tiles, moves data, computes, sets and waits for flags.

Everything is executed at once, in program order, and recorded. Whether the pipes could have executed it in another
order is checked afterwards, on the recorded rows (see `order`).
"""

from collections.abc import Mapping
from sys import _getframe
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.common.dtypes import DTYPES, ITEMSIZE, Array, dtype_name
from kernbench.common.errors import unknown
from kernbench.npu.core.forms import FORMS, in_space, move_pipe
from kernbench.npu.core.tiles import POISON, Tile, check_shape, describe
from kernbench.npu.isa.mistakes import refusing
from kernbench.npu.isa.operations import OPERATIONS, Operation
from kernbench.npu.isa.units import (
    ALIGNMENT,
    ALL,
    EVENTS,
    LANES,
    OUTPUT,
    PIPE_NUMBER,
    PIPES_OF,
    REACHED,
    SPACES_OF,
    UB,
    S,
    V,
    capacities,
)
from kernbench.npu.recording.calls import Calls
from kernbench.npu.recording.record import NONE, ROW, TileKey
from kernbench.npu.tasks.caching import Cache

if TYPE_CHECKING:
    from kernbench.npu.tasks.task import Block, Context
    from kernbench.npu.tasks.tensors import ReadValue

__kernbench_internal__ = True


class Core:
    """One lane of a cluster: AIC (lane 0) or an AIV (lanes 1 and 2).

    `block_idx`, `block_num` and `sub_block_id` (which AIV) say which part of the work belongs to this core.
    """

    def __init__(self, lane: int, context: "Context", root: CodeType):
        self.lane = lane
        self.context = context
        self.tables = context.recording.tables
        self.sites = context.sites
        self.tile_cache: dict[object, Tile] = {}
        self.block: Block
        self.block_idx = 0
        self.block_num = 1
        self._rows = context.recording.rows
        self._append = self._rows.append
        self.calls = Calls(context.sites, root)
        # the frame that gave the last row; referenced, so that no later frame can reuse its address
        self._frame: FrameType | None = None
        self._code = 0
        self._memo: dict[object, bytes] = {}
        self._codes: list[object] = []
        sizes = capacities(context.chip.spaces)
        self._sizes = {space: sizes[space] for space in SPACES_OF[lane] if sizes[space]}
        self._arenas: dict[str, Array] = {}
        if context.carries_data:
            self._arenas = {s: np.full(n, POISON, np.uint8) for s, n in self._sizes.items()}
        self._used = dict.fromkeys(self._sizes, 0)
        self._free = dict.fromkeys(self._sizes, 0)
        self._allocated: dict[object, tuple[Tile, int]] = {}
        self._cache = Cache()
        # fill patterns of one element, by its size in bytes
        self._element_patterns: dict[int, int] = {}
        # the cores of the block, by lane
        self.mates: Mapping[int, Core] = {}

    def __repr__(self) -> str:
        return f"<{LANES[self.lane]} of block {self.block_idx} of {self.block_num}>"

    @property
    def sub_block_id(self) -> int:
        """Which AIV of the cluster this is: 0 or 1; 0 on the AIC."""
        return max(0, self.lane - 1)

    @property
    def carries_data(self) -> bool:
        """Whether values are computed, or only shapes."""
        return self.context.carries_data

    def begin(self, block: "Block", index: int, count: int) -> None:
        """Prepare for another block: fresh, poisoned memories."""
        self.block = block
        self.block_idx, self.block_num = index, count
        for space, used in self._used.items():
            if used:
                self._arenas[space][:used] = POISON
            self._free[space] = 0

    def end(self) -> None:
        """The block has ended; references to its kernel are dropped."""
        self._frame = None

    # Tiles

    def arena(self, space: str) -> Array | None:
        """The bytes of one memory; None in a run without data."""
        return self._arenas.get(space)

    def touched(self, space: str, end: int) -> None:
        """Record how far a memory is used: only that part is poisoned again before the next block."""
        self._used[space] = max(self._used[space], end)

    def tile(
        self,
        space: str,
        shape: tuple[int, int],
        dtype: object = "f32",
        offset: int = 0,
        valid: tuple[int, int] | None = None,
        layout: str = "row",
        name: str = "",
    ) -> Tile:
        """Create a tile at a given byte offset."""
        shape, valid = _pair(shape), None if valid is None else _pair(valid)
        key = (space, offset, shape, dtype if dtype in DTYPES else dtype_name(dtype), layout, valid or shape)
        found = self.tile_cache.get((key, NONE, name))
        return self._place(key, name) if found is None else found

    def alloc(
        self,
        space: str,
        shape: tuple[int, int],
        dtype: object = "f32",
        valid: tuple[int, int] | None = None,
        layout: str = "row",
        name: str = "",
    ) -> Tile:
        """Create a tile behind those that this block has allocated so far."""
        shape, valid = _pair(shape), None if valid is None else _pair(valid)
        offset = self._free.get(space, 0)
        key = (space, offset, shape, dtype, valid, layout, name)
        found = self._allocated.get(key)
        if found is None:
            self._known_space(space)
            tile = self.tile(space, shape, dtype, offset, valid, layout, name)
            found = self._allocated[key] = (tile, -(-(offset + tile.nbytes) // ALIGNMENT) * ALIGNMENT)
        self._free[space] = found[1]
        return found[0]

    def _known_space(self, space: str) -> None:
        if space not in self._sizes:
            self.context.fail("misuse", unknown(f"memory of an {LANES[self.lane]}", space, self._sizes))

    def _size(self, space: str) -> int:
        """Bytes of a memory that the core may have tiles in: its own, or one of another core of its block."""
        owner, memory = REACHED[self.lane].get(space, (self.lane, ""))
        if memory and self.context.chip.isa.cross_core == "single" and owner in self.mates:
            return capacities(self.context.chip.spaces)[memory]
        self._known_space(space)
        return self._sizes[space]

    @refusing
    def _place(self, key: TileKey, name: str) -> Tile:
        space, offset, shape, dtype, _, _ = key
        size = self._size(space)
        check_shape(key)
        tile = "tile " + describe(name, space, offset, shape, dtype)
        end = offset + shape[0] * shape[1] * ITEMSIZE[dtype]
        if offset < 0:
            message = f"{tile} begins {-offset} bytes before {space}, whose first byte is 0"
            self.report("tile-bounds", message, "check how its offset is worked out; the lowest is 0", key)
        elif end > size:
            self.report(
                "tile-bounds",
                f"{tile} ends at byte {end:#x} of {space}, which has {size:#x} ({size // 1024} KiB)",
                "place it lower, make tiles smaller, or let tiles that are never live together share their bytes",
                key,
            )
        if offset % ALIGNMENT:
            self.report("misaligned", f"{tile} does not begin at a multiple of {ALIGNMENT}", "round its offset up", key)
        return self.tile_cache.setdefault((key, NONE, name), Tile(self, key, NONE, name))

    # Recording

    def _entered(self, frame: FrameType) -> None:
        """The next rows come from another function than the last one."""
        self._frame, self._code = frame, id(frame.f_code)
        self.calls.note(frame, len(self._rows))

    @refusing
    def _new(self, op: Operation, frame: FrameType, tiles: tuple[Tile, ...]) -> tuple[int, str]:
        """Check operands that are used together for the first time; returns the site and the pipe."""
        for tile in tiles:
            if not isinstance(tile, Tile):
                self.context.fail("misuse", f"{op.name}: a tile is wanted, got {tile!r}")
            if tile.core is not self:
                self.context.fail("misuse", f"{op.name}: {tile.describe()} belongs to another core")
        pipe = op.pipe or (move_pipe(op.name, *tiles[:2]) if op.form in ("move", "extract") else "")
        if pipe and pipe not in PIPES_OF[self.lane]:
            self.context.fail("misuse", f"{op.name} runs on pipe {pipe}, which an {LANES[self.lane]} does not have")
        if op.pipe == "V":
            in_space(op.name, UB, *tiles)
        if op.form in FORMS and op.form not in ("sort",):
            FORMS[op.form][2](op.name, *tiles)
        # the code object must stay alive, so that its address is not reused
        self._codes.append(frame.f_code)
        return self.sites.here(3), pipe

    def record(self, op: Operation, frame: FrameType, key: object, dst: Tile, sources: tuple[Tile, ...]) -> bytes:
        """The row of a plain operation, made once for each call and set of tiles."""
        site, pipe = self._new(op, frame, (dst, *sources))
        numbers = [t.number for t in sources]
        if op.form == "update" or op.name == "tmatmul_acc":
            numbers.append(dst.number)
        a, b, c = (*numbers, NONE, NONE, NONE)[:3]
        row = ROW.pack(op.code, self.lane, PIPE_NUMBER[pipe], site, dst.number, a, b, c, 0, 0)
        self._memo[key] = row
        return row

    def report(self, kind: str, message: str, hint: str, subject: object = None) -> None:
        """Report a finding at the kernel's line."""
        self.context.report(kind, message, hint, self.block, subject)

    # Order

    def set_flag(self, src: str, dst: str, event: int) -> None:
        """Raise the flag for pipe `dst` when all that was issued to pipe `src` so far is done."""
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        key = (_SET, self._code + frame.f_lasti, src, dst, event)
        row = self._memo.get(key)
        self._append(self._flag(OPERATIONS["set_flag"], frame, key, src) if row is None else row)

    def wait_flag(self, src: str, dst: str, event: int) -> None:
        """Pipe `dst` waits until `src` has raised the flag, and clears it."""
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        key = (_WAIT, self._code + frame.f_lasti, src, dst, event)
        row = self._memo.get(key)
        self._append(self._flag(OPERATIONS["wait_flag"], frame, key, dst) if row is None else row)

    def emit_flags(self, frame: FrameType, src: str, dst: str, event: int = 0) -> None:
        """The set and wait of a flag that an operation inserts itself, at the line that calls it."""
        for name, owner in (("set_flag", src), ("wait_flag", dst)):
            op = OPERATIONS[name]
            key = (op.code, self._code + frame.f_lasti, src, dst, event)
            row = self._memo.get(key)
            self._append(self._flag(op, frame, key, owner) if row is None else row)

    def pipe_barrier(self, pipe: str) -> None:
        """`pipe` (or ALL) starts nothing new until all that was issued to it so far is done."""
        # no finding refers to the row of a barrier, so its caller need not be found
        frame = _getframe(1)
        key = (_BARRIER, id(frame.f_code) + frame.f_lasti, pipe)
        row = self._memo.get(key)
        if row is None:
            op = OPERATIONS["pipe_barrier"]
            site, _ = self._new(op, frame, ())
            if pipe != ALL:
                self._check_pipe("pipe_barrier", pipe)
            # a Python kernel runs on all chips: where V orders what depends on each other, its barrier says just that
            if pipe != V or self.context.chip.isa.vector != "order":
                self.check_barrier(pipe)
            number = NONE if pipe == ALL else PIPE_NUMBER[pipe]
            row = ROW.pack(op.code, self.lane, max(0, number), site, NONE, number, NONE, NONE, 0, 0)
            self._memo[key] = row
        self._append(row)

    def check_barrier(self, pipe: str) -> None:
        """Refuse a barrier of a pipe for which the chip's compiler has none."""
        isa, name = self.context.chip.isa, self.context.chip.name
        taken = isa.barriers.split(", ")
        if isa.barriers != "any" and pipe not in (*taken, ALL):
            hint = "order pipes by set_flag and wait_flag, or wait for all by pipe_barrier(ALL)"
            if pipe == V and isa.vector == "order":
                hint = f"leave it out: on {name} dependent operations of V are in order"
            message = f"pipe_barrier({pipe}): the compiler of {name} refuses it; it takes {', '.join(taken)} and ALL"
            self.context.fail("misuse", message, hint)

    def pipe_sync(self) -> None:
        """The end of a kernel: its program waits until the pipe of its results (FIX of an AIC, MTE3 of an AIV) has
        stored them. The hardware does not wait for pipes when a kernel ends.
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self.emit_flags(frame, OUTPUT[self.lane], S, EVENTS - 1)

    def _flag(self, op: Operation, frame: FrameType, key: tuple[int, int, str, str, int], owner: str) -> bytes:
        src, dst, event = key[2:]
        site, _ = self._new(op, frame, ())
        for pipe in (src, dst):
            self._check_pipe(op.name, pipe)
        if src == dst:
            self.context.fail("misuse", f"{op.name}({src}, {dst}): a flag goes between two pipes", "use pipe_barrier")
        if isinstance(event, bool) or not isinstance(event, int) or not 0 <= event < EVENTS:
            self.context.fail("misuse", f"{op.name}: event {event!r}; events are 0 to {EVENTS - 1}")
        numbers = (PIPE_NUMBER[src], PIPE_NUMBER[dst], event)
        row = ROW.pack(op.code, self.lane, PIPE_NUMBER[owner], site, NONE, *numbers, 0, 0)
        self._memo[key] = row
        return row

    def _check_pipe(self, name: str, pipe: str) -> None:
        if pipe not in PIPES_OF[self.lane]:
            self.context.fail(
                "misuse", f"{name}: {unknown(f'pipe of an {LANES[self.lane]}', pipe, PIPES_OF[self.lane])}"
            )


_SET, _WAIT, _BARRIER = (OPERATIONS[name].code for name in ("set_flag", "wait_flag", "pipe_barrier"))


def _pair(sizes: "tuple[ReadValue | float, int]") -> Any:
    """Rows and columns as a tuple; anything else is returned as it is, and refused when the tile is checked."""
    return sizes if type(sizes) is tuple else tuple(sizes) if isinstance(sizes, (list, np.ndarray)) else sizes
