"""Registers that are counted from PTX stay within what a kernel declares."""

import pytest

from kernbench.ptx.sass.expansion.pressure import registers_of


def text(declared):
    loads = "\n".join(f"  ld.global.u32 %r{i}, [%rd0+{4 * i}];" for i in range(220))
    stores = "\n".join(f"  st.global.u32 [%rd0+{4 * i}], %r{i};" for i in reversed(range(220)))
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {declared}
{{
  .reg .b32 %r<220>; .reg .b64 %rd<1>;
  ld.param.u64 %rd0, [p];
{loads}
{stores}
  ret;
}}
"""


@pytest.mark.parametrize(
    ("declared", "most"),
    [
        ("", 192),
        (".maxnreg 96", 96),
        (".reqntid 384, 1, 1", 168),
        (".maxntid 1000", 64),
        (".maxntid 256 .maxnreg 160", 160),
    ],
)
def test_a_cta_that_is_declared_fits_into_an_sm(declared, most):
    assert registers_of(text(declared), "k") == most
