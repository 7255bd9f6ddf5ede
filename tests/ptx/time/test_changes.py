"""What changes would save, and advice: planted faults with what they cost, and launches with nothing to say."""

from dataclasses import replace

import numpy as np
import pytest
from tests.ptx.time import made
from tests.ptx.time.made import Act, Kind, Op, Pipe

from kernbench.ptx.machine.model import load
from kernbench.ptx.time import presentation
from kernbench.ptx.time.advice import ACCOUNT, AGAIN, WORTH, Advice, above_floor, advise, once
from kernbench.ptx.time.causes import REASONS
from kernbench.ptx.time.changes import MOST_UNASKED, Again
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.result import Occupancy, Unit
from kernbench.ptx.time.sources import Source

GPU = load("h200")


def again(programs, **given) -> Again:
    recording, streams = made.launch(programs, **given)
    return Again(recording, streams, GPU, time_launch(recording, streams, GPU))


def advice(timed: Again, time_again=True) -> dict:
    found = advise(timed, timed.one_more_cta() if time_again else None, time_again)
    assert all(one["cost_ps"] >= WORTH * timed.time.seconds * 1e12 for one in found)
    return {one["kind"]: one for one in found}


def reading(sectors: int, lines: int) -> list[list[Op]]:
    """Warps that read 128 bytes again and again, a line or many of them at once."""
    return [[made.load(sectors, lines, first=sectors), Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=2, turns=16)]] * 8


def shared(passes: int) -> list[list[Op]]:
    event = {"wavefronts": passes, "bytes": 128, "lanes": 32}
    access = Op(Pipe.SHARED, write=0, kind=Kind.SHARED_LOAD, event=event, act=Act.LOAD)
    return [[access, access, access, Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=4, turns=12)]] * 8


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
        found.append((timed.rates(), timed.one_more_cta(), advise(timed, None, True)))
    assert found[0] == found[1]


def test_accesses_that_touch_too_many_sectors_are_named_with_what_they_cost():
    scattered = advice(again(reading(32, 32), ctas=264))["uncoalesced access"]
    assert (scattered["line"], scattered["by"]) == (1, AGAIN)
    assert "12 % of the bytes" in scattered["message"]
    whole, better = again(reading(32, 32), ctas=264).time.seconds, again(reading(4, 1), ctas=264).time.seconds
    assert scattered["cost_ps"] == pytest.approx((whole - better) * 1e12, rel=0.02)
    assert "uncoalesced access" not in advice(again(reading(4, 1), ctas=264))


def test_bank_conflicts_are_named_with_what_they_cost():
    conflict = advice(again(shared(16), ctas=132))["bank conflict"]
    whole, better = again(shared(16), ctas=132).time.seconds, again(shared(1), ctas=132).time.seconds
    assert conflict["cost_ps"] == pytest.approx((whole - better) * 1e12, rel=0.02)
    assert "16.0 times the passes" in conflict["message"]
    assert "bank conflict" not in advice(again(shared(1), ctas=132))


def test_spills_are_named_with_what_they_cost():
    program = [Op(Pipe.LOCAL, write=0, act=Act.LOAD), Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=2, turns=50)]
    recording, streams = made.launch([program] * 8)
    spilled = np.array([op.pipe == Pipe.LOCAL for op in program] * 8)
    streams = replace(streams, ops=replace(streams.ops, implicit=spilled), spill_bytes=64)
    found = advice(Again(recording, streams, GPU, time_launch(recording, streams, GPU)))
    assert found["spills"]["message"].startswith("64 bytes of registers")
    assert "spills" not in advice(again([program] * 8))


def test_one_more_cta_says_what_it_needs():
    timed = again(reading(4, 1), ctas=800, registers=128)
    change = timed.one_more_cta()
    assert timed.time.occupancy.limit == "registers"
    assert change.needs == "at most 80 registers a thread instead of 128"
    assert advice(timed)["low occupancy"]["hint"].endswith(change.needs)
    fewer = again(reading(4, 1), ctas=800, registers=80)
    assert fewer.time.occupancy.ctas >= timed.time.occupancy.ctas + 1
    assert again(reading(4, 1), ctas=10).one_more_cta() is None


def test_shared_memory_that_limits_says_how_much_would_do():
    change = again(reading(4, 1), ctas=800, shared=110_000).one_more_cta()
    assert change.needs.startswith("at most ")
    assert change.needs.endswith(" bytes of shared memory instead of 110,000")
    assert change.saves > 0


def test_a_tail_wave_and_exposed_waits_come_from_the_account():
    found = advice(again(reading(4, 1), ctas=132 * 8 + 1, registers=255))
    assert found["tail wave"]["by"] == found["exposed wait"]["by"] == ACCOUNT
    assert found["tail wave"]["line"] is None
    assert "tail wave" not in advice(again(reading(4, 1), ctas=132))


def test_exposed_waits_cost_no_more_than_the_time_above_the_floor():
    timed = again(reading(4, 1), ctas=1000)
    found = [one for one in advise(timed, None, False) if one["kind"] == "exposed wait"]
    measured = presentation.measure(timed.time)["gap_ps"]
    waits = sum(ps for name, ps in measured.items() if name in REASONS.values())
    assert found
    assert sum(one["cost_ps"] for one in found) <= waits
    assert above_floor(timed.time) * 1e12 == pytest.approx(waits, rel=1e-6)


@pytest.mark.parametrize(
    ("warps", "busy", "hint"),
    [
        (8, 0.1, "load earlier, or have more bytes in flight: wider loads, more stages, more warps"),
        # no room for more of them
        (64, 0.1, "load earlier, or have more bytes in flight: wider loads, more stages"),
        (64, 0.8, "hbm works for 80 % of the cycles: move fewer bytes"),
    ],
)
def test_a_wait_for_memory_is_not_to_be_hidden_where_there_is_no_room(warps, busy, hint):
    timed = again(reading(4, 1), ctas=132)
    time = replace(timed.time, occupancy=Occupancy(8, warps, 64, "warps"), busy={Unit.HBM: busy})
    found = advice(replace(timed, time=time), False)
    assert found["exposed wait"]["hint"] == hint


def test_a_kernel_that_only_computes_gets_no_advice():
    assert advice(again([[*[Op(Pipe.FMA, stall=1)] * 50, Op(Pipe.BRANCH, back=50, turns=16)]] * 16, ctas=132)) == {}


def test_large_launches_are_timed_again_only_when_asked():
    timed = again(reading(4, 1))
    assert timed.small
    assert not replace(timed, time=replace(timed.time, simulated=MOST_UNASKED + 1)).small


def test_accesses_of_one_line_of_the_source_are_named_once():
    given = [
        Advice("bank conflict", line, f"`{line}` takes 2.0 times", 100 - line, AGAIN, "pad rows") for line in (4, 5, 6)
    ]
    given.append(Advice("exposed wait", 5, "waits", 50, ACCOUNT, "load earlier"))
    found = once(given, dict.fromkeys((4, 5, 6), Source("mine.cu", 7)))
    assert [(one.kind, one.line) for one in found] == [("bank conflict", 4), ("exposed wait", 5)]
    assert found[0].message == "`4` takes 2.0 times (and so do 2 more)"
    # without a source, those that say the same
    assert len(once(given, {})) == 2
    assert len(once(given, {4: Source("mine.cu", 7), 5: Source("mine.cu", 8), 6: Source("mine.cu", 9)})) == 4
