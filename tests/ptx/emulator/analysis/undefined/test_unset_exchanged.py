"""Registers that were never set, given to other lanes: a finding where the receiving lane's value has an effect."""

import numpy as np
import pytest
from tests.ptx.emulator.analysis.undefined.test_matrices import HEAD

from kernbench import ptx

# lanes below 20 set the register
SET = "  setp.lt.u32 %p1, %r0, 20;\n  @!%p1 bra NEXT;\n  mov.b32 %r10, 5;\nNEXT:\n"
# the sum of as many lanes as %r30 says, in lane 0: by constants, and by registers
SUM = "".join(
    f"  shfl.sync.down.b32 %r11|%p3, %r10, {step}, %r31, -1;\n  @%p3 add.u32 %r11, %r11, %r10;\n  mov.b32 %r10, %r11;\n"
    for step in (1, 2, 4, 8, 16)
)
FIRST = "  setp.eq.u32 %p4, %r0, 0;\n  @%p4 st.global.u32 [%rd3], %r10;\n"
NEXT_LANE = "  shfl.sync.down.b32 %r11, %r10, 1, 31, -1;\n"
FAST = ["all", "none"]


def findings(body, asked="all", head=HEAD):
    device = ptx.EmulatedDevice("sm_90", fast_paths=asked)
    out = device.array(np.zeros(64, np.uint32), "out")
    return device.launch(ptx.parse(head + body + "  ret;\n}\n").kernels["k"], 1, 32, [out]).findings


@pytest.mark.parametrize("asked", FAST)
def test_a_sum_of_the_lanes_that_set_the_register(asked):
    assert findings(SET + "  mov.u32 %r31, 19;\n" + SUM + FIRST, asked) == []
    (found,) = findings(SET + "  mov.u32 %r31, 20;\n" + SUM + FIRST, asked)
    assert (found.kind, found.count) == ("uninitialised-read", 1)
    assert "%r10 was never set and is passed to other lanes, and the value is stored" in found.message
    assert "shfl.sync.down.b32 %r11" in found.where.text
    assert found.hint == "set the register on every path that leads here"


@pytest.mark.parametrize("asked", FAST)
@pytest.mark.parametrize("step", ["1, 31", "%r30, 31"])
def test_the_receiving_lane_decides(asked, step):
    body = SET + "  mov.u32 %r30, 1;\n" + NEXT_LANE.replace("1, 31", step)
    # lane 19 has the value of lane 20
    for bound, count in ((19, 0), (20, 1), (32, 13)):
        stored = f"  setp.lt.u32 %p4, %r0, {bound};\n  @%p4 st.global.u32 [%rd3], %r11;\n"
        assert sum(one.count for one in findings(body + stored, asked)) == count
    assert findings(body + "  selp.b32 %r11, 3, %r11, %p1;\n", asked) == []


# the same in debug builds: a variable in local memory
LOCAL = "  .local .align 4 .b8 own[8];\n  setp.lt.u32 %p1, %r0, 20;\n  @%p1 st.local.u32 [own], 5;\n"
READ = "  ld.local.u32 %r10, [own];\n"


def test_a_variable_in_local_memory_that_other_lanes_get():
    for last, count in ((19, 0), (20, 1)):
        found = findings(LOCAL + READ + f"  mov.u32 %r31, {last};\n" + SUM + FIRST)
        assert [one.count for one in found] == [1] * count
    assert "local memory that nobody wrote (4 bytes) is read and passed to other lanes" in found[0].message
    assert found[0].hint == "set the variable on every path that leads here"
    assert "ld.local.u32 %r10" in found[0].where.text
    # it stays what other lanes got through copies in local memory
    copied = "  st.local.u32 [own+4], %r11;\n  ld.local.u32 %r11, [own+4];\n"
    (found,) = findings(LOCAL + READ + NEXT_LANE + copied + "  st.global.u32 [%rd3], %r11;\n")
    assert (found.count, found.where.text) == (13, "ld.local.u32 %r10, [own];")


CHOICE = "  setp.gt.u32 %p5, %r11, 3;\n  @%p5 bra LARGE;\n  mov.u32 %r11, 3;\nLARGE:\n"
SHARED = "  st.shared.u32 [%r2], %r10;\n  bar.warp.sync -1;\n  ld.shared.u32 %r11, [%r2];\n"
# the lane's own variable in other lanes than those that come to the choice by it
BOTH = SHARED + "  setp.ge.u32 %p4, %r0, 26;\n  selp.b32 %r11, %r10, %r11, %p4;\n  @%p4 bra LARGE;\n"
COPY = "  st.local.u32 [own], %r11;\n  ld.local.u32 %r11, [own];\n"


@pytest.mark.parametrize(
    ("way", "count"),
    [
        ("  mov.u32 %r11, %r10;\n", 12),
        (NEXT_LANE, 0),
        (SHARED, 0),
        (BOTH, 0),
        (SHARED + COPY, 0),
        (NEXT_LANE + COPY, 0),
    ],
)
def test_a_choice_by_what_another_lane_has_left_unset(way, count):
    assert sum(one.count for one in findings(LOCAL + READ + way + CHOICE)) == count
    stored = "  selp.b32 %r11, %r11, 3, %p6;\n  st.global.u32 [%rd3], %r11;\n"
    for last, lost in ((19, 0), (21, 1)):
        used = f"  setp.lt.u32 %p6, %r0, {last};\n" + stored
        more = 0 if count else lost + bool(lost and NEXT_LANE in way)
        assert sum(one.count for one in findings(LOCAL + READ + way + CHOICE + used)) == count + more


def test_in_a_loop_that_runs_often():
    loop = "  mov.u32 %r40, 0;\nAGAIN:\n" + NEXT_LANE + "  mov.b32 %r10, %r11;\n"
    loop += "  add.u32 %r40, %r40, 1;\n  setp.lt.u32 %p5, %r40, {};\n  @%p5 bra AGAIN;\n" + FIRST
    for asked in FAST:
        assert findings(SET + loop.format(19), asked) == []
        assert [one.count for one in findings(SET + loop.format(20), asked)] == [1]


def test_a_reduction_is_undefined_in_all_lanes_of_its_mask():
    reduced = "  mov.u32 %r31, {};\n  {}redux.sync.add.s32 %r11, %r10, %r31;\n"
    stored = "  @%p1 st.global.u32 [%rd3], %r11;\n"
    few = SET + "  @!%p1 bra DONE;\n" + reduced.format(0xFFFFF, "") + stored + "DONE:\n"
    assert findings(few) == []
    assert findings(SET + reduced.format(-1, "")) == []
    assert [one.count for one in findings(SET + reduced.format(-1, "") + stored)] == [20]


def test_code_of_no_compiler_may_exchange_what_was_never_set():
    head = HEAD.replace("Generated by LLVM NVPTX Back-End", "by hand")
    assert findings(SET + NEXT_LANE + "  st.global.u32 [%rd3], %r11;\n", head=head) == []
