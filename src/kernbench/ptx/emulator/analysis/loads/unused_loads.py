"""Speculative loads: a compiler loads in all threads what only one of them stores.

Triton loads a scalar in every thread of a block and stores it under a predicate that holds in one; elements held by
several threads are loaded by all of them and stored by their owner. The other threads' values are unused, so a
concurrent write there does no harm. Such a load counts as a read when a store that depends on it runs, in the lanes
that store; the dependence may go through the address of another load. A load that decides whether a store runs counts
in the lanes that might store, whatever they loaded.

A load that decides more than stores (a loop, other lanes' values), or whose value is stored after memory was ordered,
counts where it is executed, as every load of other code does. Among those, loads are recorded whose value leaves a warp
by guarded stores only: if the warp runs none of them, its reads are unused as well (`checks.idle_reads`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernbench.ptx.emulator.analysis.flow.beside import active_positions
from kernbench.ptx.emulator.analysis.flow.dataflow import address_origins, bits, live_at_blocks
from kernbench.ptx.emulator.analysis.flow.deciding import (
    Condition,
    conditions_of_store,
    decision_of,
    guard_register,
    is_plain_access,
)
from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.slots import RegisterSlot, SlotTable
from kernbench.ptx.emulator.memory.port import space_of
from kernbench.ptx.emulator.program.facts import Beside, Check, UnusedLoads
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import UNKNOWN, WriteSite
from kernbench.ptx.emulator.units.batch import Window

_SPACES = frozenset(("global", "generic"))


def find_unused_loads(
    decoded: Decoded, body: Body, writers: Sequence[WriteSite], aliased: bool, validated: Collection[int]
) -> UnusedLoads:
    """Loads of a function whose value may be unused, and the checks that enter them where it reaches a store.

    `writers` are all writes to memory of the program; with `aliased` parameters any of them may write anywhere.
    `validated` are the sites of CAS-validated loads.
    """
    if decoded.compiler != "LLVM":
        return UnusedLoads()
    origins, live = address_origins(body), live_at_blocks(body)
    # many writers have the same origins
    written = {site.origins for site in writers if site.space in _SPACES}
    if aliased and written:
        written = {frozenset((UNKNOWN,))}
    found = _Found(decoded.table)
    for number, decodings in enumerate(body.decodings):
        for load in decodings:
            if _is_plain_load(load, validated) and _may_be_written(written, load, origins):
                uses = _Uses(body, load, live, validated)
                if not uses.find(number):
                    found.note_idle(_WarpUses(body, load, live, validated), number)
                elif not any(_is_certain(use, number) for use in uses.found.values()):
                    found.defer(load, list(uses.found.values()))
    return found.facts()


class _Found:
    """Results for the loads of one function."""

    def __init__(self, table: SlotTable):
        self._table = table
        self._beside: list[Beside] = []
        self._deferred: set[int] = set()
        self._idle: dict[int, tuple[tuple[int, int], ...]] = {}
        # the stores by which loaded values leave a warp, in the order of discovery
        self._leaving: dict[tuple[int, int], None] = {}
        self._rows: list[tuple[str, int]] = []

    def facts(self) -> UnusedLoads:
        """All results."""
        leaving = frozenset(self._leaving)
        return UnusedLoads(tuple(self._beside), frozenset(self._deferred), self._idle, leaving, tuple(self._rows))

    def note_idle(self, uses: "_WarpUses", number: int) -> None:
        """Record the stores by which a load's value leaves a warp, if they are all guarded: see `checks.idle_reads`."""
        if not uses.find(number):
            return
        load = uses.load.site.number
        keys = []
        for use in uses.found.values():
            key = (use.decoding.site.number, -1 if use.conditions is None else load)
            keys.append(key)
            if key not in self._leaving:
                self._leaving[key] = None
                self._beside.append(Beside(use.decoding.site.number, _leave(use, key)))
        self._idle[load] = tuple(keys)

    def defer(self, load: Decoding, uses: list["_Use"]) -> None:
        """Save the address that a lane loads from, and enter the read where the lane stores, or might."""
        flag, kept = self._slot("bool"), self._slot("uint64")
        self._deferred.add(load.site.number)
        self._beside.append(Beside(load.site.number, _keep(load, flag, kept)))
        self._beside += [Beside(use.decoding.site.number, _enter(load, use, flag, kept)) for use in uses]

    def _slot(self, bank: str) -> int:
        """The slot of a register row for the checks only."""
        row = self._table.new_row(bank)
        self._rows.append((bank, row))
        return self._table.number(RegisterSlot(bank, row))


def _leave(use: "_Use", key: tuple[int, int]) -> Check:
    who = _who(use)

    def leave(window: Window, mask: Mask | None) -> None:
        window.batch.checks.value_leaves(key, window.lane_numbers[who(window, mask)])

    return leave


def _is_plain_load(d: Decoding, validated: Collection[int]) -> bool:
    space = d.address_space or d.mod("space")
    plain = d.effects.access == "load" and is_plain_access(d, validated) and d.address_slot is not None
    # kernel parameters are never written
    return plain and space_of(space) in _SPACES and "param" not in str(d.mod("space"))


def _may_be_written(written: set[frozenset[str]], load: Decoding, origins: dict[int, set[str]]) -> bool:
    """Whether the program may write the memory that a load reads, according to its pointers."""
    mine: set[str] = set().union(*(origins.get(r.number, set()) for r in load.address_reads)) or {UNKNOWN}
    return any(UNKNOWN in mine or UNKNOWN in one or mine & one for one in written)


@dataclass(frozen=True, slots=True)
class _Use:
    """An instruction where a load counts: for the lanes that run it, or that meet one of `conditions`."""

    decoding: Decoding
    block: int
    conditions: tuple[Condition, ...] | None = None


def _is_certain(use: _Use, where: int) -> bool:
    """Whether all lanes that load, in block `where`, use the value."""
    return use.conditions is None and use.decoding.instruction.guard is None and use.block == where


@dataclass
class _State:
    """Registers that depend on the load, and whether memory may have been ordered since."""

    held: int = 0
    ordered: bool = False


@dataclass(eq=False)
class _Uses:
    """The uses of a load's value."""

    body: Body
    load: Decoding
    # registers that are live at the beginning of each block
    live: list[int]
    # sites of CAS-validated loads
    validated: Collection[int]
    # by the number of the site
    found: dict[int, _Use] = field(default_factory=dict)
    _entering: dict[int, _State] = field(default_factory=dict)
    _pending: list[tuple[int, int, _State]] = field(default_factory=list)

    def find(self, where: int) -> bool:
        """Find the stores that store it or depend on it; False if anything else depends on it."""
        begin = self.body.decodings[where].index(self.load) + 1
        self._pending.append((where, begin, _State(bits(self.load.writes))))
        while self._pending:
            block, first, state = self._pending.pop()
            for decoding in self.body.decodings[block][first:]:
                if not self._pass(decoding, block, state):
                    return False
                if decoding is self.load or not state.held:
                    break
            else:
                for following in self.body.edges[block]:
                    self._go_on(following, state.held, state.ordered)
        return True

    def _go_on(self, block: int, held: int, ordered: bool) -> None:
        """Propagate live values to another block."""
        wanted = _State(held & self.live[block], ordered)
        joined = _join(self._entering.get(block), wanted)
        if joined is not None and wanted.held:
            self._entering[block] = joined
            self._pending.append((block, 0, _State(joined.held, joined.ordered)))

    def _pass(self, d: Decoding, block: int, state: _State) -> bool:
        """Apply an instruction; returns whether the rule still holds."""
        effects, written = d.effects, bits(d.writes)
        if d is self.load:
            # values of earlier iterations must be dead by now, and must not influence this load
            kept = state.held & ~(written if d.instruction.guard is None else 0)
            return not kept and not bits(d.reads) & state.held
        if bits(d.reads) & state.held:
            # a value loaded from a dependent address depends on it like a computed one
            follows = effects.computes or (effects.access == "load" and is_plain_access(d, self.validated))
            if not follows and not self._decides(d, block, state):
                return False
            state.held |= written
        elif d.instruction.guard is None:
            state.held &= ~written
        state.ordered |= effects.orders and not is_plain_access(d, self.validated)
        return True

    def _decides(self, d: Decoding, block: int, state: _State) -> bool:
        """Whether a loaded value, used by an instruction that computes nothing, reaches or decides stores only."""
        guard = guard_register(d)
        decided = guard is not None and bool(bits([guard]) & state.held)
        stores = d.effects.access == "store"
        if state.ordered or not (stores or d.effects.flow == "branch"):
            return False
        if stores:
            condition = conditions_of_store(self.body.decodings[block], d, state.held) if decided else None
            self.found[d.site.number] = _Use(d, block, None if condition is None else (condition,))
            return not decided or condition is not None
        decision = decision_of(self.body, block, self.live, state.held, self.validated)
        if decision is None:
            return False
        self.found[d.site.number] = _Use(d, block, decision.conditions)
        if decision.meeting is not None:
            self._go_on(decision.meeting, state.held | decision.written, state.ordered)
        return True


class _WarpUses(_Uses):
    """Where a load's value leaves the warp: its lanes may exchange it, and it may be kept across iterations."""

    def find(self, where: int) -> bool:
        """Find the guarded stores and reductions that it reaches; False if it leaves the warp otherwise."""
        begin = self.body.decodings[where].index(self.load) + 1
        self._pending.append((where, begin, _State(bits(self.load.writes))))
        while self._pending:
            block, first, state = self._pending.pop()
            if not all(self._pass(decoding, block, state) for decoding in self.body.decodings[block][first:]):
                return False
            for following in self.body.edges[block]:
                self._go_on(following, state.held, False)
        return True

    def _pass(self, d: Decoding, block: int, state: _State) -> bool:
        effects, written = d.effects, bits(d.writes)
        if bits(d.reads) & state.held:
            loads = effects.access == "load" and is_plain_access(d, self.validated)
            stays = effects.computes or effects.exchanges or loads
            if effects.access == "store" and d.instruction.guard is None:
                return False
            if not stays and not self._decides(d, block, state):
                return False
            state.held |= written
        elif d.instruction.guard is None and d is not self.load:
            state.held &= ~written
        return True

    def _decides(self, d: Decoding, block: int, state: _State) -> bool:
        guard = guard_register(d)
        if not d.effects.updates:
            return super()._decides(d, block, state)
        self.found[d.site.number] = _Use(d, block)
        return guard is not None and not bits([guard]) & state.held


def _join(known: _State | None, state: _State) -> _State | None:
    """The union of two states, None if it is not new."""
    if known is None:
        return _State(state.held, state.ordered)
    joined = _State(known.held | state.held, known.ordered or state.ordered)
    return None if joined == known else joined


def _keep(load: Decoding, flag: int, kept: int) -> Check:
    guard, slot, offset = load.guard(), load.address_slot, np.uint64(load.address_offset & (1 << 64) - 1)
    assert slot is not None

    def keep(window: Window, mask: Mask | None) -> None:
        active = active_positions(window, mask, guard)
        window.put(kept, window.batch.port.addresses(window, slot) + offset, active)
        window.put(flag, np.ones(window.size, bool), active)

    return keep


def _who(use: _Use) -> Callable[[Window, Mask | None], Any]:
    """A function for the positions of lanes for which a use counts."""
    conditions = use.conditions
    if conditions is None:
        guard = use.decoding.guard()
        return lambda window, mask: active_positions(window, mask, guard)

    def might(window: Window, mask: Mask | None) -> Any:
        found = np.zeros(window.size, bool)
        for condition in conditions:
            for step in condition.steps:
                step(window, mask)
            active = active_positions(window, mask, None)
            for guard in condition.guards:
                active = active_positions(window, active, guard)
            found |= active
        return found

    return might


def _enter(load: Decoding, use: _Use, flag: int, kept: int) -> Check:
    who, site = _who(use), load.site
    space = space_of(load.address_space or load.mod("space"))
    nbytes = load.traffic[2] if load.traffic else 0

    def enter(window: Window, mask: Mask | None) -> None:
        active = who(window, mask) & window.rows[flag]
        if active.any():
            window.batch.port.saw(space, window.rows[kept], window.lane_numbers, nbytes, active, site)
            window.put(flag, np.zeros(window.size, bool), active)

    return enter
