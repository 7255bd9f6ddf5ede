"""`kernbench run --all-algorithms`: in which order contenders are started where several run at once."""

from kernbench.cli.commands.algorithms import _longest_first


def test_the_largest_panel_begins_and_in_it_what_works_on_most_pes():
    limits = {
        ("decode", "mesh"): 10,
        ("decode", "team"): 5,
        ("one user", "mesh"): 400,
        ("one user", "team"): 400,
        ("users", "mesh"): 800,
        ("users", "ring"): 800,
        ("users", "team"): 100,
    }
    assert _longest_first(limits) == [
        ("users", "team"),
        ("users", "mesh"),
        ("users", "ring"),
        ("one user", "mesh"),
        ("one user", "team"),
        ("decode", "team"),
        ("decode", "mesh"),
    ]


def test_without_limits_the_order_stays():
    assert _longest_first({(None, "b"): 0, (None, "a"): 0}) == [(None, "b"), (None, "a")]
