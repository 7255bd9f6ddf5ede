"""Every check: a planted bug that it finds, with its message, and a clean kernel beside it that it passes."""

import numpy as np
import pytest

from kernbench.safety.budget import Budget

ADDRESS = """
  mul.wide.u32 %rd1, %r3, 4;
  add.u64 %rd1, %rd1, %rd20;
"""
STORE_ALL = ADDRESS + "  st.global.u32 [%rd1], %r3;\n"


def zeros(n, dtype="u4"):
    return np.zeros(n, dtype)


def test_a_clean_store(lab):
    assert lab.kinds(STORE_ALL, zeros(64), block=64) == []


def test_out_of_bounds_store_is_dropped_and_named(lab):
    x = lab.device.array(zeros(60), "x")
    (found,) = lab.findings(STORE_ALL, x, block=64)
    assert found.kind == "out-of-bounds"
    assert found.count == 4
    assert "thread (60, 0, 0) of block (0, 0, 0) writes 4 bytes" in found.message
    assert "offset 240 of 'x', which has 240 bytes: right behind its end; valid are" in found.message
    assert "(240 bytes)" in found.message
    assert found.where.line > 0
    assert "st.global.u32" in found.where.text


def test_out_of_bounds_before_the_start(lab):
    x = lab.device.array(zeros(8), "x")
    (found,) = lab.findings("  ld.global.u32 %r5, [%rd20+-4];", x)
    assert "offset -4 of 'x', which has 32 bytes: 4 bytes before its start" in found.message


def test_a_null_pointer(lab):
    (found,) = lab.findings("  mov.u64 %rd1, 0;\n  ld.global.u32 %r5, [%rd1+8];", zeros(1))
    assert found.kind == "out-of-bounds"
    assert "reads 4 bytes at 0x8, which is a null pointer or close to one: no array lies there" in found.message
    assert found.hint.startswith("check which argument or register holds the pointer")


def test_a_pointer_to_nowhere(lab):
    (found,) = lab.findings("  mov.u64 %rd1, 0x7fff12345678;\n  ld.global.u32 %r5, [%rd1];", zeros(1))
    assert "where no memory was ever allocated" in found.message


def test_an_access_that_begins_inside(lab):
    x = lab.device.array(zeros(7), "x")
    (found,) = lab.findings("  ld.global.u64 %rd5, [%rd20+24];", x)
    assert "offset 24 of 'x', which has 28 bytes: the last 4 of the 8 lie behind its end" in found.message


def test_misaligned(lab):
    (found,) = lab.findings("  ld.global.u32 %r5, [%rd20+2];", zeros(8))
    assert found.kind == "misaligned"
    assert "no multiple of 4" in found.message
    assert lab.kinds("  ld.global.v2.u32 {%r5, %r6}, [%rd20+8];", zeros(8)) == []
    assert lab.kinds("  ld.global.v2.u32 {%r5, %r6}, [%rd20+4];", zeros(8)) == ["misaligned"]


def test_use_after_free(lab):
    x = lab.device.array(zeros(8), "x")
    x.free()
    (found,) = lab.findings("  ld.global.u32 %r5, [%rd20];", x)
    assert found.kind == "use-after-free"
    assert "'x', which was freed" in found.message


def test_uninitialised_global(lab):
    body = "  ld.global.u32 %r5, [%rd20];\n  st.global.u32 [%rd20], %r5;"
    assert lab.kinds(body, lab.empty(8, "u4"), block=1)[0] == "uninitialised-read"
    assert lab.kinds(body, zeros(8), block=1) == []


SHARED = ".shared .align 4 .b32 tile[64];"
TO_SHARED = """
  mov.u32 %r10, tile;
  shl.b32 %r11, %r0, 2;
  add.u32 %r12, %r10, %r11;
  st.shared.u32 [%r12], %r0;
"""
FROM_NEXT = """
  add.u32 %r13, %r0, 1;
  and.b32 %r13, %r13, 63;
  shl.b32 %r13, %r13, 2;
  add.u32 %r13, %r13, %r10;
  ld.shared.u32 %r63, [%r13];
"""


def test_uninitialised_shared(lab):
    (found,) = lab.findings("  mov.u32 %r10, tile;\n  ld.shared.u32 %r5, [%r10];", outside=SHARED)
    assert found.kind == "uninitialised-read"
    assert "shared memory that nobody wrote ('tile', 256 bytes from 0x0)" in found.message


def test_shared_out_of_bounds(lab):
    body = "  mov.u32 %r10, tile;\n  st.shared.u32 [%r10+256], %r0;"
    (found,) = lab.findings(body, outside=SHARED)
    assert found.kind == "out-of-bounds"
    assert "shared memory" in found.message


def test_between_two_shared_variables(lab):
    outside = ".shared .align 4 .b32 one[4];\n.shared .align 4 .b32 two[4];"
    body = "  mov.u32 %r10, one;\n  mov.u32 %r11, two;\n  st.shared.u32 [%r10+16], %r0;\n  st.shared.u32 [%r11], %r0;"
    assert lab.kinds(body, outside=outside, block=1) == ["out-of-bounds"]


def test_uninitialised_and_outside_local(lab):
    local = "  .local .align 4 .b8 mine[16];\n  mov.u64 %rd1, mine;\n"
    load = local + "  ld.local.u32 %r5, [%rd1];"
    assert lab.kinds(load) == []
    assert lab.kinds(load + "\n  st.global.u32 [%rd20], %r5;", zeros(1)) == ["uninitialised-read"]
    assert lab.kinds(local + "  st.local.u32 [%rd1], %r0;\n  ld.local.u32 %r5, [%rd1];") == []
    assert lab.kinds(local + "  st.local.u32 [%rd1+16], %r0;") == ["out-of-bounds"]


@pytest.mark.parametrize("size", [1, 5, 13, 16, 20])
def test_local_variables_end_at_their_last_byte(lab, size):
    local = f"  .local .align 4 .b8 mine[{size}];\n  .local .align 4 .b8 other[4];\n  mov.u64 %rd1, mine;\n"
    assert lab.kinds(local + f"  st.local.u8 [%rd1+{size - 1}], %r0;") == []
    (found,) = lab.findings(local + f"  st.local.u8 [%rd1+{size}], %r0;")
    assert found.kind == "out-of-bounds"
    assert f"offset {size} of 'mine' in local memory, which has {size} bytes: right behind its end" in found.message
    generic = local + f"  cvta.local.u64 %rd2, %rd1;\n  add.u64 %rd2, %rd2, %rd3;\n  ld.u8 %r5, [%rd2+{size}];"
    assert lab.kinds("  mov.u64 %rd3, 0;\n" + generic) == ["out-of-bounds"]


CALLED = """
.func (.param .b64 out) inner(.param .b64 given)
{
  .reg .b64 %a; .reg .b32 %x;
  .local .align 4 .b8 own[12];
  ld.param.u64 %a, [given];
  st.local.u32 [own+INDEX], 1;
  st.u32 [%a], 7;
  mov.u64 %a, own;
  cvta.local.u64 %a, %a;
  st.param.u64 [out], %a;
  ret;
}
"""
CALLER = """
  .local .align 4 .b8 mine[4];
  .param .b64 passed, result;
  mov.u64 %rd1, mine;
  cvta.local.u64 %rd2, %rd1;
  st.param.u64 [passed], %rd2;
  call (result), inner, (passed);
  ld.param.u64 %rd3, [result];
  ld.local.u32 %r5, [%rd1];
"""


def test_local_variables_of_functions_have_bounds_and_end_with_their_return(lab):
    assert lab.kinds(CALLER, outside=CALLED.replace("INDEX", "8")) == []
    (found,) = lab.findings(CALLER, outside=CALLED.replace("INDEX", "12"))
    assert (found.kind, "offset 12 of 'own'" in found.message) == ("out-of-bounds", True)
    after = CALLER + "  ld.u32 %r6, [%rd3+8];"
    assert lab.kinds(after, outside=CALLED.replace("INDEX", "8")) == ["out-of-bounds"]


def test_race_in_shared_memory(lab):
    (found,) = lab.findings(TO_SHARED + FROM_NEXT, outside=SHARED, block=64)
    assert found.kind == "race"
    assert "nothing orders the two" in found.message
    assert [other.where.text for other in found.others] == ["st.shared.u32 [%r12], %r0;"]
    assert lab.kinds(TO_SHARED + "  bar.sync 0;" + FROM_NEXT, outside=SHARED, block=64) == []


def test_write_after_read_race(lab):
    body = TO_SHARED + "  bar.sync 0;" + FROM_NEXT + "{}  st.shared.u32 [%r12], %r63;"
    assert lab.kinds(body.format(""), outside=SHARED, block=64) == ["race"]
    assert lab.kinds(body.format("  bar.sync 0;"), outside=SHARED, block=64) == []


def test_lanes_of_one_warp_race_without_a_warp_barrier(lab):
    within = FROM_NEXT.replace("63;", "31;").replace("%r31;", "%r63;")
    assert lab.kinds(TO_SHARED + within, outside=SHARED) == ["race"]
    assert lab.kinds(TO_SHARED + "  bar.warp.sync 0xffffffff;" + within, outside=SHARED) == []
    shuffled = "  shfl.sync.idx.b32 %r20, %r0, 0, 31, 0xffffffff;"
    assert lab.kinds(TO_SHARED + shuffled + within, outside=SHARED) == ["race"]


def test_one_instruction_writes_one_place_twice(lab):
    body = "  mov.u32 %r10, tile;\n  st.shared.u32 [%r10], {};"
    assert lab.kinds(body.format("%r0"), outside=SHARED) == ["race"]
    assert lab.kinds(body.format("%r1"), outside=SHARED) == []


def test_neighbouring_halves_do_not_race(lab):
    body = """
  mov.u32 %r10, tile;
  mad.lo.u32 %r12, %r0, 2, %r10;
  cvt.u16.u32 %h1, %r0;
  st.shared.u16 [%r12], %h1;
  ld.shared.u16 %h2, [%r12];
  add.u16 %h2, %h2, 1;
  st.shared.u16 [%r12], %h2;
"""
    assert lab.kinds(body, outside=SHARED, block=64) == []


def test_race_between_blocks(lab):
    x = lab.device.array(zeros(1), "x")
    (found,) = lab.findings("  st.global.u32 [%rd20], %r1;", x, grid=3, block=1)
    assert found.kind == "race"
    assert "'x'" in found.message
    assert lab.kinds("  atom.global.add.u32 %r5, [%rd20], 1;", zeros(1), grid=3) == []
    assert lab.kinds("  red.global.add.u32 [%rd20], 1;\n  ld.global.u32 %r5, [%rd20];", zeros(1), grid=2) == ["race"]


PUBLISH = """
  mov.u32 %r6, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READ;
  mov.u32 %r5, 42;
  st.global.u32 [%rd20], %r5;
  {fence}
  st{order}.global.u32 [%rd21], %r6;
  bra DONE;
READ:
  ld.{acquire}.global.u32 %r7, [%rd21];
  setp.eq.u32 %p2, %r7, 0;
  @%p2 bra READ;
  {after}
  ld.global.u32 %r8, [%rd20];
DONE:
"""


@pytest.mark.parametrize(
    ("fence", "order", "acquire", "after", "kinds"),
    [
        ("", ".release.gpu", "acquire.gpu", "", []),
        ("membar.gl;", ".volatile", "volatile", "membar.gl;", []),
        ("fence.acq_rel.gpu;", ".relaxed.gpu", "relaxed.gpu", "fence.acq_rel.gpu;", []),
        ("fence.acq_rel.gpu;", ".relaxed.gpu", "acquire.gpu", "", []),
        ("", ".release.gpu", "relaxed.gpu", "fence.sc.sys;", []),
        ("", ".volatile", "volatile", "", ["race"]),
        ("", ".volatile", "volatile", "membar.gl;", ["race"]),
        ("membar.gl;", ".volatile", "volatile", "", ["race"]),
        ("", ".release.gpu", "relaxed.gpu", "", ["race"]),
        ("membar.cta;", ".volatile", "volatile", "membar.gl;", ["race"]),
        ("membar.gl;", ".volatile", "volatile", "membar.cta;", ["race"]),
        ("", ".release.gpu", "acquire.cta", "", ["race", "race"]),
        ("", ".release.cluster", "acquire.gpu", "", ["race", "race"]),
        ("", ".release.sys", "acquire.gpu", "", []),
    ],
)
def test_publishing_through_a_flag(lab, fence, order, acquire, after, kinds):
    body = PUBLISH.format(fence=fence, order=order, acquire=acquire, after=after)
    assert lab.kinds(body, zeros(1), zeros(1), grid=2, block=1) == kinds
    assert lab.kinds(body, zeros(1), zeros(1), grid=2, block=1, schedule="reversed") == kinds


def test_named_barriers_order_only_those_that_meet(lab):
    body = """
  mov.u32 %r10, tile;
  setp.ge.u32 %p1, %r0, 32;
  @%p1 bra SECOND;
  st.shared.u32 [%r10], %r1;
  bar.arrive 1, 64;
  bra DONE;
SECOND:
  {wait}
  ld.shared.u32 %r5, [%r10];
DONE:
"""
    assert lab.kinds(body.format(wait="bar.sync 1, 64;"), outside=SHARED, block=64) == []
    assert lab.kinds(body.format(wait="bar.sync 2, 32;"), outside=SHARED, block=64) == ["race"]


UNDEFINED = """
  setp.gt.u32 %p1, %r0, 3;
  @%p1 mov.u32 %r5, 7;
  {copy}
  {use}
"""


def test_undefined_register_reaches_a_store(lab):
    body = ADDRESS + UNDEFINED.format(copy="add.u32 %r6, %r5, 1;", use="st.global.u32 [%rd1], %r6;")
    (found,) = lab.findings(body, zeros(32))
    assert found.kind == "uninitialised-read"
    assert "%r6 is stored, and was never set in thread (0, 0, 0)" in found.message
    assert found.count == 4


def test_undefined_register_that_is_only_copied(lab):
    guarded = ADDRESS + UNDEFINED.format(copy="mov.u32 %r6, %r5;", use="@%p1 st.global.u32 [%rd1], %r6;")
    assert lab.kinds(guarded, zeros(32)) == []
    selected = ADDRESS + UNDEFINED.format(copy="selp.u32 %r6, %r5, %r0, %p1;", use="st.global.u32 [%rd1], %r6;")
    assert lab.kinds(selected, zeros(32)) == []


def test_undefined_register_decides_a_branch_or_an_address(lab):
    branch = "  setp.eq.u32 %p2, %r5, 1;\n  @%p2 bra DONE;\nDONE:"
    assert lab.kinds(branch) == ["uninitialised-read"]
    address = "  add.u64 %rd2, %rd20, %rd3;\n  ld.global.u32 %r5, [%rd2];"
    assert "uninitialised-read" in lab.kinds(address, zeros(1))


def test_divergent_barrier(lab):
    body = "  setp.lt.u32 %p1, %r0, 16;\n  @%p1 bra HERE;\n  bra DONE;\nHERE:\n  bar.sync 0;\nDONE:\n  bar.sync 0;"
    (found, *_) = lab.findings(body, block=64)
    assert found.kind == "divergent-barrier"
    assert "without the rest of their warp, such as thread (16, 0, 0)" in found.message
    whole = body.replace("%r0, 16;", "%r0, 32;").replace("bar.sync 0;\nDONE", "bar.sync 1, 32;\nDONE")
    assert lab.kinds(whole, block=64) == []


def test_threads_that_ended_do_not_hold_a_barrier(lab):
    assert lab.kinds("  setp.ge.u32 %p1, %r0, 32;\n  @%p1 exit;\n  bar.sync 0;", block=64) == []


def test_deadlock_at_a_barrier_says_who_waits(lab):
    body = "  setp.lt.u32 %p1, %r0, 32;\n  @%p1 bar.sync 1;\n  @!%p1 bar.sync 2;"
    run = lab.launch(body, block=64)
    assert run.status == "deadlocked"
    (found,) = run.findings
    assert found.kind == "deadlock"
    assert (
        "wait at barrier 1: 32 of 64 threads have arrived; thread (32, 0, 0) of block (0, 0, 0) has not"
        in found.message
    )
    assert "wait at barrier 2" in found.message


def test_deadlock_of_a_flag_nobody_sets(lab):
    body = "SPIN:\n  ld.volatile.global.u32 %r5, [%rd20];\n  setp.eq.u32 %p1, %r5, 0;\n  @%p1 bra SPIN;"
    run = lab.launch(body, zeros(1))
    assert run.status == "deadlocked"
    place = f"'array0' at {lab.arrays[0].address:#x}"
    assert f"wait for {place} to change from 0; no instruction of this kernel writes it" in run.findings[0].message


def test_waiting_for_a_block_that_cannot_become_resident(lab):
    body = """
  atom.global.add.u32 %r4, [%rd20], 1;
SPIN:
  ld.volatile.global.u32 %r5, [%rd20];
  mov.u32 %r6, %nctaid.x;
  setp.lt.u32 %p1, %r5, %r6;
  @%p1 bra SPIN;
"""
    assert lab.launch(body, zeros(1), grid=100, block=1).status == "finished"
    run = lab.launch(body, zeros(1), grid=6000, block=1)
    assert run.status == "deadlocked"
    assert "fit on the device at once" in run.findings[0].message


def test_a_launch_that_never_ends(lab):
    run = lab.launch("  mov.u32 %r5, 0;\nL:\n  add.u32 %r5, %r5, 1;\n  bra L;", budget=Budget(steps=2000))
    assert run.status == "over budget"
    assert run.findings[0].kind == "over-budget"
    assert "2,000 steps" in run.findings[0].message


def test_mismatched_warp_mask(lab):
    body = """
  setp.lt.u32 %p1, %r0, 16;
  @!%p1 bra DONE;
  shfl.sync.bfly.b32 %r5, %r0, 1, 31, {};
DONE:
  bar.warp.sync 0xffffffff;
"""
    (found,) = lab.findings(body.format("0xffffffff"))
    assert found.kind == "warp-mask"
    assert "0xffffffff" in found.message
    assert lab.kinds(body.format("0x0000ffff")) == []


def test_shuffle_from_an_inactive_lane(lab):
    body = "  setp.lt.u32 %p1, %r0, 16;\n  @%p1 shfl.sync.bfly.b32 %r5, %r0, {}, 31, 0x0000ffff;"
    (found,) = lab.findings(body.format(16))
    assert found.kind == "inactive-lane"
    assert found.count == 16
    assert lab.kinds(body.format(8)) == []


SIGNED = "// Generated by NVIDIA NVVM Compiler"


def test_division_by_zero(lab):
    (found,) = lab.findings("  div.u32 %r5, 100, %r0;")
    assert found.kind == "division"
    assert "thread (0, 0, 0)" in found.message
    assert lab.kinds("  setp.ne.u32 %p1, %r0, 0;\n  @%p1 div.u32 %r5, 100, %r0;") == []
    assert lab.kinds("  rem.s32 %r5, %r0, 0;") == ["division"]


def test_what_a_compiler_divides_by_zero_is_told_where_it_decides(lab):
    """Compilers compute indices ahead of loops and drop them where the divisor is zero."""
    divide = "  rem.s32 %r5, 100, %r0;\n  add.u32 %r6, %r5, 1;\n"
    dropped = (
        divide + "  setp.ne.u32 %p1, %r0, 0;\n" + ADDRESS + "  selp.b32 %r6, %r6, 7, %p1;\n  st.global.u32 [%rd1], %r6;"
    )
    assert [f.kind for f in lab.findings(dropped, lab.empty(32, "u4", "y"))] == ["division"]
    assert lab.findings(dropped, lab.empty(32, "u4", "y"), outside=SIGNED) == []
    assert lab.findings(divide, outside=SIGNED) == []
    stored = divide + ADDRESS + "  st.global.u32 [%rd1], %r6;"
    (found,) = lab.findings(stored, lab.empty(32, "u4", "y"), outside=SIGNED)
    assert found.kind == "division"
    assert "integer division by zero in thread (0, 0, 0) of block (0, 0, 0), and the result is stored" in found.message
    assert "rem.s32" in found.message
    assert found.others[0].role == "where it is stored"
    branch = "  div.u32 %r5, 100, %r0;\n  setp.gt.u32 %p1, %r5, 3;\n  @%p1 bra ON;\nON:"
    assert [f.kind for f in lab.findings(branch, outside=SIGNED)] == ["division"]


def test_output_never_written(lab):
    (found,) = lab.findings(
        "  setp.eq.u32 %p1, %r0, 99;\n" + ADDRESS + "  @%p1 st.global.u32 [%rd1], %r0;", lab.empty(32, "u4", "y")
    )
    assert found.kind == "output-unwritten"
    assert "'y' was made empty and the kernel wrote nothing" in found.message
    (found,) = lab.findings(STORE_ALL, lab.empty(40, "u4", "y"))
    assert "all but 32 of its 160 bytes; the first byte left is 128" in found.message
    assert lab.kinds(STORE_ALL, lab.empty(32, "u4", "y")) == []


def test_a_trap(lab):
    assert lab.kinds("  setp.eq.u32 %p1, %r0, 5;\n  @%p1 trap;") == ["trap"]


def test_without_checks_nothing_is_said(lab):
    run = lab.launch(STORE_ALL, zeros(60), block=64, checks=False)
    assert run.findings == []
    assert run.safe is None


def test_findings_fold_by_place(lab):
    body = """
  mov.u32 %r5, 0;
L:
  ld.global.u32 %r6, [%rd20+4];
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p1, %r5, 10;
  @%p1 bra L;
"""
    (found,) = lab.findings(body, zeros(1))
    assert found.count == 320
