"""Waits for mbarriers: a wait that does not pass parks its lanes until the barrier's phase completes."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.hub import BarrierScheduler
from kernbench.ptx.emulator.barriers.mbarrier_kernels import TOKEN_SHIFT
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.operand_rows import OperandRows
from kernbench.ptx.emulator.program.program import Site

_TRUE = np.array(True)


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A wait instruction: its operands, which are an address and a phase, and the slot of its result.

    `parity` says that the phase is given as a parity, not as the token of an arrival; `blocks` that the wait is retried
    until it succeeds.
    """

    operands: OperandRows
    parity: bool
    target: int
    blocks: bool
    acquires: bool
    # acquires at a later fence
    relaxed: bool
    # cluster scope
    wide: bool
    following: int
    site: Site


@dataclass(slots=True, eq=False)
class Asked:
    """What active lanes wait for: the lanes, and for each the barrier's address and the phase."""

    lanes: Array
    addresses: Array
    wanted: Array
    # the barriers found there, and `Mbarriers.renewed` at that time
    slots: Array | None = None
    renewed: int = -1


@dataclass(eq=False, slots=True)
class Parked:
    """Lanes that wait."""

    fragment: Fragment
    wait: Wait
    asked: Asked


class Waiting:
    """The waits of one batch."""

    def __init__(self, scheduler: BarrierScheduler):
        self._scheduler = scheduler
        self._batch = scheduler.batch
        self.parked: list[Parked] = []

    def arrive(self, fragment: Fragment, wait: Wait) -> Fragment | None:
        """Lanes reach a wait: those whose phase has completed continue; the others park, or continue with false."""
        asked = self._asked(fragment, wait)
        passed, count = self._test(asked, wait, True)
        active = fragment.lanes.mask
        if count == len(passed):
            fragment.window.put(wait.target, _TRUE, active)
            return fragment.at(wait.following)
        if not wait.blocks:
            fragment.window.put(wait.target, _spread(passed, active), active)
            return fragment.at(wait.following)
        self._part(fragment, wait, asked, passed, count)
        return None

    def _part(self, fragment: Fragment, wait: Wait, asked: Asked, passed: Mask, count: int) -> bool:
        """Lanes that have `passed` continue, the others park; returns whether any continue."""
        if not count:
            self.parked.append(Parked(fragment, wait, asked))
            return False
        going, staying = self._scheduler.split(fragment, _spread(passed, fragment.lanes.mask))
        if staying is not None:
            self.parked.append(Parked(staying, wait, self._asked(staying, wait)))
        assert going is not None
        self._pass(going, wait)
        return True

    def _pass(self, fragment: Fragment, wait: Wait) -> None:
        fragment.window.put(wait.target, _TRUE, fragment.lanes.mask)
        self._scheduler.push(fragment.at(wait.following))

    def _test(self, asked: Asked, wait: Wait, comes: bool = False) -> tuple[Mask, int]:
        """Whether each active lane's phase has completed, and for how many; these lanes acquire."""
        batch, lanes = self._batch, asked.lanes
        slots, passed, count = batch.mbarriers.test(asked.addresses, lanes, asked.wanted, wait.parity, wait.site)
        asked.slots, asked.renewed = slots, batch.mbarriers.renewed
        if comes and batch.recorder.recording:
            phases = batch.mbarriers.phases(slots) - passed if wait.parity else asked.wanted >> TOKEN_SHIFT
            waited = passed | wait.blocks
            batch.recorder.mbarrier(wait.site, slots, lanes, np.where(waited, phases, -1))
        if batch.journal is not None:
            batch.journal.waited(slots, lanes, passed, wait.blocks, wait.site)
        if wait.acquires and count:
            if wait.parity:
                batch.checks.asynchronous.passed_by_parity(slots, lanes, passed, wait.site)
            batch.mbarriers.acquire(slots, lanes, passed, wait.wide)
        elif wait.relaxed and count:
            batch.mbarriers.see(slots, lanes, passed, wait.wide)
        return passed, count

    def _asked(self, fragment: Fragment, wait: Wait) -> Asked:
        lanes, mask = fragment.window.lane_numbers, fragment.lanes.mask
        lanes = lanes if mask is None else lanes[mask]
        given = wait.operands.take(self._batch, lanes)[0]
        return Asked(lanes, given[0], given[1].view(np.int64))

    def wake(self) -> bool:
        """Nothing else can run: lanes whose phase has completed continue."""
        if not self.parked:
            return False
        parked, self.parked = self.parked, []
        woken = False
        for one in parked:
            if self._stays(one):
                self.parked.append(one)
                continue
            passed, count = self._test(one.asked, one.wait)
            woken |= self._part(one.fragment, one.wait, one.asked, passed, count)
        return woken

    def _stays(self, parked: Parked) -> bool:
        """Whether nothing has completed; only if there are no checks, and no barrier was initialised or invalidated."""
        asked, mbarriers = parked.asked, self._batch.mbarriers
        if self._batch.checks.checking or asked.slots is None or asked.renewed != mbarriers.renewed:
            return False
        if not self._batch.launch.fast.unchanged_waits:
            return False
        return not mbarriers.completed(asked.slots, asked.wanted, parked.wait.parity)


def _spread(passed: Mask, active: Mask | None) -> Mask:
    """Expand an array over active lanes to all positions."""
    if active is None:
        return passed
    spread: Mask = np.zeros(len(active), bool)
    spread[active] = passed
    return spread
