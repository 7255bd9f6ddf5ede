"""Every operation that random programs may draw is known to the reference, and both executors agree on its values.

A seed draws few of them: a line that only the emulator knows would wait there for somebody's long run.
"""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.reference import execute
from kernbench.ptx.reference.programs.segments import ARITHMETIC

KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 array)
{{
  .reg .b32 %r<16>; .reg .b64 %rd<8>;
  ld.param.u64 %rd0, [array];
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %rd1, %r0, 4, %rd0;
  ld.global.u32 %r4, [%rd1];
  ld.global.u32 %r5, [%rd1+128];
  {line}
  st.global.u32 [%rd1], %r6;
  ret;
}}
"""
# signs, carries, both ends of every width
SPECIAL = np.array([0, 1, 2, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)


@pytest.mark.parametrize("line", ARITHMETIC)
def test_both_executors_compute_the_same(line):
    rng = np.random.default_rng(7)
    given = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    given[: len(SPECIAL)] = given[32 : 32 + len(SPECIAL)] = SPECIAL
    given[40:60] = rng.choice(SPECIAL, 20)
    for number in (1, 9, 35):
        text = line.format(d="%r6", a="%r5", b="%r4", n=number, t=150 + number, m=number)
        kernel = ptx.parse(KERNEL.format(line=text)).kernels["kernel"]
        device = ptx.EmulatedDevice(arch="sm_90a")
        array = device.array(given)
        assert device.launch(kernel, 1, 32, [array]).safe
        wanted = execute(kernel, 1, 32, [given]).arrays[0]
        np.testing.assert_array_equal(array.numpy(), wanted, text)
