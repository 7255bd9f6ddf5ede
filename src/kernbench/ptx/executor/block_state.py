"""What a thread needs to run blocks: the state of one block after the other, its counts, and what it has written."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.asynchronous.asynchronous import leaves_init_fences_out
from kernbench.ptx.emulator.engine.launch import Launch
from kernbench.ptx.emulator.lanes.slots import ArgumentSlot, Slot, SpecialSlot, SymbolSlot
from kernbench.ptx.emulator.memory.arena import TRACKED, UNWRITTEN
from kernbench.ptx.emulator.memory.pages.allocation import sparse_bytes
from kernbench.ptx.executor.compiling import Warpwide, addresses
from kernbench.ptx.executor.maps import map_row
from kernbench.ptx.executor.ops import layout
from kernbench.ptx.executor.ops.bulk_copies import MAP_WORDS, MOST_MAPS
from kernbench.ptx.executor.ops.clocks import COLUMNS, MOST_MBARRIERS, MOST_UNITED, MOST_VECTORS, VECTOR_BYTES
from kernbench.ptx.executor.ops.copies import MOST_COPIES, MOST_GROUPS
from kernbench.ptx.executor.ops.mbarriers import MBARRIER_BYTES, MOST_NAMED, NAMED_BYTES
from kernbench.ptx.executor.ops.running_blocks import run_blocks
from kernbench.ptx.executor.ops.shadow import ENTRY_WORDS, ROW_BYTES
from kernbench.ptx.executor.ops.warpgroups import PIECE, ROOM_BYTES
from kernbench.ptx.executor.prepared import Prepared, aligned, row_of
from kernbench.ptx.executor.rows import Rows, UnsupportedError

# blocks of a program that a warp may run before the emulator takes over, which knows endless loops
_BUDGET = 1 << 22
_RUN_BLOCKS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """What all threads of a launch share.

    - `first`, `epoch`: the number before that of its first block, and its own (`stamps.Stamps`).
    - `arrays`, `accesses`: its tables (`tables`).
    - `rows_written`: how many rows of memory it may write.
    - `maps`: the addresses of tensor maps that it may use.
    """

    launch: Launch
    rows: Rows
    ready: Prepared
    first: int
    epoch: int
    arrays: Array
    accesses: Array
    rows_written: int
    maps: Sequence[int]
    threads: int


class BlockState:
    """The state of one block after the other, as one thread runs them."""

    def __init__(self, shared: Shared):
        self._shared, self._launch = shared, shared.launch
        self.counts: Array = np.zeros((2, len(shared.launch.program.blocks)), np.int64)
        # rows of memory as they were before they were written
        self._log: Array = sparse_bytes(8 * ENTRY_WORDS * (1 + shared.rows_written)).view(np.int64)
        self._make_launch()
        self._make_block()
        self._make_warps()
        self._make_task()

    def _make_launch(self) -> None:
        words = self.words = np.zeros(layout.LAUNCH_WORDS, np.int64)
        words[layout.LANE_COUNTS], words[layout.WARP_COUNTS] = (row.ctypes.data for row in self.counts)
        words[layout.ARRAYS], words[layout.ARRAY_COUNT] = self._shared.arrays.ctypes.data, len(self._shared.arrays)
        words[layout.ACCESSES] = self._shared.accesses.ctypes.data
        words[layout.STATES] = self._launch.arena.state[1].ctypes.data
        words[layout.CONTENTS] = self._launch.arena.words[1].ctypes.data
        words[layout.LOG], words[layout.DIRTY] = self._log.ctypes.data, self._launch.arena.dirty.ctypes.data
        words[layout.FIRST_SERIAL], words[layout.EPOCH] = self._shared.first, self._shared.epoch
        words[layout.ENTRY], words[layout.THREADS] = self._shared.ready.entry, self._shared.threads

    def _make_block(self) -> None:
        launch = self._launch
        size = -(-max(launch.shared_bytes, 4) // 64) * 64 + 64
        self._template = np.zeros(size, np.uint8)
        for start, end in launch.shared_parts:
            self._template[start:end] = UNWRITTEN | TRACKED
        self._memory = aligned(2 * size + 2 * size)
        block = self.block = np.zeros(layout.BLOCK_WORDS, np.int64)
        at = self._memory.ctypes.data
        self._memory[:] = 0
        block[layout.SHARED], block[layout.SHARED_STATES] = at, at + size
        block[layout.SHARED_WRITES], block[layout.SHARED_READS] = at + 2 * size, at + 3 * size
        block[layout.SHARED_BYTES], block[layout.LAUNCH] = launch.shared_bytes, self.words.ctypes.data
        block[layout.WARPS] = launch.warps_per_cta
        if self._shared.rows.clocked:
            self._make_clocks(size)

    def _make_clocks(self, size: int) -> None:
        """What vector clocks, mbarriers and asynchronous work need."""
        launch, block = self._launch, self.block
        parts = {
            layout.VECTORS_AT: VECTOR_BYTES * (MOST_VECTORS + 1),
            layout.AGENTS_AT: 16 * COLUMNS,
            layout.UNITED_AT: 24 * MOST_UNITED,
            layout.JOINED_AT: VECTOR_BYTES,
            layout.ROOM_AT: ROOM_BYTES,
            layout.SWIZZLES_AT: size // PIECE + 2,
            layout.MBARRIERS_AT: MBARRIER_BYTES * MOST_MBARRIERS,
            layout.MBARRIER_NUMBERS_AT: size // 8 + 2,
            layout.HELD_AT: VECTOR_BYTES * MOST_MBARRIERS,
            layout.DONE_AT: VECTOR_BYTES * MOST_MBARRIERS,
            layout.NAMED_AT: NAMED_BYTES * MOST_NAMED,
            layout.MAPS_AT: 8 * MAP_WORDS * MOST_MAPS,
        }
        self._clocks = {word: sparse_bytes(nbytes) for word, nbytes in parts.items()}
        for word, memory in self._clocks.items():
            block[word] = memory.ctypes.data
        self._known = sparse_bytes(2 * VECTOR_BYTES * launch.warps_per_cta)
        self._clocks[layout.AGENTS_AT].view(np.int64)[1::2] = -1
        self._clocks[layout.UNITED_AT].view(np.int64)[2::3] = -1
        block[layout.CLOCKED] = 1
        block[layout.SHOWS_INITIALISATION] = not leaves_init_fences_out(launch.program)
        maps = self._shared.maps
        table = self._clocks[layout.MAPS_AT].view(np.int64).reshape(MOST_MAPS, MAP_WORDS)
        for number, address in enumerate(maps):
            table[number] = map_row(launch, self._shared.arrays, address)
        block[layout.MAP_COUNT] = len(maps)

    def _make_warps(self) -> None:
        found = self._shared.ready.warps_of(self._launch.block)
        self._alive, self._registers = found.alive, self._shared.ready.registers_of(found)
        count, size = self._registers.shape
        warps = self._warps = np.zeros((count, layout.WARP_WORDS), np.int64)
        # lists of which the warps' words say how long they are
        self._copies = np.empty((count, MOST_COPIES + MOST_GROUPS), np.int64)
        self.block[layout.WARPS_AT] = warps.ctypes.data
        warps[:, layout.REGISTERS] = self._registers.ctypes.data + size * np.arange(count)
        warps[:, layout.BLOCK] = self.block.ctypes.data
        warps[:, layout.COPIES_AT] = self._copies.ctypes.data + 8 * (MOST_COPIES + MOST_GROUPS) * np.arange(count)
        warps[:, layout.GROUPS_AT] = warps[:, layout.COPIES_AT] + 8 * MOST_COPIES
        if self._shared.rows.clocked:
            warps[:, layout.KNOWN_AT] = self._known.ctypes.data + 2 * VECTOR_BYTES * np.arange(count)
            warps[:, layout.ELECTED_AT] = warps[:, layout.KNOWN_AT] + VECTOR_BYTES
        for offset, slot in self._shared.ready.given:
            row_of(self._registers, offset, slot.dtype)[:] = np.asarray(self._value(slot))

    def _value(self, slot: Slot) -> object:
        """The value of a slot, the same for all lanes."""
        launch = self._launch
        if isinstance(slot, ArgumentSlot):
            # its row of the program's own table, which may be numbered otherwise
            return launch.parameter(slot.name, slot.offset, slot.dtype, 1)[0]
        if isinstance(slot, SymbolSlot):
            if slot.space in ("frame", "shared"):
                raise UnsupportedError(f"the address of {slot.name}")
            return np.uint64(launch.symbol(slot.space, slot.name) + slot.offset)
        assert isinstance(slot, SpecialSlot)
        return self._special(slot.name)

    def _special(self, name: str) -> int:
        launch = self._launch
        base, _, axis = name.partition(".")
        extents = {"%ntid": launch.block, "%nctaid": launch.grid}
        if base in extents:
            return extents[base]["xyz".index(axis)]
        plain = {
            "%nsmid": launch.machine.sms,
            "%nwarpid": launch.machine.warps_per_sm,
            "%dynamic_smem_size": launch.dynamic_shared,
            "%total_smem_size": launch.shared_bytes,
            "%gridid": launch.number,
        }
        if name not in plain:
            raise UnsupportedError(f"the register {name}")
        return plain[name]

    def _make_task(self) -> None:
        launch, ready, task = self._launch, self._shared.ready, np.zeros(layout.TASK_WORDS, np.int64)
        task[layout.EXTENT_X : layout.PROCESSORS + 1] = launch.grid[0], launch.grid[1], launch.machine.sms
        task[layout.ALIVE_AT], task[layout.STATES_AT] = self._alive.ctypes.data, self._template.ctypes.data
        task[layout.SPECIALS_AT], task[layout.SPECIAL_COUNT] = ready.coordinates.ctypes.data, len(ready.coordinates)
        task[layout.BUDGET_OF] = _BUDGET
        self._unset: Array = np.array(self._shared.rows.unset, np.int64)
        task[layout.UNSET_AT], task[layout.UNSET_COUNT] = self._unset.ctypes.data, len(self._unset)
        self._task: Array = task
        (code,) = addresses([Warpwide(run_blocks)])
        self._run = _RUN_BLOCKS(code)

    def run(self, first: int, last: int) -> int:
        """Run blocks from the first on, without Python; returns the number of the one at which a suspect stopped it."""
        self._task[layout.FIRST], self._task[layout.LAST] = first, last
        self._run(self.block.ctypes.data, self._task.ctypes.data, 0)
        return int(self._task[layout.STOPPED])

    def take_back(self) -> None:
        """Rows that were written are as before."""
        arena, count = self._launch.arena, int(self.words[layout.LOGGED])
        entries = self._log[: count * ENTRY_WORDS].reshape(count, ENTRY_WORDS)
        offsets = entries[:, 0]
        for memory, part in ((arena.words[1], entries[:, 1:17]), (arena.state[1], entries[:, 17:33])):
            rows = np.ascontiguousarray(part).view(np.uint8)
            for offset, row in zip(offsets.tolist(), rows, strict=True):
                memory[offset : offset + ROW_BYTES] = row
        arena.dirty[offsets >> 8] = False
