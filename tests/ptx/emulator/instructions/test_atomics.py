"""Atomics: every operation and type, lanes in order, old values returned."""

import numpy as np
import pytest

from kernbench.safety.budget import Budget

INTEGER = [
    ("add.u32", "u4", lambda old, b: old + b),
    ("add.u64", "u8", lambda old, b: old + b),
    ("and.b32", "u4", lambda old, b: old & b),
    ("or.b64", "u8", lambda old, b: old | b),
    ("xor.b32", "u4", lambda old, b: old ^ b),
    ("exch.b32", "u4", lambda old, b: b),
    ("min.u32", "u4", min),
    ("max.u64", "u8", max),
    ("min.s32", "i4", min),
    ("max.s64", "i8", max),
    ("inc.u32", "u4", lambda old, b: 0 if old >= b else old + 1),
    ("dec.u32", "u4", lambda old, b: b if old == 0 or old > b else old - 1),
]


@pytest.mark.parametrize(("name", "dtype", "update"), INTEGER, ids=[row[0] for row in INTEGER])
@pytest.mark.parametrize("start", [0, 3, -2])
def test_integer_operations_return_what_was_there(lab, name, dtype, update, start):
    wide = dtype[1] == "8"
    register, value = ("%rd31", "%rd5") if wide else ("%r63", "%r5")
    make = "  add.u32 %r5, %r0, 2;\n" + ("  cvt.u64.u32 %rd5, %r5;\n" if wide else "")
    cell = np.array([start]).astype(dtype)
    body = f"{make}  atom.global.{name} {register}, [%rd20], {value};"
    result = lab.compute(body, cell, out=dtype)
    old, expected = int(cell[0]), []
    mask = (1 << 64 if wide else 1 << 32) - 1
    for lane in range(32):
        expected.append(old)
        new = update(old, lane + 2)
        old = new if dtype[0] == "i" else new & mask
    assert result.tolist() == expected
    assert int(lab.arrays[0].numpy()[0]) == old


def test_compare_and_swap(lab):
    body = "  add.u32 %r5, %r0, 1;\n  atom.global.cas.b32 %r63, [%rd20], %r0, %r5;"
    assert lab.compute(body, np.zeros(1, "u4")).tolist() == list(range(32))
    assert lab.arrays[0].numpy()[0] == 32


def test_compare_and_swap_of_a_half(lab):
    body = "  cvt.u16.u32 %h1, %r0;\n  add.u16 %h2, %h1, 1;\n  atom.global.cas.b16 %h15, [%rd20], %h1, %h2;"
    assert lab.compute(body, np.zeros(1, "u2"), out="u2").tolist() == list(range(32))


def test_float_sums(lab):
    body = "  cvt.rn.f32.u32 %f1, %r0;\n  atom.global.add.f32 %f2, [%rd20], %f1;\n  mov.b32 %r63, %f2;"
    result = lab.compute(body, np.zeros(1, "f4"))
    assert (result.view("f4") == np.cumsum(np.r_[0, np.arange(31)])).all()


# additions to global memory flush subnormal f32, before and after; those to shared memory do not, as a loop of
# compare-and-swap makes them
@pytest.mark.parametrize(
    ("before", "added", "flushed", "exact"),
    [
        (0, 0x00000001, 0, 0x00000001),
        (0x00000001, 0, 0, 0x00000001),
        (0x80000000, 0x80000001, 0x80000000, 0x80000001),
        # the difference of two normal numbers is subnormal
        (0x00800001, 0x80800000, 0, 0x00000001),
        (0x3F800000, 0x3F800000, 0x40000000, 0x40000000),
        (0x7F800000, 0xFF800000, 0x7FFFFFFF, 0x7FFFFFFF),
    ],
)
def test_subnormal_sums(lab, before, added, flushed, exact):
    head = f"  mov.b32 %f1, {added:#x};\n  mov.u32 %r5, {before:#x};\n"
    assert lab.kinds(head + "  red.global.add.f32 [%rd20], %f1;", np.array([before], "u4"), block=1) == []
    assert lab.arrays[0].numpy().tolist() == [flushed]
    vector = "  red.global.add.v2.f32 [%rd20], {%f1, %f1};"
    assert lab.kinds(head + vector, np.array([before] * 2, "u4"), block=1) == []
    assert lab.arrays[0].numpy().tolist() == [flushed] * 2
    room = "  .shared .b32 word;\n  mov.u64 %rd1, word;\n  st.shared.u32 [%rd1], %r5;\n"
    for add in ("atom.shared.add.f32 %f2", "cvta.shared.u64 %rd1, %rd1;\n  atom.add.f32 %f2"):
        found = lab.compute(head + room + f"  {add}, [%rd1], %f1;\n  ld.shared.u32 %r63, [word];", block=1)
        assert found.tolist() == [exact]
    wide = "  mov.b64 %d1, 1;\n  red.global.add.f64 [%rd20], %d1;"
    assert lab.kinds(wide, np.zeros(1, "u8"), block=1) == []
    assert lab.arrays[0].numpy().tolist() == [1]


@pytest.mark.parametrize(("kind", "dtype"), [("f16", "f2"), ("bf16", None)])
def test_packed_sums(lab, kind, dtype):
    one = 0x3C00 if kind == "f16" else 0x3F80
    body = f"  mov.b32 %r5, {one | one << 16:#x};\n  red.global.add.noftz.{kind}x2 [%rd20], %r5;"
    assert lab.kinds(body, np.zeros(1, "u4")) == []
    total = 0x5000 if kind == "f16" else 0x4200
    assert lab.arrays[0].numpy()[0] == total | total << 16


def test_vectors_of_floats(lab):
    body = "  mov.f32 %f1, 0f3F800000;\n  mov.f32 %f2, 0f40000000;\n  red.global.add.v2.f32 [%rd20], {%f1, %f2};"
    assert lab.kinds(body, np.zeros(2, "f4")) == []
    assert lab.arrays[0].numpy().tolist() == [32, 64]


def test_128_bits(lab):
    body = """
  .reg .b128 %q<3>;
  cvt.u64.u32 %rd1, %r0;
  add.u64 %rd2, %rd1, 1;
  mov.b128 %q1, {%rd1, %rd1};
  mov.b128 %q2, {%rd2, %rd2};
  atom.global.cas.b128 %q0, [%rd20], %q1, %q2;
  mov.b128 {%rd30, %rd31}, %q0;
"""
    assert lab.compute(body, np.zeros(2, "u8"), out="u8").tolist() == list(range(32))
    assert lab.arrays[0].numpy().tolist() == [32, 32]


LOCK = """
TRY:
{take}
  @%p1 bra TRY;
  ld.global.u32 %r7, [%rd20+16];
  add.u32 %r7, %r7, 1;
  st.global.u32 [%rd20+16], %r7;
{give}
"""
WORDS = {
    "b32": {
        "take": "  atom.global.acquire.gpu.cas.b32 %r6, [%rd20], 0, 1;\n  setp.ne.u32 %p1, %r6, 0;",
        "give": "  atom.global.release.gpu.exch.b32 %r6, [%rd20], 0;",
    },
    "b128": {
        "take": "  atom.global.acquire.gpu.cas.b128 %q2, [%rd20], %q0, %q1;\n  mov.b128 {%rd3, %rd4}, %q2;\n"
        "  setp.ne.u64 %p1, %rd3, 0;",
        "give": "  atom.global.release.gpu.exch.b128 %q3, [%rd20], %q0;",
    },
}


@pytest.mark.parametrize("width", WORDS)
def test_an_attempt_that_fails_is_no_change_of_memory(lab, width):
    # else threads that wait for a lock try again as often as one of them has tried
    head = "  .reg .b128 %q<4>;\n  mov.u64 %rd1, 0;\n  mov.u64 %rd2, 1;\n  mov.b128 %q0, {%rd1, %rd1};\n"
    body = head + "  mov.b128 %q1, {%rd2, %rd2};\n" + LOCK.format(**WORDS[width])
    assert lab.kinds(body, np.zeros(8, "u4"), block=16, budget=Budget(steps=500, seconds=600)) == []
    assert lab.arrays[0].numpy().tolist() == [0, 0, 0, 0, 16, 0, 0, 0]


def test_shared_atomics_are_the_blocks_own(lab):
    body = """
  mov.u32 %r10, cell;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 st.shared.u32 [%r10], 0;
  bar.sync 0;
  atom.shared.add.u32 %r63, [%r10], 1;
"""
    out = lab.compute(body, outside=".shared .b32 cell;", grid=3, block=64)
    assert (np.sort(out.reshape(3, 64), axis=1) == np.arange(64)).all()


def test_generic_addresses_reach_every_space(lab):
    body = """
  .local .align 4 .b8 mine[4];
  cvta.local.u64 %rd1, mine;
  st.u32 [%rd1], %r0;
  cvta.shared.u64 %rd2, cell;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 st.u32 [%rd2], 0;
  bar.sync 0;
  red.add.u32 [%rd2], 1;
  and.b32 %r5, %r0, 1;
  setp.eq.u32 %p2, %r5, 1;
  bar.sync 0;
  selp.b64 %rd3, %rd1, %rd2, %p2;
  ld.u32 %r63, [%rd3];
  isspacep.shared %p3, %rd3;
  @%p3 add.u32 %r63, %r63, 1000;
"""
    t = np.arange(32)
    assert (lab.compute(body, outside=".shared .b32 cell;") == np.where(t % 2, t, 1032)).all()
