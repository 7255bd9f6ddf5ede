"""Predictions of points: a grid of which the first CTAs were run stands for the whole one."""

import numpy as np
import pytest
from benchmarks.truth.points import points
from benchmarks.truth.predict import extended, footprint, within
from tests.ptx.time.made import Op, Pipe, launch, load

END = Op(Pipe.CONTROL)


def test_the_first_ctas_stand_for_the_others_in_turn():
    programs = [[load(sectors=4, first=4), END]], [[load(sectors=4, first=4), load(sectors=4, first=4), END]]
    recording, _ = launch([], ctas=8, classes=list(programs))
    whole = extended(recording, 2, 0)
    assert whole.cta_class.tolist() == [0, 1] * 4
    assert np.array_equal(whole.events.first, recording.events.first)


def test_what_is_touched_first_is_no_more_than_what_must_move():
    recording, _ = launch([[load(sectors=4, first=4), END]], ctas=8)
    whole = extended(recording, 2, 8 * 4 * 32 // 2)
    assert whole.events.first.tolist() == pytest.approx([2])
    assert whole.events.other.tolist() == pytest.approx([2])
    enough = extended(recording, 2, 1 << 20)
    assert enough.events.first.tolist() == [4]


def test_no_more_is_touched_first_than_the_arrays_have():
    """Rows that are looked up again and again: all that is moved is more than the table has."""
    bags = next(point for point in points() if point.id == "bags-16384")
    rows = next(point for point in points() if point.id == "saxpy-1048576")
    assert footprint(rows) == 2 * 4 * 1048576
    assert 0 < footprint(bags) < 200e6
    recording, _ = launch([[load(sectors=4, first=4), END]], ctas=8)
    fewer = within(recording, 4 * 4 * 32)
    assert fewer.events.first.tolist() == pytest.approx([2])
    assert within(fewer, 4 * 4 * 32).events.first.tolist() == pytest.approx([2])
