"""Which instructions get steps that follow undefined values, and where in their blocks those go.

Registers that may be used before they are set are followed in every run. What comes from memory that nobody wrote, or
from a compiler's division by zero, is followed from the first such value on: until then there is nothing to follow, and
a block runs its plain steps. The steps of a block that follow all undefined values are made when it first runs after
that, so that most launches never pay for them.
"""

from kernbench.ptx.emulator.analysis.flow.dataflow import bits, undefined_at
from kernbench.ptx.emulator.analysis.undefined.catching import (
    first_step,
    following_step,
    leaves_at_once,
    may_be_undefined,
)
from kernbench.ptx.emulator.analysis.undefined.watching import hand_on, mark, unwrite, watch, whole_of
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Block, Program, Watched
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import Direct, General, Step

Inserted = list[tuple[int, Step]]


def watch_undefined(program: Program, body: Body) -> None:
    """Follow values that may be undefined, and report where they decide something."""
    compiled, local = bool(program.kernel.module.compiler), program.local_bytes > 0
    undefined = undefined_at(body, bits(body.formal_registers()))
    unset = _closed(body, _read_unset(body, undefined))
    program.undefined_registers += [((r.bank, r.row), int(whole_of(r))) for r in unset.values()]
    for number, decodings in enumerate(body.decodings):
        block = program.blocks[body.code.entry + number]
        caught = [d for d in decodings if may_be_undefined(d, compiled, local)]
        program.caught.update(d.site.number for d in caught)
        if compiled:
            program.carrying.update(d.site.number for d in decodings if d.effects.carries_undefined)
        inserted = _plain_steps(decodings, undefined[number], unset, compiled) if unset else []
        inserted += [(d.last_step, first_step(d)) for d in caught if not leaves_at_once(d)]
        block.follow = _Following(decodings, list(block.general) if inserted else block.general, compiled, local)
        if inserted:
            _insert(block, inserted)


def _closed(body: Body, registers: dict[int, Register]) -> dict[int, Register]:
    """Registers, and all that is computed from them."""
    found = dict(registers)
    passing = [d for decodings in body.decodings for d in decodings if d.writes and d.effects.forwards] if found else []
    changed = bool(found)
    while changed:
        before = len(found)
        for decoding in passing:
            if any(r.number in found for r in decoding.reads):
                found.update((r.number, r) for r in decoding.writes)
        changed = len(found) > before
    return found


def _read_unset(body: Body, undefined: list[list[int]]) -> dict[int, Register]:
    """Registers that are read where they may never have been set."""
    found: dict[int, Register] = {}
    for decodings, before in zip(body.decodings, undefined, strict=True):
        for decoding, unset in zip(decodings, before, strict=True):
            found.update((r.number, r) for r in decoding.reads if unset >> r.number & 1)
    return found


def _plain_steps(
    decodings: list[Decoding], before: list[int], followed: dict[int, Register], compiled: bool
) -> Inserted:
    """Steps around a block's instructions for registers that may never have been set."""
    inserted: Inserted = []
    for decoding, unset in zip(decodings, before, strict=True):
        suspects = [r for r in decoding.deciding() if unset >> r.number & 1 and r.number in followed]
        inserted += _watches(decoding, suspects, compiled)
        inserted += _stores(decoding, [r for r in decoding.reads if r.number in followed], compiled)
        written = [r for r in decoding.writes if r.number in followed]
        if written:
            passes = decoding.effects.forwards and any(r.number in followed for r in decoding.reads)
            inserted.append((decoding.first_step, mark(decoding, passes, written, False)))
    return inserted


def _watches(decoding: Decoding, suspects: list[Register], compiled: bool) -> Inserted:
    made = (watch(decoding, register, compiled) for register in suspects)
    return [(decoding.first_step, step) for step in made if step is not None]


def _stores(decoding: Decoding, registers: list[Register], compiled: bool) -> Inserted:
    stored = unwrite(decoding, registers, compiled) if decoding.effects.access == "store" else None
    return [] if stored is None else [(decoding.last_step, stored)]


class _Following:
    """Makes the steps of one block with everything that follows undefined values."""

    def __init__(self, decodings: list[Decoding], plain: list[General], compiled: bool, local: bool):
        self._decodings, self._plain = decodings, plain
        self._compiled, self._local = compiled, local

    def __call__(self) -> Watched:
        inserted: list[tuple[int, General]] = []
        # the index of an inserted step, or of a step of the load itself, behind which the block goes on
        behind: dict[int, int] = {}
        resumes: dict[int, int] = {}
        for decoding in self._decodings:
            inserted += [(place, step.general) for place, step in self._steps(decoding)]
            if may_be_undefined(decoding, self._compiled, self._local):
                if leaves_at_once(decoding):
                    behind[decoding.last_step - 1 - len(decoding.after)] = decoding.site.number
                else:
                    resumes[decoding.site.number] = len(inserted)
                inserted.append((decoding.last_step, following_step(decoding).general))
        return _merged(self._plain, inserted, behind, resumes)

    def _steps(self, decoding: Decoding) -> Inserted:
        """The steps around one instruction, but for the one behind a load."""
        effects = decoding.effects
        stored = decoding.reads if effects.access == "tensor store" else []
        suspects = list(dict.fromkeys((*decoding.deciding(), *stored)))
        inserted = _watches(decoding, suspects, self._compiled)
        if not effects.computes:
            handed = dict.fromkeys(r for r in decoding.reads if r not in suspects)
            inserted += [(decoding.first_step, hand_on(decoding, register)) for register in handed]
        inserted += _stores(decoding, decoding.reads, self._compiled)
        if decoding.writes and not may_be_undefined(decoding, self._compiled, self._local):
            passes = decoding.effects.forwards
            inserted.append((decoding.first_step, mark(decoding, passes, list(decoding.writes), True)))
        return inserted


def _merged(
    plain: list[General], inserted: list[tuple[int, General]], behind: dict[int, int], resumes: dict[int, int]
) -> Watched:
    """Plain steps with others before them; where to go on behind each instruction that met an undefined value."""
    # stable: of one place, steps behind an instruction stand before those of the next one
    order = sorted(range(len(inserted)), key=lambda index: inserted[index][0])
    steps: list[General] = []
    positions: dict[int, int] = {}
    sites = {index: site for site, index in resumes.items()}
    pending = iter([*order, -1])
    index = next(pending)
    for place in range(len(plain) + 1):
        while index >= 0 and inserted[index][0] <= place:
            if index in sites:
                positions[sites[index]] = len(steps)
            steps.append(inserted[index][1])
            index = next(pending)
        if place < len(plain):
            steps.append(plain[place])
            if place in behind:
                positions[behind[place]] = len(steps)
    return Watched(steps, positions)


def _insert(block: Block, inserted: Inserted) -> None:
    """Put steps into a block's lists, before the instructions they belong to or behind them."""
    general: list[General] = block.general
    direct: list[Direct] = block.direct
    # from the end, so that places stay right and steps of the same place keep their order
    for place, step in sorted(inserted, key=lambda item: item[0])[::-1]:
        general.insert(place, step.general)
        direct.insert(place, step.direct)
