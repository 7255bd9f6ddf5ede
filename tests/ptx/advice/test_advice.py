"""Advice: what is said first, of which lines, and what is not worth saying."""

from dataclasses import replace

import numpy as np
import pytest
from tests.ptx.time import made
from tests.ptx.time.made import Op, Pipe, again, reading, shared

from kernbench.ptx.advice.advice import WORTH, _chosen, advise
from kernbench.ptx.advice.mend import Mend, Sure
from kernbench.ptx.advice.retiming import saved
from kernbench.ptx.time.changes import Again, Given

LOC = (
    '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "kernel.cu"\n.visible .entry k()\n{\n'
    "bar.sync 0;\n.loc 1 12 3\nbar.sync 0;\nbar.sync 0;\n.loc 1 14 3\nret;\n}\n"
)


def mend(kind: str, sure: Sure = Sure.SURE, message: str = "", beyond: str = "") -> Mend:
    return Mend(kind, 1, message or kind, "", sure, Given(), beyond=beyond)


def with_lines(timed: Again, lines: list[int]) -> Again:
    """The launch, as if its instructions were at some lines of a text with lines of a source."""
    rows = replace(timed.recording.instructions, line=np.array(lines, np.int32))
    return replace(timed, recording=replace(timed.recording, text=LOC, instructions=rows))


def test_a_kernel_that_only_computes_gets_no_advice():
    assert advise(again([[*[Op(Pipe.FMA, stall=1)] * 50, Op(Pipe.BRANCH, back=50, turns=16)]] * 16, ctas=132 * 4)) == []


@pytest.mark.parametrize("timed", [again(reading(32, 32), ctas=264), again(shared(16), ctas=132)])
def test_advice_is_worth_something_and_the_first_saves_most_of_what_is_sure(timed):
    found = advise(timed)
    assert all(one["cost_ps"] >= WORTH * timed.time.seconds * 1e12 for one in found)
    assert found[0]["sure"] == "sure"
    assert found[0]["cost_ps"] == max(one["cost_ps"] for one in found if one["sure"] == "sure")


def test_all_accesses_of_one_line_of_the_source_are_mended_together():
    load = made.load(32, 32, first=32)
    timed = again([[load, load, Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=3, turns=16)]] * 8, ctas=264)
    one_line, apart = (
        [one for one in advise(with_lines(timed, lines)) if one["kind"] == "uncoalesced access"]
        for lines in ([9, 10, 12, 12], [9, 12, 10, 10])
    )
    better = again([[*[made.load(4, 1, first=4)] * 2, Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=3, turns=16)]] * 8,
                   ctas=264)  # fmt: skip
    wanted = (timed.time.seconds - better.time.seconds) * 1e12
    (both,) = one_line
    assert both["source"] == {"file": "kernel.cu", "line": 12}
    assert "and 1 more of this line" in both["message"]
    assert both["cost_ps"] == pytest.approx(wanted, rel=0.02)
    # two lines: each by itself, and both together where that is clearly more
    assert max(one["cost_ps"] for one in apart) == pytest.approx(wanted, rel=0.02)


def test_what_asks_for_more_is_said_where_it_saves_clearly_more():
    small, large = mend("exposed wait"), mend("narrow access", beyond="exposed wait")
    assert list(_chosen([(small, 1.0), (large, 1.02)])) == [(small, 1.0)]
    assert list(_chosen([(small, 1.0), (large, 1.2)])) == [(small, 1.0), (large, 1.2)]


def test_of_several_sizes_of_a_change_the_smallest_that_is_enough_is_said():
    one, two, four = (mend("low occupancy", message="registers") for _ in range(3))
    assert list(_chosen([(one, 1.0), (two, 1.9), (four, 2.0)])) == [(two, 1.9)]


def test_a_launch_that_is_too_large_gets_advice_when_asked():
    timed = again(reading(32, 32), ctas=264)
    large = replace(timed, time=replace(timed.time, simulated=10**6, instructions=10**9))
    found = saved(large, False)
    assert (found["advice"], "--sensitivity" in found["advice_note"]) == ([], True)
    assert saved(timed, False).keys() == {"advice"}
    assert saved(timed, True).keys() == {"advice", "changes", "sensitivity"}
