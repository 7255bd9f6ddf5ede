"""Functions of CUDA's device runtime that compilers leave to the linker, as PTX: the grid-wide barrier.

Numba's `grid.sync()` calls them. The first thread of each block counts its block in; the last one resets the count and
advances the second word, which the others poll.
"""

import re

_EXTERN = re.compile(r"\.extern\s+\.func\b[^;]*?\bcudaCG(?:Synchronize|GetIntrinsicHandle)\b")
TEXT = """.version 8.0
.target sm_70
.address_size 64
.global .align 4 .b32 kernbench_grid[2];
.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
  .reg .b64 %d<2>;
  mov.u64 %d1, kernbench_grid;
  cvta.global.u64 %d1, %d1;
  st.param.b64 [handle], %d1;
  ret;
}
.visible .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
  .reg .pred %p<3>;
  .reg .b32 %r<12>;
  .reg .b64 %d<2>;
  ld.param.b64 %d1, [handle];
  bar.sync 0;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %tid.y;
  or.b32 %r1, %r1, %r2;
  mov.u32 %r2, %tid.z;
  or.b32 %r1, %r1, %r2;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra MET;
  mov.u32 %r3, %nctaid.x;
  mov.u32 %r4, %nctaid.y;
  mul.lo.u32 %r3, %r3, %r4;
  mov.u32 %r4, %nctaid.z;
  mul.lo.u32 %r3, %r3, %r4;
  sub.u32 %r3, %r3, 1;
  ld.acquire.gpu.b32 %r5, [%d1+4];
  atom.acq_rel.gpu.add.u32 %r6, [%d1], 1;
  setp.eq.u32 %p2, %r6, %r3;
  @%p2 bra LAST;
WAIT:
  ld.acquire.gpu.b32 %r7, [%d1+4];
  setp.eq.u32 %p2, %r7, %r5;
  @%p2 bra WAIT;
  bra MET;
LAST:
  st.relaxed.gpu.b32 [%d1], 0;
  add.u32 %r8, %r5, 1;
  st.release.gpu.b32 [%d1+4], %r8;
MET:
  bar.sync 0;
  mov.b32 %r9, 0;
  st.param.b32 [result], %r9;
  ret;
}
"""


def with_device_runtime(texts: list[str]) -> list[str]:
    """PTX texts to be linked, with the device runtime added if one of them calls it."""
    return [*texts, TEXT] if any(_EXTERN.search(text) for text in texts) else texts
