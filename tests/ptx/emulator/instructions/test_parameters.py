"""Loads of kernel parameters: values of all widths, under masks and guards, in runs of steps and by themselves."""

import numpy as np
import pytest

from kernbench import ptx

TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .align 16 .b8 held[40], .param .u8 last)
{
  .reg .b64 %rd<12>;
  .reg .b32 %r<20>;
  .reg .b16 %h<4>;
  .reg .pred %p<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 64;
  add.s64 %rd3, %rd1, %rd2;
  ld.param.v4.u32 {%r2, %r3, %r4, %r5}, [held];
  ld.param.v2.u64 {%rd4, %rd5}, [held+16];
  ld.param.s8 %h1, [last];
  ld.param.u16 %h2, [held+34];
  setp.lt.u32 %p1, %r1, 40;
  mov.u32 %r6, 7;
  @!%p1 ld.param.u32 %r6, [held+36];
  setp.lt.u32 %p2, %r1, 21;
  @%p2 bra SKIP;
  ld.param.u32 %r2, [held+12];
SKIP:
  st.global.v4.u32 [%rd3], {%r2, %r3, %r4, %r5};
  st.global.v2.u64 [%rd3+16], {%rd4, %rd5};
  cvt.s32.s16 %r7, %h1;
  cvt.u32.u16 %r8, %h2;
  st.global.v4.u32 [%rd3+32], {%r6, %r7, %r8, %r1};
  ret;
}
"""


@pytest.mark.parametrize("checks", [True, False])
def test_lanes_read_what_was_passed(checks):
    words = np.arange(10, dtype=np.uint32) * 0x01010101 + 0x70000001
    device = ptx.EmulatedDevice("sm_90")
    out = device.array(np.zeros((2, 70, 16), np.uint32), "out")
    kernel = ptx.parse(TEXT).kernels["k"]
    # the same program several times, with other values in between: steps become machine code as they are run
    for turn in range(4):
        given = words + np.uint32(turn)
        run = device.launch(kernel, (1,), (70,), [out, given.tobytes(), 0x85 + turn], checks=checks)
        found, lane = run.outputs["out"][0], np.arange(70)
        assert not run.findings
        np.testing.assert_array_equal(found[:, 0], np.where(lane < 21, given[0], given[3]))
        np.testing.assert_array_equal(found[:, 1:8], np.tile(given[1:8], (70, 1)))
        np.testing.assert_array_equal(found[:, 8], np.where(lane < 40, 7, given[9]))
        assert set(found[:, 9].tolist()) == {0xFFFFFF85 + turn}
        assert set(found[:, 10].tolist()) == {int(given[8]) >> 16}


@pytest.mark.parametrize("where", ["last+4", "out+-4096"])
def test_what_lies_beyond_parameters_is_reported_and_read_as_zero(where):
    text = TEXT.replace("ld.param.u32 %r2, [held+12];", f"ld.param.u32 %r2, [{where}];")
    device = ptx.EmulatedDevice("sm_90")
    out = device.array(np.zeros((2, 70, 16), np.uint32), "out")
    run = device.launch(ptx.parse(text).kernels["k"], (1,), (70,), [out, bytes(range(40)), 3])
    name = where.partition("+")[0]
    assert [f"of parameter '{name}', which has" in finding.message for finding in run.findings] == [True]
    assert not run.outputs["out"][0, 21:, 0].any()
