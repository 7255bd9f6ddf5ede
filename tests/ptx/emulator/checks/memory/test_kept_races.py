"""Races with reads of which nothing comes: they are kept until the launch has ended, together by who reads."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernbench.ptx.emulator.checks.memory.idle_reads import IdleReads
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.access import RACE
from kernbench.ptx.emulator.memory.port import Spot

LOAD, WAY = 4, (4, 0)


@pytest.fixture
def kept():
    """The checks of a launch whose load 4 may be for nothing; three warps."""
    launch = SimpleNamespace(program=SimpleNamespace(idle_loads={LOAD: [WAY]}), sites=None, later=[])
    return launch, IdleReads(launch, None, 3)


def test_races_of_a_warp_are_kept_together_and_reported_if_it_stores(kept):
    launch, idle = kept
    lanes = np.arange(2 * WARP)
    races = np.zeros((2 * WARP, 5), np.int64)
    races[:, 0] = np.arange(2 * WARP)
    found = []

    def add_findings(spot, report, races):
        found.append((int(report[RACE, 0]), races[:, 0].tolist(), len(report)))

    at_once = idle.split(SimpleNamespace(number=LOAD), Spot(lanes, lanes.astype(np.uint64), 0, 4), races, add_findings)
    assert not len(at_once)
    # one for each warp, with no copy of the room that a launch has for its suspects
    assert len(launch.later) == 2
    idle.leave(WAY, np.array([WARP + 3]))
    for report in launch.later:
        report()
    assert found == [(WARP, list(range(WARP, 2 * WARP)), 5)]


def test_races_of_a_warp_that_has_stored_are_reported_at_once(kept):
    launch, idle = kept
    idle.leave(WAY, np.array([0]))
    races = np.zeros((3, 5), np.int64)
    races[:, 0] = 0, WARP, 1
    lanes = np.arange(2 * WARP)
    at_once = idle.split(SimpleNamespace(number=LOAD), Spot(lanes, lanes.astype(np.uint64), 0, 4), races, None)
    assert at_once[:, 0].tolist() == [0, 1]
    assert len(launch.later) == 1
