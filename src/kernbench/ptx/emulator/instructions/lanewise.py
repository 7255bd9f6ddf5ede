"""Instructions that compute each lane separately: all of them are functions of `kernbench.ptx.numerics`."""

from collections.abc import Callable, Mapping

import numpy as np

from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.program.operands import Decoding, Row
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.emulator.program.steps import Step, WithTable
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.numerics import FACTORIES, operation
from kernbench.ptx.text.types import TYPES

_READING = frozenset(("addc", "subc", "madc"))


def operands_of(d: Decoding) -> tuple[list[int], list[int]]:
    """Slots that are read and slots that are written, in operand order, including both results of a pair."""
    sources: list[int] = []
    targets: list[int] = []
    for index, rule in enumerate(d.resolved.rules):
        if rule.role == "a":
            sources.extend(d.sources(index))
    for index, rule in enumerate(d.resolved.rules):
        if rule.role == "d":
            targets.extend(d.targets(index) if rule.shape != "pair" else [d.target(index)])
            second = d.second(index) if rule.shape == "pair" else None
            if second is not None:
                targets.append(second)
    return sources, targets


def lanewise(d: Decoding) -> Step:
    """An instruction over rows."""
    meaning = d.resolved.meaning
    sources, targets = operands_of(d)
    d.flops = d.effects.flops * (TYPES[d.mod("type")].lanes if d.mod("type") in TYPES else 1)
    function = operation(meaning, d.mods)
    function = getattr(function, "single", function) if len(targets) == 1 else function
    return d.compute(function, sources, targets)


def rounded(d: Decoding) -> Step:
    """A division, reciprocal or root; recordings keep whether operands make a GPU take the slow path."""
    if d.has("rnd"):
        sources, _ = operands_of(d)
        below = sources[1] if len(sources) > 1 else -1
        size = TYPES[d.mod("type")].nbytes
        d.report = Report(d.site, "slow path", slot=sources[0], target_slot=below, nbytes=size)
    return lanewise(d)


def with_carry(d: Decoding) -> Step:
    """Extended-precision arithmetic: the carry flag is an additional register."""
    sources, targets = operands_of(d)
    mods = dict(d.mods)
    flag = d.carry_flag()
    if d.instruction.opcode in _READING:
        mods["reads"] = "reads"
        sources.append(flag)
    if d.has("cc"):
        targets.append(flag)
    return d.compute(operation(d.resolved.meaning, mods), sources, targets)


def lop3(d: Decoding) -> Step:
    """lop3: its table is an immediate."""
    sources, targets = operands_of(d)
    function = operation("lop3", d.mods)
    lut = np.uint32(d.constant_of(4) or 0)
    del sources[3]
    if len(sources) == 3:
        return d.compute(WithTable(function, int(lut) & 0xFF), sources, targets)
    return d.compute(lambda a, b, c, q, out, p: function(a, b, c, lut, q, out, p), sources, targets)


def division(d: Decoding) -> Step:
    """An integer division reports its divisors, which may be zero."""
    sources, targets = operands_of(d)
    step = d.compute(operation(d.resolved.meaning, d.mods), sources, targets)
    divisor, site = sources[1], d.site
    d.row = Row("divide", (*sources, *targets))

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        checks.divisors(window, window.rows[divisor], mask, site)
        step.general(window, mask)

    def direct(window: Window) -> None:
        checks = window.batch.checks
        checks.divisors(window, window.rows[divisor], None, site)
        step.direct(window)

    return Step(direct, general)


_OWN: Mapping[str, Callable[[Decoding], Step]] = {
    "add.carry": with_carry,
    "sub.carry": with_carry,
    "mad.carry": with_carry,
    "lop3": lop3,
    "div.int": division,
    "rem.int": division,
    "div.float": rounded,
    "rcp": rounded,
    "sqrt": rounded,
}
MEANINGS: Mapping[str, Callable[[Decoding], Step]] = {**dict.fromkeys(FACTORIES, lanewise), **_OWN}
