"""A launch by the executor: it ends without a suspect, or everything that it wrote is taken back.

The executor clears launches in which nothing is wrong. Whatever its fast tests cannot clear ends the run; then memory
is as before, and the emulator runs the launch from the beginning and says what is wrong, if anything is.
"""

import logging
import time
from collections import Counter
from math import prod
from weakref import WeakKeyDictionary

import numpy as np

from kernbench.ptx.emulator.analysis.building import take_decoded
from kernbench.ptx.emulator.checks.asynchronous.asynchronous import leaves_init_fences_out
from kernbench.ptx.emulator.engine.launch import Launch
from kernbench.ptx.emulator.engine.schedule import Schedule
from kernbench.ptx.emulator.lanes.slots import ArgumentSlot, Slot, SpecialSlot, SymbolSlot
from kernbench.ptx.emulator.memory.arena import TRACKED, UNWRITTEN
from kernbench.ptx.emulator.memory.pages.allocation import sparse_bytes
from kernbench.ptx.emulator.program.layout import RESERVED
from kernbench.ptx.emulator.program.meter import Counts
from kernbench.ptx.emulator.program.program import Program, WaitLoop
from kernbench.ptx.executor.kept_rows import kept_or_made
from kernbench.ptx.executor.maps import map_row
from kernbench.ptx.executor.ops import layout
from kernbench.ptx.executor.ops.bulk_copies import MAP_WORDS, MOST_MAPS
from kernbench.ptx.executor.ops.clocks import COLUMNS, MOST_MBARRIERS, MOST_UNITED, MOST_VECTORS, VECTOR_BYTES
from kernbench.ptx.executor.ops.copies import MOST_COPIES, MOST_GROUPS
from kernbench.ptx.executor.ops.mbarriers import MBARRIER_BYTES, MOST_NAMED, NAMED_BYTES
from kernbench.ptx.executor.ops.running_blocks import run_blocks
from kernbench.ptx.executor.ops.shadow import ENTRY_WORDS, ROW_BYTES
from kernbench.ptx.executor.ops.warpgroups import PIECE, ROOM_BYTES
from kernbench.ptx.executor.prepared import aligned, prepared, row_of
from kernbench.ptx.executor.rows import Rows, UnsupportedError, rows_of
from kernbench.ptx.executor.stamps import stamps_of
from kernbench.ptx.executor.tables import accesses_of, arrays_of

_LOG = logging.getLogger(__name__)
# blocks of a program that a warp may run before the emulator takes over, which knows endless loops
_BUDGET = 1 << 22
# seconds between looks at the clock
_SLICE = 0.05
_MOST_WARPS = 32
# warps that run an instruction together in the emulator, at most
_TOGETHER = 512

_ROWS: "WeakKeyDictionary[Program, Rows | str]" = WeakKeyDictionary()
# how often a program that was never run to its end was suspect; after so many times it is not tried again
_SUSPECT: "WeakKeyDictionary[Program, int]" = WeakKeyDictionary()
_PATIENCE, _MOST_LAUNCHES = 3, 1 << 60
# the addresses of the tensor maps that a program has used
_MAPS: "WeakKeyDictionary[Program, tuple[int, ...]]" = WeakKeyDictionary()


def rows_for(program: Program) -> Rows | str:
    """The rows of a program, or why the executor cannot run it."""
    found = _ROWS.get(program)
    if found is None:
        found = _ROWS[program] = kept_or_made(program, lambda: _made_or_reason(program))
        _LOG.debug("%s: %s", program.kernel.name, found if isinstance(found, str) else "rows")
    return found


def _made_or_reason(program: Program) -> Rows | str:
    try:
        return _made(program)
    except UnsupportedError as error:
        return str(error)


def _made(program: Program) -> Rows:
    if program.undefined_registers:
        raise UnsupportedError("registers that may be read before they are set")
    if program.volatile_sites:
        raise UnsupportedError("volatile accesses")
    if program.takes_stack or program.local_bytes or len(program.codes) != 1:
        raise UnsupportedError("calls or local memory")
    if any(variable.name == RESERVED for variable in program.shared):
        raise UnsupportedError("memory that the system reserves")
    if any(block.wait_loop is not None and _may_wait(block.wait_loop) for block in program.blocks):
        raise UnsupportedError("a loop that waits")
    return rows_of(take_decoded(program), frozenset(block.number for block in program.blocks if block.ends))


def _may_wait(loop: WaitLoop) -> bool:
    """Whether a loop seems to wait for another thread, which may not have begun; others end, or use up the budget."""
    return (loop.waits and not loop.for_mbarriers) or loop.takes or loop.timed


def is_run(launch: Launch) -> bool:
    """Run a launch; False if the emulator has to, with memory as before."""
    if not _fits(launch):
        return False
    program = launch.program
    rows = rows_for(program)
    if isinstance(rows, str) or _SUSPECT.get(program, 0) >= _PATIENCE:
        return False
    try:
        done = _is_done(launch, rows)
    except (UnsupportedError, MemoryError, RuntimeError, OSError) as error:
        # there may be no compiler here, or no addresses for stamps
        _LOG.debug("%s: %s", program.kernel.name, error)
        return False
    # one that was run once is worth every further attempt
    _SUSPECT[program] = _SUSPECT.get(program, 0) + 1 if not done else -_MOST_LAUNCHES
    return done


def _is_done(launch: Launch, rows: Rows) -> bool:
    """Run a launch; again from the beginning for each tensor map that was not known before."""
    program = launch.program
    while True:
        run = _Run(launch, rows)
        if run.go():
            return True
        address = int(run.block[layout.UNKNOWN_MAP])
        known = _MAPS.get(program, ())
        if not address or address in known:
            return False
        # a program may have other maps in each launch
        _MAPS[program] = (*known[1 - MOST_MAPS :], address)


def _fits(launch: Launch) -> bool:
    """Whether a launch asks for nothing that only the emulator does."""
    return (
        not launch.watched
        and type(launch.schedule) is Schedule
        and launch.part is None
        and prod(launch.cluster) == 1
        and not launch.uses_heap
        and launch.arena.aliases is None
        and launch.warps_per_cta <= _MOST_WARPS
    )


class _Run:
    """One launch: its tables, and the state of one block after the other."""

    def __init__(self, launch: Launch, rows: Rows):
        self.launch, self.rows, self.arena = launch, rows, launch.arena
        self.blocks = prod(launch.grid)
        self.stamps = stamps_of(launch.arena)
        self.first = self.stamps.begin(self.blocks)
        self.ready = prepared(launch.program, rows)
        self.counts = np.zeros((2, len(launch.program.blocks)), np.int64)
        self.arrays, self._held = arrays_of(launch, self.stamps)
        self.accesses = accesses_of(launch)
        # rows of memory as they were before they were written
        self.log = sparse_bytes(8 * ENTRY_WORDS * (1 + sum(held.count for held in self._held))).view(np.int64)
        self._make_launch()
        self._make_block()
        self._make_warps()

    def _make_launch(self) -> None:
        words = self.words = np.zeros(layout.LAUNCH_WORDS, np.int64)
        words[layout.LANE_COUNTS], words[layout.WARP_COUNTS] = (row.ctypes.data for row in self.counts)
        words[layout.ARRAYS], words[layout.ARRAY_COUNT] = self.arrays.ctypes.data, len(self.arrays)
        words[layout.ACCESSES] = self.accesses.ctypes.data
        words[layout.STATES] = self.arena.state[1].ctypes.data
        words[layout.CONTENTS] = self.arena.words[1].ctypes.data
        words[layout.LOG], words[layout.DIRTY] = self.log.ctypes.data, self.arena.dirty.ctypes.data
        words[layout.FIRST_SERIAL], words[layout.EPOCH] = self.first, self.stamps.epoch
        words[layout.ENTRY] = self.ready.entry

    def _make_block(self) -> None:
        launch = self.launch
        size = -(-max(launch.shared_bytes, 4) // 64) * 64 + 64
        self.template = np.zeros(size, np.uint8)
        for start, end in launch.shared_parts:
            self.template[start:end] = UNWRITTEN | TRACKED
        self.shared = aligned(2 * size + 2 * size)
        block = self.block = np.zeros(layout.BLOCK_WORDS, np.int64)
        at = self.shared.ctypes.data
        self.shared[:] = 0
        block[layout.SHARED], block[layout.SHARED_STATES] = at, at + size
        block[layout.SHARED_WRITES], block[layout.SHARED_READS] = at + 2 * size, at + 3 * size
        block[layout.SHARED_BYTES], block[layout.LAUNCH] = launch.shared_bytes, self.words.ctypes.data
        block[layout.WARPS] = launch.warps_per_cta
        if self.rows.clocked:
            self._make_clocks(size)

    def _make_clocks(self, size: int) -> None:
        """What vector clocks, mbarriers and asynchronous work need."""
        launch, block = self.launch, self.block
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
        self.clocks = {word: sparse_bytes(nbytes) for word, nbytes in parts.items()}
        for word, memory in self.clocks.items():
            block[word] = memory.ctypes.data
        self.known = sparse_bytes(2 * VECTOR_BYTES * launch.warps_per_cta)
        self.clocks[layout.AGENTS_AT].view(np.int64)[1::2] = -1
        self.clocks[layout.UNITED_AT].view(np.int64)[2::3] = -1
        block[layout.CLOCKED] = 1
        block[layout.SHOWS_INITIALISATION] = not leaves_init_fences_out(launch.program)
        maps = _MAPS.get(launch.program, ())
        table = self.clocks[layout.MAPS_AT].view(np.int64).reshape(MOST_MAPS, MAP_WORDS)
        for number, address in enumerate(maps):
            table[number] = map_row(launch, address)
        block[layout.MAP_COUNT] = len(maps)

    def _make_warps(self) -> None:
        found = self.ready.warps_of(self.launch.block)
        self.alive, self.registers = found.alive, self.ready.registers_of(found)
        count, size = self.registers.shape
        warps = self.warps = np.zeros((count, layout.WARP_WORDS), np.int64)
        # lists of which the warps' words say how long they are
        self.copies = np.empty((count, MOST_COPIES + MOST_GROUPS), np.int64)
        self.block[layout.WARPS_AT] = warps.ctypes.data
        warps[:, layout.REGISTERS] = self.registers.ctypes.data + size * np.arange(count)
        warps[:, layout.BLOCK] = self.block.ctypes.data
        warps[:, layout.COPIES_AT] = self.copies.ctypes.data + 8 * (MOST_COPIES + MOST_GROUPS) * np.arange(count)
        warps[:, layout.GROUPS_AT] = warps[:, layout.COPIES_AT] + 8 * MOST_COPIES
        if self.rows.clocked:
            warps[:, layout.KNOWN_AT] = self.known.ctypes.data + 2 * VECTOR_BYTES * np.arange(count)
            warps[:, layout.ELECTED_AT] = warps[:, layout.KNOWN_AT] + VECTOR_BYTES
        for offset, slot in self.ready.given:
            row_of(self.registers, offset, slot.dtype)[:] = np.asarray(self._value(slot))

    def _value(self, slot: Slot) -> object:
        """The value of a slot, the same for all lanes."""
        launch = self.launch
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
        launch = self.launch
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

    def go(self) -> bool:
        """Run all blocks; False after a suspect, with everything taken back."""
        launch = self.launch
        shape = (launch.grid[0], launch.grid[1], launch.machine.sms)
        done, step = 0, 1
        given = (shape, self.alive, self.ready.coordinates, self.template.ctypes.data, _BUDGET)
        try:
            while done < self.blocks:
                began = time.monotonic()
                done = int(run_blocks(self.block.ctypes.data, done, min(self.blocks, done + step), *given))
                if self.words[layout.SUSPECT] or launch.meter.late or self._steps() > launch.budget.steps:
                    self._report()
                    self._take_back()
                    return False
                # the first blocks take longer than the others, and say little of them
                if done * launch.warps_per_cta >= _TOGETHER:
                    launch.report_progress(done)
                spent = time.monotonic() - began
                step = max(1, min(4 * step, int(step * _SLICE / max(spent, 1e-6))))
        except BaseException:
            self._take_back()
            raise
        self._count()
        return True

    def _report(self) -> None:
        """Log why the emulator takes over."""
        number = int(self.words[layout.SUSPECT_SITE])
        text = self.launch.program.sites[number].text if number >= 0 else "a barrier, or the end of a block"
        _LOG.debug("%s: suspect %d at %s", self.launch.program.kernel.name, self.words[layout.SUSPECT], text)

    def _take_back(self) -> None:
        """Rows that were written are as before."""
        count = int(self.words[layout.LOGGED])
        entries = self.log[: count * ENTRY_WORDS].reshape(count, ENTRY_WORDS)
        offsets = entries[:, 0]
        for memory, part in ((self.arena.words[1], entries[:, 1:17]), (self.arena.state[1], entries[:, 17:33])):
            rows = np.ascontiguousarray(part).view(np.uint8)
            for offset, row in zip(offsets.tolist(), rows, strict=True):
                memory[offset : offset + ROW_BYTES] = row
        self.arena.dirty[offsets >> 8] = False

    def _steps(self) -> int:
        """Instructions so far, each counted once for all warps that could run it together."""
        warps = self.launch.warps_per_cta * self.blocks
        instructions = self.launch.program.measures.instructions_in(self.counts[1])
        return -(-instructions // min(warps, _TOGETHER))

    def _count(self) -> None:
        """What was run counts."""
        lanes, warps = (Counter({n: count for n, count in enumerate(row.tolist()) if count}) for row in self.counts)
        self.launch.meter.admit(Counts(lanes, warps, self._steps()))
