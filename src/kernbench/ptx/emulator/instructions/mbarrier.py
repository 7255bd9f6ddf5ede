"""mbarrier instructions, and fences between proxies."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.mbarriers import Arrival
from kernbench.ptx.emulator.barriers.waiting import Wait
from kernbench.ptx.emulator.checks.happens_before.clocks import masks_of
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.operand_rows import OperandRows
from kernbench.ptx.emulator.program.access_order import CLUSTER_SCOPE, Order
from kernbench.ptx.emulator.program.facts import Facts, FromFacts
from kernbench.ptx.emulator.program.operands import AddressSlot, Decoding, Row
from kernbench.ptx.emulator.program.steps import ControlStep, Step, action, nothing
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.text.module import Name

_PENDING = np.uint64((1 << 24) - 1)
_INIT = Order(CLUSTER_SCOPE, releases=True)


def active_lanes(window: Window, mask: Mask | None) -> Array:
    """Lane numbers of the active positions."""
    lanes: Array = window.lane_numbers
    return lanes if mask is None else lanes[mask]


_NARROW = np.uint64(0xFFFF_FFFF)


def values_of(window: Window, slot: int, mask: Mask | None, dtype: Any = np.int64) -> Array:
    """An operand's value in each active lane."""
    row = window.rows[slot]
    if not row.ndim:
        return np.full(window.size if mask is None else int(np.count_nonzero(mask)), row).astype(dtype)
    return (row if mask is None else row[mask]).astype(dtype)


def addresses_of(window: Window, address: AddressSlot, mask: Mask | None) -> Array:
    """An address operand in each active lane; 32-bit addresses wrap around."""
    found: Array = values_of(window, address.slot, mask, np.uint64) + np.uint64(address.offset)
    return found & _NARROW if window.rows[address.slot].dtype == np.uint32 else found


def _operand(d: Decoding, name: str) -> int:
    index = d.position(name)
    assert index is not None
    return index


def init(d: Decoding) -> Step:
    """mbarrier.init."""
    address, site = d.address(0), d.site
    count = d.source(1)
    operands = OperandRows(d.table, [(address.slot, address.offset), (count, 0)], ())
    d.row = Row("mbarrier init", (count, address.slot), (), address.offset)

    def general(window: Window, mask: Mask | None) -> None:
        lanes = active_lanes(window, mask)
        addresses, counts = operands.take(window.batch, lanes)[0]
        window.batch.mbarriers.init(addresses, lanes, counts.view(np.int64), site)

    return action(general)


def invalidate(d: Decoding) -> Step:
    """mbarrier.inval."""
    address, site = d.address(0), d.site
    d.row = Row("mbarrier inval", (address.slot,), (), address.offset)
    return action(
        lambda window, mask: window.batch.mbarriers.invalidate(
            addresses_of(window, address, mask), active_lanes(window, mask), site
        )
    )


def arrive(d: Decoding) -> Step:
    """mbarrier.arrive and arrive_drop, with a count or expected bytes."""
    address, site = d.address(_operand(d, "a")), d.site
    count, nbytes = d.position("count"), d.position("bytes")
    one, nothing_moved = d.table.constant(1, "uint64"), d.table.constant(0, "uint64")
    count_slot = one if count is None else d.source(count)
    bytes_slot = nothing_moved if nbytes is None else d.source(nbytes)
    operands = OperandRows(d.table, [(address.slot, address.offset), (count_slot, 0), (bytes_slot, 0)], ())
    discards = d.operands[0] == Name("_")
    target = None if discards else d.target(0)
    wide = d.mod("scope") != "cta"
    how = Arrival(d.mod("op") == "arrive_drop", d.has("noComplete"), d.mod("sem") != "relaxed", wide)
    if not how.drop and not how.no_complete and how.release:
        given = (*(() if target is None else (target,)), count_slot, bytes_slot, address.slot)
        d.row = Row("mbarrier arrive", given, (int(target is not None),), address.offset)

    def general(window: Window, mask: Mask | None) -> None:
        lanes = active_lanes(window, mask)
        addresses, counts, moved = operands.take(window.batch, lanes)[0]
        amounts = counts.view(np.int64), moved.view(np.int64)
        tokens = window.batch.mbarriers.arrive(addresses, lanes, *amounts, how, site)
        if target is not None:
            spread = np.zeros(window.size, np.uint64)
            spread[slice(None) if mask is None else mask] = tokens.astype(np.uint64)
            window.put(target, spread, mask)

    return action(general)


def transact(d: Decoding) -> Step:
    """mbarrier.expect_tx and complete_tx."""
    address, amount, site = d.address(0), d.source(1), d.site
    sign = 1 if d.mod("op") == "expect_tx" else -1
    d.row = Row("mbarrier bytes", (amount, address.slot), (sign,), address.offset)

    def general(window: Window, mask: Mask | None) -> None:
        amounts = sign * values_of(window, amount, mask)
        window.batch.mbarriers.expect(addresses_of(window, address, mask), active_lanes(window, mask), amounts, site)

    return action(general)


def wait(d: Decoding) -> FromFacts:
    """mbarrier.test_wait and try_wait: a wait retried until it succeeds parks.

    One whose result is unused acquires nothing.
    """
    address, source, target = d.address(1), d.source(2), d.target(0)
    parity, ordered, wide = d.has("parity"), d.mod("sem") != "relaxed", d.mod("scope") != "cta"
    following, site = d.following, d.site
    operands = OperandRows(d.table, [(address.slot, address.offset), (source, 0)], ())
    if ordered:
        d.row = Row("mbarrier wait", (target, source, address.slot), (int(parity),), address.offset)

    def make(facts: Facts) -> ControlStep:
        parks, looks = site.number in facts.parking, site.number not in facts.ignored
        how = (parks, ordered and looks, looks and not ordered, wide)
        operation = Wait(operands, parity, target, *how, following, site)
        return ControlStep(lambda scheduler, fragment: scheduler.waiting.arrive(fragment, operation))

    return FromFacts(make, controls=True)


def pending(d: Decoding) -> Step:
    """mbarrier.pending_count: from the token of an arrival."""
    return d.compute(_pending, [d.source(1)], [d.target(0)])


def _pending(state: Any, target: Any) -> None:
    target[...] = state & _PENDING


def copies_arrive(d: Decoding) -> Step:
    """cp.async.mbarrier.arrive: an arrival when the thread's earlier cp.async copies are complete."""
    address, site, counted = d.address(0), d.site, not d.has("noinc")

    def general(window: Window, mask: Mask | None) -> None:
        lanes = active_lanes(window, mask)
        window.batch.copies.arrive(lanes, addresses_of(window, address, mask), counted, site)

    return action(general)


def proxy_fence(d: Decoding) -> Step:
    """fence.proxy: earlier ordinary accesses become visible to later asynchronous operations."""
    if d.mod("kind").startswith("tensormap") and d.operands:
        return _acquire_map(d)
    if d.mod("kind") == "alias" or d.mod("kind").startswith("tensormap"):
        return nothing()

    space = "shared" if d.mod("kind") == "async::generic" else d.mod("space").partition("::")[0]
    d.row = Row("show writes" if space in ("", "shared") else "nothing")

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        checks.asynchronous.proxy_fence(*masks_of(window, mask), space)

    return action(general)


def _acquire_map(d: Decoding) -> Step:
    """fence.proxy.tensormap with an address: a tensor map becomes visible to the copy engine."""
    address = d.address(0)

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        checks.asynchronous.maps_acquired(addresses_of(window, address, mask), active_lanes(window, mask))

    return action(general)


def init_fence(window: Window, mask: Mask | None) -> None:
    """fence.mbarrier_init: the initialisation of barriers becomes visible to later asynchronous operations."""
    checks = window.batch.checks
    checks.asynchronous.fenced(*masks_of(window, mask))
    checks.fence(window, mask, _INIT)


MEANINGS: Mapping[str, Callable[[Decoding], "Step | FromFacts"]] = {
    "mbarrier.init": init,
    "mbarrier.inval": invalidate,
    "mbarrier.arrive": arrive,
    "mbarrier.tx": transact,
    "mbarrier.wait": wait,
    "mbarrier.pending": pending,
    "cp.async.arrive": copies_arrive,
    "fence.proxy": proxy_fence,
}
