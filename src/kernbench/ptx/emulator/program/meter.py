"""The meter: counts what runs, and stops a launch that uses up its budget."""

import time
from collections import Counter
from collections.abc import Sequence

from kernbench.common.compiled import seconds_compiling
from kernbench.ptx.emulator.lanes.fragment import Frame
from kernbench.ptx.emulator.lanes.lanes import Lanes
from kernbench.ptx.emulator.program.program import Block
from kernbench.safety.budget import Budget, OverBudgetError

_LOOK_AT_THE_CLOCK = 64


def _now() -> float:
    """Seconds, but for those in which loops of the emulator itself were compiled."""
    return time.monotonic() - seconds_compiling()


class Meter:
    """Counts blocks by lanes and warps; everything else follows from what the blocks hold."""

    def __init__(self, budget: Budget):
        self._budget = budget
        self._deadline = _now() + budget.seconds
        self._looks = 0
        self._lanes: Counter[int] = Counter()
        self._warps: Counter[int] = Counter()
        self.steps = 0
        self.here: tuple[Block, Lanes] | None = None
        # the calls that those who run now are in
        self.calls: tuple[Frame, ...] = ()

    def count(self, block: Block, lanes: Lanes) -> None:
        """A fragment is about to run a block."""
        number = block.number
        self._lanes[number] += lanes.count
        self._warps[number] += lanes.live
        self.steps += len(block.sites) or 1
        self._looks += 1
        if self.steps > self._budget.steps or not self._looks % _LOOK_AT_THE_CLOCK:
            self._check(block, lanes)

    def _check(self, block: Block, lanes: Lanes) -> None:
        late = _now() > self._deadline
        if late or self.steps > self._budget.steps:
            self.here = (block, lanes)
            what = f"{self._budget.seconds:g} seconds" if late else f"{self._budget.steps:,} steps"
            raise OverBudgetError(what)

    def metrics(self, blocks: Sequence[Block]) -> dict[str, int | dict[str, int]]:
        """Instruction, byte and flop counts by kind."""
        by_kind: Counter[str] = Counter()
        moved: Counter[str] = Counter()
        threads = warps = flops = 0
        for block in blocks:
            lanes, issued = self._lanes[block.number], self._warps[block.number]
            threads += lanes * len(block.sites)
            warps += issued * len(block.sites)
            flops += lanes * block.flops
            for kind, count in block.kinds.items():
                by_kind[kind] += lanes * count
            for (space, direction), nbytes in block.traffic.items():
                moved[f"{space}.{direction}"] += lanes * nbytes
        return {
            "thread_instructions": threads,
            "warp_instructions": warps,
            "steps": self.steps,
            "instructions_by_kind": {kind: count for kind, count in sorted(by_kind.items()) if count},
            "bytes": {name: count for name, count in sorted(moved.items()) if count},
            "flops": flops,
        }
