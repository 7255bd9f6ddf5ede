"""tcgen05.mma of every kind, layout and source, scaled blocks, and pairs of CTAs."""

import ml_dtypes
import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import (
    TCGEN05_CODES,
    descriptor,
    image,
    random_tile,
    strides,
)
from tests.ptx.emulator.asynchronous.tcgen05 import (
    AGAIN,
    BASE,
    COMMIT,
    DEPTH,
    KINDS_F16,
    PAIRED,
    WAIT,
    expected,
    idesc,
    kernel,
    launch,
    load,
    mma,
    names,
    result,
    tiles,
)

from kernbench import ptx

KINDS = [
    ("f16", "f32", "f16", "f16"),
    ("f16", "f16", "f16", "f16"),
    ("f16", "f32", "bf16", "bf16"),
    ("tf32", "f32", "tf32", "tf32"),
    ("f8f6f4", "f32", "e4m3", "e5m2"),
    ("i8", "s32", "s8", "u8"),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("kind", "d", "a_kind", "b_kind"), KINDS)
@pytest.mark.parametrize("mode", ["none", "32B", "128B"])
def test_kinds(kind, d, a_kind, b_kind, mode):
    kinds, n, k = (d, a_kind, b_kind), 64, DEPTH[kind]
    a, b, data, descriptors = tiles(1, 128, n, k, kinds, mode, mode)
    code = kernel(mma(kind) + COMMIT + WAIT + load(n), n)
    run, words = launch(code, data, descriptors, idesc(128, n, kinds), n)
    assert not run.findings, run.findings
    atol = 0 if d == "s32" else 2e-2 if d == "f16" else 1e-4
    np.testing.assert_allclose(result(words, d), expected(a, b), atol=atol)


@pytest.mark.parametrize("n", [8, 24, 40])
def test_columns_by_eights(n):
    kinds = ("f32", "f16", "f16")
    a, b, data, descriptors = tiles(3, 128, n, 16, kinds, "none", "none")
    code = kernel(mma("f16") + COMMIT + WAIT + load(8), 8)
    run, words = launch(code, data, descriptors, idesc(128, n, kinds), 8)
    assert not run.findings, run.findings
    np.testing.assert_allclose(result(words, "f32"), expected(a, b)[:, :8], atol=1e-4)


@pytest.mark.parametrize(
    ("n", "said"), [(8, ""), (24, ""), (48, ""), (40, "with M = 128 it is 8, 24 or a multiple of 16")]
)
def test_columns_of_integers(n, said):
    """The ISA's table of shapes: 8, 16, 24, 32, and from there on by sixteens."""
    kinds = ("s32", "s8", "u8")
    a, b, data, descriptors = tiles(3, 128, n, 32, kinds, "none", "none")
    run, words = launch(kernel(mma("i8") + COMMIT + WAIT + load(8), 8), data, descriptors, idesc(128, n, kinds), 8)
    if said:
        assert said in run.findings[0].message
    else:
        assert not run.findings
        np.testing.assert_array_equal(result(words, "s32"), expected(a, b)[:, :8])


@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B", "128B/32B"])
@pytest.mark.parametrize("majors", ["MK", "KN", "MN"])
def test_transposed(mode, majors):
    kind = "tf32" if mode == "128B/32B" else "f16"
    kinds, n, k = ("f32", kind, kind), 32, DEPTH[kind]
    trans = majors[0] == "M", majors[1] == "N"
    modes = [mode if t or mode != "128B/32B" else "128B" for t in trans]
    a, b, data, descriptors = tiles(2, 128, n, k, kinds, *modes, trans)
    code = kernel(mma(kind) + COMMIT + WAIT + load(n), n)
    run, words = launch(code, data, descriptors, idesc(128, n, kinds, trans), n)
    assert not run.findings, run.findings
    np.testing.assert_allclose(result(words, "f32"), expected(a, b), atol=1e-4)


def test_f16_result_and_negation():
    kinds, n = ("f16", "f16", "f16"), 32
    a, b, data, descriptors = tiles(3, 128, n, 16, kinds)
    code = kernel(mma("f16") + COMMIT + WAIT + load(n), n)
    run, words = launch(code, data, descriptors, idesc(128, n, kinds, negate=(True, False)), n)
    assert not run.findings
    np.testing.assert_allclose(result(words, "f16"), -expected(a, b), atol=2e-2)


def test_half_of_the_lanes():
    """M = 64: row r in lane r % 16 + 32 * (r / 16)."""
    kinds, n = ("f32", "f16", "f16"), 24
    a, b, data, descriptors = tiles(4, 64, n, 16, kinds)
    body = mma("f16") + COMMIT + WAIT + f"  tcgen05.ld.sync.aligned.16x64b.x{16}.b32 {names(16)}, [%r5];\n"
    body = body.replace("x16.b32", "x8.b32").replace(names(16), names(8))
    run, words = launch(kernel(body, 8), data, descriptors, idesc(64, n, kinds), 8)
    assert not run.findings, run.findings
    want, got = expected(a, b), result(words, "f32")
    for thread in range(128):
        lane, warp = thread % 32, thread // 32
        for i in range(8):
            row, column = 16 * warp + lane // 4 + 8 * (lane % 2), 2 * i + lane // 2 % 2
            assert abs(got[thread, i] - want[row, column]) < 1e-4


@pytest.mark.parametrize("mask", ["", ", 0", ", %rd0"])
@pytest.mark.parametrize(("m", "n"), [(32, 128), (64, 128), (128, 64)])
def test_stationary_weights(m, n, mask):
    kinds = ("f32", "bf16", "bf16")
    a, b, data, descriptors = tiles(5, m, n, 16, kinds)
    width = n * m // 128
    zero = "  mov.b64 %rd0, 0;\n" if "%" in mask else ""
    code = kernel(zero + mma("f16", ws=".ws", extra=mask) + COMMIT + WAIT + load(width), width)
    run, words = launch(code, data, descriptors, idesc(m, n, kinds), width)
    assert not run.findings, run.findings
    got, want = result(words, "f32"), expected(a, b)
    for part in range(128 // m):
        here = got[part * m : (part + 1) * m]
        np.testing.assert_allclose(here, want[:, part * width : (part + 1) * width], atol=1e-4)


A_TO_TENSOR = """
  // a row of A, 32 bytes from shared memory, into columns 64 to 71
  mad.lo.u32 %r30, %r0, 32, %r2;
  ld.shared.v4.b32 {%r31, %r32, %r33, %r34}, [%r30];
  ld.shared.v4.b32 {%r35, %r36, %r37, %r38}, [%r30+16];
  add.u32 %r39, %r5, 64;
  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r39], {%r31, %r32, %r33, %r34, %r35, %r36, %r37, %r38};
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  add.u32 %r40, %r3, 64;
"""


@pytest.mark.parametrize(("kind", "d", "a_kind", "b_kind"), KINDS)
def test_a_from_tensor_memory(kind, d, a_kind, b_kind):
    kinds, n, k = (d, a_kind, b_kind), 64, DEPTH[kind]
    a, b, data, descriptors = tiles(6, 128, n, k, kinds, "none", "128B")
    data[:4096] = np.ascontiguousarray(a).view(np.uint8).reshape(-1)
    code = kernel(A_TO_TENSOR + mma(kind, a="[%r40]") + COMMIT + WAIT + load(n), n)
    run, words = launch(code, data, descriptors, idesc(128, n, kinds), n)
    assert not run.findings, run.findings
    atol = 0 if d == "s32" else 2e-2 if d == "f16" else 1e-4
    np.testing.assert_allclose(result(words, d), expected(a, b), atol=atol)


@pytest.mark.parametrize(("d", "schedule"), [("f32", "canonical"), ("f32", "eager"), ("f32", 1), ("f16", "canonical")])
def test_accumulates_scaled(d, schedule):
    kinds, n = (d, "f16", "f16"), 32
    a, b, data, descriptors = tiles(7, 128, n, 16, kinds)
    code = kernel(mma("f16") + AGAIN.format(extra="", scale=", 1") + COMMIT + WAIT + load(n), n)
    run, words = launch(code, data, descriptors, idesc(128, n, kinds), n, schedule=schedule)
    assert not run.findings
    np.testing.assert_allclose(result(words, d), 1.5 * expected(a, b), atol=2e-2 if d == "f16" else 1e-4)


def test_disabled_lanes():
    kinds, n = ("f32", "f16", "f16"), 32
    a, b, data, descriptors = tiles(8, 128, n, 16, kinds)
    masks = "  mov.b32 %r50, 0;\n  mov.b32 %r51, 5;\n"
    again = AGAIN.format(extra="{%r50, %r50, %r51, %r50}, ", scale="")
    code = kernel(mma("f16") + masks + again + COMMIT + WAIT + load(n), n)
    run, words = launch(code, data, descriptors, idesc(128, n, kinds), n)
    assert not run.findings
    factor = np.full((128, 1), 2.0)
    factor[[64, 66]] = 1
    np.testing.assert_allclose(result(words, "f32"), factor * expected(a, b), atol=1e-4)


SCALES = """
  // a word of scales a lane: 32 lanes of four columns hold the scales of 128 rows, at {column}
  shl.b32 %r30, %r0, 4;
  and.b32 %r30, %r30, 511;
  add.u32 %r31, %r2, %r30;
  ld.shared.v4.b32 {{%r32, %r33, %r34, %r35}}, [%r31+{offset}];
  add.u32 %r36, %r5, {column};
  tcgen05.st.sync.aligned.32x32b.x4.b32 [%r36], {{%r32, %r33, %r34, %r35}};
"""
READY = """
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  add.u32 %r40, %r3, 64;
  add.u32 %r41, %r3, 68;
  setp.ne.b32 %p5, 0, 0;
"""
BLOCKS = {
    # vector size -> scales of a row, elements that share one, format bit, what a scale's bits mean
    ("mxf8f6f4", "scale_vec::1X"): (1, 32, 1),
    ("mxf4", "scale_vec::2X"): (2, 32, 1),
    ("mxf4nvf4", "scale_vec::4X"): (4, 16, 0),
}


@pytest.mark.parametrize(("kind", "vector"), BLOCKS)
def test_block_scales(kind, vector):
    count, block, form = BLOCKS[kind, vector]
    rng = np.random.default_rng(14)
    n, k = 64, count * block
    if kind == "mxf8f6f4":
        a, b = random_tile(rng, 128, k, "e4m3"), random_tile(rng, n, k, "e5m2")
        stored = [x.view(np.uint8) for x in (a, b)]
        formats = 0 << 7 | 1 << 10
    else:
        codes = [rng.integers(0, 16, (rows, k)).astype(np.uint8) for rows in (128, n)]
        a, b = (x.view(ml_dtypes.float4_e2m1fn).astype(np.float32) for x in codes)
        stored = [x[:, 0::2] | x[:, 1::2] << 4 for x in codes]
        formats = 1 << 7 | 1 << 10
    scales = rng.integers(120, 134, (256, 4)) if form else rng.integers(0x30, 0x48, (256, 4))
    scales = scales.astype(np.uint8)
    lead_a, stride_a, bytes_a = strides(128, 32, 1, "32B", False)
    lead_b, stride_b, bytes_b = strides(n, 32, 1, "32B", False)
    data = np.zeros(1024 + bytes_a + bytes_b, np.uint8)
    # row r in lane r % 32, column r / 32
    for half in range(2):
        part = scales[128 * half : 128 * half + 128].reshape(4, 32, 4).transpose(1, 0, 2)
        data[512 * half : 512 * half + 512] = part.reshape(-1)
    data[1024:] |= image(stored[0], "32B", False, 0, lead_a, stride_a, bytes_a + bytes_b)
    data[1024:] |= image(stored[1], "32B", False, bytes_a, lead_b, stride_b, bytes_a + bytes_b)
    descriptors = [
        descriptor(BASE + 1024, lead_a, stride_a, TCGEN05_CODES["32B"], True),
        descriptor(BASE + 1024 + bytes_a, lead_b, stride_b, TCGEN05_CODES["32B"], True),
    ]
    name = f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.{vector}"
    product = f"  @%p3 {name} [%r3], %rd4, %rd5, %r22, [%r40], [%r41], %p5;\n"
    body = SCALES.format(column=64, offset=0) + SCALES.format(column=68, offset=512) + READY + product
    said = formats | (n >> 3) << 17 | form << 23 | (128 >> 4) << 24
    run, words = launch(kernel(body + COMMIT + WAIT + load(n), n), data, descriptors, said, n)
    assert not run.findings, run.findings
    real = 2.0 ** (scales.astype(np.float64) - 127) if form else scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    left = a.astype(np.float64) * np.repeat(real[:128, :count], block, axis=1)
    right = b.astype(np.float64) * np.repeat(real[128 : 128 + n, :count], block, axis=1)
    np.testing.assert_allclose(
        result(words, "f32"), left @ right.T, rtol=1e-4, atol=1e-3 * np.abs(left @ right.T).max()
    )


# the first CTA multiplies for both, and tells both
PAIR = """
  setp.eq.u32 %p7, %r6, 0;
  and.pred %p6, %p3, %p7;
  setp.ne.b32 %p5, 0, 0;
  @%p6 tcgen05.mma.cta_group::2.kind::f16 [%r3], %rd4, %rd5, %r22, %p5;
  .reg .b16 %both;
  mov.b16 %both, 3;
  @%p6 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [done], %both;
"""


@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_two_blocks(m, schedule):
    """Each block holds half of the rows of A and half of the rows of B."""
    n, kinds = 64, KINDS_F16
    rng = np.random.default_rng(15)
    a, b = random_tile(rng, m, 16, "f16"), random_tile(rng, n, 16, "f16")
    lead_a, stride_a, bytes_a = strides(m // 2, 16, 2, "32B", False)
    lead_b, stride_b, bytes_b = strides(n // 2, 16, 2, "32B", False)
    total = bytes_a + bytes_b
    parts = []
    for half in range(2):
        mine = a[half * m // 2 : (half + 1) * m // 2], b[half * n // 2 : (half + 1) * n // 2]
        data = image(mine[0], "32B", False, 0, lead_a, stride_a, total)
        parts.append(data | image(mine[1], "32B", False, bytes_a, lead_b, stride_b, total))
    width = n if m == 256 else n // 2
    code = kernel(PAIR + WAIT + load(width), width, changes=PAIRED)
    device = ptx.EmulatedDevice("sm_100a")
    out = device.array(np.zeros((256, width), np.uint32))
    descriptors = [
        descriptor(BASE, lead_a, stride_a, TCGEN05_CODES["32B"], True),
        descriptor(BASE + bytes_a, lead_b, stride_b, TCGEN05_CODES["32B"], True),
    ]
    given = [device.array(np.concatenate(parts)), out, total, *descriptors, idesc(m, n, kinds)]
    run = device.launch(code, 2, 128, given, shared_bytes=total, schedule=schedule)
    assert not run.findings, run.findings
    got, want = result(out.numpy(), "f32"), expected(a, b)
    if m == 128:
        halves = got.reshape(2, 2, 64, width)
        got = np.concatenate([np.concatenate([h[0], h[1]], axis=1) for h in halves])
    np.testing.assert_allclose(got, want, atol=1e-4)
