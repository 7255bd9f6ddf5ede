"""Undefined values in local memory: copied freely, told where they decide something."""

import numpy as np
import pytest

LOCAL = """
  .local .align 8 .b8 one[16];
  .local .align 8 .b8 two[16];
  mov.u64 %rd1, one;
  mov.u64 %rd2, two;
  cvta.local.u64 %rd3, %rd1;
  cvta.local.u64 %rd4, %rd2;
  st.local.u32 [%rd1], %r0;
"""
COPIES = {
    "by words": "  ld.local.u64 %rd5, [%rd1];\n  st.local.u64 [%rd2], %rd5;\n",
    "by vectors": "  ld.local.v2.u32 {%r5, %r6}, [%rd1];\n  st.local.v2.u32 [%rd2], {%r5, %r6};\n",
    "generic": "  ld.u32 %r5, [%rd3];\n  ld.u32 %r6, [%rd3+4];\n  st.u32 [%rd4], %r5;\n  st.u32 [%rd4+4], %r6;\n",
    "over its own address": "  mov.u64 %rd6, %rd1;\n  ld.local.u32 %r5, [%rd1];\n  st.local.u32 [%rd2], %r5;\n"
    "  ld.local.u64 %rd6, [%rd6+8];\n  st.local.u64 [%rd2+8], %rd6;\n",
}
OUT = "  mul.wide.u32 %rd8, %r0, 4;\n  add.u64 %rd8, %rd8, %rd20;\n"


def zeros(count):
    return np.zeros(count, "u4")


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_a_half_set_struct_may_be_copied(lab, copy):
    use = OUT + "  ld.local.u32 %r7, [%rd2];\n  st.global.u32 [%rd8], %r7;"
    assert lab.kinds(LOCAL + copy + use, zeros(32)) == []
    assert (lab.arrays[0].numpy() == np.arange(32)).all()


@pytest.mark.parametrize("copy", [c for n, c in COPIES.items() if n in ("by vectors", "generic")])
def test_its_other_half_may_not_be_used(lab, copy):
    use = OUT + "  ld.local.u32 %r7, [%rd2+4];\n  add.u32 %r7, %r7, 1;\n  st.global.u32 [%rd8], %r7;"
    (found,) = lab.findings(LOCAL + copy + use, zeros(32))
    assert found.kind == "uninitialised-read"
    assert found.count == 32
    assert "%r7 is stored, and comes from local memory (line " in found.message
    assert "`ld.local.u32 %r7, [%rd2+4];`) never written by thread (0, 0, 0)" in found.message
    stored = LOCAL + copy + "  st.local.u32 [%rd2+4], 5;\n" + use
    assert lab.kinds(stored, zeros(32)) == []


def test_where_an_undefined_value_decides(lab):
    load = LOCAL + "  ld.local.u32 %r5, [%rd1+8];\n"
    branch = load + "  setp.gt.s32 %p1, %r5, 3;\n  @%p1 bra DONE;\nDONE:"
    assert "%p1 decides whether this runs" in lab.findings(branch)[0].message
    address = load + "  cvt.u64.u32 %rd9, %r5;\n  add.u64 %rd9, %rd20, %rd9;\n  ld.global.u32 %r6, [%rd9];"
    assert "%rd9 is part of the address" in lab.findings(address, zeros(1))[0].message
    unused = load + "  selp.u32 %r6, %r5, 7, %p2;\n"
    chosen = "  setp.ne.u32 %p2, %r0, %r0;\n" + unused + OUT + "  st.global.u32 [%rd8], %r6;"
    assert lab.kinds(chosen, zeros(32)) == []


def test_a_word_with_one_half_set_may_be_taken_apart(lab):
    parts = OUT + "  mov.b64 %rd5, {%r9, %r0};\n  mov.b64 {_, %r7}, %rd5;\n"
    use = "  mul.wide.u32 %rd6, %r7, 4;\n  add.u64 %rd6, %rd6, %rd20;\n  st.global.u32 [%rd6], %r7;"
    assert lab.kinds(parts + use, zeros(32)) == []
    assert (lab.arrays[0].numpy() == np.arange(32)).all()
    neither = parts.replace("{%r9, %r0}", "{%r9, %r10}") + "  st.global.u32 [%rd8], %r7;"
    assert "%r7 is stored, and was never set" in lab.findings(neither, zeros(32))[0].message


def test_lanes_and_loops_keep_their_own(lab):
    body = (
        LOCAL
        + OUT
        + """
  setp.lt.u32 %p1, %r0, 20;
  @%p1 st.local.u32 [%rd1+4], 1;
  mov.u32 %r9, 0;
L:
  ld.local.u32 %r5, [%rd1+4];
  add.u32 %r9, %r9, %r5;
  st.local.u32 [%rd1+4], %r9;
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p2, %r0, 20;
  @%p2 st.global.u32 [%rd8], %r9;
  @!%p2 bra DONE;
DONE:
"""
    )
    assert lab.kinds(body, zeros(32)) == []
    (found,) = lab.findings(body.replace("%r0, 20;\n  @%p2", "%r0, 21;\n  @%p2"), zeros(32))
    assert found.count == 1
    assert "thread (20, 0, 0)" in found.message


def test_bits_that_are_set_one_after_the_other(lab):
    body = (
        LOCAL
        + OUT
        + """
  ld.local.u32 %r5, [%rd1+4];
  and.b32 %r5, %r5, 0xffff0000;
  or.b32 %r5, %r5, 3;
  st.local.u32 [%rd1+4], %r5;
  ld.local.u32 %r5, [%rd1+4];
  and.b32 %r5, %r5, 0x0000ffff;
  st.global.u32 [%rd8], %r5;
"""
    )
    assert lab.kinds(body, zeros(32)) == []


BEST = """
  mov.u32 %r9, 0;
L:
  setp.eq.u32 %p1, %r9, {first};
  setp.gt.u32 %p2, %r9, %r5;
  {either}
  selp.u32 %r5, %r9, %r5, %p3;
  add.u32 %r9, %r9, 1;
  setp.lt.u32 %p4, %r9, 5;
  @%p4 bra L;
"""


@pytest.mark.parametrize(
    "either",
    [
        "or.pred %p3, %p1, %p2;",
        "or.pred %p2, %p2, %p1;\n  mov.pred %p3, %p2;",
        "setp.gt.or.u32 %p3, %r9, %r5, %p1;",
        "not.pred %p5, %p1;\n  not.pred %p6, %p2;\n  and.pred %p3, %p5, %p6;\n  not.pred %p3, %p3;",
        "setp.gt.or.u32 %p3, %r9, %r5, %p1;\n  xor.b32 %r8, %r8, %r8;\n  add.u32 %r5, %r5, %r8;",
    ],
)
def test_a_best_value_that_the_first_round_sets(lab, either):
    store = OUT + "  st.global.u32 [%rd8], %r5;"
    assert lab.kinds(BEST.format(first=0, either=either) + store, zeros(32)) == []
    assert (lab.arrays[0].numpy() == 4).all()
    assert lab.kinds(BEST.format(first=9, either=either) + store, zeros(32)) == ["uninitialised-read"]


def test_an_undefined_value_chooses_a_branch_of_many(lab):
    table = "  brx.idx %r5, WAYS;\nWAYS: .branchtargets A, B;\nA:\n  mov.u32 %r6, 1;\nB:\n"
    (found, *_) = lab.findings(LOCAL + "  ld.local.u32 %r5, [%rd1+8];\n" + table)
    assert found.kind == "uninitialised-read"
    assert "%r5 decides where this goes" in found.message


FUNCTION = """
.func (.param .align 8 .b8 result[16]) passed(.param .align 8 .b8 given[16])
{
  .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [given];
  ld.param.b64 %rd2, [given+8];
  st.param.b64 [result], %rd1;
  st.param.b64 [result+8], %rd2;
  ret;
}
"""
CALL = """
  {
  .param .align 8 .b8 in[16];
  .param .align 8 .b8 out[16];
  ld.local.u64 %rd5, [%rd1];
  ld.local.u64 %rd6, [%rd1+8];
  st.param.b64 [in], %rd5;
  st.param.b64 [in+8], %rd6;
  call (out), passed, (in);
  ld.param.b64 %rd5, [out];
  ld.param.b64 %rd6, [out+8];
  }
"""


def test_structs_go_through_calls(lab):
    body = LOCAL + OUT + CALL + "  st.global.u32 [%rd8], "
    assert lab.kinds(body + "%rd5;", zeros(32), outside=FUNCTION) == []
    assert (lab.arrays[0].numpy() == np.arange(32)).all()
    (found,) = lab.findings(body + "%rd6;", zeros(32), outside=FUNCTION)
    assert found.kind == "uninitialised-read"


def test_a_packed_conversion_with_one_part_that_is_set(lab):
    """Triton converts two values to 8-bit floats at once, and stores one byte of them."""
    convert = "  cvt.rn.f32.u32 %f1, %r0;\n  cvt.rn.satfinite.e4m3x2.f32 %h1, {}, {};\n"
    store = OUT + "  st.global.b8 [%rd8], %h1;"
    assert lab.kinds(convert.format("%f9", "%f1") + store, zeros(32)) == []
    assert (lab.arrays[0].numpy()[1:4] == [0x38, 0x40, 0x44]).all()
    assert lab.kinds(convert.format("%f9", "%f8") + store, zeros(32)) == ["uninitialised-read"]


# two products in a row; %f5 and %f7 begin as 0, %f6 only where `set` says so, and %f4 is left out
PRODUCTS = """
  mov.b32 %r5, 0;
  mov.f32 %f5, 0f00000000;
  mov.f32 %f7, 0f00000000;
{set}
  mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f4, %f5, %f6, %f7}}, {{%r5, %r5}}, {{%r5}},
    {{%f4, %f5, %f6, %f7}};
  mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f8, %f9, %f10, %f11}}, {{%r5, %r5}}, {{%r5}},
    {{%f4, %f5, %f6, %f7}};
"""


@pytest.mark.parametrize(
    ("before", "stored", "unset"),
    [
        ("", "%f9", 0),
        ("", "%f11", 0),
        ("", "%f10", 32),
        ("", "%f8", 32),
        ("  mov.f32 %f6, 0f00000000;", "%f10", 0),
        ("  setp.lt.u32 %p1, %r0, 20;\n  @%p1 mov.f32 %f6, 0f00000000;", "%f10", 12),
    ],
)
def test_a_product_is_undefined_where_what_it_is_added_to_is(lab, before, stored, unset):
    """An accumulator that nobody cleared; elements that nobody uses may be left as they are."""
    found = lab.findings(PRODUCTS.format(set=before) + OUT + f"  st.global.f32 [%rd8], {stored};", zeros(32))
    assert [(one.kind, one.count) for one in found] == ([("uninitialised-read", unset)] if unset else [])


WMMA = """
  .shared .align 32 .b8 tile[1024];
  mov.u32 %r6, tile;
  mov.b32 %r5, 0;
{set}
  wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}},
    {{%r5, %r5, %r5, %r5, %r5, %r5, %r5, %r5}}, {{%r5, %r5, %r5, %r5, %r5, %r5, %r5, %r5}},
    {{%f9, %f9, %f9, %f9, %f9, %f9, %f9, %f9}};
  wmma.store.d.sync.aligned.row.m16n16k16.{to}, {{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}}, 16;
"""


@pytest.mark.parametrize(
    ("before", "to", "kinds"),
    [
        ("", "global.f32 [%rd20]", {"uninitialised-read"}),
        ("", "shared.f32 [%r6]", set()),
        ("  mov.f32 %f9, 0f00000000;", "global.f32 [%rd20]", set()),
    ],
)
def test_a_fragment_that_is_stored(lab, before, to, kinds):
    assert set(lab.kinds(WMMA.format(set=before, to=to), zeros(256))) == kinds
