"""Operations across the lanes of a warp."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.gathering import WarpOperation
from kernbench.ptx.emulator.lanes import warp_kernels as kernels
from kernbench.ptx.emulator.lanes.flags import COMPUTED, whole_of
from kernbench.ptx.emulator.lanes.lanes import NO_MASK, WARP, Lanes, Mask, lane_bits
from kernbench.ptx.emulator.program.operands import Decoding, Row
from kernbench.ptx.emulator.program.steps import ControlStep, Exchanged, Step, action
from kernbench.ptx.emulator.units.batch import Window

_FULL = 0xFFFFFFFF
_NO_PREDICATE = np.zeros(0, bool)


def gathered(
    d: Decoding,
    perform: Callable[[Window, Lanes], None],
    mask: int | None = None,
    exchanges: bool = True,
    misses_ended: bool = True,
) -> ControlStep:
    """A warp operation that waits for the lanes in its mask operand."""
    index = d.position("mask") if mask is None else mask
    assert index is not None
    full = d.constant_of(index) is not None and (d.constant_of(index) or 0) & _FULL == _FULL
    members = d.row_slot(d.source(index))
    operation = WarpOperation(perform, members, full, d.following, d.site, exchanges, misses_ended=misses_ended)
    return ControlStep(lambda scheduler, fragment: scheduler.gathering.arrive(fragment, operation))


def _inside(lanes: Lanes) -> Mask:
    """The mask for compiled loops: empty if every warp is whole, since results of idle warps are dropped."""
    return NO_MASK if lanes.whole or lanes.mask is None else lanes.mask


def shuffle(d: Decoding) -> ControlStep:
    """shfl.sync."""
    step, clamp, members = d.constant_of(2), d.constant_of(3), d.constant_of(4)
    if step is not None and clamp is not None and members is not None and members & _FULL == _FULL:
        return _fixed_shuffle(d, step, clamp)
    mode = kernels.MODES[d.mod("mode")]
    a, b, c, mask = (d.row_slot(d.source(index)) for index in (1, 2, 3, 4))
    target, predicate, site = d.target(0), d.second(0), d.site
    bits = _bits_of(d)
    d.row = _shuffle_row(mode, target, predicate, (a, b, c, mask))

    def perform(window: Window, lanes: Lanes) -> None:
        rows = window.rows
        out = window.scratch("uint32", 5)
        inside = _NO_PREDICATE if predicate is None else window.scratch("bool", 5)
        # idle warps may have any mask, which is no fault
        here = NO_MASK if lanes.mask is None else lanes.mask
        how = rows[b], rows[c], rows[mask], here
        bits(window, lanes, lambda row, moved: kernels.shuffle(mode, row, *how, moved, inside))
        bad, first = kernels.shuffle(mode, rows[a], *how, out, inside)
        window.put(target, out, lanes.mask)
        if predicate is not None:
            window.put(predicate, inside, lanes.mask)
        if bad:
            window.batch.checks.inactive_source(window, site, bad, first)

    return gathered(d, perform, misses_ended=False)


def _fixed_shuffle(d: Decoding, step: int, clamp: int) -> ControlStep:
    """A shuffle by constants: the same permutation for every whole warp."""
    mode = kernels.MODES[d.mod("mode")]
    lanes, constants = np.arange(WARP, dtype=np.uint32), np.zeros((2, WARP), np.uint32)
    constants[0], constants[1] = step & _FULL, clamp & _FULL
    everybody, sources, valid = np.full(WARP, _FULL, np.uint32), np.zeros(WARP, np.uint32), np.zeros(WARP, bool)
    kernels.shuffle(mode, lanes, constants[0], constants[1], everybody, NO_MASK, sources, valid)
    a, target, predicate, site = d.row_slot(d.source(1)), d.target(0), d.second(0), d.site
    others = [d.row_slot(d.source(index)) for index in (2, 3, 4)]
    d.row = _shuffle_row(mode, target, predicate, (a, *others))
    direct = a != target and predicate is None and d.table.slots[target].dtype == "uint32"
    bits = _bits_of(d)

    def perform(window: Window, lanes: Lanes) -> None:
        bits(window, lanes, lambda row, out: kernels.permute(row, sources, _inside(lanes), out))
        if direct and lanes.mask is None and window.in_place:
            kernels.permute(window.rows[a], sources, NO_MASK, window.rows[target])
            return
        out = window.scratch("uint32", 5)
        bad, first = kernels.permute(window.rows[a], sources, _inside(lanes), out)
        window.put(target, out, lanes.mask)
        if predicate is not None:
            window.put(predicate, np.tile(valid, window.size // WARP), lanes.mask)
        if bad:
            window.batch.checks.inactive_source(window, site, bad, first)

    exchanged = Exchanged(a, target, tuple(sources.tolist()), predicate, tuple(valid.tolist()))
    return replace(gathered(d, perform, misses_ended=False), exchanged=exchanged)


def _shuffle_row(mode: int, target: int, predicate: int | None, given: tuple[int, ...]) -> Row:
    """A shuffle for the executor."""
    second = () if predicate is None else (predicate,)
    return Row("shuffle", (target, *second, *given), (mode, len(second)))


def _bits_of(d: Decoding) -> Callable[[Window, Lanes, Callable[[Array, Array], object]], None]:
    """Pass on undefined-value bits along with the values of an exchange, once tracking is on."""
    source, target = d.register_at(1), d.first_result()
    if source is None or target is None:
        return lambda window, lanes, move: None
    keys, site = ((source.bank, source.row), (target.bank, target.row)), d.site

    def hand_on(window: Window, lanes: Lanes, move: Callable[[Array, Array], object]) -> None:
        def moved(bits: Array) -> Array:
            found = np.zeros(window.size, np.uint32)
            move(bits, found)
            return found

        checks = window.batch.checks
        if checks.definedness.following:
            checks.undefined.exchanged(window, site, *keys, moved, lanes.mask)

    return hand_on


def vote(d: Decoding) -> ControlStep:
    """vote.sync."""
    mode = kernels.VOTES[d.mod("mode")]
    a, members, target = d.row_slot(d.source(1)), d.row_slot(d.source(2)), d.target(0)
    ballot = d.mod("mode") == "ballot"
    d.row = Row("vote", (target, a, members), (mode, int(ballot)))

    def perform(window: Window, lanes: Lanes) -> None:
        mask = lanes.mask
        out = window.scratch("uint32", 5)
        kernels.vote(mode, window.rows[a], window.rows[members], _inside(lanes), out)
        window.put(target, out if ballot else out != 0, mask)

    return gathered(d, perform, misses_ended=False)


def match(d: Decoding) -> ControlStep:
    """match.any and match.all."""
    everywhere = d.mod("mode") == "all"
    a, members, target = d.row_slot(d.source(1)), d.row_slot(d.source(2)), d.target(0)
    predicate = d.second(0)

    def perform(window: Window, lanes: Lanes) -> None:
        mask = lanes.mask
        out = window.scratch("uint32", 5)
        kernels.match(window.rows[a], window.rows[members], _inside(lanes), out)
        if everywhere:
            same = out == (window.rows[members] & np.repeat(_bits(window, mask), WARP))
            out = np.where(same, out, np.uint32(0))
            if predicate is not None:
                window.put(predicate, same, mask)
        window.put(target, out, mask)

    return gathered(d, perform, misses_ended=False)


def _bits(window: Window, mask: Mask | None) -> Any:
    """The active lanes of each warp, as bits."""
    if mask is None:
        return np.full(window.size // WARP, 0xFFFFFFFF, np.uint32)
    return lane_bits(mask)


def reduce(d: Decoding) -> ControlStep:
    """redux.sync."""
    kind = d.mod("type")
    name = f"{d.mod('op')}.{kind[0]}" if d.mod("op") in ("min", "max") else d.mod("op")
    a, members, target = d.row_slot(d.source(1)), d.row_slot(d.source(2)), d.target(0)
    code, absolute, nan = kernels.REDUCTIONS[name], d.has("abs"), d.has("NaN")
    hand_on = _reduced_bits_of(d)
    d.row = Row("reduce", (target, a, members), (code, int(absolute), int(nan)))

    def perform(window: Window, lanes: Lanes) -> None:
        mask = lanes.mask
        hand_on(window, lanes)
        out = window.scratch("uint32", 5)
        kernels.reduce(code, window.rows[a], window.rows[members], _inside(lanes), out, absolute, nan)
        window.put(target, out, mask)

    return gathered(d, perform, misses_ended=False)


def _reduced_bits_of(d: Decoding) -> Callable[[Window, Lanes], None]:
    """Make the result of a reduction undefined in all lanes of its mask if one value is."""
    source, target, members = d.register_at(1), d.first_result(), d.row_slot(d.source(2))
    if source is None or target is None:
        return lambda window, lanes: None
    either, hand_on = kernels.REDUCTIONS["or"], _bits_of(d)
    whole, result = whole_of(source), whole_of(target) | COMPUTED

    def reduced(window: Window, lanes: Lanes) -> None:
        def move(bits: Array, found: Array) -> None:
            lost = np.where(bits & whole == whole, result, np.uint32(0))
            kernels.reduce(either, lost, window.rows[members], _inside(lanes), found, False, False)

        hand_on(window, lanes, move)

    return reduced


def elect(d: Decoding) -> ControlStep:
    """elect.sync: the lowest lane of the mask."""
    members, target, predicate = d.row_slot(d.source(1)), d.target(0), d.second(0)
    second = () if predicate is None else (predicate,)
    d.row = Row("elect", (target, *second, members), (len(second),))
    direct = members != target and d.table.slots[target].dtype == "uint32"

    def perform(window: Window, lanes: Lanes) -> None:
        if direct and lanes.mask is None and window.in_place:
            rows = window.rows
            elected = window.scratch("bool", 5) if predicate is None else rows[predicate]
            kernels.elect(rows[members], NO_MASK, rows[target], elected)
            return
        leaders, elected = window.scratch("uint32", 5), window.scratch("bool", 5)
        # a mask without any present lane elects lane 0, and is reported elsewhere
        kernels.elect(window.rows[members], NO_MASK if lanes.mask is None else lanes.mask, leaders, elected)
        if predicate is not None:
            window.put(predicate, elected, lanes.mask)
        window.put(target, leaders, lanes.mask)

    return gathered(d, perform)


def active_mask(d: Decoding) -> Step:
    """activemask: the lanes that are converged here now."""
    target = d.target(0)

    def general(window: Window, mask: Mask | None) -> None:
        window.put(target, np.repeat(_bits(window, mask), WARP), mask)

    return action(general)


MEANINGS: Mapping[str, Callable[[Decoding], "Step | ControlStep"]] = {
    "shfl": shuffle,
    "vote": vote,
    "match": match,
    "redux": reduce,
    "elect": elect,
    "activemask": active_mask,
}
