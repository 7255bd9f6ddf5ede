"""Waits of .cta scope for arrivals of other blocks, relaxed barriers of the cluster: formal in shared memory only."""

import numpy as np
import pytest

from kernbench import ptx

# the threads of block 1 store, and arrive on a barrier of block 0, which waits and reads
HEAD = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 out)
.reqnctapercluster 2
{
 .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<12>; .reg .b16 %h<3>;
 .shared .align 128 .b8 buf[128]; .shared .align 8 .b64 full;
 mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, buf; mov.u32 %r4, full;
 shl.b32 %r5, %r1, 2; add.u32 %r6, %r3, %r5; mapa.shared::cluster.u32 %r7, %r6, 0; mapa.shared::cluster.u32 %r8, %r4, 0;
 ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [out]; mul.wide.u32 %rd3, %r1, 4;
 add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
 setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r2, 0; or.pred %p3, %p1, %p2;
 @%p1 bra A;
 mbarrier.init.shared.b64 [%r4], COUNT;
 fence.mbarrier_init.release.cluster;
A:
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
TAIL = """
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 ret;
}
"""
SIGNAL = (
    HEAD.replace("COUNT", "32")
    + """
 @!%p2 bra READ;
 STORE
 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];
 bra END;
READ:
 mbarrier.try_wait.parity.acquire.SCOPE.shared::cta.b64 %p4, [%r4], 0;
 @!%p4 bra READ;
 LOAD
 st.global.b32 [%rd5], %r10;
END:
"""
    + TAIL
)
# block 0 copies into its memory and waits; then the blocks meet, and block 1 reads there or in its own memory
MEET = (
    HEAD.replace("COUNT", "1")
    + """
 @%p3 bra B;
 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 128;
 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 128, [%r4];
W:
 WAIT
 STORE
B:
 bar.warp.sync -1;
 barrier.cluster.arrive.HOW.aligned; barrier.cluster.wait.acquire.aligned;
 @!%p2 bra END;
 LOAD st.global.b32 [%rd5], %r10;
END:
"""
    + TAIL
)
WAIT = "mbarrier.try_wait.parity.shared.b64 %p4, [%r4], 0; @!%p4 bra W;"
LOAD = "ld.shared::cluster.b32 %r10, [%r7];"
FAULT, FORMAL, NOTHING = (["race"], []), ([], ["race"]), ([], [])


def launch(text, schedule, **parts):
    for name, value in parts.items():
        text = text.replace(name, value)
    device = ptx.EmulatedDevice(arch="sm_100a")
    args = [device.array(np.zeros(32, np.uint32)), device.array(np.zeros(32, np.uint32))]
    run = device.launch(ptx.parse(text).kernels["k"], 2, 32, args, cluster=(2, 1, 1), schedule=schedule)
    return [finding.kind for finding in run.findings], [finding.kind for finding in run.formal]


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
@pytest.mark.parametrize(
    ("store", "load", "narrow"),
    [
        ("st.shared::cluster.b32 [%r7], %r1;", "ld.shared.b32 %r10, [%r6];", FORMAL),
        # blocks may have caches of their own for global memory
        ("st.global.b32 [%rd4], %r1;", "ld.global.b32 %r10, [%rd4];", FAULT),
    ],
    ids=["shared", "global"],
)
def test_a_wait_whose_scope_does_not_hold_who_arrives(store, load, narrow, schedule):
    parts = {"STORE": store, "LOAD": load}
    assert launch(SIGNAL, schedule, SCOPE="cta", **parts) == narrow
    assert launch(SIGNAL, schedule, SCOPE="cluster", **parts) == NOTHING
    assert launch(SIGNAL.replace("READ:\n", "READ:\n bra SKIP;\n").replace(" @!%p4 bra READ;", "SKIP:"), schedule,
                  SCOPE="cluster", **parts)[0] == ["race"]  # fmt: skip


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_a_relaxed_barrier_behind_a_wait_for_copies(schedule):
    assert launch(MEET, schedule, HOW="release", WAIT=WAIT, STORE="", LOAD=LOAD) == NOTHING
    assert launch(MEET, schedule, HOW="relaxed", WAIT=WAIT, STORE="", LOAD=LOAD) == FORMAL
    assert "race" in launch(MEET, schedule, HOW="relaxed", WAIT="", STORE="", LOAD=LOAD)[0]


def test_a_relaxed_barrier_behind_stores_to_another_block():
    """These may still be under way when the blocks meet."""
    store = "mapa.shared::cluster.u32 %r20, %r3, 1; mov.b32 %r21, 7; st.shared::cluster.b32 [%r20], %r21;"
    load = "ld.shared.b32 %r10, [%r6];"
    assert "race" in launch(MEET, "canonical", HOW="relaxed", WAIT=WAIT, STORE=store, LOAD=load)[0]


# block 1 reads the shared memory of block 0 and arrives there; block 0 waits, and ends
LEAVE = (
    HEAD.replace("COUNT", "32")
    + """
 st.shared.b32 [%r6], %r1;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 @!%p2 bra LAST;
 ld.shared::cluster.b32 %r10, [%r7];
 st.global.b32 [%rd5], %r10;
 ARRIVE
 ret;
LAST:
 mbarrier.try_wait.parity.acquire.SCOPE.shared::cta.b64 %p4, [%r4], 0;
 @!%p4 bra LAST;
 ret;
}
"""
)


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1])
@pytest.mark.parametrize(
    ("arrive", "scope", "findings"),
    [
        ("release.cluster", "cluster", NOTHING),
        ("release.cluster", "cta", ([], ["use-after-free"])),
        ("relaxed.cluster", "cta", (["use-after-free"], [])),
        ("relaxed.cluster", "cluster", (["use-after-free"], [])),
    ],
)
def test_a_block_that_ends_after_its_peer_has_arrived(schedule, arrive, scope, findings):
    arrival = f"mbarrier.arrive.{arrive}.shared::cluster.b64 _, [%r8];"
    assert launch(LEAVE, schedule, ARRIVE=arrival, SCOPE=scope) == findings
