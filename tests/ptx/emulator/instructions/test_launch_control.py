"""Cluster launch control: blocks that are running take over the work of others, which then never begin."""

import numpy as np
import pytest

from kernbench import ptx

# each cluster works on its own task, and then on those of clusters that it cancels, until none is left; a task counts
# the visits of its blocks, and notes the block whose thread came
TEXT = """.version 8.6
.target sm_100a
.address_size 64
.shared .align 16 .b8 answer[16];
.shared .align 8 .b64 done;
.visible .entry kernel(.param .u64 visits, .param .u64 workers) CLUSTER
{
  .reg .pred %p<6>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<8>;
  .reg .b128 %q;
  ld.param.u64 %rd1, [visits];
  ld.param.u64 %rd2, [workers];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ctaid.y;
  mov.u32 %r3, %cluster_ctarank;
  mov.u32 %r4, %nctaid.x;
  mad.lo.u32 %r10, %r2, %r4, %r1;
  setp.eq.u32 %p0, %r0, 0;
  setp.eq.u32 %p1, %r3, 0;
  mov.u32 %r5, 0;
  @%p0 mbarrier.init.shared::cta.b64 [done], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
TASK:
  mad.lo.u32 %r6, %r2, %r4, %r1;
  mul.wide.u32 %rd3, %r6, 4;
  add.u64 %rd4, %rd1, %rd3;
  @%p0 red.global.add.u32 [%rd4], 1;
  add.u64 %rd4, %rd2, %rd3;
  @%p0 st.global.u32 [%rd4], %r10;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [done], 16;
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
  and.pred %p2, %p0, %p1;
  @%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.ALL.b128 [answer], [done];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [done], %r5;
  @!%p3 bra WAIT;
  xor.b32 %r5, %r5, 1;
  ld.shared.b128 %q, [answer];
  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q;
  @!%p4 bra DONE;
  clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, %r7, %r8}, %q;
  clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r9, %q;
  setp.ne.u32 %p5, %r9, %r2;
  @%p5 trap;
  add.u32 %r1, %r1, %r3;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  bra TASK;
DONE:
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
  ret;
}
"""


def launch(grid, size, schedule="canonical", edit=("", ""), **options):
    text = TEXT.replace("CLUSTER", f".reqnctapercluster {size}, 1, 1").replace(
        ".ALL", ".multicast::cluster::all" if size > 1 else ""
    )
    assert edit[0] in text
    device = ptx.EmulatedDevice("sm_100a")
    tasks = grid[0] * grid[1]
    visits, workers = device.array(np.zeros(tasks, np.uint32)), device.array(np.zeros(tasks, np.uint32))
    kernel = ptx.parse(text.replace(*edit)).kernels["kernel"]
    run = device.launch(kernel, grid, 64, [visits, workers], schedule=schedule, **options)
    return run, visits.numpy(), workers.numpy()


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager", 1, 2])
@pytest.mark.parametrize(("grid", "size"), [((9, 1), 1), ((4, 3), 1), ((8, 2), 2), ((700, 1), 1), ((1, 1), 1)])
def test_every_task_is_done_once_some_by_others(grid, size, schedule):
    run, visits, workers = launch(grid, size, schedule)
    assert run.findings == []
    assert (visits == 1).all()
    own = workers == np.arange(len(workers))
    clusters = own.reshape(-1, size)
    assert (clusters.all(axis=1) | ~clusters.any(axis=1)).all()
    assert own.any()
    assert own.all() == (len(own) == size)
    # who was taken over has never worked
    assert set(workers.tolist()) == set(np.flatnonzero(own).tolist())


def test_the_same_blocks_are_taken_over_in_every_run():
    for schedule in ("canonical", "reversed", 7):
        assert launch((50, 1), 1, schedule)[2].tolist() == launch((50, 1), 1, schedule)[2].tolist()


def test_an_answer_that_is_read_too_early():
    run, _, _ = launch((9, 1), 1, edit=("  @!%p3 bra WAIT;\n", ""))
    assert "race" in {finding.kind for finding in run.findings}


def test_a_recording_has_all_clusters():
    run, visits, workers = launch((9, 1), 1, record=True)
    assert run.recording.ctas == 9
    assert (visits == 1).all()
    assert workers.tolist() == list(range(9))
