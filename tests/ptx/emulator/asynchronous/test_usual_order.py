"""A race whose orders are not alike on a GPU: the finding says which is the usual one, and why."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import descriptor, strides

from kernbench import ptx

# two warpgroups multiply the same tiles; then the second writes B, which the first may still read
KERNEL = """.version 8.4
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tiles[2304];
.visible .entry kernel(.param .u64 out, .param .u64 a, .param .u64 b)
{
  .reg .pred %p<4>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<8>;
  .reg .b32 %d<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [a];
  ld.param.u64 %rd3, [b];
  mov.u32 %r1, tiles;
  shr.u32 %r2, %r1, 4;
  cvt.u64.u32 %rd4, %r2;
  add.u64 %rd2, %rd2, %rd4;
  add.u64 %rd3, %rd3, %rd4;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r3, 16, %r1;
  setp.lt.u32 %p1, %r3, 144;
  @%p1 st.shared.v4.b32 [%r4], {0, 0, 0, 0};
  fence.proxy.async;
  mov.u32 %r9, 3;
  setp.ne.b32 %p2, 0, 0;
  setp.lt.u32 %p3, %r3, 128;
  @%p3 bra FIRST;
  bar.sync %r9, 256;
SECOND
  @%p1 st.shared.b32 [%r4], 1;
  ret;
FIRST:
  bar.sync 3, 256;
BEFORE
PRODUCT
AFTER
  mad.wide.u32 %rd5, %r3, 16, %rd1;
  st.global.v4.b32 [%rd5], {%d0, %d1, %d2, %d3};
  ret;
}
"""
PRODUCT = """  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %rd2, %rd3, %p2, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
"""
WAIT = "  wgmma.wait_group.sync.aligned 0;"
MEET = "  bar.sync 4, 256;"


def launch(second=PRODUCT + WAIT, before="", after=""):
    parts = {"SECOND": second, "BEFORE": before, "PRODUCT": PRODUCT + WAIT, "AFTER": after}
    text = KERNEL
    for name, part in parts.items():
        text = text.replace(f"\n{name}\n", f"\n{part}\n")
    (lead_a, stride_a, start_b), (lead_b, stride_b, _) = strides(64, 16, 2, "none", 0), strides(8, 16, 2, "none", 0)
    device = ptx.EmulatedDevice("sm_90a")
    out = device.array(np.zeros((128, 4), np.uint32))
    given = out, descriptor(0, lead_a, stride_a, 0), descriptor(start_b, lead_b, stride_b, 0)
    return device.launch(ptx.parse(text).kernels["kernel"], 1, 256, given).findings


def test_the_writer_multiplies_first():
    races = launch()
    assert {finding.kind for finding in races} == {"race"}
    for finding in races:
        assert "the product nearly always reads first" in finding.message
        assert "it can begin 1 instructions after barrier 3, 256" in finding.message
        assert "at least 4 instructions after it, one of them a wait for a product" in finding.message


@pytest.mark.parametrize("places", [{"second": ""}, {"before": WAIT}], ids=["nobody waits", "both wait"])
def test_either_order_is_likely(places):
    races = launch(**places)
    assert {finding.kind for finding in races} == {"race"}
    assert not any("nearly always" in finding.message for finding in races)


def test_another_barrier_orders_them():
    assert not launch(second=PRODUCT + WAIT + MEET, after=MEET)
