"""tcgen05: products of every kind, layout and source; loads and stores of every shape; copies, shifts, allocation."""

import numpy as np
import pytest
from tests.ptx.asynchronous.matrices import (
    TCGEN05_CODES,
    descriptor,
    image,
    random_tile,
    strides,
)

from kernbench import ptx

HEAD = """.version 8.6
.target sm_100a
.address_size 64
.shared .align 8 .b64 done;
.shared .align 4 .b32 slot;
.extern .shared .align 1024 .b8 tiles[];
.visible .entry kernel(.param .u64 image, .param .u64 out, .param .u32 nbytes, .param .u64 a, .param .u64 b,
                       .param .u32 idesc)
{{
  .reg .pred %p<8>;
  .reg .b32 %r<64>;
  .reg .b64 %rd<16>;
  .reg .b32 %d<{registers}>;
  ld.param.u64 %rd1, [image];
  ld.param.u64 %rd3, [out];
  ld.param.u32 %r20, [nbytes];
  ld.param.u64 %rd4, [a];
  ld.param.u64 %rd5, [b];
  ld.param.u32 %r22, [idesc];
  mov.u32 %r21, 2048;
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  setp.eq.u32 %p2, %r1, 0;
  setp.eq.u32 %p3, %r0, 0;
  mov.u32 %r2, tiles;
  mov.u32 %r10, %r0;
  shl.b32 %r10, %r10, 4;
COPY:
  setp.ge.u32 %p1, %r10, %r20;
  @%p1 bra COPIED;
  cvt.u64.u32 %rd2, %r10;
  add.u64 %rd2, %rd2, %rd1;
  ld.global.v4.u32 {{%r11, %r12, %r13, %r14}}, [%rd2];
  add.u32 %r15, %r10, %r2;
  st.shared.v4.u32 [%r15], {{%r11, %r12, %r13, %r14}};
  add.u32 %r10, %r10, %r21;
  bra COPY;
COPIED:
  @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], {columns};
  @%p3 mbarrier.init.shared::cta.b64 [done], 1;
  @%p3 fence.mbarrier_init.release.cluster;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  ld.shared.u32 %r3, [slot];
  shl.b32 %r4, %r1, 21;
  add.u32 %r5, %r3, %r4;
"""
TAIL = """
  tcgen05.wait::ld.sync.aligned;
  mul.wide.u32 %rd6, %r0, {nbytes};
  add.u64 %rd6, %rd6, %rd3;
{stores}
  bar.sync 0;
  @%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, {columns};
  ret;
}}
"""
WAIT = """
WAITING:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [done], 0;
  @!%p4 bra WAITING;
  tcgen05.fence::after_thread_sync;
"""
COMMIT = "  @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];\n"
FORMATS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1}
RESULTS = {"f16": 0, "f32": 1, "s32": 2}
DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32}


def names(count):
    return "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"


def kernel(body, registers, columns=128, tail=TAIL):
    stores = "\n".join(f"  st.global.b32 [%rd6+{4 * i}], %d{i};" for i in range(registers))
    head = HEAD.format(registers=registers, columns=columns)
    text = head + body + tail.format(nbytes=4 * registers, stores=stores, columns=columns)
    return ptx.parse(text).kernels["kernel"]


def mma(kind, predicate="%p5", a="%rd4", extra="", ws=""):
    return (
        f"  setp.ne.b32 %p5, 0, 0;\n"
        f"  @%p3 tcgen05.mma{ws}.cta_group::1.kind::{kind} [%r3], {a}, %rd5, %r22, {predicate}{extra};\n"
    )


def load(registers, shape="32x32b"):
    return f"  tcgen05.ld.sync.aligned.{shape}.x{registers}.b32 {names(registers)}, [%r5];\n"


def idesc(m, n, kinds, trans=(False, False), negate=(False, False)):
    bits = RESULTS[kinds[0]] << 4 | FORMATS[kinds[1]] << 7 | FORMATS[kinds[2]] << 10
    bits |= negate[0] << 13 | negate[1] << 14 | trans[0] << 15 | trans[1] << 16
    return bits | (n >> 3) << 17 | (m >> 4) << 24


def launch(code, data, descriptors, instruction, registers, grid=1, **options):
    device = ptx.EmulatedDevice("sm_100a")
    out = device.array(np.zeros((128, registers), np.uint32))
    given = [device.array(data), out, len(data), *descriptors, instruction]
    run = device.launch(code, grid, 128, given, shared_bytes=len(data), **options)
    return run, out.numpy()


# where dynamic shared memory begins, behind two small variables
BASE = 1024


def tiles(seed, m, n, k, kinds, mode_a="128B", mode_b="128B", trans=(False, False)):
    rng = np.random.default_rng(seed)
    a, b = random_tile(rng, m, k, kinds[1]), random_tile(rng, n, k, kinds[2])
    size = a.dtype.itemsize
    lead_a, stride_a, bytes_a = strides(m, k, size, mode_a, trans[0])
    lead_b, stride_b, bytes_b = strides(n, k, size, mode_b, trans[1])
    start_b = -(-bytes_a // 1024) * 1024
    total = start_b + bytes_b
    data = image(a, mode_a, trans[0], 0, lead_a, stride_a, total)
    data |= image(b, mode_b, trans[1], start_b, lead_b, stride_b, total)
    return (
        a,
        b,
        data,
        (
            descriptor(BASE, lead_a, stride_a, TCGEN05_CODES[mode_a], True),
            descriptor(BASE + start_b, lead_b, stride_b, TCGEN05_CODES[mode_b], True),
        ),
    )


def expected(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


def result(words, kind):
    if kind == "f16":
        return (words & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64)
    return words.view({"f32": np.float32, "s32": np.int32}[kind]).astype(np.float64)


KINDS = [
    ("f16", "f32", "f16", "f16"),
    ("f16", "f16", "f16", "f16"),
    ("f16", "f32", "bf16", "bf16"),
    ("tf32", "f32", "tf32", "tf32"),
    ("f8f6f4", "f32", "e4m3", "e5m2"),
    ("i8", "s32", "s8", "u8"),
]


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


@pytest.mark.parametrize(("m", "n"), [(32, 128), (64, 128), (128, 64)])
def test_stationary_weights(m, n):
    kinds = ("f32", "bf16", "bf16")
    a, b, data, descriptors = tiles(5, m, n, 16, kinds)
    width = n * m // 128
    code = kernel(mma("f16", ws=".ws") + COMMIT + WAIT + load(width), width)
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


AGAIN = (
    "  setp.eq.b32 %p5, 0, 0;\n  @%p3 tcgen05.mma.cta_group::1.kind::f16 [%r3], %rd4, %rd5, %r22, {extra}%p5{scale};\n"
)


@pytest.mark.parametrize("schedule", ["canonical", "eager", 1])
def test_accumulates_scaled(schedule):
    kinds, n = ("f32", "f16", "f16"), 32
    a, b, data, descriptors = tiles(7, 128, n, 16, kinds)
    code = kernel(mma("f16") + AGAIN.format(extra="", scale=", 1") + COMMIT + WAIT + load(n), n)
    run, words = launch(code, data, descriptors, idesc(128, n, kinds), n, schedule=schedule)
    assert not run.findings
    np.testing.assert_allclose(result(words, "f32"), 1.5 * expected(a, b), atol=1e-4)


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


SHAPES = {
    "32x32b": (1, 1, lambda t, i: (t, i)),
    "16x64b": (1, 2, lambda t, i: (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * i)),
    "16x128b": (2, 4, lambda t, i: (t // 4 + 8 * (i % 2), t % 4 + 4 * (i // 2))),
    "16x256b": (4, 8, lambda t, i: (t // 4 + 8 * (i // 2 % 2), 2 * (t % 4) + i % 2 + 8 * (i // 4))),
    "16x32bx2": (1, 1, lambda t, i: (t % 16, i + 64 * (t // 16))),
}
FILL = """
  // word (lane, column) holds lane << 16 | column, from row stores
  mov.u32 %r30, %r0;
  shl.b32 %r30, %r30, 16;
{sets}
  tcgen05.st.sync.aligned.32x32b.x128.b32 [%r5], {every};
  tcgen05.wait::st.sync.aligned;
"""


def filled():
    sets = "\n".join(f"  or.b32 %d{i}, %r30, {i};" for i in range(128))
    return FILL.format(sets=sets, every=names(128))


@pytest.mark.parametrize("repeat", [1, 2, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pack", ["", ".pack::16b"])
def test_loads(shape, repeat, pack):
    per, step, place = SHAPES[shape]
    span = repeat * step * (2 if pack else 1) + (64 if shape == "16x32bx2" else 0)
    if span > 128 or per * repeat > 128:
        pytest.skip("wider than the test's matrix")
    count = per * repeat
    split = ", 32" if pack else ", 64"
    tail = split if shape == "16x32bx2" else ""
    text = f"  tcgen05.ld.sync.aligned.{shape}.x{repeat}{pack}.b32 {names(count)}, [%r5]{tail};\n"
    code = kernel(filled() + text, max(count, 128))
    run, words = launch(code, np.zeros(64, np.uint8), (0, 0), 0, 128)
    assert not run.findings, run.findings
    for thread in range(0, 128, 7):
        warp, lane = divmod(thread, 32)
        for i in range(count):
            row, column = place(lane, i)
            if pack:
                column = column if shape != "16x32bx2" else i + 32 * (lane // 16)
                assert words[thread, i] == (2 * column) | (2 * column + 1) << 16
            else:
                assert words[thread, i] == (32 * warp + row) << 16 | column


@pytest.mark.parametrize("repeat", [1, 4, 16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("unpack", ["", ".unpack::16b"])
def test_stores(shape, repeat, unpack):
    per, step, place = SHAPES[shape]
    count = per * repeat
    if repeat * step * (2 if unpack else 1) > 128:
        pytest.skip("wider than the test's matrix")
    tail = ", 32" if shape == "16x32bx2" else ""
    sets = "\n".join(f"  mad.lo.u32 %d{i}, %r0, 256, {i + 0x10000 * (i + 1)};" for i in range(count))
    text = f"{sets}\n  tcgen05.st.sync.aligned.{shape}.x{repeat}{unpack}.b32 [%r5]{tail}, {names(count)};\n"
    body = filled() + text + "  tcgen05.wait::st.sync.aligned;\n" + load(128)
    run, words = launch(kernel(body, 128), np.zeros(64, np.uint8), (0, 0), 0, 128)
    assert not run.findings, run.findings
    want = (np.arange(128, dtype=np.uint32)[:, None] << 16) | np.arange(128, dtype=np.uint32)[None]
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for i in range(count):
            value = (thread * 256 + i + 0x10000 * (i + 1)) & 0xFFFFFFFF
            row, column = (lane % 16, i + 32 * (lane // 16)) if shape == "16x32bx2" else place(lane, i)
            if unpack:
                want[32 * warp + row, 2 * column] = value & 0xFFFF
                want[32 * warp + row, 2 * column + 1] = value >> 16
            else:
                want[32 * warp + row, column] = value
    np.testing.assert_array_equal(words, want)


def copied(shape, data, stride=128, leading=2048, columns=8, more=""):
    """What columns 0.. hold after a copy."""
    text = f"  @%p3 tcgen05.cp.cta_group::1.{shape} [%r3], %rd4;\n{more}"
    body = filled() + "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  tcgen05.fence::after_thread_sync;\n"
    body += text + COMMIT + WAIT + load(columns)
    run, words = launch(kernel(body, 128), data, (descriptor(BASE, leading, stride, 0, True), 0), 0, 128)
    assert not run.findings, run.findings
    return words[:, :columns]


def test_copies():
    data = np.random.default_rng(9).integers(0, 256, 4096).astype(np.uint8)
    # rows of 16 bytes, eight in a core matrix; the second 16 bytes of each row lie 2048 on
    rows = np.concatenate([data[:2048].reshape(128, 16), data[2048:].reshape(128, 16)], axis=1).view(np.uint32)
    np.testing.assert_array_equal(copied("128x256b", data), rows)
    np.testing.assert_array_equal(copied("128x128b", data, columns=4), rows[:, :4])
    four = copied("32x128b.warpx4", data, columns=4)
    np.testing.assert_array_equal(four, np.tile(rows[:32, :4], (4, 1)))
    two = copied("64x128b.warpx2::02_13", data, columns=4)
    np.testing.assert_array_equal(two, np.tile(rows[:64, :4], (2, 1)))
    pairs = copied("64x128b.warpx2::01_23", data, columns=4)
    order = [0, 0, 1, 1]
    np.testing.assert_array_equal(pairs, np.concatenate([rows[32 * q : 32 * q + 32, :4] for q in order]))
    few = copied("4x256b", data)
    np.testing.assert_array_equal(few[::32], rows[:4])


def test_copy_unpacks():
    data = np.random.default_rng(10).integers(0, 256, 4096).astype(np.uint8)
    words = copied("128x128b.b8x16.b4x16_p64", data, columns=4)
    packed = data[:2048].reshape(128, 16)[:, :8]
    want = np.stack([packed & 15, packed >> 4], axis=-1).reshape(128, 16)
    np.testing.assert_array_equal(np.ascontiguousarray(words).view(np.uint8), want)
    words = copied("128x128b.b8x16.b6x16_p32", data, columns=4)
    rows = data[:2048].reshape(128, 16)[:, :12]
    bits = np.unpackbits(rows, axis=1, bitorder="little").reshape(128, 16, 6)
    want = np.packbits(np.pad(bits, ((0, 0), (0, 0), (0, 2))), axis=2, bitorder="little")[:, :, 0]
    np.testing.assert_array_equal(np.ascontiguousarray(words).view(np.uint8), want)


def test_shift():
    data = np.random.default_rng(11).integers(0, 256, 4096).astype(np.uint8)
    more = "  @%p3 tcgen05.shift.cta_group::1.down [%r3];\n"
    plain, shifted = copied("128x256b", data), copied("128x256b", data, more=more)
    np.testing.assert_array_equal(shifted[1:], plain[:-1])
    np.testing.assert_array_equal(shifted[0], plain[0])


KINDS_F16 = ("f32", "f16", "f16")


def planted(body=None, n=64, columns=128, tail=TAIL, data=None, said=None, change=None, **options):
    """A kernel that multiplies and stores, with something changed."""
    _, _, image_, descriptors = tiles(12, 128, n, 16, KINDS_F16)
    code = kernel(mma("f16") + COMMIT + WAIT + load(n) if body is None else body, n, columns, tail)
    if change is not None:
        text = code.module.emit()
        assert change[0] in text, text
        code = ptx.parse(text.replace(*change)).kernels["kernel"]
    given = descriptors if data is None else data(descriptors)
    return launch(code, image_, given, idesc(128, n, KINDS_F16) if said is None else said, n, **options)[0]


def kinds_of(run):
    return {finding.kind for finding in run.findings}


def only(run, kind):
    assert kinds_of(run) == {kind}, run.findings
    return run.findings[0].message


def test_clean():
    for schedule in ("canonical", "eager", "reversed", 5):
        assert not planted(schedule=schedule).findings


def test_leak():
    tail = TAIL.replace("  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, {columns};\n", "")
    assert "block (0, 0, 0) ends without freeing columns 0 to 128" in only(planted(tail=tail), "tensor-memory")


def test_freed_twice():
    free = "  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, {columns};\n"
    message = only(planted(tail=TAIL.replace(free, free + free)), "tensor-memory")
    assert "frees columns 0 to 128, which are not allocated" in message


def test_freed_in_part():
    tail = TAIL.replace("%r3, {columns};", "%r3, 64;")
    assert "frees 64 columns from 0 on" in planted(tail=tail).findings[0].message


def test_allocation_after_relinquishing():
    give_up = "  @%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
    more = "  @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;\n"
    more += "  @%p2 ld.shared.u32 %r9, [slot];\n  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;\n"
    message = only(planted(tail=TAIL.replace(give_up, give_up + more)), "tensor-memory")
    assert "allocates after its block gave up the right to" in message


def test_columns_no_power_of_two():
    run = planted(change=("[slot], 128;", "[slot], 96;"))
    assert any("asks for 96 columns" in finding.message for finding in run.findings)


def test_outside_the_allocation():
    run = planted(n=64, columns=32)
    assert kinds_of(run) == {"tensor-memory"}
    assert any("reaches columns 0 to 64 of tensor memory; allocated: 0 to 32" in f.message for f in run.findings)


def test_lanes_of_another_warp():
    body = mma("f16") + COMMIT + WAIT + load(64).replace("%r5", "%r3")
    message = only(planted(body), "tensor-memory")
    assert "warp 1 of block (0, 0, 0) touches lanes 0 to 31 of tensor memory; it may touch 32 to 63 only" in message


def test_read_before_the_commit_is_waited_for():
    body = mma("f16") + COMMIT + load(64) + WAIT
    message = planted(body).findings[0].message
    assert "reads column 0 of tensor memory; warp 0 of block (0, 0, 0) began line" in message
    assert "and nothing says that it is done" in message


def test_missing_commit():
    body = mma("f16") + "  bar.sync 0;\n" + load(64)
    run = planted(body)
    assert {"race", "in-flight"} <= kinds_of(run)
    assert any("no tcgen05.commit follows" in f.message for f in run.findings)


def test_missing_fence_after_the_wait():
    more = "  tcgen05.fence::before_thread_sync;\n"
    run = planted(mma("f16") + COMMIT + WAIT.replace("  tcgen05.fence::after_thread_sync;\n", more) + load(64))
    assert kinds_of(run) == {"race"}


STAGE = """
  mov.b32 %r50, 0;
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r50};
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
"""


@pytest.mark.parametrize(
    "missing", ["tcgen05.wait::st.sync.aligned", "tcgen05.fence::before_thread_sync", "bar.sync 0"]
)
def test_store_not_finished_before_a_product(missing):
    assert not planted(STAGE + mma("f16") + COMMIT + WAIT + load(64)).findings
    run = planted(STAGE.replace(f"  {missing};\n", "") + mma("f16") + COMMIT + WAIT + load(64))
    assert "race" in kinds_of(run)


RELEASE = """
  tcgen05.ld.sync.aligned.32x32b.x64.b32 {every}, [%r5];
{wait}
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  @%p3 tcgen05.mma.cta_group::1.kind::f16 [%r3], %rd4, %rd5, %r22, %p5;
  @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];
AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [done], 1;
  @!%p4 bra AGAIN;
  tcgen05.fence::after_thread_sync;
"""
FINISH = "  tcgen05.wait::ld.sync.aligned;"


def test_stage_released_while_a_load_is_in_flight():
    every = names(64)
    clean = RELEASE.format(every=every, wait=FINISH)
    assert not planted(mma("f16") + COMMIT + WAIT + clean + load(64)).findings
    message = planted(mma("f16") + COMMIT + WAIT + RELEASE.format(every=every, wait="") + load(64)).findings[0].message
    assert "began line" in message
    assert "tcgen05.ld" in message


def test_use_of_a_register_finishes_its_load():
    use = "  add.u32 %r51, %d0, 1;"
    assert not planted(mma("f16") + COMMIT + WAIT + RELEASE.format(every=names(64), wait=use) + load(64)).findings


def test_accumulator_never_written():
    body = mma("f16").replace("setp.ne.b32", "setp.eq.b32") + COMMIT + WAIT + load(64)
    assert "the accumulator that thread (0, 0, 0) of block (0, 0, 0) reads" in only(planted(body), "uninitialised-read")


def test_descriptors():
    message = planted(data=lambda d: (d[0] & ~(1 << 46), d[1])).findings[0].message
    assert "bits 46 to 48 hold 0b000 where 0b001 belongs" in message
    message = planted(data=lambda d: (d[0], d[1] + 4096)).findings[0].message
    assert "the descriptor of B that thread (0, 0, 0) of block (0, 0, 0) gives reaches to byte" in message
    message = planted(said=idesc(128, 64, KINDS_F16) | 4).findings[0].message
    assert "bit 2 says that A is sparse" in message


def test_missing_proxy_fence():
    run = planted(change=("fence.proxy.async.shared::cta;", ""))
    assert kinds_of(run) == {"missing-fence"}


def test_issued_by_a_whole_warp():
    """Without an elected thread the product is issued 32 times."""
    body = (mma("f16") + AGAIN.format(extra="", scale="")).replace("@%p3 tcgen05.mma", "@%p2 tcgen05.mma")
    a, b, data, descriptors = tiles(13, 128, 32, 16, KINDS_F16)
    code = kernel(body + COMMIT + WAIT + load(32), 32)
    _, words = launch(code, data, descriptors, idesc(128, 32, KINDS_F16), 32)
    np.testing.assert_allclose(result(words, "f32"), 33 * expected(a, b), rtol=1e-4, atol=1e-2)
