"""Checks of wgmma: what descriptors point at, and the order of its reads of shared memory with other accesses."""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.observer import WarpgroupObserver
from kernbench.ptx.emulator.asynchronous.matrix.warpgroups import Issued
from kernbench.ptx.emulator.checks.asynchronous.descriptors import DescriptorChecks
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.findings.reporter import some_threads, thread_name
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.memory.tiles import ranges_of, tiles_of
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch
from kernbench.ptx.numerics.matrix.descriptors import wgmma_descriptor
from kernbench.result.finding import Other


class WarpgroupChecks(WarpgroupObserver):
    """The checks of one batch's wgmma operations."""

    def __init__(self, batch: Batch, checks: BatchFindings):
        self._batch, self._checks = batch, checks
        self._reporter = checks.reporter
        self._descriptors = DescriptorChecks(batch, checks)
        # warps and how many operations they had issued, with what was found of them last
        self._last: tuple[Array, Array, Array, Array] | None = None

    def issued(self, event: Issued, leaders: Array) -> None:
        """Warps issued an operation; `leaders` are the first warps of their warpgroups."""
        first, group = self._operations(event, leaders)
        self._alike(event, first, group)
        warps, form = event.warps[first], event.form
        ctas, lanes = warps % self._batch.ctas, warps * WARP
        for which, found in (("A", event.a), ("B", event.b)):
            if found is None:
                continue
            operand = form.a_operand if which == "A" else form.b_operand
            tiles = tiles_of(found[first], operand, wgmma_descriptor)
            self._descriptors.check(which, tiles, ctas, lanes, form.site)
            ranges = Ranges(*ranges_of(ctas, tiles, self._batch.shared_stride))
            columns = self._columns(leaders[first])
            shadow = self._checks.asynchronous.shadow
            shadow.enter("shared", False, ranges, lanes, columns, event.groups[first] + 1, form.site)

    def _operations(self, event: Issued, leaders: Array) -> tuple[Array, Array]:
        """The first warp of each operation of a warpgroup, and the operation of each warp.

        Warps of one warpgroup may stand in different rounds of a loop. Where the same warps issue one operation after
        the other, the answer is the same again.
        """
        last = self._last
        if last is not None and last[0] is event.warps:
            ahead = event.ordinals - last[1]
            if np.count_nonzero(ahead == ahead[0]) == len(ahead):
                return last[2], last[3]
        keys = leaders * (1 << 32) + event.ordinals
        first = np.unique(keys, return_index=True)[1]
        group = np.searchsorted(keys[first], keys)
        self._last = event.warps, event.ordinals, first, group
        return first, group

    def _columns(self, leaders: Array) -> Array:
        """The actors of warpgroups."""
        actors = self._batch.launch.actors
        columns: Array = actors.wgmma(0) + leaders // self._batch.ctas
        return columns

    def _alike(self, event: Issued, first: Array, group: Array) -> None:
        """All warps of a warpgroup give the same descriptors for the same operation."""
        for which, found in (("A", event.a), ("B", event.b)):
            if found is None:
                continue
            other = found != found[first][group]
            if np.count_nonzero(other):
                lane = int(event.warps[int(np.argmax(other))]) * WARP
                message = (
                    f"the descriptor of {which} of {thread_name(self._batch, lane)} differs from that of the first "
                    "warp of its warpgroup"
                )
                hint = "compute descriptors from values that are the same in all four warps"
                self._reporter.add("descriptor", event.form.site, message, hint, about=(which, "alike"))

    def waited(self, warps: Array, leaders: Array, done: Array) -> None:
        """Warps have waited for their groups below `done`."""
        clocks = self._checks.clocks
        ctas, inside, columns = warps % self._batch.ctas, warps // self._batch.ctas, self._columns(leaders)
        known = clocks.clocks[ctas, inside, columns]
        clocks.clocks[ctas, inside, columns] = np.maximum(known, done)
        clocks.changed()

    def touched(self, warps: Array, name: str, verb: str, as_operand: bool, owner: Site, site: Site) -> None:
        """Warps touch a register that an operation of theirs in flight owns."""
        who = thread_name(self._batch, int(warps[0]) * WARP)
        part = "reads as A" if as_operand else "writes as part of D"
        message = f"{who} {verb} {name}, which line {owner.line} {part} and nobody has waited for"
        others = (Other("the operation in flight", self._reporter.location(owner)),)
        hint = "run wgmma.commit_group and wgmma.wait_group before its registers are touched"
        about = self._reporter.location(owner)
        self._reporter.add("in-flight", site, message, hint, len(warps), others, about=about, register=name)

    def unfenced(self, lanes: Array, name: str, site: Site) -> None:
        """Lanes have touched a register that an operation uses, with no fence between."""
        message = f"this uses {name}, and no wgmma.fence came after {some_threads(self._batch, lanes)} touched it last"
        hint = "put wgmma.fence.sync.aligned before the first wgmma.mma_async, and after accesses to its registers"
        self._reporter.add("in-flight", site, message, hint, len(lanes), about="fence")
