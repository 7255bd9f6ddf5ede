"""An mbarrier orders lanes of one warp as it orders warps: who waits knows what the lane that arrived had done."""

import numpy as np
import pytest

from kernbench import ptx

EVERY = ["canonical", "reversed", "eager", 1]
KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out, .param .u32 writer)
{
  .reg .pred %p<6>; .reg .b32 %r<12>; .reg .b64 %rd<5>;
  .shared .align 8 .b64 ready; .shared .align 4 .b32 value;
  mov.u32 %r3, %tid.x;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r5, [writer];
  setp.ne.b32 %p1, %r3, 0;
  @%p1 bra MADE;
  mbarrier.init.shared.b64 [ready], COUNT;
MADE:
  bar.sync 0;
BODY
  ld.shared.b32 %r10, [value];
  mul.wide.u32 %rd3, %r3, 4;
  add.s64 %rd4, %rd1, %rd3;
  st.global.b32 [%rd4], %r10;
  ret;
}
"""
WRITE = """
  setp.ne.b32 %p3, %r3, %r5;
  @%p3 bra WAIT;
  mov.b32 %r6, 7;
  st.shared.b32 [value], %r6;
"""
ARRIVE = "  mbarrier.arrive.release.cta.shared::cta.b64 %rd2, [ready];\n"
WAIT = """
WAIT:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p4, [ready], 0;
  @!%p4 bra WAIT;
"""


def launch(body, threads=32, writer=0, count=1, schedule="canonical"):
    device = ptx.EmulatedDevice("sm_90a")
    out = device.array(np.zeros(threads, np.uint32))
    text = KERNEL.replace("COUNT", str(count)).replace("BODY", body)
    run = device.launch(ptx.parse(text).kernels["kernel"], 1, threads, [out, writer], schedule=schedule)
    return run, out.numpy()


@pytest.mark.parametrize("schedule", EVERY)
@pytest.mark.parametrize(("threads", "writer"), [(32, 0), (32, 31), (64, 0), (64, 40)])
def test_siblings_that_wait_know_of_the_write(threads, writer, schedule):
    run, out = launch(WRITE + ARRIVE + WAIT, threads, writer, schedule=schedule)
    assert not run.findings, run.findings
    assert (out == 7).all()


@pytest.mark.parametrize("schedule", EVERY)
def test_a_write_after_the_arrival_is_not_covered(schedule):
    store = "  st.shared.b32 [value], %r6;\n"
    run, _ = launch(WRITE.replace(store, "") + ARRIVE + store + WAIT, schedule=schedule)
    assert "race" in {finding.kind for finding in run.findings}


@pytest.mark.parametrize("schedule", EVERY)
def test_another_lanes_arrival_does_not_cover_the_write(schedule):
    """The writer goes on to the wait, and lane 5 arrives."""
    body = WRITE + "WAIT:\n  setp.ne.b32 %p3, %r3, 5;\n  @%p3 bra THEN;\n" + ARRIVE
    run, _ = launch(body + WAIT.replace("WAIT", "THEN"), schedule=schedule)
    assert "race" in {finding.kind for finding in run.findings}


@pytest.mark.parametrize("schedule", EVERY)
def test_a_relaxed_arrival_tells_nothing(schedule):
    run, _ = launch(WRITE + ARRIVE.replace("release", "relaxed") + WAIT, schedule=schedule)
    assert "race" in {finding.kind for finding in run.findings}


# lanes below 16 write a word each and meet; lane 0 arrives for them, and everybody reads the word of lane 9
MEETING = """
  setp.ge.u32 %p2, %r3, 16;
  @%p2 bra WAIT;
  mov.u32 %r8, words;
  mad.lo.u32 %r8, %r3, 4, %r8;
  st.shared.b32 [%r8], %r3;
  bar.warp.sync MASK;
  @%p1 bra WAIT;
"""


@pytest.mark.parametrize("schedule", EVERY)
@pytest.mark.parametrize("threads", [32, 64])
def test_an_arrival_tells_of_the_lanes_that_its_lane_has_met(threads, schedule):
    words = "  .shared .align 4 .b32 words[16];\n"
    body = words + MEETING.replace("MASK", "0xffff") + ARRIVE + WAIT + "  ld.shared.b32 %r10, [words+36];\n"
    read = "  ld.shared.b32 %r10, [value];\n"
    device = ptx.EmulatedDevice("sm_90a")
    for text, clean in ((body, True), (body.replace("  bar.warp.sync 0xffff;\n", ""), False)):
        out = device.array(np.zeros(threads, np.uint32))
        kernel = ptx.parse(KERNEL.replace("COUNT", "1").replace(read, "").replace("BODY", text)).kernels["kernel"]
        run = device.launch(kernel, 1, threads, [out, 0], schedule=schedule)
        # lane 0 stored together with the others: that no GPU shows it makes it formal
        assert not run.findings
        assert (not run.formal) == clean, run.formal
        assert not clean or (out.numpy() == 9).all()


# lane 5 of warp 1 waits for warp 0's arrival; its warp arrives at a barrier where warp 2 waits, and that reads
RELAY = """
  .reg .pred %q<3>;
  shr.u32 %r7, %r3, 5;
  setp.eq.u32 %q0, %r7, 1;
  setp.eq.u32 %q1, %r7, 2;
  @%q0 bra MIDDLE;
  @%q1 bra LAST;
  @%p1 bra END;
  mov.b32 %r6, 7;
  st.shared.b32 [value], %r6;
  mbarrier.arrive.release.cta.shared::cta.b64 %rd2, [ready];
  bra END;
MIDDLE:
  setp.ne.u32 %q2, %r3, 37;
  @%q2 bra TOLD;
WAIT:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p4, [ready], 0;
  @!%p4 bra WAIT;
TOLD:
  bar.arrive 1, 64;
END:
  ret;
LAST:
  bar.sync 1, 64;
"""


@pytest.mark.parametrize("schedule", EVERY)
def test_a_barrier_hands_on_what_a_single_lane_has_learned(schedule):
    run, out = launch(RELAY, 96, schedule=schedule)
    assert not run.findings, run.findings
    assert (out[64:] == 7).all()
    wait = RELAY[RELAY.index("WAIT:") : RELAY.index("TOLD:")]
    assert "race" in {finding.kind for finding in launch(RELAY.replace(wait, ""), 96, schedule=schedule)[0].findings}
