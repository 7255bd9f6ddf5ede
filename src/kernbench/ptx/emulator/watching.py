"""Steps that follow undefined values: a bool row beside each register that may hold one.

A value is undefined where a register was never set, or where it was loaded from local memory that the thread never
wrote, from tensor memory that nobody wrote or, where a selection may drop it, from such shared memory, or where a
compiler's integer division has a divisor of zero; storing such a value makes local memory unwritten again. What such a
value decides is reported: an address, a branch, what others may read.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes import WARP, Mask
from kernbench.ptx.emulator.memory.arena import LOCAL_BASE, TRACKED, UNWRITTEN, WRITTEN
from kernbench.ptx.emulator.operands import Decoding
from kernbench.ptx.emulator.scopes import Register
from kernbench.ptx.emulator.slots import RegisterSlot
from kernbench.ptx.emulator.steps import Step, action, compute, copy, guarded
from kernbench.ptx.emulator.window import Window
from kernbench.ptx.module import Integer, Name, Not, Operand
from kernbench.ptx.types import TYPES

_WINDOW = np.uint64(44)
_LOCAL = np.uint64(LOCAL_BASE >> 44)
_ADDRESS = (1 << 64) - 1
# operations that put a value together from parts: one part that is defined makes it so
_JOINING = frozenset(("or", "bfi", "lop3", "prmt"))


# instructions that lay several values side by side in one register
_PACKING = frozenset(("pack", "cvt.packed", "cvt.pack"))
# what compilers compute ahead, and do not use where the divisor is zero
DIVISIONS = frozenset(("div.int", "rem.int"))


class UndefinedLoadError(Exception):
    """A load met undefined memory: the rest of the block is to be run with the steps that follow such values."""

    def __init__(self, position: int):
        super().__init__("a load met undefined memory")
        self.position = position


def watch(decoding: Decoding, register: Register, flags: int) -> Step | None:
    """Report lanes in which an undefined register is about to decide something; None where it cannot."""
    site, name, role = decoding.site, register.name, decoding.role_of(register)
    outside = _outside_local(decoding) if role == "value" and decoding.resolved.meaning == "st" else None
    if outside is _never:
        return None

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        if checks is None:
            return
        bad = window.rows[flags]
        bad = bad.copy() if mask is None else bad & mask
        if outside is not None and bad.any():
            bad &= outside(window)
        if bad.any():
            checks.undefined(window, site, name, role, bad, flags)

    return _under_guard(decoding, action(general)) if role != "guard" else action(general)


def hand_on(decoding: Decoding, flags: int) -> Step:
    """Report lanes whose value of unwritten shared memory is about to go to other lanes, or into a product."""
    site = decoding.site

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        bad = None if checks is None else window.rows[flags] if mask is None else window.rows[flags] & mask
        if bad is not None and bad.any():
            checks.unwritten_choice(window, site, "is handed on", bad, flags)

    return _under_guard(decoding, action(general))


def _never(window: Window) -> Any:
    return np.zeros(window.size, bool)


def _outside_local(decoding: Decoding) -> Callable[[Window], Any]:
    """For a store, which positions write what others may read."""
    if decoding.store_space == "local":
        return _never
    if decoding.store_space != "generic":
        return lambda window: np.ones(window.size, bool)
    return lambda window: ~_is_local(decoding, window)


def _is_local(decoding: Decoding, window: Window) -> Any:
    return _addresses(decoding, window) >> _WINDOW == _LOCAL


def _addresses(decoding: Decoding, window: Window, slot: int | None = None) -> Any:
    """Where each position's access goes."""
    slot = decoding.address_slot if slot is None else slot
    assert slot is not None
    row = np.broadcast_to(window.rows[slot], window.size).astype(np.uint64)
    return row + np.uint64(decoding.address_offset & _ADDRESS)


def mark(decoding: Decoding, sources: list[int], targets: list[int], followed: dict[int, int], joins: bool) -> Step:
    """Results are undefined where a source is; a selection only where the chosen one is. Runs before the instruction.

    With `joins`, values that are put together from parts are undefined only where every part is; words made of halves
    and packed conversions always.
    """
    chosen = _selection(decoding, followed) if decoding.resolved.meaning == "selp" else None
    parts = decoding.resolved.meaning in _PACKING or (joins and decoding.instruction.opcode in _JOINING)
    if parts and _has_a_sure_part(decoding, sources, followed):
        sources = []
    decided = _deciding_operands(decoding, followed)

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        if checks is None:
            return
        flags: Any = chosen(window) if chosen is not None else _combined(window, sources, parts)
        for decides in decided if flags.any() else ():
            flags &= ~decides(window)
        for target in targets:
            window.put(target, flags, mask)
        if joins and sources and flags.any():
            checks.definedness.pass_on(window, sources, targets)

    return _under_guard(decoding, action(general))


def _has_a_sure_part(decoding: Decoding, sources: list[int], followed: dict[int, int]) -> bool:
    """Whether a part that a value is put together from is never undefined."""
    if decoding.resolved.meaning in _PACKING:
        # random bits to round with are no part
        last = len(decoding.operands) - (decoding.mod("rnd") == "rs")
        parts = [part for index in range(1, last) for part in decoding.registers_of(index)]
        return any(part is None or part.number not in followed for part in parts)
    return len(sources) < len(decoding.operands) - 1


def _deciding_operands(decoding: Decoding, followed: dict[int, int]) -> list[Callable[[Window], Any]]:
    """For and, or and the boolean of setp: lanes in which an operand is defined and decides the result by itself."""
    opcode = decoding.instruction.opcode
    operation = decoding.mod("bool") if opcode == "setp" else opcode
    if operation == "xor" and len({str(operand) for operand in decoding.operands[1:3]}) == 1:
        return [lambda window: np.ones(window.size, bool)]
    if operation not in ("and", "or"):
        return []
    operands = decoding.operands[3:4] if opcode == "setp" else decoding.operands[1:3]
    return [made for operand in operands if (made := _decides(decoding, operand, operation == "or", followed))]


def _decides(
    decoding: Decoding, operand: Operand, when: bool, followed: dict[int, int]
) -> Callable[[Window], Any] | None:
    """Lanes in which an operand is defined, and is anything but zero (`when`) or zero."""
    if isinstance(operand, Integer):
        return lambda window: np.full(window.size, bool(operand.value) == when)
    name = operand.operand if isinstance(operand, Not) else operand
    register = decoding.scope.register(name.text) if isinstance(name, Name) else None
    if register is None:
        return None
    slot, flags = decoding.table.number(RegisterSlot(register.bank, register.row)), followed.get(register.number)
    wanted = when != isinstance(operand, Not)

    def decides(window: Window) -> Any:
        found = (np.broadcast_to(window.rows[slot], window.size) != 0) == wanted
        return found if flags is None else found & ~window.rows[flags]

    return decides


def _combined(window: Window, sources: list[int], parts: bool) -> Any:
    flags = np.full(window.size, parts and bool(sources))
    for source in sources:
        if parts:
            flags &= window.rows[source]
        else:
            flags |= window.rows[source]
    return flags


def _selection(decoding: Decoding, followed: dict[int, int]) -> Any:
    """Undefinedness of selp: of the operand that the predicate takes."""
    registers = [decoding.register_at(index) for index in (1, 2, 3)]
    if registers[2] is None:
        return None
    predicate = decoding.table.number(RegisterSlot(registers[2].bank, registers[2].row))
    flags = [followed.get(r.number) if r is not None else None for r in registers]

    def chosen(window: Window) -> Any:
        rows = [np.zeros(window.size, bool) if flag is None else window.rows[flag] for flag in flags]
        return np.where(window.rows[predicate], rows[0], rows[1]) | rows[2]

    return chosen


def may_load_undefined(decoding: Decoding) -> bool:
    """Whether a load may read local or tensor memory."""
    if decoding.resolved.meaning == "tcgen05.ld":
        return True
    space = decoding.address_space or decoding.mod("space")
    return decoding.resolved.meaning == "ld" and space in ("", "local", "param::func")


def loads_shared(decoding: Decoding) -> bool:
    """Whether a load names shared memory of its own block."""
    return (decoding.address_space or decoding.mod("space")) in ("shared", "shared::cta")


def may_divide_by_zero(decoding: Decoding) -> bool:
    """Whether an instruction is an integer division whose divisor is no constant but zero."""
    return decoding.resolved.meaning in DIVISIONS and not decoding.constant_of(2)


def catch_of(decoding: Decoding, followed: dict[int, int]) -> "Catch":
    """What looks behind a load at what it brought, and behind a division at its result."""
    kind = SharedCatch if loads_shared(decoding) else _CATCHES.get(decoding.resolved.meaning, Catch)
    return kind(decoding, followed)


class Catch:
    """The step behind a load that may read local memory: what was never written makes its targets undefined."""

    def __init__(self, decoding: Decoding, followed: dict[int, int]):
        self._decoding = decoding
        self._nbytes = TYPES[decoding.mod("type")].nbytes
        self._targets = [
            (index, followed[register.number])
            for index, register in enumerate(decoding.registers_of(0))
            if register is not None and register.number in followed
        ]
        self._held: int | None = None
        # a copy of the address, where the load overwrites it
        self.holding = self._hold()
        # where no undefined value is known yet, and where such values are followed
        self.first, self.following = self._step(self._found), self._step(self._mark)
        # where the steps that follow undefined values go on behind this one
        self.position = 0

    def _hold(self) -> Step | None:
        d = self._decoding
        if d.address_slot is None or not any(register in d.writes for register in d.address_reads):
            return None
        self._held = d.temporary(d.table.slots[d.address_slot].dtype)
        return compute(copy, (d.address_slot,), (self._held,))

    def _step(self, function: Callable[[Window, Mask | None], None]) -> Step:
        def general(window: Window, mask: Mask | None) -> None:
            if window.batch.checks is not None:
                function(window, mask)

        return _under_guard(self._decoding, action(general))

    def _found(self, window: Window, mask: Mask | None) -> None:
        """The first undefined value changes how the rest runs."""
        if window.batch.checks.definedness.met:
            self._mark(window, mask)
            raise UndefinedLoadError(self.position)

    def _mark(self, window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        states = self._states(window) if definedness.met else None
        definedness.met = False
        for index, target in self._targets:
            part = slice(index * self._nbytes, (index + 1) * self._nbytes)
            flags = np.zeros(window.size, bool) if states is None else (states[:, part] == UNWRITTEN).all(axis=1)
            window.put(target, flags, mask)
            if states is not None:
                definedness.came_from(target, self._decoding.site)

    def _states(self, window: Window) -> Any:
        """The state of each byte that each position loaded; written for what is not local."""
        count = len(self._decoding.registers_of(0))
        places, local = _places(self._decoding, window, self._held)
        states = np.full((window.size, count * self._nbytes), WRITTEN, np.uint8)
        held = window.batch.port.space("local").state[1]
        offsets = np.arange(count * self._nbytes)
        inside = local & (places + states.shape[1] <= len(held))
        states[inside] = held[places[inside][:, None] + offsets]
        return states


class SharedCatch(Catch):
    """The step behind a load of shared memory."""

    def _states(self, window: Window) -> Any:
        count = len(self._decoding.registers_of(0)) * self._nbytes
        ctas, offsets = window.batch.places.find(_addresses(self._decoding, window, self._held), window.lane_numbers)
        held = window.batch.port.space("shared").state[1]
        places = ctas.astype(np.int64) * window.batch.shared_stride + offsets.astype(np.int64)
        inside = (ctas >= 0) & (places >= 0) & (places + count <= len(held))
        states = np.full((window.size, count), WRITTEN, np.uint8)
        states[inside] = held[places[inside][:, None] + np.arange(count)] & ~np.uint8(TRACKED)
        return states


class TensorCatch(Catch):
    """The step behind tcgen05.ld: what warps read of tensor memory that nobody wrote is undefined."""

    def _mark(self, window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        empty = definedness.take_empty()
        flags = np.isin(window.lane_numbers // WARP, empty)
        for _, target in self._targets:
            window.put(target, flags, mask)
            if empty:
                definedness.came_from(target, self._decoding.site)


class DivisionCatch(Catch):
    """The step behind an integer division: its result is undefined in lanes whose divisor is zero."""

    def _mark(self, window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        lanes = definedness.take_divided()
        flags = np.isin(window.lane_numbers, lanes)
        for _, target in self._targets:
            window.put(target, flags, mask)
            if len(lanes):
                definedness.came_from(target, self._decoding.site)


_CATCHES: dict[str, type[Catch]] = {"tcgen05.ld": TensorCatch, **dict.fromkeys(DIVISIONS, DivisionCatch)}


def _places(decoding: Decoding, window: Window, slot: int | None = None) -> tuple[Any, Any]:
    """Where in local memory each position's access goes, and whether it goes there."""
    addresses = _addresses(decoding, window, slot)
    local = addresses >> _WINDOW == _LOCAL
    if decoding.address_space == "local" or decoding.mod("space") in ("local", "param::func"):
        local = np.ones(window.size, bool)
    space = window.batch.port.space("local")
    offsets = addresses & np.uint64((1 << 44) - 1)
    local &= offsets < np.uint64(max(space.size, 1))
    return (space.origins[window.lane_numbers] + offsets).astype(np.int64), local


def unwrite(decoding: Decoding, followed: dict[int, int]) -> Step | None:
    """Behind a store: local memory that an undefined value was stored to counts as unwritten."""
    nbytes = TYPES[decoding.mod("type")].nbytes
    registers = decoding.registers_of(1)
    sources = [(n, followed[r.number]) for n, r in enumerate(registers) if r is not None and r.number in followed]
    if not sources or decoding.store_space not in ("local", "generic"):
        return None

    def general(window: Window, mask: Mask | None) -> None:
        if window.batch.checks is None:
            return
        for index, flags in sources:
            bad = window.rows[flags] if mask is None else window.rows[flags] & mask
            if bad.any():
                places, local = _places(decoding, window)
                chosen = places[bad & local] + index * nbytes
                state = window.batch.port.space("local").state[1]
                state[(chosen[:, None] + np.arange(nbytes))] = UNWRITTEN

    return _under_guard(decoding, action(general))


def _under_guard(decoding: Decoding, step: Step) -> Step:
    guard = decoding.guard()
    return step if guard is None else guarded(step, *guard, own=False)
