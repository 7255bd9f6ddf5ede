"""The reference executor by itself: values, races, deadlocks, and a clear refusal of what it does not know."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.reference import UnknownInstructionError, execute

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 array)
{
  .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
  .shared .align 16 .b32 s[64];
  .shared .align 8 .b64 ready;
  ld.param.u64 %rd0, [array];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, s;
  mad.lo.u32 %r1, %r0, 4, %r1;
  mad.wide.u32 %rd1, %r0, 4, %rd0;
  shr.u32 %r2, %r0, 5;
  setp.eq.u32 %p1, %r2, 1;
  setp.eq.u32 %p2, %r0, 0;
"""
ORDERS = [None, 1, 2]


def run(body, threads=64, grid=1, order=None):
    kernel = ptx.parse(HEAD + body + "\n  ret;\n}\n").kernels["kernel"]
    return execute(kernel, grid, threads, [np.zeros(grid * threads, np.uint32)], order)


EXCHANGE = """
  st.shared.u32 [%r1], %r0;
  bar.sync 0;
  xor.b32 %r3, %r0, 33;
  mov.u32 %r4, s;
  mad.lo.u32 %r4, %r3, 4, %r4;
  ld.shared.u32 %r5, [%r4];
  st.global.u32 [%rd1], %r5;
"""


@pytest.mark.parametrize("order", ORDERS)
def test_values_through_shared_memory(order):
    outcome = run(EXCHANGE, order=order)
    assert outcome.status == "finished"
    assert outcome.races == []
    assert outcome.arrays[0].tolist() == [thread ^ 33 for thread in range(64)]


@pytest.mark.parametrize("order", ORDERS)
def test_without_the_barrier_there_is_a_race(order):
    assert run(EXCHANGE.replace("  bar.sync 0;\n", ""), order=order).races


def test_given_arrays_stay_as_they_are():
    given = np.zeros(64, np.uint32)
    kernel = ptx.parse(HEAD + EXCHANGE + "\n  ret;\n}\n").kernels["kernel"]
    assert execute(kernel, 1, 64, [given]).arrays[0].any()
    assert not given.any()


HAND_OVER = """
  @%p1 bra READER;
  st.shared.u32 [%r1], %r0;
  bar.arrive 1, 64;
  bra DONE;
READER:
  bar.sync 1, 64;
  ld.shared.u32 %r5, [%r1+-128];
  st.global.u32 [%rd1], %r5;
DONE:
"""


@pytest.mark.parametrize("order", ORDERS)
def test_who_only_arrives_tells_and_goes_on(order):
    outcome = run(HAND_OVER, order=order)
    assert (outcome.status, outcome.races) == ("finished", [])
    assert outcome.arrays[0][32:].tolist() == list(range(32))


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_that_is_never_full_is_a_deadlock(order):
    assert run(HAND_OVER.replace("1, 64", "1, 96"), order=order).status == "deadlocked"


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_that_never_meet(order):
    outcome = run("  @%p2 bra DONE;\n  bar.warp.sync -1;\n  bra END;\nDONE:\n  bar.sync 0;\nEND:\n", 32, order=order)
    assert outcome.status == "stuck"


MBARRIER = """
  @%p2 mbarrier.init.shared.b64 [ready], 1;
  bar.sync 0;
  setp.ne.u32 %p3, %r0, 5;
  @%p3 bra WAIT;
  st.shared.u32 [s], 9;
  mbarrier.arrive.shared.b64 %rd2, [ready];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p4, [ready], 0;
  @!%p4 bra WAIT;
  ld.shared.u32 %r5, [s];
  st.global.u32 [%rd1], %r5;
"""


@pytest.mark.parametrize("order", ORDERS)
def test_an_mbarrier_orders_lanes_and_warps(order):
    outcome = run(MBARRIER, order=order)
    assert (outcome.status, outcome.races, outcome.misuse) == ("finished", [], [])
    assert set(outcome.arrays[0].tolist()) == {9}
    late = "  st.shared.u32 [s], 9;\n", "  mbarrier.arrive.shared.b64 %rd2, [ready];\n"
    assert run(MBARRIER.replace("".join(late), late[1] + late[0]), order=order).races
    assert run(MBARRIER.replace(late[1], ""), order=order).status == "deadlocked"


FLAG = """
  setp.ne.u32 %p3, %r0, 0;
  @%p3 bra DONE;
  mov.u32 %r6, %ctaid.x;
  setp.eq.u32 %p4, %r6, 1;
  @%p4 bra READER;
  st.global.u32 [%rd0], 7;
  st.release.gpu.global.u32 [%rd0+4], 1;
  bra DONE;
READER:
  ld.acquire.gpu.global.u32 %r7, [%rd0+4];
  setp.eq.u32 %p5, %r7, 0;
  @%p5 bra READER;
  ld.global.u32 %r8, [%rd0];
  st.global.u32 [%rd0+8], %r8;
DONE:
"""


@pytest.mark.parametrize("order", ORDERS)
def test_release_and_acquire_between_blocks(order):
    outcome = run(FLAG, 32, 2, order)
    assert (outcome.status, outcome.races) == ("finished", [])
    assert outcome.arrays[0][2] == 7
    assert run(FLAG.replace("st.release", "st.relaxed"), 32, 2, order).races
    assert run(FLAG.replace("ld.acquire", "ld.relaxed"), 32, 2, order).races
    assert run(FLAG.replace("st.release.gpu", "st.release.cta"), 32, 2, order).races


COPY = """
  mad.lo.u32 %r1, %r0, 0, %r1;
  cp.async.ca.shared.global [%r1], [%rd1], 4;
  cp.async.commit_group;
  cp.async.wait_group 0;
  bar.sync 0;
  ld.shared.u32 %r5, [s+8];
  st.global.u32 [%rd1], %r5;
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_copy_is_known_when_it_is_waited_for(order):
    assert run(COPY, order=order).races == []
    assert run(COPY.replace("  cp.async.wait_group 0;\n", ""), order=order).races


def test_what_it_does_not_know_is_refused():
    with pytest.raises(UnknownInstructionError, match=r"line 17: the reference executor does not know this\n    ex2"):
        run("  ex2.approx.f32 %r5, %r5;")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mul.hi.s32 %r5, -2, 3;", 0xFFFFFFFF),
        ("shr.s32 %r5, -8, 40;", 0xFFFFFFFF),
        ("shl.b32 %r5, 3, 32;", 0),
        ("div.s32 %r5, -7, 2;", 0xFFFFFFFD),
        ("rem.s32 %r5, -7, 2;", 0xFFFFFFFF),
        ("brev.b32 %r5, 1;", 0x80000000),
        ("clz.b32 %r5, 1;", 31),
        ("cvt.s32.s8 %r5, 0x1FF;", 0xFFFFFFFF),
        ("lop3.b32 %r5, 12, 10, 6, 0x96;", 12 ^ 10 ^ 6),
        ("shfl.sync.idx.b32 %r5, %r0, 7, 31, -1;", 7),
        ("vote.sync.ballot.b32 %r5, %p2, -1;", 1),
        ("redux.sync.add.u32 %r5, %r0, -1;", 496),
        ("match.any.sync.b32 %r5, 4, -1;", 0xFFFFFFFF),
    ],
)
def test_values(text, expected):
    outcome = run(f"  mov.u32 %r5, 99;\n  {text}\n  st.global.u32 [%rd1], %r5;", 32)
    assert outcome.arrays[0][0] == expected
