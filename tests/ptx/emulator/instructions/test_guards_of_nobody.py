"""An instruction whose guard holds in no lane does nothing, whatever it would do for lanes."""

import numpy as np
import pytest

from kernbench import ptx

KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out)
{{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .f32 %f<8>;
  .reg .b64 %rd<8>;
  .shared .align 128 .b8 tile[4096];
  .shared .align 8 .b64 bar;
  .shared .align 8 .b64 used;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, %tid.x;
  mov.b64 %rd1, 0;
  mov.b32 %r1, bar;
  setp.ge.u32 %p0, %r0, 512;
  setp.eq.u32 %p1, %r0, 0;
  mov.f32 %f0, 0f00000000;
  mov.f32 %f1, %f0;
  mov.f32 %f2, %f0;
  mov.f32 %f3, %f0;
  mov.b32 %r3, used;
  @%p1 mbarrier.init.shared.b64 [%r3], 1;
  wgmma.fence.sync.aligned;
  @%p0 {instruction}
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd2, %rd0, %rd2;
  st.global.b32 [%rd2], %r0;
  ret;
}}
"""


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize(
    "instruction",
    [
        "mbarrier.init.shared.b64 [%r1], 1;",
        "mbarrier.inval.shared.b64 [%r1];",
        "mbarrier.arrive.shared.b64 _, [%r1];",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;",
        "fence.mbarrier_init.release.cluster;",
        "fence.proxy.async.shared::cta;",
        "fence.proxy.async;",
        "fence.acq_rel.gpu;",
        "wgmma.fence.sync.aligned;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd1, %p1, 1, 1, 0, 0;",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 16, [%r1];",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 16;",
        "cp.async.bulk.commit_group;",
        "cp.async.bulk.wait_group 0;",
        "cp.async.ca.shared.global [%r1], [%rd0], 8;",
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",
        "cp.async.mbarrier.arrive.shared.b64 [%r1];",
        "red.shared.add.u32 [%r1], 1;",
        "atom.global.add.u32 %r2, [%rd0], 1;",
        "bar.warp.sync 0xffffffff;",
        "shfl.sync.idx.b32 %r2, %r0, 0, 31, 0xffffffff;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r0};",
        "setmaxnreg.inc.sync.aligned.u32 64;",
        "trap;",
    ],
)
def test_nobody(instruction, checks):
    device = ptx.EmulatedDevice("sm_90a")
    out = device.empty(128, np.uint32, "out")
    kernel = ptx.parse(KERNEL.format(instruction=instruction)).kernels["kernel"]
    run = device.launch(kernel, 1, 128, [out], checks=checks)
    assert run.status == "finished"
    assert not run.findings
    assert not run.formal
    assert out.numpy().tolist() == list(range(128))


PRODUCT = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel()
{{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .f32 %f<8>;
  .reg .b64 %rd<8>;
  .shared .align 128 .b8 tile[4096];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd2, %r0, 32;
  mov.b64 %rd1, tile;
  add.u64 %rd2, %rd2, %rd1;
  st.shared.v2.b64 [%rd2], {{0, 0}};
  st.shared.v2.b64 [%rd2+16], {{0, 0}};
  shr.u64 %rd1, %rd1, 4;
  setp.ge.u32 %p0, %r0, 512;
  setp.lt.u32 %p2, %r0, 512;
  fence.proxy.async;
  bar.sync 0;
  {fence} wgmma.fence.sync.aligned;
  {multiply} wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f0, %f1, %f2, %f3}}, %rd1, %rd1, 0, 1, 1, 0, 0;
  {commit} wgmma.commit_group.sync.aligned;
  {wait} wgmma.wait_group.sync.aligned 0;
  {use} add.f32 %f4, %f0, %f1;
  ret;
}}
"""
NOBODY, ALL, LEFT_OUT = "@%p0", "@%p2", "//"
STEPS = ("fence", "multiply", "commit", "wait", "use")
MEANING = {"no wgmma.fence came": "unfenced", "reads %f": "read too early"}


@pytest.mark.parametrize(
    ("guards", "found"),
    [
        ({}, set()),
        (dict.fromkeys(STEPS, ALL), set()),
        ({"fence": LEFT_OUT}, {"unfenced"}),
        ({"fence": LEFT_OUT, "multiply": NOBODY}, set()),
        ({"fence": NOBODY}, {"unfenced"}),
        ({"fence": NOBODY, "multiply": ALL}, {"unfenced"}),
        ({"fence": NOBODY, "multiply": NOBODY}, set()),
        ({"multiply": NOBODY}, set()),
        ({"commit": NOBODY}, {"read too early"}),
        ({"wait": NOBODY}, {"read too early"}),
        ({"wait": NOBODY, "use": NOBODY}, set()),
    ],
)
def test_what_nobody_runs_neither_needs_nor_gives_a_fence_or_a_wait(guards, found):
    code = ptx.parse(PRODUCT.format(**dict.fromkeys(STEPS, "") | guards)).kernels["kernel"]
    messages = [finding.message for finding in ptx.EmulatedDevice("sm_90a").launch(code, 1, 128, []).findings]
    assert {meaning for words, meaning in MEANING.items() if any(words in message for message in messages)} == found
