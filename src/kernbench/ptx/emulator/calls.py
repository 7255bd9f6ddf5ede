"""Calls: parameters go through frames in local memory, or through registers; recursive functions keep their registers."""

from typing import Any

import numpy as np

from kernbench.ptx.emulator.fragment import Fragment, Frame
from kernbench.ptx.emulator.operands import FUNCTION_BASE, Decoding
from kernbench.ptx.emulator.program import Code
from kernbench.ptx.emulator.steps import ControlStep
from kernbench.ptx.module import Group, Name, Variable

# where a value goes: bytes from a frame offset to another, or a slot to a slot
Copy = tuple[int, int, int]


def call_step(d: Decoding) -> ControlStep:
    """call, direct or through a register."""
    callee, arguments, results = _parts(d)
    if callee in d.linker.functions:
        target = _Target(d, callee, arguments, results)
        d.code.callees.add(callee)
        return ControlStep(target.enter)
    d.code.callees.add("")
    register = d.value(Name(callee), "u64")
    return ControlStep(_Indirect(d, register, arguments, results).enter)


def _parts(d: Decoding) -> tuple[str, tuple[Any, ...], tuple[Any, ...]]:
    arguments: tuple[Any, ...] = ()
    results: tuple[Any, ...] = ()
    callee = ""
    for operand in d.operands:
        if isinstance(operand, Group):
            if callee:
                arguments = operand.items
            else:
                results = operand.items
        elif isinstance(operand, Name) and not callee:
            callee = operand.text
    return callee, arguments, results


class _Target:
    """One function as called from one place."""

    def __init__(self, d: Decoding, name: str, arguments: tuple[Any, ...], results: tuple[Any, ...]):
        self._d = d
        self._name = name
        self._site = d.site
        self._following = d.following
        self._code: Code | None = d.linker.codes.get(name)
        self._in: list[Copy] = []
        self._in_slots: list[tuple[int, int]] = []
        self._out: list[Copy] = []
        self._out_slots: list[tuple[int, int]] = []
        if self._code is not None:
            self._bind(self._code.params, arguments, self._in, self._in_slots, entering=True)
            self._bind(self._code.returns, results, self._out, self._out_slots, entering=False)

    def _bind(
        self,
        formals: tuple[Variable, ...],
        actuals: tuple[Any, ...],
        copies: list[Copy],
        slots: list[tuple[int, int]],
        entering: bool,
    ) -> None:
        if len(formals) != len(actuals):
            raise self._d.error(f"{self._name} takes {len(formals)} values here, not {len(actuals)}")
        for formal, actual in zip(formals, actuals, strict=True):
            if formal.space == "reg":
                slots.append(self._slot_pair(formal, actual, entering))
                continue
            assert self._code is not None
            inside = self._code.frame[self._code.scope, formal.name]
            outside = self._outside(formal, actual)
            pair = (outside, inside) if entering else (inside, outside)
            copies.append((*pair, formal.size or 0))

    def _slot_pair(self, formal: Variable, actual: Any, entering: bool) -> tuple[int, int]:
        raise self._d.error(f"parameter '{formal.name}' of {self._name} is a register: declare it .param")

    def _outside(self, formal: Variable, actual: Any) -> int:
        """The offset of the actual parameter in the caller's frame; a register's value is stored there first."""
        d = self._d
        assert isinstance(actual, Name), actual
        found = d.scope.variable(actual.text)
        if found is None:
            raise d.error(f"'{actual.text}' is passed to {self._name} and is no .param variable: use one")
        variable, scope = found
        return d.code.frame[id(scope), variable.name]

    def enter(self, scheduler: Any, fragment: Fragment) -> Fragment | None:
        """Hand over the arguments and go on at the callee's first block."""
        batch = scheduler.batch
        if self._code is None:
            return self._outside_call(scheduler, fragment)
        here = fragment.stack[-1] if fragment.stack else Frame(-1, "", 0, batch.program.entry.frame_bytes)
        frame = Frame(
            self._following, self._name, here.top, here.top + self._code.frame_bytes, tuple(self._out), ()
        )
        if frame.top > batch.local_bytes:
            batch.stray(fragment.lanes, self._site, f"call of {self._name} overflows the local stack")
            scheduler.leave(fragment)
            return None
        batch.enter_frame(fragment, self._code, here.base, frame, self._in)
        rank = scheduler.program.blocks[fragment.block].rank
        window, lanes = fragment.window, fragment.lanes
        return Fragment(
            lanes, window, self._code.entry, (*fragment.stack, frame), (*fragment.prefix, rank)
        )

    def _outside_call(self, scheduler: Any, fragment: Fragment) -> Fragment:
        """A function without a body, such as vprintf: nothing happens and results are zero."""
        scheduler.batch.external_call(self._name, fragment)
        return fragment.at(self._following)


class _Indirect:
    """A call through a register: lanes part by the function they name."""

    def __init__(self, d: Decoding, register: int, arguments: tuple[Any, ...], results: tuple[Any, ...]):
        self._d, self._register, self._arguments, self._results = d, register, arguments, results
        self._targets: dict[str, _Target] = {}

    def enter(self, scheduler: Any, fragment: Fragment) -> None:
        """Send each group of lanes into its function."""
        addresses = fragment.window.rows[self._register]
        active = fragment.lanes.active()
        for address in np.unique(addresses[active]):
            lanes = fragment.lanes.select(addresses == address)
            assert lanes is not None
            group = scheduler.fragment(fragment, lanes, fragment.block)
            names = list(self._d.linker.functions)
            number = int(address) // FUNCTION_BASE - 1
            if int(address) % FUNCTION_BASE or not 0 <= number < len(names):
                scheduler.batch.stray(lanes, self._d.site, f"call of {int(address):#x}, which is no function")
                scheduler.leave(group)
                continue
            target = self._targets.get(names[number])
            if target is None:
                target = self._targets[names[number]] = _Target(
                    self._d, names[number], self._arguments, self._results
                )
            going = target.enter(scheduler, group)
            if going is not None:
                scheduler.push(going)


def return_from(scheduler: Any, fragment: Fragment) -> Fragment:
    """ret: hand over the results and go on behind the call."""
    frame = fragment.stack[-1]
    stack = fragment.stack[:-1]
    base = stack[-1].base if stack else 0
    scheduler.batch.leave_frame(fragment, frame, base)
    return Fragment(fragment.lanes, fragment.window, frame.following, stack, fragment.prefix[:-1])


