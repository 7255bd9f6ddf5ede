"""Runs: consecutive arithmetic steps of a basic block, interpreted one by one until machine code pays.

The cost of a step is well known: a fixed cost of some microseconds, and a nanosecond or two per lane. A run that has
cost half as much as its compilation is compiled; the code is cached and serves other programs. Code that another
process has compiled is loaded from disk much earlier. Steps and lanes are counted, not time, so the same launch always
compiles the same runs. Results are the same in any case.
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

# nanoseconds per step, and per lane of a step
_STEP, _LANE = 2000.0, 1.5
# the same on a tape
_PLAYED_STEP, _PLAYED_LANE = 40.0, 1.0
# nanoseconds to write the text of a run, per step of it, and to load cached code
_LOAD, _LOAD_STEP = 2e6, 0.1e6


class _Part(NamedTuple):
    """Steps of a run; with machine code, if there is some, and the slots of special registers that it reads."""

    steps: tuple[Step, ...]
    code: Code | None = None
    specials: tuple[int, ...] = ()

    def is_done(self, window: Window, mask: Mask) -> bool:
        """Compute it; False if the steps must run instead."""
        if self.code is None:
            return False
        return self.code(window.layout, mask, *[window.rows[slot] for slot in self.specials]) is not NotImplemented


class _Played(NamedTuple):
    """Steps of a run as a tape, and the machine code that plays it."""

    steps: tuple[Step, ...]
    play: Code
    numbers: Array
    outside: tuple[int, ...]
    constants: tuple[Array, ...]

    def is_done(self, window: Window, mask: Mask) -> bool:
        """Compute it; False if the steps must run instead."""
        bases = window.known_bases.get(self.outside)
        if bases is None:
            bases = window.bases(self.outside)
        return self.play(self.numbers, bases, mask) is not NotImplemented


class Costs:
    """The cost of steps so far, and the costs at which machine code is looked up and compiled."""

    def __init__(self, steps: int):
        self.steps = steps
        # nanoseconds so far, and those at which machine code is looked up
        self.spent = 0.0
        self.limit = _LOAD + _LOAD_STEP * steps
        # the cost of compilation, once known
        self.price = 0.0

    def are_enough(self, lanes: int) -> bool:
        """Add the cost of the steps for so many lanes; returns whether to look up machine code."""
        self.spent += self.steps * (_STEP + _LANE * lanes)
        return self.spent >= self.limit

    @property
    def pay(self) -> bool:
        """Whether to compile it if it is not in the cache."""
        return self.spent >= self.price

    def wait(self, for_good: bool) -> None:
        """Machine code is missing: do not look it up again before compiling pays, or `for_good`."""
        self.limit = float("inf") if for_good else self.price


class _Tapes:
    """A run as tapes, for both forms; steps without an operation, or not yet with one, run by themselves."""

    def __init__(self, steps: tuple[Step, ...]):
        self._steps = steps
        self._taping = Taping(steps)
        self.parts: tuple[_Part | _Played, ...] = (_Part(steps),)
        self.complete = False

    def spend(self, window: Window) -> Sequence[_Part | _Played]:
        """The parts of the run for this execution; some of its steps may have become tapes."""
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
    """A run with or without a mask: its machine code, once there is some."""

    def __init__(self, steps: tuple[Step, ...], dead: frozenset[int], masked: bool, tapes: _Tapes):
        self._steps = steps
        self._dead = dead
        self._masked = masked
        self._tapes = tapes
        self.parts: tuple[_Part, ...] | None = None
        self._costs = Costs(len(steps))
        self._written: list[tuple[int, int, code.Written | None]] | None = None

    def spend(self, window: Window) -> Sequence[_Part | _Played]:
        """The parts of the run for this execution; compiled if the run has cost enough by now."""
        tapes, costs = self._tapes, self._costs
        if tapes.complete:
            # `are_enough` inlined, with the costs of a tape
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
    """Consecutive arithmetic steps; `dead` slots are not read afterwards."""

    def __init__(self, steps: tuple[Step, ...], dead: frozenset[int]):
        self._steps = steps
        self._dead = dead
        tapes = _Tapes(steps)
        self._plain, self._masked = _Form(steps, dead, False, tapes), _Form(steps, dead, True, tapes)
        # if every step may compute inactive lanes as well, masks make no difference
        relaxed = all(step.computed is not None and step.computed.relaxed for step in steps)
        self._under_mask = self._plain if relaxed else self._masked

    def __reduce__(self) -> tuple[type["Run"], tuple[tuple[Step, ...], frozenset[int]]]:
        return Run, (self._steps, self._dead)

    def direct(self, window: Window) -> None:
        """Run for all lanes of a window of a run of warps."""
        form = self._plain
        for one in form.parts or form.spend(window):
            if not one.is_done(window, NO_MASK):
                for step in one.steps:
                    step.direct(window)

    def general(self, window: Window, mask: Mask | None) -> None:
        """Run for the active lanes of any window."""
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
