"""Findings that have one cause are one: all pairs of accesses that share one of their lines."""


def test_a_store_that_every_warp_runs_is_one_finding_with_all_its_readers(lab):
    body = """
  .shared .align 16 .b8 tile[256];
  mov.u32 %r10, tile;
  st.shared.u32 [%r10], %r0;
  ld.shared.u32 %r20, [%r10];
  ld.shared.u32 %r21, [%r10];
  ld.shared.u32 %r22, [%r10];
  ld.shared.u32 %r23, [%r10];
  ld.shared.u32 %r24, [%r10];
  ld.shared.u32 %r25, [%r10];
  ld.shared.u32 %r26, [%r10];
"""
    (found,) = lab.findings(body, block=64)
    assert found.kind == "race"
    assert found.where.text == found.others[0].where.text == "st.shared.u32 [%r10], %r0;"
    assert "; 7 more pairs of lines meet the same way there: " in found.message
    assert found.message.endswith("and 3 more")
    assert "several threads run that store on one word" in found.hint
    assert [other.role for other in found.others[1:]] == ["the same way"] * 4
    assert all(other.where.text.startswith("ld.shared") for other in found.others[1:])


def test_two_variables_are_two_causes(lab):
    body = """
  .shared .align 16 .b8 one[256]; .shared .align 16 .b8 two[256];
  mul.lo.u32 %r9, %r0, 4; xor.b32 %r8, %r9, 128;
  mov.u32 %r10, one; add.u32 %r11, %r10, %r9; add.u32 %r12, %r10, %r8;
  mov.u32 %r13, two; add.u32 %r14, %r13, %r9; add.u32 %r15, %r13, %r8;
  st.shared.u32 [%r11], %r0;
  st.shared.u32 [%r14], %r0;
  ld.shared.u32 %r20, [%r12];
  ld.shared.u32 %r21, [%r15];
"""
    one, two = lab.findings(body, block=64)
    assert ("'one'" in one.message, "'two'" in two.message) == (True, True)


def test_a_missing_barrier_before_and_one_behind_the_reads_are_two_causes(lab):
    body = """
  .shared .align 16 .b8 tile[256];
  mul.lo.u32 %r9, %r0, 4; xor.b32 %r8, %r9, 128; mov.u32 %r10, tile; add.u32 %r11, %r10, %r9; add.u32 %r12, %r10, %r8;
  st.shared.u32 [%r11], %r0;
  ld.shared.u32 %r20, [%r12];
  st.shared.u32 [%r11], %r20;
"""
    before, behind = lab.findings(body, block=64)
    assert before.where.text.startswith("ld.shared")
    assert behind.where.text.startswith("st.shared.u32 [%r11], %r20")
    assert behind.others[0].where.text.startswith("ld.shared")


def test_a_late_store_that_meets_many_readers_is_one_finding(lab):
    body = """
  .shared .align 16 .b8 tile[256];
  mul.lo.u32 %r9, %r0, 4; xor.b32 %r8, %r9, 128; mov.u32 %r10, tile; add.u32 %r11, %r10, %r9; add.u32 %r12, %r10, %r8;
  st.shared.u32 [%r11], %r0;
  bar.sync 0;
  setp.lt.u32 %p1, %r0, 32;
  @%p1 ld.shared.u32 %r20, [%r12];
  @!%p1 ld.shared.u32 %r21, [%r12];
  st.shared.u32 [%r11], 1;
"""
    (found,) = lab.findings(body, block=64)
    assert found.where.text == "st.shared.u32 [%r11], 1;"
    assert "; another pair of lines meets the same way there: " in found.message
