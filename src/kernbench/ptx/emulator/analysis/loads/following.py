"""Transfer functions: how each instruction affects values that are followed to a compare-and-swap."""

from collections.abc import Callable, Mapping
from typing import Any

from kernbench.ptx.emulator.analysis.loads.provenance import (
    NOTHING,
    UNKNOWN,
    Node,
    State,
    Storage,
    Symbol,
    Value,
    overlapping,
)
from kernbench.ptx.emulator.lanes.slots import ConstantSlot, SymbolSlot
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.text.module import Float, Integer, Name, Not, Offset, Operand
from kernbench.ptx.text.types import TYPES

# special registers that are constant during a thread's life
_FIXED = ("%tid", "%ntid", "%ctaid", "%nctaid", "%laneid")
# spaces that no other thread writes, apart from frames
_CONSTANT = frozenset(("param", "const"))
_GENERIC = frozenset(("", "generic", "local"))
_EXACT = frozenset("usb")
# marks the symbol of a value that was only widened
_WIDENED = "widened"


def is_swap(d: Decoding) -> bool:
    """Whether an instruction is a compare-and-swap."""
    return d.effects.access == "atomic" and d.mod("op") == "cas"


def nbytes_of(d: Decoding) -> int:
    """Size in bytes of one value that an instruction moves."""
    kind = TYPES.get(d.mod("type"))
    return 0 if kind is None else kind.nbytes


def space_of(d: Decoding) -> str:
    """The space of an access, "" for generic."""
    return d.address_space or d.mod("space").partition("::")[0]


def frame_offset(d: Decoding, operand: Operand) -> int | None:
    """The frame offset of a variable that is an operand."""
    found = d.scope.variable(operand.text) if isinstance(operand, Name) else None
    return None if found is None else d.code.frame.get((id(found[1]), found[0].name))


class Following:
    """The instructions of one block in one context; `ways` collects the results."""

    def __init__(self, ways: Any, context: int, node: Node, state: State):
        self._ways, self._context, self._node, self._state = ways, context, node, state
        self._symbols = ways.symbols

    def instruction(self, d: Decoding) -> None:
        """Apply one instruction; calls and branches are handled elsewhere."""
        effects = d.effects
        if effects.computes and not effects.carry_flag:
            self._compute(d)
        elif is_swap(d):
            self._swap(d)
        else:
            _RULES.get(effects.access or effects.flow, Following._other)(self, d)

    def value(self, d: Decoding, operand: Operand) -> Value:
        """The value of an operand."""
        if isinstance(operand, (Integer, Float)):
            return self._symbols.fixed("constant", operand.value if isinstance(operand, Integer) else operand), 0
        if isinstance(operand, Not):
            return UNKNOWN, self.value(d, operand.operand)[1]
        base = operand.base if isinstance(operand, Offset) else operand
        register = d.scope.register(base.text) if isinstance(base, Name) else None
        if register is not None:
            return self._held(register)
        offset = frame_offset(d, base)
        if offset is not None:
            return self._symbols.fixed("frame", self._context, offset + getattr(operand, "offset", 0)), 0
        if not isinstance(base, Name) or (base.text.startswith("%") and not base.text.startswith(_FIXED)):
            return NOTHING
        return self._symbols.fixed("name", operand), 0

    def _held(self, register: Register) -> Value:
        held: Value = self._state.values.get(("register", self._context, register.number), NOTHING)
        return held

    def _marks(self, registers: list[Register]) -> int:
        marks = 0
        for register in registers:
            marks |= self._held(register)[1]
        return marks

    def _guard(self, d: Decoding) -> int:
        """The marks of an instruction's guard."""
        if d.instruction.guard is None:
            return 0
        register = d.scope.register(d.instruction.guard.register)
        return self._held(register)[1] if register is not None else 0

    def _put(self, d: Decoding, register: Register, value: Value) -> None:
        """Write a register; under a guard it may keep its old value."""
        storage: Storage = ("register", self._context, register.number)
        if d.instruction.guard is not None:
            symbol, marks = self._held(register)
            self._ways.let_out(symbol, value[0])
            value = UNKNOWN, marks | value[1] | self._guard(d)
        self._state.values[storage] = value

    def _fresh(self, d: Decoding, index: int = 0) -> Symbol:
        """A new, unknown value."""
        symbol: Symbol = self._ways.made(
            self._state, self._symbols.changing("result", self._context, d.site.number, index)
        )
        return symbol

    def _compute(self, d: Decoding) -> None:
        marks = self._marks(d.reads)
        symbol = self._computed(d) if len(d.writes) == 1 else UNKNOWN
        # a predicate contains no address
        if self._symbols.frame(symbol) is None and any(register.bank != "bool" for register in d.writes):
            self._ways.let_out(*(self._held(register)[0] for register in d.reads))
        for index, register in enumerate(d.writes):
            self._put(d, register, (symbol or self._fresh(d, index), marks))

    def _computed(self, d: Decoding) -> Symbol:
        """The symbol of the result of an instruction with one result."""
        values = [self.value(d, operand)[0] for operand in d.operands[1:]]
        law, kind = d.effects.law, d.mod("type")
        if law == "copy" and len(values) == 1 and not d.has("vec"):
            return values[0]
        if law == "address":
            local = values[0] != UNKNOWN and self._symbols.frame(values[0]) is not None
            return values[0] if local or d.mod("space") in ("global", "const", "param") else self._made(d, values)
        if law == "sum" and kind in ("u64", "s64", "b64"):
            return self._sum(d, values)
        return self._made(d, values)

    def _sum(self, d: Decoding, values: list[Symbol]) -> Symbol:
        for symbol, operand in ((values[0], d.operands[2]), (values[1], d.operands[1])):
            if isinstance(operand, Integer):
                found: Symbol = self._symbols.plus(symbol, operand.value)
                return found
        return self._made(d, values)

    def _made(self, d: Decoding, values: list[Symbol]) -> Symbol:
        same = self._same(d, values)
        if same is not None:
            return same
        name = d.instruction.name
        made: Symbol = self._symbols.made((_WIDENED, name) if _widens(d) else name, values)
        return made

    def _same(self, d: Decoding, values: list[Symbol]) -> Symbol | None:
        """For a comparison of a swap's result with the expected value.

        The load that it validates, and by which outcome.
        """
        if d.effects.law != "compare" or d.mod("cmp") not in ("eq", "ne") or d.has("bool"):
            return None
        if d.mod("type")[:1] not in _EXACT or len(values) != 2:
            return None
        for found, expected in (values, values[::-1]):
            note = self._state.values.get(("note", "expected", self._bare(found)), NOTHING)
            if note[0] != UNKNOWN and note[0] == self._bare(expected) and self._alike(found, expected):
                same: Symbol = self._symbols.made(("same", d.mod("cmp") == "eq", note[1]), [found, expected])
                return same
        return None

    def _bare(self, symbol: Symbol) -> Symbol:
        """A symbol without widening."""
        key = self._symbols.key(symbol)
        while key is not None and isinstance(key[0], tuple) and key[0][0] == _WIDENED:
            symbol = key[1]
            key = self._symbols.key(symbol)
        return symbol

    def _alike(self, one: Symbol, two: Symbol) -> bool:
        """Whether two values were widened in the same way."""
        while one != self._bare(one) or two != self._bare(two):
            a, b = self._symbols.key(one), self._symbols.key(two)
            if a is None or b is None or a[0] != b[0]:
                return False
            one, two = a[1], b[1]
        return True

    def proved(self, d: Decoding, taken: bool) -> int:
        """The marks of loads that a branch validates on this path."""
        guard = d.instruction.guard
        register = d.scope.register(guard.register) if guard is not None else None
        key = self._symbols.key(self._held(register)[0]) if register is not None else None
        if key is None or not isinstance(key[0], tuple) or key[0][0] != "same":
            return 0
        _, when, marks = key[0]
        assert guard is not None
        return int(marks) if (taken != guard.negated) == when else 0

    def _address(self, d: Decoding) -> Symbol:
        """The address of an access; it must not depend on followed values."""
        self._ways.astray(self._marks(d.address_reads))
        slot = d.table.slots[d.address_slot] if d.address_slot is not None else None
        if d.address_reads:
            base: Symbol = self._symbols.plus(self._held(d.address_reads[0])[0], d.address_offset)
        elif isinstance(slot, SymbolSlot) and slot.space == "frame":
            base = self._symbols.fixed("frame", self._context, slot.offset)
        elif isinstance(slot, (SymbolSlot, ConstantSlot)):
            base = self._symbols.fixed("slot", slot)
        else:
            return UNKNOWN
        if space_of(d) == "shared" and base != UNKNOWN:
            return int(self._symbols.made("shared", [base]))
        return base

    def _load(self, d: Decoding) -> None:
        address = self._address(d)
        frame, nbytes = self._symbols.frame(address), nbytes_of(d)
        number = self._ways.mark_of(self._context, d)
        marks = 0
        if frame is None and space_of(d) in _GENERIC:
            for storage, (_, there) in self._state.values.items():
                marks |= there if self._ways.open(storage) else 0
        if number >= 0 and frame is None:
            # a value that it loaded before may have another address
            self._state.remark(1 << 2 * number, 2 << 2 * number)
            self._state.values["note", "address", number] = address, 0
            marks |= 1 << 2 * number
        for index, register in enumerate(d.registers_of(0)):
            if register is None or register not in d.writes:
                continue
            if frame is not None:
                value: Value = self._state.load(frame[0], frame[1] + index * nbytes, nbytes)
                value = value if value[0] else (self._fresh(d, index), value[1])
            elif space_of(d) in _CONSTANT and address != UNKNOWN:
                value = self._symbols.made(("constant at", nbytes, index), [address]), marks
            else:
                value = self._fresh(d, index), marks
            self._put(d, register, value)

    def _store(self, d: Decoding) -> None:
        address = self._address(d)
        frame, nbytes = self._symbols.frame(address), nbytes_of(d)
        values = [self.value(d, operand) for operand in d.items(1)]
        if frame is None:
            self._spread(d, values)
            return
        for index, value in enumerate(values):
            start = frame[1] + index * nbytes
            if d.instruction.guard is not None:
                old = self._state.load(frame[0], start, nbytes)
                self._ways.let_out(old[0], value[0])
                value = UNKNOWN, old[1] | value[1] | self._guard(d)
            self._state.store(frame[0], start, nbytes, value)

    def _spread(self, d: Decoding, values: list[Value]) -> None:
        """Values are stored to memory that is not followed, which may be that of frames with a known address."""
        marks = self._guard(d)
        for symbol, more in values:
            self._ways.let_out(symbol)
            marks |= more
        self._ways.astray(marks)
        if space_of(d) in _GENERIC:
            self._lose_open()

    def _lose_open(self) -> None:
        for storage, (symbol, marks) in self._state.values.items():
            if self._ways.open(storage):
                self._ways.let_out(symbol)
                self._state.values[storage] = UNKNOWN, marks

    def _swap(self, d: Decoding) -> None:
        address = self._address(d)
        index = d.position("a")
        assert index is not None
        expected, stored = (self.value(d, operand) for operand in d.operands[index + 1 : index + 3])
        good = 0
        for storage, (symbol, _) in self._state.values.items():
            if storage[:2] == ("note", "address") and symbol == address != UNKNOWN:
                good |= 1 << 2 * storage[2] if self._ways.width_of(storage[2]) == nbytes_of(d) else 0
        good &= expected[1]
        self._ways.astray((expected[1] | stored[1]) & ~good | self._guard(d))
        self._ways.swapped(good, self._node, d.order.scope)
        self._ways.let_out(expected[0], stored[0])
        if space_of(d) in _GENERIC:
            self._lose_open()
        frame = self._symbols.frame(address)
        if frame is not None:
            self._state.store(frame[0], frame[1], nbytes_of(d), NOTHING)
        for register in d.writes:
            found = self._fresh(d)
            self._state.values["note", "expected", found] = expected[0], good
            self._put(d, register, (found, 0))

    def _branch(self, d: Decoding) -> None:
        self._ways.decided(self._node, self._guard(d))

    def _nothing(self, d: Decoding) -> None:
        self._ways.astray(self._guard(d))

    def _other(self, d: Decoding) -> None:
        """Any other instruction lets values escape."""
        self._ways.astray(self._marks(d.reads))
        self._ways.let_out(*(self._held(register)[0] for register in d.reads))
        if d.store_space in _GENERIC and d.address_slot is not None:
            self._lose_open()
        for index, register in enumerate(d.writes):
            self._put(d, register, (self._fresh(d, index), 0))

    def unknown_call(self, d: Decoding, arguments: tuple[Operand, ...], results: tuple[Operand, ...]) -> None:
        """A function without a body may read its arguments, and what they point to."""
        given = [value for operand in arguments for value in self._given(d, operand)]
        given += [value for storage, value in self._state.values.items() if self._ways.open(storage)]
        for symbol, marks in given:
            self._ways.let_out(symbol)
            self._ways.astray(marks)
        self._lose_open()
        for operand in results:
            storage, size = frame_offset(d, operand), _size(d, operand)
            if storage is not None and size:
                self._state.store(self._context, storage, size, NOTHING)
        for index, register in enumerate(d.writes):
            self._put(d, register, (self._fresh(d, index), 0))

    def _given(self, d: Decoding, operand: Operand) -> list[Value]:
        offset = frame_offset(d, operand)
        if offset is None:
            return [self.value(d, operand)]
        parts = overlapping(self._state.values, self._context, offset, _size(d, operand))
        return [self._state.values[part] for part in parts]


def _size(d: Decoding, operand: Operand) -> int:
    """The size of a variable in bytes."""
    found = d.scope.variable(operand.text) if isinstance(operand, Name) else None
    return 0 if found is None else found[0].size or 0


def _widens(d: Decoding) -> bool:
    """Whether an instruction only widens an integer."""
    kinds = d.instruction.modifiers
    if d.effects.law != "convert" or len(kinds) != 2 or any(kind[:1] not in _EXACT for kind in kinds):
        return False
    return int(kinds[0][1:]) >= int(kinds[1][1:])


# by an instruction's memory access, or control flow
_RULES: Mapping[str, Callable[[Following, Decoding], None]] = {
    "load": Following._load,
    "store": Following._store,
    "branch": Following._branch,
    "call": Following._nothing,
    "return": Following._nothing,
    "exit": Following._nothing,
}
