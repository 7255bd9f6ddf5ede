"""Accesses of small kernels, counted by hand: coalescing, banks, guards, divergence, loops."""

import numpy as np
import pytest
from tests.ptx.recording.kernels import HEAD, blocks, events, recorded

from kernbench import ptx
from kernbench.ptx.recording.kinds import Kind


def load(scale, width, offset=0):
    vector = {4: "u32 %r4", 8: "v2.u32 {%r4,%r5}", 16: "v4.u32 {%r4,%r5,%r6,%r7}"}[width]
    place = f"mul.lo.u32 %r10, %r0, {scale};\n cvt.u64.u32 %rd1, %r10;\n add.s64 %rd2, %rd0, %rd1;\n"
    return f"{place} ld.global.{vector}, [%rd2+{offset}];"


@pytest.mark.parametrize(
    ("scale", "width", "offset", "sectors", "lines"),
    [
        (4, 4, 0, 4, 1),
        (8, 8, 0, 8, 2),
        (16, 16, 0, 16, 4),
        # misaligned by a word: one sector more
        (4, 4, 4, 5, 2),
        (8, 4, 0, 8, 2),
        (32, 4, 0, 32, 8),
        (128, 4, 0, 32, 32),
        # all lanes the same word
        (0, 4, 0, 1, 1),
    ],
)
def test_loads_of_global_memory(scale, width, offset, sectors, lines):
    (event,) = events(recorded(load(scale, width, offset)))
    assert event.kind == Kind.GLOBAL_LOAD
    assert (event.lanes, event.sectors, event.lines, event.bytes) == (32, sectors, lines, 32 * width)


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("ways", [1, 2, 4, 8, 16, 32])
def test_conflicts_of_banks(ways, width):
    """Lanes that are `ways` times 4 bytes apart, or as wide as they are: 32, 16 or 8 lanes are served at a time."""
    step = max(4 * ways, width)
    vector = {4: "u32 [%r10], %r1", 8: "v2.u32 [%r10], {%r1,%r1}", 16: "v4.u32 [%r10], {%r1,%r1,%r1,%r1}"}[width]
    body = f"mad.lo.u32 %r10, %r1, {step}, %r8;\n st.shared.{vector};"
    (event,) = events(recorded(body))
    assert event.kind == Kind.SHARED_STORE
    lanes, words = 128 // width, width // 4
    busiest = max(
        len({lane for lane in range(lanes) for word in range(words) if (lane * step // 4 + word) % 32 == bank})
        for bank in range(32)
    )
    assert event.wavefronts == busiest * (32 // lanes)
    if width == 4:
        assert event.wavefronts == ways


def test_a_word_that_all_lanes_want_is_one_pass_and_an_atomic_on_it_32():
    body = "atom.shared.add.u32 %r4, [s], 1;\n bar.sync 0;\n ld.shared.u32 %r5, [s];"
    body = "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u32 [s], %r1;\n bar.sync 0;\n" + body
    found = events(recorded(body), Kind.SHARED_ATOMIC, Kind.SHARED_LOAD)
    assert [event.wavefronts for event in found] == [32, 1]


def test_matrices_take_a_pass_for_eight_rows_that_do_not_meet():
    """Rows of 16 bytes: one behind the other, and a line apart, where all rows begin in the same bank."""
    body = "mad.lo.u32 %r11, %r1, 16, %r8;\n st.shared.v4.u32 [%r11], {%r1,%r1,%r1,%r1};\n"
    body += "add.u32 %r8, %r8, 4096;\n mad.lo.u32 %r11, %r1, 128, %r8;\n"
    body += "st.shared.v4.u32 [%r11], {%r1,%r1,%r1,%r1};\n bar.sync 0;\n"
    body += "mad.lo.u32 %r10, %r1, 16, %r8;\n sub.u32 %r10, %r10, 4096;\n"
    body += "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r10];\n"
    body += "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r4,%r5}, [%r10];\n"
    body += "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r11];\n"
    found = events(recorded(body), Kind.MATRIX_LOAD)
    assert [(event.wavefronts, event.bytes) for event in found] == [(4, 512), (2, 256), (32, 512)]


def test_a_guard_that_holds_nowhere_leaves_no_event():
    body = "setp.lt.u32 %p1, %r0, %r9;\n mad.wide.u32 %rd1, %r0, 4, %rd0;\n @%p1 st.global.u32 [%rd1], %r0;"
    assert events(recorded(body, 0)) == []
    (event,) = events(recorded(body, 5))
    assert (event.lanes, event.sectors, event.bytes) == (5, 1, 20)
    recording = recorded(body, 40, block=64)
    assert [event.lanes for warp in (0, 1) for event in events(recording, warp=warp)] == [32, 8]


BRANCHES = """
  setp.lt.u32 %p1, %r1, 8;
  @%p1 bra FEW;
  add.u32 %r4, %r4, 1;
  bra.uni MEET;
FEW:
  mad.wide.u32 %rd1, %r0, 4, %rd0;
  st.global.u32 [%rd1], %r0;
MEET:
  add.u32 %r5, %r5, 1;
"""


def test_lanes_that_part_run_one_after_the_other_until_they_meet():
    recording = recorded("mov.u32 %r4, 0;\n mov.u32 %r5, 0;" + BRANCHES)
    assert blocks(recording) == [(0, 32), (1, 24), (2, 8), (3, 32)]
    step = recording.traces.first_event[recording.steps(0, 0).start :]
    assert step.tolist() == [0, 0, 0, 1, 1]


def test_turns_of_a_loop_and_lanes_that_leave_it():
    """Lane n goes round n times, up to `number`."""
    body = "mov.u32 %r4, 0;\nLOOP:\n add.u32 %r4, %r4, 1;\n setp.lt.u32 %p1, %r4, %r9;\n @%p1 bra LOOP;"
    assert blocks(recorded(body, 3)) == [(0, 32), (1, 32), (1, 32), (1, 32), (2, 32)]
    body = body.replace("%r4, %r9", "%r4, %r1")
    assert blocks(recorded(body)) == [(0, 32), (1, 32), *((1, 32 - n) for n in range(2, 32)), (2, 32)]


def test_a_kernel_that_only_ends_has_one_step():
    assert blocks(recorded("")) == [(0, 32)]
    device = ptx.EmulatedDevice("sm_90a")
    text = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n"
    recording = device.launch(ptx.parse(text), 3, 40, [], record=True).recording
    assert [blocks(recording, warp) for warp in (0, 1)] == [[(0, 32)], [(0, 8)]]
    assert (len(recording.events), recording.classes, len(recording.traces)) == (0, 1, 2)


def test_warps_and_blocks_that_do_the_same_are_stored_once():
    body = "setp.lt.u32 %p1, %r3, 3;\n @%p1 bra END;\n" + load(4, 4) + "\nEND:"
    recording = recorded(body, grid=40, block=128)
    assert (recording.ctas, recording.classes, len(recording.traces)) == (40, 2, 2)
    assert recording.cta_class.tolist() == [0] * 3 + [1] * 37
    assert recording.class_trace.tolist() == [[0] * 4, [1] * 4]
    assert recording.warp_steps == 4 * (3 * 2 + 37 * 3)


def test_reuse_is_told_by_whoever_touched_last():
    """Two blocks read the same line twice: the first touch is one block's, the other has it from there."""
    recording = recorded(load(4, 4) + "\n" + load(4, 4), grid=2)
    columns = recording.events
    assert columns.first.tolist() == [2, 0]
    assert columns.other.tolist() == [2, 0]
    assert columns.own.tolist() == [0, 4]
    assert columns.own_distance.tolist() == [0, 7]


def test_functions_and_local_memory():
    body = """
  { .param .b32 a; .param .b32 b;
    st.param.b32 [a], %r0;
    call.uni (b), twice, (a);
    ld.param.b32 %r4, [b]; }
"""
    function = """
.func (.param .b32 out) twice(.param .b32 in)
{ .reg .b32 %r<4>; .local .align 16 .b8 mine[16];
  ld.param.b32 %r1, [in];
  st.local.u32 [mine], %r1;
  ld.local.u32 %r2, [mine];
  add.u32 %r3, %r2, %r2;
  st.param.b32 [out], %r3;
  ret; }
"""
    text = HEAD.replace(".visible", function + ".visible") + body + "ret;\n}\n"
    device = ptx.EmulatedDevice("sm_90a")
    recording = device.launch(ptx.parse(text), 1, 32, [device.array(np.zeros(4, "u4")), 0], record=True).recording
    found = events(recording)
    assert [event.kind for event in found] == [Kind.LOCAL_STORE, Kind.LOCAL_LOAD]
    assert [(event.sectors, event.lines) for event in found] == [(4, 1), (4, 1)]
    assert {recording.instructions.function[row] for row in recording.events.instruction} == {"twice"}
