"""Other legal orders: the same launch with programs scheduled otherwise must give the same outputs, bit for bit, by
the same commands.

Programs interact only through queues, barriers, tensors and dependences, so that every order computes the same (ADR
0002). One that shares Python variables between ranks or blocks escapes all checks of memory and messages, and is
detected here: by what it stores, or by what it does, and so by its time (ADR 0083). A program that may legally observe
the order (by atomics of PTX, say) is judged by the golden in both orders instead.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import unwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.result.finding import Finding, Other, SourceLocation
from kernbench.result.run import Run, Status
from kernbench.targets.registry import of_run
from kernbench.targets.work import Parting, first_parting

if TYPE_CHECKING:
    from kernbench.bench.definition.host import Host

CHECK = "order-dependent"
NEVER, CHEAP, ALWAYS = "never", "cheap", "always"
# state that is symmetric (how many ranks ran before the middle one) does not differ in a reversed order. With this seed
# 3 to 33 programs begin neither one after the other nor with the middle one in the middle
THIRD = 4
# counted work of a launch that takes well under a second to repeat: not measured, so that every machine agrees
_CHEAP = {"commands": 5_000, "warp_instructions": 200_000, "flops": 1_000_000_000}
_CHEAP_BYTES = 1 << 26
_HINT = (
    "what one program writes and another reads must go through queues, tensors or tasks: look for a variable of the "
    "module, a closure, a mutable default argument or a captured array that the kernel changes"
)
_HINT_REPEAT = (
    "look for a variable that programs share or that is kept from one run to the next, or for numbers drawn without a "
    "seed: a launch must depend on its parameters and inputs only"
)


class NotLoadedAgainError(BenchError):
    """The file of a bench cannot be imported a second time, which has nothing to do with the order of programs."""


@dataclass
class Launched:
    """One execution of a bench's launch: its Run, its host, and the kernels launched, in order."""

    run: Run
    host: "Host"
    kernels: list[Any] = field(default_factory=list)

    def launches(self) -> list[Run]:
        """The Run of each launch, in order."""
        return list(self.host.launches) or [self.run]

    def outputs(self) -> list[tuple[int, str, Array]]:
        """The outputs of all launches: number of the launch, name, value."""
        launches = self.launches()
        found = [(number, name, array) for number, one in enumerate(launches) for name, array in one.outputs.items()]
        whole = [(len(launches) - 1, name, array) for name, array in self.run.outputs.items()]
        return found + [one for one in whole if not any(one[2] is known[2] for known in found)]


def other_schedules(run: Run, wanted: str) -> list[str | int]:
    """The schedules to run besides the run's own: another, and with `always` and little cost a third."""
    first = run.origin.get("schedule", "canonical")
    second: list[str | int] = ["reversed" if first == "canonical" else "canonical"]
    return [*second, THIRD] if wanted == ALWAYS and is_cheap(run) and first != THIRD else second


def is_cheap(run: Run) -> bool:
    """Whether a run's launches can be repeated at little cost, by the work they counted."""
    counted = [name for name in ("commands", "warp_instructions") if name in run.metrics]
    return bool(counted) and all(run.metrics.get(name, 0) <= most for name, most in _CHEAP.items())


def kept_inputs(inputs: Mapping[str, object], wanted: str) -> Mapping[str, object] | None:
    """A copy of the inputs for a second run, since a launch may write into them; None if there will be none."""
    size = sum(getattr(value, "nbytes", 0) for value in inputs.values())
    if wanted == NEVER or (wanted == CHEAP and size > _CHEAP_BYTES):
        return None
    return deepcopy(dict(inputs))


def may_repeat(first: Launched, wanted: str) -> bool:
    """Whether a second order is meaningful: the run is done and safe, has outputs, and they are right, or may be
    wrong because of the order that was asked for.
    """
    run = first.run
    may_differ = run.right is not False or run.origin.get("schedule", "canonical") != "canonical"
    clean = run.status is Status.FINISHED and run.safe is True and may_differ
    return clean and bool(first.outputs()) and (wanted == ALWAYS or is_cheap(run))


def compare_orders(
    first: Launched,
    again: Callable[[str | int], Launched],
    judge: Callable[[Launched], bool | None],
    wanted: str = CHEAP,
) -> None:
    """Run `again` in other orders until one differs, and add the result to the first Run: a finding, a note, or
    only the check.

    `again(schedule)` executes the launch anew; `judge` is whether the golden accepts an execution.
    """
    before = first.run.origin.get("schedule", "canonical")
    same: list[str | int] = [before]
    for other in other_schedules(first.run, wanted):
        second = _executed(first, again, (before, other))
        # a bench may choose the order of its launches itself
        if second is None or second.run.origin.get("schedule", "canonical") == before:
            return
        difference = _first_difference(first, second)
        if difference is not None:
            _explain(first, second, again, judge, difference, (before, other))
            return
        same.append(other)
        first.run.views["orders"] = {"schedules": list(same), "outcome": "same"}
    first.run.checked = (*first.run.checked, CHECK)


def _executed(
    first: Launched, again: Callable[[str | int], Launched], orders: tuple[str | int, str | int]
) -> Launched | None:
    """The launch in the second of two orders; None if it failed, which is added to the first Run."""
    try:
        second = again(orders[1])
    except NotLoadedAgainError as error:
        first.run.views["order_note"] = _not_compared(str(error).partition("\n")[0])
        return None
    except KernbenchError as error:
        _failed_again(first, again, str(error).partition("\n")[0], None, orders)
        return None
    if second.run.origin.get("schedule", "canonical") == orders[0]:
        return second
    if second.run.findings or second.run.status is not Status.FINISHED:
        finding = second.run.findings[0] if second.run.findings else None
        text = f"{finding.kind}: {finding.message}" if finding else str(second.run.status)
        _failed_again(first, again, text, finding, orders)
        return None
    return second


def _failed_again(
    first: Launched,
    again: Callable[[str | int], Launched],
    text: str,
    finding: Finding | None,
    orders: tuple[str | int, str | int],
) -> None:
    """The second run failed: a finding, unless one in the first order fails as well, as a launch that closes or removes
    something cannot be run twice; then nothing is known about orders, and a note says so.
    """
    try:
        repeated = again(orders[0]).run
        fails = bool(repeated.findings) or repeated.status is not Status.FINISHED
    except KernbenchError:
        fails = True
    if fails:
        first.run.views["order_note"] = _not_compared(text)
        return
    _found(first.run, _failed(first, orders[1], text, finding), *orders)


def _not_compared(text: str) -> str:
    return f"no second order was compared, as the launch cannot be run twice: {text}"


def _explain(
    first: Launched,
    second: Launched,
    again: Callable[[str | int], Launched],
    judge: Callable[[Launched], bool | None],
    difference: "_Difference | _OtherWork",
    orders: tuple[str | int, str | int],
) -> None:
    """Explain a difference: it is legal, due to the order, or no two runs are the same."""
    run = first.run
    observers = difference.observers(first)
    accepted = run.right is not False, not observers or judge(second) is not False
    if observers and all(accepted):
        which = ", ".join(observers[:4]) + (", ..." if len(observers) > 4 else "")
        run.views["order_note"] = (
            f"{difference.text(*orders)}; that is legal, as the kernel may observe order ({which}), and the golden "
            "accepts both"
        )
        _checked(run, *orders, "both right")
        return
    repeated = None if observers else _first_difference(first, again(orders[0]))
    where = difference.where(first)
    if observers:
        which = "only the first" if accepted[0] else "only the second" if accepted[1] else "neither"
        message, hint = f"{difference.text(*orders)}, and the golden accepts {which}", _HINT_OBSERVED
    elif repeated is None:
        message, hint = difference.text(*orders), _HINT
    else:
        message = f"{difference.text(*orders)}; a second run in the first order differs, too"
        hint = _HINT_REPEAT
    _found(run, Finding(CHECK, message, where, hint=hint), *orders)


_HINT_OBSERVED = "what an atomic or a flag gives back must not decide the result: look at how it is used"


@dataclass(frozen=True)
class _Difference:
    """The first element that differs, its output and launch, and the number of differing elements."""

    launch: int
    name: str
    index: tuple[int, ...]
    values: tuple[object, object]
    count: int
    size: int

    def text(self, first: str | int, second: str | int) -> str:
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        one, other = self.values
        return (
            f"{self.name}{at} is {one} with schedule {first} and {other} with schedule {second} "
            f"({self.count:,} of {self.size:,} elements differ)"
        )

    def observers(self, first: Launched) -> list[str]:
        """Operations in the launches that may make outputs differ legally."""
        target = of_run(first.run)
        kernels = first.kernels
        return list(dict.fromkeys(name for kernel in kernels for name in target.order_observers(first.host, kernel)))

    def where(self, first: Launched) -> SourceLocation | None:
        """The line that stored the element, or that of its kernel."""
        launches = first.launches()
        launch = launches[min(self.launch, len(launches) - 1)]
        found = of_run(launch).writer_of(first.host, launch, self.name, self.index)
        return found or _kernel_location(first, self.launch)


@dataclass(frozen=True)
class _OtherWork:
    """Outputs are the same, but a program did other operations: in which launch, and where they diverge."""

    launch: int
    parting: Parting
    by_right: tuple[str, ...]

    def text(self, first: str | int, second: str | int) -> str:
        return f"{self.parting.text(first, second)}, though the outputs are the same"

    def observers(self, first: Launched) -> list[str]:
        """Operations in the launch that may make its programs behave differently, legally."""
        return list(self.by_right)

    def where(self, first: Launched) -> SourceLocation | None:
        """The line that one order runs more often."""
        return self.parting.where or _kernel_location(first, self.launch)


def _first_difference(first: Launched, second: Launched) -> _Difference | _OtherWork | None:
    return _other_output(first, second) or _other_work(first, second)


def _other_output(first: Launched, second: Launched) -> _Difference | None:
    ours, theirs = first.outputs(), second.outputs()
    for (launch, name, a), (_, _, b) in zip(ours, theirs, strict=False):
        differs = _differing(a, b)
        if differs.any():
            flat = int(np.argmax(differs))
            index = tuple(int(i) for i in np.unravel_index(flat, a.shape)) if a.size else ()
            values = (_shown(a, flat), _shown(b, flat))
            return _Difference(launch, name, index, values, int(differs.sum()), a.size)
    if [one[:2] for one in ours] != [one[:2] for one in theirs]:
        names = [", ".join(name for _, name, _ in one) or "nothing" for one in (ours, theirs)]
        return _Difference(0, "the list of outputs", (), (names[0], names[1]), 1, 1)
    return None


def _other_work(first: Launched, second: Launched) -> _OtherWork | None:
    """The first launch in which a program did not do the same in both orders; times follow what was done."""
    for number, (one, other) in enumerate(zip(first.launches(), second.launches(), strict=False)):
        works = of_run(one).compared_works(one, other)
        parting = None if works is None else first_parting(*works)
        if works is not None and parting is not None:
            return _OtherWork(number, parting, tuple(dict.fromkeys([*works[0].observers, *works[1].observers])))
    return None


def _differing(a: Array, b: Array) -> Array:
    """Which elements differ in any bit, flat."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.ones(max(a.size, 1), bool)
    bits = [np.ascontiguousarray(one).reshape(-1).view(np.uint8).reshape(one.size, -1) for one in (a, b)]
    found: Array = (bits[0] != bits[1]).any(axis=1)
    return found


def _shown(array: Array, flat: int) -> object:
    if flat >= array.size:
        return "absent"
    value = array.reshape(-1)[flat]
    return f"{float(value):.9g}" if array.dtype.kind not in "iub" else value.item()


def _kernel_location(first: Launched, launch: int) -> SourceLocation | None:
    if launch >= len(first.kernels):
        return None
    code = getattr(unwrap(first.kernels[launch]), "__code__", None)
    return None if code is None else SourceLocation(code.co_filename, code.co_firstlineno, code.co_name)


def _failed(first: Launched, schedule: str | int, text: str, found: Finding | None) -> Finding:
    where = found.where if found is not None and found.where is not None else _kernel_location(first, 0)
    others = () if found is None else tuple(Other(o.role, o.where) for o in found.others)
    return Finding(CHECK, f"it goes wrong only with schedule {schedule}: {text}", where, others, _HINT)


def _found(run: Run, finding: Finding, first: str | int, second: str | int) -> None:
    run.findings = [*run.findings, finding]
    _checked(run, first, second, "different")


def _checked(run: Run, first: str | int, second: str | int, outcome: str) -> None:
    run.checked = (*run.checked, CHECK)
    run.views["orders"] = {"schedules": [first, second], "outcome": outcome}
