"""Barriers and fences."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.gathering import together
from kernbench.ptx.emulator.instructions.mbarrier import init_fence
from kernbench.ptx.emulator.instructions.warp import gathered
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes, Mask
from kernbench.ptx.emulator.program.access_order import SCOPES, Order
from kernbench.ptx.emulator.program.operands import Decoding, Row
from kernbench.ptx.emulator.program.steps import AnyFragment, ControlStep, Step, action
from kernbench.ptx.emulator.units.batch import Fragment, Scheduler, Window

# number of barriers of a block
_BARRIERS = 16


def barrier(d: Decoding) -> ControlStep:
    """bar and barrier: sync, arrive and red."""
    number, count, predicate = d.position("id"), d.position("count"), d.position("p")
    assert number is not None
    id_slot = d.source(number)
    count_slot = None if count is None else d.source(count)
    predicate_slot = None if predicate is None else d.source(predicate)
    target = d.target(0) if predicate is not None else None
    following, site, waits, operation = d.following, d.site, d.mod("mode") != "arrive", d.mod("op")
    aligned = d.instruction.opcode == "bar" or d.has("aligned")
    which, many = d.constant_of(number), None if count is None else d.constant_of(count)
    if predicate is None and (count is None or many is not None):
        named = () if which is not None else (d.row_slot(id_slot),)
        d.row = Row("barrier", named, (int(waits), int(which is None)), (which or 0) | (many or 0) << 8)

    def run(scheduler: Scheduler, fragment: Fragment) -> AnyFragment | None:
        results: list[AnyFragment | None] = []
        for group, (one, many) in _groups(scheduler, fragment, id_slot, count_slot):
            problem = _problem(one, many)
            if problem:
                scheduler.batch.stray(group.lanes, site, problem)
                scheduler.leave(group)
                results.append(None)
                continue
            for part in scheduler.barriers.rounds(group, one, many):
                votes = None if predicate_slot is None else np.array(part.window.rows[predicate_slot])
                results.append(
                    scheduler.barriers.arrive(part, one, many, following, site, waits, votes, operation, target)
                )
        if len(results) == 1:
            return results[0]
        for going in filter(None, results):
            scheduler.push(going)
        return None

    if not aligned:
        return ControlStep(run)
    meeting = together(run, following, site)
    return ControlStep(lambda scheduler, fragment: scheduler.gathering.arrive(fragment, meeting))


def _problem(number: int, count: int | None) -> str:
    """What is wrong with a barrier's number or count, which may come from registers; "" if nothing."""
    if not 0 <= number < _BARRIERS:
        return f"barrier {number}: a block has 0 to {_BARRIERS - 1}"
    if count is not None and count % WARP:
        return f"barrier {number} for {count} threads: the count is a multiple of the warp's {WARP}"
    return ""


def _groups(scheduler: Scheduler, fragment: Fragment, id_slot: int, count_slot: int | None) -> Any:
    """Lanes grouped by barrier and count; nearly always one group."""
    numbers = fragment.window.rows[id_slot]
    counts = None if count_slot is None else fragment.window.rows[count_slot]
    if not numbers.ndim and (counts is None or not counts.ndim):
        return [(fragment, (int(numbers), None if counts is None else int(counts)))]
    if _alike(numbers, fragment.lanes.mask) and (counts is None or _alike(counts, fragment.lanes.mask)):
        first = 0 if fragment.lanes.mask is None else int(fragment.lanes.mask.argmax())
        return [(fragment, (_at(numbers, first), None if counts is None else _at(counts, first)))]
    size = fragment.window.size
    many = np.full(size, -1) if counts is None else np.broadcast_to(counts, size).astype(np.int64)
    keys = np.broadcast_to(numbers, size).astype(np.int64) * (1 << 32) + many + 1
    groups = []
    for key in np.unique(keys[fragment.lanes.active()]):
        lanes = fragment.lanes.select(keys == key)
        assert lanes is not None
        number, count = int(key) >> 32, (int(key) & 0xFFFFFFFF) - 1
        group = scheduler.fragment(fragment, lanes, fragment.block)
        groups.append((group, (number, None if count < 0 else count)))
    return groups


def _alike(row: Array, mask: Mask | None) -> bool:
    """Whether all active lanes have the same value."""
    values = row if mask is None or not row.ndim else row[mask]
    return not row.ndim or bool(np.count_nonzero(values == values[0]) == len(values))


def _at(row: Array, position: int) -> int:
    """The value at a position; of a constant, the constant."""
    return int(row[position]) if row.ndim else int(row)


def warp_barrier(d: Decoding) -> ControlStep:
    """bar.warp.sync: lanes reconverge, and memory is ordered between them."""
    members = d.row_slot(d.source(0))
    d.row = Row("meet", (members,))

    def perform(window: Window, lanes: Lanes) -> None:
        window.batch.warp_clocks(window, lanes, members)

    return gathered(d, perform, 0, exchanges=False)


def fence(d: Decoding) -> Step:
    """membar and fence: they order memory accesses before with those after."""
    if d.has("mbarrier_init"):
        d.row = Row("show mbarriers")
        return action(init_fence)
    d.row = Row("nothing")
    sem = d.mod("sem")
    sequential = sem == "sc" or d.instruction.opcode == "membar"
    order = Order(SCOPES[d.mod("scope")], sem != "release", sem != "acquire", sequential=sequential)

    def general(window: Window, mask: Mask | None) -> None:
        window.batch.checks.fence(window, mask, order)

    return action(general)


MEANINGS: Mapping[str, Callable[[Decoding], "Step | ControlStep"]] = {
    "bar": barrier,
    "bar.red": barrier,
    "bar.warp": warp_barrier,
    "fence": fence,
}
