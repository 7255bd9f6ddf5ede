"""The benchmark of what a predicted time costs: aims are costs, and one that is missed is said to be."""

import pytest
from benchmarks.ptx_time_speed import LARGE, Cost, aims, main


def test_each_aim_is_a_cost_beside_what_is_aimed_at():
    costs = {"small": Cost(1.0, 1.5, 0.1, 0.5, 1_000_000), LARGE: Cost(10.0, 11.0, 2.0, 4.0, 3_000_000)}
    found = {name: (reached, most) for name, reached, most, _ in aims(costs)}
    # the slowest case: 0.75 million a second; the dearest recording: half as much again
    assert found["a warp instruction timed"] == (pytest.approx(4 / 3), 1.0)
    assert found["recorded beside checked"] == (pytest.approx(1.5), 2.0)
    assert found[f"{LARGE}: recorded and timed"] == (pytest.approx(17.0), 40.0)
    assert found[f"{LARGE}: timed again"] == (pytest.approx(4.0), 5.0)


def test_an_aim_that_is_missed_is_said_to_be(monkeypatch, capsys):
    cost = Cost(1.0, 3.0, 0.1, 0.5, 1_000_000)
    monkeypatch.setattr("benchmarks.ptx_time_speed.measured", lambda name, settings, turns: cost)
    main(["--case", "decode, 2 users"])
    said = capsys.readouterr().out
    rows = {line.split("  ")[0]: line for line in said.splitlines() if line}
    assert rows["recorded beside checked"].endswith("1.50  missed")
    assert rows["a warp instruction timed"].endswith("0.50")
    assert LARGE not in said
