"""The connection to a Ray cluster, and what becomes of tasks: the same for all commands that run on one."""

import os
import socket
import sys
import threading

import pytest
from tests.clusters import fake_ray

from kernbench.bench import cluster as module
from kernbench.bench.cluster import Cluster, LostError
from kernbench.common.errors import BenchError


@pytest.fixture
def ray(monkeypatch):
    return fake_ray(monkeypatch)


def outcomes(function, works):
    """What becomes of works on a cluster, without the looks at which nothing had happened."""
    left = iter(works)
    with Cluster("local") as cluster:
        coming = cluster.outcomes(function, lambda _: next(left, None), lambda work: (work,))
        return [outcome for outcome in coming if outcome is not None]


def halved(number):
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


def test_results_and_errors_come_with_their_work(ray):
    found = {outcome.work: outcome for outcome in outcomes(halved, [4, 7, 8])}
    assert {work: outcome.result for work, outcome in found.items()} == {4: 2, 7: None, 8: 4}
    assert str(found[7].error) == "7 is odd"
    assert found[4].error is None
    assert ray.most_under_way == 2


@pytest.mark.parametrize("lost", [2, 3])
def test_what_is_lost_is_tried_three_times(ray, lost):
    ray.lost = lost
    (outcome,) = outcomes(halved, [6])
    assert ray.tries == 3
    if lost < 3:
        assert (outcome.result, outcome.error) == (3, None)
    else:
        assert isinstance(outcome.error, LostError)
        assert str(outcome.error) == "lost 3 times with its node or Ray worker (the node is gone)"


def test_leaving_early_ends_what_is_under_way(ray):
    with Cluster("local") as cluster:
        left = iter([2, 4, 6, 8])
        coming = cluster.outcomes(halved, lambda _: next(left, None), lambda work: (work,))
        next(coming)
        coming.close()
    assert ray.log == [("init", "local", False), "task", "cancel", "shutdown"]
    assert list(left) == [6, 8]


def test_what_ray_prints_from_its_threads_is_no_result(ray, capsys):
    with Cluster("local"):
        print("a result")
        other = threading.Thread(target=print, args=("the raylet is gone",))
        other.start()
        other.join()
    print("another")
    out, err = capsys.readouterr()
    assert (out, err) == ("a result\nanother\n", "the raylet is gone\n")


def test_nodes_with_other_sources_are_refused(ray, monkeypatch):
    names = iter(["as here", "as there"])
    monkeypatch.setattr(module, "sources", lambda: next(names))
    with pytest.raises(BenchError, match=r"--ray local: kernbench on the node .* has other sources than here.*install"):
        outcomes(halved, [2])
    assert ray.log[-1] == "shutdown"


def test_sources_are_known_by_their_text():
    assert module.sources() == module.sources()
    assert len(module.sources()) == 16


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
        Cluster("local").__enter__()
    assert "oken" in str(refused.value).partition("(")[2]
    for name in ("RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        assert name in str(refused.value)
    assert "no Ray cluster answers" not in str(refused.value)


def test_no_cluster_at_the_address(ray):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "127.0.0.1:port", "auto"):
        with pytest.raises(BenchError, match=rf"--ray {address}: no Ray cluster answers .* --ray local"):
            Cluster(address).__enter__()
    assert ray.log == []


def test_ray_that_does_not_start_here(ray, monkeypatch):
    def init(**_):
        raise TimeoutError("The current node timed out during startup")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(BenchError, match=r"--ray local: Ray could not be started .*\(The current node timed out"):
        Cluster("local").__enter__()


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BenchError, match=r"pip install 'kernbench\[ray\]'"):
        Cluster("local")
