"""A copy that nobody waited for is reported as that, and not as memory that nobody wrote."""

import numpy as np
import pytest

from kernbench import ptx

HEAD = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 src, .param .u64 out) {
  .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<8>;
  .shared .align 128 .b8 tile[256]; .shared .align 8 .b8 bar[8];
  ld.param.u64 %rd1, [src]; ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, bar;
  shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; cvt.u64.u32 %rd4, %r4; add.u64 %rd5, %rd2, %rd4;
"""
TAIL = """
  bar.sync 0;
  xor.b32 %r5, %r5, 4;
  ld.shared.u32 %r6, [%r5];
  st.global.u32 [%rd5], %r6;
  ret;
}"""
BULK = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 mbarrier.init.shared.b64 [%r3], 1;
  @%p1 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @!%p1 bra READ;
  mbarrier.arrive.expect_tx.shared.b64 %rd3, [%r3], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r3];
READ:
"""
BULK_WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;\n  @!%p2 bra W;"
OWN = """
  add.u64 %rd1, %rd1, %rd4;
  cp.async.ca.shared.global [%r5], [%rd1], 4;
  cp.async.commit_group;
"""
OWN_WAIT = "cp.async.wait_group 0;"


def findings(body):
    device = ptx.EmulatedDevice("sm_90")
    arrays = [device.array(np.arange(64, dtype=np.uint32)), device.array(np.zeros(64, np.uint32))]
    return device.launch(ptx.parse(HEAD + body + TAIL).kernels["k"], 1, 64, arrays).findings


@pytest.mark.parametrize("body", [BULK + BULK_WAIT, OWN + OWN_WAIT])
def test_copies_that_are_waited_for(body):
    assert findings(body) == []


def test_a_bulk_copy_that_nobody_waits_for():
    (found,) = findings(BULK)
    assert found.kind == "race"
    assert ", begun in PTX line 17 (`cp.async.bulk" in found.message
    assert "fills: nothing on the way here has waited for that copy" in found.message
    assert found.hint.startswith("wait on the mbarrier that the copy completes on")


def test_a_copy_of_threads_that_nobody_waits_for():
    (found,) = findings(OWN)
    assert found.kind == "in-flight"
    assert "`cp.async.ca.shared.global [%r5], [%rd1], 4;`) still fills" in found.message


def test_memory_that_no_copy_fills_is_unwritten_all_the_same():
    (found,) = findings("")
    assert found.kind == "uninitialised-read"
