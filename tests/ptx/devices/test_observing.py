"""Which PTX may observe the order of its threads."""

import pytest

from kernbench import ptx
from kernbench.ptx.devices.observing import order_observers

FRAME = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{{
    .reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>;
    ld.param.u64 %rd1, [p];
    {body}
    ret;
}}
"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("st.global.f32 [%rd1], 0f3F800000; bar.sync 0; ld.global.f32 %f1, [%rd1];", []),
        ("mov.u32 %r1, %ctaid.x;", []),
        ("atom.global.add.f32 %f1, [%rd1], 0f3F800000;", ["atom.global.add.f32"]),
        ("red.global.add.u32 [%rd1], 1;", ["red.global.add.u32"]),
        ("ld.acquire.gpu.global.u32 %r1, [%rd1];", ["ld.acquire.gpu.global.u32"]),
        ("ld.volatile.global.u32 %r1, [%rd1];", ["ld.volatile.global.u32"]),
        ("mov.u64 %rd2, %clock64;", ["mov.u64"]),
        ("mov.u32 %r1, %smid;", ["mov.u32"]),
        ("mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %rd1;", ["mbarrier.try_wait.shared::cta.b64"]),
    ],
)
def test_what_may_observe_order(body, found):
    kernel = ptx.parse(FRAME.format(body=body)).kernels["k"]
    assert order_observers(kernel) == found


def test_functions_beside_it_count():
    text = FRAME.format(body="").replace(
        ".visible", ".func helper(.param .u64 q)\n{ red.global.add.u32 [%rd1], 1; ret; }\n.visible", 1
    )
    assert order_observers(ptx.parse(text).kernels["k"]) == ["red.global.add.u32"]
