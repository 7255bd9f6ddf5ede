"""Sweeps on Ray: the same rows as in this process, with a stand-in for Ray; tests/cli has them with Ray itself."""

import socket

import pytest
from tests.clusters import fake_ray

from kernbench.bench import find
from kernbench.common.errors import BenchError
from kernbench.sweep import Collected, Here, Processes, RayCluster, in_order, make_plan, run_sweep
from kernbench.sweep.executors import ray_cluster

BENCH = find("milestone_gqa_llama70b")
SMALL = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2}
OVER = {"machine.hbm.bandwidth": ["256", "512"], "n_ranks": ["2", "4"]}


def plan(over=None):
    return make_plan(BENCH, "single_user_decode", SMALL, over or OVER)


def rows_of(made, executor):
    ledger = Collected(made)
    run_sweep(made, executor, ledger)
    return ledger.rows


@pytest.fixture
def ray(monkeypatch):
    yield fake_ray(monkeypatch)
    if ray_cluster._crew is not None:
        ray_cluster._crew.end()


def test_a_cluster_gives_the_rows_of_one_process(ray):
    with RayCluster("local") as cluster:
        rows = rows_of(plan(), cluster)
    assert ray.log == [("init", "local", False), "task", "task", "shutdown"]
    alone = rows_of(plan(), Here())
    assert rows != alone
    assert in_order(plan(), rows) == in_order(plan(), alone)


def test_no_more_tasks_are_under_way_than_the_cluster_has_processors(ray):
    made = plan({"n_ranks": ["1", "2", "3", "4", "5", "6"]})
    with RayCluster("local") as cluster:
        rows = rows_of(made, cluster)
    assert (len(rows), ray.most_under_way) == (6, 2)


class Some(Collected):
    """A ledger that has three of the points already."""

    def claim(self, positions):
        return [position for position in positions if position not in ((0, 0), (1, 0), (0, 1))]


def test_what_is_done_is_not_asked_of_the_cluster(ray):
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with RayCluster(address) as cluster:
            ledger = Some(plan())
            run_sweep(plan(), cluster, ledger)
    assert ray.log == [("init", address, None), "task", "shutdown"]
    assert [(r["machine.hbm.bandwidth"], r["n_ranks"]) for r in ledger.rows] == [("512", "4")]


DEADLY = """
import os
from dataclasses import replace
from kernbench.benches import milestone_gqa_llama70b as whole

def inputs(p, rng):
    if p.n_ranks == 3:
        os._exit(7)
    if p.n_ranks == 5:
        raise ValueError("five")
    return whole.bench.inputs(p, rng)

bench = replace(whole.bench, inputs=inputs)
"""


@pytest.fixture
def deadly(tmp_path):
    (tmp_path / "deadly.py").write_text(DEADLY)
    return find(str(tmp_path / "deadly.py"))


def test_failed_points_are_the_rows_of_one_machine(ray, deadly):
    made = make_plan(deadly, "single_user_decode", SMALL, {"n_ranks": ["2", "3", "5"]})
    with RayCluster("local") as cluster:
        rows = in_order(made, rows_of(made, cluster))
    assert rows == in_order(made, rows_of(made, Processes(1)))
    assert rows[0]["time_ps"] > 0
    assert rows[1]["failed"] == "its process ended with exit code 7: os._exit was called"
    assert "raised ValueError: five" in rows[2]["failed"]
    assert rows[2]["failed_at"].endswith("deadly.py:10")


@pytest.mark.parametrize("lost", [2, 3])
def test_a_lost_task_is_tried_again_a_bounded_number_of_times(ray, lost):
    made = plan({"n_ranks": ["2"]})
    ray.lost = lost
    with RayCluster("local") as cluster:
        (row,) = rows_of(made, cluster)
    assert ray.log.count("task") == 3
    if lost < 3:
        assert row == rows_of(made, Here())[0]
    else:
        assert row["failed"] == "lost 3 times with its node or Ray worker (the node is gone)"


def test_nodes_without_kernbench(ray, monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError("No module named 'kernbench'")

    monkeypatch.setattr(ray_cluster, "run_part", missing)
    with pytest.raises(BenchError, match="kernbench cannot be loaded on its nodes"), RayCluster("local") as cluster:
        rows_of(plan(), cluster)
    assert ray.log[-1] == "shutdown"


def test_a_refusal_is_a_row_on_a_cluster_too(ray):
    made = plan({"n_ranks": ["2", "1000"]})
    with RayCluster("local") as cluster:
        rows = in_order(made, rows_of(made, cluster))
    assert rows == rows_of(made, Here())
    assert "1000 ranks" in rows[1]["refused"]
