"""Waits on mbarriers: barriers are found and looked at by one loop, as by one that finds them and one that looks."""

import numpy as np
from tests import sampled

from kernbench.ptx.emulator.barriers import mbarrier_kernels as kernels

CTAS, SIZE, BARRIERS = 3, 256, 12


def made(rng):
    """Where barriers lie in each CTA, and their states, some of which have ended."""
    lookup, state = np.full((CTAS, SIZE // 8), -1), np.zeros((BARRIERS, kernels.COLUMNS), np.int64)
    for slot in range(BARRIERS):
        lookup[int(rng.integers(CTAS)), int(rng.integers(SIZE // 8))] = slot
    state[:, kernels.PHASE] = rng.integers(0, 6, BARRIERS)
    state[:, kernels.LIVE] = kernels.ALIVE
    state[rng.random(BARRIERS) < 0.1, kernels.LIVE] = kernels.INVALID
    return lookup, state


def by_python(slots, wanted, parity, state):
    """Which waits pass."""
    phases = [int(row[kernels.PHASE]) for row in state]
    alive = [slot >= 0 and state[slot, kernels.LIVE] == kernels.ALIVE for slot in slots]
    return [
        not there or ((phases[slot] & 1) != (want & 1) if parity else phases[slot] > want >> kernels.TOKEN_SHIFT)
        for slot, want, there in zip(slots.tolist(), wanted.tolist(), alive, strict=True)
    ]


@sampled.each(range(60))
def test_one_loop_does_what_two_did(seed):
    rng = np.random.default_rng(seed)
    lookup, state = made(rng)
    known = [(cta, 8 * word) for cta, word in zip(*np.nonzero(lookup >= 0), strict=True)]
    chosen = [known[int(rng.integers(len(known)))] for _ in range(int(rng.integers(1, 5)))]
    if seed % 4 == 0:
        chosen[0] = 0, int(rng.choice([4, SIZE - 4, SIZE, SIZE + 64]))
    lanes = np.array([32 * cta + int(rng.integers(32)) for cta, _ in chosen])
    addresses = np.array([offset for _, offset in chosen], np.uint64)
    parity = bool(seed % 2)
    wanted = rng.integers(0, 2, len(lanes)) if parity else rng.integers(0, 6, len(lanes)) << kernels.TOKEN_SHIFT
    slots, passed = np.empty(len(lanes), np.int64), np.empty(len(lanes), bool)
    twice = state.copy()
    usable = kernels.locate(addresses, lanes, (CTAS, 1, SIZE, lookup, twice), slots)
    count = kernels.test(slots, wanted, parity, twice, passed)
    assert passed.tolist() == by_python(slots, wanted, parity, state)
    assert kernels.count_passed(slots, wanted, parity, state) == count == np.count_nonzero(passed)
    once, found, known_to_pass = state.copy(), np.empty_like(slots), np.empty_like(passed)
    looked = kernels.look(addresses, lanes, wanted, parity, (CTAS, 1, SIZE, lookup, once), found, known_to_pass)
    np.testing.assert_array_equal(found, slots)
    if usable < len(lanes):
        assert looked == -1
        np.testing.assert_array_equal(once, state)
    else:
        assert looked == count
        np.testing.assert_array_equal(known_to_pass, passed)
        np.testing.assert_array_equal(once, twice)
