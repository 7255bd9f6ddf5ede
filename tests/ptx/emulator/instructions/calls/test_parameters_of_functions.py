"""Parameters of functions whose address is taken: `.param` of a register means the function's own parameters there."""

import pytest

PICKS = """
.func (.param .b32 result) picks(.param .align 16 .b8 words[16], .param .b32 which)
{{
  .reg .b32 %which, %word;
  .reg .b64 %at, %by;
  ld.param.u32 %which, [which];
  mov.b64 %at, words;
  mul.wide.u32 %by, %which, 4;
  add.u64 %at, %at, %by;
{load}
  st.param.b32 [result], %word;
  ret;
}}
"""
CALL = """
  and.b32 %r4, %r0, 3;
  {
    .param .align 16 .b8 words[16];
    .param .b32 which, result;
    st.param.v4.b32 [words], {%r2, %r0, %r4, %r0};
    st.param.b32 [which], %r4;
    call (result), picks, (words, which);
    ld.param.b32 %r63, [result];
  }
"""
LOADS = (
    "ld.param.u32 %word, [%at];",
    "ld.param::func.u32 %word, [%at];",
    "ld.local.u32 %word, [%at];",
    "cvta.local.u64 %at, %at;\n  ld.u32 %word, [%at];",
)


@pytest.mark.parametrize("load", LOADS)
def test_a_function_reads_its_parameters_by_address(lab, load):
    found = lab.compute(CALL, outside=PICKS.format(load=load))
    assert found.tolist() == [(32, lane, lane % 4, lane)[lane % 4] for lane in range(32)]
