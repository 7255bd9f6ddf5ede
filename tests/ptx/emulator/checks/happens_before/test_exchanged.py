"""A lane that stores what it made of the values that others loaded and gave it races with their loads formally only."""

import numpy as np
import pytest

from kernbench.result.finding import FORMAL

SHARED = ".shared .align 4 .b8 smem[512];"
# each lane loads its word, adds what the lane before it has, and stores that to the next word
SCAN = """
  mov.u32 %r5, smem;
  shl.b32 %r6, %r0, 2;
  add.u32 %r6, %r6, %r5;
  st.shared.u32 [%r6], %r0;
  bar.sync 0;
  {load}
  mov.u32 %r9, -1;
  shfl.sync.up.b32 %r7, %r8, 1, 0, {mask};
  {barrier}
  add.u32 %r10, {stored}, 1;
  st.shared.u32 [%r6+4], %r10;
  bar.sync 0;
  ld.shared.u32 %r11, [%r6];
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  st.global.u32 [%rd1], %r11;
"""
PLAIN = {"load": "ld.shared.u32 %r8, [%r6];", "mask": "%r9", "barrier": "", "stored": "%r7"}


def launch(lab, block=32, **parts):
    return lab.launch(SCAN.format(**{**PLAIN, **parts}), np.zeros(64, "u4"), outside=SHARED, block=block)


@pytest.mark.parametrize("mask", ["%r9", "-1", "0xffffffff"])
def test_what_was_exchanged_was_loaded(lab, mask):
    run = launch(lab, mask=mask)
    assert run.findings == []
    (found,) = run.formal
    assert (found.kind, found.severity) == ("race", FORMAL)
    assert "the lanes gave each other what they had loaded" in found.message
    assert found.hint.startswith("put __syncwarp()")


def test_a_barrier_of_the_warp_orders_them(lab):
    run = launch(lab, barrier="bar.warp.sync -1;")
    assert (run.findings, run.formal) == ([], [])


@pytest.mark.parametrize(
    "parts",
    [
        # what is stored, or exchanged, is something else
        {"stored": "%r8"},
        {"load": "ld.shared.u32 %r12, [%r6];\n  mov.u32 %r8, 7;"},
        # in a register that held the load's value, or the exchange's, before
        {"load": "ld.shared.u32 %r8, [%r6];\n  mov.u32 %r8, 7;"},
        {"barrier": "mov.u32 %r7, 7;"},
        # the exchange's register holds something of the exchange only later
        {"barrier": "mov.u32 %r12, %r7;\n  mov.u32 %r7, 7;\n  st.shared.u32 [%r6+4], %r7;\n  mov.u32 %r7, %r12;"},
        # the exchange is before the load
        {"load": "mov.u32 %r8, 7;", "barrier": "ld.shared.u32 %r12, [%r6];"},
    ],
)
def test_other_values_say_nothing(lab, parts):
    run = launch(lab, **parts)
    assert [found.kind for found in run.findings] == ["race"]


def test_what_a_guard_may_leave_still_counts(lab):
    """The value that a lane keeps is what it was, and the store is one instruction for all lanes."""
    run = launch(lab, barrier="setp.eq.u32 %p4, %r0, 77;\n  @%p4 mov.u32 %r7, 7;")
    assert (run.findings, [found.kind for found in run.formal]) == ([], ["race"])


def test_another_warp_exchanged_nothing(lab):
    run = launch(lab, block=64)
    assert [found.kind for found in run.findings] == ["race"]
    assert "thread (31, 0, 0)" in run.findings[0].message


def test_an_exchange_on_one_of_two_ways_says_nothing(lab):
    body = SCAN.format(**PLAIN).replace(
        "  mov.u32 %r9, -1;", "  mov.u32 %r9, -1;\n  mov.u32 %r7, %r8;\n  @%p4 bra OVER;"
    )
    body = "  setp.eq.u32 %p4, %rd20, %rd20;\n".replace("u32", "u64") + body
    body = body.replace("  add.u32 %r10,", "OVER:\n  add.u32 %r10,")
    run = lab.launch(body, np.zeros(64, "u4"), outside=SHARED, block=32)
    assert [found.kind for found in run.findings] == ["race"]


# all lanes load, and all but the first exchange and store
SOME = """
  mov.u32 %r5, smem;
  shl.b32 %r6, %r0, 2;
  add.u32 %r6, %r6, %r5;
  st.shared.u32 [%r6+64], %r0;
  bar.sync 0;
  ld.shared.u32 %r8, [%r6+64];
  setp.eq.u32 %p4, %r0, 0;
  @%p4 bra OVER;
  shfl.sync.idx.b32 %r7, %r8, 1, 31, 0xfffffffe;
  st.shared.u32 [%r6+{to}], %r7;
OVER:
"""


def test_of_some_lanes_an_exchange_says_what_these_have_loaded(lab):
    run = lab.launch(SOME.format(to=68), outside=SHARED, block=32)
    assert (run.findings, [found.kind for found in run.formal]) == ([], ["race"])


def test_of_some_lanes_an_exchange_says_nothing_of_others(lab):
    run = lab.launch(SOME.format(to=60), outside=SHARED, block=32)
    assert [(found.kind, found.count) for found in run.findings] == [("race", 1)]
    assert "thread (0, 0, 0)" in run.findings[0].message


TURNS = """
  mov.u32 %r5, smem;
  shl.b32 %r6, %r0, 2;
  add.u32 %r6, %r6, %r5;
  st.shared.u32 [%r6], %r0;
  mov.u32 %r12, 0;
  bar.sync 0;
TURN:
  ld.shared.u32 %r8, [%r6];
  shfl.sync.up.b32 %r7, %r8, 1, 0, -1;
  st.shared.u32 [%r6+4], %r7;
  {}
  add.u32 %r12, %r12, 1;
  setp.lt.u32 %p3, %r12, 3;
  @%p3 bra TURN;
"""


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_a_lane_that_is_a_turn_ahead_has_loaded_after_the_exchange(lab, schedule):
    run = lab.launch(TURNS.format(""), outside=SHARED, block=32, schedule=schedule)
    assert run.formal == []
    assert "race" in [found.kind for found in run.findings]
    meet = lab.launch(TURNS.format("bar.warp.sync -1;"), outside=SHARED, block=32, schedule=schedule)
    assert meet.findings == []
    assert [found.kind for found in meet.formal] == ["race"]


# lanes look whether what they share is full, and empty it; in the next turn one of them adds to it
COUNTER = """
  mov.u32 %r5, smem;
  setp.eq.u32 %p1, %r0, 3;
  mov.u32 %r12, 0;
  mov.u32 %r15, 0;
  mov.u32 %r16, 1;
  {mask}
  @%p1 st.shared.u32 [%r5], %r12;
TURN:
  {barrier}
  ld.shared.u32 %r8, [%r5];
  setp.lt.u32 %p3, %r8, 2;
  {branch}
  {flush}
ON:
  add.u32 %r12, %r12, 1;
  setp.lt.u32 %p4, %r12, 6;
  vote.sync.ballot.b32 %r7, %p4, %r9;
  {after}
  {decides}
  @!%p1 bra OVER;
  {store}
OVER:
  bra TURN;
OUT:
  {end}
"""
MEET = "bar.warp.sync %r9;"
ORDERLY = {
    "mask": "mov.u32 %r9, -1;\n  @%p2 mov.u32 %r9, 7;\n",
    "barrier": MEET,
    "branch": "@%p3 bra ON;",
    "flush": f"{MEET}\n  @%p1 st.shared.u32 [%r5], %r15;\n  {MEET}",
    "after": "",
    "decides": "setp.eq.u32 %p5, %r7, 0;\n  @%p5 bra OUT;",
    "store": "atom.shared.add.u32 %r14, [%r5], %r16;",
    "end": "",
}


def counted(lab, schedule="canonical", **parts):
    body = "  setp.eq.u32 %p2, %r0, 99;\n" + COUNTER.format(**{**ORDERLY, **parts})
    return lab.launch(body, outside=SHARED, block=32, schedule=schedule)


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"store": "st.shared.u32 [%r5], %r16;"},
        {"store": "red.shared.add.u32 [%r5], %r16;"},
        # by the guard of the store
        {"decides": "setp.eq.u32 %p5, %r7, 0;\n  @%p5 bra OUT;\n  setp.ne.u32 %p6, %r7, 0;\n  @!%p1 bra OVER;",
         "store": "@%p6 st.shared.u32 [%r5], %r16;"},
    ],
)  # fmt: skip
def test_what_a_lane_branches_by_was_loaded(lab, schedule, parts):
    """Lanes come to the vote only after they have looked, and the next turn is what it decides."""
    run = counted(lab, schedule, **parts)
    assert run.findings == []
    assert [found.kind for found in run.formal] == ["race"]
    assert "or what they branched by it" in run.formal[0].message


@pytest.mark.parametrize(
    "parts",
    [
        # nothing is decided by what was loaded
        {"branch": "bra ON;"},
        # nobody meets where it leads
        {"flush": "@%p1 mov.u32 %r15, 1;"},
        # the vote decides nothing: a counter does
        {"decides": "@!%p4 bra OUT;"},
        # or the same on both ways
        {"decides": "setp.eq.u32 %p5, %r7, 0;\n  @%p5 bra HERE;\n  mov.u32 %r15, 0;\nHERE:\n  @!%p4 bra OUT;"},
        # a lane may look again before another has added
        {"barrier": "", "flush": "@%p3 bra ON;\n  bar.warp.sync -1;"},
    ],
)  # fmt: skip
def test_what_decides_nothing_says_nothing(lab, parts):
    assert "race" in [found.kind for found in counted(lab, **parts).findings]


def test_a_mask_says_which_lanes_have_loaded(lab):
    """Lanes of one half vote with those of their half only, and all lanes look at one counter."""
    half = "setp.lt.u32 %p6, %r0, 16;\n  mov.u32 %r9, 0xffff0000;\n  @%p6 mov.u32 %r9, 0x0000ffff;"
    run = counted(lab, mask=half)
    assert "race" in [found.kind for found in run.findings]
    mine = half + "\n  shr.u32 %r6, %r0, 4;\n  shl.b32 %r6, %r6, 2;\n  add.u32 %r5, %r5, %r6;\n"
    mine += "  and.b32 %r6, %r0, 15;\n  setp.eq.u32 %p1, %r6, 3;"
    run = counted(lab, mask=mine)
    assert (run.findings, [found.kind for found in run.formal]) == ([], ["race"])


def test_a_mask_that_has_changed_since_says_nothing(lab):
    run = counted(lab, after="mov.u32 %r9, -1;", mask="mov.u32 %r9, 0xffffffff;")
    assert "race" in [found.kind for found in run.findings]


def test_a_load_behind_the_barrier_that_the_store_is_behind(lab):
    """Lanes may load before another has stored, as both are behind the barrier that is behind the exchange."""
    body = """
  mov.u32 %r5, smem;
  shl.b32 %r6, %r0, 2;
  add.u32 %r6, %r6, %r5;
  st.shared.u32 [%r6], %r0;
  mov.u32 %r12, 0;
  ld.shared.u32 %r8, [%r6];
TURN:
  shfl.sync.up.b32 %r7, %r8, 1, 0, -1;
  bar.warp.sync -1;
  {first}
  {second}
  add.u32 %r12, %r12, 1;
  setp.lt.u32 %p3, %r12, 3;
  @%p3 bra TURN;
"""
    store, load = "st.shared.u32 [%r6+4], %r7;", "ld.shared.u32 %r8, [%r6];"
    for first, second in ((store, load), (load, store)):
        run = lab.launch(body.format(first=first, second=second), outside=SHARED, block=32)
        assert "race" in [found.kind for found in run.findings]
