"""Loops that wait for what others store, whatever instruction looks at it: one turn each, and a time that says so."""

import random

import pytest
from tests import sampled
from tests.ptx.recording.kernels import recorded
from tests.ptx.recording.test_handovers import ONE_THREAD

from kernbench.ptx.machine import load
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.result import LaunchTime
from kernbench.ptx.time.waits import LOWER_BOUND

CTAS = 8
LINKS = CTAS - 1
# each CTA waits until the one before it has stored 1, and stores its own
BEFORE = """
  mul.wide.u32 %rd1, %r3, 128;
  add.u64 %rd1, %rd0, %rd1;
  cvta.global.u64 %rd2, %rd1;
  mov.u32 %r10, 32;
  mov.u32 %r11, 0;
  mov.u32 %r12, 0;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra AFTER;
"""
AFTER = """
AFTER:
  mov.u32 %r6, 1;
  st.release.gpu.global.u32 [%rd1+128], %r6;
"""
LOOKS = {
    "a load": "ld.acquire.gpu.global.u32 %r5, [%rd1];",
    "a volatile load": "ld.volatile.global.u32 %r5, [%rd1];",
    "a load of any space": "ld.relaxed.gpu.u32 %r5, [%rd2];",
    "an addition of 0": "atom.global.add.u32 %r5, [%rd1], 0;",
    "an addition of a register": "atom.global.add.u32 %r5, [%rd1], %r12;",
    "or": "atom.or.b32 %r5, [%rd2], 0;",
    "and": "atom.acquire.gpu.global.and.b32 %r5, [%rd1], -1;",
    "exclusive or": "atom.global.xor.b32 %r5, [%rd1], 0;",
    "the larger of it and 0": "atom.global.max.u32 %r5, [%rd1], 0;",
    "a swap that fails": "atom.global.cas.b32 %r5, [%rd1], 7, 8;",
    "a swap": "atom.global.cas.b32 %r5, [%rd1], 1, 2;",
}
ENDS = {
    "at once": "  setp.eq.u32 %p2, %r5, 0;\n  @%p2 bra LOOK;",
    "asleep": "  setp.ne.u32 %p2, %r5, 0;\n  @%p2 bra AFTER;\n  nanosleep.u32 40;\n  bra LOOK;",
    "asleep for longer and longer": (
        "  setp.ne.u32 %p2, %r5, 0;\n  @%p2 bra AFTER;\n  nanosleep.u32 %r10;\n  shl.b32 %r10, %r10, 1;\n"
        "  min.u32 %r10, %r10, 256;\n  bra LOOK;"
    ),
    "with a count": (
        "  setp.ne.u32 %p2, %r5, 0;\n  @%p2 bra AFTER;\n  add.u32 %r11, %r11, 1;\n"
        "  setp.lt.u32 %p3, %r11, 1000000;\n  @%p3 bra LOOK;"
    ),
    "at once, by two numbers": (
        "  setp.eq.u32 %p2, %r5, 0;\n  selp.u32 %r7, 1, 0, %p2;\n  setp.eq.u32 %p3, %r7, 1;\n  @%p3 bra LOOK;"
    ),
}
# one thread looks, and passes what it saw on to the others of its block
PASSED_ON = """
LOOK:
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra SKIP;
  {look}
  st.shared.u32 [%r8], %r5;
SKIP:
  bar.sync 0;
  ld.shared.u32 %r7, [%r8];
  bar.sync 0;
  setp.eq.u32 %p2, %r7, 0;
  @%p2 bra LOOK;
AFTER:
  bar.sync 0;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra DONE;
  mov.u32 %r6, 1;
  st.release.gpu.global.u32 [%rd1+128], %r6;
DONE:
"""


def timed(recording: LaunchRecording) -> LaunchTime:
    return time_launch(recording, streams_of(recording, use_tools=False), load("h200"))


def chain(look: str, end: str, between: str = "") -> str:
    return f"{ONE_THREAD}{BEFORE}LOOK:\n  {look}\n{between}{end}{AFTER}DONE:"


@pytest.mark.sampled(12)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("look", LOOKS)
def test_one_turn_whatever_looks_and_however_it_waits(look, end):
    recording = recorded(chain(LOOKS[look], ENDS[end]), grid=CTAS)
    (line,) = recording.waits
    assert LOOKS[look] in recording.text.splitlines()[line - 1]
    assert recording.handovers == LINKS
    # the first CTA, and all others, of which none looked more often in the recording
    assert recording.classes == 2
    assert any(note.startswith(LOWER_BOUND) for note in timed(recording).notes)


@pytest.mark.parametrize("look", ["a load", "an addition of 0", "an addition of a register", "a swap"])
def test_one_thread_looks_for_its_block(look):
    recording = recorded(BEFORE + PASSED_ON.format(look=LOOKS[look]), grid=CTAS, block=64)
    assert len(recording.waits) == 1
    assert recording.handovers == LINKS
    steps = max(len(recording.steps(of, 0)) for of in range(recording.classes))
    # a turn that brought the block nothing new is left out: there is the first one, and the last
    assert steps <= 2 * 5 + 6


@pytest.mark.parametrize("seed", range(sampled.examples(6, 12)))
def test_random_loops_that_look(seed):
    """Instructions that change nothing but registers of a turn stand anywhere in it."""
    chosen = random.Random(seed)
    plain = [
        "  add.u32 %r13, %r5, 3;\n",
        "  mul.lo.u32 %r14, %r3, 7;\n",
        "  setp.gt.u32 %p4, %r5, 9;\n",
        "  fence.acq_rel.gpu;\n",
        "  selp.u32 %r15, %r5, %r3, %p1;\n",
        "  xor.b32 %r16, %r5, %r5;\n",
    ]
    between = "".join(chosen.choices(plain, k=chosen.randrange(5)))
    look, end = chosen.choice(list(LOOKS.values())), chosen.choice(list(ENDS.values()))
    recording = recorded(chain(look, end, between), grid=CTAS)
    assert len(recording.waits) == 1
    assert recording.handovers == LINKS
    assert recording.classes == 2


# warp 1 waits for warp 0, through shared memory
IN_SHARED = """
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra READY;
  st.shared.u32 [%r8], 0;
READY:
  bar.sync 0;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra DONE;
  setp.eq.u32 %p2, %r2, 0;
  @%p2 bra FIRST;
LOOK:
  {look}
  setp.eq.u32 %p3, %r5, 0;
  @%p3 bra LOOK;
  bra DONE;
FIRST:
  mov.u32 %r6, 1;
  atom.shared.exch.b32 %r7, [%r8], %r6;
DONE:
"""


@pytest.mark.parametrize(
    "look",
    [
        "ld.volatile.shared.u32 %r5, [%r8];",
        "atom.shared.add.u32 %r5, [%r8], 0;",
        "atom.shared.or.b32 %r5, [%r8], 0;",
        "ld.relaxed.cta.shared.u32 %r5, [%r8];",
    ],
)
def test_warps_of_a_block_wait_for_each_other(look):
    recording = recorded(IN_SHARED.format(look=look), block=64)
    (line,) = recording.waits_in_shared
    assert look in recording.text.splitlines()[line - 1]
    assert recording.waits == ()
    (note,) = [note for note in timed(recording).notes if note.startswith(LOWER_BOUND)]
    assert "shared memory" in note
    # its one turn is the last one: as many steps as without a wait
    assert len(recording.steps(0, 1)) <= 8


WORK = {
    "a queue": "LOOK:\n  atom.global.add.u32 %r5, [%rd0], 1;\n  setp.lt.u32 %p2, %r5, 100;\n  @%p2 bra LOOK;\n",
    "a count": (
        "  mov.u32 %r10, 0;\nLOOK:\n  atom.global.add.u32 %r5, [%rd0], 0;\n  add.u32 %r10, %r10, 1;\n"
        "  setp.lt.u32 %p2, %r10, 20;\n  @%p2 bra LOOK;\n"
    ),
    "a sum": (
        "  mov.u32 %r10, 0;\n  mov.u32 %r11, 0;\nLOOK:\n  ld.volatile.global.u32 %r5, [%rd0];\n"
        "  add.u32 %r11, %r11, %r5;\n  add.u32 %r10, %r10, 1;\n  setp.lt.u32 %p2, %r10, 20;\n  @%p2 bra LOOK;\n"
        "  st.volatile.global.u32 [%rd0+8], %r11;\n"
    ),
}


@pytest.mark.parametrize("work", WORK)
def test_loops_that_work_are_no_waits(work):
    recording = recorded(ONE_THREAD + WORK[work] + "DONE:", grid=4)
    assert recording.waits == ()
    assert not any(note.startswith(LOWER_BOUND) for note in timed(recording).notes)
    turns = sum(len(recording.steps(int(of), 0)) for of in recording.cta_class)
    assert turns >= (100 if work == "a queue" else 4 * 20)
