"""Checks of wgmma: the tiles of its descriptors, and the order of its reads of shared memory with other accesses."""

from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.observer import WarpgroupObserver
from kernbench.ptx.emulator.asynchronous.matrix.warpgroups import WARPS, Crew, Issued
from kernbench.ptx.emulator.checks.asynchronous.descriptors import DescriptorChecks
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.asynchronous.meetings import Meetings, Met
from kernbench.ptx.emulator.checks.findings.reporter import some_threads, thread_name
from kernbench.ptx.emulator.lanes.arrays import Int32s, Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.shadow import Ranges, Together
from kernbench.ptx.emulator.memory.tiles import (
    Operand,
    Tiles,
    are_equal,
    ranges_of,
    rows_of,
    tiles_of,
    unwritten_pieces,
)
from kernbench.ptx.emulator.observer.definedness import LostLines
from kernbench.ptx.emulator.observer.origins import CONTESTED, Origin
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch
from kernbench.ptx.numerics.matrix.descriptors import PIECE, wgmma_descriptor


class _Operations(NamedTuple):
    """Operations that warps issue.

    `first` is the index of each operation's first warp, `group` the operation of each warp; for each operation its CTA,
    the lane that represents it, and its actor.
    """

    first: Array
    group: Array
    ctas: Array
    lanes: Array
    columns: Array


class _Read(NamedTuple):
    """What operations read from shared memory: tiles of A and of B, and their ranges.

    `alike` says that all warps have equal descriptors.
    """

    parts: list[tuple[str, list[Tiles], Ranges]]
    alike: bool


# maximal number of cached sets of warps
_MOST_CREWS = 1 << 10
# ranges are cached for at most this many operations: beyond, they are large
_FEW = 8


def _tiles_read(a: bytes, b: bytes, operands: tuple[Operand, Operand], first: bytes, ctas: bytes, size: int) -> _Read:
    """What operations of warps read through descriptors from shared memory, of which each CTA has `size` bytes.

    The `first` warp of each operation counts. Without descriptors of A, A is in registers.
    """
    parts, alike = [], True
    chosen, homes = (np.frombuffer(given, np.int64).copy() for given in (first, ctas))
    for which, given, operand in zip("AB", (a, b), operands, strict=True):
        if given:
            descriptors = np.frombuffer(given, np.uint64).copy()
            tiles = tiles_of(descriptors[chosen], operand, wgmma_descriptor)
            parts.append((which, tiles, Ranges(*ranges_of(homes, tiles, size))))
            alike &= bool(are_equal(descriptors.view(np.int64)))
    return _Read(parts, alike)


_kept_tiles = lru_cache(1 << 10)(_tiles_read)


@kernel
def _join(known: Int32s, group: Int64s, joined: Int32s) -> None:
    """Join the vector clocks of warps for each of their groups."""
    for i in range(group.size):
        for column in range(joined.shape[1]):
            joined[group[i], column] = max(joined[group[i], column], known[i, column])


def _knowledge(met: Met, operations: _Operations) -> Together:
    """What operations know: all that their warps do."""
    joined: Array = np.zeros((len(operations.first), met.known.shape[1]), np.int32)
    _join(met.known, operations.group, joined)
    return Together(met.event.warps[met.now] * WARP, operations.group[met.now], joined)


class WarpgroupChecks(WarpgroupObserver):
    """The checks of one batch's wgmma operations."""

    def __init__(self, batch: Batch, checks: BatchFindings):
        self._batch, self._checks = batch, checks
        self._reporter = checks.reporter
        self._descriptors = DescriptorChecks(batch, checks)
        # by the warps: the first of the operations that the same warps issue one after the other
        self._last: dict[int, tuple[Issued, _Operations]] = {}
        self._meetings = Meetings(batch, checks.clocks)

    def issued(self, event: Issued, crew: Crew) -> None:
        """Warps issued an operation: it begins when all of its warpgroup have."""
        for met in self._meetings.come(event, crew):
            self._begin(met)

    def _begin(self, met: Met) -> None:
        """The warps of operations have met."""
        event = met.event
        operations, form = self._operations(event, self._batch.warpgroups.crew(event.warps).leaders), event.form
        ctas, lanes = operations.ctas, operations.lanes
        shadow, clocks = self._checks.asynchronous.shadow, event.groups[operations.first] + 1
        a, b = b"" if event.a is None else event.a.tobytes(), event.b.tobytes()
        of = _kept_tiles if len(ctas) <= _FEW else _tiles_read
        operands = form.a_operand, form.b_operand
        read = of(a, b, operands, operations.first.tobytes(), ctas.tobytes(), self._batch.shared_stride)
        if not read.alike:
            self._differ(event, operations.first, operations.group)
        begun = shadow.begun(lanes, operations.columns, clocks, form.site, together=_knowledge(met, operations))
        caught = form.site.number in self._batch.program.caught
        follows = partial(self._follows, event, operations) if caught else None
        for which, tiles, ranges in read.parts:
            self._descriptors.check(which, tiles, ctas, lanes, form.site, follows)
            shadow.access("shared", False, ranges, begun)

    def _follows(self, event: Issued, operations: _Operations, which: str, one: Tiles, name: str) -> bool:
        """Track the elements of a tile that nobody wrote; not words that threads contest, which are a race."""
        definedness, form = self._checks.definedness, event.form
        lost, offsets = unwritten_pieces(self._batch, operations.ctas, one)
        positions, pieces, bytes_ = np.nonzero(lost.reshape(len(lost), -1, PIECE))
        where = offsets.reshape(len(lost), -1)[positions, pieces] + bytes_
        stored = where[:1] if not definedness.contested else where[np.unique(where // 4, return_index=True)[1]]
        origins = [definedness.stored_at("shared", offset) for offset in stored.tolist()]
        if any(origin is not None and origin.kind == CONTESTED for origin in origins):
            return False
        operand = form.a_operand if which == "A" else form.b_operand
        index = np.full(len(operations.first), -1)
        index[one.positions] = np.arange(len(one.positions))
        mine = index[operations.group]
        warps, lines = event.warps[mine >= 0], rows_of(lost, operand)[mine[mine >= 0]]
        if which == "A":
            # each warp of a warpgroup computes sixteen rows
            part = warps // self._batch.ctas % WARPS
            lines = lines.reshape(len(lines), WARPS, -1)[np.arange(len(lines)), part]
        definedness.meet_lines(LostLines(warps, which, lines, origins[0] or Origin(form.site, "shared", name)))
        return True

    def _operations(self, event: Issued, leaders: Array) -> "_Operations":
        """The operations of warpgroups.

        Warps of one warpgroup may be in different iterations of a loop. If the same warps issue several operations in a
        row, the result is reused.
        """
        warps = event.warps
        last = self._last.get(id(warps))
        if last is not None and last[0].warps is warps:
            before = last[0]
            if (event.level and before.level) or are_equal(event.ordinals - before.ordinals):
                return last[1]
        if len(self._last) >= _MOST_CREWS:
            self._last.clear()
        found = self._grouped(event, leaders)
        self._last[id(warps)] = event, found
        return found

    def _grouped(self, event: Issued, leaders: Array) -> "_Operations":
        keys = leaders * (1 << 32) + event.ordinals
        first = np.unique(keys, return_index=True)[1]
        group = np.searchsorted(keys[first], keys)
        warps = event.warps[first]
        ctas, columns = warps % self._batch.ctas, self._columns(leaders[first])
        return _Operations(first, group, ctas, warps * WARP, columns)

    def _columns(self, leaders: Array) -> Array:
        """The actors of warpgroups."""
        actors = self._batch.launch.actors
        columns: Array = actors.wgmma(0) + leaders // self._batch.ctas
        return columns

    def _differ(self, event: Issued, first: Array, group: Array) -> None:
        """Report warps of a warpgroup that have different descriptors for the same operation."""
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
        """Warps access a register that an operation of theirs in flight owns."""
        who = thread_name(self._batch, int(warps[0]) * WARP)
        part = "reads as A" if as_operand else "writes as part of D"
        message = f"{who} {verb} {name}, which line {owner.line} {part} and nobody has waited for"
        others = self._reporter.other("the operation in flight", owner)
        hint = "run wgmma.commit_group and wgmma.wait_group before its registers are touched"
        about = self._reporter.location(owner)
        self._reporter.add("in-flight", site, message, hint, len(warps), others, about=about, register=name)

    def unfenced(self, lanes: Array, name: str, site: Site) -> None:
        """Lanes have accessed a register that an operation uses, without a fence in between."""
        message = f"this uses {name}, and no wgmma.fence came after {some_threads(self._batch, lanes)} touched it last"
        hint = "put wgmma.fence.sync.aligned before the first wgmma.mma_async, and after accesses to its registers"
        self._reporter.add("in-flight", site, message, hint, len(lanes), about="fence")
