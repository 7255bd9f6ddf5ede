"""Sets of lanes that were made before: the same as if they were made again, whatever was asked for in between."""

import numpy as np
import pytest

from kernbench.ptx.emulator.lanes import remembered
from kernbench.ptx.emulator.lanes.lanes import WARP, union


def form(lanes):
    """All that a set says of itself."""
    if lanes is None:
        return None
    arrays = tuple(None if given is None else tuple(given.tolist()) for given in (lanes.warps, lanes.mask))
    return lanes.first, lanes.last, *arrays, lanes.count, lanes.live, lanes.whole


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("most", [3, 2048])
def test_parts_and_unions_are_those_that_would_be_made(seed, most, monkeypatch):
    monkeypatch.setattr(remembered, "_MOST", most)
    rng = np.random.default_rng(seed)
    warps = int(rng.choice([1, 4, 16, 80]))
    alive = np.ones(warps * WARP, bool)
    alive[int(rng.integers(1, alive.size)) :] = seed % 2 == 0
    sets = [remembered.living(alive)]
    patterns = [rng.random(alive.size) < share for share in (0, 0.01, 0.5, 1)] + [np.arange(alive.size) % WARP == 0]
    for _ in range(60):
        lanes = sets[int(rng.integers(len(sets)))]
        # what the register holds changes afterwards
        register = patterns[int(rng.integers(len(patterns)))][: lanes.positions].copy()
        wanted, found = lanes.split(register), remembered.parted(lanes, register)
        assert [form(one) for one in found] == [form(one) for one in wanted]
        register[:] = ~register
        assert [form(one) for one in found] == [form(one) for one in wanted]
        sets += filter(None, found)
        if None not in found:
            assert form(remembered.joined(*found, alive.size)) == form(union(*wanted, alive.size))
            assert form(remembered.joined(*found[::-1], alive.size)) == form(union(*wanted[::-1], alive.size))


def test_the_same_question_has_the_same_answer():
    everybody = remembered.living(np.ones(4 * WARP, bool))
    first, second = (remembered.parted(everybody, np.arange(4 * WARP) % WARP == 0) for _ in range(2))
    assert first[0] is second[0]
    assert first[1] is second[1]
    assert remembered.joined(*first, 4 * WARP) is remembered.joined(*second, 4 * WARP)
    assert remembered.living(np.ones(4 * WARP, bool)) is everybody


def test_lanes_that_live_are_not_those_that_end_later():
    alive = np.arange(2 * WARP) < 40
    everybody = remembered.living(alive)
    alive[:8] = False
    assert everybody.active()[:40].all()


def test_numbers_of_warps_and_lanes_cannot_be_changed():
    everybody = remembered.living(np.ones(3 * WARP, bool))
    warps, lanes = remembered.numbers_of(everybody)
    np.testing.assert_array_equal(warps, everybody.warp_numbers())
    np.testing.assert_array_equal(lanes, everybody.lane_numbers())
    with pytest.raises(ValueError, match="read-only"):
        lanes += 1


class _Emptied(dict):
    """What is remembered, where another thread empties it as soon as something is there."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.clear()


def test_what_another_thread_empties_is_answered_all_the_same(monkeypatch):
    for name in ("_PARTS", "_JOINED", "_LIVING", "_RUNS"):
        monkeypatch.setattr(remembered, name, _Emptied())
    everybody = remembered.living(np.ones(2 * WARP, bool))
    assert everybody.count == 2 * WARP
    first, second = remembered.parted(everybody, np.arange(2 * WARP) < WARP)
    assert form(remembered.joined(first, second, 2 * WARP)) == form(everybody)
    assert remembered.numbers_of(first)[0].tolist() == remembered.warps_of(first).tolist() == [0]
    assert remembered.living(np.zeros(WARP, bool)) is None
