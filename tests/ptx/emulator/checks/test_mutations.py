"""Mutated kernels: whatever becomes of one, a launch ends in a run or in an error of ours."""

import random
import re

import numpy as np
import pytest
from tests import sampled

from kernbench import ptx
from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.safety.budget import Budget

KERNEL = """.version 8.0
.target sm_80
.address_size 64
.shared .align 16 .b8 tile[1024];
.func (.param .b32 result) half(.param .b32 a)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [a];
  shr.u32 %r2, %r1, 1;
  st.param.b32 [result], %r2;
  ret;
}
.visible .entry kernel(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred %p<4>;
  .reg .b32 %r<20>;
  .reg .f32 %f<6>;
  .reg .b64 %rd<8>;
  .local .align 8 .b8 mine[16];
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.u32 %r5, %r3, %r4, %r2;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r5, 4;
  add.u64 %rd4, %rd1, %rd3;
  ld.global.f32 %f1, [%rd4];
  mov.u32 %r6, tile;
  shl.b32 %r7, %r2, 2;
  add.u32 %r8, %r6, %r7;
  st.shared.f32 [%r8], %f1;
  mov.u64 %rd5, mine;
  st.local.u32 [%rd5+4], %r5;
  bar.sync 0;
  xor.b32 %r9, %r7, 4;
  add.u32 %r10, %r6, %r9;
  ld.shared.f32 %f2, [%r10];
  mov.u32 %r11, 0;
LOOP:
  fma.rn.f32 %f2, %f2, %f1, %f1;
  shfl.sync.bfly.b32 %r12, %r5, 1, 31, 0xffffffff;
  atom.global.add.u32 %r13, [%rd2], 1;
  add.u32 %r11, %r11, 1;
  setp.lt.u32 %p2, %r11, 3;
  @%p2 bra LOOP;
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r12;
  call (out), half, (in);
  ld.param.b32 %r14, [out];
  }
  ld.local.u32 %r15, [%rd5+4];
  div.u32 %r16, %r14, %r11;
  vote.sync.ballot.b32 %r17, %p2, 0xffffffff;
  add.u64 %rd6, %rd2, %rd3;
  st.global.f32 [%rd6+256], %f2;
DONE:
  ret;
}
"""
LINES = KERNEL.split("\n")
FIRST = next(n for n, line in enumerate(LINES) if ".entry" in line)
TYPES = ("u32", "s32", "b32", "f32", "u64", "b64", "f64", "u16", "b16", "pred", "u8", "v2")


def mutated(rnd):
    lines = list(LINES)
    for _ in range(rnd.randint(1, 3)):
        at, other = (rnd.randrange(FIRST, len(lines)) for _ in range(2))
        line = lines[at]
        names = re.findall(r"%\w+", line)
        change = rnd.randrange(6)
        if change == 0:
            lines[at] = ""
        elif change == 1:
            lines[at] = lines[other]
        elif change == 2 and names:
            lines[at] = line.replace(rnd.choice(names), rnd.choice(re.findall(r"%\w+", KERNEL)), 1)
        elif change == 3:
            number = rnd.choice((0, 1, 3, 31, 33, 1 << 31, (1 << 32) - 1))
            lines[at] = re.sub(r"\b\d+\b", str(number), line, count=1)
        elif change == 4:
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines[at] = re.sub(r"\.[usbf]\d\d", f".{rnd.choice(TYPES)}", line, count=1)
    return "\n".join(lines)


def launched(text, rnd):
    device = ptx.EmulatedDevice("sm_80")
    arrays = [device.array(np.arange(128, dtype="u4")), device.array(np.zeros(192, "u4"))]
    kernel = ptx.parse(text).kernels.get("kernel")
    if kernel is None:
        raise MisuseError("a mutation removed the kernel")
    budget = Budget(steps=3000, seconds=600)
    block = rnd.choice((32, 48, 64))
    return device.launch(kernel, 2, block, [*arrays, 100], checks=rnd.random() < 0.8, budget=budget)


def test_the_kernel_itself_is_safe():
    assert launched(KERNEL, random.Random(4)).safe is not False


@pytest.mark.parametrize("seed", range(4))
def test_mutated_kernels_end(seed):
    rnd = random.Random(seed)
    runs, count = 0, sampled.examples(25, 60)
    for _ in range(count):
        try:
            run = launched(mutated(rnd), rnd)
        except KernbenchError:
            continue
        runs += 1
        assert all(str(finding) and finding.to_dict() for finding in run.findings)
    # the others are no PTX, which is said
    assert runs > count / 6
