"""Clusters: ranks, each other's shared memory, their barrier, multicast and remote arrivals."""

import numpy as np
import pytest
from tests.ptx.asynchronous.cluster_kernels import (
    ARRIVE_AND_WAIT,
    CASES,
    EXCHANGE,
    FRAME,
    MULTICAST,
    REMOTE,
    WAIT,
    launch,
)
from tests.ptx.asynchronous.conftest import kinds

from kernbench import ptx
from kernbench.common.errors import MisuseError


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed"])
@pytest.mark.parametrize("name", CASES)
def test_results(name, schedule):
    body, ctas, cluster, expected = CASES[name]
    run = launch(body, ctas, cluster, schedule=schedule)
    assert run.findings == []
    np.testing.assert_array_equal(run.outputs["out"], np.broadcast_to(expected, (ctas, 32)))


def test_ranks_of_a_cluster_in_two_dimensions():
    device = ptx.EmulatedDevice("sm_90a")
    text = FRAME.replace("BODY\n", "  mov.u32 %r40, %cluster_ctaid.y;\n  mad.lo.u32 %r40, %r40, 16, %r1;\n")
    text = text.replace(
        "mov.u32 %r5, %ctaid.x;", "mov.u32 %r5, %ctaid.y;\n  mov.u32 %r6, %ctaid.x;\n  mad.lo.u32 %r5, %r5, 4, %r6;"
    )
    out = device.empty((16, 32), np.uint32, "out")
    tensor_map = device.tensor_map(device.array(np.zeros((16, 32), np.uint32)), (32, 16), (128,), (32, 4))
    run = device.launch(ptx.parse(text).kernels["kernel"], (4, 4), 32, [tensor_map, out], cluster=(2, 2))
    assert run.findings == []
    expected = [[16 * (y % 2) + 2 * (y % 2) + x % 2 for x in range(4)] for y in range(4)]
    assert run.outputs["out"][:, 0].reshape(4, 4).tolist() == expected


def test_a_missing_cluster_barrier():
    assert "race" in kinds(launch(EXCHANGE.replace(ARRIVE_AND_WAIT, "")))


def test_a_relaxed_arrival_orders_nothing():
    body = EXCHANGE.replace("arrive.release", "arrive.relaxed")
    assert "race" in kinds(launch(body))


def test_a_multicast_that_a_peer_does_not_wait_for():
    assert "race" in kinds(launch(MULTICAST.replace(WAIT, "")))


def test_a_relaxed_remote_arrival_orders_nothing():
    assert "race" in kinds(launch(REMOTE.replace("arrive.release.cluster", "arrive.relaxed.cluster")))


def test_a_deadlock_at_the_cluster_barrier():
    body = """  setp.eq.u32 %p2, %r1, 1;
  @!%p2 barrier.cluster.arrive;
  @!%p2 barrier.cluster.wait;
  @!%p2 bra OUT;
  bar.sync 1, 64;
OUT:
  mov.u32 %r40, 0;
"""
    run = launch(body)
    assert kinds(run) == ["deadlock"]
    assert "wait at the cluster's barrier: 32 have arrived" in run.findings[0].message


def test_clusters_that_do_not_fit_the_grid():
    with pytest.raises(MisuseError, match="no multiple of cluster"):
        launch("  mov.u32 %r40, 0;\n", ctas=3)
