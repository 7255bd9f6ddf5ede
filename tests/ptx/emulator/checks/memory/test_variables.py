"""Accesses that leave the variable of shared memory that their address is made from, and fall into another one.

`%r3` is the number of the thread in the grid, `%r0` that in its block. Both variables have 128 bytes, which 32 threads
write before; what is between `x` and `y` is no matter, as each access goes to where `y` begins.
"""

import numpy as np
import pytest

BOTH = """
  .shared .align 16 .b8 x[128];
  .shared .align 16 .b8 y[128];
  mov.u32 %r10, x;
  mov.u32 %r11, y;
  shl.b32 %r12, %r0, 2;
  add.u32 %r13, %r10, %r12;
  add.u32 %r14, %r11, %r12;
  st.shared.u32 [%r13], %r3;
  st.shared.u32 [%r14], %r3;
  bar.sync 0;
"""
# where `y` begins, of 16 bytes that the emulator leaves behind a variable
BEGIN = 144


@pytest.mark.parametrize(
    ("access", "verb"),
    [
        ("ld.shared.u32 %r5, [%r13+{at}];", "reads 4"),
        ("ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [%r10+{at}];", "reads 16"),
        ("st.shared.u32 [%r13+{at}], %r3;", "writes 4"),
        ("atom.shared.add.u32 %r5, [%r13+{at}], 1;", "updates 4"),
        ("red.shared.add.u32 [%r13+{at}], 1;", "updates 4"),
        ("ld.shared.u32 %r5, [x+{at}];", "reads 4"),
        ("st.volatile.shared.u32 [%r13+{at}], %r3;", "writes 4"),
    ],
)  # fmt: skip
def test_an_access_that_falls_into_another_variable(lab, access, verb):
    assert lab.kinds(BOTH + access.format(at=0), block=32) == []
    found = lab.findings(BOTH + access.format(at=BEGIN), block=32)[0]
    assert found.kind == "out-of-bounds"
    assert f"thread (0, 0, 0) of block (0, 0, 0) {verb} bytes" in found.message
    assert "offset 144 of 'x' in shared memory, which has 128 bytes: 16 bytes behind its end, in 'y'" in found.message


def test_before_its_beginning_and_only_those_threads(lab):
    found = lab.findings(BOTH + "ld.shared.u32 %r5, [%r14+-64];", block=32)
    assert [(one.kind, one.count) for one in found if "in 'x'" in one.message] == [("out-of-bounds", 12)]
    assert any(
        "offset -64 of 'y' in shared memory, which has 128 bytes: 64 bytes before" in one.message for one in found
    )


def test_lanes_that_take_no_part_are_no_matter(lab):
    text = BOTH + "setp.lt.u32 %p1, %r3, 4;\n mad.lo.u32 %r6, %r3, 36, %r10;\n @%p1 ld.shared.u32 %r5, [%r6];"
    assert lab.kinds(text, block=32) == []


def test_generic_addresses_too(lab):
    text = """
  mov.u64 %rd1, x;
  cvta.shared.u64 %rd1, %rd1;
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd1, %rd1, %rd2;
  ld.u32 %r5, [%rd1+{at}];
"""
    assert lab.kinds(BOTH + text.format(at=0), block=32) == []
    (found,) = lab.findings(BOTH + text.format(at=BEGIN), block=32)
    assert "16 bytes behind its end, in 'y'" in found.message


def test_copies_of_threads_too(lab):
    array = lab.device.array(np.zeros(32, "u4"), "x")
    text = "cp.async.ca.shared.global [%r13+{at}], [%rd20], 4;\n cp.async.wait_all;"
    assert lab.kinds(BOTH + text.format(at=0), array, block=1) == []
    (found,) = lab.findings(BOTH + text.format(at=BEGIN), array, block=1)
    assert "16 bytes behind its end, in 'y'" in found.message


def test_fragments_too(lab):
    text = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r5}}, [%r6];"
    rows = "and.b32 %r6, %r3, 7;\n mad.lo.u32 %r6, %r6, 16, {base};\n"
    assert lab.kinds(BOTH + rows.format(base="%r10") + text.format(), block=32) == []
    behind = rows.format(base="%r10") + f"add.u32 %r6, %r6, {BEGIN};\n"
    found = lab.findings(BOTH + behind + text.format(), block=32)[0]
    assert "16 bytes behind its end, in 'y'" in found.message


def test_an_index_from_memory_is_no_address(lab):
    text = "ld.shared.u32 %r6, [%r10+124];\n mad.lo.u32 %r7, %r6, 36, %r10;\n ld.shared.u32 %r5, [%r7];"
    lines = BOTH.replace("st.shared.u32 [%r13], %r3", "st.shared.u32 [%r13], 4")
    (found,) = lab.findings(lines + text, block=32)
    assert "16 bytes behind its end, in 'y'" in found.message


@pytest.mark.parametrize(
    "text",
    [
        # one of two
        "setp.lt.u32 %p1, %r3, 4;\n selp.b32 %r6, %r13, %r14, %p1;\n ld.shared.u32 %r5, [%r6];",
        # their distance
        "sub.u32 %r6, %r11, %r10;\n add.u32 %r6, %r6, %r13;\n ld.shared.u32 %r5, [%r6];",
        # the distance in elements
        "sub.u32 %r6, %r11, %r10;\n shr.u32 %r6, %r6, 2;\n mad.lo.u32 %r6, %r6, 4, %r13;\n ld.shared.u32 %r5, [%r6];",
        # an address that was kept in memory, and one of another lane
        "st.shared.u32 [%r13], %r11;\n ld.shared.u32 %r6, [%r13];\n ld.shared.u32 %r5, [%r6];",
        "st.shared.u32 [%r13], 144;\n ld.shared.u32 %r6, [%r13];\n add.u32 %r6, %r6, %r10;\n ld.shared.u32 %r5, [%r6];",
        "shfl.sync.idx.b32 %r6, %r14, 0, 31, -1;\n ld.shared.u32 %r5, [%r6];",
        # put together of halves
        "mov.b64 %rd1, {%r14, %r0};\n and.b64 %rd1, %rd1, 0xffff;\n ld.shared.u32 %r5, [%rd1];",
    ],
)  # fmt: skip
def test_what_may_be_meant_is_clean(lab, text):
    lines = BOTH.replace("bar.sync 0;", "mov.u32 %r0, 0;\n  bar.sync 0;")
    assert lab.kinds(lines + text, block=32) == []


def test_where_a_register_points_to_both_in_turn(lab):
    text = """
  mov.u32 %r6, %r13;
  mov.u32 %r7, 0;
AGAIN:
  ld.shared.u32 %r5, [%r6];
  mov.u32 %r6, %r14;
  add.u32 %r7, %r7, 1;
  setp.lt.u32 %p1, %r7, 3;
  @%p1 bra AGAIN;
"""
    assert lab.kinds(BOTH + text, block=32) == []


def test_the_end_of_the_static_variables_is_not_dynamic_memory(lab):
    outside = ".extern .shared .align 16 .b8 dynamic[];"
    text = BOTH + "mov.u32 %r6, dynamic;\n mad.lo.u32 %r6, %r3, 4, %r6;\n st.shared.u32 [%r6], %r3;\n"
    assert lab.kinds(text, block=32, outside=outside, shared_bytes=128) == []
    (found,) = lab.findings(text + "ld.shared.u32 %r5, [%r14+144];", block=32, outside=outside, shared_bytes=128)
    assert (
        "offset 144 of 'y' in shared memory, which has 128 bytes: 16 bytes behind its end, in 'dynamic'"
        in found.message
    )


def test_in_a_cluster_it_is_the_variable_of_the_other_block(lab):
    text = """
  mov.u32 %r9, %cluster_ctarank;
  xor.b32 %r9, %r9, 1;
  mapa.shared::cluster.u32 %r6, %r13, %r9;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ld.shared::cluster.u32 %r5, [%r6+{at}];
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
"""
    assert lab.kinds(BOTH + text.format(at=0), block=32, grid=2, cluster=2) == []
    (found,) = lab.findings(BOTH + text.format(at=BEGIN), block=32, grid=2, cluster=2)
    assert "16 bytes behind its end, in 'y'" in found.message
