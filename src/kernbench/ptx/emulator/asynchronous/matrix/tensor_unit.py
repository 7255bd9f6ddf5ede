"""tcgen05: the tensor memory of a batch, and its operations in flight.

Single threads begin products, copies and shifts, which run in order and are complete when a commit's mbarrier says so.
Loads set their registers at once, since a use of the registers waits for them, but read until wait::ld; stores become
visible after wait::st.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.agents import Agent
from kernbench.ptx.emulator.asynchronous.matrix.fragment_kernels import load_words, store_words
from kernbench.ptx.emulator.asynchronous.matrix.observer import MatrixBatch
from kernbench.ptx.emulator.asynchronous.matrix.tensor_core import CopyForm, Products, TensorCore
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import COLUMNS, TensorMemory
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.numerics.matrix.layout import Layout

STORE = "tensor store"
_QUARTERS = 4
# valid numbers of columns of an allocation
SIZES = (32, 64, 128, 256, 512)


@dataclass(frozen=True, eq=False)
class Access:
    """The static part of a load or store.

    It has the rows and columns of registers, whether two 16-bit halves share one, and the registers' rows.
    """

    layout: Layout
    packed: bool
    rows: Array
    site: Site

    @cached_property
    def lanes(self) -> int:
        """The number of lanes it accesses."""
        return max(self.layout.shape[0], 32) if self.layout.shape[0] > 16 else 16

    @cached_property
    def spans(self) -> Array:
        """[first, last + 1) columns that it accesses, relative to its address: [spans, 2]."""
        touched = np.unique(self.layout.columns)
        if self.packed:
            touched = np.union1d(touched, touched + 1)
        pieces = np.split(touched, np.flatnonzero(np.diff(touched) > 1) + 1)
        return np.array([(piece[0], piece[-1] + 1) for piece in pieces], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """Warps whose allocation must wait."""

    warps: Array
    site: Site
    again: Callable[[], None]


class TensorUnit:
    """Tensor memory and the tensor core of one batch."""

    def __init__(self, batch: MatrixBatch):
        self._batch = batch
        self.memory = TensorMemory(batch)
        self._core = TensorCore(batch, self.memory)
        self._multiply = self._core.multiply
        self.checks = batch.checks.tensor(self.memory)
        bank = self._bank = batch.banks["uint32"]
        self._registers = bank[:, : batch.lanes].reshape(len(bank), -1, WARP)
        # allocations that wait for columns, and are retried when some are freed
        self.waiting: list[Refused] = []

    def are_plain(self, warps: Array, columns: Array) -> bool:
        """Whether warps of distinct CTAs make valid allocations."""
        ctas = warps % self._batch.ctas
        legal = all(one in SIZES for one in columns.tolist()) and not self.memory.relinquished[ctas].any()
        return legal and len(set(ctas.tolist())) == len(ctas)

    def allocate(self, warp: int, columns: int, site: Site) -> int:
        """Allocate columns for a warp's CTA: the first of them, -1 if it must wait."""
        self._core.flush()
        cta = warp % self._batch.ctas
        if not self.checks.allocates(warp, columns, site):
            columns = min(max(32, 1 << max(columns - 1, 0).bit_length()), COLUMNS)
        return self.memory.allocate(cta, columns, site)

    def free(self, warps: Array, addresses: Array, columns: Array, site: Site) -> None:
        """Warps free columns."""
        for warp, address, count in zip(warps.tolist(), addresses.tolist(), columns.tolist(), strict=True):
            cta = warp % self._batch.ctas
            self.checks.frees(warp, address, count, site)
            self.memory.free(cta, address & 0xFFFF, count)
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one.again()

    def relinquish(self, warps: Array) -> None:
        """The warps' CTAs give up the right to allocate."""
        self.memory.relinquished[warps % self._batch.ctas] = True

    def multiply(self, operations: Products, lanes: Array) -> None:
        """Lanes begin products."""
        self.checks.multiplies(operations, lanes)
        multiply = self._multiply
        agent = Agent("tensor", operations.form.site, lanes, lambda chosen: multiply([operations.part(chosen)]))
        # they complete all at once, since nothing waits for only some of them
        agent.together, agent.work = multiply, operations
        self._batch.agents.begin(agent)

    def copy(self, form: CopyForm, pair: bool, lanes: Array, addresses: Array, descriptors: Array) -> None:
        """Lanes begin copies from shared memory."""
        ctas = self.homes(lanes, pair)
        self.checks.copies(form, ctas, lanes, addresses, descriptors)
        core, width = self._core, ctas.shape[1]

        def perform(chosen: Array) -> None:
            more = np.repeat(chosen, width)
            core.copy(form, ctas[chosen].reshape(-1), addresses[more], descriptors[more])

        self._begin(lanes, form.site, perform)

    def shift(self, pair: bool, lanes: Array, addresses: Array, site: Site) -> None:
        """Lanes begin shifts."""
        ctas = self.homes(lanes, pair)
        self.checks.shifts(ctas, lanes, addresses, site)
        core, width = self._core, ctas.shape[1]
        self._begin(
            lanes, site, lambda chosen: core.shift(ctas[chosen].reshape(-1), addresses[np.repeat(chosen, width)])
        )

    def homes(self, lanes: Array, pair: bool) -> Array:
        """The CTAs that operations of lanes access: [lanes, 1 or 2]."""
        own = (lanes // WARP) % self._batch.ctas
        return np.stack([own - own % 2, own - own % 2 + 1], axis=1) if pair else own[:, None]

    def _begin(self, lanes: Array, site: Site, perform: Callable[[Array], None]) -> None:
        self._batch.agents.begin(Agent("tensor", site, lanes, perform))

    def commit(self, lanes: Array, slots: Array, owners: Array, site: Site) -> None:
        """Arrive on each of `slots` (mbarriers) when the operations begun so far by the lanes `owners` are complete."""
        mbarriers, checks = self._batch.mbarriers, self.checks
        # make the arrays contiguous: loops are compiled for each memory layout, and results of `nonzero` are columns
        slots, owners = np.ascontiguousarray(slots), np.ascontiguousarray(owners)
        committed, named = checks.commits(lanes), lanes[owners]
        mbarriers.reach(slots, named, site)
        legal = not np.count_nonzero(slots < 0)

        def signal(chosen: Array) -> None:
            if legal and len(chosen) == len(lanes):
                mbarriers.signal(slots, named, site, committed(slots, owners))
                return
            arriving = slots >= 0
            if len(chosen) < len(lanes):
                arriving &= np.isin(owners, chosen)
            slots_now, owners_now = slots[arriving], owners[arriving]
            mbarriers.signal(slots_now, named[arriving], site, committed(slots_now, owners_now))

        self._batch.agents.begin(Agent("tensor", site, lanes, lambda chosen: self._core.flush(), signal))

    def load(self, access: Access, warps: Array, addresses: Array) -> None:
        """Warps load registers."""
        self.checks.loads(access, warps, addresses)
        if self._batch.journal is not None:
            self._batch.journal.used(warps, access.site)
        self._core.flush()
        layout = access.layout
        load_words(
            self.memory.words, warps, addresses, layout.rows, layout.columns, access.packed, self._bank, access.rows
        )

    def store(self, access: Access, warps: Array, addresses: Array) -> None:
        """Warps store registers; their current values arrive by the wait."""
        self.checks.stores(access, warps, addresses)
        held = self._registers[access.rows[:, None], warps[None, :]]

        def perform(chosen: Array) -> None:
            self._core.flush()
            memory, layout = self.memory, access.layout
            memory.touched = True
            order = self._in_order(warps, addresses, chosen)
            store_words(memory.words, warps, addresses, layout.rows, layout.columns, access.packed, held, order)

        self._batch.agents.begin(Agent(STORE, access.site, warps * WARP, perform))

    def _in_order(self, warps: Array, addresses: Array, chosen: Array) -> Array:
        """Positions of warps in the order of their stores; it matters only if some share a quarter."""
        inside = warps[chosen] // self._batch.ctas
        if inside[-1] - inside[0] < _QUARTERS:
            return chosen
        keys = inside % _QUARTERS << 32 | addresses[chosen]
        ordered: Array = chosen[np.argsort(keys, kind="stable")]
        return ordered

    def wait(self, warps: Array, loads: bool) -> None:
        """wait::ld or wait::st of warps."""
        if not loads:
            here = np.zeros(self._batch.warps, bool)
            here[warps] = True
            self._batch.agents.complete(STORE, lambda agent: here[agent.lanes // WARP])
        self.checks.waited(warps, loads)

    def used(self, load: int, warps: Array) -> None:
        """Warps use registers written by the load at a site."""
        self.checks.used(load, warps)

    def fence(self, warps: Array, before: bool) -> None:
        """fence::before_thread_sync or fence::after_thread_sync of warps."""
        self.checks.fenced(warps, before)

    def ended(self) -> None:
        """All threads have exited."""
        self.checks.ended()
