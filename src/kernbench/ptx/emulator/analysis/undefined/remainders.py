"""What went into a scan of a warp, subtracted from its result: `(x + u) - u` is x, whatever u is.

Such a scan adds other lanes' values to each lane's own by `@p add.s32 r, r, value` behind `shfl.sync.up r|p, value`.
Numbers of 64 bits are shuffled in halves, by two shuffles with the same operands. What is left without the lane's own
value is undefined only where one of the values that were added is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kernbench.ptx.emulator.analysis.undefined.copying import key_of, undefined
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.text.module import Pair

_WRAPPING = ("s32", "u32", "s64", "u64")
_HALVES = 2


@dataclass(frozen=True, slots=True)
class _Sum:
    """The value of a register `own` and others, of which the last was added at a site; none yet without one."""

    own: Register
    site: int | None


@dataclass(frozen=True, slots=True)
class _Shuffled:
    """The value that a register has in another lane, or in the same where the predicate does not hold."""

    source: Register
    valid: Register


@dataclass(frozen=True, slots=True)
class _Half:
    """The value of a half of a register, or with a shuffle, of that half in another lane.

    Whether it is another lane's, `valid` says; None once that predicate is overwritten.
    """

    source: Register
    number: int
    shuffle: "_Shuffle | None" = None
    valid: Register | None = None


@dataclass(frozen=True, slots=True)
class _Shuffle:
    """What decides where a shuffle takes its values from."""

    form: tuple[str, ...]
    registers: tuple[Register, ...]


_What = _Sum | _Shuffled | _Half
_Known = dict[Register, _What]


def remainders(body: Body, above: Callable[[int], tuple[Register, ...]]) -> dict[int, Step]:
    """By the site of an instruction, the step that follows the sums of scans.

    It goes before the marks of an addition, and behind those of a subtraction. `above` gives the predicates of the
    choices that a block lies between.
    """
    # most functions add nothing under a guard
    if not any(_may_add(decoding) for decoding in body) or not any(_may_subtract(decoding) for decoding in body):
        return {}
    # what is known at the beginning of a block is known at the end of every block before it
    begins: dict[int, _Known] = {0: {}}
    waiting = [0]
    while waiting:
        block = waiting.pop()
        known = begins[block]
        for decoding in body.decodings[block]:
            known = _behind(decoding, known)
        for after in body.edges[block]:
            old = begins.get(after)
            new = known if old is None else {one: what for one, what in old.items() if known.get(one) == what}
            if new != old:
                begins[after] = new
                waiting.append(after)
    steps: dict[int, Step] = {}
    for block, known in begins.items():
        for decoding in body.decodings[block]:
            step = _step(decoding, known, above(block))
            if step is not None:
                steps[decoding.site.number] = step
            known = _behind(decoding, known)
    return steps


def _behind(decoding: Decoding, known: _Known) -> _Known:
    """What is known behind an instruction."""
    found, site = _found(decoding, known), decoding.site.number
    for written in decoding.writes:
        known = {
            register: _without(what, written)
            for register, what in known.items()
            # in a loop the next sum at a site replaces what is kept of the one before
            if register != written
            and written not in _needed(what)
            and not (isinstance(what, _Sum) and what.site == site)
        }
    return known | found


def _needed(what: _What) -> tuple[Register, ...]:
    """The registers that must not be written as long as this is known."""
    if isinstance(what, _Sum):
        return (what.own,)
    if isinstance(what, _Shuffled):
        return what.source, what.valid
    return (what.source, *(what.shuffle.registers if what.shuffle else ()))


def _without(what: _What, written: Register) -> _What:
    return replace(what, valid=None) if isinstance(what, _Half) and what.valid == written else what


def _sum_of(register: Register, known: _Known) -> _Sum:
    found = known.get(register)
    return found if isinstance(found, _Sum) else _Sum(register, None)


def _found(decoding: Decoding, known: _Known) -> _Known:
    """The registers that an instruction sets, with what is known of their values."""
    added = _added(decoding, known)
    if added is not None:
        return {added[0]: _Sum(_sum_of(added[1].source, known).own, decoding.site.number)}
    followed = _FOLLOWED.get(decoding.effects.law)
    return {} if followed is None or decoding.guard() is not None else followed(decoding, known)


def _shuffled(decoding: Decoding, known: _Known) -> _Known:
    pair, source, target = decoding.operands[0], decoding.register_at(1), decoding.first_result()
    valid = next((r for r in decoding.writes if r != target), None)
    if not isinstance(pair, Pair) or source is None or target is None or valid is None or source == valid:
        return {}
    half = known.get(source)
    if isinstance(half, _Half) and half.shuffle is None:
        registers = tuple(
            r for r in (decoding.register_at(n) for n in range(2, len(decoding.operands))) if r is not None
        )
        if {target, valid} & {*registers, half.source}:
            return {}
        form = (decoding.mod("mode"), *map(str, decoding.operands[2:]))
        return {target: replace(half, shuffle=_Shuffle(form, registers), valid=valid)}
    return {} if source == target else {target: _Shuffled(source, valid)}


def _copied(decoding: Decoding, known: _Known) -> _Known:
    source, target = decoding.register_at(1), decoding.register_at(0)
    what = None if source is None else known.get(source)
    return {target: what} if target is not None and isinstance(what, _Sum) and target != what.own else {}


def _unpacked(decoding: Decoding, known: _Known) -> _Known:
    (source,), targets = decoding.registers_of(1), decoding.registers_of(0)
    if source is None or len(targets) != _HALVES or source in targets:
        return {}
    return {target: _Half(source, number) for number, target in enumerate(targets) if target is not None}


def _packed(decoding: Decoding, known: _Known) -> _Known:
    """Both halves of another lane's value together."""
    (target,), parts = decoding.registers_of(0), decoding.registers_of(1)
    halves = [known.get(part) if part is not None else None for part in parts]
    found = [half for half in halves if isinstance(half, _Half)]
    valid = next((half.valid for half in found if half.valid is not None), None)
    alike = len({(half.source, half.shuffle) for half in found}) == 1
    if target is None or valid is None or not alike or [half.number for half in found] != [*range(_HALVES)]:
        return {}
    source = found[0].source
    return {} if len(parts) != _HALVES or target == source else {target: _Shuffled(source, valid)}


_FOLLOWED = {"shuffle": _shuffled, "copy": _copied, "unpack": _unpacked, "pack": _packed}


def _added(decoding: Decoding, known: _Known) -> tuple[Register, _Shuffled] | None:
    """The register to which an addition adds what had been shuffled into it; None if it is no such addition."""
    guard = decoding.instruction.guard
    if guard is None or not _may_add(decoding):
        return None
    target, *parts = [decoding.register_at(index) for index in range(3)]
    what = None if target is None else known.get(target)
    if target is None or not isinstance(what, _Shuffled) or guard.negated:
        return None
    if decoding.scope.register(guard.register) != what.valid or {*parts} != {target, what.source}:
        return None
    return target, what


def _step(decoding: Decoding, known: _Known, under: tuple[Register, ...]) -> Step | None:
    added = _added(decoding, known)
    if added is not None:
        return _follow(decoding, *added, _sum_of(added[1].source, known).site)
    return _subtracted(decoding, known, under)


def _follow(decoding: Decoding, target: Register, what: _Shuffled, before: int | None) -> Step | None:
    """A step before an addition: what its lanes have got of others is undefined if what is added is."""
    guard, site = decoding.guard(), decoding.site.number
    if guard is None:
        return None
    slot, _ = guard

    def general(window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        got = undefined(window, target)
        lost = np.zeros(window.size, bool) if got is None else got & window.rows[slot]
        unsure = undefined(window, what.valid)
        lost = lost if unsure is None else lost | unsure
        if before is not None:
            lost = lost | definedness.remainder(window, before)
        definedness.put_remainder(window, site, lost, mask)

    return action(general)


def _subtracted(decoding: Decoding, known: _Known, under: tuple[Register, ...]) -> Step | None:
    """A step behind the marks of a subtraction of a lane's own value from a sum.

    Where an undefined value has chosen that it runs, its result stays undefined.
    """
    if not _may_subtract(decoding):
        return None
    target, total, own = [decoding.register_at(index) for index in range(3)]
    what = None if total is None else known.get(total)
    if target is None or own is None or not isinstance(what, _Sum) or what.own != own or what.site is None:
        return None
    site, key = what.site, key_of(target)

    def general(window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        bits = definedness.flags.get(window, key)
        if bits is None:
            return
        lost = definedness.remainder(window, site)
        for predicate in under:
            unsure = undefined(window, predicate)
            lost = lost if unsure is None else lost | unsure
        definedness.flags.put(window, key, np.where(lost, bits, np.uint32(0)), mask)

    return action(general)


def _may_add(decoding: Decoding) -> bool:
    guarded = decoding.instruction.guard is not None
    return guarded and decoding.effects.law == "sum" and not decoding.has("sat") and decoding.mod("type") in _WRAPPING


def _may_subtract(decoding: Decoding) -> bool:
    plain = decoding.guard() is None and not decoding.has("sat")
    return decoding.effects.law == "difference" and plain and decoding.mod("type") in _WRAPPING
