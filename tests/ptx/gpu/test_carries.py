"""The carry flag on the GPU: which way round a subtraction sets and reads it, by itself and mixed with additions."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.devices.cuda_device import CudaDevice

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 out)
{{
  .reg .b32 %r<4>;
  .reg .b64 %rd<8>;
  .reg .b{bits} %v<8>;
  mov.u32 %r0, %tid.x;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [out];
  mul.wide.u32 %rd4, %r0, {size};
  add.u64 %rd1, %rd1, %rd4;
  add.u64 %rd2, %rd2, %rd4;
  add.u64 %rd3, %rd3, %rd4;
  ld.global.b{bits} %v1, [%rd1];
  ld.global.b{bits} %v2, [%rd2];
  {first}.u{bits} %v3, {given};
  {then}.u{bits} %v4, %v2, %v1;
  addc.u{bits} %v5, 0, 0;
  shl.b{bits} %v5, %v5, 7;
  xor.b{bits} %v4, %v4, %v5;
  st.global.b{bits} [%rd3], %v4;
  ret;
}}
"""
FIRST = {"add.cc": "%v1, %v2", "sub.cc": "%v1, %v2", "mad.lo.cc": "%v1, %v2, %v2", "mad.hi.cc": "%v1, %v2, %v2"}


@pytest.fixture(scope="module")
def gpu():
    with CudaDevice(0) as device:
        yield device


def values(bits, seed):
    drawn = np.random.default_rng(seed).integers(0, 2**bits, 128, f"u{bits // 8}", endpoint=False)
    edges = np.array([0, 1, 2**bits - 1, 2 ** (bits - 1)], drawn.dtype)
    return np.concatenate([drawn, np.repeat(edges, 4) if seed else np.tile(edges, 4)])


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("then", ["addc.cc", "subc.cc"])
@pytest.mark.parametrize("first", FIRST)
def test_flags_that_one_sets_and_another_reads(gpu, first, then, bits):
    text = KERNEL.format(bits=bits, size=bits // 8, first=first, given=FIRST[first], then=then)
    a, b = values(bits, 0), values(bits, 1)
    found = []
    for device in (ptx.EmulatedDevice("sm_90"), gpu):
        out = device.array(np.zeros_like(a))
        device.launch(ptx.parse(text).kernels["kernel"], 1, len(a), [device.array(a), device.array(b), out])
        found.append(out.numpy())
    np.testing.assert_array_equal(*found)
