"""Matrix loads, transposition and products of a warp."""

import numpy as np
import pytest

from kernbench import ptx

LOAD = """
  mov.u32 %r10, tile;
  shl.b32 %r11, %r0, 4;
  add.u32 %r12, %r10, %r11;
  mul.wide.u32 %rd1, %r0, 16;
  add.u64 %rd1, %rd1, %rd20;
  ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1];
  st.shared.v4.u32 [%r12], {%r4, %r5, %r6, %r7};
  bar.sync 0;
"""
TILE = ".shared .align 16 .b8 tile[512];"


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_load_matrix(lab, trans):
    x = np.random.default_rng(0).integers(0, 1 << 16, (4, 8, 8)).astype("u2")
    body = LOAD + f"  ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r12];\n"
    for number in range(4):
        out = lab.compute(body + f"  mov.b32 %r63, %r{20 + number};", x, outside=TILE)
        matrix = x[number].T if trans else x[number]
        assert (out.view("u2").reshape(8, 8) == matrix).all()


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_store_matrix(lab, trans):
    x = np.random.default_rng(0).integers(0, 1 << 16, (4, 8, 8)).astype("u2")
    body = (
        LOAD
        + f"""
  ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r20, %r21}}, [%r12];
  bar.warp.sync 0xffffffff;
  stmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 [%r12], {{%r20, %r21}};
  bar.warp.sync 0xffffffff;
  ld.shared.u32 %r63, [%r12];
"""
    )
    out = lab.compute(body, x, outside=TILE).view("u2").reshape(4, 8, 2)
    expected = [x[i].T if trans else x[i] for i in range(2)]
    assert all((out[i] == expected[i][:, :2]).all() for i in range(2))


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_generic_addresses_of_matrices(lab, trans):
    """Without a space the address is generic; one that does not point into shared memory is a finding."""
    x = np.random.default_rng(0).integers(0, 1 << 16, (4, 8, 8)).astype("u2")
    body = (
        LOAD
        + f"""
  cvt.u64.u32 %rd2, %r12;
  cvta.shared.u64 %rd2, %rd2;
  ldmatrix.sync.aligned.m8n8.x2{trans}.b16 {{%r20, %r21}}, [%rd2+256];
  bar.warp.sync 0xffffffff;
  stmatrix.sync.aligned.m8n8.x2{trans}.b16 [%rd2], {{%r20, %r21}};
  bar.warp.sync 0xffffffff;
  ld.shared.u32 %r63, [%r12];
"""
    )
    out = lab.compute(body, x, outside=TILE).view("u2").reshape(4, 8, 2)
    assert (out[:2] == x[2:, :, :2]).all()
    outside = "  ldmatrix.sync.aligned.m8n8.x1.b16 {%r20}, [%rd20];"
    assert [one.kind for one in lab.launch(outside, x).findings] == ["out-of-bounds"]


def test_move_matrix(lab):
    body = "  movmatrix.sync.aligned.m8n8.trans.b16 %r63, %r0;"
    halves = np.arange(32, dtype="u4").view("u2").reshape(8, 8)
    assert (lab.compute(body).view("u2").reshape(8, 8) == halves.T).all()


def test_multiply(lab):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((16, 16)).astype("f2"), rng.standard_normal((16, 8)).astype("f2")
    t = np.arange(32)
    fragment_a = np.stack(
        [a[(t // 4)[:, None] + 8 * (r % 2), (2 * (t % 4))[:, None] + 8 * (r // 2) + np.arange(2)] for r in range(4)], 1
    )
    fragment_b = np.stack([b[(2 * (t % 4))[:, None] + 8 * r + np.arange(2), (t // 4)[:, None]] for r in range(2)], 1)
    body = """
  mul.wide.u32 %rd1, %r0, 16;
  add.u64 %rd1, %rd1, %rd20;
  ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1];
  mul.wide.u32 %rd2, %r0, 8;
  add.u64 %rd2, %rd2, %rd21;
  ld.global.v2.u32 {%r8, %r9}, [%rd2];
  mov.f32 %f1, 0f00000000;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%f4, %f5, %f6, %f7}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%f1, %f1, %f1, %f1};
"""
    product = a.astype("f8") @ b
    for register in range(4):
        out = lab.compute(body + f"  mov.b32 %r63, %f{4 + register};", fragment_a, fragment_b)
        expected = product[t // 4 + 8 * (register // 2), 2 * (t % 4) + register % 2]
        assert np.allclose(out.view("f4"), expected, atol=1e-4)


def test_a_matrix_instruction_in_a_branch(lab):
    body = "  setp.lt.u32 %p1, %r0, 16;\n  @%p1 movmatrix.sync.aligned.m8n8.trans.b16 %r63, %r0;"
    assert lab.kinds(body) == ["warp-mask"]


@pytest.mark.parametrize("shape", ["m16n16k16", "m8n32k16", "m32n8k16"])
def test_wmma(lab, shape):
    """Operands of f16 take eight registers whatever the shape."""
    rng = np.random.default_rng(1)
    m, n, k = map(int, shape[1:].replace("n", " ").replace("k", " ").split())
    a, b = rng.standard_normal((m, k)).astype("f2"), rng.standard_normal((n, k)).astype("f2")
    c = np.zeros((m, n), "f4")
    ra = ", ".join(f"%r{10 + i}" for i in range(8))
    rb = ", ".join(f"%r{20 + i}" for i in range(8))
    f = ", ".join(f"%f{i}" for i in range(8))
    body = f"""
  wmma.load.a.sync.aligned.row.{shape}.global.f16 {{{ra}}}, [%rd20];
  wmma.load.b.sync.aligned.col.{shape}.global.f16 {{{rb}}}, [%rd21];
  wmma.load.c.sync.aligned.row.{shape}.global.f32 {{{f}}}, [%rd22];
  wmma.mma.sync.aligned.row.col.{shape}.f32.f32 {{{f}}}, {{{ra}}}, {{{rb}}}, {{{f}}};
  wmma.store.d.sync.aligned.row.{shape}.global.f32 [%rd23], {{{f}}};
"""
    assert lab.kinds(body, a, b, c, lab.empty((m, n), "f4")) == []
    assert np.allclose(lab.run.outputs["out"], a.astype("f8") @ b.T, atol=1e-3)


@pytest.mark.parametrize("space", [".global", ""])
def test_warps_that_store_the_same_matrix_race(lab, space):
    f = ", ".join(f"%f{i}" for i in range(8))
    values = "".join(f"  cvt.rn.f32.u32 %f{i}, %r3;\n" for i in range(8))
    body = f"{values}  wmma.store.d.sync.aligned.row.m16n16k16{space}.f32 [%rd20], {{{f}}};"
    assert lab.kinds(body, lab.empty((16, 16), "f4")) == []
    assert lab.kinds(body, lab.empty((16, 16), "f4"), block=64) == ["race"]


@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_store_matrix_of_bytes(matrices):
    """Each matrix of 16 x 8 bytes goes to memory as eight rows of sixteen; CUTLASS's SM100_U8x4_STSM_T says whose."""
    registers = ", ".join(f"%r{10 + j}" for j in range(matrices))
    loads = "\n".join(f"  ld.global.u32 %r{10 + j}, [%rd3];\n  add.u64 %rd3, %rd3, 128;" for j in range(matrices))
    text = f"""
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {{
  .reg .b32 %r<20>;
  .reg .b64 %rd<8>;
  .shared .align 16 .b8 tile[512];
  mov.u32 %r0, %tid.x;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  mul.wide.u32 %rd4, %r0, 4;
  add.u64 %rd3, %rd1, %rd4;
{loads}
  mov.u32 %r1, tile;
  shl.b32 %r2, %r0, 4;
  add.u32 %r3, %r1, %r2;
  stmatrix.sync.aligned.m16n8.x{matrices}.trans.shared.b8 [%r3], {{{registers}}};
  bar.sync 0;
  mul.wide.u32 %rd4, %r0, 16;
  add.u64 %rd5, %rd2, %rd4;
  setp.ge.u32 %p0, %r0, {8 * matrices};
  @%p0 ret;
  ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3];
  st.global.v4.u32 [%rd5], {{%r4, %r5, %r6, %r7}};
  ret;
}}
""".replace("  .reg .b64 %rd<8>;", "  .reg .b64 %rd<8>;\n  .reg .pred %p<2>;")
    given = np.random.default_rng(3).integers(0, 256, (matrices, 32, 4)).astype(np.uint8)
    device = ptx.EmulatedDevice("sm_100a")
    out = device.empty((matrices, 8, 16), np.uint8, "out")
    run = device.launch(ptx.parse(text).kernels["k"], 1, 32, [device.array(given.view(np.uint32), "x"), out])
    assert run.findings == []
    want = np.zeros((matrices, 8, 16), np.uint8)
    for lane in range(32):
        for part in range(4):
            want[:, 2 * (lane % 4) + part % 2, lane // 4 + 8 * (part // 2)] = given[:, lane, part]
    assert (run.outputs["out"] == want).all()
