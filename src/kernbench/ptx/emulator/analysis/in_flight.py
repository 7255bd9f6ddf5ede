"""Registers owned by asynchronous matrix operations: where a program accesses them too early.

Data flow finds in advance what may happen: which registers wgmma operations may still write or read, which were
accessed since the last wgmma.fence, and which loads of tensor memory may be in flight. Where a fault may happen, a
check beside the instruction tests the warp's actual state.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from kernbench.ptx.emulator.analysis.flow.beside import active_positions
from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.lanes.slots import RegisterSlot
from kernbench.ptx.emulator.program.facts import Beside, Check
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.text.module import Name

# groups in flight are counted up to this number
_MOST_GROUPS = 16


@dataclass
class State:
    """What may hold at a program point; registers are given by number.

    `written` and `read` are registers that operations in flight write, or read as A, with the groups committed since.
    `unfenced` are those accessed since the last wgmma.fence, `used` those that operations have used since then. `loads`
    are the loads in flight, with the registers they set.
    """

    written: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    unfenced: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)
    loads: dict[int, frozenset[int]] = field(default_factory=dict)

    def copy(self) -> "State":
        """A copy."""
        return State(dict(self.written), dict(self.read), set(self.unfenced), set(self.used), dict(self.loads))

    def join(self, other: "State") -> bool:
        """Merge the state of another path; returns whether anything is new."""
        new = False
        for mine, theirs in ((self.written, other.written), (self.read, other.read)):
            for register, groups in theirs.items():
                if mine.get(register, _MOST_GROUPS + 1) > groups:
                    mine[register], new = groups, True
        for ours, others in ((self.unfenced, other.unfenced), (self.used, other.used)):
            if not others <= ours:
                ours |= others
                new = True
        for load, registers in other.loads.items():
            if not registers <= self.loads.get(load, frozenset()):
                self.loads[load] = registers | self.loads.get(load, frozenset())
                new = True
        return new


def solve(body: Body, first: State, step: Callable[[Decoding, State], None]) -> list[State | None]:
    """The state at the beginning of each block, given the first one's; None for unreachable blocks."""
    entering: list[State | None] = [None] * len(body.decodings)
    entering[0] = first
    pending = [0]
    while pending:
        number = pending.pop()
        before = entering[number]
        assert before is not None
        state = before.copy()
        for decoding in body.decodings[number]:
            step(decoding, state)
        for following in body.edges[number]:
            known = entering[following]
            if known is None:
                entering[following] = state.copy()
                pending.append(following)
            elif known.join(state):
                pending.append(following)
    return entering


def step_groups(d: Decoding, state: State) -> None:
    """Apply a wgmma instruction to a state; others have no effect."""
    step = _GROUP_STEPS.get(d.effects.in_flight)
    if step is not None:
        step(d, state)


def watch_in_flight(decoded: Decoded, body: Body) -> list[Beside]:
    """The checks beside a function's instructions."""
    if not any(d.effects.in_flight in _BEGINS for decodings in body.decodings for d in decodings):
        return []
    return _Watcher(decoded, body).run()


def may_touch_in_flight(decoded: Decoded, body: Body) -> bool:
    """Whether a function may access registers too early, so that it needs checks beside its instructions."""
    return _Watcher(decoded, body).look()


class _Watcher:
    def __init__(self, decoded: Decoded, body: Body):
        self._table = decoded.table
        self._body = body
        self._signed = bool(decoded.compiler)
        self._found: list[Beside] = []
        products = [d for decodings in body.decodings for d in decodings if d.effects.in_flight == "multiply"]
        self._used = {r.number for d in products for r in owned_registers(d)}
        self._unfenced: dict[int, Register] = {}
        # sites, with registers that they may access after a fence
        self._covered: set[tuple[int, int]] = set()

    def run(self) -> list[Beside]:
        self.look()
        if self._unfenced:
            self._follow_unfenced()
        return self._found

    def look(self) -> bool:
        """Whether there is anything to check."""
        # a fence is required before the first operation
        entering = solve(self._body, State(unfenced=set(self._used)), self._step)
        for number, state in enumerate(entering):
            if state is not None:
                self._block(number, state)
        return bool(self._found or self._unfenced)

    def _run_before(self, d: Decoding, check: Check) -> None:
        self._found.append(Beside(d.site.number, check))

    def _run_after(self, d: Decoding, check: Check) -> None:
        self._found.append(Beside(d.site.number, check, after=True))

    def _step(self, d: Decoding, state: State) -> None:
        """Apply an instruction to a state."""
        special = _STEPS.get(d.effects.in_flight)
        if special is not None:
            special(d, state)
            return
        touched = {r.number for r in d.reads} | {r.number for r in d.writes}
        if _is_sure(d):
            _finish_loads(state, touched)
        if self._used:
            state.unfenced |= {r.number for r in self._fenceable(d)} & self._used - self._movable(state)

    def _fenceable(self, d: Decoding) -> list[Register]:
        """Registers whose access by an instruction requires a fence; in compiled code only those that it sets.

        If registers of a completed operation are only read, ptxas inserts the fence and says so (C7519).
        """
        return _unique(d.writes if self._signed else d.writes + d.reads)

    def _movable(self, state: State) -> set[int]:
        """Registers that no operation has used since the last fence: accesses to them may be moved before it.

        Compilers move writes of registers past the asm statement of a fence, which does not name them, and ptxas
        restores the order. Hand-written PTX must have the fence.
        """
        return self._used - state.used - state.unfenced if self._signed else set()

    def _block(self, number: int, state: State) -> None:
        """Add the checks of one block."""
        for decoding in self._body.decodings[number]:
            if decoding.effects.in_flight == "multiply":
                self._operation(decoding, state)
            elif not decoding.effects.in_flight:
                self._ordinary(decoding, state)
                touched = {r.number for r in decoding.reads + decoding.writes}
                self._covered |= {(decoding.site.number, register) for register in touched & self._movable(state)}
            self._step(decoding, state)

    def _operation(self, d: Decoding, state: State) -> None:
        """An operation reads A, in registers, like any instruction; its accumulators may still be in flight."""
        written = {r.number for r in d.writes}
        for register in owned_registers(d):
            if register.number in state.unfenced:
                self._unfenced[register.number] = register
            if register.number in state.written and register.number not in written:
                self._run_before(d, _touch(d, register, "reads", False))

    def _ordinary(self, d: Decoding, state: State) -> None:
        for register in _unique(d.reads):
            if register.number in state.written:
                self._run_before(d, _touch(d, register, "reads", False))
        for register in _unique(d.writes):
            if register.number in state.written:
                self._run_before(d, _touch(d, register, "writes", False))
            if register.number in state.read:
                self._run_before(d, _touch(d, register, "writes", True))
        reads = {r.number for r in d.reads}
        for load, registers in state.loads.items():
            if registers & reads:
                self._run_before(d, _use(d, load))

    def _follow_unfenced(self) -> None:
        """Add flags that track at run time whether accesses to registers used by wgmma are followed by a fence."""
        table = self._table
        flags = {n: table.number(RegisterSlot("bool", table.new_row("bool"))) for n in self._unfenced}
        for d in self._body:
            does = d.effects.in_flight
            if does == "fence":
                self._run_after(d, _mark(d, list(flags.values()), True))
            elif does == "multiply":
                for register in owned_registers(d):
                    if register.number in flags:
                        self._run_before(d, _ask(d, register, flags[register.number]))
            else:
                registers = [r.number for r in self._fenceable(d) if r.number in flags]
                touched = [flags[n] for n in registers if (d.site.number, n) not in self._covered]
                if touched:
                    self._run_after(d, _mark(d, touched, False))


def _finish_loads(state: State, touched: set[int]) -> None:
    for load in [load for load, registers in state.loads.items() if registers & touched]:
        del state.loads[load]


def _multiply(d: Decoding, state: State) -> None:
    written = {r.number for r in d.writes}
    for number in written:
        state.written[number] = 0
    for number in {r.number for r in owned_registers(d)} - written:
        state.read[number] = 0
    if _is_sure(d):
        state.unfenced -= {r.number for r in owned_registers(d)}
    state.used |= {r.number for r in owned_registers(d)}


def owned_registers(d: Decoding) -> list[Register]:
    """The registers that a wgmma operation owns: D and A, but not descriptors, metadata or predicates."""
    meta = d.position("meta")
    operand = None if meta is None else d.operands[meta]
    metadata = d.scope.register(operand.text) if isinstance(operand, Name) else None
    found = [register for register in _unique(d.writes + d.reads) if register.bank == "uint32"]
    return [register for register in found if register is not metadata]


def _is_sure(d: Decoding) -> bool:
    """Whether all lanes that reach an instruction run it: an effect that a guard may skip cannot be relied on."""
    return d.instruction.guard is None


def _fence(d: Decoding, state: State) -> None:
    if _is_sure(d):
        state.unfenced.clear()
        state.used.clear()


def _commit(d: Decoding, state: State) -> None:
    if not _is_sure(d):
        return
    for groups in (state.written, state.read):
        for number, count in groups.items():
            groups[number] = min(count + 1, _MOST_GROUPS)


def _wait(d: Decoding, state: State) -> None:
    if not _is_sure(d):
        return
    keep = d.constant_of(0) or 0
    for groups in (state.written, state.read):
        for number in [n for n, count in groups.items() if count > keep]:
            del groups[number]


def _load(d: Decoding, state: State) -> None:
    if _is_sure(d):
        _finish_loads(state, {r.number for r in d.address_reads})
    state.loads[d.site.number] = frozenset(r.number for r in d.writes)


def _loaded(d: Decoding, state: State) -> None:
    if d.mod("op") == "wait::ld" and _is_sure(d):
        state.loads.clear()


# by an instruction's effect on registers in flight: wgmma instructions, and all
_GROUP_STEPS: dict[str, Callable[[Decoding, State], None]] = {
    "multiply": _multiply,
    "fence": _fence,
    "commit": _commit,
    "wait": _wait,
}
_STEPS = _GROUP_STEPS | {"load": _load, "loaded": _loaded}
_BEGINS = frozenset(("multiply", "load"))


def _unique(registers: Iterable[Register]) -> list[Register]:
    return list({r.number: r for r in registers}.values())


def _touch(d: Decoding, register: Register, verb: str, as_operand: bool) -> Check:
    """Check whether a wgmma operation in flight owns a register that an instruction accesses."""
    guard, site, row, name = d.guard(), d.site, register.row, register.name

    def check(window: Window, mask: Mask | None) -> None:
        groups = window.batch.warpgroups
        if groups.watched:
            active = active_positions(window, mask, guard).reshape(-1, WARP).any(axis=1)
            groups.touched(window.warps[active], row, name, verb, as_operand, site)

    return check


def _use(d: Decoding, load: int) -> Check:
    """A register of a load of tensor memory is used: the load is complete."""
    guard = d.guard()

    def check(window: Window, mask: Mask | None) -> None:
        active = active_positions(window, mask, guard).reshape(-1, WARP).any(axis=1)
        window.batch.tensor.used(load, window.warps[active])

    return check


def _mark(d: Decoding, flags: list[int], value: bool) -> Check:
    guard = d.guard()

    def mark(window: Window, mask: Mask | None) -> None:
        active = active_positions(window, mask, guard)
        for flag in flags:
            window.put(flag, np.full(window.size, value), active)

    return mark


def _ask(d: Decoding, register: Register, flag: int) -> Check:
    """Check whether a register was accessed since the last fence."""
    guard, site, name = d.guard(), d.site, register.name

    def check(window: Window, mask: Mask | None) -> None:
        bad = active_positions(window, mask, guard) & ~window.rows[flag]
        if bad.any():
            window.batch.warpgroups.unfenced(window.lane_numbers[bad], name, site)

    return check
