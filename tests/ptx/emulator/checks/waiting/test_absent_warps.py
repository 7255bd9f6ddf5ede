"""Warps of one instruction's run that have no active lane are not there: barriers neither count nor teach them."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.emulator.lanes.lanes import WARP, from_mask

EVERY = ["canonical", "reversed", 1]
HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 array, .param .u32 which)
{
  .reg .pred %p<10>; .reg .b32 %r<16>; .reg .b64 %rd<4>;
  .shared .align 4 .b32 s[32];
  .shared .align 8 .b64 done;
  ld.param.u64 %rd0, [array];
  ld.param.u32 %r9, [which];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r8, %ntid.x;
  mad.lo.u32 %r2, %r1, %r8, %r0;
  mad.wide.u32 %rd1, %r2, 4, %rd0;
  shr.u32 %r3, %r0, 5;
  and.b32 %r5, %r0, 31;
  mov.u32 %r6, s;
  mad.lo.u32 %r6, %r5, 4, %r6;
  setp.eq.u32 %p1, %r3, 1;
  setp.eq.u32 %p2, %r3, 2;
  mov.u32 %r4, 7;
"""


def launch(body, grid, block, which=0, schedule="canonical", **options):
    device = ptx.EmulatedDevice("sm_90a")
    array = device.array(np.zeros(grid * block, np.uint32))
    kernel = ptx.parse(HEAD + body + "\n  ret;\n}\n").kernels["kernel"]
    run = device.launch(kernel, grid, block, [array, which], schedule=schedule, **options)
    return run, array.numpy().reshape(grid, block)


# even blocks meet at a barrier of 32 threads, odd ones at one of all: 32 threads must not open that one
COUNTS = """
  and.b32 %r7, %r1, 1;
  setp.eq.u32 %p0, %r7, 1;
  @%p0 bra ODD;
  @%p1 bra END;
  bar.sync 0, 32;
  bra END;
ODD:
  @%p1 bra WRITER;
  bar.sync 0;
  ld.shared.u32 %r4, [%r6];
  bra END;
WRITER:
  mov.u32 %r7, 42;
  st.shared.u32 [%r6], %r7;
  bar.sync 0;
END:
  st.global.u32 [%rd1], %r4;
"""


@pytest.mark.parametrize("schedule", EVERY)
def test_a_count_stays_in_the_blocks_that_gave_it(schedule):
    run, array = launch(COUNTS, 4, 64, schedule=schedule)
    assert not run.findings, run.findings
    assert array[:, 0].tolist() == [7, 42, 7, 42]


# barrier 3 is for 96 threads of a block: warp 1 waits, warp 2 and warp 0 arrive, in block `which` warp 3 for warp 0
ARRIVALS = """
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra WROTE;
  st.shared.b32 [%r6], %r4;
WROTE:
  bar.warp.sync -1;
  @%p1 bra READER;
  @%p2 bra ARRIVE;
  setp.eq.u32 %p3, %r1, %r9;
  setp.eq.u32 %p4, %r3, 3;
  xor.pred %p5, %p3, %p4;
  @%p5 bra DONE;
ARRIVE:
  bar.arrive 3, 96;
  bra DONE;
READER:
  bar.sync 3, 96;
  ld.shared.b32 %r10, [s];
  st.global.b32 [%rd1], %r10;
DONE:
"""


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("schedule", EVERY)
def test_ended_warps_do_not_arrive(schedule, checks):
    run, array = launch(ARRIVALS, 3, 128, 1, schedule, checks=checks)
    assert run.status == "finished"
    assert (array[:, 32:64] == 7).all()


@pytest.mark.parametrize("grid", [3, 5])
@pytest.mark.parametrize("schedule", EVERY)
def test_a_warp_that_does_not_come_tells_nothing(schedule, grid):
    run, _ = launch(ARRIVALS + "  bar.sync 0;", grid, 128, 1, schedule)
    (finding,) = run.findings
    assert finding.kind == "race"
    assert "of block (1, 0, 0)" in finding.message


# after a first round block 1 ends its second one before the others begin theirs, as a flag in memory tells
ROUNDS = """
  setp.ne.u32 %p3, %r5, 0;
  setp.eq.u32 %p4, %r1, 1;
  setp.eq.u32 %p5, %r0, 0;
  @%p5 mbarrier.init.shared.b64 [done], 1;
  bar.sync 0;
  bar.sync 1, 64;
  @%p1 bra PRODUCER;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p6, [done], 0;
  @!%p6 bra WAIT;
  bar.arrive 1, 64;
  ret;
PRODUCER:
  @%p4 bra GO;
  @%p3 bra GO;
POLL:
  ld.acquire.gpu.global.u32 %r10, [%rd0];
  setp.eq.u32 %p7, %r10, 0;
  @%p7 bra POLL;
GO:
  bar.warp.sync -1;
  @%p3 bra ARRIVED;
  mbarrier.arrive.shared.b64 %rd2, [done];
ARRIVED:
  bar.warp.sync -1;
  bar.sync 1, 64;
  @%p3 bra OUT;
  @!%p4 bra OUT;
  st.release.gpu.global.u32 [%rd0], %r4;
OUT:
"""


@pytest.mark.parametrize("schedule", EVERY)
def test_a_warp_that_does_not_come_is_not_out_of_turn(schedule):
    run, _ = launch(ROUNDS, 4, 64, schedule=schedule)
    assert run.status == "finished"
    assert not run.findings, run.findings


VOTES = """
  and.b32 %r7, %r1, 1;
  setp.eq.u32 %p0, %r7, 1;
  setp.lt.u32 %p3, %r5, 5;
  @%p0 bra ODD;
  @%p1 bra END;
  barrier.red.popc.u32 %r4, 2, 32, %p3;
  bra END;
ODD:
  setp.lt.u32 %p3, %r5, 7;
  bar.red.popc.u32 %r4, 2, %p3;
END:
  st.global.u32 [%rd1], %r4;
"""


def test_votes_are_those_of_the_warps_that_came():
    run, array = launch(VOTES, 4, 64)
    assert not run.findings, run.findings
    assert array[:, 0].tolist() == [5, 14, 5, 14]
    assert array[:, 32].tolist() == [7, 14, 7, 14]


def test_issued_warps_are_those_with_an_active_lane():
    """Of eight warps in a row, two of the second half do not run the store."""
    body = """
  setp.eq.u32 %p0, %r1, %r9;
  @%p0 bra END;
  st.global.u32 [%rd1], %r4;
END:
"""
    every = launch(body, 4, 64, 9)[0].metrics["warp_instructions"]
    # block 2 does neither the store nor what follows in its basic block
    assert every - launch(body, 4, 64, 2)[0].metrics["warp_instructions"] == 2


def test_present_warps_of_a_run_with_holes():
    mask = np.zeros(16 * WARP, bool)
    mask[[33, 34, 70, 200]] = True
    lanes = from_mask(mask)
    assert lanes.warps is None
    assert lanes.warp_numbers().tolist() == [1, 2, 3, 4, 5, 6]
    warps, active = lanes.present()
    assert warps.tolist() == [1, 2, 6]
    assert lanes.live == 3
    assert active.sum(axis=1).tolist() == [2, 1, 1]
    assert np.flatnonzero(active[0]).tolist() == [1, 2]


def test_a_run_that_is_nearly_all_of_another_is_the_other():
    mask = np.ones(16 * WARP, bool)
    mask[:WARP] = mask[5 * WARP] = False
    lanes = from_mask(mask)
    assert (lanes.first, lanes.last, lanes.live, lanes.count) == (0, 16, 15, 15 * WARP - 1)
    assert lanes.present()[0].tolist() == list(range(1, 16))
    # one without holes is taken by itself, as it needs no mask
    mask[5 * WARP] = True
    lanes = from_mask(mask)
    assert (lanes.first, lanes.last, lanes.mask) == (1, 16, None)
