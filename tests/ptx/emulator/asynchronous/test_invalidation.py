"""mbarrier.inval of a barrier to which bytes are still on their way."""

import numpy as np
import pytest

COPY = """.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 source, .param .u64 out) {
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  .reg .pred %p<4>;
  .shared .align 128 .b8 tile[128];
  .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [source];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, bar;
  mov.u32 %r3, tile;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra WAIT;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 128, [%r2];
WAIT:
  bar.sync 0;
AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
  @!%p2 bra AGAIN;
READ:
  shl.b32 %r4, %r1, 2;
  add.u32 %r5, %r3, %r4;
  ld.shared.u32 %r6, [%r5];
  cvt.u64.u32 %rd3, %r4;
  add.u64 %rd3, %rd2, %rd3;
  st.global.u32 [%rd3], %r6;
  bar.sync 0;
  @!%p1 mbarrier.inval.shared::cta.b64 [%r2];
  ret;
}
"""
LOOP = COPY[COPY.index("AGAIN:") : COPY.index("READ:")]


@pytest.mark.parametrize("checks", [True, False])
def test_a_barrier_is_invalidated_when_its_copy_is_awaited(bench, checks):
    source, out = bench.device.array(np.arange(32, dtype=np.uint32)), bench.device.empty(32, np.uint32)
    assert bench.launch(COPY, 1, 32, [source, out], checks=checks).findings == []
    np.testing.assert_array_equal(out.numpy(), np.arange(32))


def test_bytes_that_are_still_to_come_are_reported_at_the_invalidation(bench):
    source, out = bench.device.array(np.arange(32, dtype=np.uint32)), bench.device.empty(32, np.uint32)
    # nobody reads the tile either: the barrier's end is all that is wrong
    unread = COPY.replace(LOOP, "").replace("ld.shared.u32 %r6, [%r5];", "mov.u32 %r6, 0;")
    found = bench.launch(unread, 1, 32, [source, out]).findings
    (misuse,) = [f for f in found if f.kind == "mbarrier-misuse"]
    assert "mbarrier.inval" in misuse.where.text
    assert "thread (0, 0, 0) of block (0, 0, 0) invalidates" in misuse.message
    assert "128 bytes are still outstanding" in misuse.message
