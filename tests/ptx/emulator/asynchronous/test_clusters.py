"""Clusters: ranks, each other's shared memory, their barrier, multicast and remote arrivals."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.cluster_kernels import (
    ARRIVE_AND_WAIT,
    CASES,
    COPIES,
    EXCHANGE,
    FRAME,
    INIT,
    MULTICAST,
    REMOTE,
    START,
    WAIT,
    launch,
)
from tests.ptx.emulator.asynchronous.conftest import kinds

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.safety.budget import Budget


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


STARTS = ["canonical", "eager", "reversed", 1, 2]


@pytest.mark.parametrize("schedule", STARTS)
def test_a_peer_that_may_not_have_started(schedule):
    """CUDA's guide asks that all blocks have started before one accesses the shared memory of another."""
    body = EXCHANGE.replace(START, "")
    (finding,) = launch(body, schedule=schedule).findings
    assert "nothing says that this block has started" in finding.message
    assert "st.shared::cluster.b32" in finding.where.text
    assert "cluster.sync()" in finding.hint
    # an arrival is no wait
    early = body.replace("  st.shared", "  barrier.cluster.arrive.release.aligned;\n  st.shared", 1)
    early = early.replace(ARRIVE_AND_WAIT, "  barrier.cluster.wait.acquire.aligned;\n" + ARRIVE_AND_WAIT)
    assert any("has started" in one.message for one in launch(early, schedule=schedule).findings)


# what a block wrote is read by its peer, with only the block's own barrier between
READ_EARLY = """  add.u32 %r9, %r4, %r8;
  st.shared.b32 [%r9], %r6;
  bar.sync 0;
  mapa.shared::cluster.u32 %r10, %r9, %r7;
  ld.shared::cluster.b32 %r40, [%r10];
"""
# an mbarrier of the peer is arrived on, or signalled by a store
ARRIVE_EARLY = """  mov.u32 %r40, 0;
  @!%p0 mbarrier.init.shared::cta.b64 [%r3], 1;
  @!%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  mapa.shared::cluster.u32 %r11, %r3, %r7;
  @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
"""
STORE_EARLY = """  mov.u32 %r40, 0;
  @!%p0 mbarrier.init.shared::cta.b64 [%r3], 1;
  @!%p0 fence.mbarrier_init.release.cluster;
  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 4;
  bar.sync 0;
  mapa.shared::cluster.u32 %r10, %r4, %r7;
  mapa.shared::cluster.u32 %r11, %r3, %r7;
  @!%p0 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r10], 5, [%r11];
"""


@pytest.mark.parametrize("body", [READ_EARLY, ARRIVE_EARLY + WAIT, STORE_EARLY + WAIT])
def test_what_a_missing_barrier_at_the_start_would_order_is_one_finding(body):
    early = body + ARRIVE_AND_WAIT
    (finding,) = launch(early).findings
    assert "nothing says that this block has started" in finding.message
    assert launch(early.replace("  mapa", ARRIVE_AND_WAIT + "  mapa", 1)).findings == []


def test_a_race_with_what_a_block_did_after_the_missing_barrier_is_another_finding():
    again = "  bar.sync 0;\n  st.shared.b32 [%r9], %r0;\n  bar.sync 0;\n  ld.shared::cluster.b32 %r40, [%r10];\n"
    first, second = launch(READ_EARLY + again + ARRIVE_AND_WAIT).findings
    assert "has started" in first.message
    assert "nothing orders the two" in second.message
    # that a peer has started may be known, and not what it did before
    (finding,) = launch(READ_EARLY.replace("  mapa", START + "  mapa") + ARRIVE_AND_WAIT).findings
    assert "nothing orders the two" in finding.message


@pytest.mark.parametrize("schedule", STARTS)
def test_a_copy_to_a_peer_that_may_not_have_started(schedule):
    """Its mbarrier there is not known to be initialised, nor is a remote arrival's, and those of a multicast."""
    for body in (COPIES, REMOTE, MULTICAST):
        first, _, rest = body.partition(ARRIVE_AND_WAIT)
        found = launch(first + "  bar.sync 0;\n" + rest, schedule=schedule, budget=Budget(steps=20000)).findings
        assert {one.kind for one in found} & {"race", "mbarrier-misuse", "missing-fence"}, (body, found)


@pytest.mark.parametrize("schedule", STARTS)
def test_one_warp_waits_for_the_cluster_for_its_block(schedule):
    """Every warp arrives; the one that waits passes it on by the barrier of its block."""
    meet = "  barrier.cluster.arrive.relaxed;\n  setp.ge.u32 %p4, %r0, 32;\n  @%p4 bra MET;\n"
    meet += "  barrier.cluster.wait;\nMET:\n{behind}"
    later = "  setp.lt.u32 %p5, %r0, 32;\n  @%p5 bra LATER;\n  barrier.cluster.wait;\nLATER:\n  bar.sync 0;\n"
    later += ARRIVE_AND_WAIT.replace(".aligned", "")
    for behind, kinds_found in (("  bar.sync 0;\n", []), ("", ["race"])):
        body = meet.format(behind=behind) + EXCHANGE.replace(START, "").replace(ARRIVE_AND_WAIT, later)
        text = FRAME.replace("BODY\n", body)
        device = ptx.EmulatedDevice("sm_90a")
        out = device.empty((2, 64), np.uint32, "out")
        tensor_map = device.tensor_map(device.array(np.zeros((16, 32), np.uint32)), (32, 16), (128,), (32, 4))
        kernel = ptx.parse(text.replace("shl.b32 %r6, %r5, 5;", "shl.b32 %r6, %r5, 6;")).kernels["kernel"]
        run = device.launch(kernel, 2, 64, [tensor_map, out], cluster=2, schedule=schedule)
        assert kinds(run) == kinds_found


def test_a_relaxed_arrival_orders_nothing():
    body = EXCHANGE.replace("arrive.release", "arrive.relaxed")
    assert "race" in kinds(launch(body))


def test_a_multicast_that_a_peer_does_not_wait_for():
    assert "race" in kinds(launch(MULTICAST.replace(WAIT, "")))


def test_a_relaxed_remote_arrival_orders_nothing():
    assert "race" in kinds(launch(REMOTE.replace("arrive.release.cluster", "arrive.relaxed.cluster")))


def without_the_last_barrier(body):
    before, _, after = body.rpartition(ARRIVE_AND_WAIT)
    return before + after


@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_a_block_that_ends_while_its_peer_is_sent_a_copy_of_its_memory(schedule):
    run = launch(without_the_last_barrier(COPIES), schedule=schedule)
    assert kinds(run) == ["use-after-free"]
    message = run.findings[0].message
    assert "block (0, 0, 0) ends, and nothing says that an asynchronous copy that completes on an mbarrier" in message
    assert "mbarrier of block (1, 0, 0) is done with its shared" in message


def test_a_block_that_ends_before_its_peer_has_read_its_memory():
    body = """  add.u32 %r9, %r4, %r8;
  st.shared.b32 [%r9], %r6;
  ARRIVE_AND_WAIT
  mapa.shared::cluster.u32 %r10, %r9, %r7;
  ld.shared::cluster.b32 %r40, [%r10];
""".replace("  ARRIVE_AND_WAIT\n", ARRIVE_AND_WAIT)
    assert "use-after-free" in kinds(launch(body))
    assert kinds(launch(body + ARRIVE_AND_WAIT)) == []


def test_memory_of_a_block_that_has_ended():
    body = """  setp.eq.u32 %p2, %r1, 0;
  mov.u32 %r40, 0;
  @%p2 st.global.b32 [%rd2], %r40;
  @%p2 exit;
  mapa.shared::cluster.u32 %r10, %r4, %r7;
  add.u32 %r10, %r10, %r8;
  st.shared::cluster.b32 [%r10], %r0;
"""
    run = launch(START + body)
    assert kinds(run) == ["use-after-free"]
    assert "accesses the shared memory of block (0, 0, 0), which has ended" in run.findings[0].message


def test_a_peers_barrier_must_be_shown_to_copies():
    run = launch(COPIES.replace("  @!%p0 fence.mbarrier_init.release.cluster;\n", ""))
    assert kinds(run) == ["missing-fence"]


def test_of_barriers_that_are_not_shown_that_of_another_block_is_named():
    """A multicast completes on its own block's barrier, which needs no fence on any GPU so far, and on the peer's."""
    (found,) = launch(MULTICAST.replace("  @!%p0 fence.mbarrier_init.release.cluster;\n", "")).findings
    assert found.kind == "missing-fence"
    assert "begins a copy that completes on mbarrier 'bar'+0 (0x810) of block (1, 0, 0), and no fence" in found.message
    assert found.hint.endswith("then the cluster's barrier")


def test_a_copy_into_a_block_completes_on_a_barrier_there():
    """An H200 never ends the wait for a copy into one block on an mbarrier of another."""
    run = launch(COPIES.replace("128, [%r11];", "128, [%r3];"))
    assert "mbarrier-misuse" in kinds(run)
    (finding,) = [finding for finding in run.findings if finding.kind == "mbarrier-misuse"]
    assert (
        "copies into the shared memory of block (1, 0, 0), and names an mbarrier of block (0, 0, 0)" in finding.message
    )
    assert "mbarrier-misuse" not in kinds(launch(COPIES))


def test_an_arrival_without_the_wait_between():
    run = launch(MULTICAST.replace("  barrier.cluster.wait.acquire.aligned;\n", "", 1))
    assert kinds(run) == ["missing-fence", "misuse", "race"]
    assert any("twice without a wait between" in finding.message for finding in run.findings)


def test_an_arrival_in_the_scope_of_a_block_orders_nothing_between_blocks():
    run = launch(REMOTE.replace("mbarrier.arrive.release.cluster", "mbarrier.arrive.release.cta"))
    assert kinds(run) == ["race"]
    assert "an mbarrier with both ends in .cluster scope" in run.findings[0].hint


def test_a_wait_in_the_scope_of_a_block_orders_nothing_between_blocks_formally():
    """No cache lies before shared memory, so that no GPU shows it."""
    run = launch(REMOTE.replace("mbarrier.try_wait.parity.acquire.cluster", "mbarrier.try_wait.parity.acquire.cta"))
    assert run.findings == []
    (race,) = run.formal
    assert "the wait's scope does not hold it" in race.message
    assert "mbarrier.try_wait.acquire.cluster" in race.hint


def test_a_remote_arrival_of_one_lane_does_not_speak_for_its_warp():
    assert kinds(launch(REMOTE.replace("  bar.warp.sync -1;\n", ""))) == ["race"]


def test_a_remote_arrival_speaks_for_its_own_lane():
    body = REMOTE.replace("  bar.warp.sync -1;\n", "").replace("  st.shared::cluster", "  @!%p0 st.shared::cluster")
    body = body.replace("  ld.shared.b32 %r40, [%r9];\n", "  ld.shared.b32 %r40, [%r4];\n")
    assert kinds(launch(body)) == []


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


def test_a_multicast_to_blocks_that_the_cluster_has_not():
    run = launch(MULTICAST.replace("mov.u16 %h1, 3;", "mov.u16 %h1, 0x13;"))
    assert kinds(run) == ["misuse"]
    assert "the multicast mask 0x13, and its cluster has 2 blocks" in run.findings[0].message


def test_a_multicast_on_a_barrier_that_a_peer_never_made():
    run = launch(MULTICAST.replace("  @!%p0 mbarrier.init", "  setp.eq.u32 %p4, %r6, 0;\n  @%p4 mbarrier.init"), 2)
    found = [finding.message for finding in run.findings if finding.kind == "mbarrier-misuse"]
    assert any("of block (1, 0, 0), which was never initialised" in message for message in found)


def test_a_second_wait_needs_a_second_arrival():
    wait = "  barrier.cluster.wait.acquire.aligned;\n"
    run = launch(EXCHANGE.replace(wait, wait + wait))
    assert kinds(run) == ["misuse"]
    assert "without an arrival before it" in run.findings[0].message


PARTING = (
    INIT
    + """  mapa.shared::cluster.u32 %r11, %r3, %r7;
  @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
  mov.u32 %r40, 0;
"""
)


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed", 5])
def test_an_arrival_on_a_barrier_of_a_block_that_may_have_ended(schedule):
    run = launch(PARTING, schedule=schedule)
    assert kinds(run) == ["use-after-free"]
    assert "arrives on mbarrier 'bar'+0" in run.findings[0].message
    assert "nothing keeps that block from ending before" in run.findings[0].message


@pytest.mark.parametrize("end", [WAIT, ARRIVE_AND_WAIT, WAIT.replace("acquire.cluster", "relaxed.cluster")])
def test_an_arrival_that_the_block_waits_for(end):
    assert kinds(launch(PARTING + end)) == []


MEETS = "  barrier.cluster.arrive.release;\n  barrier.cluster.wait.acquire;\n"


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed", 5])
def test_a_cluster_barrier_does_not_wait_for_what_exited_threads_have_under_way(schedule):
    """On an H200 it was complete before the arrival had come, in thousands of blocks of two million (ADR 151)."""
    run = launch(PARTING + "  @!%p0 bra GONE;\n" + MEETS + "GONE:\n", schedule=schedule)
    assert kinds(run) == ["use-after-free"]
    assert run.formal == []
    (found,) = run.findings
    assert "the thread exits and does not come to the cluster's barrier, which completes then" in found.message
    assert found.hint.startswith("let the arriving thread come to the cluster's barrier, too; ")
    assert kinds(launch(PARTING + MEETS, schedule=schedule)) == []


COMMIT = (
    INIT
    + """  mapa.shared::cluster.u32 %r10, %r3, %r7;
  setp.eq.u32 %p4, %r1, 0;
  not.pred %p5, %p0;
  and.pred %p4, %p4, %p5;
  @%p4 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r10];
  @%p4 bra DONE;
"""
)
ENDS = {
    "nothing": ("", ["use-after-free"]),
    "wait": (WAIT.replace("WAIT:", "  setp.eq.u32 %p6, %r1, 0;\n  @%p6 bra DONE;\nWAIT:"), []),
    "cluster barrier": ("DONE:\n" + ARRIVE_AND_WAIT.replace(".aligned", ""), []),
}


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
@pytest.mark.parametrize("name", ENDS)
def test_a_commit_on_a_barrier_of_a_block_that_may_have_ended(name, schedule):
    end, kinds = ENDS[name]
    body = COMMIT + end + ("" if "DONE:" in end else "DONE:\n") + "  mov.u32 %r40, %r0;\n"
    run = launch(body, device=ptx.EmulatedDevice("sm_100a"), arch="sm_100a", schedule=schedule)
    assert [f.kind for f in run.findings] == kinds, run.findings


FENCE = "  @!%p0 fence.mbarrier_init.release.cluster;\n"
RELAXED = INIT.replace("arrive.release", "arrive.relaxed")


@pytest.mark.parametrize("body", [MULTICAST, REMOTE])
def test_one_thread_fences_its_barriers_and_all_arrive_relaxed(body):
    """The fence of a single lane and the relaxed arrival behind it release what that lane initialised."""
    assert launch(body.replace(INIT, RELAXED)).findings == []
    assert "race" in kinds(launch(body.replace(INIT, RELAXED.replace(FENCE, ""))))


def test_a_fence_of_threads_that_initialised_nothing():
    others = RELAXED.replace("@!%p0 fence", "@%p0 fence")
    assert "race" in kinds(launch(REMOTE.replace(INIT, others)))


def test_a_compiler_joins_a_cluster_by_relaxed_arrivals_behind_a_proxy_fence():
    """Triton does, for what its tensor core reads of a peer; others are held to a release, and it to its fence."""
    fence = "  fence.proxy.async.shared::cta;\n"
    body = EXCHANGE.replace(ARRIVE_AND_WAIT, fence + ARRIVE_AND_WAIT.replace("arrive.release", "arrive.relaxed"))
    assert launch(body, sign="// Generated by LLVM NVPTX Back-End\n").findings == []
    assert "race" in kinds(launch(body))
    assert "race" in kinds(launch(body.replace(fence, ""), sign="// Generated by LLVM NVPTX Back-End\n"))
