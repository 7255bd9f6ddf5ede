"""Products of scaled 4-bit floats by two CTAs: where the scales of B lie when D lies in two halves of the lanes."""

import ml_dtypes
import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import TCGEN05_CODES, descriptor, image, strides
from tests.ptx.emulator.asynchronous.tcgen05 import BASE, PAIRED, WAIT, kernel, load, result

from kernbench import ptx

# of a warp's quarter of the lanes: a word of scales a lane in each of four columns, those of A and those of B
SCALES = """
  and.b32 %r30, %r0, 31; shl.b32 %r30, %r30, 4; add.u32 %r30, %r30, %r2;
  ld.shared.v4.b32 {%r32, %r33, %r34, %r35}, [%r30];
  add.u32 %r36, %r5, 64;
  tcgen05.st.sync.aligned.32x32b.x4.b32 [%r36], {%r32, %r33, %r34, %r35};
  shr.u32 %r31, %r0, 6; shl.b32 %r31, %r31, 9; add.u32 %r30, %r30, %r31;
  ld.shared.v4.b32 {%r32, %r33, %r34, %r35}, [%r30+512];
  add.u32 %r36, %r5, 68;
  tcgen05.st.sync.aligned.32x32b.x4.b32 [%r36], {%r32, %r33, %r34, %r35};
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  add.u32 %r40, %r3, 64;
  add.u32 %r41, %r3, 68;
"""
PRODUCT = """
  setp.eq.u32 %p7, %r6, 0;
  and.pred %p6, %p3, %p7;
  setp.ne.b32 %p5, 0, 0;
  @%p6 tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.scale_vec::4X [%r3], %rd4, %rd5, %r22, [%r40], [%r41], %p5;
  .reg .b16 %both;
  mov.b16 %both, 3;
  @%p6 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [done], %both;
"""
N, K, BLOCK = 64, 64, 16
HEAD = 3 * 512


def columns_of(scales):
    """Scales of rows, a word each, as 32 lanes of four columns hold them."""
    found = np.zeros((32, 4, 4), np.uint8)
    for row, word in enumerate(scales):
        found[row % 32, row // 32] = word
    return found.reshape(-1)


def half_of(rng, rows, codes, scales):
    """What one CTA has in shared memory: the scales of its rows of A and of B's, and its rows of both matrices."""
    lead, stride, nbytes = strides(rows[0], 32, 1, "32B", False)
    lead_b, stride_b, nbytes_b = strides(rows[1], 32, 1, "32B", False)
    data = np.zeros(HEAD + nbytes + nbytes_b, np.uint8)
    data[:HEAD] = np.concatenate([columns_of(one) for one in scales])
    stored = [x[:, 0::2] | x[:, 1::2] << 4 for x in codes]
    data[HEAD:] |= image(stored[0], "32B", False, 0, lead, stride, nbytes + nbytes_b)
    data[HEAD:] |= image(stored[1], "32B", False, nbytes, lead_b, stride_b, nbytes + nbytes_b)
    start = BASE + HEAD
    return data, [
        descriptor(start, lead, stride, TCGEN05_CODES["32B"], True),
        descriptor(start + nbytes, lead_b, stride_b, TCGEN05_CODES["32B"], True),
    ]


# bit 12 of the instruction descriptor is a version of sparsity, which dense products do not look at
@pytest.mark.parametrize("more", [0, 1 << 12])
@pytest.mark.parametrize("m", [128, 256])
def test_two_blocks(m, more):
    rng = np.random.default_rng(m)
    codes = [rng.integers(0, 16, (rows, K)).astype(np.uint8) for rows in (m, N)]
    scales = [rng.integers(0x30, 0x48, (rows, K // BLOCK)).astype(np.uint8) for rows in (m, N)]
    halves, each = [], m // 2
    for half in range(2):
        mine = codes[0][half * each :][:each], codes[1][half * N // 2 :][: N // 2]
        # of 128 rows each half of the lanes has its columns' scales, of 256 all have those of all columns
        of_b = [scales[1][: N // 2], scales[1][N // 2 :]] if m == 128 else [scales[1]] * 2
        data, descriptors = half_of(rng, (each, N // 2), mine, [scales[0][half * each :][:each], *of_b])
        halves.append(data)
    width = N if m == 256 else N // 2
    code = kernel(SCALES + PRODUCT + WAIT + load(width), width, changes=PAIRED)
    device = ptx.EmulatedDevice("sm_100a")
    out = device.array(np.zeros((256, width), np.uint32))
    said = 1 << 7 | 1 << 10 | (N >> 3) << 17 | (m >> 4) << 24 | more
    given = [device.array(np.concatenate(halves)), out, len(data), *descriptors, said]
    run = device.launch(code, 2, 128, given, shared_bytes=len(data))
    assert not run.findings, run.findings
    real = [
        x.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
        * np.repeat(s.view(ml_dtypes.float8_e4m3fn).astype(np.float64), BLOCK, axis=1)
        for x, s in zip(codes, scales, strict=True)
    ]
    got, want = result(out.numpy(), "f32"), real[0] @ real[1].T
    if m == 128:
        got = np.concatenate([np.concatenate(list(h), axis=1) for h in got.reshape(2, 2, 64, width)])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3 * np.abs(want).max())
