"""Rounds of one barrier with different counts or operations, on both executors and in several orders."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.reference import execute

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 array)
{
  .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
  ld.param.u64 %rd0, [array];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  shr.u32 %r3, %r0, 5;
  mad.lo.u32 %r4, %r1, %r2, %r0;
  mad.wide.u32 %rd1, %r4, 4, %rd0;
  mov.u32 %r5, 0;
  setp.ge.u32 %p0, %r3, 2;
  setp.eq.u32 %p1, %r3, 0;
  setp.eq.u32 %p2, %r1, 0;
  setp.lt.u32 %p3, %r0, 5;
  add.u32 %r6, %r1, 63;
  mov.u32 %r7, 64;
"""
TAIL = """
END:
  st.global.u32 [%rd1], %r5;
  ret;
}
"""
ORDERS = [None, 1, 2]
SCHEDULES = ["canonical", "reversed", "eager", 1]


def found(body, threads=128, grid=1):
    """What is reported: "race", "misuse" or both in the emulator, and whether the reference reports; the outputs."""
    kernel = ptx.parse(HEAD + body + TAIL).kernels["kernel"]
    kinds, outputs = [], []
    for schedule in SCHEDULES:
        device = ptx.EmulatedDevice("sm_90a")
        array = device.array(np.zeros(grid * threads, np.uint32))
        run = device.launch(kernel, grid, threads, [array], schedule=schedule)
        kinds.append({finding.kind for finding in run.findings})
        outputs.append(array.numpy())
    for order in ORDERS:
        outcome = execute(kernel, grid, threads, [np.zeros(grid * threads, np.uint32)], order)
        assert all(bool(one) == bool(outcome.races or outcome.misuse) for one in kinds), (kinds, outcome)
        outputs.append(outcome.arrays[0])
    if not kinds[0]:
        assert all(np.array_equal(one, outputs[0]) for one in outputs)
    return set().union(*kinds), outputs[0]


# the first two warps meet for themselves, then all come to the same barrier for the block
PART_THEN_ALL = """
  @%p0 bra ALL;
  {part}
ALL:
  {between}
  {all}
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("whole", ["bar.sync 1, 128;", "barrier.sync 1;", "bar.red.popc.u32 %r5, 1, %p3;"])
@pytest.mark.parametrize("part", ["bar.sync 1, 64;", "barrier.sync 1, 64;", "bar.sync 1, %r7;"])
def test_a_round_of_some_and_one_of_all_are_kept_apart(part, whole):
    """Whoever comes for all of them may be counted among the first two, unless they have met in between."""
    kinds, _ = found(PART_THEN_ALL.format(part=part, between="", all=whole))
    assert kinds
    assert kinds <= {"race", "misuse", "deadlock"}
    assert found(PART_THEN_ALL.format(part=part, between="bar.sync 2;", all=whole))[0] == set()


def test_the_block_first_and_then_some():
    """Everybody waited in the round of the block, so that it is over for everybody."""
    assert found("bar.sync 1;\n  @%p0 bra END;\n  bar.sync 1, 64;")[0] == set()


def test_arrivals_for_another_number_of_threads():
    body = "@%p0 bra END;\n  @%p1 bar.arrive 1, {};\n  @!%p1 bar.sync 1, 64;"
    assert found(body.format(64))[0] == set()
    assert "misuse" in found(body.format(96))[0]


def test_a_round_of_arrivals_is_over_for_whoever_knows_of_them_all():
    """Warp 0 makes rounds of its own by arriving; the others come to the next one."""
    assert found("@!%p1 bra END;\n  bar.arrive 1, 32;\n  bar.arrive 1, 32;")[0] == set()
    body = "@%p1 bar.arrive 1, 32;\n  {}\n  @%p1 bra END;\n  bar.sync 1, 96;"
    assert found(body.format("bar.sync 2;"))[0] == set()
    assert found(body.format(""))[0]


def test_a_reduction_and_a_plain_barrier_in_one_round():
    """PTX: barrier.red must not be mixed with barrier.sync and barrier.arrive of the same active barrier."""
    kinds, _ = found("@%p1 bra OTHER;\n  bar.red.popc.u32 %r5, 1, %p3;\n  bra END;\nOTHER:\n  bar.sync 1;")
    assert kinds == {"misuse"}
    assert found("bar.red.popc.u32 %r5, 1, %p3;\n  bar.sync 1;")[0] == set()


def test_blocks_reduce_by_operations_of_their_own_at_one_barrier():
    """The warp for which the first block's other one waits leaves while the second block is at the barrier, too."""
    body = """
  @!%p2 bra SECOND;
  mov.u32 %r5, 9;
  @!%p1 bra LEAVE;
  bar.red.popc.u32 %r5, 1, %p3;
  bra END;
SECOND:
  bar.red.or.pred %p4, 1, %p3;
  selp.u32 %r5, 7, 8, %p4;
LEAVE:
  st.global.u32 [%rd1], %r5;
  exit;
"""
    kinds, out = found(body, 64, 2)
    assert kinds == set()
    assert out.tolist() == [5] * 32 + [9] * 32 + [7] * 64


def test_counts_in_registers_differ_between_blocks_and_within_one():
    half = "shl.b32 %r6, %r1, 5;\n  add.u32 %r6, %r6, 32;\n  setp.lt.u32 %p4, %r0, %r6;\n  @!%p4 bra END;\n"
    assert found(half + "  bar.sync 3, %r6;", 64, 2)[0] == set()
    assert "misuse" in found("shl.b32 %r6, %r3, 5;\n  add.u32 %r6, %r6, 64;\n  bar.sync 3, %r6;", 64)[0]


def test_a_partial_warp_counts_as_a_whole_one():
    """40 threads are two warps: a barrier for 64 and one of the block are the same."""
    assert found("bar.sync 1, 64;\n  bar.sync 1;\n  @%p1 bar.arrive 2, 64;\n  @!%p1 bar.sync 2, 64;", 40)[0] == set()
    assert found("@%p1 bar.sync 1, 64;\n  @!%p1 bar.sync 1;", 40)[0] == set()
    assert found("@!%p1 bar.sync 1, 32;\n  bar.sync 1, 64;", 40)[0]
