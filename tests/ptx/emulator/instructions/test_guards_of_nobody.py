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
{steps}
  ret;
}}
"""
NOBODY, ALL, LEFT_OUT = "@%p0", "@%p2", "//"
STEPS = {
    "fence": "wgmma.fence.sync.aligned;",
    "multiply": (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd1, 0, 1, 1, 0, 0;"
    ),
    "commit": "wgmma.commit_group.sync.aligned;",
    "wait": "wgmma.wait_group.sync.aligned 0;",
    "use": "add.f32 %f4, %f0, %f1;",
}


def found_of(steps):
    """Which of some guarded steps are found: positions of products without a fence, and of reads without a wait."""
    text = PRODUCT.format(steps="\n".join(f"  {guard} {STEPS[step]}" for step, guard in steps))
    first = text[: text.index(f"  {steps[0][1]} {STEPS[steps[0][0]]}\n")].count("\n") + 1
    run = ptx.EmulatedDevice("sm_90a").launch(ptx.parse(text).kernels["kernel"], 1, 128, [])
    about = ("no wgmma.fence came", "reads %f")
    return {f.where.line - first for f in run.findings if any(words in f.message for words in about)}


@pytest.mark.parametrize(
    ("guards", "found"),
    [
        ({}, ""),
        (dict.fromkeys(STEPS, ALL), ""),
        ({"fence": LEFT_OUT}, "multiply"),
        ({"fence": LEFT_OUT, "multiply": NOBODY}, ""),
        ({"fence": NOBODY}, "multiply"),
        ({"fence": NOBODY, "multiply": ALL}, "multiply"),
        ({"fence": NOBODY, "multiply": NOBODY}, ""),
        ({"multiply": NOBODY}, ""),
        ({"commit": NOBODY}, "use"),
        ({"wait": NOBODY}, "use"),
        ({"wait": NOBODY, "use": NOBODY}, ""),
    ],
)
def test_what_nobody_runs_neither_needs_nor_gives_a_fence_or_a_wait(guards, found):
    assert found_of([(step, guards.get(step, "")) for step in STEPS]) == (
        {list(STEPS).index(found)} if found else set()
    )


def wanted_of(steps):
    """The same by going through the steps that somebody runs, one after the other."""
    fenced, open_group, in_flight, found = False, False, False, set()
    for at, (step, guard) in enumerate(steps):
        if guard in (NOBODY, LEFT_OUT):
            continue
        if step == "fence":
            fenced = True
        elif step == "multiply":
            found |= set() if fenced else {at}
            open_group = True
        elif step == "commit":
            in_flight, open_group = in_flight or open_group, False
        elif step == "wait":
            in_flight = False
        else:
            found |= {at} if in_flight or open_group else set()
            fenced = False
    return found


def test_random_steps_under_guards():
    random, lengths = np.random.default_rng(1), []
    for _ in range(60):
        steps = [(str(random.choice(list(STEPS))), str(random.choice(["", ALL, NOBODY]))) for _ in range(9)]
        wanted = wanted_of(steps)
        assert found_of(steps) == wanted, steps
        lengths.append(len(wanted))
    assert 10 < lengths.count(0) < 50
