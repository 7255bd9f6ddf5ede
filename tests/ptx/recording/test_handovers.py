"""Waits of CTAs for each other through global memory: how many follow one another, where they are, and what is said."""

import pytest
from tests.ptx.recording.kernels import recorded

from kernbench.common.errors import MisuseError
from kernbench.ptx.machine import load
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.result import Unit
from kernbench.ptx.time.retiming import time_recording
from kernbench.ptx.time.waits import LOWER_BOUND, why_unknown

ONE_THREAD = "  setp.ne.u32 %p0, %r0, 0;\n  @%p0 bra DONE;\n"
# each CTA waits for the flag of the one before, and sets its own
CHAIN = """
  mul.wide.u32 %rd1, %r3, 128;
  add.u64 %rd1, %rd0, %rd1;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra FIRST;
LOOK:
  ld.acquire.gpu.global.u32 %r5, [%rd1];
  setp.eq.u32 %p2, %r5, 0;
  @%p2 bra LOOK;
FIRST:
  mov.u32 %r6, 1;
  st.release.gpu.global.u32 [%rd1+128], %r6;
"""
LOCK = """
LOOK:
  atom.acquire.gpu.global.cas.b32 %r5, [%rd0], 0, 1;
  setp.ne.u32 %p2, %r5, 0;
  @%p2 bra LOOK;
  atom.release.gpu.global.exch.b32 %r8, [%rd0], 0;
"""
TOGETHER = """
  mov.u32 %r6, %nctaid.x;
  atom.release.gpu.global.add.u32 %r8, [%rd0], 1;
LOOK:
  ld.acquire.gpu.global.u32 %r5, [%rd0];
  setp.lt.u32 %p2, %r5, %r6;
  @%p2 bra LOOK;
"""
TICKETS = """
  atom.global.add.u32 %r8, [%rd0], 1;
"""
CLOCK = """
  mov.u32 %r4, %clock;
LOOK:
  mov.u32 %r5, %clock;
  sub.u32 %r5, %r5, %r4;
  setp.lt.u32 %p2, %r5, 1000;
  @%p2 bra LOOK;
"""


@pytest.mark.parametrize(
    ("body", "handovers", "waits"), [(CHAIN, 15, 1), (LOCK, 15, 1), (TOGETHER, 1, 1), (TICKETS, 0, 0), (CLOCK, 0, 0)]
)
def test_handovers_that_follow_one_another(body, handovers, waits):
    recording = recorded(ONE_THREAD + body + "DONE:", grid=16)
    assert recording.handovers == handovers
    assert len(recording.waits) == waits
    assert len(recording.clocks) == (body is CLOCK)


def test_a_chain_takes_the_time_of_its_handovers_and_says_that_it_may_take_longer():
    recording = recorded(ONE_THREAD + CHAIN + "DONE:", grid=132)
    time = time_launch(recording, streams_of(recording, use_tools=False), load("h200"))
    # a ring of 132 flags, relaxed loads and stores, takes 220 ns from one to the next on an H200
    assert time.floors[Unit.HANDOVERS] == pytest.approx(131 * 220e-9, rel=0.05)
    assert time.seconds > 131 * 200e-9
    (line,) = recording.waits
    assert "ld.acquire" in recording.text.splitlines()[line - 1]
    assert any(note.startswith(LOWER_BOUND) and f"line {line}" in note for note in time.notes)


LATENCIES = """
  mov.u32 %r10, 0;
  mov.u32 %r11, 0;
LOOK:
  mov.u32 %r4, %clock;
  ld.volatile.global.u32 %r5, [%rd0];
  mov.u32 %r6, %clock;
  sub.u32 %r7, %r6, %r4;
  add.u32 %r11, %r11, %r7;
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p2, %r10, 20;
  @%p2 bra LOOK;
  st.volatile.global.u32 [%rd0+8], %r11;
"""


def test_a_loop_that_a_clock_ends_has_no_time():
    recording = recorded(ONE_THREAD + CLOCK + "DONE:")
    assert why_unknown(recording).startswith("a loop goes on until a clock says so, at line")
    with pytest.raises(MisuseError, match="no time: a loop goes on until a clock"):
        time_recording(recording, load("h200"))
    # one that only reads it has
    assert why_unknown(recorded(ONE_THREAD + LATENCIES + "DONE:")) == ""


def test_a_warp_sleeps_for_as_long_as_it_was_told_to():
    def taken(nanoseconds: int) -> float:
        recording = recorded(f"{ONE_THREAD}  nanosleep.u32 {nanoseconds};\n  st.global.u32 [%rd0], %r0;\nDONE:")
        return time_launch(recording, streams_of(recording, use_tools=False), load("h200")).seconds

    assert taken(50_000) - taken(1_000) == pytest.approx(49e-6, rel=1e-3)
