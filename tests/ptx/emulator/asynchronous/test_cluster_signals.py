"""Signals that cross the CTAs of a cluster: multicast copies of a pair, and tcgen05.commit to another CTA's barrier."""

import numpy as np
import pytest

from kernbench import ptx

# every destination of a multicast copy with .cta_group::2 signals the CTA of its pair that has the parity of mbar's CTA
MULTICAST = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .align 128 .b8 m[128], .param .u64 out)
.reqnctapercluster 2
{
 .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .b16 %h<3>;
 .shared .align 128 .b8 buf[256];
 .shared .align 8 .b64 mb;
 mov.u32 %r1, %tid.x; mov.u32 %r3, mb; mov.u32 %r4, buf; mov.u32 %r9, %cluster_ctarank;
 setp.ne.u32 %p1, %r1, 0;
 @%p1 bra A;
 mbarrier.init.shared.b64 [%r3], 1;
 fence.mbarrier_init.release.cluster;
A:
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 setp.ne.u32 %p2, %r9, 0;
 or.pred %p3, %p1, %p2;
 @%p3 bra B;
 mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r3], 512;      // 256 for each of the two destinations
 mov.b64 %rd2, m; cvta.param.u64 %rd2, %rd2;
 mov.b16 %h1, 3; mov.b32 %r5, 0;
 mapa.shared::cluster.u32 %r6, %r4, 0; mapa.shared::cluster.u32 %r7, %r3, 0;
 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2
   [%r6], [%rd2, {%r5}], [%r7], %h1;
B:
 @%p2 bra C;
W:
 mbarrier.try_wait.parity.shared.b64 %p4, [%r3], 0;
 @!%p4 bra W;
C:
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 shl.b32 %r8, %r1, 2; add.u32 %r8, %r8, %r4; ld.shared.b32 %r10, [%r8];
 ld.param.u64 %rd3, [out]; mov.u32 %r11, %ctaid.x; mad.lo.u32 %r12, %r11, 64, %r1;
  mul.wide.u32 %rd4, %r12, 4; add.u64 %rd3, %rd3, %rd4;
 st.global.b32 [%rd3], %r10;
 ret;
}
"""

# CTA 1 multiplies from its own memory and tells CTA 0 by a commit; CTA 0 then copies into CTA 1's memory
COMMIT = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 in)
.reqnctapercluster 2
{
 .reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %rd<12>; .reg .b16 %h<4>;
 .shared .align 128 .b8 buf[8192];
 .shared .align 8 .b64 done; .shared .align 8 .b64 full; .shared .align 4 .b32 tm;
 mov.u32 %r1, %tid.x; mov.u32 %r3, buf; mov.u32 %r4, done; mov.u32 %r5, full; mov.u32 %r6, tm;
  mov.u32 %r9, %cluster_ctarank; ld.param.u64 %rd1, [in];
 setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r9, 0;
 @%p1 bra A;
 mbarrier.init.shared.b64 [%r4], 1;
 mbarrier.init.shared.b64 [%r5], 1;
 fence.mbarrier_init.release.cluster;
A:
 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r6], 32;
 mov.u32 %r10, 0;
 shl.b32 %r11, %r1, 8; add.u32 %r11, %r11, %r3; add.u32 %r12, %r11, 256;
ZERO:
 st.shared.b32 [%r11], %r10; add.u32 %r11, %r11, 4; setp.lt.u32 %p3, %r11, %r12; @%p3 bra ZERO;
 fence.proxy.async.shared::cta;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 tcgen05.fence::after_thread_sync;
 ld.shared.b32 %r13, [%r6];
 @%p1 bra END;
 @!%p2 bra ZEROTH;
 // CTA 1: one multiplication from buf, commit to CTA 0's `done`
 shr.u32 %r14, %r3, 4; cvt.u64.u32 %rd2, %r14; mov.b64 %rd3, 0x0000400800010000; or.b64 %rd2, %rd2, %rd3;
 mov.b32 %r15, 0x08020010; setp.ne.u32 %p4, %r1, %r1;
 tcgen05.mma.cta_group::1.kind::f16 [%r13], %rd2, %rd2, %r15, %p4;
 mov.b16 %h1, 1;
 COMMIT
 // wait for the copy
 mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 256;
W1:
 mbarrier.try_wait.parity.shared.b64 %p5, [%r5], 0;
 @!%p5 bra W1;
 bra END;
ZEROTH:
 mbarrier.try_wait.parity.shared.b64 %p6, [%r4], 0;
 @!%p6 bra ZEROTH;
 mov.b16 %h2, 2;
 mapa.shared::cluster.u32 %r20, %r3, 1; mapa.shared::cluster.u32 %r21, %r5, 1;
 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r3], [%rd1], 256, [%r5], %h2;
END:
 bar.warp.sync -1;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 tcgen05.fence::after_thread_sync;
 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r13, 32;
 ret;
}
"""

# CTA 0 copies to CTA 1, which tells a warp of CTA 0 when the bytes are there; that warp tells the first by a commit
HANDED_ON = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
.reqnctapercluster 2
{
 .reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %rd<9>;
 .shared .align 128 .b8 src[256];
 .shared .align 128 .b8 dst[256];
 .shared .align 8 .b64 full;
 .shared .align 8 .b64 back;
 .shared .align 8 .b64 done;
 mov.u32 %r1, %tid.x; mov.u32 %r2, src; mov.u32 %r3, dst; mov.u32 %r4, full; mov.u32 %r5, back;
  mov.u32 %r6, done; .reg .b16 %h1; mov.u32 %r9, %cluster_ctarank;
 setp.ne.u32 %p1, %r1, 0;
 @%p1 bra A;
 mbarrier.init.shared.b64 [%r4], 1;
 mbarrier.init.shared.b64 [%r5], 1;
 mbarrier.init.shared.b64 [%r6], 1;
 fence.mbarrier_init.release.cluster;
A:
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 setp.ne.u32 %p2, %r9, 0;
 setp.eq.u32 %p5, %r1, 32;
 @%p5 bra MMA;
 @%p1 bra END;
 @%p2 bra ONE;
 mov.b32 %r10, 5; st.shared.b32 [%r2], %r10;
 st.shared.b32 [%r2+4], %r10; st.shared.b32 [%r2+8], %r10; st.shared.b32 [%r2+12], %r10;
 fence.proxy.async.shared::cta;
 mapa.shared::cluster.u32 %r11, %r3, 1; mapa.shared::cluster.u32 %r12, %r4, 1;
 mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r12], 16;
 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11], [%r2], 16, [%r12];
W0:
 mbarrier.try_wait.parity.shared.b64 %p3, [%r6], 0;
 @!%p3 bra W0;
 mov.b32 %r10, 6; st.shared.b32 [%r2], %r10;
 bra END;
MMA:
 @%p2 bra END;
WM:
 mbarrier.try_wait.parity.shared.b64 %p6, [%r5], 0;
 @!%p6 bra WM;
 mov.b16 %h1, 3;
 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r6], %h1;
 bra END;
ONE:
W1:
 mbarrier.try_wait.parity.shared.b64 %p4, [%r4], 0;
 @!%p4 bra W1;
 mapa.shared::cluster.u32 %r13, %r5, 0;
 mbarrier.arrive.shared::cluster.b64 _, [%r13];
END:
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 ret;
}
"""


def launched(text, block, args):
    device = ptx.EmulatedDevice(arch="sm_100a")
    kernel = ptx.parse(text).kernels["k"]
    return device.launch(kernel, grid=2, block=block, cluster=(2, 1, 1), args=args(device))


def kinds(run):
    return {finding.kind for finding in (*run.findings, *run.formal)}


def multicast(text):
    device = ptx.EmulatedDevice(arch="sm_100a")
    source, out = device.array(np.arange(64, dtype=np.uint32)), device.empty(128, np.uint32)
    box = device.tensor_map(source, dims=(64,), strides=(), box=(64,))
    run = device.launch(ptx.parse(text).kernels["k"], grid=2, block=64, cluster=(2, 1, 1), args=[box, out])
    return run, out.numpy()


def test_a_multicast_copy_of_a_pair_signals_the_barrier_of_the_named_parity():
    run, out = multicast(MULTICAST)
    assert run.safe, run.findings
    assert (out.reshape(2, 64) == np.arange(64)).all()


def test_a_multicast_copy_without_a_pair_signals_each_destination():
    run, _ = multicast(MULTICAST.replace(".multicast::cluster.cta_group::2", ".multicast::cluster.cta_group::1"))
    assert "transaction-bytes" in kinds(run)


# each thread stores a word into its own block's memory, for which the first one expects @BYTES
STORES = """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{
 .reg .b32 %r<9>; .reg .pred %p<3>;
 .shared .align 8 .b64 bar;
 .shared .align 16 .b8 words[128];
 mov.u32 %r1, %tid.x;
 mov.u32 %r2, bar;
 mov.u32 %r3, words;
 mad.lo.u32 %r3, %r1, 4, %r3;
 setp.ne.u32 %p1, %r1, 0;
 @%p1 bra GO;
 mbarrier.init.shared::cta.b64 [%r2], 1;
 fence.mbarrier_init.release.cluster;
 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], @BYTES;
GO:
 barrier.cluster.arrive;
 barrier.cluster.wait;
 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3], %r1, [%r2];
WAIT:
 mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
 @!%p2 bra WAIT;
 ret;
}
"""


def test_bytes_that_nobody_expects_are_reported_where_too_few_are_expected():
    assert launched(STORES.replace("@BYTES", "128"), 32, lambda device: [device.array(np.zeros(1))]).findings == []
    run = launched(STORES.replace("@BYTES", "48"), 32, lambda device: [device.array(np.zeros(1))])
    finding = next(found for found in run.findings if found.kind == "transaction-bytes")
    assert "mbarrier.arrive.expect_tx" in finding.where.text
    assert "80 bytes are delivered in phase 1 of mbarrier 'bar'+0" in finding.message
    assert "which expects 0; the phase before may have completed while copies" in finding.message


TO_OTHER = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r4], %h1;"
BY_ARRIVAL = """tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4];
V:
 mbarrier.try_wait.parity.shared.b64 %p7, [%r4], 0;
 @!%p7 bra V;
 mapa.shared::cluster.u32 %r22, %r4, 0; mbarrier.arrive.shared::cluster.b64 _, [%r22];"""
ARRIVAL_ALONE = "mapa.shared::cluster.u32 %r22, %r4, 0; mbarrier.arrive.shared::cluster.b64 _, [%r22];"


@pytest.mark.parametrize("told", [TO_OTHER, BY_ARRIVAL])
def test_a_commit_tells_the_waiters_of_another_cta(told):
    run = launched(COMMIT.replace("COMMIT", told), 32, lambda device: [device.array(np.zeros(64, np.uint32))])
    assert run.safe, run.findings


def test_an_arrival_without_a_commit_does_not_say_that_the_product_is_done():
    run = launched(COMMIT.replace("COMMIT", ARRIVAL_ALONE), 32, lambda device: [device.array(np.zeros(64, np.uint32))])
    assert "race" in kinds(run)


def test_a_commit_hands_on_what_its_thread_learnt_of_other_ctas():
    run = launched(HANDED_ON, 64, lambda device: [device.array(np.zeros(4, np.uint32))])
    assert run.safe, run.findings


def test_a_commit_hands_on_nothing_that_its_thread_did_not_wait_for():
    waits = " mbarrier.try_wait.parity.shared.b64 %p6, [%r5], 0;\n @!%p6 bra WM;\n"
    assert waits in HANDED_ON
    run = launched(HANDED_ON.replace(waits, ""), 64, lambda device: [device.array(np.zeros(4, np.uint32))])
    (race,) = [finding for finding in run.findings if finding.kind == "race"]
    assert "an asynchronous copy that completes on an mbarrier of block (1, 0, 0)" in race.message


def test_what_a_thread_does_after_its_commit_is_not_known_by_it():
    store = " st.shared.b32 [%r2+16], %r20;\n bra END;\nONE:"
    late = HANDED_ON.replace(" bra END;\nONE:", store, 1).replace(
        " mov.b32 %r10, 6; st.shared.b32 [%r2], %r10;", " ld.shared.b32 %r10, [%r2+16];"
    )
    assert late.count("%r2+16") == 2
    run = launched(
        late.replace(" mov.b16 %h1, 3;", " mov.b32 %r20, 1; mov.b16 %h1, 3;"),
        64,
        lambda d: [d.array(np.zeros(4, np.uint32))],
    )
    assert "race" in kinds(run)
