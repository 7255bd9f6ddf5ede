"""A batch: CTAs that are resident together, with their registers, shared and local memory.

Lanes are ordered by warp in the CTA first and CTA second, so that the same warp of all CTAs is one run of lanes. Lanes
beyond the block in a partial last warp are never alive.
"""

from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.agents import Agents
from kernbench.ptx.emulator.asynchronous.copies.copies import Copies
from kernbench.ptx.emulator.asynchronous.copies.groups import BulkGroups
from kernbench.ptx.emulator.asynchronous.journal import Journal
from kernbench.ptx.emulator.asynchronous.matrix.observer import BatchObserver
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.emulator.asynchronous.matrix.tensor_unit import Refused, TensorUnit
from kernbench.ptx.emulator.asynchronous.matrix.warpgroups import Warpgroups
from kernbench.ptx.emulator.barriers.mbarriers import Mbarriers
from kernbench.ptx.emulator.engine.ending import LIVING, STOPPED, end_lanes
from kernbench.ptx.emulator.engine.scheduler import Scheduler
from kernbench.ptx.emulator.lanes.clusters import RANK_SHIFT, cluster_map
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes, Mask, lane_bits
from kernbench.ptx.emulator.lanes.remembered import living
from kernbench.ptx.emulator.lanes.slots import (
    ArgumentSlot,
    ConstantSlot,
    RegisterSlot,
    SpecialSlot,
    SymbolSlot,
    constant_array,
)
from kernbench.ptx.emulator.lanes.warp_bits import given
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.memory.arena import POISON, TRACKED, UNWRITTEN, WRITTEN, views
from kernbench.ptx.emulator.memory.frames import Frames
from kernbench.ptx.emulator.memory.pages.allocation import POOL
from kernbench.ptx.emulator.memory.port import Port, Space
from kernbench.ptx.emulator.observer.meetings import Operation
from kernbench.ptx.emulator.observer.recorder import Recorder
from kernbench.ptx.emulator.program.layout import RESERVED, RESERVED_BYTES
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.special import special_row
from kernbench.ptx.emulator.program.steps import AnyFragment

if TYPE_CHECKING:
    from kernbench.ptx.emulator.engine.launch import Launch

# padding between rows, so that rows of one bank do not map to the same cache sets
_PADDING = 48
_NO_DIRTY = np.zeros(1, bool)


class Batch:
    """The state of resident CTAs, numbered here from 0 to `ctas` - 1; `numbers` are their numbers in the grid."""

    def __init__(self, launch: "Launch", numbers: Array):
        self.launch = launch
        self.program = launch.program
        self.table = launch.program.table
        self.numbers = numbers
        self.ctas = len(numbers)
        self.warps_per_cta = launch.warps_per_cta
        self.warps = self.ctas * self.warps_per_cta
        self.lanes = self.warps * WARP
        self._make_registers()
        self._make_lanes()
        self.cluster = cluster_map(self.ctas, launch.cluster)
        self.journal: Journal | None = launch.follow(self)
        self.frames = Frames(self, launch.local_bytes)
        shared = self._make_shared()
        self.checks: BatchObserver = launch.checks.batch(self)
        self.recorder: Recorder = launch.recorder.batch(self)
        self.port = Port(self, launch.arena, shared, self.frames.space(), self.checks.checker)
        self.copies = Copies(self)
        self.agents = Agents(self, launch.schedule.eager)
        self.mbarriers = Mbarriers(self, launch.actors.count if self.checks.checking else 0)
        self.groups = BulkGroups(self)
        self._tensor: TensorUnit | None = None
        self.warpgroups = Warpgroups(self, launch.schedule.eager)
        self.scheduler = Scheduler(self, launch.program, launch.meter)
        everybody = living(self.alive)
        assert everybody is not None
        self.scheduler.begin(everybody, self.program.entry.entry)

    def _make_registers(self) -> None:
        width = self.lanes + _PADDING
        self.banks: dict[str, Array] = {
            bank: POOL.zeros((max(rows, 1), width), bank) for bank, rows in self.table.rows.items()
        }
        self.arguments = self.launch.arguments
        self._rows: dict[int, Array] = {}

    def _make_lanes(self) -> None:
        threads = self.launch.threads
        inside = np.arange(self.warps_per_cta * WARP).reshape(self.warps_per_cta, 1, WARP)
        thread = np.broadcast_to(inside, (self.warps_per_cta, self.ctas, WARP)).reshape(-1)
        self.thread: Array = np.ascontiguousarray(thread)
        self.alive: Mask = self.thread < threads
        self.alive_count = int(np.count_nonzero(self.alive))
        self.alive_by_cta: Array = np.full(self.ctas, threads)
        self.alive_bits: Array = lane_bits(self.alive)
        # the living CTAs and warps, cached with the number of living lanes they were computed for
        self._living: tuple[int, Array, Array] | None = None
        # the basic block that each lane ran last
        self.ended_in: Array = np.full(self.lanes, LIVING)
        warps = np.arange(self.warps)
        self.cta_of_warp: Array = warps % self.ctas

    def _make_shared(self) -> Space:
        size = self.launch.shared_bytes
        stride = -(-max(size, 16) // 128) * 128 + 128
        words = POOL.full(self.ctas * stride, POISON, np.uint8)
        state = POOL.zeros((self.ctas, stride), np.uint8)
        if self.launch.checks.checking:
            for start, end in self.launch.shared_parts:
                state[:, start:end] = UNWRITTEN | TRACKED
        for kept in (v for v in self.launch.program.shared if v.name == RESERVED):
            room = slice(kept.offset, kept.offset + RESERVED_BYTES)
            words.reshape(self.ctas, stride)[:, room] = 0
            # the library that uses it relies on the order of shuffles, so it is not checked
            state[:, room] = WRITTEN
        self.shared_stride = stride
        origins = np.repeat(self.cta_of_warp, WARP).astype(np.uint64) * np.uint64(stride)
        return Space("shared", views(words), views(state.reshape(-1)), size, origins, _NO_DIRTY)

    def row(self, slot: int) -> Array:
        """The whole row of a slot: one entry for each lane, or a zero-dimensional constant."""
        found = self._rows.get(slot)
        if found is None:
            found = self._rows[slot] = self._make_row(slot)
        return found

    def _make_row(self, slot: int) -> Array:
        spec = self.table.slots[slot]
        if isinstance(spec, RegisterSlot):
            return self.banks[spec.bank][spec.row, : self.lanes]
        if isinstance(spec, ConstantSlot):
            value: Array = constant_array(spec.bits, spec.dtype)
            return np.full(self.lanes, value) if spec.spread else value
        if isinstance(spec, SpecialSlot):
            return special_row(self, spec.name, spec.dtype)
        if isinstance(spec, ArgumentSlot):
            argument: Array = self.arguments[spec.row].view(spec.dtype)
            return argument[:1].reshape(())
        return self._symbol(spec)

    def _symbol(self, spec: SymbolSlot) -> Array:
        if spec.space == "shared":
            ranks = self.cluster.ranks(np.arange(self.lanes)).astype(np.uint64)
            return np.uint64(spec.offset) + (ranks << np.uint64(RANK_SHIFT))
        if spec.space != "frame":
            return np.array(self.launch.symbol(spec.space, spec.name) + spec.offset, spec.dtype)
        return self.frames.cell(spec.name, spec.offset)

    def set_base(self, function: str, base: int) -> None:
        """Set where the frame of the running function begins."""
        self.frames.set_base(function, base)

    def end(self, lanes: Lanes, block: int) -> None:
        """Lanes exit; `block` is the last basic block they ran."""
        if self.groups.used:
            self.checks.asynchronous.lanes_ended(lanes)
        warps, mask = given(lanes)
        emptied = end_lanes(warps, mask, block, self.ended_in, self.alive, self.alive_bits, self.alive_by_cta)
        self.alive_count -= lanes.count
        if self.checks.checking:
            self.checks.lanes_ended(*lanes.present())
        if emptied and (self.launch.actors.asynchronous or self.cluster.size > 1):
            self._blocks_ended(np.unique(lanes.present()[0] % self.ctas))

    def _blocks_ended(self, ctas: Array) -> None:
        """Report those CTAs that have no living thread left."""
        ended = ctas[self.alive_by_cta[ctas] == 0]
        if len(ended):
            self.checks.asynchronous.blocks_ended(ended)

    @property
    def tensor(self) -> TensorUnit:
        """Tensor memory and its operations, created on first use."""
        if self._tensor is None:
            self._tensor = TensorUnit(self)
        return self._tensor

    @property
    def tensor_memory(self) -> TensorMemory | None:
        """Tensor memory, None if nothing has used it."""
        return None if self._tensor is None else self._tensor.memory

    @property
    def allocation_waits(self) -> list[Refused]:
        """Allocations of tensor memory that wait for columns."""
        return [] if self._tensor is None else list(self._tensor.waiting)

    def ended(self) -> None:
        """All threads have exited, and nothing is in flight."""
        if self._tensor is not None:
            self._tensor.ended()
        self.checks.asynchronous.ended()

    def forget(self) -> None:
        """Drop all references: see `Launch.forget`.

        The scheduler and its parts refer to each other, and its windows hold registers, whose memory the next launch
        reuses.
        """
        vars(self.scheduler).clear()
        if self.launch.checks.checking:
            vars(self.checks).clear()
        vars(self).clear()

    def changes(self) -> int:
        """How often memory has changed so far in the whole launch."""
        return int(self.launch.changes())

    def read_clock(self, to_come: int) -> int:
        """Logical time; `to_come` is the number of instructions of the running basic block that are still to come."""
        return int(self.launch.time.now(to_come))

    def barrier_clocks(self) -> None:
        """A barrier of all living warps of all CTAs completed; exited warps publish nothing."""
        if self.alive_count == self.launch.threads * self.ctas or self.alive_bits.all():
            self.checks.barrier(None, None)
            return
        if self._living is None or self._living[0] != self.alive_count:
            present: Array = np.ascontiguousarray((self.alive_bits != 0).reshape(-1, self.ctas).T)
            some: Array = np.asarray(present.any(axis=1))
            self._living = self.alive_count, some, present
        self.checks.barrier(*self._living[1:])

    def warp_clocks(self, window: Window, lanes: Lanes, members: int) -> None:
        """Lanes of warps met at bar.warp.sync, each with the lanes of the mask in its slot `members`."""
        self.checks.warp_barrier(window, lanes, members)

    def parted_barrier(self, fragment: AnyFragment, site: Site, missing: Array, active: Mask) -> None:
        """Lanes reach an aligned barrier while other lanes of their warps wait elsewhere for ever."""
        self.checks.endings.parted(fragment, site, missing, active)

    def ended_lanes(self, fragment: AnyFragment, operation: Operation) -> None:
        """A warp operation runs in warps some of whose lanes may have exited."""
        if self.alive_count < self.launch.threads * self.ctas:
            self.checks.endings.look(fragment, operation)

    def masks(self, fragment: AnyFragment, operation: Operation) -> None:
        """A warp operation runs with masks that do not name whole warps."""
        if operation.members is not None:
            self.checks.endings.masks(fragment, operation)

    def missing_lanes(
        self, fragment: AnyFragment, operation: Operation, members: Array, missing: Array, bad: Mask
    ) -> None:
        """Lanes that a warp operation's mask names never arrived."""
        if bad.any():
            self.checks.missing_lanes(fragment, operation, members, missing, bad)

    def external_call(self, lanes: Array, site: Site, name: str) -> None:
        """The kernel called a function without a body and without a known meaning; it does nothing."""
        self.launch.checks.unknown_function(self, lanes, site, name)

    def stray(self, lanes: Lanes, site: Site, message: str) -> None:
        """Control flow left the program."""
        self.ended_in[self._numbers(lanes)] = STOPPED
        self.launch.checks.stray(self, lanes, site, message, "misuse")

    def _numbers(self, lanes: Lanes) -> Array:
        """The numbers of the active lanes."""
        numbers = lanes.lane_numbers()
        return numbers if lanes.mask is None else numbers[lanes.mask]

    def trapped(self, lanes: Lanes, site: Site, message: str = "the kernel executed a trap") -> None:
        """The kernel executed a trap."""
        self.ended_in[self._numbers(lanes)] = STOPPED
        self.launch.checks.stray(self, lanes, site, message, "trap")
