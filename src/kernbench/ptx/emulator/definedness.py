"""Which registers may hold undefined values, and where their steps go.

Registers that may be used before they are set are followed in every run. What comes from local or tensor memory is
followed from the first load on that meets memory never written, what comes from a compiler's divisions from the first
divisor of zero on: until then there is nothing to follow, and a block runs its plain steps. Libraries load one place of
shared memory too many and choose the other value then: in a compiler's code such loads are followed as well.
"""

from kernbench.ptx.emulator.dataflow import bits, passes_on, undefined_at
from kernbench.ptx.emulator.decode import Body
from kernbench.ptx.emulator.operands import Decoding
from kernbench.ptx.emulator.program import Block, Program
from kernbench.ptx.emulator.scopes import Register
from kernbench.ptx.emulator.slots import RegisterSlot
from kernbench.ptx.emulator.steps import Direct, General, Step
from kernbench.ptx.emulator.watching import (
    Catch,
    catch_of,
    hand_on,
    loads_shared,
    mark,
    may_divide_by_zero,
    may_load_undefined,
    unwrite,
    watch,
)

Inserted = list[tuple[int, Step]]


def watch_undefined(program: Program, body: Body) -> None:
    """Follow values that may be undefined, and report where they decide something."""
    undefined = undefined_at(body, bits(body.formal_registers()))
    rows = _Rows(program, body)
    unset = rows.closed(_read_unset(body, undefined))
    program.undefined_rows += [rows.row[number] for number in unset]
    program.chosen.update(_chosen_loads(program, body))
    loads = [d for decodings in body.decodings for d in decodings if _is_followed(program, d)]
    wide = rows.closed([*unset, *(r.number for d in loads for r in d.writes)]) if loads else []
    program.caught.update(d.site.number for d in loads if wide)
    plain, all_of_them = rows.flags(unset), rows.flags(wide)
    for number, decodings in enumerate(body.decodings):
        block = program.blocks[body.code.entry + number]
        catches = {d.site.number: catch_of(d, all_of_them) for d in decodings if wide and _is_followed(program, d)}
        if wide:
            _fill_watched(block, decodings, all_of_them, catches)
        inserted = _plain_steps(decodings, undefined[number], plain)
        for decoding in decodings:
            catch = catches.get(decoding.site.number)
            if catch is not None:
                inserted += _around(decoding, catch, catch.first)
        _insert(block.general, block.direct, inserted)


def _chosen_loads(program: Program, body: Body) -> list[int]:
    """The sites of a compiler's loads of shared memory whose value a selection may drop."""
    if not program.kernel.module.compiler:
        return []
    decodings = [d for decodings in body.decodings for d in decodings]
    picked = [d.register_at(index) for d in decodings if d.resolved.meaning == "selp" for index in (1, 2)]
    numbers = {register.number for register in picked if register is not None}
    loads = (d for d in decodings if d.resolved.meaning == "ld" and loads_shared(d))
    return [d.site.number for d in loads if any(register.number in numbers for register in d.writes)]


def _is_followed(program: Program, decoding: Decoding) -> bool:
    """Whether what a load brings, or a division gives, may be undefined and is told where it decides something."""
    if may_divide_by_zero(decoding):
        return bool(program.kernel.module.compiler)
    if decoding.site.number in program.chosen:
        return True
    tensor = decoding.resolved.meaning == "tcgen05.ld"
    return may_load_undefined(decoding) and (tensor or program.local_bytes > 0)


class _Rows:
    """A bool row for each register that is followed, made when it is first asked for."""

    def __init__(self, program: Program, body: Body):
        self._program, self._body = program, body
        self.row: dict[int, int] = {}

    def closed(self, numbers: list[int]) -> list[int]:
        """Registers, and all that is computed from them."""
        found = dict.fromkeys(numbers)
        passing = [d for decodings in self._body.decodings for d in decodings if d.writes and passes_on(d)]
        changed = bool(found)
        while changed:
            before = len(found)
            for decoding in passing:
                if any(r.number in found for r in decoding.reads):
                    found.update(dict.fromkeys(r.number for r in decoding.writes))
            changed = len(found) > before
        for number in found:
            if number not in self.row:
                self.row[number] = self._program.table.new_row("bool")
                self._body.code.rows.setdefault("bool", []).append(self.row[number])
        return list(found)

    def flags(self, numbers: list[int]) -> dict[int, int]:
        """The slot of each register's row."""
        return {number: self._program.table.number(RegisterSlot("bool", self.row[number])) for number in numbers}


def _read_unset(body: Body, undefined: list[list[int]]) -> list[int]:
    """Registers that are read where they may never have been set."""
    found: dict[int, None] = {}
    for decodings, before in zip(body.decodings, undefined, strict=True):
        for decoding, unset in zip(decodings, before, strict=True):
            found.update(dict.fromkeys(r.number for r in decoding.reads if unset >> r.number & 1))
    return list(found)


def _plain_steps(decodings: list[Decoding], before: list[int], followed: dict[int, int]) -> Inserted:
    """Steps around a block's instructions for registers that may never have been set."""
    inserted: Inserted = []
    for decoding, unset in zip(decodings, before, strict=True):
        suspects = [r for r in decoding.deciding() if unset >> r.number & 1 and r.number in followed]
        inserted += _steps(decoding, suspects, followed, False)
    return inserted


def _fill_watched(block: Block, decodings: list[Decoding], followed: dict[int, int], catches: dict[int, Catch]) -> None:
    """The block's steps with everything that follows undefined values."""
    inserted: Inserted = []
    for decoding in decodings:
        catch = catches.get(decoding.site.number)
        if catch is None:
            stored = decoding.reads if decoding.resolved.meaning == "tcgen05.st" else []
            deciding = dict.fromkeys((*decoding.deciding(), *stored))
            inserted += _steps(decoding, [r for r in deciding if r.number in followed], followed, True)
        else:
            suspects = [r for r in decoding.deciding() if r.number in followed]
            inserted += [(decoding.first_step, step) for step in _watches(decoding, suspects, followed)]
            inserted += _around(decoding, catch, catch.following)
    block.watched = list(block.general)
    for index, (place, step) in enumerate(_insert(block.watched, [], inserted)):
        for catch in catches.values():
            if step is catch.following:
                catch.position = place + index + 1


def _around(decoding: Decoding, catch: Catch, behind: Step) -> Inserted:
    held: Inserted = [] if catch.holding is None else [(decoding.first_step, catch.holding)]
    return [*held, (decoding.last_step, behind)]


def _watches(decoding: Decoding, suspects: list[Register], followed: dict[int, int]) -> list[Step]:
    made = (watch(decoding, register, followed[register.number]) for register in suspects)
    return [step for step in made if step is not None]


def _steps(decoding: Decoding, suspects: list[Register], followed: dict[int, int], joins: bool) -> Inserted:
    inserted = [(decoding.first_step, step) for step in _watches(decoding, suspects, followed)]
    if joins and not passes_on(decoding):
        handed = dict.fromkeys(r for r in decoding.reads if r.number in followed and r not in suspects)
        inserted += [(decoding.first_step, hand_on(decoding, followed[register.number])) for register in handed]
    if decoding.resolved.meaning == "st":
        stored = unwrite(decoding, followed)
        return inserted if stored is None else [*inserted, (decoding.last_step, stored)]
    written = [followed[r.number] for r in decoding.writes if r.number in followed]
    if written:
        sources = [followed[r.number] for r in decoding.reads if r.number in followed] if passes_on(decoding) else []
        inserted.append((decoding.first_step, mark(decoding, sources, written, followed, joins)))
    return inserted


def _insert(general: list[General], direct: list[Direct], inserted: Inserted) -> Inserted:
    """Put steps into a block's lists, before the instructions they belong to or behind them; returns them in order."""
    ordered = sorted(inserted, key=lambda item: item[0])
    # from the end, so that places stay right and steps of the same place keep their order
    for place, step in ordered[::-1]:
        general.insert(place, step.general)
        direct.insert(place, step.direct)
    return ordered
