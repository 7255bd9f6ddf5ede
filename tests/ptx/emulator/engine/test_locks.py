"""Locks passed from block to block: the work grows with the number of blocks, not with its square."""

import numpy as np
import pytest

from kernbench import ptx

# one thread of a block takes the lock and tells the others through shared memory, as Triton's scalar atomics do
BLOCK_LOCK = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 lock, .param .u64 sum) {
  .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 4 .b8 s[4];
  ld.param.u64 %rd1, [lock]; ld.param.u64 %rd2, [sum]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;
TRY:
  bar.sync 0;
  @%p1 atom.global.acq_rel.gpu.cas.b32 %r2, [%rd1], 0, 1;
  @%p1 st.shared.b32 [s], %r2;
  bar.sync 0;
  ld.shared.b32 %r3, [s];
  setp.eq.u32 %p2, %r3, 1;
  @%p2 bra TRY;
  @%p1 ld.global.b32 %r4, [%rd2];
  add.u32 %r4, %r4, 1;
  @%p1 st.global.b32 [%rd2], %r4;
  bar.sync 0;
  @%p1 atom.global.acq_rel.gpu.exch.b32 %r5, [%rd1], 0;
  ret;
}
"""
# single threads take a lock
THREAD_LOCK = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 lock, .param .u64 sum) {
  .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [lock]; ld.param.u64 %rd2, [sum]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;
  @%p1 bra END;
TRY:
  atom.global.acquire.gpu.cas.b32 %r2, [%rd1], 0, 1;
  setp.ne.u32 %p2, %r2, 0;
  @%p2 bra TRY;
  ld.global.b32 %r4, [%rd2]; add.u32 %r4, %r4, 1; st.global.b32 [%rd2], %r4;
  atom.global.release.gpu.exch.b32 %r5, [%rd1], 0;
END:
  ret;
}
"""
# whose turn it is: everybody looks for another value
TICKETS = THREAD_LOCK.replace(
    """  atom.global.acquire.gpu.cas.b32 %r2, [%rd1], 0, 1;
  setp.ne.u32 %p2, %r2, 0;
""",
    """  mov.u32 %r6, %ctaid.x;
  atom.global.acquire.gpu.cas.b32 %r2, [%rd1], %r6, %r6;
  setp.ne.u32 %p2, %r2, %r6;
""",
).replace("exch.b32 %r5, [%rd1], 0;", "add.u32 %r5, [%rd1], 1;")


def launched(text, blocks, schedule="canonical"):
    device = ptx.EmulatedDevice("sm_90")
    lock, total = device.array(np.zeros(1, np.uint32)), device.array(np.zeros(1, np.uint32))
    run = device.launch(ptx.parse(text).kernels["k"], blocks, 64, [lock, total], schedule=schedule)
    assert run.safe, run.findings
    assert total.numpy()[0] == blocks
    return run.metrics["warp_instructions"]


@pytest.mark.parametrize("text", [BLOCK_LOCK, THREAD_LOCK])
def test_work_grows_with_the_blocks(text):
    few, many = launched(text, 8), launched(text, 64)
    assert many <= 12 * few


@pytest.mark.sampled(6)
@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1, 2])
@pytest.mark.parametrize("text", [BLOCK_LOCK, THREAD_LOCK, TICKETS])
def test_every_block_gets_its_turn(text, schedule):
    launched(text, 20, schedule)


def test_a_lock_that_nobody_gives_back_is_a_deadlock():
    text = BLOCK_LOCK.replace("  @%p1 atom.global.acq_rel.gpu.exch.b32 %r5, [%rd1], 0;\n", "")
    device = ptx.EmulatedDevice("sm_90")
    lock, total = device.array(np.zeros(1, np.uint32)), device.array(np.zeros(1, np.uint32))
    run = device.launch(ptx.parse(text).kernels["k"], 4, 64, [lock, total])
    assert [finding.kind for finding in run.findings] == ["deadlock"]


def test_a_lock_without_order_is_still_a_race():
    text = BLOCK_LOCK.replace("acq_rel.gpu", "relaxed.gpu")
    device = ptx.EmulatedDevice("sm_90")
    lock, total = device.array(np.zeros(1, np.uint32)), device.array(np.zeros(1, np.uint32))
    run = device.launch(ptx.parse(text).kernels["k"], 4, 64, [lock, total])
    assert "race" in [finding.kind for finding in run.findings]
