"""The other access of a race is the right instruction, however many instructions the kernel has."""

import numpy as np

from kernbench import ptx
from kernbench.ptx.emulator.memory.access_sites import AccessSites
from kernbench.ptx.emulator.program.program import Site

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {{
  .reg .b32 %r<6>; .reg .b64 %rd<3>; .shared .align 4 .b8 s[256];
  mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r4, s; add.u32 %r4, %r4, %r2; xor.b32 %r5, %r4, 128;
{filler}
  st.shared.u32 [%r4], %r1; // the write
  ld.shared.u32 %r3, [%r5];
  ld.param.u64 %rd1, [out]; cvt.u64.u32 %rd2, %r2; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r3; ret;
}}
"""


def race_in(filler, count):
    text = KERNEL.format(filler="\n".join([filler] * count))
    device = ptx.EmulatedDevice("sm_90")
    run = device.launch(ptx.parse(text).kernels["k"], 1, 64, [device.empty(64, np.uint32)])
    (race,) = [finding for finding in run.findings if finding.kind == "race"]
    return race, text.splitlines().index("  st.shared.u32 [%r4], %r1; // the write") + 1


def test_beyond_4095_instructions():
    race, line = race_in("  add.u32 %r1, %r1, 1;", 5000)
    assert race.others[0].where.line == line
    assert f"in PTX line {line} (`st.shared.u32" in race.message


def test_beyond_4095_instructions_that_access_memory():
    race, line = race_in("  ld.shared.u32 %r3, [%r4]; st.shared.u32 [%r4], %r1;", 2200)
    assert race.others[0].where.line == line


def test_instructions_beyond_the_limit_are_said_to_be_unknown_not_called_another():
    sites = AccessSites(limit=2)
    first, second, third = (Site(number, "k", "st", number + 10, f"st {number}") for number in (7, 9000, 3))
    assert [sites.number(one) for one in (first, second, third, first, third)] == [1, 2, 0, 1, 0]
    assert sites.numbered[2] is second
    assert "not kept" in sites.numbered[0].text
