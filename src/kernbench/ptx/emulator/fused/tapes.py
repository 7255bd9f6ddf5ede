"""Tapes: consecutive arithmetic steps as a list of numbers that one call of machine code plays.

The operations that a tape refers to are the same for all programs, so a handful of them serves most. Each is compiled
once on a machine, and loaded when a tape first refers to it. So nothing is compiled for a single program, and steps
that run a few times cost next to nothing. Runs of many lanes become machine code of their own (`runs`).
"""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.native.machine import Code, machine_name
from kernbench.common.native_loops import KeptCode, NativeLoop
from kernbench.ptx.emulator.fused import code, tape_code
from kernbench.ptx.emulator.fused.code import BITS
from kernbench.ptx.emulator.fused.values import WIDTH, NotFused
from kernbench.ptx.emulator.lanes.slots import BANKS, ArgumentSlot, ConstantSlot, RegisterSlot, Slot, SpecialSlot
from kernbench.ptx.emulator.lanes.window import ARGUMENT, CONSTANT, OUTSIDE
from kernbench.ptx.emulator.program.steps import Compute, Computed, Step

# nanoseconds that steps with an operation must have cost before it is compiled: less than a hundredth of the
# compilation, since all later programs use it, too
_MAKE = 20e3


class Tape(NamedTuple):
    """Steps as numbers, and the slots that a window must resolve for them: special registers and addresses.

    `constants` keeps the arrays alive whose addresses are among the numbers.
    """

    numbers: Array
    outside: tuple[int, ...]
    constants: tuple[Array, ...]


class Piece(NamedTuple):
    """A range of steps as a tape; None for a step without an operation."""

    begin: int
    end: int
    tape: Tape | None


class _Operation:
    """A step's function on rows of certain widths; `text` is empty if machine code does not support it."""

    def __init__(self, function: Compute, sources: tuple[int, ...], targets: tuple[int, ...]):
        self.text = self.name = ""
        self.address = 0
        self.looked_for = False
        # the alternative is a loop of its own, whose compilation takes longer
        self._spent = _MAKE if isinstance(function, NativeLoop) else 0.0
        if len(sources) + len(targets) > tape_code.MOST:
            return
        try:
            text = tape_code.operation(function, sources, targets)
        except NotFused:
            return
        self.name = f"operation_{sha256(f'{text} {machine_name()}'.encode()).hexdigest()[:24]}"
        self.text = text.replace("@operation(", f"@{self.name}(")

    def spend(self, nanoseconds: float) -> None:
        """Add the cost of a step that ran without it."""
        self._spent += nanoseconds

    def forget(self) -> None:
        """Never compile it again: it was compiled, or cannot be."""
        self._spent = float("-inf")

    @property
    def pays(self) -> bool:
        """Whether to compile it if it is not in the cache."""
        return self._spent >= _MAKE


_KEPT = KeptCode(tape_code.operation, "operation")
# by function and widths, for the life of the process: so long do the functions of steps live
_OPERATIONS: dict[tuple[Compute, tuple[int, ...], tuple[int, ...]], _Operation] = {}
_NAMED: dict[str, _Operation] = {}
# constants of all living tapes
_CONSTANTS: WeakValueDictionary[tuple[str, int], Array] = WeakValueDictionary()


def _operation(slots: Sequence[Slot], computed: Computed) -> _Operation | None:
    """The operation of a step, None if there is none or a tape cannot address its operands."""
    used = (*computed.sources, *computed.targets)
    if not all(_is_named(slots[slot]) for slot in used):
        return None
    bits = [BITS[slots[slot].dtype] for slot in used]
    key = computed.function, tuple(bits[: len(computed.sources)]), tuple(bits[len(computed.sources) :])
    found = _OPERATIONS.get(key)
    if found is None:
        made = _Operation(*key)
        # several functions may have the same text
        found = _OPERATIONS[key] = _NAMED.setdefault(made.name, made)
    return found if found.text else None


def _is_named(spec: Slot) -> bool:
    if isinstance(spec, RegisterSlot | ConstantSlot | SpecialSlot | ArgumentSlot):
        return spec.dtype in BITS
    # the address of a frame changes
    return spec.dtype in BITS and spec.space != "frame"


class Taping:
    """Converts steps to tapes, as far as their operations are available."""

    def __init__(self, steps: tuple[Step, ...]):
        self._computed = [step.computed for step in steps if step.computed is not None]
        self._operations: list[_Operation | None] | None = None
        # operations that may still become available
        self._missing: dict[str, _Operation] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the pieces will not change any more."""
        return self._operations is not None and not self._missing

    def pieces(self, slots: Sequence[Slot], cost: float) -> list[Piece] | None:
        """The steps as tapes and single steps, None if unchanged; `cost` is nanoseconds per step."""
        first = self._operations is None
        if self._operations is None:
            self._operations = [_operation(slots, one) for one in self._computed]
            self._missing = {one.name: one for one in self._operations if one is not None and not one.address}
        for one in self._missing.values():
            one.spend(cost)
        if any(one.address or one.pays or not one.looked_for for one in self._missing.values()):
            _look_for({name: one for name, one in self._missing.items() if not one.address})
            many = len(self._missing)
            self._missing = {name: one for name, one in self._missing.items() if not one.address}
            first = first or len(self._missing) < many
        return _pieces(slots, self._computed, self._operations) if first else None


def _look_for(missing: dict[str, _Operation]) -> None:
    """Load cached operations, and compile those that pay."""
    kept = {name: one.text for name, one in missing.items() if not one.looked_for}
    found = _KEPT.addresses(kept, False) if kept else {}
    made = {name: one.text for name, one in missing.items() if one.pays and name not in found}
    if made:
        found |= _KEPT.addresses(made, True)
    for name, one in missing.items():
        one.looked_for = True
        one.address = found.get(name, 0)
        if name in made:
            # if compilation failed, do not try again
            one.forget()


def _pieces(
    slots: Sequence[Slot], computed: Sequence[Computed], operations: Sequence[_Operation | None]
) -> list[Piece]:
    found: list[Piece] = []
    begin = 0
    for number, operation in enumerate([*operations, None]):
        if operation is not None and operation.address:
            continue
        if begin < number:
            found.append(Piece(begin, number, _tape(slots, computed[begin:number], operations[begin:number])))
        if number < len(computed):
            found.append(Piece(number, number + 1, None))
        begin = number + 1
    return found


def _tape(slots: Sequence[Slot], computed: Sequence[Computed], operations: Sequence[_Operation | None]) -> Tape:
    numbers: list[int] = []
    outside: dict[int, int] = {}
    constants: dict[int, Array] = {}
    for step, operation in zip(computed, operations, strict=True):
        assert operation is not None
        flags = tape_code.UNMASKED if step.relaxed else 0
        guard = [0, 0]
        if step.guard is not None:
            flags |= tape_code.GUARDED | (tape_code.NEGATED if step.guard[1] else 0)
            guard = _operand(slots, step.guard[0], outside, constants)[:2]
        numbers += [operation.address, flags, len(step.sources), len(step.targets), *guard]
        for slot in (*step.sources, *step.targets):
            numbers += _operand(slots, slot, outside, constants)
    return Tape(np.array(numbers, np.int64), tuple(outside), tuple(constants.values()))


def _operand(slots: Sequence[Slot], slot: int, outside: dict[int, int], constants: dict[int, Array]) -> list[int]:
    """The base of a slot in a window, its row or address there, and its entry size as a shift.

    Slots outside the registers, and constants, are collected.
    """
    spec = slots[slot]
    shift = (max(BITS[spec.dtype], 8) // 8).bit_length() - 1
    if isinstance(spec, RegisterSlot):
        return [BANKS.index(spec.bank), spec.row, shift]
    if isinstance(spec, ConstantSlot):
        constant = _constant(spec)
        constants[constant.ctypes.data] = constant
        return [CONSTANT, constant.ctypes.data, shift]
    if isinstance(spec, ArgumentSlot):
        return [ARGUMENT, spec.row, shift]
    return [OUTSIDE + outside.setdefault(slot, len(outside)), 0, shift]


def _constant(spec: ConstantSlot) -> Array:
    """A constant, repeated for the lanes of one machine instruction."""
    key = spec.dtype, spec.bits
    found = _CONSTANTS.get(key)
    if found is None:
        found = _CONSTANTS[key] = np.full(WIDTH, spec.bits, spec.dtype)
    return found


@cache
def player() -> Code | None:
    """The code that plays a tape, given its numbers, a window's bases, and a mask; None if that is impossible."""
    if not code.is_possible():
        return None
    body = tape_code.playing("play")[0]
    name = f"play_{sha256(f'{body} {machine_name()}'.encode()).hexdigest()[:24]}"
    text, table = tape_code.playing(name)
    return KeptCode(tape_code.playing, "play").code(name, text, table)
