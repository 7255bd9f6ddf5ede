"""Order that every GPU keeps and PTX does not promise: accesses to shared memory complete before a later arrival.

All lanes of a warp read a buffer, and one of them (elect.sync) arrives on the mbarrier that lets others refill it. By
the letter of PTX an arrival releases what its own thread did, and nothing orders the reads of the other 31. No GPU
shows it: one instruction is executed for all its lanes before the next one of any of them begins. Official pipelines
rely on that, so a race whose earlier access was published that way is formal. Two more cases are formal:

- A thread of another block arrived, and the wait has .cta scope, the default. Scopes say which caches are checked, and
  shared memory has none.
- A thread waited for a copy and then met others at a relaxed barrier of the cluster. The bytes have arrived by then.
  Stores to another block's memory need not have, and stay a race.

The implementation adds one column for each warp to the vector clocks (`Actors.along`), beside the warp's clock. It
travels wherever clocks do, and is read only to classify a race. An arriving lane publishes its warp's clock there if it
took part in every access to shared memory since the lanes last met. Once lanes have diverged, an arrival of one says
nothing of what another did alone.
"""

from collections.abc import Iterable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.happens_before.clocks import Clocks
from kernbench.ptx.emulator.checks.happens_before.knowledge import Knowledge
from kernbench.ptx.emulator.lanes.arrays import Bools, Int32s, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask, lane_bits
from kernbench.ptx.emulator.memory.cells import CLOCK_LIMIT, CLOCK_SHIFT, NUMBER_MASK, NUMBER_SHIFT
from kernbench.ptx.emulator.program.hub import BatchHub

NOT_DONE, ALONG, NARROW, RELAXED, ALIKE, COPIED = range(6)
# why a race, or a missing fence (the last), is formal, and how to fix it; by the codes above
REASONS = (
    "",
    "the lane that arrived on the mbarrier after the earlier access ran it along with the other lanes of its warp, and "
    "every GPU so far has done it for all of them before the arrival",
    "the other block has arrived since on the mbarrier that was waited for here, by one lane for its warp or while the "
    "wait's scope does not hold it, and every GPU so far has done an access to shared memory before that",
    "a thread that had waited for the copy has since met others at the cluster's barrier, with .relaxed, and on every "
    "GPU so far what it brought lies in shared memory by then",
    "both bring the same bytes, so that it does not matter which is the last",
    "every Hopper GPU so far has what cp.async brings in shared memory once it was waited for, where wgmma reads it",
)
HINTS = (
    "",
    "put __syncwarp() (bar.warp.sync) between the accesses of the warp and the arrival of its one lane",
    "wait with mbarrier.try_wait.acquire.cluster, and put __syncwarp() before an arrival of one lane for its warp",
    "run barrier.cluster.arrive with .release, and barrier.cluster.wait with .acquire",
    "let one warp begin the copy: elect.sync chooses a lane of each warp that runs it",
    "put fence.proxy.async behind the wait for the copies, before the barrier",
)
_EVERYBODY = np.uint32(0xFFFFFFFF)


@kernel
def _begin_arrival(
    lanes: Int64s, clocks: Int32s, met: Int64s, parted: Int64s, together: UInt32s, first: int, arriving: Bools
) -> None:
    """Put the clocks of warps into their columns from `first` on, if the arriving lanes took part in every access."""
    ctas = clocks.shape[0]
    for i in range(lanes.size):
        arriving[lanes[i] // WARP] = True
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        if parted[warp] > met[warp] and np.int64(together[warp]) >> (lanes[i] % WARP) & 1 == 0:
            arriving[warp] = False
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        if arriving[warp]:
            clocks[warp % ctas, warp // ctas, first + warp // ctas] = clocks[warp % ctas, warp // ctas, warp // ctas]


@kernel
def _end_arrival(lanes: Int64s, clocks: Int32s, first: int, arriving: Bools) -> None:
    """Remove what `_begin_arrival` has put there for the same lanes."""
    ctas = clocks.shape[0]
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        if arriving[warp]:
            arriving[warp] = False
            clocks[warp % ctas, warp // ctas, first + warp // ctas] = 0


class ReleasedAlong:
    """For one batch: which lanes took part in every access of their warps since they met, and what they published."""

    def __init__(self, batch: BatchHub, clocks: Clocks):
        self._batch, self._clocks = batch, clocks
        # whether the program arrives on mbarriers, with clocks that have columns for it
        self._used: bool = batch.launch.actors.asynchronous and "mbarrier.arrive" in batch.program.text
        actors = batch.launch.actors
        self._first: int = actors.along(0) if self._used else 0
        # the columns of asynchronous work
        self._work: Array = actors.working()
        # lanes that took part in each access of their warp, and the warp's clock at its last access by some lanes only
        self._together: Array = np.full(batch.warps, _EVERYBODY)
        self._parted: Array = np.zeros(batch.warps, np.int64)
        # what relaxed arrivals at the cluster's barrier publish of copies, by phase, and what warps have acquired of it
        self._relaxed: dict[object, Knowledge] = {}
        self._heard: dict[int, Knowledge] = {}
        # warps whose clocks are in their columns while they arrive
        self._arriving: Array = np.zeros(batch.warps, bool)

    def accessed(self, lanes: Array, active: Mask | None) -> None:
        """Lanes access shared memory: whole warps with their `active` lanes, or exactly these lanes."""
        if not self._used:
            return
        if active is None:
            if lanes.size % WARP == 0 and lanes[0] % WARP == 0 and lanes[WARP - 1] == lanes[0] + WARP - 1:
                return
            active = np.zeros(self._batch.lanes, bool)
            active[lanes] = True
            lanes = np.arange(self._batch.lanes)
        masks = lane_bits(active)
        some = (masks != 0) & (masks != _EVERYBODY)
        if not some.any():
            return
        warps, masks = lanes[::WARP][some] // WARP, masks[some]
        # accesses before the lanes last met are ordered by that meeting
        before = np.where(self._parted[warps] > self._clocks.met[warps], self._together[warps], _EVERYBODY)
        self._together[warps] = before & masks
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        self._parted[warps] = self._clocks.clocks[ctas, inside, inside]

    def arriving(self, lanes: Array) -> None:
        """Call before lanes arrive: publishes their warps' clocks in the extra columns until `arrived`."""
        if self._used:
            clocks, met = self._clocks.clocks, self._clocks.met_column
            _begin_arrival(lanes, clocks, met, self._parted, self._together, self._first, self._arriving)

    def arrived(self, lanes: Array) -> None:
        """Call after lanes arrived: other lanes of their warps may not have taken part, so the columns are cleared."""
        if self._used:
            _end_arrival(lanes, self._clocks.clocks, self._first, self._arriving)

    def narrowly(self, knowledge: Knowledge) -> Knowledge:
        """What a wait of .cta scope acquires from arrivals of other blocks: only that their accesses are complete."""
        rows = {first: self._done(row) for first, row in knowledge.rows.items()}
        dense, columns = knowledge.dense, self._clocks.columns
        if dense is not None:
            whole = len(dense) // columns * columns
            each = [self._done(row) for row in dense[:whole].reshape(-1, columns)]
            dense = np.concatenate([*each, np.zeros(len(dense) - whole, dense.dtype)])
        return Knowledge(rows, dense)

    def _done(self, row: Array) -> Array:
        found: Array = row * self._work
        count, first = self._batch.warps_per_cta, self._first
        if self._used:
            np.maximum(row[:count], row[first : first + count], out=found[first : first + count])
        return found

    def arrives_relaxed(self, warp: int, mask: int, key: object) -> None:
        """Lanes arrive at the cluster's barrier without a release: copies that they have waited for are complete."""
        known, actors = self._clocks.snapshot(warp).released_by(mask).only(self._work), self._clocks.publications.actors
        before = self._relaxed.get(key)
        self._relaxed[key] = known if before is None else before.join(known, actors)

    def passes(self, warp: int, key: object) -> None:
        """Lanes of a warp pass the cluster's barrier."""
        known, before = self._relaxed.get(key), self._heard.get(warp)
        if known is not None:
            self._heard[warp] = known if before is None else before.join(known, self._clocks.publications.actors)

    def heard(self, warps: Iterable[int], number: int, clock: int) -> bool:
        """Whether one of the warps met a thread at the cluster's barrier that had waited for the copy at `clock`."""
        columns = self._clocks.columns
        known = (self._heard[warp] for warp in warps if warp in self._heard)
        return any(clock <= one.clock(number, columns) for one in known)

    def reasons(self, lanes: Array, cells: Array) -> Array:
        """For each lane and the cell of an earlier, unordered access.

        The reason why that access is complete, or NOT_DONE.
        """
        found: Array = np.zeros(len(lanes), np.int64)
        if not len(lanes) or not (self._used or self._heard):
            return found
        cells, clocks = cells.astype(np.uint64), self._clocks
        numbers = (cells >> np.uint64(NUMBER_SHIFT) & np.uint64(NUMBER_MASK)).astype(np.int64) - 1
        wanted = (cells >> np.uint64(CLOCK_SHIFT) & np.uint64(CLOCK_LIMIT)).astype(np.int64)
        inside, warps = numbers % clocks.columns, lanes // WARP
        if self._used:
            here = numbers - inside == clocks.first_numbers[warps % self._batch.ctas]
            threads = inside < self._batch.warps_per_cta
            done = threads & (wanted <= self._known(lanes, numbers, inside, here))
            found[done] = np.where(here[done], ALONG, NARROW)
        for i in np.flatnonzero((found == 0) & np.isin(warps, list(self._heard))).tolist():
            found[i] = RELAXED * self.heard(warps[i : i + 1].tolist(), int(numbers[i]), int(wanted[i]))
        return found

    def _known(self, lanes: Array, numbers: Array, inside: Array, here: Array) -> Array:
        """The clocks up to which lanes know warps by the extra columns; meaningless for other actors."""
        clocks, (each, which) = self._clocks, np.unique(lanes, return_inverse=True)
        columns = np.minimum(self._first + inside, clocks.columns - 1)
        near = clocks.own_rows(each)[which.reshape(-1), columns]
        row, far = clocks.known_rows[lanes // WARP], np.minimum(numbers - inside + columns, clocks.known.shape[1] - 1)
        beyond = np.where(row >= 0, clocks.known[np.maximum(row, 0), far], 0)
        found: Array = np.where(here, near, beyond)
        return found
