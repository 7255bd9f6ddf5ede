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
class Subject:
    """An instruction to change: its form, and the addresses of barriers that stand before it in the function."""

    instruction: Instruction
    resolved: Resolved
    barriers: tuple[Address, ...]


# what was changed, and the instructions that stand there instead
Change = tuple[str, tuple[Instruction, ...]]
Edit = Callable[[Subject], Iterator[Change]]


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
        Mutation(kernel, function, subject.instruction, change, instead)
        for function in functions
        for subject in _subjects(function)
        for word in _mutants(subject.resolved)
        for change, instead in _EDITS[word](subject)
    ]


def _subjects(function: Function) -> Iterator[Subject]:
    barriers: list[Address] = []
    assert function.body is not None
    for instruction in instructions_of(function.body):
        try:
            resolved = resolve(instruction)
        except PtxError:
            continue
        yield Subject(instruction, resolved, tuple(barriers))
        found = _barrier(resolved, instruction)
        if found is not None:
            barriers = [*(one for one in barriers if one != found), found]


def _barrier(resolved: Resolved, instruction: Instruction) -> Address | None:
    """The mbarrier that an instruction names."""
    for name in _BARRIER_OPERANDS if resolved.effects.acts_on == "mbarrier" else _BARRIER_OPERANDS[:1]:
        index = resolved.operand(name)
        named = instruction.operands[index] if index is not None else None
        if isinstance(named, Address):
            return named
    return None


def _mutants(resolved: Resolved) -> tuple[str, ...]:
    """How an instruction may be got wrong."""
    ordered = resolved.mods.get("sem") in ("acquire", "release", "acq_rel")
    return resolved.effects.mutants or (_ORDERED if ordered else ())


# Edits


def _drop(subject: Subject) -> Iterator[Change]:
    yield "dropped", ()


def _renamed(subject: Subject, what: str, **slots: str | None) -> Iterator[Change]:
    """Other modifiers, where the table has a form with them."""
    mods = {name: value for name, value in {**subject.resolved.mods, **slots}.items() if value is not None}
    if mods == dict(subject.resolved.mods):
        return
    found = with_slots(subject.instruction.opcode, tuple(mods.items()))
    if isinstance(found, str):
        return
    changed = replace(subject.instruction, modifiers=found[0][2])
    try:
        resolve(changed)
    except PtxError:
        return
    yield what, (changed,)


def _relaxed(subject: Subject) -> Iterator[Change]:
    mods = subject.resolved.mods
    scope = mods.get("scope") or ("cta" if any(s.name == "space" for s in subject.resolved.form.slots) else None)
    if mods.get("mode") == "arrive":
        scope = None
    if mods.get("sem") != "relaxed":
        yield from _renamed(subject, "relaxed", sem="relaxed", scope=scope)


def _narrower(subject: Subject) -> Iterator[Change]:
    scope = subject.resolved.mods.get("scope", "")
    if scope in _WEAKER_SCOPE:
        yield from _renamed(subject, f"scope {_WEAKER_SCOPE[scope]}", scope=_WEAKER_SCOPE[scope])


def _elsewhere(subject: Subject) -> Iterator[Change]:
    space = subject.resolved.mods.get("space", "")
    if space in _OTHER_SPACE:
        yield from _renamed(subject, f"for {_OTHER_SPACE[space]} memory", space=_OTHER_SPACE[space])


def _passes(subject: Subject) -> Iterator[Change]:
    """The wait is over before it began."""
    old = subject.instruction
    zero = Integer(0, "0")
    yield (
        "not waited for",
        (replace(old, opcode="setp", modifiers=("eq", "u32"), operands=(old.operands[0], zero, zero)),),
    )


def _computed(
    subject: Subject, name: str, opcode: str, modifiers: tuple[str, ...], number: int, what: str
) -> Iterator[Change]:
    """An operand combined with a number: in Python where it is one, else by an instruction before."""
    index = subject.resolved.operand(name)
    if index is None:
        return
    old = subject.instruction
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

    def edit(subject: Subject) -> Iterator[Change]:
        for number in numbers:
            yield from _computed(subject, name, "add", ("s32",), number, f"{name} {number:+d}")

    return edit


def _count(subject: Subject) -> Iterator[Change]:
    """An arrival that counts twice."""
    mods, old = subject.resolved.mods, subject.instruction
    if "expect_tx" in mods:
        return
    if subject.resolved.operand("count") is not None:
        yield from _computed(subject, "count", "add", ("s32",), 1, "count +1")
    elif not mods.get("noComplete"):
        changed = replace(old, operands=(*old.operands, Integer(2, "2")))
        yield "count 2", (changed,)


def _expects_nothing(subject: Subject) -> Iterator[Change]:
    if "expect_tx" in subject.resolved.mods:
        old = subject.instruction
        modifiers = tuple(m for m in old.modifiers if m != "expect_tx")
        yield "expects no bytes", (replace(old, modifiers=modifiers, operands=old.operands[:-1]),)


def _parity(subject: Subject) -> Iterator[Change]:
    yield from _computed(subject, "phase", "xor", ("b32",), 1, "the other parity")


def _another(subject: Subject) -> Iterator[Change]:
    """The barrier beside it, and the one that was used last before."""
    old = subject.instruction
    found = _barrier(subject.resolved, old)
    if found is None:
        return
    index = old.operands.index(found)
    aside = replace(found, offset=found.offset + _MBARRIER_BYTES)
    others = [one for one in subject.barriers if one != found][-1:]
    for what, other in (("the barrier 8 bytes on", aside), *(("another barrier", other) for other in others)):
        yield what, (_with(old, index, other),)


def _other_number(subject: Subject) -> Iterator[Change]:
    """Another of a CTA's barriers."""
    yield from _computed(subject, "id", "add", ("s32",), 1, "barrier +1")


def _other_count(subject: Subject) -> Iterator[Change]:
    """A barrier that waits for one warp more."""
    yield from _computed(subject, "count", "add", ("s32",), 32, "count +32")


def _one_more(subject: Subject) -> Iterator[Change]:
    yield from _computed(subject, "n", "add", ("s32",), 1, "one group more may be under way")


def _only_read(subject: Subject) -> Iterator[Change]:
    if "read" not in subject.resolved.mods:
        yield from _renamed(subject, "waits for the sources only", read="read")


def _other_wait(subject: Subject) -> Iterator[Change]:
    yield from _renamed(subject, "waits for the others", op=_OTHER_WAIT[subject.resolved.mods["op"]])


def _narrower_fence(subject: Subject) -> Iterator[Change]:
    if subject.resolved.mods.get("mbarrier_init") is None:
        yield from _narrower(subject)


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
