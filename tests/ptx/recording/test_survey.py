"""Compiled surveys of accesses against counts by sets, for any addresses, widths and masks."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.ptx.recording import survey
from kernbench.ptx.recording.recording import OWN_REACH
from kernbench.ptx.recording.reuse import BatchReuse, GlobalReuse

WARPS = 3
BASE = np.uint64(1 << 40)
CTAS = np.arange(WARPS) % 2
WIDTHS = st.sampled_from((1, 2, 4, 8, 16, 32))


@st.composite
def accesses(draw, space):
    """Addresses of each lane, aligned to their width, the width, and a mask or none."""
    width = draw(WIDTHS)
    stride = draw(st.sampled_from((0, 1, 2, 3, 8, 32, 33)))
    start = draw(st.integers(0, 64))
    plain = start + stride * np.arange(WARPS * 32)
    drawn = np.array(draw(st.lists(st.integers(0, space // 32 - 1), min_size=WARPS * 32, max_size=WARPS * 32)))
    places = (plain if draw(st.booleans()) else drawn) % (space // 32) * width
    mask = np.array(draw(st.lists(st.booleans(), min_size=WARPS * 32, max_size=WARPS * 32)))
    # some warps have no active lane at all
    mask &= np.repeat(draw(st.lists(st.booleans(), min_size=WARPS, max_size=WARPS)), 32)
    return places.astype(np.uint64), width, mask if draw(st.booleans()) else np.zeros(0, bool)


def lanes_of(places, mask, warp):
    return [int(places[n]) for n in range(32 * warp, 32 * warp + 32) if not len(mask) or mask[n]]


def units(places, width, unit):
    return {byte // unit for place in places for byte in range(place, place + width)}


def rows_of(same, rows, mask):
    """The rows of warps with an active lane."""
    live = [not len(mask) or mask[32 * warp : 32 * warp + 32].any() for warp in range(WARPS)]
    return [rows[0 if same else warp].tolist() if live[warp] else None for warp in range(WARPS)]


def new_rows():
    return np.full((WARPS, survey.COLUMNS), 77, np.int32), np.zeros((WARPS, survey.REUSE), np.int32)


@settings(max_examples=sampled.examples(30, 60), deadline=None, derandomize=True)
@given(accesses(1 << 16), st.booleans(), st.sampled_from([survey.LOADS, survey.STORES, survey.ADDS]))
def test_sectors_and_lines_of_global_memory(access, cached, act):
    places, width, mask = access
    reuse = BatchReuse(GlobalReuse(), 2)
    rows, known = new_rows()
    touching = reuse.touching(1 << 16, 1024)
    same, alike = survey.survey_global(
        (places + BASE, np.uint64(0), BASE), mask, width, cached, act, CTAS, touching, rows, known,
        survey.new_scratch(),
    )  # fmt: skip
    found, touched = rows_of(same, rows, mask), rows_of(alike, known, mask)
    before, own = set(), [set(), set()]
    for warp in range(WARPS):
        active = lanes_of(places, mask, warp)
        if not active:
            continue
        sectors = units(active, width, 32)
        turns = rounds(active, width) if act == survey.ADDS else 0
        assert found[warp] == [len(sectors), len(units(active, width, 128)), turns, len(active) * width, -1, -1]
        mine = own[CTAS[warp]]
        assert touched[warp][:2] == (
            [len(sectors & mine), len(sectors & before - mine)] if cached else [0, len(sectors & before)]
        )
        assert touched[warp][survey.STORED] == (0 if act == survey.LOADS else len(sectors & before))
        before |= sectors
        mine |= sectors


def rounds(places, width):
    """The most lanes that want one word of a sector, all sectors together."""
    words = Counter(int(word) for place in places for word in range(place // 4, (place + width - 1) // 4 + 1))
    most: dict[int, int] = {}
    for word, lanes in words.items():
        most[word // 8] = max(most.get(word // 8, 0), lanes)
    return sum(most.values())


def passes(places, width, serial):
    """For as many lanes as 128 bytes serve: how often the busiest bank is used, by lanes or by different words."""
    words = [word for place in places for word in range(place // 4, (place + width - 1) // 4 + 1)]
    words = words if serial else sorted(set(words))
    return max((sum(1 for word in words if word % 32 == bank) for bank in range(32)), default=0)


@settings(max_examples=sampled.examples(30, 60), deadline=None, derandomize=True)
@given(accesses(1 << 14), st.booleans())
def test_passes_over_the_banks_of_shared_memory(access, serial):
    places, width, mask = access
    rows, _ = new_rows()
    given_places = (places, np.uint64(0), np.uint64(0))
    act = survey.SERIAL if serial else survey.APART
    same = survey.survey_shared(given_places, mask, width, 32, act, rows, survey.new_scratch())
    together = min(32, 128 // width)
    for warp, found in enumerate(rows_of(same, rows, mask)):
        groups = [range(32 * warp + first, 32 * warp + first + together) for first in range(0, 32, together)]
        active = [[int(places[n]) for n in group if not len(mask) or mask[n]] for group in groups]
        count = sum(map(len, active))
        if count:
            needed, shared = (sum(passes(group, width, one) for group in active) for one in (serial, False))
            assert found == [0, shared if serial else 0, needed, count * width, -1, -1]


# passes that an H200 took, by the bytes of a lane and by which lanes want the same
PAIRED = [
    (4, lambda lane: lane // 2, 4, 1), (8, lambda lane: lane, 8, 2), (8, lambda lane: lane // 2, 8, 1),
    (8, lambda lane: 0, 8, 1), (16, lambda lane: lane, 16, 4), (16, lambda lane: lane // 2, 16, 2),
    (16, lambda lane: lane // 16, 16, 2), (16, lambda lane: 0, 16, 2), (16, lambda lane: lane % 2, 16, 2),
    (16, lambda lane: lane % 4, 16, 4), (16, lambda lane: lane % 8, 16, 4), (16, lambda lane: lane % 2, 128, 4),
    (16, lambda lane: lane % 4, 128, 16),
]  # fmt: skip


@pytest.mark.parametrize(("width", "which", "apart", "expected"), PAIRED)
def test_loads_of_lanes_that_want_the_same_in_pairs_take_half_of_the_passes(width, which, apart, expected):
    places = np.array([which(lane) * apart for lane in range(32)], np.uint64)
    rows = np.zeros((1, survey.COLUMNS), np.int32)
    none = np.zeros(0, bool)
    given_places = (places, np.uint64(0), np.uint64(0))
    survey.survey_shared(given_places, none, width, 32, survey.PAIRED, rows, survey.new_scratch())
    assert rows[0, survey.WAVEFRONTS] == expected
    # lanes that do nothing are in nobody's way
    odd = np.arange(32) % 2 == 1
    survey.survey_shared(given_places, odd, width, 32, survey.PAIRED, rows, survey.new_scratch())
    assert rows[0, survey.WAVEFRONTS] <= expected


@settings(max_examples=sampled.examples(20, 40), deadline=None, derandomize=True)
@given(accesses(1 << 12))
def test_local_memory_has_a_word_of_each_lane_in_a_line(access):
    places, width, mask = access
    rows, _ = new_rows()
    same = survey.survey_local((places, np.uint64(0), np.uint64(0)), mask, width, rows, survey.new_scratch())
    for warp, found in enumerate(rows_of(same, rows, mask)):
        if found is None:
            continue
        active = [n for n in range(32) if not len(mask) or mask[32 * warp + n]]
        words = {(word, n // 8) for n in active for word in units([int(places[32 * warp + n])], width, 4)}
        assert found == [len(words), len({word for word, _ in words}), 0, len(active) * width, -1, -1]


@settings(max_examples=sampled.examples(20, 40), deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(st.integers(-4, 8), min_size=3, max_size=3),
    st.sampled_from((1, 2, 4, 16)),
)
def test_sectors_of_boxes(dims, box, corner, element):
    inner = dims[0] * 16
    strides = [element, inner * element, inner * element * dims[1]]
    shape = np.array([[inner, dims[1], dims[2]], strides, [box[0] * 16, box[1], box[2]], [1, 1, 1]], np.int64)
    first = [corner[0] * 16, corner[1], corner[2]]
    expected = set()
    for z in range(first[2], first[2] + box[2]):
        for y in range(first[1], first[1] + box[1]):
            for x in range(max(0, first[0]), min(inner, first[0] + box[0] * 16)):
                if 0 <= y < dims[1] and 0 <= z < dims[2]:
                    at = 64 + x * strides[0] + y * strides[1] + z * strides[2]
                    expected |= {at // 32, (at + element - 1) // 32}
    rows, known = np.zeros((1, survey.COLUMNS), np.int32), np.zeros((1, survey.REUSE), np.int32)
    touching = BatchReuse(GlobalReuse(), 1).touching(1 << 20, 0)
    corners = np.array([first], np.int64)
    ctas, scratch = np.zeros(1, np.int64), survey.new_scratch()
    survey.survey_boxes(64, shape, element, corners, ctas, False, touching, rows, known, scratch)
    assert rows[0, :2].tolist() == [len(expected), len({sector // 4 for sector in expected})]
    assert known.tolist() == [[0] * survey.REUSE]


def test_what_a_cta_touched_too_long_ago_is_forgotten():
    whole = GlobalReuse()
    reuse, scratch = BatchReuse(whole, 1), survey.new_scratch()
    reach = OWN_REACH // 32

    def touch(first, count):
        """Sectors one after the other, a warp's at a time: how many were touched before by the CTA, and by anybody."""
        total = np.zeros(survey.REUSE, np.int64)
        for start in range(first, first + count, 32):
            rows, known = np.zeros((1, survey.COLUMNS), np.int32), np.zeros((1, survey.REUSE), np.int32)
            places = (np.arange(start, start + 32) * 32).astype(np.uint64), np.uint64(0), np.uint64(0)
            touching = reuse.touching(1 << 24, 64)
            survey.survey_global(
                places, np.zeros(0, bool), 4, True, survey.LOADS, np.zeros(1, np.int64), touching, rows, known, scratch
            )
            total += known[0]
        return total.tolist()

    assert touch(0, reach) == [0, 0, 0, 0, 0]
    # all of it is within reach: 2**18 bytes ago
    assert touch(0, reach) == [reach, 0, 18 * reach, 0, 0]
    assert touch(reach, 2 * reach) == [0, 0, 0, 0, 0]
    found = touch(0, reach)
    assert found[:2] == [0, reach]
    assert found[3] == 19 * reach


def test_a_sector_that_was_stored_to_stays_so_whoever_reads_it():
    """Loads, stores and loads again: only stores after the first one find their sectors stored to, for ever."""
    reuse, scratch = BatchReuse(GlobalReuse(), 1), survey.new_scratch()
    found = []
    for act in (survey.LOADS, survey.STORES, survey.LOADS, survey.ADDS, survey.STORES):
        rows, known = np.zeros((1, survey.COLUMNS), np.int32), np.zeros((1, survey.REUSE), np.int32)
        places = (np.arange(32) * 32).astype(np.uint64), np.uint64(0), np.uint64(0)
        touching = reuse.touching(1 << 16, 64)
        survey.survey_global(
            places, np.zeros(0, bool), 4, True, act, np.zeros(1, np.int64), touching, rows, known, scratch
        )
        found.append(known[0, [survey.OWN, survey.STORED]].tolist())
    assert found == [[0, 0], [32, 0], [32, 0], [32, 32], [32, 32]]
