"""Blocks that exit: their shared memory is released, and nothing may access it any more.

Copies and tensor core operations there must be known to be complete by one of the block's own warps, and accesses by
other blocks of the cluster must be ordered before its end.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.mbarrier_kernels import ALIVE, LIVE, PHASE, WAITED
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, actor_name, block_name, thread_name
from kernbench.ptx.emulator.checks.happens_before.released_along import REASONS
from kernbench.ptx.emulator.lanes.arrays import Int, Int32s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP, group
from kernbench.ptx.emulator.memory.cells import (
    APART,
    CLOCK_LIMIT,
    CLOCK_SHIFT,
    EARLIER_READ,
    GROUP,
    LANES,
    NUMBER_MASK,
    NUMBER_SHIFT,
    decode,
    head_line,
    line_of,
    who,
)
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch

_CLUSTER_HINT = (
    "keep every block of the cluster alive until its peers are done with its shared memory: end with "
    "barrier.cluster.arrive.release and barrier.cluster.wait.acquire"
)
_COPY_FORMAL = (
    "nobody reads what it brings, and every GPU so far keeps a block's shared memory until its own bulk copies are done"
)
_COMMIT = "tcgen05.commit"
_GONE = (
    "; the thread exits and does not come to the cluster's barrier, which completes then, without a wait for what the "
    "thread has under way"
)
_GONE_HINT = "let the arriving thread come to the cluster's barrier, too"
_OWN_HINT = "wait for every copy that was begun (its mbarrier, its bulk group) before the block ends"


class BlockEnds:
    """The ends of one batch's blocks."""

    def __init__(self, batch: Batch, checks: BatchFindings, reporter: Reporter):
        self._batch = batch
        self._checks = checks
        self._reporter = reporter
        # (barrier, warp of another block) -> phase of its last arrival, its clock and lanes then, and the site
        self._arrivals: dict[tuple[int, int], tuple[int, int, int, Site]] = {}

    def arriving(self, slots: Array, lanes: Array, site: Site) -> None:
        """Lanes are about to arrive on barriers: blocks of remote barriers must live until then."""
        barriers, ctas = self._batch.mbarriers, self._batch.ctas
        remote = (slots >= 0) & (barriers.homes[slots] != (lanes // WARP) % ctas)
        for warp, slot, mask in group(lanes[remote], slots[remote]) if remote.any() else ():
            phase = int(barriers.state[slot, PHASE])
            self._arrivals[slot, warp] = phase, self._checks.clocks.own(warp), mask, site

    def _arrivals_ended(self, ended: Array) -> None:
        """Blocks exit: remote arrivals on their barriers must be over, by a wait for the phase or by happens-before."""
        barriers, clocks = self._batch.mbarriers, self._checks.clocks
        for (slot, warp), (phase, clock, mask, site) in self._arrivals.items():
            cta = int(barriers.homes[slot])
            if cta not in ended or barriers.state[slot, WAITED] > phase or barriers.state[slot, LIVE] != ALIVE:
                continue
            if self._commits_later(cta, warp, clock, mask, site):
                continue
            number = int(clocks.first_numbers[warp % self._batch.ctas]) + warp // self._batch.ctas
            mask = clocks.unknown_to_cta(cta, number, clock, mask)
            if mask:
                self._report_arrival(cta, slot, warp * WARP + (mask & -mask).bit_length() - 1, site)

    def _commits_later(self, cta: int, warp: int, clock: int, mask: int, site: Site) -> bool:
        """Whether a thread has waited for a later commit of the same thread to the same block.

        Commits complete in order.
        """
        state = self._batch.mbarriers.state
        return site.name.startswith(_COMMIT) and any(
            other == warp and lanes == mask and since > clock and later.name.startswith(_COMMIT)
            for (slot, other), (phase, since, lanes, later) in self._arrivals.items()
            if self._batch.mbarriers.homes[slot] == cta and state[slot, WAITED] > phase
        )

    def _report_arrival(self, cta: int, slot: int, lane: int, site: Site) -> None:
        block, name = block_name(self._batch, cta), self._checks.asynchronous.name(slot)
        who = thread_name(self._batch, lane)
        message = f"{who} arrives on {name} of {block}, and nothing keeps that block from ending before"
        hint = f"{_CLUSTER_HINT}; or let a thread of the block wait for the last phases of its barriers"
        if self._batch.scheduler.cluster.went_on_without(lane):
            message, hint = message + _GONE, f"{_GONE_HINT}; {hint}"
        self._reporter.add("use-after-free", site, message, hint, about="arrival")

    def ended(self, ctas: Array) -> None:
        """All threads of blocks have exited."""
        clocks, words = self._checks.clocks, self._batch.shared_stride // 4
        cells, lanes, _, _ = self._checks.agent_memory("shared")
        if clocks.exhausted:
            return
        self._arrivals_ended(ctas)
        for cta in ctas.tolist():
            row, known = clocks.of_cta(cta)
            actors = (row, int(clocks.first_numbers[cta]), self._batch.warps_per_cta, known)
            word = cta * words - 1
            while True:
                word, line, column = unfinished(cells, lanes, word + 1, (cta + 1) * words, *actors)
                if word < 0:
                    break
                cell, mask = int(cells[line, column]), int(lanes[line, LANES + column])
                mask = clocks.unknown_to_cta(cta, *decode(cell)[1:], int(who(cell, mask, 15)))
                if mask:
                    self._report(cta, (word - cta * words) * 4, cell, mask)
                    break

    def _report(self, cta: int, offset: int, cell: int, mask: int) -> None:
        site_number, number, _ = decode(cell & ((1 << 64) - 1))
        lane = (mask & -mask).bit_length() - 1
        site = self._checks.sites.numbered[site_number]
        who = actor_name(self._batch.launch, number, lane)
        block = block_name(self._batch, cta)
        own = number // self._batch.launch.actors.count == int(self._batch.numbers[cta])
        # an unwaited bulk group was reported when its thread exited
        reported = self._reporter.unwaited
        if own and reported and (site.number in reported or site.number in self._batch.groups.sites):
            return
        where = self._checks.shared_name(offset)
        message = f"{block} ends, and nothing says that {who} is done with its shared memory {where}"
        others = self._reporter.other(f"the access, by {who}", site)
        kind, hint = ("in-flight", _OWN_HINT) if own else ("use-after-free", _CLUSTER_HINT)
        formal = _COPY_FORMAL if own and self._alone(number) else self._done_all_the_same(cta, cell)
        self._reporter.add(kind, site, message, hint, 1, others, about="end", formal=formal)

    def _done_all_the_same(self, cta: int, cell: int) -> str:
        """Why another block's access is complete when a block exits, though unordered; as for a race."""
        warps = np.arange(self._batch.warps_per_cta) * self._batch.ctas + cta
        lanes = (warps[:, None] * WARP + np.arange(WARP)).reshape(-1)
        found = self._checks.along.reasons(lanes, np.full(len(lanes), cell & ((1 << 64) - 1), np.uint64))
        return REASONS[int(found.max())]

    def _alone(self, number: int) -> bool:
        """Whether an actor is a bulk copy that a block without a cluster began for itself."""
        actors = self._batch.launch.actors
        return bool(self._batch.cluster.size == 1 and actors.kind(number % actors.count) == "barrier")

    def accessed(self, ctas: Array, lanes: Array, site: Site) -> None:
        """Lanes access the shared memory of blocks of their cluster: these must not have exited."""
        gone = (ctas >= 0) & (self._batch.alive_by_cta[np.maximum(ctas, 0)] == 0)
        gone &= ctas != (lanes // WARP) % self._batch.ctas
        if gone.any():
            first = int(np.argmax(gone))
            block = block_name(self._batch, int(ctas[first]))
            message = (
                f"{thread_name(self._batch, int(lanes[first]))} accesses the shared memory of {block}, which has ended"
            )
            self._reporter.add(
                "use-after-free", site, message, _CLUSTER_HINT, int(np.count_nonzero(gone)), about="gone"
            )


@kernel
def unfinished(
    cells: UInt64s, lanes: UInt32s, start: int, end: int, row: Int32s, first: int, warps: int, known: Int32s
) -> tuple[int, Int, int]:
    """The first word with an access by another block or actor that is not known to be complete; -1 for none.

    Returns word, line and column. `row` is what the block's warps know together, `known` what they know of other
    blocks.
    """
    word = start
    while word < end:
        head = head_line(word, lanes)
        line = line_of(word, head, lanes)
        folded = lanes[head, APART] == 0
        if line > head and folded:
            word += GROUP - (word & (GROUP - 1))
            continue
        for k in range(EARLIER_READ + 1):
            cell = np.int64(cells[line, k])
            if cell == 0:
                continue
            number = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
            clock = (cell >> CLOCK_SHIFT) & CLOCK_LIMIT
            column = number - first
            if 0 <= column < row.size:
                if column >= warps and clock > row[column]:
                    return word, line, k
            elif number >= known.size or clock > known[number]:
                return word, line, k
        word += GROUP if folded else 1
    return -1, 0, 0
