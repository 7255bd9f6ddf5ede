"""The kernels of a program by their predicted time, and what those that take most are explained with."""

from dataclasses import replace

from tests.report.samples import metrics, sample

from kernbench.report.time.kernels import kernels_text, longest_kernels


def kernel(name, time_ps, launches=1, **more):
    whole = {"launches": launches, "time_ps": time_ps, "longest": 3, **more}
    return name, replace(sample(), timeline=None, metrics=metrics(time_ps // launches) | {"in_all": whole})


RUNS = [
    kernel("short", 40),
    kernel("long", 600, launches=2, site="mine.py:7"),
    ("untimed", sample()),
    kernel("some", 360),
]


def test_kernels_are_ranked_by_the_time_of_all_their_launches():
    ranked = longest_kernels(RUNS)
    assert [(name, share) for name, _, share in ranked] == [("long", 0.6), ("some", 0.36), ("short", 0.04)]


def test_those_that_take_most_are_explained_and_the_others_counted():
    (_, first), (_, last) = kernels_text(RUNS)
    lines = str(first).splitlines()
    assert lines[:3] == [
        "long: 60 % of the time predicted for the program",
        "time 300 ps",
        "  2 launches, 600 ps in all; this is launch 3 (mine.py:7), which takes longest",
    ]
    assert "launches" not in str(last)
    assert str(last).endswith("1 more kernel, 4 % of the time: kernbench exec --time --html FILE has them all\n")
    assert list(kernels_text([("untimed", sample())])) == []
