"""Which atomics let the order of threads show, and which come out the same in any order."""

import pytest

from kernbench import ptx
from kernbench.ptx.comparing.order import where_order_shows

TEXT = """.version 8.6
.target sm_90a
.address_size 64
.shared .align 16 .b8 tile[256];
.visible .entry k(.param .u64 x, .param .align 64 .b8 map[128])
{{
  .reg .pred %p; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x]; mov.u32 %r1, 1; mov.f32 %f1, 0f3F800000;
  {body}
  ret;
}}
"""


def shown(body):
    return where_order_shows(ptx.parse(TEXT.format(body=body)).kernels["k"])


@pytest.mark.parametrize(
    "body",
    [
        "red.global.add.u32 [%rd1], %r1;",
        "atom.global.add.u32 %r2, [%rd1], %r1;",
        "atom.global.max.s32 _, [%rd1], %r1;",
        "red.shared.or.b32 [tile], %r1;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [tile], 16;",
        "st.global.f32 [%rd1], %f1;",
    ],
)
def test_any_order_gives_the_same(body):
    assert shown(body) == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("red.global.add.f32 [%rd1], %f1;", "a sum of floats"),
        ("atom.global.add.u32 %r2, [%rd1], %r1; st.global.u32 [%rd1+4], %r2;", "the old value, which is used"),
        ("atom.global.exch.b32 %r2, [%rd1], %r1;", "what exch leaves depends on who came last"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [tile], 16;", "a sum of floats"),
        (
            "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [map, {%r1}], [tile];",
            "a sum of floats",
        ),
        ("mov.u32 %r2, %clock; st.global.u32 [%rd1], %r2;", "the device's own"),
    ],
)
def test_the_order_shows(body, reason):
    (found,) = shown(body)
    assert reason in str(found)
    assert found.line == 9
