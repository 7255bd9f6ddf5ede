"""Sweeps on Ray: the same rows as in this process, with Ray itself where it is installed and with a stand-in always."""

import importlib.util
import os
import socket
import sys
from types import ModuleType, SimpleNamespace

import pytest

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


class WrappedError(Exception):
    """As Ray does, what a task raised is kept as the cause."""

    def __init__(self, cause):
        super().__init__("a task failed")
        self.cause = cause


class NodeDiedError(Exception):
    """As Ray says it of a task that is lost with its node."""


class FakeRay(ModuleType):
    """The calls of Ray that are used, in this process; the task submitted last is done first."""

    def __init__(self, cpus=2):
        super().__init__("ray")
        self.cpus, self.log = cpus, []
        self.lost, self.tries, self.under_way, self.most_under_way = 0, 0, 0, 0

    def init(self, address, **options):
        if address == "auto":
            raise ConnectionError("Could not find any running Ray instance")
        self.log.append(("init", address, options.get("include_dashboard")))

    def shutdown(self):
        self.log.append("shutdown")

    def cluster_resources(self):
        return {"CPU": float(self.cpus), "memory": 1e9}

    def remote(self, max_retries):
        assert max_retries == 0
        return lambda function: SimpleNamespace(remote=lambda *arguments: self._submit(function, arguments))

    def _submit(self, function, arguments):
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        return Reference(function, arguments)

    def wait(self, references, num_returns, timeout):
        assert num_returns == 1
        return references[-1:], references[:-1]

    def cancel(self, reference, force):
        self.log.append("cancel")

    def get(self, reference):
        self.log.append("task")
        self.under_way -= 1
        self.tries += 1
        if self.tries <= self.lost:
            raise NodeDiedError("the node is gone")
        try:
            return reference.function(*reference.arguments)
        except Exception as error:
            raise WrappedError(error) from error


class Reference:
    def __init__(self, function, arguments):
        self.function, self.arguments = function, arguments


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    yield fake
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
    assert rows[1]["failed"] == "its process ended with exit code 7"
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


class AuthenticationError(Exception):
    """As Ray says it where a token is wanted and none is there."""


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (AuthenticationError("Token authentication is enabled but no authentication token was found"), ""),
        # what Ray 2.60 raises says nothing; its library prints why
        (
            ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379"),
            "[2026-01-01 W 1 1] gcs_client.cc:210: Failed to get cluster ID: Unauthenticated: RPC error: "
            "InvalidAuthToken: Authentication token is missing or incorrect",
        ),
    ],
)
def test_a_cluster_that_asks_for_a_token(ray, monkeypatch, error, printed):
    def init(**_):
        os.write(2, f"{printed}\n".encode())
        raise error

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(BenchError, match="asks for a token") as refused:
        RayCluster("local").__enter__()
    assert "oken" in str(refused.value).partition("(")[2]
    for name in ("RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        assert name in str(refused.value)
    assert "no Ray cluster answers" not in str(refused.value)


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
