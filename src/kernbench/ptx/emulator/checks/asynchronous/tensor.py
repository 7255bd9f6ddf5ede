"""Checks of tcgen05: allocations, instruction descriptors, and accesses to lanes and columns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.observer import Committed, TensorObserver
from kernbench.ptx.emulator.asynchronous.matrix.tensor_core import CopyForm, Form, Products
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.emulator.asynchronous.matrix.tensor_unit import SIZES, Access
from kernbench.ptx.emulator.checks.asynchronous.descriptors import DescriptorChecks, samples_of, swizzle_of
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
from kernbench.ptx.emulator.checks.asynchronous.tensor_entries import sort_moves, survey_products
from kernbench.ptx.emulator.checks.asynchronous.tensor_order import TENSOR, TensorOrder
from kernbench.ptx.emulator.checks.findings.reporter import block_name, thread_name
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.cells import SITE_SHIFT
from kernbench.ptx.emulator.memory.shadow import Begun, Ranges
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
        # the first column of single lanes in a vector clock
        self._first_lane: int = batch.launch.actors.lane(0)

    def allocates(self, warp: int, columns: int, site: Site) -> bool:
        """A warp allocates columns; returns whether the request is legal."""
        who = thread_name(self._batch, warp * WARP)
        if self._memory.relinquished[warp % self._batch.ctas]:
            message = f"the warp of {who} allocates after its block gave up the right to by relinquish_alloc_permit"
            self._report(site, message, "allocate everything before tcgen05.relinquish_alloc_permit", "relinquished")
        legal = columns in SIZES
        if not legal:
            message = f"the warp of {who} asks for {columns} columns; they come in powers of two from 32 to 512"
            self._report(site, message, "round the number of columns up to a power of two, 32 at least", "columns")
        return legal

    def frees(self, warp: int, address: int, columns: int, site: Site) -> None:
        """A warp frees columns."""
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
        if self._batch.launch.fast.equal_products and self._are_plain(operations, lanes, site):
            return
        for positions, group in operations.alike():
            chosen, idesc = lanes[positions], group.described
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

    def _are_plain(self, operations: Products, lanes: Array, site: Site) -> bool:
        """Fast path: if products and their tiles have no fault, enter their accesses and return True."""
        if not operations.equal or operations.form.pair or self._checks.log is not None:
            return False
        plan = _plan(operations.form, operations.first, operations.lanes is None)
        if plan is None or plan.end > self._batch.launch.shared_bytes:
            return False
        begun, reads = self._survey(plan, lanes, site)
        if begun is None:
            return False
        for starts, lengths, owners in reads:
            self._checks.asynchronous.shadow.access("shared", False, Ranges(starts, lengths, owners), begun)
        for which, tile, _, _ in plan.tiles:
            self._descriptors.seen(which, tile, site)
        warps = begun.found[0]
        self._enter_target(plan.target, plan.adds, warps, False, site)
        for what, regions in plan.sources:
            self._enter_source(what, regions, warps, False, site)
        return True

    def _survey(self, plan: "_Plan", lanes: Array, site: Site) -> tuple[Begun | None, list[Array]]:
        """What products of lanes know, and the ranges they read; None if something may be wrong."""
        clocks, count, order, swizzles = (
            self._checks.clocks,
            len(lanes),
            self._order,
            self._checks.asynchronous.swizzles,
        )
        tiles, reads = [_NO_TILE], [_NO_RANGES]
        for which, tile, swizzle, given in plan.tiles:
            number = swizzles.number(swizzle) if self._descriptors.looks(which, tile, site) else -1
            tiles.append((tile.base, tile.filled, number, *given))
            reads.append(np.empty((3, count * len(given[0])), np.int64))
        knowledge, found = np.empty((count, clocks.columns), np.int32), np.empty((8, count), np.int64)
        fine = survey_products(
            lanes,
            (self._checks.sites.number(site) << SITE_SHIFT, order.first, order.begun, _NO_RUNS),
            (clocks.clocks, clocks.met_column, *clocks.near.by_lane, clocks.first_numbers, self._first_lane),
            (self._batch.port.space("shared").state[1], self._batch.shared_stride, *swizzles.marks),
            tiles[-2],
            tiles[-1],
            knowledge,
            found,
            reads[-2],
            reads[-1],
        )
        return Begun(lanes, found[4], found[5], site, None, knowledge, found[:4]) if fine else None, reads[1:]

    def _shared(self, group: Products, lanes: Array, site: Site) -> None:
        """Check and enter tiles in shared memory; for a CTA pair, by the CTA that began the product."""
        homes, reads = group.homes, self._reader(lanes, site)
        everywhere = lanes if homes.shape[1] == 1 else np.repeat(lanes, homes.shape[1])
        for which in ("A", "B"):
            if which == "A" and group.form.from_tensor:
                continue
            tiles = group.tiles(which.lower())
            self._descriptors.check(which, tiles, homes.reshape(-1), everywhere, site)
            reads(_side(tiles, group, True), group.ctas)
            if group.form.pair:
                self._peer_reads(_side(tiles, group, False), lanes, site)

    def _reader(self, lanes: Array, site: Site) -> Callable[[list[Tiles], Array], None]:
        """A function that enters reads of tiles in shared memory of CTAs, by operations of lanes."""
        warps, shadow = lanes // WARP, self._checks.asynchronous.shadow
        columns = self._order.first + warps // self._batch.ctas
        begun = shadow.begun(lanes, columns, self._order.begun[TENSOR, warps], site)
        size = self._batch.shared_stride
        return lambda tiles, ctas: shadow.access("shared", False, Ranges(*ranges_of(ctas, tiles, size)), begun)

    def _peer_reads(self, tiles: list[Tiles], lanes: Array, site: Site) -> None:
        """Enter reads of tiles in the peers' shared memory, as actors of the same warps there."""
        mirror = self._order.mirror(lanes // WARP)
        ranges = Ranges(*ranges_of(mirror % self._batch.ctas, tiles, self._batch.shared_stride))
        columns, homes = self._order.first + mirror // self._batch.ctas, mirror % self._batch.ctas
        shadow = self._checks.asynchronous.shadow
        clocks = self._order.begun[TENSOR, mirror]
        shadow.enter("shared", False, ranges, lanes, columns, clocks, site, homes=homes)

    def _tensor(self, group: Products, lanes: Array, site: Site) -> None:
        warps = lanes // WARP
        self._aligned(int(group.d[0]) >> 16, group, lanes, site)
        filled = bool(group.adds[0]) and group.lanes is None
        self._enter_target(_target(group, filled), filled, warps, group.form.pair, site)
        for what, regions in _sources(group):
            self._enter_source(what, regions, warps, group.form.pair, site)

    def _enter_target(self, regions: "_Regions", filled: bool, warps: Array, pair: bool, site: Site) -> None:
        """Products of warps write D, and read it first if it must be `filled`."""
        for region in self._left_over(regions, warps, True, site) if not pair else regions[0]:
            if self._allocated(warps, region, "D", site):
                if filled:
                    self._order.filled(warps, region, "the accumulator", site)
                self._order.enter(warps, region, True, MULTIPLY, site)
                if pair:
                    self._order.enter_peers(warps, region, True, MULTIPLY, site)

    def _enter_source(self, what: str, regions: "_Regions", warps: Array, pair: bool, site: Site) -> None:
        """Products of warps read A or scales in tensor memory."""
        for region in self._left_over(regions, warps, False, site) if not pair else regions[0]:
            if self._allocated(warps, region, what, site):
                self._order.filled(warps, region, what, site)
                self._order.enter(warps, region, False, MULTIPLY, site)
                if pair:
                    self._order.enter_peers(warps, region, False, MULTIPLY, site)

    def _left_over(self, regions: "_Regions", warps: Array, writes: bool, site: Site) -> Iterator[Region]:
        """Products of warps access regions in order; yields those with a possible fault."""
        start, (each, rows) = 0, regions
        while True:
            start = self._order.enter_regions(start, rows, warps, self._memory.owner, writes, MULTIPLY, site)
            if start == len(each):
                return
            yield each[start]
            start += 1

    def _aligned(self, lane: int, group: Products, lanes: Array, site: Site) -> None:
        """The address has lane 0, or 16 if half of the lanes are used, the same for D and A."""
        half = group.described.m == 64 and not group.form.stationary
        other = _has_other_lanes(group)
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
        """Whether all columns belong to one allocation; reports if not."""
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
            self._peer_reads(tiles, lanes, form.site)
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
        pair = ctas.shape[1] == 2
        self._order.begin(lanes, site, pair)
        for address in np.unique(addresses).tolist():
            warps, quarter, first = lanes[addresses == address] // WARP, address >> 21 & 3, address & 0xFFFF
            region = Region(Part((quarter, quarter + 1), (0, WARP), (0, 0)), first, first + 8)
            if address >> 16 & 31:
                message = f"the address of {thread_name(self._batch, int(lanes[0]))} has lane {address >> 16}"
                self._report(site, message, "the lane of a shift is a multiple of 32", "lane")
            if self._allocated(warps, region, "the matrix", site):
                self._order.enter(warps, region, True, COPY, site)
                if pair:
                    self._order.enter_peers(warps, region, True, COPY, site)

    def loads(self, access: Access, warps: Array, addresses: Array) -> None:
        """Warps load from tensor memory."""
        self._moves(access, warps, addresses, False)

    def stores(self, access: Access, warps: Array, addresses: Array) -> None:
        """Warps store to tensor memory."""
        self._moves(access, warps, addresses, True)

    def _moves(self, access: Access, warps: Array, addresses: Array, writes: bool) -> None:
        owner, what = self._memory.owner, (access.spans, access.lanes)
        start, order = self._order.begin_moves(warps, addresses, *what, owner, writes, access.site)
        if start == len(warps):
            return
        if start < 0:
            lanes = addresses >> 16
            wrong = (lanes // 32 != warps // self._batch.ctas % 4) | (lanes % 32 + access.lanes > 32)
            self._foreign(access, int(warps[np.argmax(wrong)]), int(lanes[np.argmax(wrong)]), int(wrong.sum()))
            warps, addresses = warps[~wrong], addresses[~wrong]
            sort_moves(warps, addresses, self._batch.ctas, access.lanes, order)
            start = 0
        while True:
            start = self._order.enter_moves(start, order, *what, warps, owner, writes, access.site)
            if start == len(warps):
                return
            keys, positions = order[:, start : len(warps)]
            same = positions[keys == keys[0]]
            self._move(access, warps[same], int(keys[0]), writes)
            start += len(same)

    def _move(self, access: Access, warps: Array, key: int, writes: bool) -> None:
        """Loads or stores by warps of one quarter with the same address; `key` has both."""
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
        """Lanes commit; returns a function to call when the commit arrives on mbarriers."""
        commit = self._order.commits(lanes)
        return lambda slots, owners: self._order.committed(slots, owners, commit)

    def waited(self, warps: Array, loads: bool) -> None:
        """Warps have waited for their loads or stores."""
        self._order.waited(warps, loads)

    def used(self, load: int, warps: Array) -> None:
        """Warps use registers written by the load at a site."""
        self._order.used(load, warps)

    def fenced(self, warps: Array, before: bool) -> None:
        """Warps pass fence::before_thread_sync or fence::after_thread_sync."""
        self._order.fenced(warps, before)

    def ended(self) -> None:
        """All threads have exited: no tensor memory may be left, and no operation without a commit."""
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


_Regions = tuple[list[Region], Array]
_NO_RANGES: Array = np.empty((3, 0), np.int64)
_NO_RUNS: Array = np.empty(0, np.int64)
_NO_TILE = (0, 0, -1, _NO_RUNS, _NO_RUNS, _NO_RUNS)


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Decoded operands without faults.

    - `tiles`: tiles in shared memory: the operand, the tile, the expected swizzle, and runs and samples for compiled
      loops.
    - `end`: the last byte + 1 of the tiles.
    - `target`, `adds`: regions of D, and whether D is read.
    - `sources`: regions of A and scales in tensor memory.
    """

    tiles: list[tuple[str, Tiles, str, tuple[Array, Array, Array]]]
    end: int
    target: _Regions
    adds: bool
    sources: list[tuple[str, _Regions]]


@lru_cache(1 << 10)
def _plan(form: Form, operands: tuple[int, ...], whole: bool) -> _Plan | None:
    """Decode operands that are the same for all operations, None if they need a check; `whole`.

    No lanes of D are disabled.
    """
    one = Products(form, np.zeros(1, np.int64), np.array(operands, np.uint64)[:, None])
    if one.described.problem or operands[0] >> 16 or _has_other_lanes(one):
        return None
    tiles = []
    for which in ("A", "B"):
        if which == "B" or not form.from_tensor:
            tile = one.tiles(which.lower())[0]
            if tile.descriptor.problem or tile.descriptor.lapse:
                return None
            runs = (tile.map.firsts, tile.map.spans, samples_of(tile.map))
            tiles.append((which, tile, swizzle_of(tile.descriptor), runs))
    adds = whole and bool(one.adds[0])
    return _Plan(
        tiles,
        max(tile.base + tile.map.last for _, tile, _, _ in tiles),
        _target(one, adds),
        adds,
        _sources(one),
    )


def _target(group: Products, filled: bool) -> _Regions:
    """The regions of D; `filled` if it must be written before."""
    return _regions(group.parts(), int(group.d[0]) & 0xFFFF, 0, filled)


def _sources(group: Products) -> list[tuple[str, _Regions]]:
    """The regions of tensor memory that products read: A and scales."""
    found, idesc, parts = [], group.described, group.parts()
    if group.form.from_tensor:
        width = idesc.k * {"f16": 16, "bf16": 16, "tf32": 32, "b4": 4}.get(idesc.kinds[1], 8) // 32
        found.append(("A", _regions(parts, int(group.a[0]) & 0xFFFF, width, True)))
    if group.scales is not None:
        rows, scales = (idesc.m // group.homes.shape[1], idesc.n // len(parts)), idesc.k // group.form.block
        for name, addresses, many, byte in zip("AB", group.scales, rows, idesc.scale_bytes, strict=True):
            found.append((f"the scales of {name}", _scaled(int(addresses[0]) & 0xFFFF, many, -(-(byte + scales) // 4))))
    return found


@lru_cache(1 << 10)
def _scaled(column: int, rows: int, words: int) -> _Regions:
    """The regions of scales: row r is in lane r % 32 of every quarter and column r / 32, in one or more words."""
    whole, rest = divmod(rows, WARP)
    regions = []
    for first in range(column, column + words * 4 * -(-rows // 128), 4 * -(-rows // 128)):
        if whole:
            regions.append(_all(first, whole))
        if rest:
            regions.append(Region(Part((0, 4), (0, rest), (0, 0)), first + whole, first + whole + 1))
    return _rows(regions, True)


def _has_other_lanes(group: Products) -> bool:
    """Whether A is in other lanes of tensor memory than D."""
    return group.form.from_tensor and not group.form.stationary and int(group.a[0]) >> 16 != int(group.d[0]) >> 16


@lru_cache(1 << 10)
def _regions(parts: tuple[Part, ...], column: int, width: int, filled: bool) -> _Regions:
    """Columns of parts from `column` on, their own number or `width`, as regions and as rows for compiled loops."""
    lengths = [width or part.columns[1] - part.columns[0] for part in parts]
    regions = [Region(part, column, column + length) for part, length in zip(parts, lengths, strict=True)]
    return _rows(regions, filled)


def _rows(regions: list[Region], filled: bool) -> _Regions:
    rows = [[groups_of(one.part), one.first, one.last, filled] for one in regions]
    return regions, np.array(rows, np.int64)


def _side(tiles: list[Tiles], group: Products, own: bool) -> list[Tiles]:
    """The tiles in the CTAs that began the operations, or in their peers."""
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
