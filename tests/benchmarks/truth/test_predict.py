"""Predictions of points: what a sample of a grid touches for the first time."""

import pytest
from benchmarks.truth.points import points
from benchmarks.truth.predict import footprint, within
from tests.ptx.time.made import Op, Pipe, launch, load

END = Op(Pipe.CONTROL)


def test_what_is_touched_first_is_no_more_than_what_must_move():
    recording, _ = launch([[load(sectors=4, first=4), END]], ctas=8)
    whole = within(recording, 8 * 4 * 32 // 2)
    assert whole.events.first.tolist() == pytest.approx([2])
    assert whole.events.other.tolist() == pytest.approx([2])
    enough = within(recording, 1 << 20)
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
