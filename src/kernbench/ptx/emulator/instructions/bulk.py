"""Bulk copies, tensor copies and reductions, their groups, and asynchronous stores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.asynchronous.copies import tensors
from kernbench.ptx.emulator.asynchronous.copies.begin_kernels import CTA, OFFSET, are_refused
from kernbench.ptx.emulator.asynchronous.copies.bulk import (
    ALIGNMENT,
    Ends,
    begin_copy,
    ends_at,
    global_ends,
    locate_shared,
    shared_ends,
)
from kernbench.ptx.emulator.asynchronous.copies.completion import Completion, in_group, on_barrier
from kernbench.ptx.emulator.asynchronous.copies.reductions import reduction_of
from kernbench.ptx.emulator.instructions.mbarrier import active_lanes, addresses_of, values_of
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.operand_rows import OperandRows
from kernbench.ptx.emulator.program.operands import AddressSlot, Decoding, Row
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.emulator.units.batch import Batch, Window
from kernbench.ptx.launching.tensor_map import ELEMENT_BYTES, PACKED_ELEMENTS
from kernbench.ptx.text.module import Address, Vector


@dataclass(frozen=True, slots=True, eq=False)
class _Destinations:
    """Destinations of loads: for each operation (a lane and a CTA) its lane's position, CTA, offset and barrier.

    If each lane has one operation, `ends` is known as well.
    """

    positions: Array
    ctas: Array
    offsets: Array
    slots: Array
    ends: Ends | None = None


def _address(d: Decoding, name: str) -> AddressSlot:
    index = d.position(name)
    assert index is not None
    return d.address(index)


def _optional(d: Decoding, name: str) -> int | None:
    index = d.position(name)
    return None if index is None else d.source(index)


def _destinations(
    window: Window, lanes: Array, located: Array, barriers: Array, masks: Array | None, pair: bool, site: Any
) -> _Destinations:
    """One operation for each lane, or one for each CTA in its multicast mask, at the same offsets there.

    `located` are the lanes' located addresses. Each destination signals the barrier at the same offset in its own CTA.
    With `pair` (.cta_group::2) it signals one CTA of its pair: the even rank if the CTA of the given barrier has an
    even rank, else the odd one, whichever CTA issues the copy.
    """
    batch = window.batch
    ctas, offsets = located[CTA], located[OFFSET]
    if masks is None:
        slots = batch.mbarriers.known(barriers, lanes, site)
        _same_block(window, lanes, ctas, slots, pair, site)
        return _Destinations(np.arange(len(lanes)), ctas, offsets, slots, ends_at(located))
    batch.checks.asynchronous.multicast(masks, lanes, site)
    positions, ranks = np.nonzero(batch.cluster.named(masks))
    peers = batch.cluster.peers(batch.cluster.own(lanes)[positions], ranks)
    homes, barrier_offsets = batch.cluster.find(barriers, lanes)
    # a cluster's CTAs are contiguous in the batch and aligned to its size, so parities of ranks and CTAs agree
    paired = pair and batch.cluster.size > 1
    at = (peers & ~1) | (homes[positions] & 1) if paired else peers
    slots = batch.mbarriers.known_at(at, barrier_offsets[positions], lanes[positions], site)
    return _Destinations(positions, peers, offsets[positions], slots)


def _same_block(window: Window, lanes: Array, ctas: Array, slots: Array, pair: bool, site: Any) -> None:
    """Report copies whose mbarrier is in another CTA than their destination, or in another pair."""
    if window.batch.cluster.size == 1:
        return
    homes = window.batch.mbarriers.homes[slots]
    apart = (homes ^ ctas) >> int(pair) != 0
    bad = np.flatnonzero(apart & (slots >= 0) & (ctas >= 0))
    if len(bad):
        window.batch.checks.asynchronous.signals_elsewhere(ctas[bad], homes[bad], lanes[bad], site)


def _aligned(window: Window, lanes: Array, site: Any, what: str, values: Array, unit: int) -> None:
    """Report values that are not multiples of `unit`."""
    bad = values % unit != 0
    if bad.any():
        value, lane = int(values[bad][0]), int(lanes[bad][0])
        window.batch.checks.misaligned_copy(site, what, value, unit, lane, int(np.count_nonzero(bad)))


def bulk_copy(d: Decoding) -> Step:
    """cp.async.bulk: bytes between global and shared memory, or to the shared memory of a peer."""
    target, source, size, site = _address(d, "dst"), _address(d, "src"), _optional(d, "size"), d.site
    assert size is not None
    barrier = None if d.position("mbar") is None else _address(d, "mbar")
    mask_slot, kept_slot = _optional(d, "mask"), _optional(d, "bytes")
    outward, inward = d.mod("dst") == "global", d.mod("src") == "global"
    reduction = reduction_of(d.mod("op"), d.mod("type")) if d.has("reduce") else None
    d.store_space = "global" if outward else "shared"
    if reduction is None and mask_slot is None and kept_slot is None and (outward or inward):
        ends = (source, target) if outward else (target, barrier, source)
        d.row = _row(d, "bulk store" if outward else "bulk load", [end for end in ends if end is not None], [size])

    def general(window: Window, mask: Mask | None) -> None:
        batch, lanes = window.batch, active_lanes(window, mask)
        sizes = values_of(window, size, mask)
        targets, sources = addresses_of(window, target, mask), addresses_of(window, source, mask)
        for what, values in (("size", sizes), ("destination", targets), ("source", sources)):
            _aligned(window, lanes, site, what, values.astype(np.int64), ALIGNMENT)
        if outward:
            kept = None if kept_slot is None else values_of(window, kept_slot, mask)
            ends = shared_ends(batch, *batch.cluster.find(sources, lanes))
            completion: Completion = in_group(batch, lanes, site)
            if batch.recorder.recording:
                batch.recorder.copied(site, lanes, sizes, global_ends(batch, targets).starts, None, False)
            begin_copy(batch, ends, global_ends(batch, targets), sizes, completion, site, kept, reduction)
            return
        assert barrier is not None
        masks = None if mask_slot is None else values_of(window, mask_slot, mask)
        located, _ = locate_shared(batch, targets, lanes)
        to = _destinations(window, lanes, located, addresses_of(window, barrier, mask), masks, False, site)
        which = np.flatnonzero(to.slots >= 0)
        at = to.positions[which]
        ends = global_ends(batch, sources) if inward else shared_ends(batch, *batch.cluster.find(sources, lanes))
        completion = on_barrier(batch, lanes[at], to.slots[which], sizes[at], site)
        into = shared_ends(batch, to.ctas[which], to.offsets[which])
        if batch.recorder.recording:
            from_global = ends.starts[at] if inward else None
            batch.recorder.copied(site, lanes[at], sizes[at], from_global, to.slots[which], inward)
        begin_copy(batch, ends.chosen(at), into, sizes[at], completion, site, None, reduction)

    return action(general)


def _row(d: Decoding, operation: str, ends: Sequence[AddressSlot], numbers: Sequence[int]) -> Row:
    """Addresses and numbers, and the offsets of the addresses."""
    return Row(operation, (*(one.slot for one in ends), *numbers), tuple(one.offset for one in ends))


def _store_row(d: Decoding, ends: Sequence[AddressSlot], slots: Sequence[int]) -> Row | None:
    plain = not d.mod("op") and _parts(d) is None and d.mod("mode") != "im2col_no_offs"
    return _row(d, "box store", ends, slots) if plain else None


def _coordinates(d: Decoding, name: str) -> tuple[AddressSlot, list[int]]:
    """The slots of a tensor operand: its map and its coordinates."""
    index = d.position(name)
    assert index is not None
    operand = d.operands[index]
    assert isinstance(operand, Address)
    items = operand.more[0].items if isinstance(operand.more[0], Vector) else operand.more
    return d.address(index), [d.value(item, "s32") for item in items]


def _boxes(
    window: Window, lanes: Array, maps: Array, rank: int, counted: bool, site: Any
) -> list[tuple[tensors.Box, Array]]:
    """The tensor maps of lanes, each with the positions of its lanes; reports invalid ones."""
    found = []
    checks, known = window.batch.checks, window.batch.launch.tensor_maps
    # blocks that each build a map of the same tensor use different addresses
    together = len(maps) > 1 and window.batch.launch.fast.boxes_together
    same = known.at_all(maps) if together else None
    for address, which in _by_value(maps):
        try:
            box = known.at(address) if same is None else same
            if box.rank != rank:
                raise MisuseError(f"the tensor map has {box.rank} dimensions, the instruction {rank}")
            if box.im2col != counted:
                made, asked = ("im2col", "tile") if box.im2col else ("tile", "im2col")
                raise MisuseError(f"the tensor map is for {made} mode, the instruction says {asked}")
        except MisuseError as problem:
            checks.bad_tensor_map(site, str(problem), address, lanes[which])
            continue
        checks.asynchronous.map_used(address, lanes if len(which) == len(lanes) else lanes[which], site)
        found.append((box, which))
    return found


def _by_value(values: Array) -> list[tuple[int, Array]]:
    """Each distinct value in order, with its positions."""
    located: dict[int, list[int]] = {}
    numbers = values.tolist()
    if len(set(numbers)) == 1:
        return [(numbers[0], np.arange(len(numbers)))]
    for position, value in enumerate(numbers):
        located.setdefault(value, []).append(position)
    return [(value, np.array(located[value])) for value in sorted(located)]


def _spread(count: int, *rows: Array) -> tuple[Array, ...]:
    """Repeat each entry `count` times."""
    return rows if count == 1 else tuple(np.repeat(row, count) for row in rows)


def _parted(offsets: Array, count: int, step: int) -> Array:
    """The offsets of the parts of copies, `count` for each copy, which begin at `offsets`."""
    return offsets if count == 1 else np.repeat(offsets, count) + np.tile(np.arange(count) * step, len(offsets))


def _legal_points(window: Window, lanes: Array, points: Array, box: tensors.Box, site: Any, stores: bool) -> None:
    """Report coordinates that the copy engine rejects."""
    if not are_refused(points, *box.legal_step, stores):
        return
    if box.description.grain == 1:
        _aligned(window, lanes, site, "innermost coordinate (in bytes)", points[:, 0] * box.element, ALIGNMENT)
    else:
        _aligned(window, lanes, site, "innermost coordinate", points[:, 0], box.description.step)
    below = (points < 0).any(axis=1)
    if stores and below.any():
        point = tuple(points[below][0].tolist())
        window.batch.checks.negative_point(site, point, int(lanes[below][0]), int(np.count_nonzero(below)))


def _parts(d: Decoding) -> Callable[[tensors.Box, Array], tuple[Array, int]] | None:
    """How a copy is split: `parts(box, points)` gives the coordinates of all parts, and their stride in bytes.

    That is four rows for a gather or scatter, and the pixels for a column; None for a single box.
    """

    def four(box: tensors.Box, points: Array) -> tuple[Array, int]:
        columns = np.repeat(points[:, :1], 4, axis=1)
        return np.stack([columns, points[:, 1:5]], axis=2), box.room

    def column(box: tensors.Box, points: Array) -> tuple[Array, int]:
        return tensors.pixels(box, points, box.description.box[1]), int(box.swizzle[3])

    makers = {"tile::gather4": four, "tile::scatter4": four, "im2col": column, "im2col_no_offs": column}
    return makers.get(d.mod("mode"))


def _inside(window: Window, lanes: Array, points: Array, box: tensors.Box, site: Any) -> None:
    """Report columns that begin outside the pixel box."""
    bad = np.zeros(len(points), bool)
    for dimension, (first, last) in enumerate(box.description.pixel_box, 1):
        bad |= (points[:, dimension] < first) | (points[:, dimension] > last)
    if bad.any():
        point = tuple(points[bad][0].tolist())
        limits = box.description.pixel_box
        window.batch.checks.outside_pixels(site, point, limits, int(lanes[bad][0]), int(np.count_nonzero(bad)))


def _operands(d: Decoding, addresses: Sequence[AddressSlot], numbers: Sequence[int]) -> OperandRows:
    return OperandRows(d.table, [(one.slot, one.offset) for one in addresses], numbers)


def tensor_load(d: Decoding) -> Step:
    """cp.async.bulk.tensor from global to shared memory."""
    target, barrier, site = _address(d, "dst"), _address(d, "mbar"), d.site
    source, slots = _coordinates(d, "src")
    mask_slot, rank, parts = _optional(d, "mask"), int(d.mod("dim")[0]), _parts(d)
    pair = d.mod("group") == "cta_group::2"
    position = d.position("offsets")
    counted, moved = position is not None, [] if position is None else d.sources(position)
    operands = _operands(d, (target, barrier, source), slots)
    plain = mask_slot is None and not pair and parts is None and not counted
    d.row = _row(d, "box load", (target, barrier, source), slots) if plain else None

    def general(window: Window, mask: Mask | None) -> None:
        batch, lanes = window.batch, active_lanes(window, mask)
        if not len(lanes):
            return
        (targets, barriers, maps), points = operands.take(batch, lanes)
        located, bits = locate_shared(batch, targets, lanes)
        if bits % tensors.ALIGNMENT:
            _aligned(window, lanes, site, "destination", targets.astype(np.int64), tensors.ALIGNMENT)
        masks = None if mask_slot is None else values_of(window, mask_slot, mask)
        to = _destinations(window, lanes, located, barriers, masks, pair, site)
        shifts = np.zeros((len(lanes), rank), np.int64) if moved else None
        for number, slot in enumerate(moved, 1):
            assert shifts is not None
            shifts[:, number] = values_of(window, slot, mask)
        found = _boxes(window, lanes, maps, rank, counted, site)
        plain = parts is None and to.ends is not None and not np.count_nonzero(to.slots < 0)
        plain = plain and batch.launch.fast.boxes_together
        if plain and found and _load_all(batch, lanes, to, points, found, site):
            return
        for box, which in found:
            _load(window, lanes, to, points, shifts, parts, box, which, site)

    return action(general)


def _load_all(
    batch: Batch, lanes: Array, to: _Destinations, points: Array, found: list[tuple[tensors.Box, Array]], site: Site
) -> bool:
    """Begin a load of one box for each lane, all with the same map, if there is no fault; returns whether it did.

    Blocks that each build a map of the same tensor use different addresses; their loads are performed in the order of
    these addresses, as if they began one after the other.
    """
    ends, slots = to.ends, to.slots
    assert ends is not None
    box, assembled = found[0][0], len(found) > 1
    if assembled:
        order = [position for _, which in found for position in which.tolist()]
        alike = all(other is box for other, _ in found) and len(order) == len(found)
        # for several maps, findings and recordings must come map by map
        in_turn = batch.cluster.size > 1 or batch.recorder.recording or tensors.is_watched(batch, box)
        if not alike or in_turn or not _one_a_block(batch, lanes):
            return False
        if order != list(range(len(lanes))):
            turn = np.array(order)
            lanes, points, ends, slots = lanes[turn], points[turn], ends.chosen(turn), slots[turn]
    elif len(found[0][1]) < len(lanes):
        return False
    if are_refused(points, *box.legal_step, False) or not batch.checks.asynchronous.all_shown(slots, lanes):
        return False
    completion = on_barrier(batch, lanes, slots, np.full(len(lanes), box.nbytes), site, shown=True, apart=assembled)
    if batch.recorder.recording:
        batch.recorder.boxes_copied(site, lanes, box.parts, box.nbytes, box.grains(points), slots)
    tensors.begin_load(batch, box, ends, points, completion, site)
    return True


def _one_a_block(batch: Batch, lanes: Array) -> bool:
    """Whether all lanes are in different blocks."""
    return len(set(batch.cluster.own(lanes).tolist())) == len(lanes)


def _load(
    window: Window,
    lanes: Array,
    to: _Destinations,
    points: Array,
    shifts: Array | None,
    parts: Callable[[tensors.Box, Array], tuple[Array, int]] | None,
    box: tensors.Box,
    which: Array,
    site: Site,
) -> None:
    """Begin the loads of the lanes at some positions with one tensor map, for destinations with a valid barrier."""
    batch, rank = window.batch, points.shape[1]
    named = np.zeros(len(lanes), bool)
    named[which] = True
    chosen = np.flatnonzero(named[to.positions] & (to.slots >= 0))
    at = to.positions[chosen]
    if box.im2col:
        _inside(window, lanes[at], points[at], box, site)
    if not len(at):
        return
    found, step = (points[at][:, None], 0) if parts is None else parts(box, points[at])
    count = found.shape[1]
    here = (found if shifts is None else found + shifts[at, None]).reshape(-1, rank)
    offsets = _parted(to.offsets[chosen], count, step)
    at, ctas, barriers = _spread(count, at, to.ctas[chosen], to.slots[chosen])
    _legal_points(window, lanes[at], here, box, site, False)
    completion = on_barrier(batch, lanes[at], barriers, np.full(len(at), box.nbytes), site)
    if batch.recorder.recording:
        batch.recorder.boxes_copied(site, lanes[at], box.parts, box.nbytes, box.grains(here), barriers)
    tensors.begin_load(batch, box, shared_ends(batch, ctas, offsets), here, completion, site)


def _refused(element: str, reduces: bool) -> str:
    """Why elements of this type cannot be stored, or ""."""
    if element == "b4x16_p64":
        return f"elements of {element} can be loaded, not stored: use 'b4x16', without gaps"
    if reduces and element in PACKED_ELEMENTS:
        return f"elements of {element} cannot be combined, only stored"
    return ""


def tensor_store(d: Decoding) -> Step:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    source, site = _address(d, "src"), d.site
    d.address_reads.clear()
    target, slots = _coordinates(d, "dst")
    rank, parts, operation = int(d.mod("dim")[0]), _parts(d), d.mod("op")
    counted = d.mod("mode") == "im2col_no_offs"
    d.store_space, d.by_map = "global", True
    reductions = {element: reduction_of(operation, element) for element in ELEMENT_BYTES if operation}
    operands = _operands(d, (source, target), slots)
    d.row = _store_row(d, (source, source, target), slots)

    def general(window: Window, mask: Mask | None) -> None:
        batch, lanes = window.batch, active_lanes(window, mask)
        if not len(lanes):
            return
        (sources, maps), points = operands.take(batch, lanes)
        located, bits = locate_shared(batch, sources, lanes)
        if bits % tensors.ALIGNMENT:
            _aligned(window, lanes, site, "source", sources.astype(np.int64), tensors.ALIGNMENT)
        for box, which in _boxes(window, lanes, maps, rank, counted, site):
            every = len(which) == len(lanes)
            who, here, ends = lanes, points, ends_at(located)
            if not every:
                who, here, ends = lanes[which], points[which], ends.chosen(which)
            if refusal := _refused(box.description.element, bool(operation)):
                batch.checks.bad_tensor_map(site, refusal, int(maps[which[0]]), who)
                continue
            if counted:
                _inside(window, who, here, box, site)
            if parts is not None:
                found, step = parts(box, here)
                count, here = found.shape[1], found.reshape(-1, rank)
                starts = _parted(located[OFFSET][which], count, step)
                home, who = _spread(count, located[CTA][which], who)
                ends = shared_ends(batch, home, starts)
            _legal_points(window, who, here, box, site, not counted)
            completion = in_group(batch, who, site)
            reduction = reductions.get(box.description.element)
            if batch.recorder.recording:
                batch.recorder.boxes_copied(site, who, box.parts, box.nbytes, box.grains(here), None)
            tensors.begin_store(batch, box, ends, here, completion, site, reduction)

    return action(general)


def commit(d: Decoding) -> Step:
    """cp.async.bulk.commit_group."""
    d.row = Row("commit stores")
    return action(lambda window, mask: window.batch.groups.commit(active_lanes(window, mask)))


def wait(d: Decoding) -> Step:
    """cp.async.bulk.wait_group: all but the last n groups of the thread are complete, or have been read."""
    keep, reading = d.constant_of(0) or 0, d.has("read")
    d.report = Report(d.site, d.effects.event, keep=keep)
    d.row = Row("wait for stores", (), (keep,))
    return action(lambda window, mask: window.batch.groups.wait(active_lanes(window, mask), keep, reading))


MEANINGS: Mapping[str, Callable[[Decoding], Step]] = {
    "cp.bulk": bulk_copy,
    "cp.bulk.reduce": bulk_copy,
    "cp.bulk.commit": commit,
    "cp.bulk.wait": wait,
    "cp.tensor.load": tensor_load,
    "cp.tensor.store": tensor_store,
    "cp.tensor.reduce": tensor_store,
}
