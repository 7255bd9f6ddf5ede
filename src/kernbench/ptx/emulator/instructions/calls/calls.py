"""Calls: values are passed through frames in local memory or registers; recursive functions save their registers."""

import numpy as np

from kernbench.ptx.emulator.instructions.calls import externals
from kernbench.ptx.emulator.lanes.fragment import Frame, Transfer
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Code
from kernbench.ptx.emulator.program.steps import AnyFragment, ControlStep
from kernbench.ptx.emulator.units.batch import Fragment, Scheduler
from kernbench.ptx.names.demangling import demangled
from kernbench.ptx.text.module import Function, Name, Operand, Variable
from kernbench.ptx.text.walking import parts_of_call

# maximal call depth; calls of functions without local memory would never overflow the stack
DEEPEST_CALL = 5000


def call_step(d: Decoding) -> ControlStep:
    """call, direct or through a register."""
    callee, arguments, results = parts_of_call(d.operands)
    if callee in d.linker.functions:
        d.code.callees.add(callee)
        return ControlStep(_Target(d, callee, arguments, results).enter)
    d.code.callees.add("")
    register = d.value(Name(callee), "u64")
    prototypes = [name for name, function in d.linker.functions.items() if _fits(function, arguments, results)]
    targets = {
        d.linker.function_address(name): _Target(d, name, arguments, results)
        for name in prototypes
        if name in d.linker.codes
    }
    return ControlStep(_Indirect(d, register, targets).enter)


def _fits(function: Function, arguments: tuple[Operand, ...], results: tuple[Operand, ...]) -> bool:
    return len(function.params) == len(arguments) and len(function.returns) == len(results)


class _Target:
    """A function as called by one instruction."""

    def __init__(self, d: Decoding, name: str, arguments: tuple[Operand, ...], results: tuple[Operand, ...]):
        self._d = d
        self._name = name
        self._site = d.site
        self._following = d.following
        self._code: Code | None = d.linker.codes.get(name)
        self._arguments: tuple[Transfer, ...] = ()
        self._results: tuple[Transfer, ...] = ()
        # arguments and results of a function without a body: offsets and sizes in the caller's frame
        self._given: list[tuple[int, int]] = []
        self._left: list[tuple[int, int]] = []
        if self._code is not None:
            self._arguments = self._bind(self._code.params, arguments, entering=True)
            self._results = self._bind(self._code.returns, results, entering=False)
        else:
            self._given = [self._in_frame(argument) for argument in arguments]
            self._left = [self._in_frame(result) for result in results]

    def _in_frame(self, operand: Operand) -> tuple[int, int]:
        """Offset and size of a .param variable in the caller's frame."""
        found = self._d.scope.variable(operand.text) if isinstance(operand, Name) else None
        offset = None if found is None else self._d.code.frame.get((id(found[1]), found[0].name))
        if found is None or offset is None:
            raise self._d.error(f"{self._name} has no body, and {operand} is no .param variable that could be passed")
        return offset, found[0].size or 0

    def _bind(
        self, formals: tuple[Variable, ...], actuals: tuple[Operand, ...], entering: bool
    ) -> tuple[Transfer, ...]:
        if len(formals) != len(actuals):
            raise self._d.error(f"{self._name} takes {len(formals)} values here, not {len(actuals)}")
        pairs = zip(formals, actuals, strict=True)
        return tuple(self._transfer(formal, actual, entering) for formal, actual in pairs)

    def _transfer(self, formal: Variable, actual: Operand, entering: bool) -> Transfer:
        assert self._code is not None
        in_register = formal.name in self._code.formals
        inside = self._code.formals[formal.name] if in_register else self._code.frame[self._code.scope, formal.name]
        found = self._d.scope.variable(actual.text) if isinstance(actual, Name) else None
        if found is not None:
            variable, scope = found
            offset = self._d.code.frame.get((id(scope), variable.name))
            if offset is None:
                raise self._d.error(f"'{variable.name}' cannot be passed to {self._name}: use a .param variable")
            outside, as_slot = offset, False
        else:
            read, written = self._d.value, self._d.destination
            outside, as_slot = (read if entering else written)(actual, formal.type), True
        nbytes = formal.size or 0
        if entering:
            return Transfer(outside, inside, nbytes, as_slot, in_register)
        return Transfer(inside, outside, nbytes, in_register, as_slot)

    def enter(self, scheduler: Scheduler, fragment: Fragment) -> Fragment | None:
        """Pass the arguments and continue at the callee's first block."""
        batch = scheduler.batch
        here = fragment.stack[-1] if fragment.stack else Frame(-1, "", 0, batch.program.entry.frame_bytes)
        if self._code is None:
            return self._outside(scheduler, fragment, here.base)
        frame = Frame(self._following, self._name, here.top, here.top + self._code.frame_bytes, self._results)
        if frame.top > batch.frames.room:
            batch.stray(fragment.lanes, self._site, f"call of {demangled(self._name)} overflows the local stack")
            scheduler.leave(fragment)
            return None
        if len(fragment.stack) >= DEEPEST_CALL:
            message = f"call of {demangled(self._name)} is nested {DEEPEST_CALL:,} deep: does the recursion end?"
            batch.stray(fragment.lanes, self._site, message)
            scheduler.leave(fragment)
            return None
        batch.frames.enter(fragment, self._code, here.base, frame, self._arguments)
        rank = scheduler.program.blocks[fragment.block].rank
        stack, prefix = (*fragment.stack, frame), (*fragment.prefix, rank)
        return Fragment(fragment.lanes, fragment.window, self._code.entry, stack, prefix, fragment.block)

    def _outside(self, scheduler: Scheduler, fragment: Fragment, base: int) -> Fragment | None:
        """Call a function without a body: a known external one, else it returns zeros."""
        batch = scheduler.batch
        lanes = batch.frames.lanes_of(fragment)
        arguments = [batch.frames.bytes_at(lanes, base + offset, nbytes) for offset, nbytes in self._given]
        outcome = externals.call(self._name, batch, lanes, arguments, self._site)
        if outcome.failure:
            batch.trapped(fragment.lanes, self._site, outcome.failure)
            scheduler.leave(fragment)
            return None
        for offset, nbytes in self._left:
            batch.frames.give(lanes, base + offset, nbytes, outcome.results)
        return fragment.at(self._following)


class _Indirect:
    """A call through a register: lanes diverge by the function they call."""

    def __init__(self, d: Decoding, register: int, targets: dict[int, _Target]):
        self._site, self._register, self._targets = d.site, register, targets

    def enter(self, scheduler: Scheduler, fragment: Fragment) -> None:
        """Send each group of lanes into its function."""
        addresses = np.broadcast_to(fragment.window.rows[self._register], fragment.window.size)
        for address in np.unique(addresses[fragment.lanes.active()]):
            lanes = fragment.lanes.select(addresses == address)
            assert lanes is not None
            group: AnyFragment = scheduler.fragment(fragment, lanes, fragment.block)
            target = self._targets.get(int(address))
            if target is None:
                scheduler.batch.stray(lanes, self._site, f"call of {int(address):#x}, which is no such function")
                scheduler.leave(group)
                continue
            going = target.enter(scheduler, group)
            if going is not None:
                scheduler.push(going)


def return_from(scheduler: Scheduler, fragment: Fragment) -> Fragment:
    """ret: pass the results and continue after the call."""
    frame = fragment.stack[-1]
    stack = fragment.stack[:-1]
    scheduler.batch.frames.leave(fragment, frame, stack[-1].base if stack else 0)
    # the block with the call directly precedes the one that follows it
    behind = frame.following - 1
    return Fragment(fragment.lanes, fragment.window, frame.following, stack, fragment.prefix[:-1], behind)
