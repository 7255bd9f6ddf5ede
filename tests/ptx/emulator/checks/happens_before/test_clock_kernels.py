"""Rounds of barriers and meetings of warps in vector clocks: compiled loops against the same by lists of numbers."""

import numpy as np
import pytest
from tests import sampled

from kernbench.ptx.emulator.checks.happens_before import clock_kernels
from kernbench.ptx.emulator.lanes.lanes import WARP, from_mask
from kernbench.ptx.emulator.lanes.warp_bits import given
from kernbench.ptx.emulator.memory.cells import FLOOR, MET, NUMBER, OWN, TABLE, decode

CTAS, WARPS, COLUMNS = 2, 3, 11
LANE = 2 * WARPS
SEEDS = range(60)
NONE = np.zeros((0, 0), np.int64)


def clocks_of(rng):
    return rng.integers(0, 6, (CTAS, WARPS, COLUMNS)).astype(np.int32)


def crowd(rng):
    """Lanes that come, and the same as a row of lanes for each CTA and warp."""
    active = np.repeat(rng.random(CTAS * WARPS) < 0.7, WARP) & (rng.random(CTAS * WARPS * WARP) < rng.choice([0.3, 1]))
    active[5] = True
    rows = {(w % CTAS, w // CTAS): row for w, row in enumerate(active.reshape(-1, WARP)) if row.any()}
    return from_mask(active), rows


@sampled.each(SEEDS)
def test_all_who_meet_know_the_same_of_the_others(seed):
    rng = np.random.default_rng(seed)
    clocks, done, present = clocks_of(rng), rng.random(CTAS) < 0.7, rng.random((CTAS, WARPS)) < 0.7
    arrived = rng.integers(0, 8, (CTAS, COLUMNS)).astype(np.int32) if seed % 2 else np.zeros((0, 0), np.int32)
    met, partly = rng.integers(0, 5, CTAS * WARPS + 1), rng.random(CTAS * WARPS) < 0.5
    aware, shared = rng.random(CTAS * WARPS) < rng.choice([0, 0.5, 1]), rng.integers(0, 2, CTAS * WARPS)
    before = [clocks.tolist(), met.tolist(), partly.tolist()]
    unlike = clock_kernels.join_round(done, present, arrived, clocks, met, partly, aware, shared)
    rows, mets, parts = before
    wanted = 0
    for cta in np.flatnonzero(done).tolist():
        members = np.flatnonzero(present[cta]).tolist()
        if not members:
            continue
        given_rows = [arrived[cta].tolist()] if len(arrived) else []
        joined = [max(each) for each in zip(*[rows[cta][u] for u in members], *given_rows, strict=True)]
        for u in members:
            rows[cta][u] = [clock + (u == column) for column, clock in enumerate(joined)]
            mets[u * CTAS + cta], parts[u * CTAS + cta] = joined[u], False
        known = [bool(aware[u * CTAS + cta]) for u in members]
        wanted += any(known) and not (all(known) and len({int(shared[u * CTAS + cta]) for u in members}) == 1)
    assert [clocks.tolist(), met.tolist(), partly.tolist()] == before
    assert unlike == wanted


@sampled.each(SEEDS)
def test_who_comes_must_know_that_the_last_round_is_over(seed):
    rng = np.random.default_rng(seed)
    clocks, (lanes, rows) = clocks_of(rng), crowd(rng)
    last = rng.choice([-1, 2, 4, 7], (CTAS, WARPS), p=[0.6, 0.2, 0.1, 0.1]) if seed % 5 else NONE
    arrivals = rng.choice([-1, 2, 4], (CTAS, WARPS)) if seed % 3 else NONE
    lane, wanted = LANE if seed % 2 else -1, 0
    for cta, inside in rows if len(last) else ():
        known = clocks[cta, inside]
        waited = [u for u in range(WARPS) if last[cta, u] >= 0]
        sure = inside in waited or any(known[u] > last[cta, u] for u in waited)
        sure |= lane >= 0 and any(known[lane + u] >> 5 > last[cta, u] for u in waited)
        if not waited:
            sure = not len(arrivals) or all(known[u] > arrivals[cta, u] for u in range(WARPS) if u != inside)
        wanted += not sure
    assert clock_kernels.count_unsure(*given(lanes), last, clocks, lane, arrivals) == wanted


@sampled.each(SEEDS)
def test_a_closed_round_is_remembered_by_the_clocks_of_those_who_waited(seed):
    rng = np.random.default_rng(seed)
    clocks, done, waiting = clocks_of(rng), rng.random(CTAS) < 0.6, rng.random((CTAS, WARPS)) < 0.6
    came, last, before = rng.integers(0, 65, (CTAS, WARPS)), *(np.full((CTAS, WARPS), 99, np.int64) for _ in range(2))
    clock_kernels.close_round(done, waiting, clocks, came, last, before)
    for cta in range(CTAS):
        own = [int(clocks[cta, u, u]) - 1 if waiting[cta, u] else -1 for u in range(WARPS)]
        assert last[cta].tolist() == (own if done[cta] else [99] * WARPS)
        assert before[cta].tolist() == (came[cta].tolist() if done[cta] else [99] * WARPS)


@sampled.each(SEEDS)
def test_whole_warps_meet_or_nothing_is_done(seed):
    rng = np.random.default_rng(seed)
    clocks, (lanes, rows) = clocks_of(rng), crowd(rng)
    warps, mask = given(lanes)
    members = np.full(CTAS * WARPS, 0xFFFF_FFFF if seed % 2 else 0x7FFF_FFFF, np.uint32)
    named = np.full(len(warps) * WARP, 0xFFFF_FFFF, np.uint32)
    named[rng.random(len(named)) < rng.choice([0, 0.01])] = 0x7FFF_FFFF
    met, partly = np.zeros(CTAS * WARPS + 1, np.int64), np.ones(CTAS * WARPS, bool)
    before = clocks.copy()
    active = np.ones(len(named), bool) if not len(mask) else mask
    whole = bool((np.repeat(members[warps], WARP) & ~named)[active].any() == 0)
    assert clock_kernels.meet_whole(warps, mask, named, members, clocks, met, partly) == whole
    for cta in range(CTAS):
        for u in range(WARPS):
            meets = whole and (cta, u) in rows
            assert met[u * CTAS + cta] == (before[cta, u, u] if meets else 0)
            assert partly[u * CTAS + cta] == (not meets)
            before[cta, u, u] += meets
    np.testing.assert_array_equal(clocks, before)


@sampled.each(SEEDS)
def test_warps_advance_once_and_show_what_they_know(seed):
    rng = np.random.default_rng(seed)
    clocks, lanes = clocks_of(rng), rng.choice(CTAS * WARPS * WARP, 40)
    wanted = clocks.copy()
    for warp in set((lanes // WARP).tolist()):
        wanted[warp % CTAS, warp // CTAS, warp // CTAS] += 1
    seen = np.zeros(CTAS * WARPS, bool)
    clock_kernels.advance_once(lanes, clocks, seen)
    np.testing.assert_array_equal(clocks, wanted)
    assert not seen.any()
    warps, one, two = rng.permutation(CTAS * WARPS)[:4], WARPS, rng.choice([WARPS, 2 * WARPS])
    for warp in warps.tolist():
        row = wanted[warp % CTAS, warp // CTAS]
        for first in {one, int(two)}:
            row[first : first + WARPS] = np.maximum(row[first : first + WARPS], row[:WARPS])
        row[warp // CTAS] += 1
    clock_kernels.show(warps, one, int(two), clocks)
    np.testing.assert_array_equal(clocks, wanted)


@sampled.each(SEEDS)
def test_lanes_that_know_more_than_is_handed_on(seed):
    rng = np.random.default_rng(seed)
    lanes, slots = rng.permutation(CTAS * WARPS * WARP)[:20], rng.integers(-1, 3, 20)
    homes, rare = rng.integers(0, CTAS, 3), rng.choice([0, 0.1])
    special = rng.random(CTAS * WARPS * WARP) < rare
    partly, aware = (rng.random(CTAS * WARPS) < rare for _ in range(2))
    wanted = 0
    for lane, slot in zip(lanes.tolist(), slots.tolist(), strict=True):
        more = special[lane] or partly[lane // WARP] or aware[lane // WARP]
        wanted += slot >= 0 and homes[slot] == lane // WARP % CTAS and bool(more)
    assert clock_kernels.count_aware(slots, lanes, CTAS, homes, special, partly, aware) == wanted


@pytest.mark.parametrize("seed", range(10))
def test_the_table_of_warps(seed):
    random = np.random.default_rng(seed)
    ctas, warps = int(random.integers(1, 4)), int(random.integers(1, 6))
    clocks = random.integers(1, 50, (ctas, warps, 3 * warps)).astype(np.int32)
    table = random.integers(0, 40, (ctas * warps + 1, TABLE))
    before = table.copy()
    clock_kernels.fill_table(clocks, table)
    for warp in range(ctas * warps):
        known, inside = clocks[warp % ctas, warp // ctas].tolist(), warp // ctas
        others = [clock for other, clock in enumerate(known[:warps]) if other != inside]
        assert table[warp, FLOOR] == min([before[warp, MET], *others])
        assert decode(int(table[warp, OWN])) == (0, before[warp, NUMBER], known[inside])
    before[:-1, [FLOOR, OWN]] = table[:-1, [FLOOR, OWN]]
    assert np.array_equal(table, before)
