"""Loops over shared addresses find the CTAs and offsets that a cluster's map finds."""

import numpy as np
import pytest

from kernbench.ptx.emulator.asynchronous.copies.begin_kernels import CTA, ENDS, OFFSET, find_ends
from kernbench.ptx.emulator.asynchronous.copies.thread_kernels import find_targets
from kernbench.ptx.emulator.barriers import mbarrier_kernels
from kernbench.ptx.emulator.lanes.clusters import RANK_SHIFT, ClusterMap

_CTAS, _COUNT = 8, 500
_SIZE, _STRIDE = 4096, 4352


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_each_loop_looks_where_the_map_says(ranks):
    random = np.random.default_rng(ranks)
    lanes = random.integers(0, _CTAS * 4 * 32, _COUNT)
    addresses = random.integers(0, 1100, _COUNT).astype(np.uint64) * np.uint64(4)
    addresses += random.integers(0, 4, _COUNT).astype(np.uint64) % np.uint64(2)
    if ranks > 1:
        addresses |= random.integers(0, 6, _COUNT).astype(np.uint64) << np.uint64(RANK_SHIFT)
    # generic addresses have more above
    addresses[::2] |= np.uint64(1 << 50)
    ctas, offsets = ClusterMap(_CTAS, ranks).find(addresses, lanes)

    ends = np.empty((ENDS, _COUNT), np.int64)
    find_ends(addresses, lanes, _CTAS, ranks, _SIZE, _STRIDE, ends)
    np.testing.assert_array_equal(ends[CTA], ctas)
    np.testing.assert_array_equal(ends[OFFSET], offsets)

    targets = np.empty(_COUNT, np.int64)
    find_targets(addresses, lanes, _CTAS, ranks, _STRIDE, _SIZE, 4, targets)
    legal = (ctas >= 0) & (offsets <= _SIZE - 4) & (offsets % 4 == 0)
    np.testing.assert_array_equal(targets, np.where(legal, (ctas * _STRIDE + offsets) // 4, -1))

    slots, lookup = np.empty(_COUNT, np.int64), random.integers(-1, 50, (_CTAS, _SIZE // 8))
    state = np.full((50, 40), mbarrier_kernels.NEVER)
    mbarrier_kernels.locate(addresses, lanes, (_CTAS, ranks, _SIZE, lookup, state), slots)
    legal = (ctas >= 0) & (offsets + 8 <= _SIZE) & (offsets % 8 == 0)
    found = lookup[np.maximum(ctas, 0), np.minimum(offsets // 8, _SIZE // 8 - 1)]
    np.testing.assert_array_equal(slots, np.where(legal, found, -2))
    assert len(set(ctas.tolist())) == _CTAS + (ranks > 1)
