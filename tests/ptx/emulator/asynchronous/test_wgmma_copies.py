"""Tiles that cp.async brings and wgmma reads: the proxy fence must lie between the wait and the product."""

import pytest
from tests.ptx.emulator.asynchronous.test_wgmma import FENCE, SIGNED, only, planted


def copied_again(fence):
    """Tiles are copied by cp.async behind the fence, as Triton 3.6 has it in loops, and waited for."""
    lines = [
        "  mov.u32 %r25, %tid.x;\n  shl.b32 %r25, %r25, 4;\n  mov.u32 %r26, tiles;\n  add.u32 %r26, %r26, %r25;",
        "  cvt.u64.u32 %rd8, %r25;\n  ld.param.u64 %rd9, [image];\n  add.u64 %rd8, %rd8, %rd9;",
        *(f"  cp.async.cg.shared.global [%r26+{at}], [%rd8+{at}], 16;" for at in range(0, 16384, 2048)),
        f"  cp.async.commit_group;\n  cp.async.wait_group 0;\n  {fence}\n  bar.sync 0;",
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("signed", [True, False])
def test_a_proxy_fence_before_copies_does_not_cover_them(signed):
    """Triton 3.6.0 moved its fence in front of the loop whose copies wgmma reads; 3.7 on has one behind the wait."""
    change = SIGNED if signed else ("", "")
    late = planted(first=copied_again(""), change=change)
    assert "no proxy fence" in only(late, "missing-fence")
    assert not planted(first=copied_again(FENCE), change=change).findings
