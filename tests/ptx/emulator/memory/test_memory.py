"""Loads and stores of every width, space and form."""

import numpy as np
import pytest

from kernbench.ptx.emulator.memory.arena import SHARED_BASE
from kernbench.ptx.emulator.program.steps import SHARED_WINDOW

T = np.arange(32)
AT = "  mul.wide.u32 %rd1, %r0, {step};\n  add.u64 %rd1, %rd1, %rd20;\n"


@pytest.mark.parametrize(
    ("kind", "dtype", "expected"),
    [
        ("u8", "u1", lambda x: x),
        ("s8", "i1", lambda x: x.astype("i4").view("u4")),
        ("u16", "u2", lambda x: x),
        ("s16", "i2", lambda x: x.astype("i4").view("u4")),
        ("b32", "u4", lambda x: x),
    ],
)
def test_narrow_loads_extend(lab, kind, dtype, expected):
    x = np.random.default_rng(0).integers(0, 256, 32 * np.dtype(dtype).itemsize).astype("u1").view(dtype)
    body = AT.format(step=x.itemsize) + f"  ld.global.{kind} %r63, [%rd1];"
    assert (lab.compute(body, x) == expected(x)).all()


def test_narrow_stores_cut(lab):
    body = AT.format(step=1) + "  add.u32 %r5, %r0, 500;\n  st.global.u8 [%rd1], %r5;"
    assert lab.kinds(body, np.zeros(32, "u1")) == []
    assert (lab.arrays[0].numpy() == (T + 500) % 256).all()


def test_vectors(lab):
    x = np.arange(128, dtype="u4")
    body = AT.format(step=16) + "  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd1];\n  sub.u32 %r63, %r8, %r5;"
    assert set(lab.compute(body, x).tolist()) == {3}
    body = AT.format(step=16) + "  ld.global.v2.u64 {%rd5, %rd31}, [%rd1];"
    assert (lab.compute(body, np.arange(64, dtype="u8"), out="u8") == 2 * T + 1).all()
    body = AT.format(step=8) + "  st.global.v2.b32 [%rd1], {%r0, 7};"
    lab.kinds(body, np.zeros(64, "u4"))
    assert (lab.arrays[0].numpy().reshape(32, 2) == np.stack([T, np.full(32, 7)], 1)).all()


def test_discarded_parts_of_a_vector(lab):
    body = AT.format(step=8) + "  ld.global.v2.u32 {_, %r63}, [%rd1];"
    assert (lab.compute(body, np.arange(64, dtype="u4")) == 2 * T + 1).all()


def test_negative_offsets_and_constants(lab):
    body = "  add.u64 %rd1, %rd20, 64;\n  ld.global.u32 %r63, [%rd1+-8];"
    assert set(lab.compute(body, np.arange(32, dtype="u4")).tolist()) == {14}


def test_predicated_loads_keep_what_was_there(lab):
    body = "  mov.u32 %r63, 5;\n  setp.lt.u32 %p1, %r0, 4;\n  @%p1 ld.global.u32 %r63, [%rd20];"
    assert lab.compute(body, np.full(1, 9, "u4")).tolist() == [9] * 4 + [5] * 28


def test_module_variables_keep_their_values_between_launches(lab):
    outside = ".global .align 4 .u32 counter = 5;\n.const .align 4 .b32 table[3] = {10, 20, 30};"
    body = """
  mov.u64 %rd1, counter;
  atom.global.add.u32 %r63, [%rd1], 1;
  mov.u64 %rd2, table;
  ld.const.u32 %r5, [%rd2+4];
  add.u32 %r63, %r63, %r5;
  ld.const.u32 %r6, [table+8];
  add.u32 %r63, %r63, %r6;
"""
    kernel = lab.kernel(body + "  st.global.u32 [%rd20], %r63;", 1, outside)
    out = lab.device.array(np.zeros(1, "u4"))
    for expected in (55, 56):
        lab.device.launch(kernel, 1, 1, [out])
        assert out.numpy()[0] == expected


def test_dynamic_shared_memory(lab):
    outside = ".extern .shared .align 16 .b8 dynamic[];\n.shared .align 4 .b32 fixed[3];"
    body = """
  mov.u32 %r10, dynamic;
  shl.b32 %r11, %r0, 2;
  add.u32 %r11, %r11, %r10;
  st.shared.u32 [%r11], %r0;
  mov.u32 %r12, fixed;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 st.shared.u32 [%r12], 1;
  bar.sync 0;
  ld.shared.u32 %r63, [%r11];
  mov.u32 %r13, %dynamic_smem_size;
  add.u32 %r63, %r63, %r13;
"""
    assert (lab.compute(body, outside=outside, block=64, shared_bytes=256) == np.arange(64) + 256).all()
    (found, *_) = lab.findings(body, outside=outside, block=64, shared_bytes=128)
    assert found.kind == "out-of-bounds"


ASYNC = """
  mov.u32 %r10, tile;
  shl.b32 %r11, %r0, 4;
  add.u32 %r12, %r10, %r11;
  mul.wide.u32 %rd1, %r0, 16;
  add.u64 %rd1, %rd1, %rd20;
  cp.async.ca.shared.global [%r12], [%rd1], 16{size};
  cp.async.commit_group;
  {wait}
  ld.shared.u32 %r63, [%r12+4];
"""


def test_asynchronous_copies_arrive_at_their_wait(lab):
    x = np.arange(128, dtype="u4")
    outside = ".shared .align 16 .b8 tile[512];"
    assert (lab.compute(ASYNC.format(size="", wait="cp.async.wait_group 0;"), x, outside=outside) == 4 * T + 1).all()
    assert (lab.compute(ASYNC.format(size="", wait="cp.async.wait_all;"), x, outside=outside) == 4 * T + 1).all()
    early = lab.kinds(ASYNC.format(size="", wait="cp.async.wait_group 1;"), x, outside=outside)
    assert early == ["in-flight"]


def test_asynchronous_copies_fill_with_zeros(lab):
    x = np.arange(128, dtype="u4") + 1
    outside = ".shared .align 16 .b8 tile[512];"
    assert set(lab.compute(ASYNC.format(size=", 4", wait="cp.async.wait_all;"), x, outside=outside).tolist()) == {0}
    body = "  mov.u32 %r9, 16;\n" + ASYNC.format(size=", %r9", wait="cp.async.wait_all;")
    assert (lab.compute(body, x, outside=outside) == 4 * T + 2).all()


def test_carries(lab):
    body = """
  mov.u32 %r5, 0xffffffff;
  add.cc.u32 %r6, %r5, %r0;
  addc.u32 %r7, %r0, 0;
  mad.lo.u32 %r63, %r7, 1000, %r6;
"""
    low = (0xFFFFFFFF + T) & 0xFFFFFFFF
    high = T + (T > 0)
    assert (lab.compute(body) == (high * 1000 + low) & 0xFFFFFFFF).all()


def test_clocks_go_forward_in_straight_code(lab):
    body = "  mov.u64 %rd5, %clock64;\n  mov.u64 %rd6, %clock64;\n  sub.u64 %rd31, %rd6, %rd5;"
    assert set(lab.compute(body, out="u8").tolist()) == {1}
    more = body.replace(";\n  mov.u64 %rd6", ";\n  add.u32 %r5, %r5, %r0;\n  add.u32 %r5, %r5, 2;\n  mov.u64 %rd6")
    assert set(lab.compute(more, out="u8").tolist()) == {3}


def test_shared_memory_that_the_system_keeps(lab):
    """Zeros at first, a room of its own in each block, and outside what the kernel declares."""
    body = """
  .shared .align 4 .b8 own[4096];
  mov.u32 %r5, %reserved_smem_offset_1;
  mov.u32 %r6, own;
  st.shared.u32 [%r6+4092], 7;
  ld.shared.u32 %r7, [%r5];
  bar.sync 0;
  atom.shared.add.u32 %r8, [%r5], 1;
  bar.sync 0;
  ld.shared.u32 %r9, [%r5];
  mad.lo.u32 %r63, %r7, 1000, %r9;
"""
    assert set(lab.compute(body, grid=3).tolist()) == {32}
    sizes = "  mov.u32 %r5, %reserved_smem_offset_begin;\n  mov.u32 %r6, %reserved_smem_offset_end;\n"
    assert set(lab.compute(sizes + "  sub.u32 %r63, %r6, %r5;").tolist()) == {1024}


def test_clocks_go_forward(lab):
    body = """
  mov.u64 %rd5, %clock64;
  bar.sync 0;
  mov.u64 %rd6, %clock64;
  sub.u64 %rd31, %rd6, %rd5;
"""
    assert (lab.compute(body, out="u8").astype("i8") > 0).all()


def test_registers_wider_than_a_conversion(lab):
    body = "  sub.u32 %r5, 0, %r0;\n  cvt.s32.s8 %r63, %r5;"
    assert (lab.compute(body).view("i4") == -T).all()


def test_packing(lab):
    body = """
  cvt.u16.u32 %h1, %r0;
  mov.u16 %h2, 3;
  mov.b32 %r5, {%h1, %h2};
  mov.b64 %rd5, {%r5, %r0};
  mov.b64 {%r6, %r7}, %rd5;
  mov.b32 {%h3, %h4}, %r6;
  cvt.u32.u16 %r8, %h4;
  mad.lo.u32 %r63, %r8, 100, %r7;
"""
    assert (lab.compute(body) == 300 + T).all()


@pytest.mark.parametrize("pointer", ["%r5", "%rd5"])
@pytest.mark.parametrize(
    "access", ["ld.param.u64 %rd6, [{}+8];", "cvta.param.u64 %rd5, %rd5;\n  ld.u64 %rd6, [%rd5+8];"]
)
def test_addresses_of_parameters_in_32_bits(lab, pointer, access):
    body = "  mov.b32 %r5, array0;\n  cvt.u64.u32 %rd5, %r5;\n  " + access.format(pointer)
    body += "\n  mul.wide.u32 %rd7, %r0, 4;\n  add.u64 %rd7, %rd6, %rd7;\n  st.global.u32 [%rd7], %r0;"
    assert lab.kinds(body, np.zeros(1, "u4"), np.zeros(32, "u4")) == []
    assert (lab.arrays[1].numpy() == np.arange(32)).all()


def test_an_address_of_32_bits_below_zero_comes_round_with_its_offset(lab):
    """nvcc reads tile[31 - i] at -4 * i, with the rest as the offset."""
    body = """
  .shared .align 4 .b8 tile[128];
  shl.b32 %r5, %r0, 2;
  mov.u32 %r6, tile;
  add.u32 %r7, %r6, %r5;
  st.shared.u32 [%r7], %r0;
  bar.sync 0;
  sub.u32 %r7, %r6, %r5;
  ld.shared.u32 %r63, [%r7+124];
"""
    assert (lab.compute(body) == np.arange(32)[::-1]).all()
    below = body.replace("[%r7+124]", "[%r7]").replace("%r63", "%r9")
    assert [f.kind for f in lab.findings(below)] == ["out-of-bounds"]
    add = body.replace("ld.shared.u32 %r63, [%r7+124];", "atom.shared.add.u32 %r63, [%r7+124], 1;")
    assert (lab.compute(add) == np.arange(32)[::-1]).all()


@pytest.mark.parametrize(
    "access",
    ["ld.global.u64 %rd20, [%rd20+800]", "atom.global.add.u64 %rd20, [%rd20+800], 1", "ld.u64 %rd20, [%rd20+800]"],
)
def test_an_access_into_its_own_address_register_is_told_with_the_address(lab, access):
    (found,) = lab.findings(f"  setp.eq.u32 %p1, %r0, 5;\n  @%p1 {access};", np.zeros(64, "u8"))
    address = lab.arrays[0].address + 800
    assert found.kind == "out-of-bounds"
    assert f"at {address:#x}" in found.message


# %rd9 is the generic address of a thread's word of `tile`, of 128 bytes
GENERIC = """
  .shared .align 128 .b8 tile[128];
  mov.u64 %rd7, tile;
  cvta.shared.u64 %rd8, %rd7;
  mul.wide.u32 %rd9, %r0, 4;
  add.u64 %rd9, %rd8, %rd9;
  shl.b32 %r5, %r0, 2;
  mov.u32 %r6, tile;
  add.u32 %r6, %r6, %r5;
"""
SHARED_ACCESSES = {
    "st": "  st.shared.u32 [%rd9], %r0;\n  ld.shared.u32 %r63, [%r6];",
    "ld": "  st.shared.u32 [%r6], %r0;\n  ld.shared::cta.u32 %r63, [%rd9];",
    "volatile": "  st.volatile.shared.u32 [%rd9], %r0;\n  ld.volatile.shared.u32 %r63, [%rd9];",
    "atom": "  st.shared.u32 [%r6], %r0;\n  atom.shared.add.u32 %r63, [%rd9], 5;",
    "red": "  st.shared.u32 [%r6], 0;\n  red.shared.add.u32 [%rd9], %r0;\n  ld.shared.u32 %r63, [%r6];",
    "ldmatrix": "  st.shared.u32 [%r6], %r0;\n  bar.sync 0;\n  and.b32 %r7, %r0, 7;\n  mul.wide.u32 %rd9, %r7, 16;\n"
    "  add.u64 %rd9, %rd8, %rd9;\n  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r63}, [%rd9];",
    "cp.async": "  add.u64 %rd1, %rd20, 0;\n  mul.wide.u32 %rd2, %r0, 4;\n  add.u64 %rd1, %rd1, %rd2;\n"
    "  cp.async.ca.shared.global [%rd9], [%rd1], 4;\n  cp.async.wait_all;\n  ld.shared.u32 %r63, [%r6];",
}


@pytest.mark.parametrize("name", SHARED_ACCESSES)
def test_an_access_to_shared_memory_takes_the_low_half_of_a_generic_address(lab, name):
    """The ISA cuts addresses to the width of their space; generic ones of shared memory end with the shared one."""
    assert int(SHARED_WINDOW) == SHARED_BASE >> 44
    x = T.astype("u4")
    assert lab.kinds(GENERIC + SHARED_ACCESSES[name], x) == []
    assert (lab.compute(GENERIC + SHARED_ACCESSES[name], x) == T).all()


def test_addresses_that_are_far_off_are_found_all_the_same(lab):
    store = "  st.shared.u32 [%rd9], %r0;"
    assert lab.kinds(GENERIC + store) == []
    assert lab.kinds(GENERIC + "  add.u64 %rd9, %rd9, 4;\n" + store) == ["out-of-bounds"]
    assert lab.kinds(GENERIC + "  add.u64 %rd9, %rd7, 4294967296;\n" + store) == ["out-of-bounds"]
    assert lab.kinds(GENERIC + "  mov.u64 %rd9, %rd20;\n" + store, np.zeros(32, "u4")) == ["out-of-bounds"]
