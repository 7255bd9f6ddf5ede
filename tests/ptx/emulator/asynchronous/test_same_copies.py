"""Bulk stores that every warp begins: formal where they bring the same bytes, a race where they do not."""

import numpy as np
import pytest

from kernbench import ptx

# one lane of each of two warps stores 64 bytes, from where and to where each says
STORE = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
 .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<4>;
 .shared .align 128 .b8 buf[256];
 mov.u32 %r1, %tid.x; mov.u32 %r2, buf; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; ld.param.u64 %rd1, [out];
 VALUE
 st.shared.b32 [%r4], %r5;
 fence.proxy.async.shared::cta;
 bar.sync 0;
 and.b32 %r6, %r1, 31; shr.u32 %r7, %r1, 5; setp.ne.u32 %p1, %r6, 0;
 mul.lo.u32 %r8, %r7, SOURCE; add.u32 %r8, %r8, %r2; mul.wide.u32 %rd2, %r7, TARGET; add.u64 %rd2, %rd2, %rd1;
 @%p1 bra END;
 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r8], 64;
 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:
 ret;
}
"""
EACH, SAME = "mov.b32 %r5, %r1;", "mov.b32 %r5, 7;"
FAULT, FORMAL, NOTHING = (["race"], []), ([], ["race"]), ([], [])


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
@pytest.mark.parametrize(
    ("source", "target", "value", "verdict"),
    [(0, 0, EACH, FORMAL), (64, 0, EACH, FAULT), (64, 0, SAME, FORMAL), (0, 32, EACH, FAULT), (64, 64, EACH, NOTHING)],
    ids=["the same", "other bytes", "the same bytes from elsewhere", "shifted", "apart"],
)
def test_stores_of_two_warps(source, target, value, verdict, schedule):
    text = STORE.replace("SOURCE", str(source)).replace("TARGET", str(target)).replace("VALUE", value)
    device = ptx.EmulatedDevice(arch="sm_90a")
    out = device.array(np.zeros(64, np.uint32))
    run = device.launch(ptx.parse(text).kernels["k"], 1, 64, [out], schedule=schedule)
    assert ([finding.kind for finding in run.findings], [finding.kind for finding in run.formal]) == verdict
