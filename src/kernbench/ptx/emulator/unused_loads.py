"""Loads that most threads make for nothing: of a compiler that loads in all threads what one of them stores.

Triton loads a scalar in every thread of a block and stores it under a predicate that holds in one; elements that
several threads hold are loaded by all of them and stored by their owner. What the others load reaches nothing, so
whoever writes there meanwhile does no harm. Such a load is entered as a read when a store that it leads to runs, and by
the lanes that store. What decides more than a store's value (a branch, a guard, what other lanes get), or is stored
after something that orders memory, is entered where it stands, as every load of other code is.
"""

from dataclasses import dataclass, field

import numpy as np

from kernbench.ptx.emulator.beside import Check, active_positions, run_before
from kernbench.ptx.emulator.dataflow import address_origins, bits, live_at_blocks
from kernbench.ptx.emulator.decode import Body
from kernbench.ptx.emulator.lanes import Mask
from kernbench.ptx.emulator.meanings import lanewise, moves, video
from kernbench.ptx.emulator.memory.order import WEAK
from kernbench.ptx.emulator.memory.port import space_of
from kernbench.ptx.emulator.operands import Decoding
from kernbench.ptx.emulator.program import UNKNOWN, Program
from kernbench.ptx.emulator.slots import RegisterSlot
from kernbench.ptx.emulator.window import Window

_SPACES = frozenset(("global", "generic"))
# what computes a value from others of its lane, and what else orders no memory
_COMPUTES = frozenset((*lanewise.MEANINGS, *video.MEANINGS, *moves.MEANINGS))
_ORDERS_NOTHING = _COMPUTES | {"bra", "nop", "shfl", "vote", "match", "redux", "elect", "activemask", "hint"}


def defer_unused_loads(program: Program, body: Body) -> None:
    """Enter loads whose value may reach nothing where it does reach a store."""
    if program.kernel.module.compiler != "LLVM":
        return
    origins, live = address_origins(body), live_at_blocks(body)
    for number, decodings in enumerate(body.decodings):
        for load in decodings:
            if _is_plain_load(load) and _may_be_written(program, load, origins):
                found = _Uses(body, load, live).find(number)
                if found is not None and not any(_is_certain(d, block, number) for d, block in found):
                    _defer(program, body, load, number, found)


def _is_plain_load(d: Decoding) -> bool:
    space = d.address_space or d.mod("space")
    return d.resolved.meaning == "ld" and d.order == WEAK and d.address_slot is not None and space_of(space) in _SPACES


def _may_be_written(program: Program, load: Decoding, origins: dict[int, set[str]]) -> bool:
    """Whether the program may write where a load reads, as far as pointers tell."""
    mine: set[str] = set().union(*(origins.get(r.number, set()) for r in load.address_reads)) or {UNKNOWN}
    theirs = [place.origins for place in program.writers if place.space in _SPACES]
    return any(UNKNOWN in mine or UNKNOWN in one or mine & one for one in theirs)


def _is_certain(store: Decoding, block: int, where: int) -> bool:
    """Whether all who load, in block `where`, run the store."""
    return store.instruction.guard is None and block == where


@dataclass
class _State:
    """Registers that hold something of the load, and whether memory may have been ordered since."""

    held: int = 0
    ordered: bool = False


@dataclass(eq=False)
class _Uses:
    """Where a load's value goes."""

    body: Body
    load: Decoding
    # registers whose value is wanted when each block begins
    live: list[int]
    stores: dict[int, tuple[Decoding, int]] = field(default_factory=dict)

    def find(self, where: int) -> list[tuple[Decoding, int]] | None:
        """The stores that write it, with their blocks; None where it decides anything else."""
        entering: dict[int, _State] = {}
        begin = self.body.decodings[where].index(self.load) + 1
        pending = [(where, begin, _State(bits(self.load.writes)))]
        while pending:
            block, first, state = pending.pop()
            for decoding in self.body.decodings[block][first:]:
                if not self._pass(decoding, block, state):
                    return None
                if decoding is self.load or not state.held:
                    break
            else:
                for following in self.body.edges[block]:
                    wanted = _State(state.held & self.live[following], state.ordered)
                    joined = _join(entering.get(following), wanted)
                    if joined is not None and wanted.held:
                        entering[following] = joined
                        pending.append((following, 0, _State(joined.held, joined.ordered)))
        return list(self.stores.values())

    def _pass(self, d: Decoding, block: int, state: _State) -> bool:
        """Whether the rule holds behind an instruction."""
        meaning, written = d.resolved.meaning, bits(d.writes)
        if d is self.load:
            # what an earlier round loaded must be gone by then
            return not state.held & ~(written if d.instruction.guard is None else 0)
        if bits(d.reads) & state.held:
            if meaning == "st" and not state.ordered and not self._guard(d) & state.held:
                self.stores[d.site.number] = d, block
            elif meaning not in _COMPUTES:
                return False
            state.held |= written
        elif d.instruction.guard is None:
            state.held &= ~written
        state.ordered |= meaning not in _ORDERS_NOTHING and not (meaning in ("ld", "st") and d.order == WEAK)
        return True

    def _guard(self, d: Decoding) -> int:
        guard = d.instruction.guard
        register = None if guard is None else d.scope.register(guard.register)
        return 0 if register is None else bits([register])


def _join(known: _State | None, state: _State) -> _State | None:
    """Both together, None where that is nothing new."""
    if known is None:
        return _State(state.held, state.ordered)
    joined = _State(known.held | state.held, known.ordered or state.ordered)
    return None if joined == known else joined


def _defer(program: Program, body: Body, load: Decoding, where: int, stores: list[tuple[Decoding, int]]) -> None:
    """Keep the address that a lane loads from, and enter the read where the lane stores."""
    slots = []
    for bank in ("bool", "uint64"):
        row = program.table.new_row(bank)
        body.code.rows.setdefault(bank, []).append(row)
        slots.append(program.table.number(RegisterSlot(bank, row)))
    flag, kept = slots
    program.deferred.add(load.site.number)
    first = body.code.entry
    run_before(program.blocks[first + where], load, _keep(load, flag, kept))
    for store, block in stores:
        run_before(program.blocks[first + block], store, _enter(load, store, flag, kept))


def _keep(load: Decoding, flag: int, kept: int) -> Check:
    guard, slot, offset = load.guard(), load.address_slot, np.uint64(load.address_offset & (1 << 64) - 1)
    assert slot is not None

    def keep(window: Window, mask: Mask | None) -> None:
        if window.batch.checks is None:
            return
        active = active_positions(window, mask, guard)
        window.put(kept, window.batch.port.addresses(window, slot) + offset, active)
        window.put(flag, np.ones(window.size, bool), active)

    return keep


def _enter(load: Decoding, store: Decoding, flag: int, kept: int) -> Check:
    guard, site = store.guard(), load.site
    space = space_of(load.address_space or load.mod("space"))
    nbytes = load.traffic[2] if load.traffic else 0

    def enter(window: Window, mask: Mask | None) -> None:
        if window.batch.checks is None:
            return
        active = active_positions(window, mask, guard) & window.rows[flag]
        if active.any():
            window.batch.port.saw(space, window.rows[kept], window.lane_numbers, nbytes, active, site)
            window.put(flag, np.zeros(window.size, bool), active)

    return enter
