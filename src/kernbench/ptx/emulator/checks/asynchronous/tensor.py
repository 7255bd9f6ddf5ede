"""Checks of tcgen05: allocations, instruction descriptors, and the lanes and columns that are touched."""

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.observer import Committed, TensorObserver
from kernbench.ptx.emulator.asynchronous.matrix.tensor_core import CopyForm, Products
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.emulator.asynchronous.matrix.tensor_unit import Access
from kernbench.ptx.emulator.checks.asynchronous.descriptors import DescriptorChecks
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.asynchronous.tensor_cells import (
    COPY,
    FREE,
    LOAD,
    MULTIPLY,
    STORE,
    Region,
    groups_of,
)
from kernbench.ptx.emulator.checks.asynchronous.tensor_entries import sort_moves
from kernbench.ptx.emulator.checks.asynchronous.tensor_order import TENSOR, TensorOrder
from kernbench.ptx.emulator.checks.findings.reporter import block_name, thread_name
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.memory.tiles import Tiles, ranges_of
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch
from kernbench.ptx.numerics.matrix.instruction import Part

_COLUMNS = 512


class TensorChecks(TensorObserver):
    """The checks of one batch's tensor memory."""

    def __init__(self, batch: Batch, checks: BatchFindings, memory: TensorMemory):
        self._batch, self._checks = batch, checks
        self._memory = memory
        self._reporter = checks.reporter
        self._descriptors = DescriptorChecks(batch, checks)
        self.order = self._order = TensorOrder(batch, checks)

    def allocates(self, warp: int, columns: int, site: Site) -> bool:
        """A warp asks for columns; whether that is a legal request."""
        who = thread_name(self._batch, warp * WARP)
        if self._memory.relinquished[warp % self._batch.ctas]:
            message = f"the warp of {who} allocates after its block gave up the right to by relinquish_alloc_permit"
            self._report(site, message, "allocate everything before tcgen05.relinquish_alloc_permit", "relinquished")
        legal = 32 <= columns <= _COLUMNS and columns & (columns - 1) == 0
        if not legal:
            message = f"the warp of {who} asks for {columns} columns; they come in powers of two from 32 to 512"
            self._report(site, message, "round the number of columns up to a power of two, 32 at least", "columns")
        return legal

    def frees(self, warp: int, address: int, columns: int, site: Site) -> None:
        """A warp gives columns back."""
        cta, first = warp % self._batch.ctas, address & 0xFFFF
        who = thread_name(self._batch, warp * WARP)
        found = self._memory.allocations[cta].get(int(self._memory.owner[cta, first % _COLUMNS]))
        if found is None:
            message = f"the warp of {who} frees columns {first} to {first + columns}, which are not allocated"
            self._report(site, message, "free each allocation once, with the address that alloc gave", "double")
        elif found[:2] != (first, columns):
            message = (
                f"the warp of {who} frees {columns} columns from {first} on; line {found[2].line} allocated {found[1]} "
                f"from {found[0]} on"
            )
            self._report(site, message, "free with the address and the number of columns of the allocation", "other")
        else:
            self._order.enter(np.array([warp]), _all(first, columns), True, FREE, site)

    def _report(self, site: Site, message: str, hint: str, about: object, count: int = 1) -> None:
        self._reporter.add("tensor-memory", site, message, hint, count, about=about)

    def multiplies(self, operations: Products, lanes: Array) -> None:
        """Lanes begin products."""
        site = operations.form.site
        self._order.begin(lanes, site, operations.form.pair)
        for group, chosen in _groups(operations, lanes):
            idesc = group.described
            if idesc.problem:
                who = thread_name(self._batch, int(chosen[0]))
                hint = "compare it with the ISA's table of the instruction descriptor"
                message = (
                    f"the instruction descriptor {int(group.instruction[0]):#010x} that {who} gives: {idesc.problem}"
                )
                self._reporter.add("descriptor", site, message, hint, about="instruction")
                continue
            self._shared(group, chosen, site)
            self._tensor(group, chosen, site)

    def _shared(self, group: Products, lanes: Array, site: Site) -> None:
        """The tiles in shared memory; of two CTAs those of the one that began it."""
        homes, reads = group.homes, self._reader(lanes, site)
        everywhere = lanes if homes.shape[1] == 1 else np.repeat(lanes, homes.shape[1])
        for which in ("A", "B"):
            if which == "A" and group.form.from_tensor:
                continue
            tiles = group.tiles(which.lower())
            self._descriptors.check(which, tiles, homes.reshape(-1), everywhere, site)
            reads(_side(tiles, group, True), group.ctas)
            if group.form.pair:
                self._peer_reads(_side(tiles, group, False), group.ctas, lanes, site)

    def _reader(self, lanes: Array, site: Site) -> Callable[[list[Tiles], Array], None]:
        """What enters that operations of lanes read tiles in shared memory of CTAs."""
        warps, shadow = lanes // WARP, self._checks.asynchronous.shadow
        columns = self._order.first + warps // self._batch.ctas
        begun = shadow.begun(lanes, columns, self._order.begun[TENSOR, warps], site)
        size = self._batch.shared_stride
        return lambda tiles, ctas: shadow.access("shared", False, Ranges(*ranges_of(ctas, tiles, size)), begun)

    def _peer_reads(self, tiles: list[Tiles], ctas: Array, lanes: Array, site: Site) -> None:
        """Tiles in the peers' shared memory: read in the name of the same warp there."""
        mirror = self._order.mirror(lanes // WARP)
        ranges = Ranges(*ranges_of(mirror % self._batch.ctas, tiles, self._batch.shared_stride))
        columns, homes = self._order.first + mirror // self._batch.ctas, mirror % self._batch.ctas
        shadow = self._checks.asynchronous.shadow
        clocks = self._order.begun[TENSOR, mirror]
        shadow.enter("shared", False, ranges, lanes, columns, clocks, site, homes=homes)

    def _tensor(self, group: Products, lanes: Array, site: Site) -> None:
        idesc, warps = group.described, lanes // WARP
        column, lane = int(group.d[0]) & 0xFFFF, int(group.d[0]) >> 16
        self._aligned(lane, group, lanes, site)
        filled = bool(group.adds[0]) and group.lanes is None
        regions = _regions(group.parts(), column, 0, filled)
        for region in self._left_over(regions, warps, True, site) if not group.form.pair else regions[0]:
            if self._allocated(warps, region, "D", site):
                if filled:
                    self._order.filled(warps, region, "the accumulator", site)
                self._order.enter(warps, region, True, MULTIPLY, site)
                if group.form.pair:
                    self._order.enter_peers(warps, region, True, MULTIPLY, site)
        if group.form.from_tensor:
            width = idesc.k * {"f16": 16, "bf16": 16, "tf32": 32, "b4": 4}.get(idesc.kinds[1], 8) // 32
            left = _regions(group.parts(), int(group.a[0]) & 0xFFFF, width, False)
            for region in self._left_over(left, warps, False, site):
                if self._allocated(warps, region, "A", site):
                    self._order.enter(warps, region, False, MULTIPLY, site)

    def _left_over(
        self, regions: tuple[list[Region], Array], warps: Array, writes: bool, site: Site
    ) -> Iterator[Region]:
        """Products of warps access regions, one after the other: those with which something may be wrong."""
        start, (each, rows) = 0, regions
        while True:
            start = self._order.enter_regions(start, rows, warps, self._memory.owner, writes, MULTIPLY, site)
            if start == len(each):
                return
            yield each[start]
            start += 1

    def _aligned(self, lane: int, group: Products, lanes: Array, site: Site) -> None:
        """Lane 0 of the address; 16 as well where half of the lanes are used, for both D and A."""
        half = group.described.m == 64 and not group.form.stationary
        other = group.form.from_tensor and not group.form.stationary and int(group.a[0]) >> 16 != lane
        if not lane and not other:
            return
        who = thread_name(self._batch, int(lanes[0]))
        if lane and not (half and lane == 16):
            message = f"the address of D that {who} gives has lane {lane}; with M = {group.described.m} it is 0"
            self._report(site, message + (" or 16" if half else ""), "D begins at the lane of the allocation", "lane")
        elif other:
            message = f"the address of A that {who} gives has lane {int(group.a[0]) >> 16}, that of D lane {lane}"
            self._report(site, message, "A and D lie in the same lanes: store A to the half that D has", "lane of A")

    def _allocated(self, warps: Array, region: Region, what: str, site: Site) -> bool:
        """Whether all columns belong to one allocation."""
        ctas = warps % self._batch.ctas
        last = min(region.last, _COLUMNS)
        owners = self._memory.owner[ctas, min(region.first, _COLUMNS - 1) : last]
        bad = (region.last > _COLUMNS) | (owners == 0).any(axis=1) | (owners != owners[:, :1]).any(axis=1)
        if not bad.any():
            return True
        warp = int(warps[int(np.argmax(bad))])
        held = self._memory.allocations[warp % self._batch.ctas].values()
        here = ", ".join(f"{first} to {first + count}" for first, count, _ in held) or "none"
        message = (
            f"{what} of {thread_name(self._batch, warp * WARP)} reaches columns {region.first} to {region.last} of "
            f"tensor memory; allocated: {here}"
        )
        self._report(site, message, "stay inside one allocation; add column offsets to the address alloc gave", what)
        return False

    def copies(self, form: CopyForm, ctas: Array, lanes: Array, addresses: Array, descriptors: Array) -> None:
        """Lanes begin copies from shared memory."""
        pair = ctas.shape[1] == 2
        self._order.begin(lanes, form.site, pair)
        tiles = form.tiles(descriptors)
        own = (lanes // WARP) % self._batch.ctas
        self._descriptors.check("the source", tiles, own, lanes, form.site)
        self._reader(lanes, form.site)(tiles, own)
        if pair:
            self._peer_reads(tiles, own, lanes, form.site)
        for address in np.unique(addresses).tolist():
            warps = lanes[addresses == address] // WARP
            first = address & 0xFFFF
            for part, _ in form.lanes(address >> 16 & 127):
                region = Region(part, first, first + form.nbytes // 4)
                if self._allocated(warps, region, "the target", form.site):
                    self._order.enter(warps, region, True, COPY, form.site)
                    if pair:
                        self._order.enter_peers(warps, region, True, COPY, form.site)

    def shifts(self, ctas: Array, lanes: Array, addresses: Array, site: Site) -> None:
        """Lanes begin shifts."""
        self._order.begin(lanes, site)
        for address in np.unique(addresses).tolist():
            warps = lanes[addresses == address] // WARP
            region = _all(address & 0xFFFF, 8)
            if address >> 16 & 31:
                message = f"the address of {thread_name(self._batch, int(lanes[0]))} has lane {address >> 16}"
                self._report(site, message, "the lane of a shift is a multiple of 32", "lane")
            if self._allocated(warps, region, "the matrix", site):
                self._order.enter(warps, region, True, COPY, site)

    def loads(self, access: Access, warps: Array, addresses: Array) -> None:
        """Warps load from tensor memory."""
        self._moves(access, warps, addresses, False)

    def stores(self, access: Access, warps: Array, addresses: Array) -> None:
        """Warps store to tensor memory."""
        self._moves(access, warps, addresses, True)

    def _moves(self, access: Access, warps: Array, addresses: Array, writes: bool) -> None:
        self._order.move(warps, writes, access.site)
        order = np.empty((2, len(warps)), np.int64)
        if not sort_moves(warps, addresses, self._batch.ctas, access.lanes, order):
            lanes = addresses >> 16
            wrong = (lanes // 32 != warps // self._batch.ctas % 4) | (lanes % 32 + access.lanes > 32)
            self._foreign(access, int(warps[np.argmax(wrong)]), int(lanes[np.argmax(wrong)]), int(wrong.sum()))
            warps, addresses = warps[~wrong], addresses[~wrong]
            sort_moves(warps, addresses, self._batch.ctas, access.lanes, order)
        start, owner, what = 0, self._memory.owner, (access.spans, access.lanes)
        while True:
            start = self._order.enter_moves(start, order, *what, warps, owner, writes, access.site)
            if start == len(warps):
                return
            keys, positions = order[:, start : len(warps)]
            same = positions[keys == keys[0]]
            self._move(access, warps[same], int(keys[0]), writes)
            start += len(same)

    def _move(self, access: Access, warps: Array, key: int, writes: bool) -> None:
        """Loads or stores of warps of a quarter that give the same address; `key` has both."""
        part = Part((key >> 32, (key >> 32) + 1), (key >> 16 & 31, (key >> 16 & 31) + access.lanes), (0, 0))
        for first, last in access.spans.tolist():
            region = Region(part, (key & 0xFFFF) + first, (key & 0xFFFF) + last)
            if not self._allocated(warps, region, "the access", access.site):
                continue
            if not writes:
                self._order.loaded(warps, region)
            self._order.enter(warps, region, writes, STORE if writes else LOAD, access.site)

    def _foreign(self, access: Access, warp: int, lane: int, count: int) -> None:
        inside = warp // self._batch.ctas
        allowed = 32 * (inside % 4)
        message = (
            f"warp {inside} of {block_name(self._batch, warp % self._batch.ctas)} touches lanes {lane} to "
            f"{lane + access.lanes - 1} of tensor memory; it may touch {allowed} to {allowed + 31} only"
        )
        hint = "put lane 32 * (w % 4) of warp w into the upper half of the address"
        self._report(access.site, message, hint, "lanes", count)

    def commits(self, lanes: Array) -> Committed:
        """Lanes commit what they began; what is given back is called when that arrives on mbarriers."""
        commit = self._order.commits(lanes)
        return lambda slots, owners: self._order.committed(slots, owners, commit)

    def waited(self, warps: Array, loads: bool) -> None:
        """Warps have waited for their loads or stores."""
        self._order.waited(warps, loads)

    def used(self, load: int, warps: Array) -> None:
        """Warps use registers of the load at a site."""
        self._order.used(load, warps)

    def fenced(self, warps: Array, before: bool) -> None:
        """Warps pass fence::before_thread_sync or fence::after_thread_sync."""
        self._order.fenced(warps, before)

    def ended(self) -> None:
        """All threads have ended: no tensor memory may be left, and no operation without a commit."""
        for cta, allocations in enumerate(self._memory.allocations):
            for first, columns, site in allocations.values():
                message = f"{block_name(self._batch, cta)} ends without freeing columns {first} to {first + columns}"
                self._report(
                    site, message, "run tcgen05.dealloc with the same number of columns before the block ends", "leak"
                )
        for lane, site in self._order.uncommitted():
            message = (
                f"{thread_name(self._batch, lane)} ends after operations that no tcgen05.commit follows: nothing can "
                "signal when they are done"
            )
            hint = "commit to an mbarrier after the last operation, and wait for it before the results are used"
            self._reporter.add("in-flight", site, message, hint, about="commit")


def _all(first: int, columns: int) -> Region:
    return Region(Part((0, 4), (0, 32), (0, 0)), first, first + columns)


@lru_cache(1 << 10)
def _regions(parts: tuple[Part, ...], column: int, width: int, filled: bool) -> tuple[list[Region], Array]:
    """The columns of parts from one on, their own or `width`, as regions and as rows for compiled loops."""
    lengths = [width or part.columns[1] - part.columns[0] for part in parts]
    regions = [Region(part, column, column + length) for part, length in zip(parts, lengths, strict=True)]
    rows = [[groups_of(one.part), one.first, one.last, filled] for one in regions]
    return regions, np.array(rows, np.int64)


def _groups(operations: Products, lanes: Array) -> list[tuple[Products, Array]]:
    """Operations that are alike, with their lanes."""
    groups = operations.alike()
    if len(groups) == 1:
        return [(groups[0], lanes)]
    lane_of = {int(cta): lane for cta, lane in zip(operations.ctas, lanes, strict=True)}
    return [(group, np.array([lane_of[int(cta)] for cta in group.ctas])) for group in groups]


def _side(tiles: list[Tiles], group: Products, own: bool) -> list[Tiles]:
    """The tiles of the CTAs that began the operations, or of their peers."""
    width = group.homes.shape[1]
    if width == 1:
        return tiles
    found = []
    for one in tiles:
        operation, side = one.positions // width, one.positions % width
        mine = (group.homes[operation, side] == group.ctas[operation]) == own
        if mine.any():
            found.append(Tiles(operation[mine], one.descriptor, one.base, one.map))
    return found
