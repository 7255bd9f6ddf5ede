"""Registers that nobody wants beyond their block may be computed for lanes that run something else: no other may."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.emulator.analysis.building import build
from kernbench.ptx.emulator.analysis.flow.dataflow import local_to_blocks
from kernbench.ptx.reference import execute

LOOP = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 rounds, .param .u64 out)
{
  .reg .pred %p<4>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [rounds];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r14, %ctaid.x;
  mad.lo.u32 %r1, %r14, 64, %r1;
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd4, %rd1, %rd3;
  ld.global.u32 %r2, [%rd4];
  mov.u32 %r3, 0;
  mov.u32 %r4, 0;
  mov.u32 %r8, 7;
LOOP:
  // %r5 and %r6 are local; %r8 is read behind the loop; %r9 is set in some lanes only
  add.u32 %r5, %r4, %r1;
  mov.u32 %r9, 100;
  and.b32 %r6, %r5, 1;
  setp.eq.u32 %p1, %r6, 0;
  @%p1 mov.u32 %r9, %r5;
  add.u32 %r3, %r3, %r9;
  mul.lo.u32 %r8, %r5, 3;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p2, %r4, %r2;
  @%p2 bra LOOP;
  add.u32 %r3, %r3, %r8;
  add.u64 %rd5, %rd2, %rd3;
  st.global.u32 [%rd5], %r3;
  ret;
}
"""
GROUP = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 a)
{
  .reg .b32 %r<8>;
  .reg .b32 %d<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [a];
  mov.u32 %r0, %tid.x;
  add.u32 %r1, %r0, 1;
  add.u32 %r2, %r1, 1;
  add.u32 %r3, %r2, 1;
  add.u32 %r4, %r3, 1;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, {%r1,%r2,%r3,%r4}, %rd1, 0, 1, 1, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  ret;
}
"""


def names(text):
    _, (body,) = build(ptx.parse(text).kernels["kernel"])
    local = local_to_blocks(body)
    registers = {r.number: r.name for ds in body.decodings for d in ds for r in (*d.reads, *d.writes)}
    return {name for number, name in registers.items() if local >> number & 1}


def test_which_registers_are_local():
    found = names(LOOP)
    assert {"%r5", "%r6", "%r9", "%p1", "%p2"} <= found
    assert not {"%r1", "%r2", "%r3", "%r4", "%r8"} & found


def test_what_a_warpgroup_uses_is_not_local():
    assert not {"%r1", "%r2", "%r3", "%r4", "%d0", "%d3", "%rd1"} & names(GROUP)
    assert "%r0" in names(GROUP)


def sums(rounds):
    found = []
    for thread, count in enumerate(rounds):
        local = np.arange(max(count, 1)) + thread
        found.append(np.where(local % 2 == 0, local, 100).sum() + 3 * local[-1])
    return np.array(found, np.uint32)


@pytest.mark.parametrize("shape", ["warps", "lanes", "few", "random"])
@pytest.mark.parametrize("checks", [True, False])
def test_lanes_that_left_a_loop_keep_their_values(shape, checks):
    threads = np.arange(8 * 64)
    rounds = {
        "warps": threads // 32 % 5 + 1,
        "lanes": threads % 7 + 1,
        "few": np.where(threads == 130, 9, 1),
        "random": np.random.default_rng(0).integers(1, 12, len(threads)),
    }[shape].astype(np.uint32)
    device = ptx.EmulatedDevice("sm_90a")
    out = device.array(np.zeros(len(threads), np.uint32))
    run = device.launch(ptx.parse(LOOP).kernels["kernel"], 8, 64, [device.array(rounds), out], checks=checks)
    assert not run.findings
    np.testing.assert_array_equal(out.numpy(), sums(rounds))


# Lane 0 of warp 0 waits for a flag of warp 1, and comes to the operation when the others of its warp wait there. Its
# %r6 and %p3 are set from a register that the same block changes behind it: computed again for all, they would differ.
LATE = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 flag, .param .u64 out)
{{
  .reg .pred %p<8>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [flag];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  and.b32 %r2, %r1, 31;
  mov.u32 %r5, %r2;
  mov.u32 %r7, 0;
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd4, %rd2, %rd3;
  setp.eq.u32 %p1, %r1, 32;
  @%p1 bra FLAG;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra MEET;
POLL:
  ld.acquire.gpu.global.u32 %r3, [%rd1];
  setp.eq.u32 %p2, %r3, 0;
  @%p2 bra POLL;
  bra MEET;
FLAG:
  st.release.gpu.global.u32 [%rd1], 1;
MEET:
  add.u32 %r6, %r5, 1;
  setp.lt.u32 %p3, %r5, 16;
  shr.u32 %r5, %r5, 1;
  {operation}
  add.u32 %r7, %r7, %r5;
  st.global.u32 [%rd4], %r7;
  ret;
}}
"""


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
@pytest.mark.parametrize(
    "operation",
    [
        "shfl.sync.bfly.b32 %r7, %r6, 1, 31, -1;",
        "shfl.sync.idx.b32 %r7, %r2, %r6, 31, -1;",
        "vote.sync.ballot.b32 %r7, %p3, -1;",
        "match.any.sync.b32 %r7, %r6, -1;",
        "redux.sync.add.u32 %r7, %r6, -1;",
        "bar.red.popc.u32 %r7, 0, %p3;",
    ],
)
def test_lanes_that_wait_for_others_of_their_warp_keep_their_values(operation, schedule):
    kernel = ptx.parse(LATE.format(operation=operation)).kernels["kernel"]
    given = [np.zeros(4, np.uint32), np.zeros(64, np.uint32)]
    device = ptx.EmulatedDevice("sm_90a")
    arrays = [device.array(array) for array in given]
    run = device.launch(kernel, 1, 64, arrays, schedule=schedule)
    expected = execute(kernel, 1, 64, given)
    assert (expected.status, expected.races, expected.misuse) == ("finished", [], [])
    assert not run.findings
    np.testing.assert_array_equal(arrays[1].numpy(), expected.arrays[1])
