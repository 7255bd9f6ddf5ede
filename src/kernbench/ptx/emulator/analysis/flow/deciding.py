"""Control dependence of stores on a loaded value: by a store's own guard, or by a branch around it.

Which thread stores is decided by other predicates, of thread numbers, that are combined with it by `and`. If one of
those does not hold, the thread stores nothing, whatever it loaded. After a branch such a predicate may be computed
later: then its operands are computed before the branch, into registers that are dead there.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from kernbench.ptx.emulator.analysis.flow.dataflow import bits
from kernbench.ptx.emulator.analysis.flow.dominance import branch_region
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.slots import RegisterSlot
from kernbench.ptx.emulator.program.access_order import WEAK
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.text.module import Name

_CLOCKS = ("%clock", "%globaltimer")
Guard = tuple[int, bool]
General = Callable[[Window, "Mask | None"], None]


@dataclass(frozen=True, slots=True)
class Condition:
    """Predicates without which a thread stores nothing, and steps that compute them in advance."""

    guards: tuple[Guard, ...]
    steps: tuple[General, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """A branch.

    One condition for each dependent store, the block where paths join, and the registers set in between.
    """

    conditions: tuple[Condition, ...]
    meeting: int | None
    written: int


def guard_register(d: Decoding) -> Register | None:
    """The guard register of an instruction."""
    guard = d.instruction.guard
    return None if guard is None else d.scope.register(guard.register)


def conditions_of_store(decodings: list[Decoding], store: Decoding, held: int) -> Condition | None:
    """The predicates in a store's guard apart from the loaded values `held`; None if there are none."""
    register, guard = guard_register(store), store.instruction.guard
    if register is None or guard is None or guard.negated:
        return None
    before = decodings[: decodings.index(store)]
    found = [r for r in _conjuncts(register, before) if not bits([r]) & held]
    return Condition(tuple((_slot(store, r), False) for r in found)) if found else None


def _slot(d: Decoding, register: Register) -> int:
    return d.table.number(RegisterSlot(register.bank, register.row))


def _conjuncts(register: Register, before: list[Decoding]) -> Iterator[Register]:
    """The registers whose `and` a predicate is, as of the instructions `before`."""
    for index in reversed(range(len(before))):
        d = before[index]
        if register not in d.writes:
            continue
        sources = list(d.reads)
        later = [w for other in before[index:] for w in other.writes]
        if _joins(d) and not any(source in later for source in sources):
            for source in sources:
                yield from _conjuncts(source, before[:index])
            return
        break
    yield register


def _joins(d: Decoding) -> bool:
    """Whether an instruction is a plain `and` of two predicates."""
    plain = all(isinstance(operand, Name) for operand in d.operands)
    return d.effects.law == "and" and d.mod("type") == "pred" and d.instruction.guard is None and plain


def decision_of(body: Body, number: int, live: list[int], held: int, validated: Collection[int]) -> Decision | None:
    """The stores that depend on the branch at the end of a block; None if anything but stores and registers does.

    `held` are the registers that depend on the loaded value; loads at the sites `validated` are as strong as a swap.
    """
    found = branch_region(dict(enumerate(body.edges)), number)
    if found is None:
        return None
    meeting, region = found
    inside = [(block, d) for block in sorted(region) for d in body.decodings[block]]
    if not all(_is_quiet(d, validated) for _, d in inside):
        return None
    wanted = bits(body.decodings[number][-1].reads)
    for following in body.edges[number]:
        wanted |= live[following]
    ahead = _Ahead([d for _, d in inside], wanted, held)
    conditions = [ahead.condition(d) for _, d in inside if d.effects.access == "store"]
    if any(condition is None for condition in conditions):
        return None
    written = bits(register for _, d in inside for register in d.writes)
    return Decision(tuple(c for c in conditions if c is not None), meeting, written)


def _is_quiet(d: Decoding, validated: Collection[int]) -> bool:
    """Whether an instruction only affects registers and memory, without ordering memory."""
    return d.effects.computes or d.effects.only_jumps or is_plain_access(d, validated)


def is_plain_access(d: Decoding, validated: Collection[int]) -> bool:
    """Whether an instruction is a weak load or store that orders nothing."""
    return d.effects.access in ("load", "store") and d.order == WEAK and d.site.number not in validated


@dataclass(eq=False)
class _Ahead:
    """Predicates computed after a branch, as steps that can run before it."""

    inside: list[Decoding]
    # registers that the branch or its successors read; and those that depend on the loaded value
    wanted: int
    held: int

    def condition(self, store: Decoding) -> Condition | None:
        """The predicates that must hold for a store to run, None if none of them is known in advance."""
        register, guard = guard_register(store), store.instruction.guard
        if register is None or guard is None:
            return None
        names = [register] if guard.negated else self._conjuncts(register)
        guards: list[Guard] = []
        steps: list[General] = []
        for name in names:
            made = self._steps(name)
            if made is not None:
                guards.append((_slot(store, name), guard.negated))
                steps += [step for step in made if step not in steps]
        return Condition(tuple(guards), tuple(steps)) if guards else None

    def _definitions(self, register: Register) -> list[Decoding]:
        return [d for d in self.inside if register in d.writes]

    def _conjuncts(self, register: Register, above: frozenset[Register] = frozenset()) -> list[Register]:
        """The registers whose `and` a predicate is; one that depends on itself is not split."""
        found, above = self._definitions(register), above | {register}
        if len(found) == 1 and _joins(found[0]) and not above.intersection(found[0].reads):
            return [name for source in found[0].reads for name in self._conjuncts(source, above)]
        return [register]

    def _steps(self, register: Register) -> list[General] | None:
        """The steps that compute a register, none if it is available; None if they cannot run in advance."""
        found = self._definitions(register)
        if not found:
            return None if bits([register]) & self.held else []
        d, *others = found
        if others or bits([register]) & self.wanted or not _is_pure(d):
            return None
        steps: list[General] = []
        for source in d.reads:
            made = self._steps(source)
            if made is None:
                return None
            steps += [step for step in made if step not in steps]
        return steps + [step.general for step in d.own_steps()]


def _is_pure(d: Decoding) -> bool:
    """Whether an instruction may be moved, with no other effect than its result."""
    effects = d.effects
    looks = any(isinstance(operand, Name) and operand.text.startswith(_CLOCKS) for operand in d.operands)
    alone = effects.computes and not effects.carry_flag and effects.undefined_from != "division"
    return alone and d.instruction.guard is None and not looks
