"""Blocks that start: their shared memory may be accessed by others of the cluster only when they surely have.

CUDA's guide asks for that ("Distributed Shared Memory"), and names the cluster's barrier as the way. What another
thread of the block passed on says it as well: a wait at that barrier, or anything that a thread of the other block has
released. An mbarrier of another block needs no such check, since whoever signals it must know of its initialisation.

The barrier that is missing would also order what the other block did before it: races with that have the same cause,
and are not reported again (`explains`).
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, block_name, thread_name
from kernbench.ptx.emulator.checks.happens_before.knowledge import EVERYBODY
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.cells import decode
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch

_HINT = (
    "let all blocks of the cluster meet before the first access to a peer's shared memory: cluster.sync(), or "
    "barrier.cluster.arrive and barrier.cluster.wait"
)


class BlockStarts:
    """The starts of one batch's blocks, as its warps know them."""

    def __init__(self, batch: Batch, checks: BatchFindings, reporter: Reporter):
        self._batch, self._clocks, self._reporter = batch, checks.clocks, reporter
        # for each warp, which blocks of its cluster it knows to have started, or was reported for
        self._known: Array = np.zeros((batch.warps, batch.cluster.size), bool)
        # the clock of each warp when it last waited at the cluster's barrier, -1 for never
        self._waited: Array = np.full(batch.warps, -1, np.int64)
        # for each warp that was reported, the blocks that it did not know, and the clocks of their warps then
        self._reported: dict[int, dict[int, Array]] = {}

    def waited(self, lanes: Array) -> None:
        """Lanes have waited at their cluster's barrier, with or without an acquire: all its blocks have started."""
        for warp in np.unique(lanes // WARP).tolist():
            self._waited[warp], self._known[warp] = self._clocks.own(warp), True

    def accessed(self, ctas: Array, lanes: Array, site: Site) -> None:
        """Lanes access the shared memory of blocks of their cluster: these must have started."""
        warps, ranks = lanes // WARP, np.maximum(ctas, 0) % self._batch.cluster.size
        new = (ctas >= 0) & (ctas != warps % self._batch.ctas) & ~self._known[warps, ranks]
        if not new.any() or self._clocks.exhausted:
            return
        for cta in np.unique(ctas[new]).tolist():
            here = new & (ctas == cta)
            unsure = [lane for lane in lanes[here].tolist() if not self._has_started(lane, cta)]
            self._known[warps[here], ranks[here]] = True
            if unsure:
                self._note(unsure, cta)
                block = block_name(self._batch, cta)
                message = (
                    f"{thread_name(self._batch, unsure[0])} accesses the shared memory of {block}, and nothing says "
                    "that this block has started: blocks of a cluster are resident together, and need not begin at once"
                )
                self._reporter.add("race", site, message, _HINT, len(unsure), about="start")

    def _note(self, unsure: list[int], cta: int) -> None:
        """Record that lanes were reported for a block, and how far its warps were."""
        then = np.diagonal(self._clocks.clocks[cta, :, : self._batch.warps_per_cta])
        for warp in {lane // WARP for lane in unsure}:
            self._reported.setdefault(warp, {})[cta] = then.copy()

    def explains(self, lane: int, number: int, clock: int) -> bool:
        """Whether what a warp did at a clock was before its block was reported as perhaps not started, for a lane."""
        for cta, then in self._reported.get(lane // WARP, {}).items():
            inside = number - int(self._clocks.first_numbers[cta])
            if 0 <= inside < len(then):
                return bool(clock <= then[inside])
        return False

    def others(self, lanes: Array, races: Array) -> Array:
        """The races of lanes, as rows of suspects, that no such report explains."""
        if not self._reported:
            return races
        cells = ((row[0], decode(row[1] & (1 << 64) - 1)) for row in races.tolist())
        return races[[not self.explains(int(lanes[at]), number, clock) for at, (_, number, clock) in cells]]

    def _has_started(self, lane: int, cta: int) -> bool:
        """Whether a lane knows of a wait by its own block, or of anything that a block has released."""
        ctas, own, numbers = self._batch.ctas, lane // WARP % self._batch.ctas, self._clocks.numbers
        row = self._clocks.own_rows(np.array([lane]))[0]
        for inside in range(self._batch.warps_per_cta):
            waiter, other = inside * ctas + own, inside * ctas + cta
            clock = int(self._waited[waiter])
            if clock >= 0 and (row[inside] >= clock or self._some_known(lane, int(numbers[waiter]), clock)):
                return True
            if self._some_known(lane, int(numbers[other]), 1):
                return True
        return False

    def _some_known(self, lane: int, number: int, clock: int) -> bool:
        """Whether a lane knows of some lane of a warp at a clock, beyond the clocks of its own block's warps."""
        return bool(self._clocks.unknown(lane, number, clock, EVERYBODY) != EVERYBODY)
