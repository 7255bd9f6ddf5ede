"""A fixture that runs a few lines of PTX as a kernel."""

import numpy as np
import pytest

from kernbench import ptx

HEAD = """.version 8.6
.target sm_100a
.address_size 64
{outside}
.visible .entry kernel({params})
{{
  .reg .pred %p<16>;
  .reg .b16 %h<16>;
  .reg .b32 %r<64>;
  .reg .b64 %rd<32>;
  .reg .f32 %f<32>;
  .reg .f64 %d<8>;
{loads}
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mad.lo.u32 %r3, %r1, %r2, %r0;
{body}
  ret;
}}
"""


class Lab:
    """Kernels of arrays only: array i is in %rd(20 + i), a thread's number in the grid in %r3, in its block in %r0."""

    def __init__(self, device=None):
        self.device = device or ptx.EmulatedDevice("sm_100a")

    def kernel(self, body, count, outside=""):
        params = ", ".join(f".param .u64 array{i}" for i in range(count))
        loads = "\n".join(f"  ld.param.u64 %rd{20 + i}, [array{i}];" for i in range(count))
        text = HEAD.format(outside=outside, params=params, loads=loads, body=body)
        return ptx.parse(text).kernels["kernel"]

    def launch(self, body, *arrays, grid=1, block=32, outside="", **options):
        given = [self.device.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
        self.arrays = given
        return self.device.launch(self.kernel(body, len(given), outside), grid, block, given, **options)

    def compute(self, body, *arrays, out="u4", grid=1, block=32, outside="", **options):
        """What each thread leaves in %r63 (or %rd31 for 8 bytes, %h15 for 2)."""
        register, kind = {1: ("%h15", "b8"), 2: ("%h15", "b16"), 4: ("%r63", "b32"), 8: ("%rd31", "b64")}[
            np.dtype(out).itemsize
        ]
        size = np.dtype(out).itemsize
        store = f"""
  mul.wide.u32 %rd18, %r3, {size};
  add.u64 %rd18, %rd18, %rd{20 + len(arrays)};
  st.global.{kind} [%rd18], {register};"""
        total = int(np.prod(grid)) * int(np.prod(block))
        result = self.device.empty(total, out, "result")
        self.run = self.launch(body + store, *arrays, result, grid=grid, block=block, outside=outside, **options)
        assert self.run.findings == [], "\n".join(map(str, self.run.findings))
        return self.run.outputs["result"]

    def findings(self, body, *arrays, **options):
        self.run = self.launch(body, *arrays, **options)
        return self.run.findings

    def kinds(self, body, *arrays, **options):
        return [f.kind for f in self.findings(body, *arrays, **options)]

    def empty(self, shape, dtype, name="out"):
        return self.device.empty(shape, dtype, name)


@pytest.fixture
def lab():
    return Lab()
