"""Steps: what a decoded instruction does to a window. `direct` runs if every lane of a run of warps is active.

`general(window, mask)` is the full form, with a mask over positions, None for all. Guards narrow the mask.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.fragment import FragmentOf
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.window import Window, WindowOf

# the upper bits of a generic address of shared memory, and their position
SHARED_WINDOW, _WINDOW_BITS = np.uint64(3), np.uint64(44)
_LOW_HALF = np.uint64(0xFFFFFFFF)
# computes rows from rows: `function(*sources, *targets)`
Compute = Callable[..., object]
# A program holds steps and does not know the batch they work on: the `Any` here only drops its type. Code that makes a
# step declares what it needs from a batch (`units.batch`); the scheduler that runs it has all of that.
AnyWindow = WindowOf[Any]
AnyFragment = FragmentOf[Any]
Direct = Callable[[AnyWindow], None]
General = Callable[[AnyWindow, "Mask | None"], None]
# a control gets the scheduler and the fragment, and returns the fragment if it simply continues
Control = Callable[[Any, AnyFragment], "AnyFragment | None"]


@dataclass(frozen=True, slots=True)
class Computed:
    """What a step computes: `function(*sources, *targets)` over rows of slots, where the guard holds, if there is one.

    A guard is the slot of a predicate and whether it is negated. A `relaxed` step may also compute inactive lanes.
    """

    function: Compute
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    guard: tuple[int, bool] | None = None
    relaxed: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a step loads: one element for each target, in order, from slot `address` plus an offset in global memory.

    That is `nbytes` per lane. It is a weak access that only the memory checks observe. `site` is the number of its
    instruction. A guard is as in `Computed`.
    """

    address: int
    offset: int
    targets: tuple[int, ...]
    nbytes: int
    site: int
    guard: tuple[int, bool] | None = None


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What lanes of whole warps exchange by a constant pattern.

    Each lane of `target` gets slot `source` of another lane.

    `lanes` has the source lane of each lane, `valid` whether it was in range; `predicate` is the slot for the latter,
    if there is one.
    """

    source: int
    target: int
    lanes: tuple[int, ...]
    predicate: int | None
    valid: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Marks:
    """What a step says of definedness, by bank and row: if all `sources` are defined, so are the `targets`.

    Under a guard that holds for some lanes only, and leaves the others as they are.
    """

    sources: tuple[tuple[str, int], ...]
    targets: tuple[tuple[str, int], ...]
    guarded: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction in both forms; `only_computes` says that it only fills rows from other rows.

    With `computed` or `loaded` the step does exactly what is described there, so several steps may be fused. With
    `marks` it is not an instruction of the program: it only tracks what is defined.
    """

    direct: Direct
    general: General
    only_computes: bool = False
    computed: Computed | None = None
    loaded: Loaded | None = None
    marks: Marks | None = None


@dataclass(frozen=True, slots=True)
class ControlStep:
    """An instruction that decides where lanes continue, or makes them wait.

    `run(scheduler, fragment)` returns the fragment if it simply continues at its block. `targets` are blocks it may go
    to beside the next one, which it reaches if `falls`. With `guards_itself` it evaluates its own guard. With
    `exchanged` whole warps exchange values as described there, and continue at the next block.
    """

    run: Control
    targets: tuple[int, ...] = ()
    falls: bool = True
    guards_itself: bool = False
    exchanged: Exchanged | None = None


def action(general: General) -> Step:
    """A step with one implementation for both forms."""
    return Step(lambda window: general(window, None), general)


def relaxed(step: Step) -> Step:
    """The same step, for results that are live in the active lanes only: in-place rows are computed for all lanes.

    That saves a row for the results and a masked copy, which cost more than most operations.
    """
    if not step.only_computes:
        return step
    direct, general = step.direct, step.general

    def run(window: Window, mask: Mask | None) -> None:
        if window.in_place:
            direct(window)
        else:
            general(window, mask)

    return Step(direct, run, True, None if step.computed is None else replace(step.computed, relaxed=True))


def guarded(step: Step, guard: int, negated: bool, own: bool) -> Step:
    """`step` where the predicate in slot `guard` holds; `own` says that the step writes that predicate.

    If it holds in no lane, a step that acts on more than registers is not called.
    """
    general, acts = step.general, step.computed is None and step.loaded is None

    def run(window: Window, mask: Mask | None) -> None:
        active = window.rows[guard]
        if negated:
            active = ~active
        elif own:
            active = active.copy()
        chosen = active if mask is None else active & mask
        if not acts or np.count_nonzero(chosen):
            general(window, chosen)

    computed = None if step.computed is None else replace(step.computed, guard=(guard, negated))
    loaded = None if step.loaded is None else replace(step.loaded, guard=(guard, negated))
    return replace(action(run), computed=computed, loaded=loaded)


def compute(function: Compute, sources: Sequence[int], targets: Sequence[int]) -> Step:
    """`function(*sources, *targets)` over rows; targets may be the same registers as sources."""
    sources, targets = tuple(sources), tuple(targets)
    computed = Computed(function, sources, targets)
    return Step(_direct(function, sources, targets), _general(function, sources, targets), True, computed)


def _general(function: Compute, sources: tuple[int, ...], targets: tuple[int, ...]) -> General:
    if len(targets) == 1 and len(sources) in _SINGLE:
        return _SINGLE[len(sources)](function, *sources, *targets)

    def run(window: Window, mask: Mask | None) -> None:
        rows = window.rows
        blanks = [window.blank(target, number) for number, target in enumerate(targets)]
        function(*[rows[source] for source in sources], *blanks)
        for target, values in zip(targets, blanks, strict=True):
            window.put(target, values, mask)

    return run


def _single_one(function: Compute, a: int, d: int) -> General:
    def run(window: Window, mask: Mask | None) -> None:
        out = window.blank(d)
        function(window.rows[a], out)
        window.put_blank(d, out, mask)

    return run


def _single_two(function: Compute, a: int, b: int, d: int) -> General:
    def run(window: Window, mask: Mask | None) -> None:
        rows, out = window.rows, window.blank(d)
        function(rows[a], rows[b], out)
        window.put_blank(d, out, mask)

    return run


def _single_three(function: Compute, a: int, b: int, c: int, d: int) -> General:
    def run(window: Window, mask: Mask | None) -> None:
        rows, out = window.rows, window.blank(d)
        function(rows[a], rows[b], rows[c], out)
        window.put_blank(d, out, mask)

    return run


_SINGLE: dict[int, Callable[..., General]] = {1: _single_one, 2: _single_two, 3: _single_three}


def _direct(function: Compute, sources: tuple[int, ...], targets: tuple[int, ...]) -> Direct:
    shape = _SHAPES.get((len(sources), len(targets)))
    if shape is not None:
        return shape(function, *sources, *targets)
    operands = (*sources, *targets)

    def run(window: Window) -> None:
        rows = window.rows
        function(*[rows[slot] for slot in operands])

    return run


def _one(function: Compute, a: int, d: int) -> Direct:
    def run(window: Window) -> None:
        rows = window.rows
        function(rows[a], rows[d])

    return run


def _two(function: Compute, a: int, b: int, d: int) -> Direct:
    def run(window: Window) -> None:
        rows = window.rows
        function(rows[a], rows[b], rows[d])

    return run


def _three(function: Compute, a: int, b: int, c: int, d: int) -> Direct:
    def run(window: Window) -> None:
        rows = window.rows
        function(rows[a], rows[b], rows[c], rows[d])

    return run


_SHAPES: dict[tuple[int, int], Callable[..., Direct]] = {(1, 1): _one, (2, 1): _two, (3, 1): _three}


def copy(source: Array, target: Array) -> None:
    """target = source."""
    target[...] = source


def copy_all(*rows: Array) -> None:
    """The second half of the rows = the first half, which may be the same rows."""
    count = len(rows) // 2
    values = [row.copy() for row in rows[:count]] if count > 1 else rows[:count]
    for source, target in zip(values, rows[count:], strict=True):
        target[...] = source


def cut(source: Array, target: Array) -> None:
    """Copy the low bits; zero-extend."""
    target[...] = source


def in_shared_memory(source: Array, target: Array) -> None:
    """Shared addresses in 64-bit registers: of a generic shared address the low half is used.

    Other addresses are not truncated, so that one far off is out of bounds.
    """
    target[...] = np.where(source >> _WINDOW_BITS == SHARED_WINDOW, source & _LOW_HALF, source)


def sign_extend(source: Array, target: Array) -> None:
    """Copy the value, sign-extended."""
    signed = f"int{8 * source.itemsize}"
    target[...] = source.view(signed).astype(f"int{8 * target.itemsize}").view(target.dtype)


@dataclass(frozen=True, slots=True)
class WithTable:
    """lop3 with its table, which is an immediate."""

    function: Compute
    table: int

    def __call__(self, a: Array, b: Array, c: Array, out: Array) -> None:
        """Compute from three rows."""
        self.function(a, b, c, np.uint32(self.table), out)


def nothing() -> Step:
    """A step without effect."""
    return Step(lambda window: None, lambda window, mask: None)
