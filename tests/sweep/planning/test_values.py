"""Values of swept keys: lists and ranges, that ranges are never written out, and what is wrong with a bad one."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.bench import find
from kernbench.common.errors import BenchError
from kernbench.sweep import make_plan
from kernbench.sweep.planning.plan import parse_over
from kernbench.sweep.planning.values import Counted, axis_of, parse_values


def values(text):
    return list(axis_of(parse_values(text)))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1..5", "1 2 3 4 5"),
        ("7..7", "7"),
        ("100..400/100", "100 200 300 400"),
        ("1..10/4", "1 5 9"),
        ("-3..3/3", "-3 0 3"),
        ("0.5..2/0.5", "0.5 1 1.5 2"),
        ("0.001..0.003/0.001", "0.001 0.002 0.003"),
        ("8..64*2", "8 16 32 64"),
        ("1e3..3e3/1e3", "1000 2000 3000"),
        ("3..20*1.5", "3 4.5 6.75 10.125 15.1875"),
        ("1, 2 ,8..64*2", "1 2 8 16 32 64"),
        ("a,b", "a b"),
        ("../m.toml,..", "../m.toml .."),
        ("[2,2],[2,4]", "[2,2] [2,4]"),
        ("1 .. 3 / 2", "1 3"),
    ],
)
def test_lists_and_ranges(text, wanted):
    assert values(text) == wanted.split()


def test_a_unit_follows_the_range():
    assert values("100..200/50 GB/s, 1..4*2 TB/s") == [
        *("100 GB/s", "150 GB/s", "200 GB/s"),
        *("1 TB/s", "2 TB/s", "4 TB/s"),
    ]
    assert values("1..2 ns") == ["1 ns", "2 ns"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8..1", r"'8\.\.1' is empty, as 1 is less than 8: write the smaller end first"),
        ("1..5/0", "has no end: a step is more than 0"),
        ("1..5/-1", "has no end: a step is more than 0"),
        ("1..5*1", "has no end: a factor is more than 1"),
        ("1..5*0.5", "has no end: a factor is more than 1"),
        ("0..8*2", "what is multiplied begins above 0"),
        ("1.5..3", r"only whole numbers are counted by one; say the step: 1\.5\.\.3/0\.5"),
        ("1..", "is no range: a range is a"),
        ("1...5", "is no range"),
        ("1..2..3", "is no range"),
        ("1..5/x", "is no range"),
        ("1..1e400", "more than 1,000,000,000 values: take a larger step"),
        ("1..1e4000", "is no range"),
        ("1..1e400*2", "ends beyond 1e300"),
        ("1..10000000000", "10,000,000,000 values, more than 1,000,000,000: take a larger step"),
        ("1..2*1.00001", "more than 10,000 values: take a larger factor"),
        ("1..5,3", "names 3 twice"),
        ("1..4,8,5..9", "names 8 twice"),
        ("1..4/1,0..8/3", "names 3 twice"),
    ],
)
def test_bad_ranges(text, words):
    with pytest.raises(BenchError, match=f"--over n_ranks:? .*{words}"):
        make_plan(find("milestone_gqa_llama70b"), None, {}, parse_over([f"n_ranks={text}"]))


@settings(max_examples=sampled.examples(15, 30))
@given(st.integers(-50, 50), st.integers(0, 60), st.fractions(1, 20, max_denominator=8), st.sampled_from(["", "ns"]))
def test_a_range_is_its_list(first, more, step, unit):
    step = Fraction(round(step * 8), 8)
    (part,) = axis_of([f"{first}..{first + more}/{float(step):g} {unit}".strip()]).parts
    assert isinstance(part, Counted)
    listed = [part[index] for index in range(len(part))]
    assert [float(value.split()[0]) for value in listed] == [
        first + float(step) * number for number in range(int(more // step) + 1)
    ]
    assert [part.index(value) for value in listed] == list(range(len(part)))
    assert part.index(f"{first - 1} {unit}".strip()) is None
    assert list(axis_of(part.written())) == listed


def test_values_that_are_added_keep_the_places_of_those_before():
    first = axis_of(["2", "8..64*2", "100..200/50 GB/s"])
    joined = first.joined(axis_of(["4", "8", "1..9", "150 GB/s"]))
    assert [joined.index(value) for value in first] == list(range(len(first)))
    assert (joined.index("4"), joined.index("8"), joined.index("9")) == (8, 1, 17)
    assert axis_of(joined.written()) == joined
    assert joined.joined(first) == joined


def test_a_large_plan_is_no_list():
    made = make_plan(
        find("milestone_gqa_llama70b"),
        "single_user_decode",
        {},
        {"machine.hbm.bandwidth": ["1..1000000"], "machine.link.latency": ["1..1000 ns"], "n_ranks": ["1..8"]},
    )
    assert (made.points, made.passes) == (8 * 10**9, 8)
    assert made.point((999_999, 999, 0)) == {
        "machine.hbm.bandwidth": "1000000",
        "machine.link.latency": "1000 ns",
        "n_ranks": "1",
    }
    assert next(made.positions((0, 0, 3))) == (0, 0, 3)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ("n_ranks=4,04", "names 4 twice"),
        ("n_ranks=4, +4", "names 4 twice"),
        ("n_ranks=1..4,0_3", "names 3 twice"),
        ("lengths=[9],[ 9]", r"\[9\] and \[ 9\] are the same value"),
        ("causal=yes,on", "yes and on are the same value"),
        ("machine.hbm.bandwidth=1 TB/s,512,1000", "1 TB/s and 1000 are the same value"),
        ("machine.hbm.bandwidth=1..4 GB/s,2000 MB/s", "2 GB/s and 2000 MB/s are the same value"),
        ("machine.hbm.bandwidth=1..100000 GB/s,0.05 TB/s", "50 GB/s and 0.05 TB/s are the same value"),
        ("machine.package.cubes=2x2,[2,2]", r"2x2 and \[2,2\] are the same value"),
    ],
)
def test_one_value_written_in_two_ways(over, words):
    with pytest.raises(BenchError, match=words):
        make_plan(find("milestone_gqa_llama70b"), None, {}, parse_over([over]))


def test_values_that_differ_are_taken():
    over = ["n_ranks=2,04", "machine.hbm.bandwidth=1..100000 GB/s,0.5,200 TB/s", "machine.link.latency=1 ns,1 us"]
    made = make_plan(find("milestone_gqa_llama70b"), None, {}, parse_over(over))
    assert [list(axis)[:2] for axis in made.axes] == [["2", "4"], ["1 GB/s", "2 GB/s"], ["1 ns", "1 us"]]
    assert made.points == 2 * 100_002 * 2
