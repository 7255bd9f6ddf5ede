"""Checks of wgmma: what descriptors point at, and the order of its reads of shared memory with other accesses."""

from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.observer import WarpgroupObserver
from kernbench.ptx.emulator.asynchronous.matrix.warpgroups import Issued
from kernbench.ptx.emulator.checks.asynchronous.descriptors import DescriptorChecks
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.findings.reporter import some_threads, thread_name
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.memory.tiles import are_equal, ranges_of, tiles_of
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch
from kernbench.ptx.numerics.matrix.descriptors import wgmma_descriptor
from kernbench.result.finding import Other


class _Operations(NamedTuple):
    """Operations that warps issue, each of which had issued so many before.

    `first` is the first warp of each among them, `group` the operation of each warp; of operations the CTAs, the lanes
    that stand for them, and their actors.
    """

    warps: Array
    ordinals: Array
    first: Array
    group: Array
    ctas: Array
    lanes: Array
    columns: Array


class WarpgroupChecks(WarpgroupObserver):
    """The checks of one batch's wgmma operations."""

    def __init__(self, batch: Batch, checks: BatchFindings):
        self._batch, self._checks = batch, checks
        self._reporter = checks.reporter
        self._descriptors = DescriptorChecks(batch, checks)
        self._last: _Operations | None = None

    def issued(self, event: Issued, leaders: Array) -> None:
        """Warps issued an operation; `leaders` are the first warps of their warpgroups."""
        operations, form = self._operations(event, leaders), event.form
        first, ctas, lanes = operations.first, operations.ctas, operations.lanes
        self._alike(event, first, operations.group)
        shadow, clocks = self._checks.asynchronous.shadow, event.groups[first] + 1
        for which, found in (("A", event.a), ("B", event.b)):
            if found is None:
                continue
            operand = form.a_operand if which == "A" else form.b_operand
            tiles = tiles_of(found[first], operand, wgmma_descriptor)
            self._descriptors.check(which, tiles, ctas, lanes, form.site)
            ranges = Ranges(*ranges_of(ctas, tiles, self._batch.shared_stride))
            shadow.enter("shared", False, ranges, lanes, operations.columns, clocks, form.site)

    def _operations(self, event: Issued, leaders: Array) -> "_Operations":
        """The operations of warpgroups.

        Warps of one warpgroup may stand in different rounds of a loop. Where the same warps issue one operation after
        the other, the answer is the same again.
        """
        last = self._last
        if last is not None and last.warps is event.warps and are_equal(event.ordinals - last.ordinals):
            return last
        keys = leaders * (1 << 32) + event.ordinals
        first = np.unique(keys, return_index=True)[1]
        group = np.searchsorted(keys[first], keys)
        warps = event.warps[first]
        ctas, columns = warps % self._batch.ctas, self._columns(leaders[first])
        self._last = _Operations(event.warps, event.ordinals, first, group, ctas, warps * WARP, columns)
        return self._last

    def _columns(self, leaders: Array) -> Array:
        """The actors of warpgroups."""
        actors = self._batch.launch.actors
        columns: Array = actors.wgmma(0) + leaders // self._batch.ctas
        return columns

    def _alike(self, event: Issued, first: Array, group: Array) -> None:
        """All warps of a warpgroup give the same descriptors for the same operation."""
        for which, found in (("A", event.a), ("B", event.b)):
            if found is None or are_equal(found.view(np.int64)):
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
