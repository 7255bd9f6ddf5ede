"""Mutants of a kernel: each differs in one synchronisation instruction, dropped, weakened, or wrong by a little.

`mutations(kernel)` lists them; `kernbench.ptx.proof` runs them and says which of them the checks distinguish. A mutant
keeps the line numbers of the kernel, so that its accesses can be compared with the kernel's own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from kernbench.common.errors import MisuseError
from kernbench.ptx.builder.issuing.forms import with_slots
from kernbench.ptx.isa.forms.form import Resolved
from kernbench.ptx.isa.resolve import resolve
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import (
    Address,
    Block,
    Function,
    Instruction,
    Integer,
    Kernel,
    Name,
    Operand,
    Registers,
    Statement,
)
from kernbench.ptx.text.printer import instruction_text
from kernbench.ptx.text.walking import instructions_of

_SCRATCH = "%mutant"
_MBARRIER_BYTES, _STEP = 8, 16
# relaxed arrivals and waits, the youngest that a mutant may bring in
_VERSION = (8, 6)
_WEAKER_SCOPE = {"cluster": "cta", "gpu": "cta", "sys": "cta", "gl": "cta"}
_OTHER_SPACE = {"shared::cta": "global", "shared::cluster": "global", "global": "shared::cta"}
_OTHER_WAIT = {"wait::ld": "wait::st", "wait::st": "wait::ld"}
_BARRIER_OPERANDS = ("mbar", "a")


@dataclass(frozen=True, slots=True)
class Place:
    """An instruction to change: its form, and the addresses of barriers that stand before it in the function."""

    instruction: Instruction
    resolved: Resolved
    barriers: tuple[Address, ...]


# what was changed, and the instructions that stand there instead
Change = tuple[str, tuple[Instruction, ...]]
Edit = Callable[[Place], Iterator[Change]]


@dataclass(frozen=True)
class Mutation:
    """One change of one instruction; `mutant` is the changed kernel."""

    kernel: Kernel
    function: Function
    instruction: Instruction
    change: str
    instead: tuple[Instruction, ...]

    @property
    def line(self) -> int:
        """The line of the instruction in the kernel's text."""
        return self.instruction.line

    @property
    def text(self) -> str:
        """The instruction."""
        return instruction_text(self.instruction)

    def __str__(self) -> str:
        return f"line {self.line}, `{self.text}`: {self.change}"

    @cached_property
    def mutant(self) -> Kernel:
        """The kernel with the change, in a module of its own."""
        module = self.kernel.module
        assert self.function.body is not None
        body = _replaced(self.function.body, self.instruction, self.instead)
        if any(_SCRATCH in instruction_text(one) for one in self.instead):
            body = replace(body, statements=(Registers("b32", ((_SCRATCH, 0),)), *body.statements))
        changed = replace(self.function, body=body)
        items = tuple(changed if item is self.function else item for item in module.items)
        mutated = replace(module, items=items, version=max(module.version, _VERSION))
        return mutated.kernels[self.kernel.name]


def _replaced(block: Block, old: Instruction, new: tuple[Instruction, ...]) -> Block:
    statements: list[Statement] = []
    for statement in block.statements:
        if statement is old:
            statements += new
        else:
            statements.append(_replaced(statement, old, new) if isinstance(statement, Block) else statement)
    return replace(block, statements=tuple(statements))


def mutations(kernel: Kernel) -> list[Mutation]:
    """Every mutant of a kernel's synchronisation instructions and those of the functions of its module."""
    if not isinstance(kernel, Kernel):
        raise MisuseError(f"a {type(kernel).__name__} has no mutants: pass ptx.parse(text).kernels[name]")
    module = kernel.module
    functions = [kernel.function, *(f for f in module.items if isinstance(f, Function) and f.kind == "func" and f.body)]
    return [
        Mutation(kernel, function, place.instruction, change, instead)
        for function in functions
        for place in _places(function)
        for word in _mutants(place.resolved)
        for change, instead in _EDITS[word](place)
    ]


def _places(function: Function) -> Iterator[Place]:
    barriers: list[Address] = []
    assert function.body is not None
    for instruction in instructions_of(function.body):
        try:
            resolved = resolve(instruction)
        except PtxError:
            continue
        yield Place(instruction, resolved, tuple(barriers))
        found = _barrier(resolved, instruction)
        if found is not None:
            barriers = [*(one for one in barriers if one != found), found]


def _barrier(resolved: Resolved, instruction: Instruction) -> Address | None:
    """The mbarrier that an instruction names."""
    for name in _BARRIER_OPERANDS if resolved.effects.acts_on == "mbarrier" else _BARRIER_OPERANDS[:1]:
        place = resolved.operand(name)
        named = instruction.operands[place] if place is not None else None
        if isinstance(named, Address):
            return named
    return None


def _mutants(resolved: Resolved) -> tuple[str, ...]:
    """How an instruction may be got wrong."""
    ordered = resolved.mods.get("sem") in ("acquire", "release", "acq_rel")
    return resolved.effects.mutants or (_ORDERED if ordered else ())


# Edits


def _drop(place: Place) -> Iterator[Change]:
    yield "dropped", ()


def _renamed(place: Place, what: str, **slots: str | None) -> Iterator[Change]:
    """Other modifiers, where the table has a form with them."""
    mods = {name: value for name, value in {**place.resolved.mods, **slots}.items() if value is not None}
    if mods == dict(place.resolved.mods):
        return
    found = with_slots(place.instruction.opcode, tuple(mods.items()))
    if isinstance(found, str):
        return
    changed = replace(place.instruction, modifiers=found[0][2])
    try:
        resolve(changed)
    except PtxError:
        return
    yield what, (changed,)


def _relaxed(place: Place) -> Iterator[Change]:
    mods = place.resolved.mods
    scope = mods.get("scope") or ("cta" if any(s.name == "space" for s in place.resolved.form.slots) else None)
    if mods.get("mode") == "arrive":
        scope = None
    if mods.get("sem") != "relaxed":
        yield from _renamed(place, "relaxed", sem="relaxed", scope=scope)


def _narrower(place: Place) -> Iterator[Change]:
    scope = place.resolved.mods.get("scope", "")
    if scope in _WEAKER_SCOPE:
        yield from _renamed(place, f"scope {_WEAKER_SCOPE[scope]}", scope=_WEAKER_SCOPE[scope])


def _elsewhere(place: Place) -> Iterator[Change]:
    space = place.resolved.mods.get("space", "")
    if space in _OTHER_SPACE:
        yield from _renamed(place, f"for {_OTHER_SPACE[space]} memory", space=_OTHER_SPACE[space])


def _passes(place: Place) -> Iterator[Change]:
    """The wait is over before it began."""
    old = place.instruction
    zero = Integer(0, "0")
    yield (
        "not waited for",
        (replace(old, opcode="setp", modifiers=("eq", "u32"), operands=(old.operands[0], zero, zero)),),
    )


def _computed(
    place: Place, name: str, opcode: str, modifiers: tuple[str, ...], number: int, what: str
) -> Iterator[Change]:
    """An operand combined with a number: in Python where it is one, else by an instruction before."""
    index = place.resolved.operand(name)
    if index is None:
        return
    old = place.instruction
    given = old.operands[index]
    if isinstance(given, Integer):
        value = {"add": given.value + number, "xor": given.value ^ number}[opcode]
        if value >= 0:
            yield what, (_with(old, index, Integer(value, str(value))),)
        return
    before = Instruction(opcode, modifiers, (Name(_SCRATCH), given, Integer(number, str(number))), None, old.line)
    yield what, (before, _with(old, index, Name(_SCRATCH)))


def _with(old: Instruction, index: int, operand: Operand) -> Instruction:
    return replace(old, operands=(*old.operands[:index], operand, *old.operands[index + 1 :]))


def _adds(name: str, *numbers: int) -> Edit:
    """An operand wrong by a little."""

    def edit(place: Place) -> Iterator[Change]:
        for number in numbers:
            yield from _computed(place, name, "add", ("s32",), number, f"{name} {number:+d}")

    return edit


def _count(place: Place) -> Iterator[Change]:
    """An arrival that counts twice."""
    mods, old = place.resolved.mods, place.instruction
    if "expect_tx" in mods:
        return
    if place.resolved.operand("count") is not None:
        yield from _computed(place, "count", "add", ("s32",), 1, "count +1")
    elif not mods.get("noComplete"):
        changed = replace(old, operands=(*old.operands, Integer(2, "2")))
        yield "count 2", (changed,)


def _expects_nothing(place: Place) -> Iterator[Change]:
    if "expect_tx" in place.resolved.mods:
        old = place.instruction
        modifiers = tuple(m for m in old.modifiers if m != "expect_tx")
        yield "expects no bytes", (replace(old, modifiers=modifiers, operands=old.operands[:-1]),)


def _parity(place: Place) -> Iterator[Change]:
    yield from _computed(place, "phase", "xor", ("b32",), 1, "the other parity")


def _another(place: Place) -> Iterator[Change]:
    """The barrier beside it, and the one that was used last before."""
    old = place.instruction
    found = _barrier(place.resolved, old)
    if found is None:
        return
    index = old.operands.index(found)
    aside = replace(found, offset=found.offset + _MBARRIER_BYTES)
    others = [one for one in place.barriers if one != found][-1:]
    for what, other in (("the barrier 8 bytes on", aside), *(("another barrier", other) for other in others)):
        yield what, (_with(old, index, other),)


def _other_number(place: Place) -> Iterator[Change]:
    """Another of a CTA's barriers."""
    yield from _computed(place, "id", "add", ("s32",), 1, "barrier +1")


def _other_count(place: Place) -> Iterator[Change]:
    """A barrier that waits for one warp more."""
    yield from _computed(place, "count", "add", ("s32",), 32, "count +32")


def _one_more(place: Place) -> Iterator[Change]:
    yield from _computed(place, "n", "add", ("s32",), 1, "one group more may be under way")


def _only_read(place: Place) -> Iterator[Change]:
    if "read" not in place.resolved.mods:
        yield from _renamed(place, "waits for the sources only", read="read")


def _other_wait(place: Place) -> Iterator[Change]:
    yield from _renamed(place, "waits for the others", op=_OTHER_WAIT[place.resolved.mods["op"]])


def _narrower_fence(place: Place) -> Iterator[Change]:
    if place.resolved.mods.get("mbarrier_init") is None:
        yield from _narrower(place)


# what is changed, by the words in which the ISA table says how an instruction may be got wrong
_EDITS: dict[str, Edit] = {
    "dropped": _drop,
    "relaxed": _relaxed,
    "narrower": _narrower,
    "narrower fence": _narrower_fence,
    "other space": _elsewhere,
    "other barrier number": _other_number,
    "other thread count": _other_count,
    "another barrier": _another,
    "count wrong by one": _adds("count", 1, -1),
    "counts twice": _count,
    "bytes wrong": _adds("bytes", _STEP, -_STEP),
    "expects nothing": _expects_nothing,
    "not waited for": _passes,
    "other parity": _parity,
    "other wait": _other_wait,
    "one more group": _one_more,
    "sources only": _only_read,
}
# of accesses that acquire or release, of which the table says nothing else
_ORDERED = ("relaxed", "narrower")
