"""Locations, address spaces, waits and budgets on their own."""

import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernbench.result import Finding, FindingLog, SourceLocation
from kernbench.result.finding import rank_ranges
from kernbench.safety.memory import WINDOW, AddressSpace, Region
from kernbench.safety.source_locations import SiteTable
from kernbench.safety.waits import Waiter, deadlock


def test_locations_are_numbered_once_per_line():
    def here():
        # the table looks past this frame, as past the context's method
        return sites.here()

    sites = SiteTable([])
    numbers = set()
    for _ in range(3):
        numbers.add(here())
    assert len(numbers) == 1
    location = sites.locations[numbers.pop()]
    assert location.file == __file__
    assert location.function == sys._getframe().f_code.co_name
    assert location.text == "numbers.add(here())"
    assert location.context(1)[1][0] == location.line


def test_source_that_cannot_be_read_is_no_accident():
    # not "<string>": Python 3.13 knows the text of `python -c` by that name, and workers of pytest are started so
    location = SourceLocation("<nowhere>", 3)
    assert location.text == ""
    assert location.context() == []
    assert str(location) == "<nowhere>:3"


@given(st.sets(st.integers(0, 40), min_size=1))
def test_rank_ranges_say_every_rank(ranks):
    text = rank_ranges(ranks)
    said = set()
    for part in text.split(" ", 1)[1].split(", "):
        first, _, last = part.partition("-")
        said.update(range(int(first), int(last or first) + 1))
    assert said == ranks


def test_rank_ranges_as_people_write_them():
    assert rank_ranges([3]) == "rank 3"
    assert rank_ranges([5, 0, 1, 2]) == "ranks 0-2, 5"


def test_findings_fold_but_not_across_subjects():
    log = FindingLog()
    location = SourceLocation(__file__, 1)
    for rank, subject in ((0, "q"), (1, "q"), (1, "k")):
        log.add(Finding("out-of-bounds", f"first of {subject}", location, ranks=(rank,)), subject)
    q, k = log.findings()
    assert (q.count, q.ranks, q.message) == (2, (0, 1), "first of q")
    assert (k.count, k.ranks) == (1, (1,))


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), min_size=1, max_size=3),
    st.booleans(),
)
def test_strided_access_is_allowed_exactly_when_every_element_lies_inside(start, axes, storing):
    size = 40
    space = AddressSpace()
    space.add(Region("t", WINDOW, (size,), "f32", np.arange(size, dtype=np.float32), np.ones(size, bool)))
    shape, strides = tuple(n for n, _ in axes), tuple(s for _, s in axes)
    index = sum(
        np.arange(n).reshape([-1 if i == j else 1 for j in range(len(axes))]) * s for i, (n, s) in enumerate(axes)
    )
    touched = start + np.asarray(index).reshape(shape)
    inside = touched.min() >= 0 and touched.max() < size
    address = WINDOW + 4 * start
    if storing:
        _, problem = space.store(address, np.zeros(shape, np.float32), shape, strides, "f32")
        distinct = np.unique(touched).size == touched.size
        if not inside:
            assert problem.kind == "out-of-bounds"
        elif not distinct:
            assert problem.kind == "race"
        else:
            assert problem is None
            assert set(np.flatnonzero(space.region_at(address).array == 0)) >= set(touched.ravel())
    else:
        data, _, problem = space.load(address, shape, strides, None)
        assert (problem is None) == inside
        if inside:
            np.testing.assert_array_equal(data, touched)
        else:
            assert np.isnan(data).all()


def test_values_lent_out_survive_a_later_store():
    space = AddressSpace()
    array = np.arange(4, dtype=np.float32)
    space.add(Region("t", WINDOW, (4,), "f32", array, None, shared=True))
    before, _, _ = space.load(WINDOW, (4,), None, None)
    space.store(WINDOW, np.full(4, 9, np.float32), (4,), None, "f32")
    after, _, problem = space.load(WINDOW, (4,), None, None)
    assert problem is None
    np.testing.assert_array_equal(before, [0, 1, 2, 3])
    np.testing.assert_array_equal(array, [0, 1, 2, 3])
    np.testing.assert_array_equal(after, [9, 9, 9, 9])


def test_deadlock_report_groups_and_follows():
    location = SourceLocation(__file__, 1)
    waiters = [Waiter(r, "receive", location, (r + 1) % 4, "sent") for r in range(3)]
    finding = deadlock(waiters, {3: "has returned"}, "try this")
    assert "ranks 0-2: receive" in finding.message
    assert "rank 2 could go on if rank 3 sent, but rank 3 has returned" in finding.message
    cycle = deadlock([*waiters, Waiter(3, "send", location, 1, "received")], {}, "")
    assert "wait-for cycle: rank 1 -> rank 2 -> rank 3 -> rank 1" in cycle.message
