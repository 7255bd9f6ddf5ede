"""Waiting: barriers wait for lanes on their way, masks name lanes that come, loops that never end are told at once."""

import numpy as np
import pytest

from kernbench.ptx.emulator.analysis.flow.dominance import blocks_behind
from kernbench.safety.budget import Budget


def zeros(count, dtype="u4"):
    return np.zeros(count, dtype)


POLL = """
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra CONSUMER;
  setp.ne.u32 %p2, %r0, 0;
  @%p2 bra DONE;
  st.global.u32 [%rd20], 42;
  st.release.gpu.global.u32 [%rd21], 1;
  bra DONE;
CONSUMER:
  setp.ne.u32 %p2, %r0, {lane};
  @%p2 bra MEET;
SPIN:
  ld.acquire.gpu.global.u32 %r5, [%rd21];
  setp.eq.u32 %p3, %r5, 0;
  @%p3 bra SPIN;
MEET:
  {barrier}
  ld.global.u32 %r6, [%rd20];
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd22;
  st.global.u32 [%rd1], %r6;
DONE:
"""


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync.aligned 0;", "barrier.sync 0;", "bar.sync 1, 64;"])
@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
def test_a_barrier_waits_for_the_lane_that_polls(lab, barrier, schedule):
    body = POLL.format(lane=5, barrier=barrier)
    arrays = [zeros(1), zeros(1), zeros(64)]
    assert lab.kinds(body, *arrays, grid=2, block=64, schedule=schedule) == []
    assert (lab.arrays[2].numpy() == 42).all()


def test_a_poll_that_fails_is_the_deadlock_and_not_its_barrier(lab):
    body = POLL.format(lane=5, barrier="bar.sync 0;").replace("st.release.gpu.global.u32 [%rd21], 1;", "")
    run = lab.launch(body, zeros(1), zeros(1), zeros(64), grid=2, block=64)
    (found,) = run.findings
    assert found.kind == "deadlock"
    assert "thread (5, 0, 0) of block (1, 0, 0) waits for 'array1'" in found.message
    assert "wait for the rest of their warp, such as thread (5, 0, 0)" in found.message


def test_threads_that_returned_are_not_missed_at_a_barrier(lab):
    body = "  setp.ge.u32 %p1, %r0, 40;\n  @%p1 bra DONE;\n  bar.sync 0;\nDONE:"
    assert lab.kinds(body, block=64) == []
    stored = """
  setp.ge.u32 %p1, %r0, 40;
  @%p1 bra EARLY;
  bar.sync 0;
  ret;
EARLY:
  st.global.u32 [%rd20], 7;
"""
    assert lab.kinds(stored, zeros(1), block=64) == []


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_threads_that_went_past_a_barrier_have_left_it_out(lab, schedule):
    body = """
  setp.ge.u32 %p1, %r0, 16;
  @%p1 bra PAST;
  bar.sync 0;
PAST:
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  st.global.u32 [%rd1], 7;
"""
    (found,) = lab.findings(body, zeros(32), schedule=schedule)
    assert found.kind == "divergent-barrier"
    assert "such as thread (16, 0, 0) of block (0, 0, 0), which went past it and ended at PTX line" in found.message


@pytest.mark.parametrize("rotated", [False, True])
def test_lanes_that_left_the_loop_of_a_barrier(lab, rotated):
    head = "L:\n  setp.ge.u32 %p1, %r5, %r4;\n  @%p1 bra OUT;\n  add.u32 %r5, %r5, 1;\n  bar.sync 0;\n  bra L;\nOUT:\n"
    tail = "L:\n  bar.sync 0;\n  add.u32 %r5, %r5, 1;\n  setp.lt.u32 %p1, %r5, %r4;\n  @%p1 bra L;\n"
    body = "  and.b32 %r4, %r0, 3;\n  add.u32 %r4, %r4, 1;\n  mov.u32 %r5, 0;\n" + (tail if rotated else head)
    store = "  mul.wide.u32 %rd1, %r0, 4;\n  add.u64 %rd1, %rd1, %rd20;\n  st.global.u32 [%rd1], %r5;"
    (found,) = lab.findings(body + store, zeros(32))
    assert found.kind == "divergent-barrier"
    assert lab.kinds((body + store).replace("and.b32 %r4, %r0, 3;", "and.b32 %r4, %r0, 0;"), zeros(32)) == []


@pytest.mark.parametrize("block", ["STORE", "DONE"])
def test_lanes_that_return_out_of_the_loop_of_a_barrier(lab, block):
    body = f"""
  mov.u32 %r5, 0;
L:
  setp.gt.u32 %p1, %r5, %r0;
  @%p1 bra {block};
  bar.sync 0;
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p1, %r5, 10;
  @%p1 bra L;
  ret;
STORE:
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  st.global.u32 [%rd1], %r5;
DONE:
"""
    assert lab.kinds(body, zeros(64)) == []


def test_what_lies_behind_a_block():
    # 0 -> 1 (barrier) or 2; 1 -> 2; 2 -> 3 or 4; both end
    edges = {0: (1, 2), 1: (2,), 2: (3, 4), 3: (), 4: ()}
    assert blocks_behind(edges, frozenset(), 0, 1) == {2, 3, 4}
    assert blocks_behind(edges, frozenset({2}), 0, 1) == set()
    # a loop 1 -> 2 (barrier) -> 1 with a way out of its head and a return out of its body
    edges = {0: (1,), 1: (2, 4), 2: (3, 5), 3: (1,), 4: (), 5: ()}
    assert blocks_behind(edges, frozenset(), 0, 3) == set()
    edges = {0: (1,), 1: (2, 4), 2: (1,), 4: ()}
    assert blocks_behind(edges, frozenset(), 0, 2) == {4}


def test_lanes_of_a_warp_at_two_barriers_of_two_numbers(lab):
    body = "  setp.lt.u32 %p1, %r0, 16;\n  @%p1 bar.sync 1, 64;\n  @!%p1 bar.sync 2, 64;"
    assert set(lab.kinds(body, block=64)) == {"divergent-barrier", "deadlock"}


def test_a_mask_that_names_lanes_that_ended(lab):
    operation = "elect.sync %r5|%p2, {};"
    body = "  setp.ge.u32 %p1, %r0, 16;\n  @%p1 bra DONE;\n  {}\nDONE:"
    (found,) = lab.findings(body.format(operation.format("0x0002ffff")))
    assert found.kind == "warp-mask"
    assert "0x0002ffff of thread (0, 0, 0) of block (0, 0, 0) names lane 17; thread (17, 0, 0)" in found.message
    assert "ended at PTX line 19 and never comes" in found.message
    assert lab.kinds(body.format(operation.format("0x0000ffff"))) == []
    # lanes that the block never had are no lanes that ended
    assert lab.kinds("  " + operation.format("0xffffffff"), block=16) == []


# each with its result in lanes 0 to 15 of a warp of which the others have returned: the value is the lane's number / 8
OVER_THE_LIVING = {
    "vote.sync.ballot.b32 %r5, %p2, {};": 0x00FF,
    "vote.sync.all.pred %p3, %p4, {};\n  selp.b32 %r5, 1, 0, %p3;": 1,
    "vote.sync.any.pred %p3, %p5, {};\n  selp.b32 %r5, 1, 0, %p3;": 0,
    "vote.sync.uni.pred %p3, %p4, {};\n  selp.b32 %r5, 1, 0, %p3;": 1,
    "redux.sync.add.u32 %r5, %r0, {};": 120,
    "redux.sync.max.u32 %r5, %r0, {};": 15,
    "match.all.sync.b32 %r5, 7, {};": 0xFFFF,
}


@pytest.mark.parametrize("operation", OVER_THE_LIVING)
@pytest.mark.parametrize("mask", ["0xffffffff", "%r6"])
def test_votes_and_reductions_are_over_lanes_that_have_not_ended(lab, operation, mask):
    """PTX waits for the lanes of the mask that have not exited, and defines the result over them."""
    body = f"""
  mov.u32 %r5, 0;
  mov.u32 %r6, -1;
  setp.lt.u32 %p2, %r0, 8;
  setp.lt.u32 %p4, %r0, 16;
  setp.ge.u32 %p5, %r0, 16;
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  @%p5 bra DONE;
  {operation.format(mask)}
  st.global.u32 [%rd1], %r5;
DONE:"""
    assert lab.kinds(body, np.zeros(32, "u4")) == []
    assert lab.arrays[0].numpy().tolist() == [OVER_THE_LIVING[operation]] * 16 + [0] * 16
    # those that went past and do something else have left it out
    past = body.replace("DONE:", "").replace("  st.global.u32", "DONE:\n  st.global.u32")
    found = lab.findings(past, np.zeros(32, "u4"))
    assert [one.kind for one in found] == ["warp-mask"]
    assert "names lanes 16-31; thread (16, 0, 0) of block (0, 0, 0) ended" in found[0].message


@pytest.mark.parametrize("mask", ["0xffffffff", "%r6"])
def test_a_shuffle_misses_lanes_that_ended_where_it_takes_their_values(lab, mask):
    """PTX waits for the lanes of the mask that have not exited, and butterflies of half a warp stay in that half."""
    body = f"""
  mov.u32 %r6, -1;
  setp.ge.u32 %p1, %r0, 16;
  @%p1 bra DONE;
  shfl.sync.bfly.b32 %r5, %r0, {{}}, 31, {mask};
DONE:"""
    for step in (1, 2, 4, 8):
        assert lab.kinds(body.format(step)) == []
    (found,) = lab.findings(body.format(16))
    assert (found.kind, found.count) == ("inactive-lane", 16)


def test_a_warp_meets_without_those_that_returned(lab):
    body = "  setp.ge.u32 %p1, %r0, 16;\n  @%p1 bra DONE;\n  bar.warp.sync 0xffffffff;\nDONE:"
    assert lab.kinds(body) == []


def test_a_flag_by_its_name(lab):
    body = """
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MEET;
  st.shared.u32 [flag], 3;
MEET:
  bar.sync 0;
SPIN:
  ld.volatile.shared.u32 %r5, [flag];
  setp.ne.u32 %p1, %r5, 4;
  @%p1 bra SPIN;
"""
    (found,) = lab.findings(body, outside=".shared .b32 flag;", block=64)
    assert found.kind == "deadlock"
    assert (
        "and 62 more wait for shared memory 'flag'+0 (0x0) to change from 3; PTX line 21 may write it" in found.message
    )


def test_a_flag_that_is_set_is_polled_again_and_again(lab):
    body = """
  mov.u32 %r63, 0;
AGAIN:
SPIN:
  ld.acquire.gpu.global.u32 %r5, [%rd20];
  setp.eq.u32 %p1, %r5, 0;
  @%p1 bra SPIN;
  add.u32 %r63, %r63, 1;
  setp.lt.u32 %p1, %r63, 5;
  @%p1 bra AGAIN;
"""
    assert (lab.compute(body, np.ones(1, "u4")) == 5).all()


def test_threads_that_ended_do_not_count_at_a_barrier_with_a_count(lab):
    body = "  setp.ge.u32 %p1, %r0, 64;\n  @%p1 exit;\n  bar.sync 1, {};"
    (found,) = lab.findings(body.format(96), block=96)
    assert found.kind == "deadlock"
    assert "64 of 96 threads have arrived; the others have ended" in found.message
    assert lab.kinds(body.format(64), block=96) == []


FUNCTION = """
.func (.param .b32 result) agreed(.param .b32 value)
{
  .reg .b32 %r<4>;
  .reg .pred %p<3>;
  ld.param.b32 %r1, [value];
  setp.ne.u32 %p1, %r1, 0;
  vote.sync.any.pred %p2, %p1, 0xffffffff;
  selp.u32 %r2, 1, 0, %p2;
  st.param.b32 [result], %r2;
  ret;
}
"""


def test_an_endless_loop_that_calls(lab):
    body = """
L:
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r0;
  call (out), agreed, (in);
  ld.param.b32 %r5, [out];
  }
  setp.ne.u32 %p1, %r5, 0;
  @%p1 bra L;
"""
    (found,) = lab.findings(body, outside=FUNCTION)
    assert found.kind == "endless-loop"
    assert lab.kinds(body, outside=FUNCTION, block=1) == []


LOOPS = {
    "nothing changes": "L:\n  add.u32 %r5, %r0, 1;\n  bra L;",
    "it goes in a circle": """
  mov.u32 %r5, 0;
L:
  add.u32 %r5, %r5, 1;
  rem.u32 %r5, %r5, 7;
  setp.ne.u32 %p1, %r5, 9;
  @%p1 bra L;
""",
    "part of the warp": """
  mov.u32 %r5, %r0;
L:
  setp.gt.u32 %p2, %r5, 100;
  @%p2 bra HIGH;
  shl.b32 %r5, %r5, 1;
  bra NEXT;
HIGH:
  shr.u32 %r5, %r5, 3;
NEXT:
  setp.ne.u32 %p1, %r5, 0;
  @%p1 bra L;
""",
}


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
def test_an_endless_loop_is_told_at_once(lab, body):
    run = lab.launch(body, block=64, budget=Budget(steps=1_000_000, seconds=600))
    assert run.status == "over budget"
    (found,) = run.findings
    assert found.kind == "endless-loop"
    assert run.metrics["steps"] < 20_000


def test_a_loop_that_counts_or_looks_at_the_clock_is_not_endless(lab):
    count = "  mov.u32 %r63, 0;\nL:\n  add.u32 %r63, %r63, 1;\n  setp.lt.u32 %p1, %r63, 3000;\n  @%p1 bra L;"
    assert (lab.compute(count) == 3000).all()
    clock = "  mov.u64 %rd1, %clock64;\nL:\n  mov.u64 %rd2, %clock64;\n  sub.u64 %rd3, %rd2, %rd1;\n"
    assert lab.kinds(clock + "  setp.lt.u64 %p1, %rd3, 5000;\n  @%p1 bra L;") == []


BUSY = """
  mov.u{bits} {start}, {clock};
  mov.u32 %r5, 0;
L:
  mov.u{bits} {now}, {clock};
  add.u32 %r5, %r5, 1;
  sub.u{bits} {now}, {now}, {start};
  setp.lt.u{bits} %p1, {now}, {wait};
  @%p1 bra L;
  st.global.u{bits} [%rd20], {now};
"""
LONG = {"bits": 64, "start": "%rd1", "now": "%rd2"}
SHORT = {"bits": 32, "start": "%r6", "now": "%r7"}


@pytest.mark.parametrize(
    ("registers", "clock", "wait"),
    [
        (LONG, "%clock64", 1_000_000_000_000),
        (LONG, "%globaltimer", 10_000_000),
        (SHORT, "%clock", 17_800_000),
        (SHORT, "%clock", 4_000_000_000),
    ],
)
def test_a_wait_for_a_clock_takes_few_turns_and_about_as_long_as_it_says(lab, registers, clock, wait):
    body = BUSY.format(clock=clock, wait=wait, **registers)
    run = lab.launch(body, zeros(1, f"u{registers['bits'] // 8}"), budget=Budget(steps=400_000))
    assert run.findings == []
    assert wait <= lab.arrays[0].numpy()[0] <= wait * 1.07


def test_a_loop_that_may_give_up_by_a_clock_has_its_turns(lab):
    body = """
  mov.u64 %rd1, %clock64;
  mov.u32 %r5, 0;
L:
  add.u32 %r5, %r5, 1;
  mov.u64 %rd2, %clock64;
  sub.u64 %rd2, %rd2, %rd1;
  setp.gt.u64 %p1, %rd2, 1000000;
  @%p1 bra OVER;
  setp.lt.u32 %p2, %r5, 5000;
  @%p2 bra L;
OVER:
  st.global.u32 [%rd20], %r5;
"""
    assert lab.kinds(body, zeros(1)) == []
    assert lab.arrays[0].numpy()[0] == 5000
    both = body.replace("  @%p1 bra OVER;\n", "").replace("@%p2 bra L", "and.pred %p2, %p2, %p3;\n  @%p2 bra L")
    both = both.replace("setp.gt.u64 %p1, %rd2", "setp.le.u64 %p3, %rd2")
    assert lab.kinds(both, zeros(1)) == []
    assert lab.arrays[0].numpy()[0] == 5000


def test_a_loop_that_polls_for_a_while_and_gives_up(lab):
    body = """
  mov.u32 %r63, 0;
L:
  ld.volatile.global.u32 %r5, [%rd20];
  add.u32 %r63, %r63, 1;
  setp.lt.u32 %p1, %r63, 500;
  setp.eq.and.u32 %p1, %r5, 0, %p1;
  @%p1 bra L;
"""
    assert (lab.compute(body, zeros(1)) == 500).all()


def test_a_circle_that_reads_memory_waits_for_it(lab):
    body = """
  mov.u32 %r5, 0;
L:
  add.u32 %r5, %r5, 1;
  rem.u32 %r5, %r5, 7;
  ld.global.u32 %r6, [%rd20];
  setp.ne.u32 %p1, %r5, %r6;
  @%p1 bra L;
"""
    run = lab.launch(body, np.full(1, 9, "u4"), budget=Budget(steps=1_000_000, seconds=600))
    assert run.status == "deadlocked"
    assert "to change from 9; no instruction of this kernel writes it" in run.findings[0].message


# a round of a loop that looks at the time and rests longer the longer it has waited, as libcu++ does
BACK_OFF = """
  mov.u64 %rd2, %globaltimer;
  sub.s64 %rd3, %rd2, %rd1;
  st.local.u64 [spent], %rd3;
  setp.lt.s64 %p4, %rd3, 4000;
  @%p4 bra {again};
  shr.u64 %rd4, %rd3, 2;
  cvt.u32.u64 %r9, %rd4;
  nanosleep.u32 %r9;
  bra {again};
"""
TIMED = "  .local .align 8 .b8 spent[8];\n"
ARRIVE = """
  .shared .align 8 .b64 bar;
  mov.u32 %r4, bar;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra READY;
  mbarrier.init.shared.b64 [%r4], {count};
READY:
  bar.sync 0;
  mbarrier.arrive.shared.b64 %rd5, [%r4];
  mov.u64 %rd1, %globaltimer;
AGAIN:
  mbarrier.{wait}.shared.b64 %p2, [%r4], %rd5;
  @%p2 bra PASSED;
"""


@pytest.mark.parametrize("wait", ["try_wait", "test_wait"])
def test_an_mbarrier_that_is_polled_with_rests_and_never_completes(lab, wait):
    body = TIMED + ARRIVE + BACK_OFF.format(again="AGAIN") + "PASSED:"
    assert lab.kinds(body.format(count=64, wait=wait), block=64) == []
    run = lab.launch(body.format(count=65, wait=wait), block=64)
    (found,) = run.findings
    assert (run.status, found.kind) == ("deadlocked", "deadlock")
    assert "warps 0, 1 of block (0, 0, 0) wait for mbarrier 'bar'" in found.message
    assert "phase 0 (parity 0): 64 of 65 arrivals have come" in found.message
    assert f"mbarrier.{wait}" in found.message


# the first block sets a flag after a while; the second polls it
FLAG = """
  mov.u64 %rd1, %globaltimer;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
REST:
  mov.u64 %rd2, %globaltimer;
  sub.s64 %rd3, %rd2, %rd1;
  setp.lt.s64 %p4, %rd3, 20000;
  @%p4 bra REST;
  {set}
  bra DONE;
AGAIN:
  ld.acquire.gpu.global.u32 %r5, [%rd20];
  setp.ne.u32 %p2, %r5, 0;
  @%p2 bra DONE;
"""


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
def test_a_flag_that_is_polled_with_rests(lab, schedule):
    body = TIMED + FLAG + BACK_OFF.format(again="AGAIN") + "DONE:"
    sets = "st.release.gpu.global.u32 [%rd20], 1;"
    assert lab.kinds(body.format(set=sets), zeros(1), grid=2, block=1, schedule=schedule) == []
    run = lab.launch(body.format(set=""), zeros(1), grid=2, block=1, schedule=schedule)
    assert [f.kind for f in run.findings] == ["deadlock"]
    assert "thread (0, 0, 0) of block (1, 0, 0) waits for 'array0'" in run.findings[0].message


# waits of {limit} for a flag that nobody sets, tried {tries} times
TRIES = """
  mov.u32 %r6, 0;
TRY:
  mov.u64 %rd1, %clock64;
AGAIN:
  ld.relaxed.gpu.global.u32 %r5, [%rd20];
  setp.ne.u32 %p2, %r5, 0;
  @%p2 bra DONE;
  mov.u64 %rd2, %clock64;
  sub.s64 %rd3, %rd2, %rd1;
  setp.lt.s64 %p4, %rd3, 1000000000000;
  @%p4 bra AGAIN;
  {count}
  setp.lt.u32 %p3, %r6, 10;
  @%p3 bra TRY;
DONE:
  st.global.u32 [%rd21], %r6;
"""


def test_polls_that_give_up_after_a_long_time_do_so(lab):
    counted = TRIES.format(count="add.u32 %r6, %r6, 1;")
    assert lab.kinds(counted, zeros(1), zeros(1), block=1) == []
    assert lab.arrays[1].numpy().tolist() == [10]


def test_polls_that_give_up_and_begin_again_for_ever(lab):
    run = lab.launch(TRIES.format(count=""), zeros(1), zeros(1), block=1)
    assert (run.status, [f.kind for f in run.findings]) == ("deadlocked", ["deadlock"])
    assert "waits for 'array0' at" in run.findings[0].message


def test_a_short_clock_goes_forward_too(lab):
    body = TRIES.replace("%clock64", "%clock").replace(".u64 %rd1, %clock", ".u32 %r7, %clock")
    body = body.replace(".u64 %rd2, %clock", ".u32 %r8, %clock").replace(
        "sub.s64 %rd3, %rd2, %rd1", "sub.u32 %r9, %r8, %r7"
    )
    body = body.replace("setp.lt.s64 %p4, %rd3, 1000000000000", "setp.lt.u32 %p4, %r9, 100000000")
    assert lab.kinds(body.format(count="add.u32 %r6, %r6, 1;"), zeros(1), zeros(1), block=1) == []


# the time is read and kept by a function, as in code for a debugger
POLLING = """
.func (.param .b32 answer) poll(.param .b64 at)
{
  .local .align 8 .b8 depot[16];
  .reg .b64 %rd<4>;
  .reg .b32 %r<2>;
  .reg .pred %p<2>;
  mov.u64 %rd0, %globaltimer;
  st.local.u64 [depot], %rd0;
  ld.param.u64 %rd1, [at];
L:
  mov.u64 %rd2, %globaltimer;
  st.local.u64 [depot+8], %rd2;
  ld.relaxed.gpu.u32 %r0, [%rd1];
  setp.eq.u32 %p0, %r0, 0;
  @%p0 bra L;
  st.param.b32 [answer], %r0;
  ret;
}
"""


def test_time_that_is_kept_in_local_memory(lab):
    body = """
  {
  .param .b64 p;
  .param .b32 q;
  st.param.b64 [p], %rd20;
  call (q), poll, (p);
  ld.param.b32 %r4, [q];
  }
"""
    run = lab.launch(body, zeros(1), outside=POLLING)
    assert [f.kind for f in run.findings] == ["deadlock"]
    assert lab.kinds(body, np.ones(1, "u4"), outside=POLLING) == []
