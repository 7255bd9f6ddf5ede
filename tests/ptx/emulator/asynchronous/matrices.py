"""Tiles in shared memory, element by element as the ISA text's canonical layouts say."""

import ml_dtypes
import numpy as np
from tests.ptx.numerics.matrix.test_exact import expected

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
}
TYPES = [
    ("f32", "f16", "f16", 16),
    ("f16", "f16", "f16", 16),
    ("f32", "bf16", "bf16", 16),
    ("f32", "tf32", "tf32", 8),
    ("f32", "e4m3", "e5m2", 32),
    ("f16", "e5m2", "e4m3", 32),
    ("s32", "s8", "u8", 32),
    ("s32", "u8", "s8", 32),
]
WIDTHS = {"none": 16, "32B": 32, "64B": 64, "128B": 128, "128B/32B": 128}
WGMMA_CODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
TCGEN05_CODES = {"none": 0, "128B/32B": 1, "128B": 2, "64B": 4, "32B": 6}


def swizzle(address, mode):
    if mode == "none":
        return address
    if mode == "128B/32B":
        return address ^ ((address >> 7 & 3) << 5)
    return address ^ ((address >> 7 & {"32B": 1, "64B": 3, "128B": 7}[mode]) << 4)


def place(r, k, size, mode, transposed, leading, stride):
    """The byte of element (r, k) of a tile, from its start, before the swizzle."""
    along, across = (r, k) if transposed else (k, r)
    if mode == "none":
        per = 16 // size
        chunk, inner = divmod(along, per)
        group, line = divmod(across, 8)
        step_along, step_across = (stride, leading) if transposed else (leading, stride)
        return inner * size + chunk * step_along + line * 16 + group * step_across
    width = WIDTHS[mode]
    per = width // size
    lines = 4 if mode == "128B/32B" else 8
    chunk, inner = divmod(along, per)
    group, line = divmod(across, lines)
    return inner * size + line * width + group * stride + chunk * leading


def image(tile, mode, transposed, start, leading, stride, nbytes):
    """Shared memory that holds a tile [rows, k]."""
    size = tile.dtype.itemsize
    data = np.zeros(nbytes, np.uint8)
    for (r, k), value in np.ndenumerate(tile):
        at = swizzle(start + place(r, k, size, mode, transposed, leading, stride), mode)
        data[at : at + size] = np.frombuffer(np.asarray(value, tile.dtype).tobytes(), np.uint8)
    return data


def strides(rows, depth, size, mode, transposed):
    """Leading and stride offsets of a dense tile, and the bytes it takes."""
    along, across = (rows, depth) if transposed else (depth, rows)
    lines = 4 if mode == "128B/32B" else 8
    width = WIDTHS[mode]
    chunks, groups = -(-along * size // width), -(-across // lines)
    atom = lines * width
    step_chunk, step_group = groups * atom, atom
    total = chunks * groups * atom
    if mode == "none" and transposed:
        return step_group, step_chunk, total
    return step_chunk, step_group, total


def descriptor(start, leading, stride, code, tcgen05=False):
    bits = (start >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32
    return bits | 1 << 46 | code << 61 if tcgen05 else bits | code << 62


def random_tile(rng, rows, depth, kind):
    if kind in ("s8", "u8"):
        info = np.iinfo(DTYPES[kind])
        return rng.integers(info.min, info.max + 1, (rows, depth)).astype(DTYPES[kind])
    values = rng.standard_normal((rows, depth)).astype(np.float32)
    if kind == "tf32":
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return values.astype(DTYPES[kind])


COPY = """
  // copy %r20 bytes from %rd1 to the tiles in shared memory, 16 for each of 128 threads at a time
  mov.u32 %r10, %tid.x;
  shl.b32 %r10, %r10, 4;
COPY:
  setp.ge.u32 %p1, %r10, %r20;
  @%p1 bra COPIED;
  cvt.u64.u32 %rd2, %r10;
  add.u64 %rd2, %rd2, %rd1;
  ld.global.v4.u32 {%r11, %r12, %r13, %r14}, [%rd2];
  mov.u32 %r15, tiles;
  add.u32 %r15, %r15, %r10;
  st.shared.v4.u32 [%r15], {%r11, %r12, %r13, %r14};
  add.u32 %r10, %r10, 2048;
  bra COPY;
COPIED:
"""


def unfragment(words, n, kind):
    """D [64, n] from what 128 threads hold: [threads, registers]."""
    out = np.zeros((64, n), np.uint16 if kind == "f16" else np.uint32)
    data = np.ascontiguousarray(words).view(out.dtype)
    for thread in range(128):
        for i in range(n // 2):
            lane, warp = thread % 32, thread // 32
            row = 16 * warp + lane // 4 + 8 * ((i // 2) & 1)
            out[row, 8 * (i // 4) + 2 * (lane % 4) + (i & 1)] = data[thread, i]
    return out


def assert_products(words, n, kinds, a, b):
    """What 128 threads hold of D = A B is right: of f32 to the bit, a sample of rows; sums of f16 nearly."""
    found = unfragment(words, n, kinds[0])
    if kinds[0] == "f32":
        for row in (0, 9, 22, 63):
            wanted = [expected(a[row].astype(np.float32), each.astype(np.float32), 0.0, kinds) for each in b]
            np.testing.assert_array_equal(found.view(np.float32)[row], np.array(wanted, np.float32))
        return
    found = found.view(np.float16 if kinds[0] == "f16" else np.int32).astype(np.float64)
    rough = {"atol": 2e-2, "rtol": 2e-3} if kinds[0] == "f16" else {"atol": 0}
    np.testing.assert_allclose(found, a.astype(np.float64) @ b.astype(np.float64).T, **rough)
