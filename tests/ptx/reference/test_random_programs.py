"""A sample of random programs on the emulator and the reference; `benchmarks/ptx_random.py` runs thousands."""

import numpy as np
import pytest
from benchmarks.ptx_random import Tally, check, programs
from tests import sampled

from kernbench import ptx
from kernbench.ptx.emulator.barriers import barriers
from kernbench.ptx.reference.programs import MORE, SEGMENTS, changed_program, safe_program


@pytest.mark.parametrize("part", range(2))
def test_both_agree(part):
    tally = Tally()
    for seed in sampled.some(range(10 * part, 10 * (part + 1)), 5):
        for program in programs(seed):
            check(program, tally)
    assert tally.failures == []


def test_warps_that_are_not_there_would_be_noticed(monkeypatch):
    """Barriers that take every warp of a run for present."""
    monkeypatch.setattr(barriers, "given", lambda lanes: (lanes.warp_numbers(), np.empty(0, bool)))
    tally = Tally()
    for seed in (24, 27):
        check(safe_program(seed), tally)
    assert [seed for seed, _, _ in tally.failures] == [24, 27]


def test_a_race_may_decide_whether_a_program_ends():
    """Of this one only some orders deadlock; both executors see its race."""
    tally = Tally()
    check(changed_program(32125), tally)
    assert tally.failures == []
    assert dict(tally.verdicts) == {"race, ends by luck": 1}


def test_blocks_of_a_cluster_hand_values_to_each_other():
    """Without the barrier of the cluster in front, stores to another block come to an mbarrier that is not made yet."""
    tally, changed = Tally(), changed_program(910258)
    assert changed.cluster == 2
    assert changed.change == "drop barrier.cluster.arrive.release"
    for program in (safe_program(910258), changed):
        check(program, tally)
    assert tally.failures == []
    assert dict(tally.verdicts) == {"ordered, ends": 1, "race, ends": 1}


@pytest.mark.parametrize(("seed", "blocks"), [(920037, 4), (920083, 3)])
def test_clusters_of_more_than_two_blocks(seed, blocks):
    """Each sends to the next one round the cluster and hears from the one behind; one barrier or wait is missing."""
    tally = Tally()
    for program in (safe_program(seed), changed_program(seed)):
        assert program.cluster == blocks
        check(program, tally)
    assert tally.failures == []
    assert dict(tally.verdicts) == {"ordered, ends": 1, "race, ends": 1}


@pytest.mark.parametrize("seed", [930025, 930103, 9600357])
def test_copies_to_several_blocks_of_a_cluster(seed):
    """With a wait for the bytes missing, or a barrier of the cluster that comes too early, or that nobody arrives at.

    Without the arrivals a copy may signal an mbarrier of another block before its init.
    """
    tally = Tally()
    for program in (safe_program(seed), changed_program(seed)):
        assert "multicast" in program.kinds
        check(program, tally)
    assert tally.failures == []
    assert dict(tally.verdicts) == {"ordered, ends": 1, "race, ends": 1}


@pytest.mark.parametrize("seed", [492, 528])
def test_updates_of_several_blocks_of_a_cluster(seed):
    """red.async to the words of one block; its mbarrier counts the bytes of all."""
    tally = Tally()
    for program in (safe_program(seed), changed_program(seed)):
        assert "collect" in program.kinds
        check(program, tally)
    assert tally.failures == []
    assert dict(tally.verdicts) == {"ordered, ends": 1, "race, ends": 1}


def test_lanes_that_come_late_to_a_shuffle_change_nothing_of_those_that_wait():
    """One lane polls a flag; the index of the others' shuffle is set in the block that it runs after them."""
    tally = Tally()
    check(safe_program(14700011), tally)
    assert tally.failures == []


def test_programs_follow_from_their_seed_alone():
    assert safe_program(3).text == safe_program(3).text
    assert changed_program(3).text == changed_program(3).text
    assert safe_program(3).text != safe_program(4).text
    assert changed_program(3).text != safe_program(3).text


def test_programs_are_ptx_and_use_every_segment():
    seen = set()
    for seed in range(120):
        program = safe_program(seed)
        seen.update(program.kinds)
        if seed < 30:
            assert ptx.parse(program.text).kernels["kernel"].params
    assert seen == {*SEGMENTS, *MORE, "lanes_leave", "ring", "multicast", "collect"}
