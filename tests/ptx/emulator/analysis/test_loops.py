"""What is known of loops before they run."""

import pytest

from kernbench import ptx
from kernbench.ptx.emulator.analysis.building import build

LOOP = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k()
{{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  mov.u32 %r1, 0;
$L:
  {inside}
  setp.ne.u32 %p1, %r1, 7;
  @%p1 bra $L;
  ret;
}}
"""


def state_of(inside: str) -> str:
    """Whose state the next round of a loop follows from."""
    program, _ = build(ptx.parse(LOOP.format(inside=inside)).kernels["k"])
    return next(block.wait_loop.closed for block in program.blocks if block.wait_loop is not None)


@pytest.mark.parametrize(
    ("inside", "state"),
    [
        ("add.u32 %r1, %r1, 1;", "lane"),
        ("vadd.u32.u32.u32 %r1, %r1, %r1;", "lane"),
        ("vmad.u32.u32.u32 %r1, %r1, %r1, %r1;", "lane"),
        ("fence.acq_rel.gpu;", "lane"),
        ("shfl.sync.idx.b32 %r1, %r1, 0, 31, -1;", "warp"),
        ("bar.sync 0;", "block"),
        ("shfl.sync.idx.b32 %r1, %r1, 0, 31, -1; bar.sync 0;", "block"),
        ("bar.sync 0, 64;", ""),
        ("cp.async.wait_all;", ""),
    ],
)
def test_whose_state_a_loop_follows_from(inside, state):
    assert state_of(inside) == state
