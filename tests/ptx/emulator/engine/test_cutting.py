"""How batches are cut into parts: each cluster once, and no later than with pieces of one size."""

import heapq
import random

import pytest
from tests import sampled

from kernbench.ptx.emulator.engine.cutting import cut, halved
from kernbench.ptx.emulator.engine.splitting import _fixed


def ended(plan, jobs, fixed):
    """When the last part ends, where each worker takes the widest part that nobody has taken."""
    free = [0.0] * jobs
    for size in sorted((size for pieces in plan for size in pieces), reverse=True):
        heapq.heapreplace(free, free[0] + size + fixed)
    return max(free)


def alike(batches, jobs, fixed):
    """The soonest end of plans that cut all batches into as many pieces of nearly one size."""
    return min(
        ended([[size // n + (i < size % n) for i in range(n)] for size in batches], jobs, fixed)
        for n in range(1, min(min(batches), jobs) + 1)
    )


@pytest.mark.parametrize(
    ("jobs", "plan"),
    [
        (1, [[44], [44], [44]]),
        (2, [[44], [44], [22, 22]]),
        (3, [[44], [44], [44]]),
        (6, [[22, 22]] * 3),
        (16, [[9, 9, 9, 9, 8]] * 3),
    ],
)
def test_three_batches_for_workers_that_they_can_be_dealt_to_evenly(jobs, plan):
    assert cut([44, 44, 44], jobs, 6.0) == plan


@pytest.mark.parametrize(("jobs", "gain"), [(4, 1.15), (5, 1.1), (8, 1.15)])
def test_three_batches_for_workers_that_they_cannot_be_dealt_to_evenly(jobs, gain):
    """Pieces of one size leave workers without a part, or give all of them one more than need be."""
    batches = [44, 44, 44]
    plan = cut(batches, jobs, 6.0)
    assert [sum(pieces) for pieces in plan] == batches
    assert gain * ended(plan, jobs, 6.0) < alike(batches, jobs, 6.0)


@sampled.each(range(200))
def test_any_batches_are_cut_whole_and_no_later_than_alike(seed):
    rng = random.Random(seed)
    most, jobs, fixed = rng.randint(1, 60), rng.randint(1, 20), rng.choice([0.0, 0.5, 3.0, 20.0])
    batches = [most] * rng.randint(0, 40) + [rng.randint(1, most)]
    plan = cut(batches[:-1] or batches, jobs, fixed)
    assert [sum(pieces) for pieces in plan] == (batches[:-1] or batches)
    plan = cut(batches, jobs, fixed)
    assert [sum(pieces) for pieces in plan] == batches
    assert all(size > 0 for pieces in plan for size in pieces)
    finer = halved(plan)
    assert [sum(pieces) for pieces in finer] == batches
    assert all(max(halves) <= -(-max(pieces) // 2) for halves, pieces in zip(finer, plan, strict=True))
    # fewer parts may cost a tenth, and a cluster cannot be cut; a worker may take another part than it was meant to
    assert ended(plan, jobs, fixed) <= 1.1 * alike(batches, jobs, fixed) + fixed + 1


def test_what_a_part_costs_whatever_its_width_is_seen_in_parts_of_two_widths():
    def seconds(threads):
        return 0.1 + 0.0001 * threads

    widths = [4000, 4000, 2000, 2000]
    assert _fixed(widths, list(map(seconds, widths))) == pytest.approx(1000)
    # of nearly one width, or too short to tell
    assert _fixed([4000, 3000], [0.5, 0.4]) is None
    assert _fixed([4000, 2000], [0.02, 0.01]) is None
    # the clock of a busy machine may show anything
    assert _fixed([4000, 2000], [0.5, 0.1]) == 0.0
    assert _fixed([4000, 2000], [0.5, 0.6]) == 4000
