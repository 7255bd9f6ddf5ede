"""Lanes that exited or diverged where their warp should do something together.

PTX waits for threads that live. A thread that returned before a barrier is not missed there, nor by hardware. A thread
that bypassed the barrier, and exited after it, has left it out; no GPU so far minds. Votes, reductions and comparisons
are defined over the threads of the mask that have not exited, and shuffles report by themselves whose value they take:
for them a mask is wrong only if it names lanes that went past. An election needs all of its lanes.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.analysis.flow.dominance import blocks_behind
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, some_threads, thread_name
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask, lane_bits
from kernbench.ptx.emulator.observer.meetings import EndingsObserver, Operation
from kernbench.ptx.emulator.program.program import Program, Site
from kernbench.ptx.emulator.units.batch import Batch

# additional entries for the negative numbers of lanes that did not exit in a block
_MARKS = 4


class Endings(EndingsObserver):
    """Checks of operations that warps of one batch run together."""

    def __init__(self, batch: Batch, reporter: Reporter):
        self._batch = batch
        self._reporter = reporter
        self._reported: set[tuple[int, int]] = set()
        # basic blocks that no exited warp has bypassed, with the number of living threads at that check
        self._clear: dict[int, int] = {}

    def parted(self, fragment: Fragment, site: Site, missing: Array, active: Mask) -> None:
        """Part of a warp reaches an aligned barrier, and the rest waits elsewhere for ever."""
        bad = active & (missing != 0)
        if bad.any():
            position = int(np.argmax(bad))
            warp = int(fragment.window.lane_numbers[position]) // WARP
            lane = int(missing[position]).bit_length() - 1
            lowest = next(n for n in range(lane + 1) if int(missing[position]) >> n & 1)
            here = fragment.window.lane_numbers[bad]
            self._divergent(site, here[here // WARP == warp], warp * WARP + lowest, "")

    def look(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs: report lanes it is meant for that have exited."""
        if (operation.site.number, fragment.level) in self._reported:
            return
        window, active = fragment.window, fragment.lanes.active()
        ended = self._ended_bits(window.warps)
        if operation.is_control or not operation.exchanges or not operation.misses_ended:
            ended &= self._past_bits(window.warps, fragment.level)
        bad = active & ((operation.named(window) & np.repeat(ended, WARP)) != 0)
        if bad.any():
            self._reported.add((operation.site.number, fragment.level))
            self._report(fragment, operation, np.repeat(ended, WARP), bad)

    def gone_round(self, fragment: Fragment, site: Site) -> None:
        """A barrier of the whole block is complete: report warps that bypassed it and exited."""
        batch, level = self._batch, fragment.level
        if (site.number, level) in self._reported or not self._any_past(level):
            return
        # of the CTAs that arrived: the window may have warps of others that exited long ago
        here = np.unique(fragment.lanes.present()[0] % batch.ctas)
        warps = np.flatnonzero(np.isin(np.arange(batch.warps) % batch.ctas, here))
        warps = warps[~batch.alive.reshape(-1, WARP)[warps].any(axis=1)]
        past = warps[self._past_bits(warps, level) != 0] if len(warps) else warps
        if not len(past):
            return
        self._reported.add((site.number, level))
        lane = int(past[0]) * WARP + int(np.argmax(batch.ended_in.reshape(-1, WARP)[past[0]] >= 0))
        who = some_threads(batch, active_lanes(fragment))
        message = (
            f"{who} meet at the barrier of the block, and {len(past)} of its warps went round it, such as that of "
            f"{thread_name(batch, lane)}, which ended at PTX line {self._line(lane)}"
        )
        hint = "let every thread of the block run the barrier: move it out of the branch, or give it a count"
        self._reporter.add("divergent-barrier", site, message, hint, len(past), about="round", formal=_ROUND_FORMAL)

    def _any_past(self, level: int) -> bool:
        """Whether a warp that has bypassed `level` has exited, in any CTA with a living thread."""
        batch = self._batch
        if self._clear.get(level) == batch.alive_count:
            return False
        warps = np.flatnonzero((batch.alive_bits == 0) & (batch.alive_by_cta > 0)[batch.cta_of_warp])
        if len(warps) and (self._past_bits(warps, level) != 0).any():
            return True
        self._clear[level] = batch.alive_count
        return False

    def _report(self, fragment: Fragment, operation: Operation, ended: Array, bad: Mask) -> None:
        position = int(np.argmax(bad))
        lane = int(fragment.window.lane_numbers[position])
        members = int(operation.named(fragment.window)[position])
        gone = [n for n in range(WARP) if (members & int(ended[position])) >> n & 1]
        first = lane // WARP * WARP + gone[0]
        where = f"ended at PTX line {self._line(first)}"
        if operation.is_control:
            here = fragment.window.lane_numbers[bad]
            self._divergent(
                operation.site, here[here // WARP == lane // WARP], first, f", which went past it and {where}"
            )
            return
        names = f"lane{'s' if len(gone) > 1 else ''} {_ranges(gone)}"
        message = (
            f"the mask {members:#010x} of {thread_name(self._batch, lane)} names {names}; "
            f"{thread_name(self._batch, first)} {where} and never comes"
        )
        hint = "use the mask of the lanes that run this: __ballot_sync(mask, condition) before the branch gives it"
        formal = "" if operation.exchanges else _PAST_FORMAL
        self._reporter.add("warp-mask", operation.site, message, hint, int(np.count_nonzero(bad)), formal=formal)

    def masks(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs.

        Each lane's mask must name itself, and all lanes that it names must have the same mask.
        """
        named = operation.named(fragment.window).reshape(-1, WARP)
        active = fragment.lanes.active().reshape(-1, WARP)
        own = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
        unnamed = active & ((named & own) == 0)
        differs = active & ~unnamed & self._differing(named, active & ~unnamed)
        for bad, what in ((unnamed, "does not name itself"), (differs, "names lanes that come with another one")):
            if bad.any():
                position = int(np.argmax(bad.reshape(-1)))
                who = thread_name(self._batch, int(fragment.window.lane_numbers[position]))
                message = f"the mask {int(named.reshape(-1)[position]):#010x} of {who} {what}"
                hint = "all lanes that run this together must give one mask, which names them all and nobody else"
                self._reporter.add("warp-mask", operation.site, message, hint, int(bad.sum()), about=what)

    def _differing(self, named: Array, active: Mask) -> Mask:
        """For each lane, whether its mask names an active lane with another mask."""
        found: Mask = np.zeros(active.shape, bool)
        for row in np.flatnonzero(((named != named[:, :1]) & active).any(axis=1) | ~active[:, 0]).tolist():
            here = np.flatnonzero(active[row])
            masks = named[row, here]
            reaches = (masks[:, None] >> here.astype(np.uint32)[None, :]) & 1 == 1
            found[row, here] = (reaches & (masks[:, None] != masks[None, :])).any(axis=1)
        return found

    def _divergent(self, site: Site, here: Array, absent: int, more: str) -> None:
        message = (
            f"{some_threads(self._batch, here)} reach the barrier without the rest of their warp, "
            f"such as {thread_name(self._batch, absent)}{more}"
        )
        hint = "let all threads of a warp run the same barrier: move it out of the branch"
        self._reporter.add("divergent-barrier", site, message, hint)

    def _line(self, lane: int) -> int:
        sites = self._batch.program.blocks[int(self._batch.ended_in[lane])].sites
        return sites[-1].line if sites else 0

    def _ended_bits(self, warps: Array) -> Array:
        """Lanes of each warp that have exited by themselves, as bits."""
        return lane_bits(self._batch.ended_in.reshape(-1, WARP)[warps] >= 0)

    def _past_bits(self, warps: Array, block: int) -> Array:
        """Lanes of each warp that exited in a basic block behind `block`, as bits."""
        behind = self._behind(self._batch.program, block)
        return lane_bits(behind[self._batch.ended_in.reshape(-1, WARP)[warps]])

    def _behind(self, program: Program, block: int) -> Mask:
        """Which basic blocks a lane can be in only after passing `block` or bypassing it, by number."""
        known = program.blocks_behind
        if block not in known:
            behind = np.zeros(len(program.blocks) + _MARKS, bool)
            behind[list(blocks_behind(program.edges, program.idle, program.entry.entry, block))] = True
            known[block] = behind
        return known[block]


_PAST_FORMAL = "every GPU so far lets __syncwarp go on when the lanes that did not come have ended"
_ROUND_FORMAL = "every GPU so far lets a barrier go on when the warps that did not come have ended"


def active_lanes(fragment: Fragment) -> Array:
    """The lane numbers of a fragment."""
    numbers: Array = fragment.window.lane_numbers[fragment.lanes.active()]
    return numbers


def _ranges(numbers: list[int]) -> str:
    """Sorted numbers, with runs as first-last."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
