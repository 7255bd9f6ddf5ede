"""Commits of another CTA of the cluster, and waits for them that name the scope of one CTA.

The arrival of a commit is made by the tensor core on a barrier of the CTA that waits, so that what it committed is done
for a wait of any scope; what threads of the other CTA wrote before is visible to a wait of cluster scope only.
"""

import numpy as np
import pytest

from kernbench import ptx

WAIT = " mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p6, [%r4], PARITY;\n @!%p6 bra W;\n"
# the two CTAs hold a half of the operands each; CTA 0 multiplies and tells both, which read and free tensor memory
PAIR = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
.reqnctapercluster 2
{
 .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<12>; .reg .b16 %h<4>;
 .shared .align 1024 .b8 buf[8192];
 .shared .align 8 .b64 done; .shared .align 8 .b64 empty; .shared .align 4 .b32 tm; .shared .align 4 .b32 word;
 mov.u32 %r1, %tid.x; mov.u32 %r3, buf; mov.u32 %r4, done; mov.u32 %r5, empty; mov.u32 %r6, tm; mov.u32 %r7, word;
 mov.u32 %r9, %cluster_ctarank; ld.param.u64 %rd1, [out];
 setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r9, 0;
 @%p1 bra A;
 mbarrier.init.shared.b64 [%r4], 1;
 mbarrier.init.shared.b64 [%r5], 1;
 fence.mbarrier_init.release.cluster;
A:
 bar.warp.sync -1;
 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r6], 32;
 mov.u32 %r10, 0;
 shl.b32 %r11, %r1, 8; add.u32 %r11, %r11, %r3; add.u32 %r12, %r11, 256;
ZERO:
 st.shared.b32 [%r11], %r10; add.u32 %r11, %r11, 4; setp.lt.u32 %p3, %r11, %r12; @%p3 bra ZERO;
 fence.proxy.async.shared::cta;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 tcgen05.fence::after_thread_sync;
 ld.shared.b32 %r13, [%r6];
 or.pred %p3, %p1, %p2;
 @%p3 bra JOIN;
 shr.u32 %r14, %r3, 4; cvt.u64.u32 %rd2, %r14; mov.b64 %rd3, 0x0000400800010000; or.b64 %rd2, %rd2, %rd3;
 mov.b32 %r15, 0x08080010; setp.ne.u32 %p4, %r1, %r1;
 tcgen05.mma.cta_group::2.kind::f16 [%r13], %rd2, %rd2, %r15, %p4;
 mov.b16 %h1, MASK;
 STORE
 FIRST
 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r4], %h1;
 LAST
JOIN:
 bar.warp.sync -1;
W:
 WAIT
 tcgen05.fence::after_thread_sync;
 READ
 LOAD
 mov.u32 %r17, %ctaid.x; mad.lo.u32 %r18, %r17, 32, %r1; mul.wide.u32 %rd4, %r18, 4; add.u64 %rd4, %rd4, %rd1;
 st.global.b32 [%rd4], %r16;
 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r13, 32;
 END
 ret;
}
"""
READ = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r16}, [%r13]; tcgen05.wait::ld.sync.aligned;"
EMPTY = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r5], %h1;"
STORE = "mapa.shared::cluster.u32 %r20, %r7, 1; mov.b32 %r21, 7; st.shared::cluster.b32 [%r20], %r21;"
LOAD = "@%p2 ld.shared.b32 %r16, [%r7];"
TOGETHER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def launch(schedule="canonical", mask=3, parity=0, wait=WAIT, **parts):
    parts = {"read": READ, **parts}
    text = PAIR.replace("MASK", str(mask)).replace("WAIT", wait).replace("PARITY", str(parity))
    for name in ("STORE", "FIRST", "LAST", "READ", "LOAD", "END"):
        text = text.replace(f" {name}\n", f" {parts.get(name.lower(), '')}\n")
    device = ptx.EmulatedDevice(arch="sm_100a")
    out = device.array(np.zeros(64, np.uint32))
    kernel = ptx.parse(text).kernels["k"]
    return device.launch(kernel, grid=2, block=32, cluster=(2, 1, 1), args=[out], schedule=schedule)


def kinds(run):
    return {finding.kind for finding in run.findings}


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_a_commit_of_another_cta_is_known_to_a_wait_of_one(schedule):
    run = launch(schedule)
    assert (run.findings, run.formal) == ([], [])


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
@pytest.mark.parametrize(("read", "verb"), [(READ, "reads"), ("mov.b32 %r16, 0;", "frees")])
def test_without_a_wait_tensor_memory_is_read_or_freed_too_early(read, verb, schedule):
    run = launch(schedule, wait="", read=read, end=TOGETHER)
    races = [finding.message for finding in run.findings if finding.kind == "race"]
    assert any(f"{verb} column 0 of tensor memory" in message for message in races)
    assert kinds(launch(schedule, read=read)) == set()


def test_a_wait_for_the_wrong_parity_waits_for_nothing():
    assert "race" in kinds(launch(parity=1, end=TOGETHER))


@pytest.mark.parametrize("mask", [1, 2])
def test_a_commit_to_one_of_the_two_leaves_the_other_waiting(mask):
    run = launch(mask=mask)
    assert run.status == "deadlocked"


def test_the_other_cta_that_frees_without_waiting():
    """CTA 1 goes round its wait: its tensor memory is still written by the product of CTA 0."""
    run = launch(wait=" @%p2 bra G;\n" + WAIT + "G:\n", end=TOGETHER)
    races = [finding for finding in run.findings if finding.kind == "race"]
    assert races
    assert all("of block (1, 0, 0)" in finding.message for finding in races)


def test_what_a_thread_of_the_other_cta_stored_is_not_known_to_a_wait_of_one():
    wide = WAIT.replace("acquire.cta", "acquire.cluster")
    assert kinds(launch(store=STORE, load=LOAD, wait=wide)) == set()
    run = launch(store=STORE, load=LOAD)
    (race,) = [finding for finding in run.findings if finding.kind == "race"]
    assert "of block (1, 0, 0) reads" in race.message


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
def test_of_commits_of_one_thread_the_last_one_is_waited_for(schedule):
    """They arrive one after the other: who has waited for a later one may end."""
    assert kinds(launch(schedule, first=EMPTY)) == set()
    run = launch(schedule, last=EMPTY)
    assert kinds(run) == {"use-after-free"}
    assert kinds(launch(schedule, last=EMPTY, end=TOGETHER)) == set()
