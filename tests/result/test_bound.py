"""What bounds a run is one answer, wherever it is shown."""

import pytest

from kernbench.result.launches import bound_of
from kernbench.sweep.columns import problem
from kernbench.sweep.planning.points import _flat


def test_a_target_that_knows_better_than_by_floors_is_asked():
    assert bound_of({"bound": "hbm", "limited_by": "latency"}) == "latency"
    assert bound_of({"bound": "hbm"}) == "hbm"
    assert bound_of({"bound": "hbm", "limited_by": "latency", "limit": "links"}, "limit") == "links"


@pytest.mark.parametrize("bound", ["latency", "launch", "hbm"])
def test_a_row_of_a_sweep_has_the_same_bound(bound):
    metrics = {"time_ps": 9, "bound": "hbm", "limited_by": bound, "floor_ratio": 2.0}
    row = _flat({**metrics, "utilisation": {}, "floors_ps": {"hbm": 3}, "gap_ps": {}})
    assert row["bound"] == bound
    filled = {"bound": bound, "refused": "", "time_ps": "9"}
    assert problem(filled, "ptx") == ""
    assert "is wanted" in problem({**filled, "bound": "moon"}, "ptx")
