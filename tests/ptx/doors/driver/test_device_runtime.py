"""Functions that compilers leave to the linker: blocks of a grid meet, as Numba's `grid.sync()` has it."""

import numpy as np
import pytest

from kernbench.ptx.doors.driver.images.device_runtime import TEXT, with_device_runtime
from kernbench.ptx.doors.driver.images.linking import link_texts

# each block's first thread writes a word, and reads that of the next block once all have met
NEIGHBOURS = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 func_retval0) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 func_retval0) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry neighbours(.param .u64 x, .param .u64 y)
{{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<8>;
  ld.param.u64 %d1, [x];
  ld.param.u64 %d2, [y];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %nctaid.x;
  mov.u32 %r3, %tid.x;
  setp.ne.u32 %p1, %r3, 0;
  mul.wide.u32 %d3, %r1, 4;
  add.u64 %d4, %d1, %d3;
  @!%p1 st.global.u32 [%d4], %r1;
  {meet}
  add.u32 %r4, %r1, 1;
  rem.u32 %r4, %r4, %r2;
  mul.wide.u32 %d5, %r4, 4;
  add.u64 %d5, %d1, %d5;
  add.u64 %d6, %d2, %d3;
  @%p1 ret;
  ld.global.u32 %r5, [%d5];
  st.global.u32 [%d6], %r5;
  ret;
}}
"""
MEET = """{
  .param .b32 p0; .param .b64 r0;
  st.param.b32 [p0], 1;
  call.uni (r0), cudaCGGetIntrinsicHandle, (p0);
  ld.param.b64 %d7, [r0];
  }
  {
  .param .b64 p0; .param .b32 p1; .param .b32 r0;
  st.param.b64 [p0], %d7;
  st.param.b32 [p1], 0;
  call.uni (r0), cudaCGSynchronize, (p0, p1);
  ld.param.b32 %r7, [r0];
  }"""


@pytest.mark.parametrize(("meet", "kinds"), [(MEET, set()), (f"{MEET}\n{MEET}", set()), ("", {"race"})])
def test_blocks_of_a_grid_meet(session_of, tmp_path, meet, kinds):
    """Again and again, in grids of several sizes; without it there is a race."""
    session = session_of(tmp_path)
    kernel = session.load(link_texts(with_device_runtime([NEIGHBOURS.format(meet=meet)]))).kernel("neighbours")
    for blocks in (3, 2):
        x, y = (session.memory.allocate(4 * blocks) for _ in range(2))
        launch = session.launch(kernel, blocks, 64, [address.to_bytes(8, "little") for address in (x, y)])
        assert {finding.kind for finding in launch.findings} - {"uninitialised-read"} == kinds
        if not kinds:
            assert session.memory.view(y, 4 * blocks).view(np.uint32).tolist() == [*range(1, blocks), 0]


def test_what_calls_nothing_of_it_is_left_alone():
    assert with_device_runtime([".version 8.0"]) == [".version 8.0"]
    assert with_device_runtime([NEIGHBOURS])[1:] == [TEXT]
