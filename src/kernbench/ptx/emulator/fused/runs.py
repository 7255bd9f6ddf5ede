"""Runs: consecutive arithmetic steps of a basic block, interpreted one by one until machine code pays.

The cost of a step is known well enough: some microseconds fixed, and a nanosecond or two a lane. A run that has cost
half as much as it takes to compile is compiled; the code is cached and serves other programs. Code that another process
has compiled is loaded from disk much earlier. Steps and lanes are counted, not time: the same launch compiles the same
runs each time. Results are the same in any case.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kernbench.common.dtypes import Array
from kernbench.common.native.machine import Code
from kernbench.ptx.emulator.fused import code
from kernbench.ptx.emulator.fused.tapes import Taping, player
from kernbench.ptx.emulator.lanes.lanes import NO_MASK, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.steps import Step

# nanoseconds that steps cost: each, and for each lane
_STEP, _LANE = 2000.0, 1.5
# the same on a tape
_PLAYED_STEP, _PLAYED_LANE = 40.0, 1.0
# nanoseconds that it takes to write the text of a run, of each step of it, and to load what is kept
_LOAD, _LOAD_STEP = 2e6, 0.1e6


class _Part(NamedTuple):
    """Steps of a run, and where they have it their machine code, with the slots of special registers that it reads."""

    steps: tuple[Step, ...]
    code: Code | None = None
    specials: tuple[int, ...] = ()

    def is_done(self, window: Window, mask: Mask) -> bool:
        """Compute it; False where that is left to the steps."""
        if self.code is None:
            return False
        return self.code(window.layout, mask, *[window.rows[slot] for slot in self.specials]) is not NotImplemented


class _Played(NamedTuple):
    """Steps of a run as a tape, and what plays it."""

    steps: tuple[Step, ...]
    play: Code
    numbers: Array
    outside: tuple[int, ...]
    constants: tuple[Array, ...]

    def is_done(self, window: Window, mask: Mask) -> bool:
        """Compute it; False where that is left to the steps."""
        bases = window.known_bases.get(self.outside)
        if bases is None:
            bases = window.bases(self.outside)
        return self.play(self.numbers, bases, mask) is not NotImplemented


class Costs:
    """What steps have cost so far, and what they must have before machine code is looked for and made."""

    def __init__(self, steps: int):
        self.steps = steps
        # nanoseconds so far, and those before anybody looks for machine code
        self.spent = 0.0
        self.limit = _LOAD + _LOAD_STEP * steps
        # what it takes to make it, once that is known
        self.price = 0.0

    def are_enough(self, lanes: int) -> bool:
        """The steps are about to be run for so many lanes: whether machine code is looked for."""
        self.spent += self.steps * (_STEP + _LANE * lanes)
        return self.spent >= self.limit

    @property
    def pay(self) -> bool:
        """Whether it is made where it is not found."""
        return self.spent >= self.price

    def wait(self, for_good: bool) -> None:
        """It is not there: nobody looks again before it pays to make it, or ever."""
        self.limit = float("inf") if for_good else self.price


class _Tapes:
    """A run as tapes, with a mask or without one; steps that have no operation, or none yet, are run by themselves."""

    def __init__(self, steps: tuple[Step, ...]):
        self._steps = steps
        self._taping = Taping(steps)
        self.parts: tuple[_Part | _Played, ...] = (_Part(steps),)
        self.complete = False

    def spend(self, window: Window) -> Sequence[_Part | _Played]:
        """The run is about to be run; some of its steps may have become tapes."""
        play = player() if code.is_possible() else None
        if play is None:
            self.complete = True
            return self.parts
        pieces = self._taping.pieces(window.batch.table.slots, _STEP + _LANE * window.size)
        self.complete = self._taping.is_complete
        if pieces is not None:
            steps = [self._steps[piece.begin : piece.end] for piece in pieces]
            self.parts = tuple(
                _Part(some) if piece.tape is None else _Played(some, play, *piece.tape)
                for some, piece in zip(steps, pieces, strict=True)
            )
        return self.parts


class _Form:
    """A run with a mask or without one: the parts that it is made of, once they are."""

    def __init__(self, steps: tuple[Step, ...], dead: frozenset[int], masked: bool, tapes: _Tapes):
        self._steps = steps
        self._dead = dead
        self._masked = masked
        self._tapes = tapes
        self.parts: tuple[_Part, ...] | None = None
        self._costs = Costs(len(steps))
        self._written: list[tuple[int, int, code.Written | None]] | None = None

    def spend(self, window: Window) -> Sequence[_Part | _Played]:
        """What the run is made of this time; it becomes machine code of its own if it has cost enough by now."""
        tapes, costs = self._tapes, self._costs
        if tapes.complete:
            # as `are_enough` counts, without a call
            costs.spent += costs.steps * (_PLAYED_STEP + _PLAYED_LANE * window.size)
            if costs.spent < costs.limit:
                return tapes.parts
            self._try(window)
            return self.parts or tapes.parts
        if costs.are_enough(window.size):
            self._try(window)
        return self.parts or tapes.spend(window)

    def _try(self, window: Window) -> None:
        if not code.is_possible():
            self._costs.wait(True)
            return
        if self._written is None:
            computed = [step.computed for step in self._steps if step.computed is not None]
            self._written = code.parted(window.batch.table.slots, computed, self._dead, self._masked)
            self._costs.price = sum(written.price for _, _, written in self._written if written is not None)
        make = self._costs.pay
        parts = []
        for begin, end, written in self._written:
            steps = self._steps[begin:end]
            found = None if written is None else code.machine_code(written, make)
            if written is not None and found is None:
                self._costs.wait(make)
                return
            parts.append(_Part(steps) if written is None else _Part(steps, found, written.specials))
        self.parts = tuple(parts)


class Run:
    """Steps that follow each other, each of which only computes; nobody reads what `dead` slots hold afterwards."""

    def __init__(self, steps: tuple[Step, ...], dead: frozenset[int]):
        self._steps = steps
        self._dead = dead
        tapes = _Tapes(steps)
        self._plain, self._masked = _Form(steps, dead, False, tapes), _Form(steps, dead, True, tapes)
        # where every step computes inactive lanes along, masks make no difference
        relaxed = all(step.computed is not None and step.computed.relaxed for step in steps)
        self._under_mask = self._plain if relaxed else self._masked

    def __reduce__(self) -> tuple[type["Run"], tuple[tuple[Step, ...], frozenset[int]]]:
        return Run, (self._steps, self._dead)

    def direct(self, window: Window) -> None:
        """All lanes of a window of a run of warps."""
        form = self._plain
        for one in form.parts or form.spend(window):
            if not one.is_done(window, NO_MASK):
                for step in one.steps:
                    step.direct(window)

    def general(self, window: Window, mask: Mask | None) -> None:
        """The active lanes of any window."""
        if not window.in_place:
            for step in self._steps:
                step.general(window, mask)
            return
        if mask is None:
            self.direct(window)
            return
        form = self._under_mask
        for one in form.parts or form.spend(window):
            if not one.is_done(window, mask):
                for step in one.steps:
                    step.general(window, mask)
