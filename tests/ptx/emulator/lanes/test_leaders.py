"""First lanes of warps by mask: what is remembered by a mask's value is what lanes one by one say."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernbench.ptx.emulator.lanes.lanes import WARP, from_mask
from kernbench.ptx.emulator.lanes.window import REMEMBERED, RunWindow


def window(warps):
    """A window of some warps, of a batch with a bank of predicates."""
    banks = {"bool": np.zeros((3, (warps + 2) * WARP), bool)}
    everybody = np.zeros((warps + 2) * WARP, bool)
    everybody[WARP : (warps + 1) * WARP] = True
    batch = SimpleNamespace(table=SimpleNamespace(slots={}), banks=banks)
    return RunWindow(batch, from_mask(everybody))


@pytest.mark.parametrize("warps", [1, 5, 2 * REMEMBERED // WARP])
def test_first_lanes_of_warps(warps):
    random, one = np.random.default_rng(warps), window(warps)
    # a predicate is another one each time, in the same place
    register = one.batch.banks["bool"][1, WARP : (warps + 1) * WARP]
    fresh = [random.random(warps * WARP) < chance for chance in (0, 0.02, 0.5)]
    for turn in range(40):
        register[:] = random.random(len(register)) < random.choice([0.0, 0.01, 0.3, 1.0])
        mask = [None, register, *fresh][turn % 5]
        rows = np.ones((warps, WARP), bool) if mask is None else mask.reshape(-1, WARP)
        wanted = [number * WARP + row.tolist().index(True) for number, row in enumerate(rows) if row.any()]
        chosen, of_warps = one.leaders(mask)
        assert chosen.tolist() == wanted
        assert of_warps.tolist() == [1 + position // WARP for position in wanted]
        singles = one.singles(mask)
        assert singles is None or singles.tolist() == np.flatnonzero(rows).tolist() == wanted
        if mask is not None and warps * WARP <= REMEMBERED:
            assert (singles is not None) == (rows.sum(axis=1) < 2).all()
        if mask is not register:
            assert one.leaders(mask)[1] is of_warps
