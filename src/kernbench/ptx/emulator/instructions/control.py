"""Control flow: branches, calls, returns and exits."""

from collections.abc import Callable, Mapping

import numpy as np

from kernbench.ptx.emulator.instructions.calls.calls import call_step, return_from
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.program.operands import Decoding, Row
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.emulator.program.steps import AnyFragment, ControlStep, Step, action, nothing
from kernbench.ptx.emulator.units.batch import Fragment, Scheduler, Window
from kernbench.ptx.text.module import Name


def branch(d: Decoding) -> ControlStep:
    """bra."""
    operand = d.operands[0]
    assert isinstance(operand, Name)
    target, following = d.label(operand.text), d.following
    guard = d.guard()
    d.row = Row("branch", () if guard is None else guard[:1], () if guard is None else guard[1:], target)
    if guard is None:
        return ControlStep(lambda scheduler, fragment: fragment.at(target), (target,), falls=False)
    slot, negated = guard

    def run(scheduler: Scheduler, fragment: Fragment) -> AnyFragment | None:
        return scheduler.branch(fragment, slot, negated, target, following)

    return ControlStep(run, (target,), guards_itself=True)


def indexed_branch(d: Decoding) -> ControlStep:
    """brx.idx: lanes branch to the target of their index."""
    operand = d.operands[1]
    assert isinstance(operand, Name)
    table = d.scope.target_table(operand.text)
    if table is None:
        raise d.error(f"there are no branch targets '{operand.text}' here")
    targets = tuple(d.label(name) for name in table.targets)
    slot = d.source(0)

    def run(scheduler: Scheduler, fragment: Fragment) -> AnyFragment | None:
        index = fragment.window.rows[slot]
        for number, target in enumerate(targets):
            chosen = fragment.lanes.select(index == np.uint32(number))
            if chosen is not None:
                scheduler.push(scheduler.fragment(fragment, chosen, target))
        beyond = fragment.lanes.select(index >= np.uint32(len(targets)))
        if beyond is not None:
            scheduler.batch.stray(beyond, d.site, f"brx.idx index beyond its {len(targets)} targets")
            scheduler.leave(scheduler.fragment(fragment, beyond, fragment.block))
        return None

    return ControlStep(run, targets, falls=False)


def leave(entry: bool) -> ControlStep:
    """ret: the end of a kernel, or the return from a function."""
    return ControlStep(_end if entry else return_from, falls=False)


def _end(scheduler: Scheduler, fragment: Fragment) -> None:
    scheduler.leave(fragment)


def end(d: Decoding) -> ControlStep:
    """exit."""
    d.row = Row("end")
    return ControlStep(_end, falls=False)


def trap(d: Decoding) -> ControlStep:
    """trap: the kernel stops itself."""
    site = d.site

    def run(scheduler: Scheduler, fragment: Fragment) -> None:
        scheduler.batch.trapped(fragment.lanes, site)
        scheduler.leave(fragment)

    return ControlStep(run, falls=False)


def no_operation(d: Decoding) -> Step:
    """An instruction without effect on values."""
    d.row = Row("nothing")
    return nothing()


_FEWEST_REGISTERS, _MOST_REGISTERS, _REGISTER_UNIT = 24, 256, 8


def set_registers(d: Decoding) -> Step:
    """setmaxnreg: without effect here, but whole warps must run it, with a valid number."""
    count, site = d.constant_of(0) or 0, d.site
    if not _FEWEST_REGISTERS <= count <= _MOST_REGISTERS or count % _REGISTER_UNIT:
        raise d.error(f"setmaxnreg {count}: give a multiple of 8 from 24 to 256")
    d.row = Row("whole warp")

    def general(window: Window, mask: Mask | None) -> None:
        if mask is not None:
            window.batch.checks.whole_warps(window, mask, site)

    return action(general)


def sleep(d: Decoding) -> Step:
    """nanosleep: without effect; recordings keep the duration."""
    d.report = Report(d.site, d.effects.event, slot=d.source(0))
    return no_operation(d)


MEANINGS: Mapping[str, Callable[[Decoding], "Step | ControlStep"]] = {
    "bra": branch,
    "brx": indexed_branch,
    "call": call_step,
    "ret": lambda d: end(d) if d.entry else leave(d.entry),
    "exit": end,
    "trap": trap,
    "nop": no_operation,
    "griddepcontrol": no_operation,
    "setmaxnreg": set_registers,
    "nanosleep": sleep,
}
