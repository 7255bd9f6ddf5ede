"""Divergence and reconvergence: lanes part, meet again, and every one of them computes its own result."""

import numpy as np
import pytest

from kernbench.ptx.emulator.program.flow import order_blocks

LANES = np.arange(64)


def test_nested_conditions(lab):
    body = """
  mov.u32 %r63, 0;
  and.b32 %r4, %r0, 1;
  setp.eq.u32 %p1, %r4, 0;
  @%p1 bra EVEN;
  setp.gt.u32 %p2, %r0, 40;
  @%p2 bra LARGE;
  add.u32 %r63, %r63, 1;
  bra ODD;
LARGE:
  add.u32 %r63, %r63, 2;
ODD:
  add.u32 %r63, %r63, 10;
  bra JOIN;
EVEN:
  add.u32 %r63, %r63, 100;
JOIN:
  add.u32 %r63, %r63, 1000;
"""
    expected = np.where(LANES % 2 == 0, 100, np.where(LANES > 40, 2, 1) + 10) + 1000
    assert (lab.compute(body, block=64) == expected).all()


def test_loops_of_different_length_meet_before_what_follows(lab):
    body = """
  mov.u32 %r63, 0;
  mov.u32 %r5, 0;
L:
  setp.ge.u32 %p1, %r5, %r0;
  @%p1 bra OUT;
  add.u32 %r63, %r63, %r5;
  add.u32 %r5, %r5, 1;
  bra L;
OUT:
  activemask.b32 %r6;
  popc.b32 %r6, %r6;
  mad.lo.u32 %r63, %r63, 100, %r6;
"""
    expected = [sum(range(i)) * 100 + 32 for i in LANES]
    assert lab.compute(body, block=64).tolist() == expected


def test_break_and_continue(lab):
    body = """
  mov.u32 %r63, 0;
  mov.u32 %r5, 0;
L:
  add.u32 %r5, %r5, 1;
  setp.gt.u32 %p1, %r5, 50;
  @%p1 bra OUT;
  and.b32 %r6, %r5, 3;
  setp.eq.u32 %p2, %r6, 0;
  @%p2 bra L;
  setp.gt.u32 %p3, %r5, %r0;
  @%p3 bra OUT;
  add.u32 %r63, %r63, %r5;
  bra L;
OUT:
"""

    def reference(t):
        total = 0
        for i in range(1, 51):
            if i % 4 == 0:
                continue
            if i > t:
                break
            total += i
        return total

    assert lab.compute(body, block=64).tolist() == [reference(t) for t in LANES]


def test_early_exit_of_some_lanes(lab):
    body = """
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  and.b32 %r4, %r0, 3;
  setp.eq.u32 %p1, %r4, 0;
  @%p1 exit;
  st.global.u32 [%rd1], %r0;
  setp.gt.u32 %p1, %r0, 20;
  @%p1 ret;
  st.global.u32 [%rd1], 7;
"""
    assert lab.kinds(body, np.zeros(32, "u4")) == []
    t = np.arange(32)
    expected = np.where(t % 4 == 0, 0, np.where(t > 20, t, 7))
    assert (lab.arrays[0].numpy() == expected).all()


def test_indexed_branch(lab):
    body = """
  and.b32 %r4, %r0, 3;
  brx.idx %r4, TABLE;
TABLE: .branchtargets A, B, C, A;
A:
  mov.u32 %r63, 10;
  bra DONE;
B:
  mov.u32 %r63, 20;
  bra DONE;
C:
  mov.u32 %r63, 30;
DONE:
"""
    assert (lab.compute(body) == np.array([10, 20, 30, 10])[np.arange(32) % 4]).all()


FUNCTION = """
.func (.param .b32 result) twice_and_one(.param .b32 a)
{
  .reg .b32 %r<4>;
  .reg .pred %p;
  ld.param.b32 %r1, [a];
  setp.gt.u32 %p, %r1, 15;
  @%p bra LARGE;
  shl.b32 %r2, %r1, 1;
  bra OUT;
LARGE:
  mov.u32 %r2, 1000;
OUT:
  add.u32 %r3, %r2, 1;
  st.param.b32 [result], %r3;
  ret;
}
"""
CALL = """
  {
  .param .b32 in;
  .param .b32 out;
  st.param.b32 [in], %r0;
  call (out), twice_and_one, (in);
  ld.param.b32 %r63, [out];
  }
"""


def test_call(lab):
    t = np.arange(32)
    expected = np.where(t > 15, 1001, 2 * t + 1)
    assert (lab.compute(CALL, outside=FUNCTION) == expected).all()


def test_call_by_some_lanes_with_registers_passed_directly(lab):
    body = """
  mov.u32 %r63, 5;
  setp.lt.u32 %p1, %r0, 8;
  @%p1 call (%r63), twice_and_one, (%r0);
"""
    t = np.arange(32)
    assert (lab.compute(body, outside=FUNCTION) == np.where(t < 8, 2 * t + 1, 5)).all()


def test_function_with_register_parameters(lab):
    function = """
.func (.reg .b32 %out) add_three(.reg .b32 %in)
{
  add.u32 %out, %in, 3;
  ret;
}
"""
    body = "  call (%r63), add_three, (%r0);"
    assert (lab.compute(body, outside=function) == np.arange(32) + 3).all()


def test_same_label_in_nested_blocks(lab):
    block = "  {\n  .reg .pred p;\n  setp.lt.u32 p, %r0, %d;\n  @p bra DONE;\n  add.u32 %r63, %r63, 1;\n  DONE:\n  }\n"
    body = "  mov.u32 %r63, 0;\n" + block.replace("%d", "5") + block.replace("%d", "9")
    t = np.arange(32)
    assert (lab.compute(body) == (t >= 5).astype(int) + (t >= 9)).all()


def test_partial_warps_and_three_dimensions(lab):
    body = """
  mov.u32 %r4, %tid.y;
  mov.u32 %r5, %tid.z;
  mov.u32 %r6, %ctaid.y;
  mad.lo.u32 %r63, %r5, 10, %r4;
  mad.lo.u32 %r63, %r63, 10, %r0;
  mad.lo.u32 %r63, %r6, 1000, %r63;
  mov.u32 %r7, %nctaid.x;
  mad.lo.u32 %r3, %r6, %r7, %r1;
  mov.u32 %r8, %ntid.y;
  mad.lo.u32 %r9, %r5, %r8, %r4;
  mad.lo.u32 %r9, %r9, %r2, %r0;
  mad.lo.u32 %r3, %r3, 42, %r9;
"""
    out = lab.compute(body, grid=(3, 2), block=(7, 3, 2)).reshape(2, 3, 2, 3, 7)
    y, _, tz, ty, tx = np.indices(out.shape)
    assert (out == y * 1000 + tz * 100 + ty * 10 + tx).all()


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1, 2, 3])
def test_every_schedule_computes_the_same(lab, schedule):
    body = """
  mov.u32 %r63, %r3;
  mov.u32 %r5, 0;
L:
  and.b32 %r6, %r63, 1;
  setp.eq.u32 %p1, %r6, 0;
  @%p1 shr.u32 %r63, %r63, 1;
  @%p1 bra NEXT;
  mad.lo.u32 %r63, %r63, 3, 1;
NEXT:
  add.u32 %r5, %r5, 1;
  setp.gt.u32 %p2, %r63, 1;
  @%p2 bra L;
  mov.u32 %r63, %r5;
"""
    out = lab.compute(body, grid=5, block=96, schedule=schedule)

    def steps(n):
        count = 0
        while True:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            count += 1
            if n <= 1:
                return count

    assert out.tolist() == [steps(n) for n in range(480)]


def test_weak_topological_order():
    diamond_in_loop = [[1], [2, 6], [3, 4], [5], [5], [1], []]
    order = order_blocks(diamond_in_loop)
    assert order.ranks[6] == 6
    assert order.ranks[1] < min(order.ranks[b] for b in (2, 3, 4, 5))
    assert order.ranks[5] > max(order.ranks[3], order.ranks[4])
    assert [sorted(loop.blocks) for loop in order.loops] == [[1, 2, 3, 4, 5]]


def test_order_of_an_irreducible_graph():
    order = order_blocks([[1, 2], [2, 3], [1, 3], []])
    assert order.ranks[3] == 3
