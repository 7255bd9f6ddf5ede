"""What changes of a GPU and of its occupancy would save, and which launches are timed again unasked."""

from dataclasses import replace

import pytest
from tests.ptx.time import made
from tests.ptx.time.made import Op, Pipe, again, reading, shared

from kernbench.ptx.advice.advice import advise
from kernbench.ptx.time.changes import MOST_UNASKED, SAMPLE


def test_a_rate_that_binds_saves_a_tenth_of_its_part_and_others_nothing():
    timed = again([[made.load(32, 8, first=32.0)] * 8 + [Op(Pipe.FMA, wait=1)]] * 16, ctas=264)
    saved = timed.rates()
    assert saved["hbm bandwidth"] == pytest.approx(1 - 1 / 1.1, abs=0.03)
    assert max(saved["tensor cores"], saved["mufu"]) < 0.001
    saved = again([[*[Op(Pipe.MUFU)] * 50, Op(Pipe.BRANCH, back=50, turns=10)]] * 16, ctas=8).rates()
    assert saved["mufu"] > 0.05 > saved["hbm bandwidth"]


@pytest.mark.parametrize("programs", [reading(32, 32), shared(16)])
def test_changes_that_are_timed_at_once_save_what_they_save_one_after_the_other(programs, monkeypatch):
    found = []
    for jobs in ("1", "4"):
        monkeypatch.setenv("KERNBENCH_JOBS", jobs)
        timed = again(programs, ctas=264)
        found.append((timed.rates(), timed.one_more_cta(), advise(timed)))
    assert found[0] == found[1]


def test_one_more_cta_says_what_it_needs():
    timed = again(reading(4, 1), ctas=800, registers=128)
    change = timed.one_more_cta()
    assert timed.time.occupancy.limit == "registers"
    assert change.needs == "at most 80 registers a thread instead of 128"
    fewer = again(reading(4, 1), ctas=800, registers=80)
    assert fewer.time.occupancy.ctas >= timed.time.occupancy.ctas + 1
    assert again(reading(4, 1), ctas=10).one_more_cta() is None


def test_shared_memory_that_limits_says_how_much_would_do():
    change = again(reading(4, 1), ctas=800, shared=110_000).one_more_cta()
    assert change.needs.startswith("at most ")
    assert change.needs.endswith(" bytes of shared memory instead of 110,000")
    assert change.saves > 0


def test_large_launches_are_timed_again_only_when_asked():
    timed = again(reading(4, 1))
    assert timed.small
    assert not replace(timed, time=replace(timed.time, simulated=MOST_UNASKED + 1)).small


def test_a_sample_of_a_large_launch_takes_as_long():
    timed = again(reading(32, 32), ctas=132 * 32)
    sampled = replace(timed, time=replace(timed.time, simulated=SAMPLE + 1)).sampled()
    assert (sampled.budget, sampled.time.simulated <= timed.time.simulated) == (SAMPLE, True)
    assert sampled.time.seconds == pytest.approx(timed.time.seconds, rel=0.02)
    assert again(reading(4, 1)).sampled().time.simulated == again(reading(4, 1)).time.simulated
    assert timed.sampled_soon
    assert not replace(timed, time=replace(timed.time, instructions=10**9)).sampled_soon
