"""A plain load that only begins a compare-and-swap is no race, however its value gets there; any other use is one."""

from pathlib import Path

import numpy as np
import pytest
from tests.ptx.toolchain import nvcc_ptx

from kernbench import ptx

SOURCE = Path(__file__).parent / "swaps.cu"
KERNELS = [line.split("void ")[1].split("(")[0] for line in SOURCE.read_text().splitlines() if "__global__" in line]


@pytest.fixture(scope="module")
def module():
    return ptx.parse(nvcc_ptx(SOURCE, "sm_80", "-G"))


@pytest.mark.parametrize("name", KERNELS)
def test_compiled_for_a_debugger(module, name):
    device = ptx.EmulatedDevice("sm_80")
    run = device.launch(module.kernels[name], 2, 32, [device.array(np.zeros(64, "f4"))])
    assert {f.kind for f in run.findings} == ({"race"} if name.startswith("bug_") else set())


# the swap in a function; what it expects lies in the caller's local memory, and its address too
CALLED = """
.func (.param .b32 found) swap(.param .b64 at, .param .b64 expected, .param .b32 more)
{{
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd0, [at];
  ld.param.u64 %rd1, [expected];
  ld.param.u32 %r3, [more];
  ld.u32 %r0, [%rd1];
  add.u32 %r1, %r0, %r3;
  atom.cas.b32 %r2, [%rd0{offset}], %r0, %r1;
  {inside}
  st.param.b32 [found], %r2;
  ret;
}}
"""
CALLER = """
  .local .align 8 .b8 depot[32];
  mov.u64 %rd5, depot;
  cvta.local.u64 %rd6, %rd5;
  st.u64 [%rd6+8], %rd20;
  ld.u32 %r4, [%rd20];
  st.u32 [%rd6], %r4;
  {between}
AGAIN:
  ld.u64 %rd7, [%rd6+8];
  {{
  .param .b64 p0;
  .param .b64 p1;
  .param .b32 p2;
  .param .b32 q;
  st.param.b64 [p0], %rd7;
  st.param.b64 [p1], %rd6;
  st.param.b32 [p2], 1;
  call (q), swap, (p0, p1, p2);
  ld.param.b32 %r5, [q];
  }}
  ld.local.u32 %r6, [%rd5];
  st.u32 [%rd6], %r5;
  {after}
  setp.ne.u32 %p1, %r5, %r6;
  @%p1 bra AGAIN;
  {behind}
"""
MOVED = "add.u64 %rd8, %rd20, 4;\n  st.u64 [%rd6+8], %rd8;\n  red.global.add.u32 [%rd20], 1;"
HIDDEN = "mul.wide.u32 %rd9, %r0, 0;\n  add.u64 %rd9, %rd9, %rd6;\n  st.u64 [%rd9+8], %rd21;"
LEFT = "mul.wide.u32 %rd8, %r3, 4;\n  add.u64 %rd8, %rd8, %rd21;\n  st.global.u32 [%rd8], {};"


@pytest.mark.parametrize(
    ("changes", "races"),
    [
        ({}, False),
        # what the swap gave back, and the value that it proved right, may go anywhere
        ({"behind": LEFT.format("%r5")}, False),
        ({"behind": LEFT.format("%r6")}, False),
        ({"after": LEFT.format("%r5")}, False),
        ({"after": LEFT.format("%r6")}, True),
        ({"between": LEFT.format("%r4")}, True),
        ({"inside": "st.global.u32 [%rd0+4], %r0;"}, True),
        # another place: in the function, in the variable, through a pointer that nobody follows
        ({"offset": "+4", "behind": "red.global.add.u32 [%rd20], 1;"}, True),
        ({"between": MOVED}, True),
        ({"between": HIDDEN, "behind": "red.global.add.u32 [%rd20], 1;"}, True),
        ({"between": "setp.eq.u32 %p2, %r4, 0;\n  @%p2 st.global.u32 [%rd22], 1;"}, True),
    ],
)
def test_through_calls_and_local_memory(lab, changes, races):
    parts = {"offset": "", "inside": "", "between": "", "after": "", "behind": "", **changes}
    zeros = [np.zeros(count, "u4") for count in (2, 64, 1)]
    found = lab.kinds(CALLER.format(**parts), *zeros, outside=CALLED.format(**parts), grid=2, block=32)
    assert (set(found) == {"race"}) if races else (found == [])
