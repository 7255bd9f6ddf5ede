"""`make test` runs a sample of large sets, in which every kind of case occurs; `pytest --full` runs all of them."""

import itertools

import pytest
from tests import sampled

pytest_plugins = ["pytester"]


@pytest.fixture(params=[False, True], ids=["sample", "full"])
def full(request, monkeypatch):
    monkeypatch.setenv(sampled.FULL, "1" if request.param else "")
    return request.param


def test_some_cases_of_every_kind(full):
    cases = ["a1", "b1", "a2", "a3", "c1", "a4", "b2"]
    assert sampled.some(cases, 2, kind=lambda case: case[0]) == (cases if full else ["a1", "b1", "c1", "a4", "b2"])
    assert sampled.some(cases, 1) == (cases if full else ["a1"])
    assert sampled.some(cases, 3) == (cases if full else ["a1", "a3", "b2"])
    assert sampled.some(cases, 9) == cases


def test_examples(full):
    assert sampled.examples(20, 100) == (100 if full else 20)


@pytest.mark.parametrize("count", [0, 5, 11, 60, 99])
def test_every_value_of_every_parameter_is_in_a_sample(count):
    cases = [dict(zip("abc", values, strict=True)) for values in itertools.product(range(3), range(5), range(4))]
    chosen = [cases[index] for index in sampled.covering(cases, count)]
    assert {value for case in chosen for value in case.items()} == {value for case in cases for value in case.items()}
    assert min(count, 60) <= len(chosen) <= max(count, 8)
    assert sampled.covering(cases, count) == sampled.covering(cases, count)


SUITE = """
import pytest
from tests import sampled

@pytest.mark.sampled(6)
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(5))
def test_marked(a, b): ...

@pytest.mark.parametrize("a", sampled.some(range(10), 3))
def test_listed(a): ...

@pytest.mark.parametrize("a", range(3))
def test_other(a): ...

@pytest.mark.named
def test_long(): ...

@pytest.mark.programs
def test_started(): ...

@pytest.mark.programs
@pytest.mark.named
def test_both(): ...
"""


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ([], {"marked": 6, "listed": 3, "other": 3}),
        (["--full"], {"marked": 20, "listed": 10, "other": 3, "long": 1, "started": 1, "both": 1}),
        (["test_it.py"], {"marked": 6, "listed": 3, "other": 3, "long": 1, "started": 1, "both": 1}),
        (["--programs"], {"started": 1}),
        (["--programs", "--full"], {"started": 1, "both": 1}),
        (["--programs", "test_it.py"], {"marked": 6, "listed": 3, "other": 3, "long": 1, "started": 1, "both": 1}),
        (
            ["--programs", "--full", "test_it.py"],
            {"marked": 20, "listed": 10, "other": 3, "long": 1, "started": 1, "both": 1},
        ),
        (["test_it.py::test_long"], {"long": 1}),
        (["test_it.py::test_marked[4-3]"], {"marked": 1}),
    ],
)
def test_the_option_runs_whole_sets(pytester, monkeypatch, options, counts):
    monkeypatch.setenv(sampled.FULL, "")
    pytester.makepyfile(test_it=SUITE)
    pytester.makeini("[pytest]\nmarkers =\n  sampled(count): some\n  named: long\n  programs: others")
    inside = pytester.inline_run("-p", "no:cacheprovider", *options, plugins=[sampled])
    ran = [call.nodeid for call in inside.getcalls("pytest_runtest_logstart")]
    assert {name: sum(f"test_{name}" in test for test in ran) for name in counts} == counts
    assert len(ran) == sum(counts.values())


def test_a_folder_of_which_nothing_is_left_is_said(pytester):
    pytester.mkdir("inside").joinpath("test_it.py").write_text("def test_one(): ...")
    done = pytester.runpytest("-p", "no:cacheprovider", "--programs", "--full", "inside", plugins=[sampled])
    done.assert_outcomes(deselected=1)
    done.stdout.fnmatch_lines(
        ["--programs leaves only tests that start programs, and there is none in what was named*"]
    )


def test_each_case_is_tested_and_the_one_that_fails_is_named():
    seen = []

    @sampled.each([3, 1, 0, 2])
    def test_it(case):
        """Of a number."""
        seen.append(case)
        assert 6 // case

    with pytest.raises(ZeroDivisionError) as raised:
        test_it()
    assert seen == [3, 1, 0]
    assert raised.value.__notes__ == ["the case is 0"]
    assert (test_it.__name__, test_it.__doc__, test_it.__module__) == ("test_it", "Of a number.", __name__)


def test_each_row_is_given_as_parameters():
    seen = []

    @sampled.each_row([(1, "a"), (2, "b")])
    def test_it(number, letter):
        seen.append(f"{number}{letter}")
        assert number < 2

    with pytest.raises(AssertionError) as raised:
        test_it()
    assert seen == ["1a", "2b"]
    assert raised.value.__notes__ == ["the case is (2, 'b')"]
    assert test_it.__name__ == "test_it"
