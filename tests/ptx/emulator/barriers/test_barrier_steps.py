"""Steps of barriers as compiled loops: random warps, masks and states against the same said plainly, warp by warp."""

from collections import defaultdict

import numpy as np
from tests import sampled

from kernbench.ptx.emulator.barriers import barrier_kernels as steps
from kernbench.ptx.emulator.barriers import mbarrier_kernels as kernels
from kernbench.ptx.emulator.barriers.use_kernels import USE, count_new, open_new, uses_of
from kernbench.ptx.emulator.lanes.lanes import WARP, from_mask
from kernbench.ptx.emulator.lanes.warp_bits import given

CTAS, WARPS = 3, 4
SEEDS = range(40)


class Crowd:
    """Some lanes of a batch, of which some have ended, and a barrier to which others may have come before."""

    def __init__(self, seed):
        rng = self.rng = np.random.default_rng(seed)
        active = rng.random(CTAS * WARPS * WARP) < rng.choice([0.02, 0.5, 1.0])
        active &= np.repeat(rng.random(CTAS * WARPS) < 0.7, WARP)
        active[0] = True
        self.active = active
        alive = active | (rng.random(len(active)) < rng.choice([0.1, 1.0]))
        self.living = np.packbits(alive.reshape(-1, WARP), axis=1, bitorder="little").view(np.uint32)[:, 0]
        self.lanes = from_mask(active)
        self.came = rng.integers(0, 40, (CTAS, WARPS))
        self.units = rng.integers(0, 200, CTAS)
        self.expected = rng.choice([-1, 64, 128], CTAS)
        self.here = rng.integers(0, 3, CTAS) * 32

    def warps(self):
        """The warps that come: CTA, warp in it, lanes that come, and as how many threads they count."""
        for warp, row in enumerate(self.active.reshape(-1, WARP)):
            if row.any():
                cta, inside = warp % CTAS, warp // CTAS
                count, alive = int(row.sum()), max(int(self.living[warp]).bit_count(), 1)
                before = int(self.came[cta, inside])
                full = sum(1 for n in range(before + 1, before + count + 1) if n % alive == 0)
                yield cta, inside, count, count + (WARP - alive) * full


@sampled.each(SEEDS)
def test_who_comes_is_counted(seed):
    crowd = Crowd(seed)
    lanes, units, came, expected = (x.copy() for x in (crowd.here, crowd.units, crowd.came, crowd.expected))
    present = np.zeros((CTAS, WARPS), bool)
    waits, count = bool(seed % 2), [-1, 96][seed // 2 % 2]
    steps.enter(*given(crowd.lanes), crowd.living, waits, count, lanes, units, expected, came, present)
    wanted = [x.copy() for x in (crowd.here, crowd.units, crowd.expected, crowd.came, np.zeros((CTAS, WARPS), bool))]
    for cta, inside, lanes_here, threads in crowd.warps():
        wanted[0][cta] += lanes_here
        wanted[1][cta] += threads
        wanted[2][cta] = wanted[2][cta] if count < 0 else count
        wanted[3][cta, inside] += lanes_here
        wanted[4][cta, inside] |= waits
    for found, want in zip((lanes, units, expected, came, present), wanted, strict=True):
        np.testing.assert_array_equal(found, want)


@sampled.each(SEEDS)
def test_who_is_one_too_many_is_counted_in_the_next_round(seed):
    crowd, sums, until = Crowd(seed), defaultdict(int), {}
    for cta, inside, _, threads in crowd.warps():
        sums[cta] += threads
        until[inside * CTAS + cta] = int(crowd.units[cta]) + sums[cta]
    most, scratch = max(until.values()), np.zeros(CTAS, np.int64)
    for count in (1, most - 1, most, most + 1, 1024):
        rounds = np.full(CTAS * WARPS, -1)
        known = (crowd.living, crowd.came, crowd.units)
        last = steps.find_rounds(*given(crowd.lanes), *known, count, scratch, rounds)
        wanted = {warp: (threads - 1) // count for warp, threads in until.items()}
        assert {warp: rounds[warp] for warp in until} == wanted
        assert last == max(wanted.values())
        assert (last == 0) == (most <= count)


@sampled.each(SEEDS)
def test_others_wait_for_another_number(seed):
    crowd, everybody = Crowd(seed), WARPS * WARP
    for count in (64, everybody):
        wanted = 0
        for cta, *_ in crowd.warps():
            before = everybody if crowd.expected[cta] < 0 else crowd.expected[cta]
            wanted += bool(crowd.here[cta] > 0 and before != count)
        assert steps.count_others(*given(crowd.lanes), crowd.here, crowd.expected, everybody, count) == wanted


@sampled.each(SEEDS)
def test_a_round_ends_with_all_who_live_or_with_enough(seed):
    rng = np.random.default_rng(seed)
    lanes, units, expected = rng.integers(0, 3, 6) * 32, rng.integers(0, 5, 6) * 32, rng.choice([-1, 64, 96], 6)
    alive, done = rng.integers(0, 3, 6) * 32, np.zeros(6, bool)
    count, whole = steps.complete(lanes, units, expected, alive, done)
    enough = [units[i] >= expected[i] if expected[i] >= 0 else lanes[i] == alive[i] for i in range(6)]
    wanted = np.array([lanes[i] > 0 and enough[i] for i in range(6)])
    np.testing.assert_array_equal(done, wanted)
    assert (count, whole) == (wanted.sum(), (wanted & (expected < 0)).sum())
    votes, came, present = np.ones(6, np.int64), np.ones((6, 2), np.int64), np.ones((6, 2), bool)
    kept = lanes.copy()
    steps.begin_again(done, lanes, units, expected, votes, came, present)
    for array, empty, full in ((lanes, 0, kept), (votes, 0, 1), (came, 0, 1), (present, False, True)):
        np.testing.assert_array_equal(array[done], empty)
        np.testing.assert_array_equal(array[~done], full[~done] if full is kept else full)
    np.testing.assert_array_equal(expected[done], -1)
    np.testing.assert_array_equal(units[done], 0)


@sampled.each(range(120))
def test_who_completes_a_round_alone_leaves_the_barrier_as_it_was(seed):
    crowd = Crowd(seed)
    if seed % 2:
        # all lanes of all warps but some, as they come to a barrier mostly
        living = np.unpackbits(crowd.living.view(np.uint8), bitorder="little").astype(bool)
        some = np.tile(np.repeat(crowd.rng.random(CTAS) < 0.7, WARP), WARPS)
        some[:WARP] = True
        crowd.active = living & some
        crowd.lanes = from_mask(crowd.active)
        crowd.came[...] = 0
    here = np.where(crowd.rng.random(CTAS) < 0.9, 0, 32)
    alive = np.array([one.bit_count() for one in crowd.living.tolist()]).reshape(WARPS, CTAS).sum(axis=0)
    for count in (-1, 32, 64, 128):
        before = [
            here,
            here.copy(),
            np.full(CTAS, -1),
            np.zeros((CTAS, WARPS), np.int64),
            np.zeros((CTAS, WARPS), bool),
        ]
        lanes, units, expected, came, present = after = [one.copy() for one in before]
        steps.enter(*given(crowd.lanes), crowd.living, True, count, *after)
        done, votes = np.zeros(CTAS, bool), np.zeros(CTAS, np.int64)
        steps.complete(lanes, units, expected, alive, done)
        touched = lanes > here
        steps.begin_again(done, lanes, units, expected, votes, came, present)
        same = all((one == two).all() for one, two in zip(before, after, strict=True)) and done[touched].all()
        found = steps.pass_alone(
            *given(crowd.lanes), crowd.living, count, here, alive, crowd.rng.integers(0, 9, (2, CTAS))
        )
        # warps that come in part, or after others, go the long way
        whole = all(threads % WARP == 0 for _, _, _, threads in crowd.warps()) and not here[touched].any()
        assert found <= same
        assert found or not (same and whole and seed % 2)


@sampled.each(SEEDS)
def test_uses_of_barriers_by_warp_and_barrier(seed):
    rng = np.random.default_rng(seed)
    lanes = np.sort(rng.choice(CTAS * WARPS * WARP, 60, replace=False))
    lanes = rng.permutation(lanes) if seed % 3 == 0 else lanes
    slots, amounts = rng.integers(-1, 4, 60), rng.integers(0, 9, 60)
    state, followed = rng.integers(0, 50, (4, kernels.COLUMNS)), 1 + seed % CTAS
    uses = np.empty((60, USE), np.int64)
    count = uses_of(slots, lanes, amounts, CTAS, followed, state, uses)
    wanted = {}
    for lane, slot, amount in zip(lanes.tolist(), slots.tolist(), amounts.tolist(), strict=True):
        if slot >= 0 and lane // WARP % CTAS < followed:
            wanted[lane // WARP, slot] = wanted.get((lane // WARP, slot), 0) + amount
    phases = state[:, kernels.PHASE] - state[:, kernels.START]
    rows = [[warp, slot, int(phases[slot]), amount] for (warp, slot), amount in sorted(wanted.items())]
    assert uses[:count].tolist() == rows


@sampled.each(SEEDS)
def test_warps_that_are_whole(seed):
    crowd, rng = Crowd(seed), np.random.default_rng(seed + 100)
    lanes = np.flatnonzero(crowd.active)
    chosen = rng.random(len(lanes)) < 0.9 if seed % 2 else np.zeros(0, bool)
    whole, counts = rng.random(CTAS * WARPS) < 0.5, rng.integers(0, 9, CTAS * WARPS)
    kernels.cover(lanes, chosen, crowd.living, counts, whole)
    for warp in np.unique(lanes // WARP).tolist():
        here = np.count_nonzero((lanes[chosen] if len(chosen) else lanes) // WARP == warp)
        assert whole[warp] == (here >= int(crowd.living[warp]).bit_count())


def test_new_barriers_take_the_next_numbers_and_columns():
    used, lookup = np.array([0, 2]), np.full((2, 8), -1)
    homes, offsets, columns = (np.zeros(4, np.int64) for _ in range(3))
    state, written = np.zeros((4, kernels.COLUMNS), np.int64), np.full(16, 0xFFFF_FFFF_FFFF_FFFF, np.uint64)
    where = (used, lookup, homes, offsets, columns, state)
    open_new(np.array([1, 0]), np.array([16, 8]), np.array([3, 5]), 1, 20, 21, where, (64, written))
    assert (used.tolist(), lookup[1, 2], lookup[0, 1], columns.tolist()) == ([1, 3], 1, 2, [0, 21, 20, 0])
    assert state[1:3, kernels.PENDING].tolist() == state[1:3, kernels.EXPECTED].tolist() == [3, 5]
    untouched = 0xFFFF_FFFF_FFFF_FFFF & ~kernels.TOUCHED
    assert [i for i in range(16) if int(written[i]) == untouched] == [1, 10]
    assert count_new(np.array([-1, -1]), np.array([1, kernels.LIMIT])) == 2
    for slots, counts in (([-1, 0], [1, 1]), ([-2, -1], [1, 1]), ([-1, -1], [0, 1]), ([-1, -1], [1, 1 << 20])):
        assert count_new(np.array(slots), np.array(counts)) == 1
