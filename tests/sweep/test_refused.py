"""Points that cannot be run: kept with the reason and not run again, while the others go on."""

import pytest

from kernbench.bench import find
from kernbench.common.errors import BenchError, MachineError
from kernbench.sweep import Collected, Here, Processes, Store, in_order, make_plan, run_sweep
from kernbench.sweep.planning import points as points_module

BENCH = find("milestone_gqa_llama70b")
SMALL = {"context": 24, "d_head": 16}


def plan(over, **settings):
    return make_plan(BENCH, "single_user_decode", {**SMALL, **settings}, over)


def rows_of(made, executor=None):
    ledger = Collected(made)
    run_sweep(made, executor or Here(), ledger)
    return in_order(made, ledger.rows)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_host_that_cannot_be_is_a_row(workers):
    made = plan({"algorithm": ["tree_mlo", "mesh_mlo"], "n_ranks": ["5", "8"]}, h_q=4, h_kv=2)
    rows = rows_of(made, Processes(workers))
    assert rows[0] == {
        "algorithm": "tree_mlo",
        "n_ranks": "5",
        "refused": "tree_mlo needs ranks that fill whole rows of 4; got 5",
    }
    assert all(row["time_ps"] > 0 and "refused" not in row for row in rows[1:])


def test_parameters_that_do_not_fit_are_rows():
    rows = rows_of(plan({"h_q": ["3", "4"], "machine.hbm.bandwidth": ["256", "512"]}, h_kv=2))
    assert [row.get("refused") for row in rows] == ["h_q = 3 must be a multiple of h_kv = 2"] * 2 + [None] * 2
    assert [row["machine.hbm.bandwidth"] for row in rows] == ["256", "512"] * 2


def test_a_machine_that_cannot_be_is_a_row(tmp_path):
    over = {"machine": [str(tmp_path / "none.toml"), "reference"], "machine.hbm.bandwidth": ["0", "512"]}
    rows = rows_of(plan(over, h_q=4, h_kv=2))
    reasons = [row.get("refused", "") for row in rows]
    assert ["cannot be read" in reason for reason in reasons] == [True, True, False, False]
    assert "hbm.bandwidth = '0': out of range" in reasons[2]
    assert rows[3]["time_ps"] > 0


def test_where_every_point_is_refused_nothing_runs():
    with pytest.raises(BenchError, match="must be a multiple"):
        plan({"h_q": ["3", "5"]}, h_kv=2)
    with pytest.raises(MachineError, match="out of range"):
        plan({"machine.hbm.bandwidth": ["0"]})


def test_a_refused_point_is_run_again_only_when_asked(tmp_path, monkeypatch):
    made = plan({"n_ranks": ["4", "64"], "h_q": ["3", "4"]}, h_kv=2)
    with Store(tmp_path / "s.sqlite", made) as store:
        run_sweep(made, Here(), store)
        first = list(store.rows())
    assert [bool(row["refused"]) for row in first] == [True, False, True, True]
    passes = []
    whole = points_module.run_bench
    monkeypatch.setattr(points_module, "run_bench", lambda *a, **k: passes.append(a) or whole(*a, **k))
    for retry in (False, True):
        with Store(tmp_path / "s.sqlite", made, retry=retry) as store:
            run_sweep(made, Here(), store)
            assert list(store.rows()) == first
        assert len(passes) == 3 * retry


def test_a_machine_too_slow_to_be_timed_is_a_row(monkeypatch):
    monkeypatch.setattr("kernbench.mesh.time.clock.LONGEST_PS", 1e13)
    rows = rows_of(plan({"machine.link.latency": ["20", "1 s", "30"]}, h_q=4, h_kv=2))
    assert [row.get("time_ps", 0) > 0 for row in rows] == [True, False, True]
    assert "so slow that this run could take" in rows[1]["refused"]
    assert rows[1]["safe"]


def test_points_of_ptx_are_judged_and_timed():
    made = make_plan(find("batched_incremental_attention"), "one_warp", {}, {"context": ["64", "128"]})
    rows = rows_of(made)
    assert "must not exceed context" in rows[0]["refused"]
    assert (rows[1]["right"], rows[1]["safe"], "time_ps" in rows[1]) == (True, True, True)
