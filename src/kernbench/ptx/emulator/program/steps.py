"""Steps: what a decoded instruction does to a window. `direct` runs where every lane of a run of warps is active.

`general(window, mask)` is the full form: mask over positions, None for all. Guards narrow the mask.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.fragment import FragmentOf
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.window import Window, WindowOf

# generic addresses of shared memory begin with this number, above so many bits
SHARED_WINDOW, _WINDOW_BITS = np.uint64(3), np.uint64(44)
_LOW_HALF = np.uint64(0xFFFFFFFF)
# computes rows from rows: `function(*sources, *targets)`
Compute = Callable[..., object]
# A program carries steps and knows nothing of the batch that they work on: the `Any` here drop its type, no more.
# Whoever makes a step says what it needs of a batch (`units.batch`), and the scheduler that runs it has all of that.
AnyWindow = WindowOf[Any]
AnyFragment = FragmentOf[Any]
Direct = Callable[[AnyWindow], None]
General = Callable[[AnyWindow, "Mask | None"], None]
# a control takes the scheduler and the fragment, and gives back the fragment if it simply goes on
Control = Callable[[Any, AnyFragment], "AnyFragment | None"]


@dataclass(frozen=True, slots=True)
class Computed:
    """What a step computes: `function(*sources, *targets)` over rows of slots, where the guard holds, if it has one.

    A guard is the slot of a predicate and whether it is negated. A `relaxed` one computes inactive lanes along.
    """

    function: Compute
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    guard: tuple[int, bool] | None = None
    relaxed: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a step loads: from slot `address` plus an offset in global memory one element for each target, in order.

    That is `nbytes` a lane. It orders nothing, and nobody but the checks of memory looks at it. `site` is the number of
    its instruction. A guard is as that of `Computed`.
    """

    address: int
    offset: int
    targets: tuple[int, ...]
    nbytes: int
    site: int
    guard: tuple[int, bool] | None = None


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What lanes of whole warps exchange by constants: each lane of `target` gets slot `source` of another lane.

    `lanes` says for each lane of a warp which one, `valid` whether it asked for that one; `predicate` is the slot that
    wants to know, if there is one.
    """

    source: int
    target: int
    lanes: tuple[int, ...]
    predicate: int | None
    valid: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Marks:
    """What a step says of registers, by bank and row: as long as `sources` are defined, `targets` are.

    Under a guard that is so for some lanes only, which leave the others as they are.
    """

    sources: tuple[tuple[str, int], ...]
    targets: tuple[tuple[str, int], ...]
    guarded: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction in both forms; one that `only_computes` fills rows from others, and does nothing else.

    With `computed` or `loaded` the step does what is said there and nothing else, so that several may become one. With
    `marks` it is none of the program's: it says what is defined, and no more.
    """

    direct: Direct
    general: General
    only_computes: bool = False
    computed: Computed | None = None
    loaded: Loaded | None = None
    marks: Marks | None = None


@dataclass(frozen=True, slots=True)
class ControlStep:
    """An instruction that decides where lanes go on, or makes them wait.

    `run(scheduler, fragment)` gives the fragment back if it simply goes on at its block. `targets` are blocks it may
    go to beside the next one, which it reaches if `falls`. With `guards_itself` it looks at its guard by itself. With
    `exchanged` it does that with whole warps, which then go on at the next block.
    """

    run: Control
    targets: tuple[int, ...] = ()
    falls: bool = True
    guards_itself: bool = False
    exchanged: Exchanged | None = None


def action(general: General) -> Step:
    """A step whose two forms are one."""
    return Step(lambda window: general(window, None), general)


def relaxed(step: Step) -> Step:
    """The same, for results that are live for the active lanes only: where rows lie in place, all of them are computed.

    That spares a row for the results and their way through the mask, which cost more than most operations.
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
    """`step` where the predicate of slot `guard` holds; `own` says that the step writes that predicate.

    Where it holds in no lane nothing happens: what acts on more than registers need not know what nobody asks of it.
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


def cut(source: Array, target: Array) -> None:
    """The low bits, or zeros above."""
    target[...] = source


def in_shared_memory(source: Array, target: Array) -> None:
    """64-bit addresses of an access to shared memory, which takes their low half: generic ones may be given, too.

    Other addresses stay whole, so that one that is far off is out of bounds.
    """
    target[...] = np.where(source >> _WINDOW_BITS == SHARED_WINDOW, source & _LOW_HALF, source)


def sign_extend(source: Array, target: Array) -> None:
    """The value as a signed number, widened."""
    signed = f"int{8 * source.itemsize}"
    target[...] = source.view(signed).astype(f"int{8 * target.itemsize}").view(target.dtype)


@dataclass(frozen=True, slots=True)
class WithTable:
    """lop3 with its table, which is an immediate and stays a number."""

    function: Compute
    table: int

    def __call__(self, a: Array, b: Array, c: Array, out: Array) -> None:
        """The result of three rows."""
        self.function(a, b, c, np.uint32(self.table), out)


def nothing() -> Step:
    """A step without effect."""
    return Step(lambda window: None, lambda window, mask: None)
