"""Accesses that leave the array that their address is made from: found where they fall into another, and named by it.

`%rd20` and `%rd21` are the pointers that the kernel is passed, `%r3` is the number of the thread.
"""

import numpy as np
import pytest

from kernbench import ptx

# from the first array on: threads reach as far as the scale says
REACHING = """
  mul.wide.u32 %rd1, %r3, {scale};
  add.u64 %rd1, %rd1, %rd20;
  ld.global.u32 %r5, [%rd1];
"""


@pytest.fixture
def arrays(lab):
    """An array of 32 bytes, and one of 1 MiB behind it."""
    return lab.device.array(np.zeros(8, "u4"), "x"), lab.device.array(np.zeros(1 << 18, "u4"), "y")


def test_an_access_that_falls_into_another_array_is_out_of_bounds(lab, arrays):
    (found,) = lab.findings(REACHING.format(scale=4096), *arrays, block=8)
    assert found.kind == "out-of-bounds"
    assert found.count == 7
    assert "thread (1, 0, 0) of block (0, 0, 0) reads 4 bytes" in found.message
    assert "offset 4096 of 'x', which has 32 bytes: 4064 bytes behind its end, in 'y'" in found.message


def test_a_store_too(lab, arrays):
    text = REACHING.format(scale=4096).replace("ld.global.u32 %r5, [%rd1]", "st.global.u32 [%rd1], %r3")
    (found,) = lab.findings(text, *arrays, block=8)
    assert (found.kind, "writes 4 bytes" in found.message) == ("out-of-bounds", True)


def test_what_stays_inside_is_clean(lab, arrays):
    assert lab.kinds(REACHING.format(scale=4), *arrays, block=8) == []


def test_an_access_far_from_all_is_named_by_its_own_array(lab, arrays):
    """The nearest one is another, and says nothing."""
    (found,) = lab.findings(REACHING.format(scale=1 << 28), *arrays, block=2)
    assert f"offset {1 << 28} of 'x', which has 32 bytes" in found.message


@pytest.mark.parametrize("by", ["0x7fffffffffffffff", "-1", "64"])
def test_a_shift_by_all_bits_and_more_leaves_nothing(lab, arrays, by):
    text = f"shl.b64 %rd1, %rd21, {by};\n  add.u64 %rd1, %rd1, %rd20;\n  ld.global.u32 %r5, [%rd1];"
    assert lab.kinds(text, *arrays, block=1) == []


@pytest.mark.parametrize(("scale", "wrapped"), [(1 << 30, False), (1 << 31, True), (-(1 << 31), True)])
def test_an_access_that_is_very_far_off_may_be_an_index_that_wrapped(lab, arrays, scale, wrapped):
    text = REACHING.replace("u32 %rd1", "s32 %rd1").format(scale=scale)
    (found,) = lab.findings(text, *arrays, block=2)
    assert found.hint is not None
    assert ("32 bits may have wrapped" in found.hint) == wrapped


def test_one_of_two_arrays_may_be_meant(lab, arrays):
    text = """
  setp.gt.u32 %p1, %r3, 3;
  selp.b64 %rd2, %rd21, %rd20, %p1;
  mul.wide.u32 %rd1, %r3, 4;
  add.u64 %rd1, %rd1, %rd2;
  ld.global.u32 %r5, [%rd1];
"""
    assert lab.kinds(text, *arrays, block=8) == []


def test_the_distance_of_two_pointers_leads_from_one_to_the_other(lab, arrays):
    text = """
  sub.u64 %rd2, %rd21, %rd20;
  add.u64 %rd1, %rd20, %rd2;
  ld.global.u32 %r5, [%rd1];
"""
    assert lab.kinds(text, *arrays, block=8) == []


def test_a_distance_that_the_program_passes_is_meant(lab, arrays):
    x, y = arrays
    text = """
  shl.b64 %rd2, %rd22, 2;
  add.u64 %rd1, %rd20, %rd2;
  ld.global.u32 %r5, [%rd1];
"""
    assert lab.kinds(text, x, y, (y.address - x.address) // 4, block=8) == []


def test_an_address_from_memory_may_be_any(lab, arrays):
    x, y = arrays
    table = lab.device.array(np.array([y.address, y.address - x.address], "u8"), "table")
    text = """
  ld.global.u64 %rd2, [%rd22{at}];
  {use}
  ld.global.u32 %r5, [%rd1];
"""
    assert lab.kinds(text.format(at="", use="mov.u64 %rd1, %rd2;"), x, y, table, block=8) == []
    assert lab.kinds(text.format(at="+8", use="add.u64 %rd1, %rd20, %rd2;"), x, y, table, block=8) == []


def test_a_row_that_was_loaded_is_an_index(lab, arrays):
    x, y = arrays
    rows = lab.device.array(np.array([64], "u8"), "rows")
    text = """
  ld.global.u64 %rd2, [%rd22];
  mul.lo.u64 %rd3, %rd2, 64;
  add.u64 %rd1, %rd20, %rd3;
  ld.global.u32 %r5, [%rd1];
"""
    (found,) = lab.findings(text, x, y, rows, block=1)
    assert "offset 4096 of 'x', which has 32 bytes: 4064 bytes behind its end, in 'y'" in found.message


def test_a_null_pointer_has_the_name_of_its_parameter(lab, arrays):
    (found,) = lab.findings("  ld.global.u32 %r5, [%rd22+8];", *arrays, 0)
    assert "reads 4 bytes at 0x8, from the null pointer that " in found.message
    assert "an empty array has no address" in found.message


def test_copies_of_threads_too(lab, arrays):
    text = """
  .shared .align 16 .b8 tile[128];
  mov.u32 %r6, tile;
  mul.wide.u32 %rd1, %r3, {scale};
  add.u64 %rd1, %rd1, %rd20;
  shl.b32 %r7, %r3, 2;
  add.u32 %r6, %r6, %r7;
  cp.async.ca.shared.global [%r6], [%rd1], 4;
  cp.async.wait_all;
"""
    assert lab.kinds(text.format(scale=4), *arrays, block=8) == []
    (found,) = lab.findings(text.format(scale=4096), *arrays, block=8)
    assert "offset 4096 of 'x', which has 32 bytes: 4064 bytes behind its end, in 'y'" in found.message


def test_a_distance_in_rows_that_the_program_passes_is_meant(lab, arrays):
    x, y = arrays
    text = """
  mul.lo.u64 %rd2, %rd22, %rd23;
  shl.b64 %rd2, %rd2, 2;
  add.u64 %rd1, %rd20, %rd2;
  ld.global.u32 %r5, [%rd1];
"""
    distance = (y.address - x.address) // 4
    assert lab.kinds(text, x, y, distance // 64, 64, block=8) == []


def test_a_pointer_of_two_halves_from_memory_may_be_any(lab, arrays):
    x, y = arrays
    table = lab.device.array(np.array([y.address & 0xFFFFFFFF, y.address >> 32], "u4"), "table")
    text = """
  ld.global.u32 %r5, [%rd22];
  ld.global.u32 %r6, [%rd22+4];
  cvt.u64.u32 %rd2, %r5;
  cvt.u64.u32 %rd3, %r6;
  shl.b64 %rd3, %rd3, 32;
  or.b64 %rd1, %rd2, %rd3;
  setp.gt.u32 %p1, %r3, 3;
  selp.b64 %rd1, %rd20, %rd1, %p1;
  ld.global.u32 %r5, [%rd1];
"""
    assert lab.kinds(text, x, y, table, block=8) == []


HALVES = {
    "packed": "mov.b64 %d1, {%r0, %r1};",
    "shifted": "cvt.u64.u32 %d5, %r1; shl.b64 %d5, %d5, 32; cvt.u64.u32 %d6, %r0; or.b64 %d1, %d5, %d6;",
    "multiplied": "cvt.u64.u32 %d6, %r0; mov.b64 %d7, 4294967296; cvt.u64.u32 %d5, %r1; mad.lo.u64 %d1, %d5, %d7, %d6;",
}
HALVED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry halved(.param .u64 x, .param .u32 low, .param .u32 high)
{{
  .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %d<8>;
  ld.param.u64 %d0, [x];
  ld.param.u32 %r0, [low];
  ld.param.u32 %r1, [high];
  mov.u32 %r2, %tid.x;
  {together}
  setp.gt.u32 %p, %r2, 3;
  selp.b64 %d2, %d1, %d0, %p;
  mul.wide.u32 %d3, %r2, 4;
  add.u64 %d4, %d3, %d2;
  ld.global.u32 %r3, [%d4];
  ret;
}}
"""


@pytest.mark.parametrize("way", HALVES)
def test_a_pointer_may_be_passed_in_halves(lab, way):
    kernel = ptx.parse(HALVED.format(together=HALVES[way])).kernels["halved"]
    x, y = (lab.device.array(np.zeros(16, "u4"), name) for name in "xy")
    run = lab.device.launch(kernel, 1, 8, [x, y.address & 0xFFFFFFFF, y.address >> 32])
    assert run.findings == []


@pytest.mark.parametrize("way", ["mov.b32 %r7, %r5;", "shfl.sync.idx.b32 %r7, %r5, 0, 31, 0xffffffff;"])
def test_a_distance_of_elements_in_memory_may_lead_anywhere(lab, arrays, way):
    """Whichever lane loaded it."""
    x, y = arrays
    table = lab.device.array(np.array([(y.address - x.address) // 4], "i4"), "table")
    text = f"""
  ld.global.s32 %r5, [%rd22];
  {way}
  mul.wide.s32 %rd1, %r7, 4;
  add.u64 %rd1, %rd1, %rd20;
  ld.global.u32 %r6, [%rd1];
"""
    assert lab.kinds(text, x, y, table, block=32) == []


def test_a_difference_of_pointers_in_large_elements_leads_to_the_other(lab, arrays):
    text = """
  sub.u64 %rd2, %rd21, %rd20;
  shr.s64 %rd2, %rd2, 5;
  cvt.u32.u64 %r5, %rd2;
  mul.wide.s32 %rd1, %r5, 32;
  add.u64 %rd1, %rd1, %rd20;
  ld.global.u32 %r6, [%rd1];
"""
    assert lab.kinds(text, *arrays, block=8) == []


def test_a_pointer_that_was_moved_before_the_launch_may_be_meant_for_another(lab, arrays):
    x, y = arrays
    text = """
  add.u64 %rd1, %rd20, %rd22;
  ld.global.u32 %r5, [%rd1];
"""
    assert lab.kinds(text, y.address + 4096, y, (x.address - y.address - 4096) % (1 << 64), block=8) == []


def test_the_size_of_an_array_is_no_way_to_another(lab):
    """Numbers that the kernel is passed count in elements that are no larger than what is accessed."""
    x, y = (lab.device.array(np.zeros(1 << 14, "u4"), name) for name in "xy")
    text = """
  add.u32 %r5, %r3, 40000;
  mul.wide.u32 %rd1, %r5, 4;
  add.u64 %rd1, %rd1, %rd20;
  ld.global.u32 %r6, [%rd1];
"""
    assert lab.kinds(text, x, y, 1 << 14, block=8) == ["out-of-bounds"]
