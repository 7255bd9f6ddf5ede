"""Functions that call themselves: each call has registers and a stack of its own, with or without a frame in memory."""

from math import factorial

import numpy as np

# parameters and results in registers: no frame
FACTORIAL = """
.func (.reg .b32 %result) product(.reg .b32 %n)
{
  .reg .pred %p; .reg .b32 %less, %rest;
  setp.eq.u32 %p, %n, 0;
  mov.u32 %result, 1;
  @%p ret;
  sub.u32 %less, %n, 1;
  call (%rest), product, (%less);
  mul.lo.u32 %result, %rest, %n;
  ret;
}
"""
MUTUAL = """
.func (.reg .b32 %result) odd(.reg .b32 %n);
.func (.reg .b32 %result) even(.reg .b32 %n)
{
  .reg .pred %p; .reg .b32 %less, %rest;
  setp.eq.u32 %p, %n, 0;
  mov.u32 %result, 1;
  @%p ret;
  sub.u32 %less, %n, 1;
  call (%rest), odd, (%less);
  mad.lo.u32 %result, %rest, 3, %n;
  ret;
}
.func (.reg .b32 %result) odd(.reg .b32 %n)
{
  .reg .pred %p; .reg .b32 %less, %rest;
  setp.eq.u32 %p, %n, 0;
  mov.u32 %result, 0;
  @%p ret;
  sub.u32 %less, %n, 1;
  call (%rest), even, (%less);
  add.u32 %result, %rest, %n;
  ret;
}
"""
# each call takes a page of the thread's stack
TAKES = """
.func takes(.reg .b32 %n)
{
  .reg .pred %p; .reg .b32 %less; .reg .b64 %taken;
  alloca.u64 %taken, 4096;
  setp.eq.u32 %p, %n, 0;
  @%p ret;
  sub.u32 %less, %n, 1;
  call takes, (%less);
  ret;
}
"""
INNER = """
.func inner(.reg .b32 %n)
{
  ret;
}
.func takes(.reg .b32 %n)
{
  .reg .b64 %taken;
  alloca.u64 %taken, 4096;
  call inner, (%n);
  ret;
}
"""
FIVE_TIMES = """
  mov.u32 %r63, 0;
AGAIN:
  call takes, (2);
  add.u32 %r63, %r63, 1;
  setp.lt.u32 %p1, %r63, 5;
  @%p1 bra AGAIN;
"""


def even(n):
    return 1 if n == 0 else odd(n - 1) * 3 + n


def odd(n):
    return 0 if n == 0 else even(n - 1) + n


def test_calls_without_a_frame_have_registers_of_their_own(lab):
    found = lab.compute("  and.b32 %r4, %r0, 7;\n  call (%r63), product, (%r4);", outside=FACTORIAL)
    assert found.tolist() == [factorial(lane % 8) for lane in range(32)]


def test_functions_that_call_each_other_without_frames(lab):
    found = lab.compute("  and.b32 %r4, %r0, 7;\n  call (%r63), even, (%r4);", outside=MUTUAL)
    assert found.tolist() == [even(lane % 8) for lane in range(32)]


def test_what_a_call_without_a_frame_took_of_the_stack_ends_with_it(lab):
    for outside in (TAKES, INNER):
        assert np.unique(lab.compute(FIVE_TIMES, outside=outside)).tolist() == [5]


def test_recursion_without_end_overflows_the_stack_though_it_has_no_frame(lab):
    endless = FACTORIAL.replace("  @%p ret;\n", "")
    run = lab.launch("  call (%r63), product, (%r0);", outside=endless)
    (found,) = run.findings
    assert (found.kind, found.count) == ("misuse", 32)
    assert "call of product overflows the local stack" in found.message
