"""Which instructions get steps for undefined-value tracking, and their positions in the blocks.

Registers that may be used before they are set are tracked in every run. Values from unwritten memory, or from a
compiler's division by zero, are tracked from the first such value on: until then blocks run their plain steps. A
block's steps with tracking are made when it first runs after that, so most launches never pay for them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernbench.ptx.emulator.analysis.flow.dataflow import bits, undefined_at
from kernbench.ptx.emulator.analysis.undefined.catching import (
    exchanges_values,
    first_exchange,
    first_step,
    following_step,
    leaves_at_once,
    may_be_undefined,
)
from kernbench.ptx.emulator.analysis.undefined.choices import Choices, choose
from kernbench.ptx.emulator.analysis.undefined.straying import enter, lose_results, stray
from kernbench.ptx.emulator.analysis.undefined.watching import (
    hand_on,
    mark,
    mark_doubtful,
    unwrite,
    unwrite_parts,
    watch,
    watch_added,
    watch_unset,
)
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.facts import Pure, Undefined
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Watched
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import General, Step

Registers = Mapping[int, Register]
# steps, each with the index of the block's own step that it goes before
Inserted = list[tuple[int, Step]]
# the range of steps of each instruction in a block
Spans = Sequence[tuple[int, int]]


def find_undefined(body: Body) -> Undefined:
    """The registers of a function that may be read before they are set, and where they may be undefined."""
    before = undefined_at(body, bits(body.formal_registers()))
    return Undefined(_closed(body, _read_unset(body, before)), before)


def unset_accumulators(body: Body) -> list[Register] | None:
    """The registers of a function that may be read before they are set, if only wgmma reads them so, to add to them.

    None if others do. Whether an operation adds to them may be known when it runs alone.
    """
    found: dict[int, Register] = {}
    for decodings, before in zip(body.decodings, undefined_at(body, bits(body.formal_registers())), strict=True):
        for decoding, unset in zip(decodings, before, strict=True):
            read = [r for r in decoding.reads if unset >> r.number & 1]
            if read and (decoding.effects.in_flight != "multiply" or not set(read) <= set(decoding.writes)):
                return None
            found.update((r.number, r) for r in read)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Following:
    """Decides which steps track undefined values: `compiled` code, and programs with `local` memory."""

    compiled: bool
    local: bool
    # functions that only compute their results
    pure: Mapping[str, Pure] = field(default_factory=dict)

    def catches(self, decoding: Decoding) -> bool:
        """Whether an instruction's result may be undefined."""
        return may_be_undefined(decoding, self.compiled, self.local)

    def plain_steps(
        self,
        decodings: list[Decoding],
        spans: Spans,
        before: list[int],
        unset: Registers,
    ) -> Inserted:
        """Tracking steps for registers that may be unset, and after possible sources of the first undefined value."""
        inserted = _plain_steps(decodings, spans, before, unset, self.compiled) if unset else []
        caught = ((d, end) for d, (_, end) in zip(decodings, spans, strict=True) if self.catches(d))
        return inserted + [(end, first_step(d)) for d, end in caught if not leaves_at_once(d)]

    def choices(self, body: Body) -> Choices | None:
        """The branches of a function that only choose between values; None if they are not tracked."""
        return Choices(body, self.catches, self.pure) if self.compiled else None

    def maker(
        self,
        decodings: list[Decoding],
        spans: Spans,
        plain: Sequence[General],
        choices: Choices | None = None,
        position: int = 0,
    ) -> Callable[[], Watched]:
        """A function that makes the steps of a block with tracking, from its own steps.

        `position` is the block's in the function that `choices` are of.
        """
        return _Maker(self, decodings, spans, plain, choices, position)


def _closed(body: Body, registers: dict[int, Register]) -> dict[int, Register]:
    """Registers, and all registers computed from them."""
    found = dict(registers)
    passing = [(d, reads) for d in body if d.writes and (reads := d.passing())] if found else []
    changed = bool(found)
    while changed:
        before = len(found)
        for decoding, reads in passing:
            if any(r.number in found for r in reads):
                found.update((r.number, r) for r in decoding.writes)
        changed = len(found) > before
    return found


def _read_unset(body: Body, undefined: list[list[int]]) -> dict[int, Register]:
    """Registers that are read where they may be unset."""
    found: dict[int, Register] = {}
    for decodings, before in zip(body.decodings, undefined, strict=True):
        for decoding, unset in zip(decodings, before, strict=True):
            found.update((r.number, r) for r in decoding.reads if unset >> r.number & 1)
    return found


def _plain_steps(
    decodings: list[Decoding],
    spans: Spans,
    before: list[int],
    followed: Registers,
    compiled: bool,
) -> Inserted:
    """Tracking steps of a block for registers that may be unset."""
    inserted: Inserted = []
    for decoding, (begin, end), unset in zip(decodings, spans, before, strict=True):
        suspects = [r for r in decoding.deciding() if unset >> r.number & 1 and r.number in followed]
        inserted += _watches(decoding, begin, suspects, compiled)
        inserted += _additions(decoding, begin, [r for r in decoding.added() if unset >> r.number & 1])
        inserted += _stores(decoding, end, [r for r in decoding.reads if r.number in followed], compiled)
        inserted += [(begin, first_exchange(decoding, r)) for r in _given(decoding, compiled) if r.number in followed]
        written = [r for r in decoding.writes if r.number in followed]
        if written:
            passes = any(r.number in followed for r in decoding.passing())
            inserted.append((begin, mark(decoding, passes, written, False)))
    return inserted


def _given(decoding: Decoding, compiled: bool) -> list[Register]:
    """The register whose value an instruction of compiled code gives to other lanes."""
    register = decoding.register_at(1) if compiled and exchanges_values(decoding) else None
    return [] if register is None else [register]


def _watches(
    decoding: Decoding, begin: int, suspects: list[Register], compiled: bool, under: tuple[Register, ...] = ()
) -> Inserted:
    made = (watch(decoding, register, compiled, under) for register in suspects)
    return [(begin, step) for step in made if step is not None]


def _stores(decoding: Decoding, end: int, registers: list[Register], compiled: bool) -> Inserted:
    stored = None
    if registers and decoding.stores_registers:
        plain = decoding.effects.access == "store"
        stored = unwrite(decoding, registers, compiled) if plain else unwrite_parts(decoding, registers)
    return [] if stored is None else [(end, stored)]


def _additions(decoding: Decoding, begin: int, registers: list[Register], followed: bool = False) -> Inserted:
    added = watch_added(decoding, registers, followed)
    return [] if added is None else [(begin, added)]


class _Maker:
    """Makes the steps of one block with tracking."""

    def __init__(
        self,
        how: Following,
        decodings: list[Decoding],
        spans: Spans,
        plain: Sequence[General],
        choices: Choices | None,
        position: int,
    ):
        self._how, self._decodings, self._spans, self._plain = how, decodings, spans, plain
        self._choices, self._position = choices, position

    def __call__(self) -> Watched:
        inserted: list[tuple[int, General]] = []
        # the index of an inserted step, or of the load's own step, after which the block continues
        behind: dict[int, int] = {}
        resumes: dict[int, int] = {}
        for decoding, (begin, end) in zip(self._decodings, self._spans, strict=True):
            steps = self._steps(decoding, begin, end)
            if steps and exchanges_values(decoding):
                resumes[decoding.site.number] = len(inserted)
            inserted += [(number, step.general) for number, step in steps]
            if self._how.catches(decoding):
                if leaves_at_once(decoding):
                    behind[end - 1 - len(decoding.after)] = decoding.site.number
                else:
                    resumes[decoding.site.number] = len(inserted)
                inserted.append((end, following_step(decoding).general))
                inserted += [(number, step.general) for number, step in self._doubts(decoding, end)]
        return _merged(self._plain, inserted, behind, resumes)

    def _doubts(self, decoding: Decoding, end: int) -> Inserted:
        """A step after what a load has marked: its result is undefined, too, if a choice or the index of a table is."""
        doubts = list(self._choices.above(self._position)) if self._choices else []
        table = self._choices.tables.get(decoding.site.number) if self._choices else None
        doubts += [] if table is None else [table]
        return [(end, mark_doubtful(decoding, doubts))] if doubts else []

    def _steps(self, decoding: Decoding, begin: int, end: int) -> Inserted:
        """The tracking steps around one instruction, except for the one after a load."""
        effects, compiled = decoding.effects, self._how.compiled
        suspects, table = decoding.deciding(), self._choices.tables.get(decoding.site.number) if self._choices else None
        suspects = [register for register in suspects if register != table]
        choice = self._choices.at(self._position) if self._choices and decoding is self._decodings[-1] else None
        under = self._choices.above(self._position) if self._choices else ()
        freely = under if effects.flow == "branch" else ()
        inserted, left = self._strays(decoding, begin, suspects, bool(choice))
        inserted += _watches(decoding, begin, [r for r in left if not choice], compiled, freely)
        if table is not None:
            inserted.append((begin, watch_unset(decoding, table)))
        if choice is not None:
            inserted.append((begin, choose(decoding, choice)))
        caught = self._how.catches(decoding)
        inserted += _additions(decoding, begin, decoding.added(), caught)
        if not effects.computes and not effects.idle:
            handed = dict.fromkeys(r for r in decoding.handed() if r not in suspects and r != table)
            inserted += [(begin, hand_on(decoding, register, caught)) for register in handed]
        inserted += _stores(decoding, end, decoding.reads, compiled)
        # what a load gives is marked behind it, and whether a division divides by zero
        if decoding.writes and (not caught or effects.undefined_from == "division"):
            # results of shuffles and reductions are marked when the lanes exchange values
            got = decoding.first_result() if exchanges_values(decoding) else None
            targets = [register for register in decoding.writes if register != got]
            passes = bool(decoding.passing() or decoding.factors())
            inserted.append((begin, mark(decoding, passes, targets, True, under)))
        return inserted

    def _strays(
        self, decoding: Decoding, begin: int, suspects: list[Register], chooses: bool
    ) -> tuple[Inserted, list[Register]]:
        """The steps around an instruction of a function that only computes, and the suspects that are left."""
        own = self._choices.own if self._choices else Pure()
        if own.strayed is None:
            return [], suspects
        inserted: Inserted = []
        if self._position == 0 and decoding is self._decodings[0]:
            inserted.append((begin, enter(own.strayed)))
        left = []
        for register in suspects:
            role = decoding.role_of(register)
            if role == "guard" and not chooses:
                inserted.append((begin, stray(decoding, register, own.strayed)))
            elif role == "address" and decoding.site.number in own.own:
                inserted += _watches(decoding, begin, [register], self._how.compiled, (own.strayed,))
            else:
                left.append(register)
        if decoding.effects.flow == "return":
            inserted.append((begin, lose_results(decoding, own, own.strayed)))
        return inserted, left


def _merged(
    plain: Sequence[General], inserted: list[tuple[int, General]], behind: dict[int, int], resumes: dict[int, int]
) -> Watched:
    """Merge plain and inserted steps; positions say where to continue after an instruction with an undefined result."""
    # a stable sort: at one index, steps after an instruction come before those of the next one
    order = sorted(range(len(inserted)), key=lambda index: inserted[index][0])
    steps: list[General] = []
    positions: dict[int, int] = {}
    sites = {index: site for site, index in resumes.items()}
    pending = iter([*order, -1])
    index = next(pending)
    for number in range(len(plain) + 1):
        while index >= 0 and inserted[index][0] <= number:
            if index in sites:
                positions[sites[index]] = len(steps)
            steps.append(inserted[index][1])
            index = next(pending)
        if number < len(plain):
            steps.append(plain[number])
            if number in behind:
                positions[behind[number]] = len(steps)
    return Watched(steps, positions)
