"""Sweeps on Ray: the same rows as in this process, with Ray itself where it is installed and with a stand-in always."""

import importlib.util
import socket
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from kernbench.bench import find
from kernbench.common.errors import BenchError
from kernbench.sweep import Here, RayCluster, in_order, make_plan, run_sweep
from kernbench.sweep import points as points_module

BENCH = find("milestone_gqa_llama70b")
SMALL = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2}
OVER = {"machine.hbm.bandwidth": ["256", "512"], "n_ranks": ["2", "4"]}


def plan(over=None):
    return make_plan(BENCH, "single_user_decode", SMALL, over or OVER)


def rows_of(made, executor, done=()):
    rows = []
    run_sweep(made, executor, set(done), rows.append)
    return rows


class WrappedError(Exception):
    """As Ray does, what a task raised is kept as the cause."""

    def __init__(self, cause):
        super().__init__("a task failed")
        self.cause = cause


class FakeRay(ModuleType):
    """The calls of Ray that are used, in this process; the task submitted last is done first."""

    def __init__(self, cpus=2):
        super().__init__("ray")
        self.cpus, self.log = cpus, []

    def init(self, address, **options):
        if address == "auto":
            raise ConnectionError("Could not find any running Ray instance")
        self.log.append(("init", address, options.get("include_dashboard")))

    def shutdown(self):
        self.log.append("shutdown")

    def cluster_resources(self):
        return {"CPU": float(self.cpus), "memory": 1e9}

    def remote(self, function):
        class Task:
            @staticmethod
            def remote(*arguments):
                return function, arguments

        return Task

    def wait(self, references, num_returns):
        assert num_returns == 1
        return references[-1:], references[:-1]

    def get(self, reference):
        function, arguments = reference
        self.log.append("task")
        try:
            return function(*arguments)
        except Exception as error:
            raise WrappedError(error) from error


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


def test_a_cluster_gives_the_rows_of_one_process(ray):
    with RayCluster("local") as cluster:
        rows = rows_of(plan(), cluster)
    assert ray.log == [("init", "local", False), "task", "task", "shutdown"]
    alone = rows_of(plan(), Here())
    assert rows != alone
    assert in_order(plan(), rows) == in_order(plan(), alone)


def test_what_is_done_is_not_asked_of_the_cluster(ray):
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with RayCluster(address) as cluster:
            rows = rows_of(plan(), cluster, {("256", "2"), ("512", "2"), ("256", "4")})
    assert ray.log == [("init", address, None), "task", "shutdown"]
    assert [(r["machine.hbm.bandwidth"], r["n_ranks"]) for r in rows] == [("512", "4")]


def test_an_error_in_a_task_is_told_as_it_was_and_the_cluster_is_left(ray, monkeypatch):
    def launch(*_, **__):
        raise BenchError("nothing to launch")

    monkeypatch.setattr(points_module, "find", lambda name: replace(BENCH, launch=launch))
    made = plan({"n_ranks": ["3", "5"]})
    with pytest.raises(BenchError, match="nothing to launch"), RayCluster("local") as cluster:
        rows_of(made, cluster)
    assert ray.log[-1] == "shutdown"


def test_a_refusal_is_a_row_on_a_cluster_too(ray):
    made = plan({"n_ranks": ["2", "1000"]})
    with RayCluster("local") as cluster:
        rows = in_order(made, rows_of(made, cluster))
    assert rows == rows_of(made, Here())
    assert "1000 ranks" in rows[1]["refused"]


def test_no_cluster_at_the_address(ray):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "127.0.0.1:port", "auto"):
        with pytest.raises(BenchError, match=rf"--ray {address}: no Ray cluster answers .* --ray local"):
            RayCluster(address).__enter__()
    assert ray.log == []


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BenchError, match=r"pip install 'kernbench\[ray\]'"):
        RayCluster("local")


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'kernbench[ray]'"
)
@pytest.mark.filterwarnings("default")
def test_ray_itself_gives_the_rows_of_one_process():
    with RayCluster("local") as cluster:
        assert cluster.workers >= 1
        rows = in_order(plan(), rows_of(plan(), cluster))
    assert rows == in_order(plan(), rows_of(plan(), Here()))
