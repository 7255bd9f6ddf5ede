"""`[a].unified`: an address that host and device share, of loads and atomics of global memory."""

import numpy as np
import pytest
from tests.ptx.toolchain import need_ptxas, needs_ptxas, run_ptxas

from kernbench import ptx
from kernbench.ptx.validation.validation import problems

TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 array)
{{
  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .b16 %h<2>;
  .shared .align 16 .b8 s[64];
  ld.param.u64 %rd1, [array];
  mov.u32 %r1, s;
  {}
  ret;
}}
"""
TAKEN = {
    "ld.global.b32 %r2, [%rd1].unified;": True,
    "ld.global.b32 %r2, [%rd1+4] .unified;": True,
    "ld.b32 %r2, [%rd1].unified;": True,
    "ld.global.nc.v2.b32 {%r2, %r3}, [%rd1].unified;": True,
    "ld.global.L2::cache_hint.b32 %r2, [%rd1].unified, %rd2;": True,
    "ld.acquire.gpu.b32 %r2, [%rd1].unified;": True,
    "ldu.global.b32 %r2, [%rd1].unified;": True,
    "atom.global.add.u32 %r2, [%rd1].unified, 1;": True,
    "atom.cas.b32 %r2, [%rd1].unified, %r3, %r4;": True,
    "ld.shared.b32 %r2, [%r1].unified;": False,
    "ld.const.b32 %r2, [%rd1].unified;": False,
    "ld.local.b32 %r2, [%rd1].unified;": False,
    "atom.shared.add.u32 %r2, [%r1].unified, 1;": False,
    "st.global.b32 [%rd1].unified, %r2;": False,
    "red.global.add.u32 [%rd1].unified, 1;": False,
    "prefetch.global.L1 [%rd1].unified;": False,
}


@pytest.mark.parametrize("instruction", TAKEN)
def test_who_takes_it(instruction):
    module = ptx.parse(TEXT.format(instruction))
    assert (not list(problems(module))) == TAKEN[instruction]
    assert ptx.parse(module.emit()) == module
    assert "].unified" in module.emit()


@needs_ptxas
def test_ptxas_says_the_same():
    need_ptxas("sm_90", (8, 0))
    for instruction, taken in TAKEN.items():
        assert (run_ptxas(TEXT.format(instruction), "sm_90")[1] is None) == taken, instruction


def test_it_is_the_same_memory():
    device = ptx.EmulatedDevice("sm_90a")
    array = device.array(np.array([5, 6], np.uint32))
    body = "ld.global.b32 %r2, [%rd1].unified;\n  atom.global.add.u32 %r3, [%rd1+4].unified, %r2;"
    run = device.launch(ptx.parse(TEXT.format(body)).kernels["kernel"], 1, 1, [array])
    assert run.findings == []
    assert array.numpy().tolist() == [5, 11]
