"""What actors know of each other, as it travels: joined piece by piece or at once, and by name of single threads."""

import functools

import numpy as np

from kernbench.ptx.emulator.checks.happens_before.knowledge import (
    _MOST_NAMED,
    Knowledge,
    Location,
    Reach,
    Release,
    together,
)
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.access_order import CTA_SCOPE, GPU_SCOPE

ACTORS, COLUMNS = 64, 4


def random_knowledge(rng) -> Knowledge:
    rows = {int(first) * COLUMNS: rng.integers(0, 9, COLUMNS, dtype=np.int32) for first in rng.integers(0, 4, 2)}
    lanes = {
        int(thread): int(clock) for thread, clock in zip(rng.integers(0, 99, 5), rng.integers(1, 9, 5), strict=True)
    }
    return Knowledge(rows, None, lanes)


def table(knowledge: Knowledge) -> tuple:
    return [knowledge.clock(number, COLUMNS) for number in range(ACTORS)], knowledge.lanes


def test_pieces_joined_at_once_are_as_joined_one_after_the_other():
    rng = np.random.default_rng(0)
    for count in (1, 2, 5):
        pieces = [random_knowledge(rng) for _ in range(count)]
        wanted = functools.reduce(lambda one, two: one.join(two, ACTORS), pieces)
        assert table(together(pieces, ACTORS)) == table(wanted)


def test_of_too_many_single_threads_their_warps_are_known():
    """More is known than is true, and never less; of other warps nothing is made up."""
    one = Knowledge(lanes=dict.fromkeys(range(0, 3 * _MOST_NAMED, 4), 3))
    two = Knowledge(lanes=dict.fromkeys(range(2, 3 * _MOST_NAMED, 4), 5))
    assert one.join(Knowledge(), 4096).lanes
    known = one.join(two, 4096).join(Knowledge(lanes={WARP * 4000: 7}), 4096)
    assert known.lanes == {WARP * 4000: 7}
    for thread, clock in (*one.lanes.items(), *two.lanes.items()):
        assert known.left(thread // WARP, clock, 1 << thread % WARP, COLUMNS) == 0
    assert known.clock(3 * _MOST_NAMED // WARP, COLUMNS) == 0
    assert known.left(0, 6, 1, COLUMNS) == 1


def test_an_update_that_has_acquired_speaks_for_those_before_it():
    reach = Reach(GPU_SCOPE, 0, 0)
    first, narrow = Release(Knowledge(), reach, 0, 1), Release(Knowledge(), Reach(CTA_SCOPE, 0, 0), 0, 1)
    own = Release(Knowledge(), Reach(GPU_SCOPE, 1, 1), 4, 1)
    location = Location(reach, [first, narrow])
    location.write(own.reach, [own], True, 4, 1, ACTORS, True)
    assert location.releases == [narrow, own]
    location = Location(reach, [first, narrow])
    location.write(own.reach, [own], True, 4, 1, ACTORS, False)
    assert location.releases == [first, narrow, own]
