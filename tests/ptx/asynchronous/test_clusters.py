"""Clusters: ranks, each other's shared memory, their barrier, multicast and remote arrivals."""

# ruff: noqa: E501

import numpy as np
import pytest
from tests.ptx.asynchronous.conftest import kinds
from tests.ptx.asynchronous.kernels import HEAD

from kernbench import ptx
from kernbench.common.errors import MisuseError

FRAME = (
    HEAD.format(arch="sm_90a")
    + """
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out)
{
  .reg .pred %p<8>; .reg .b32 %r<48>; .reg .b64 %rd<16>; .reg .b16 %h<4>;
  .shared .align 1024 .b8 box[2048];
  .shared .align 8 .b64 bar;
  .shared .align 16 .b8 cell[512];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %cluster_ctarank;
  mov.u32 %r2, box;
  mov.u32 %r3, bar;
  mov.u32 %r4, cell;
  mov.b64 %rd1, map;
  cvta.param.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [out];
  mov.u32 %r5, %ctaid.x;
  shl.b32 %r6, %r5, 5;
  add.u32 %r6, %r6, %r0;
  mul.wide.u32 %rd3, %r6, 4;
  add.u64 %rd2, %rd2, %rd3;
  setp.ne.u32 %p0, %r0, 0;
  xor.b32 %r7, %r1, 1;
  shl.b32 %r8, %r0, 2;
BODY
  st.global.b32 [%rd2], %r40;
  ret;
}
"""
)
ARRIVE_AND_WAIT = "  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n"
INIT = (
    "  @!%p0 mbarrier.init.shared::cta.b64 [%r3], 1;\n  @!%p0 fence.mbarrier_init.release.cluster;\n" + ARRIVE_AND_WAIT
)
WAIT = "WAIT:\n  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r3], 0;\n  @!%p1 bra WAIT;\n"


def launch(body, ctas=4, cluster=2, **options):
    device = ptx.EmulatedDevice("sm_90a")
    data = np.arange(512, dtype=np.uint32).reshape(16, 32)
    source = device.array(data, "data")
    out = device.empty((ctas, 32), np.uint32, "out")
    tensor_map = device.tensor_map(source, dims=(32, 16), strides=(128,), box=(32, 4))
    text = FRAME.replace("BODY\n", body)
    return device.launch(ptx.parse(text).kernels["kernel"], ctas, 32, [tensor_map, out], cluster=cluster, **options)


def result(body, **options):
    run = launch(body, **options)
    assert run.findings == [], "\n".join(map(str, run.findings))
    return run.outputs["out"]


EXCHANGE = (
    """  add.u32 %r9, %r4, %r8;
  mapa.shared::cluster.u32 %r10, %r9, %r7;
  shl.b32 %r11, %r5, 8;
  add.u32 %r11, %r11, %r0;
  st.shared::cluster.b32 [%r10], %r11;
"""
    + ARRIVE_AND_WAIT
    + "  ld.shared.b32 %r40, [%r9];\n"
)


def test_special_registers():
    body = "  mov.u32 %r40, %cluster_ctarank;\n  mov.u32 %r9, %clusterid.x;\n  mad.lo.u32 %r40, %r9, 100, %r40;\n"
    body += "  mov.u32 %r9, %cluster_nctarank;\n  mad.lo.u32 %r40, %r9, 10000, %r40;\n"
    assert result(body, ctas=8, cluster=4)[:, 0].tolist() == [40000 + 100 * (c // 4) + c % 4 for c in range(8)]


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


def test_exchange_of_values():
    out = result(EXCHANGE)
    assert (out == np.array([1, 0, 3, 2])[:, None] * 256 + np.arange(32)).all()


def test_exchange_by_generic_addresses():
    body = EXCHANGE.replace("  st.shared::cluster.b32 [%r10], %r11;\n", "")
    body = body.replace(
        "  shl.b32 %r11",
        "  cvt.u64.u32 %rd4, %r9;\n  cvta.shared.u64 %rd4, %rd4;\n  mapa.u64 %rd5, %rd4, %r7;\n  shl.b32 %r11",
    ).replace(ARRIVE_AND_WAIT, "  st.b32 [%rd5], %r11;\n" + ARRIVE_AND_WAIT)
    out = result(body)
    assert (out == np.array([1, 0, 3, 2])[:, None] * 256 + np.arange(32)).all()


def test_a_missing_cluster_barrier():
    assert "race" in kinds(launch(EXCHANGE.replace(ARRIVE_AND_WAIT, "")))


def test_a_relaxed_arrival_orders_nothing():
    body = EXCHANGE.replace("arrive.release", "arrive.relaxed")
    assert "race" in kinds(launch(body))


def test_ranks_of_addresses():
    body = "  mapa.shared::cluster.u32 %r10, %r4, %r7;\n  getctarank.shared::cluster.u32 %r40, %r10;\n"
    assert result(body)[:, 0].tolist() == [1, 0, 1, 0]


def test_atomics_on_a_peer():
    body = """  mov.u32 %r11, 0;
  @!%p0 st.shared.b32 [%r4], %r11;
""" + ARRIVE_AND_WAIT + """  mov.u32 %r12, 0;
  mapa.shared::cluster.u32 %r10, %r4, %r12;
  atom.shared::cluster.add.u32 %r13, [%r10], 1;
""" + ARRIVE_AND_WAIT + "  ld.shared.b32 %r40, [%r4];\n"  # fmt: skip
    assert result(body)[:, 0].tolist() == [64, 0, 64, 0]


MULTICAST = (
    INIT
    + """  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;
  setp.eq.u32 %p2, %r1, 0;
  not.pred %p3, %p0;
  and.pred %p2, %p2, %p3;
  mov.u16 %h1, 3;
  mov.u32 %r12, 0;
  shr.u32 %r13, %r5, 1;
  shl.b32 %r13, %r13, 2;
  @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%rd1, {%r12, %r13}], [%r3], %h1;
"""
    + WAIT
    + "  add.u32 %r14, %r2, %r8;\n  ld.shared.b32 %r40, [%r14+128];\n"
    + ARRIVE_AND_WAIT
)


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed"])
def test_multicast(schedule):
    out = result(MULTICAST, schedule=schedule)
    assert (out == np.repeat([32, 160], 2)[:, None] + np.arange(32)).all()


def test_a_multicast_that_a_peer_does_not_wait_for():
    assert "race" in kinds(launch(MULTICAST.replace(WAIT, "")))


REMOTE = (
    INIT
    + """  add.u32 %r9, %r4, %r8;
  mapa.shared::cluster.u32 %r10, %r9, %r7;
  mapa.shared::cluster.u32 %r11, %r3, %r7;
  st.shared::cluster.b32 [%r10], %r6;
  bar.warp.sync -1;
  @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
"""
    + WAIT
    + "  ld.shared.b32 %r40, [%r9];\n"
    + ARRIVE_AND_WAIT
)


def test_remote_arrivals():
    assert (result(REMOTE) == np.array([1, 0, 3, 2])[:, None] * 32 + np.arange(32)).all()


def test_a_relaxed_remote_arrival_orders_nothing():
    assert "race" in kinds(launch(REMOTE.replace("arrive.release.cluster", "arrive.relaxed.cluster")))


def test_asynchronous_stores_to_a_peer():
    body = (
        INIT
        + """  add.u32 %r9, %r4, %r8;
  mapa.shared::cluster.u32 %r10, %r9, %r7;
  mapa.shared::cluster.u32 %r11, %r3, %r7;
  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r10], %r6, [%r11];
"""
        + WAIT
        + "  ld.shared.b32 %r40, [%r9];\n"
        + ARRIVE_AND_WAIT
    )
    assert (result(body) == np.array([1, 0, 3, 2])[:, None] * 32 + np.arange(32)).all()


def test_a_bulk_copy_to_a_peer():
    body = (
        INIT
        + """  add.u32 %r9, %r4, %r8;
  st.shared.b32 [%r9], %r6;
  fence.proxy.async.shared::cta;
  bar.warp.sync -1;
  mapa.shared::cluster.u32 %r10, %r2, %r7;
  mapa.shared::cluster.u32 %r11, %r3, %r7;
  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
  @!%p0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r4], 128, [%r11];
"""
        + WAIT
        + "  add.u32 %r14, %r2, %r8;\n  ld.shared.b32 %r40, [%r14];\n"
        + ARRIVE_AND_WAIT
    )
    assert (result(body) == np.array([1, 0, 3, 2])[:, None] * 32 + np.arange(32)).all()


def test_a_deadlock_at_the_cluster_barrier():
    body = "  setp.eq.u32 %p2, %r1, 1;\n  @!%p2 barrier.cluster.arrive;\n  @!%p2 barrier.cluster.wait;\n  @!%p2 bra OUT;\nSPIN:\n  bar.sync 1, 64;\nOUT:\n  mov.u32 %r40, 0;\n"
    run = launch(body)
    assert kinds(run) == ["deadlock"]
    assert "wait at the cluster's barrier: 32 have arrived" in run.findings[0].message


def test_clusters_that_do_not_fit_the_grid():
    with pytest.raises(MisuseError, match="no multiple of cluster"):
        launch("  mov.u32 %r40, 0;\n", ctas=3)
