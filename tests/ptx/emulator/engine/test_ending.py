"""Lanes that end, by one loop, against the same said plainly."""

import numpy as np
from tests import sampled

from kernbench.ptx.emulator.engine.ending import LIVING, STOPPED, end_lanes
from kernbench.ptx.emulator.lanes.lanes import WARP, from_mask, lane_bits
from kernbench.ptx.emulator.lanes.warp_bits import given


@sampled.each(range(30))
def test_lanes_end_in_a_block(seed):
    rng = np.random.default_rng(seed)
    ctas, inside = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    threads = int(rng.integers(1, inside * WARP + 1))
    alive = np.broadcast_to((np.arange(inside * WARP) < threads).reshape(inside, 1, WARP), (inside, ctas, WARP)).ravel()
    alive = alive.copy()
    cta_of = np.repeat(np.arange(inside * ctas) % ctas, WARP)
    ended_in = np.full(alive.size, LIVING)
    ended_in[rng.random(alive.size) < 0.1] = STOPPED
    bits, by_cta = lane_bits(alive), np.array([np.count_nonzero(alive & (cta_of == cta)) for cta in range(ctas)])
    for block in range(6):
        chosen = alive & (rng.random(alive.size) < rng.choice([0.02, 0.5, 1]))
        lanes = from_mask(chosen)
        if lanes is None:
            continue
        wanted = np.where(chosen & (ended_in == LIVING), block, ended_in)
        left = alive & ~chosen
        emptied = end_lanes(*given(lanes), block, ended_in, alive, bits, by_cta)
        np.testing.assert_array_equal(ended_in, wanted)
        np.testing.assert_array_equal(alive, left)
        np.testing.assert_array_equal(bits, lane_bits(left))
        np.testing.assert_array_equal(by_cta, [np.count_nonzero(left & (cta_of == cta)) for cta in range(ctas)])
        here = set(cta_of[chosen].tolist())
        assert emptied == sum(not (left & (cta_of == cta)).any() for cta in here)
