"""Functions called by their addresses: also those whose address another kernel has stored."""

import numpy as np

from kernbench import ptx

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
PROTOTYPE = "prototype: .callprototype (.param .b32 _) _ (.param .b32 _);"
ADD = """
.func (.param .b32 result) add3(.param .b32 given) {
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [given]; add.u32 %r2, %r1, 3; st.param.u32 [result], %r2; ret;
}
"""
SCALE = """
.func (.param .b32 result) times3(.param .b32 given) {
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [given]; mul.lo.u32 %r2, %r1, 3; st.param.u32 [result], %r2; ret;
}
"""
MAKE = """
.visible .entry make(.param .u64 table) {
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [table]; mov.u64 %rd2, add3; st.global.u64 [%rd1], %rd2; ret;
}
"""
USE = f"""
.visible .entry use(.param .u64 table, .param .u64 out) {{
  .reg .b32 %r<4>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [table]; ld.param.u64 %rd2, [out]; ld.global.u64 %rd3, [%rd1];
  mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd2, %rd2, %rd4;
  {{
    .param .b32 given; .param .b32 got;
    st.param.b32 [given], %r1;
    {PROTOTYPE}
    call (got), %rd3, (given), prototype;
    ld.param.b32 %r2, [got];
  }}
  st.global.u32 [%rd2], %r2; ret;
}}
"""
# a table of functions that the kernel which calls does not name
TABLE = ".visible .global .align 8 .u64 functions[2] = {add3, times3};\n"
COPY_SECOND = """
.visible .entry make(.param .u64 table) {
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [table]; ld.global.u64 %rd2, [functions+8]; st.global.u64 [%rd1], %rd2; ret;
}
"""


def called(text):
    module, device = ptx.parse(HEAD + text), ptx.EmulatedDevice("sm_90")
    table, out = device.empty(1, np.uint64), device.empty(32, np.int32)
    made = device.launch(module.kernels["make"], 1, 1, [table])
    used = device.launch(module.kernels["use"], 1, 32, [table, out])
    assert made.safe, made.findings
    assert used.safe, used.findings
    return out.numpy()


def test_an_address_stored_by_one_kernel_is_called_by_another():
    assert (called(ADD + MAKE + USE) == np.arange(32) + 3).all()


def test_an_address_from_a_table_that_only_another_kernel_names():
    assert (called(ADD + SCALE + TABLE + COPY_SECOND + USE) == np.arange(32) * 3).all()


def test_a_number_that_is_no_address_is_still_an_error():
    module, device = ptx.parse(HEAD + ADD + MAKE + USE), ptx.EmulatedDevice("sm_90")
    table, out = device.array(np.array([12345], np.uint64)), device.empty(32, np.int32)
    run = device.launch(module.kernels["use"], 1, 32, [table, out])
    assert any("no such function" in finding.message for finding in run.findings)
