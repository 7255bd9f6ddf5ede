"""Sets of lanes that are split: the same lanes in two sets, whatever form each of them has."""

import numpy as np
from tests import sampled

from kernbench.ptx.emulator.lanes.lanes import WARP, everything, from_mask


def members(lanes):
    """The lanes of a set, by number."""
    return set() if lanes is None else set(lanes.lane_numbers()[lanes.active()].tolist())


@sampled.each(range(60))
def test_a_split_has_every_lane_on_one_side(seed):
    rng = np.random.default_rng(seed)
    warps = int(rng.integers(1, 40))
    lanes = everything(warps)
    if seed % 3:
        mask = np.repeat(rng.random(warps) < rng.choice([0.05, 0.6]), WARP) & (rng.random(warps * WARP) < 0.7)
        mask[7] = True
        lanes = from_mask(mask)
    chosen = rng.random(lanes.positions) < rng.choice([0, 0.01, 0.5, 0.99, 1])
    if seed % 2:
        chosen = np.repeat(rng.random(lanes.warp_count) < 0.5, WARP)
    kept = chosen.copy()
    parts = lanes.split(chosen)
    wanted = set(lanes.lane_numbers()[chosen & lanes.active()].tolist())
    assert members(parts[0]) == wanted
    assert members(parts[1]) == members(lanes) - wanted
    np.testing.assert_array_equal(chosen, kept)
    for part in filter(None, parts):
        numbers = members(part)
        each = {warp: sum(lane // WARP == warp for lane in numbers) for warp in {lane // WARP for lane in numbers}}
        assert (part.count, part.live, part.whole) == (len(numbers), len(each), set(each.values()) == {WARP})
        assert part is lanes or part.mask is None or not np.shares_memory(part.mask, chosen)
