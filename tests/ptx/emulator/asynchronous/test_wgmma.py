"""wgmma: every type, both majors, every swizzle, A from registers or shared memory; waits and scales."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import (
    COPY,
    DTYPES,
    TYPES,
    WGMMA_CODES,
    assert_products,
    descriptor,
    image,
    random_tile,
    strides,
    unfragment,
)
from tests.ptx.emulator.instructions.matrix.test_sparse import metadata, sparse_rows

from kernbench import ptx
from kernbench.ptx.emulator.analysis.building import program_of

KERNEL = """.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 tiles[];
.visible .entry kernel(.param .u64 image, .param .u64 out, .param .u32 nbytes, .param .u64 a, .param .u64 b)
{{
  .reg .pred %p<4>;
  .reg .b32 %r<32>;
  .reg .b32 %x<4>;
  .reg .b64 %rd<16>;
  .reg .b32 %d<{registers}>;
  ld.param.u64 %rd1, [image];
  ld.param.u64 %rd3, [out];
  ld.param.u32 %r20, [nbytes];
  ld.param.u64 %rd4, [a];
  ld.param.u64 %rd5, [b];
  // a GPU may begin with bytes of its own: starts are counted from the tiles
  mov.u32 %r15, tiles;
  shr.u32 %r15, %r15, 4;
  cvt.u64.u32 %rd7, %r15;
  add.u64 %rd4, %rd4, %rd7;
  add.u64 %rd5, %rd5, %rd7;
{copy}
  {proxy}
  bar.sync 0;
{first}
  wgmma.fence.sync.aligned;
{multiply}
  wgmma.commit_group.sync.aligned;
{last}
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r1, %r2, 128, %r1;
  mul.wide.u32 %rd6, %r1, {nbytes};
  add.u64 %rd6, %rd6, %rd3;
{stores}
  ret;
}}
"""
WAIT = "  wgmma.wait_group.sync.aligned 0;"
FENCE = "fence.proxy.async;"


def kernel(n, kinds, k, a="%rd4", tail="1, 1", proxy=FENCE, last=WAIT, multiply=None, first="", extra=""):
    registers = n // 4 if kinds[0] == "f16" else n // 2
    d = ", ".join(f"%d{i}" for i in range(registers))
    tail = f", {tail}" if tail else ""
    operation = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}{extra}.{kinds[0]}.{kinds[1]}.{kinds[2]}"
    if extra == ".b1":
        operation = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.s32.b1.b1.and.popc"
    one = f"  {operation} {{{d}}}, {a}, %rd5, {{scale}}{tail};"
    text = KERNEL.format(
        registers=registers,
        copy=COPY,
        proxy=proxy,
        first=first,
        multiply=(multiply or "  setp.ne.b32 %p2, 0, 0;\n{one}").replace("{one}", one.replace("{scale}", "%p2")),
        last=last,
        nbytes=4 * registers,
        stores="\n".join(f"  st.global.b32 [%rd6+{4 * i}], %d{i};" for i in range(registers)),
    )
    return ptx.parse(text).kernels["kernel"]


def tiles(seed, n, k, kinds, mode_a, mode_b, trans_a=False, trans_b=False, shift=0):
    """A, B, the bytes that hold them, and their descriptors."""
    rng = np.random.default_rng(seed)
    a, b = random_tile(rng, 64, k, kinds[1]), random_tile(rng, n, k, kinds[2])
    size = a.dtype.itemsize
    lead_a, stride_a, bytes_a = strides(64, k, size, mode_a, trans_a)
    lead_b, stride_b, bytes_b = strides(n, k, size, mode_b, trans_b)
    start_b = -(-(bytes_a + shift) // 1024) * 1024
    total = -(-(start_b + bytes_b + shift) // 16) * 16
    data = image(a, mode_a, trans_a, shift, lead_a, stride_a, total)
    data |= image(b, mode_b, trans_b, start_b + shift, lead_b, stride_b, total)
    descriptors = (
        descriptor(shift, lead_a, stride_a, WGMMA_CODES[mode_a]),
        descriptor(start_b + shift, lead_b, stride_b, WGMMA_CODES[mode_b]),
    )
    return a, b, data, descriptors


def launch(code, data, descriptors, n, kind, grid=1, device=None, **options):
    device = device or ptx.EmulatedDevice("sm_90a")
    registers = n // 4 if kind == "f16" else n // 2
    out = device.array(np.zeros((grid * 128, registers), np.uint32))
    given = [device.array(data), out, len(data), *descriptors]
    run = device.launch(code, grid, 128, given, shared_bytes=len(data), **options)
    return run, out.numpy()


def values(words, n, kind):
    bits = unfragment(words, n, kind)
    return bits.view({"f16": np.float16, "f32": np.float32, "s32": np.int32}[kind]).astype(np.float64)


def expected(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("majors", ["KK", "KN", "MK", "MN"])
def test_layouts(mode, majors):
    trans = majors[0] == "M", majors[1] == "N"
    kinds, n = ("f32", "f16", "f16"), 64
    a, b, data, descriptors = tiles(1, n, 16, kinds, mode, mode, *trans)
    code = kernel(n, kinds, 16, tail=f"1, 1, {int(trans[0])}, {int(trans[1])}")
    run, words = launch(code, data, descriptors, n, "f32")
    assert not run.findings
    np.testing.assert_allclose(values(words, n, "f32"), expected(a, b), atol=1e-5)


def test_bits():
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 2, (rows, 256)).astype(np.uint8) for rows in (64, 32))
    packed = [np.packbits(x, axis=1, bitorder="little") for x in (a, b)]
    lead_a, stride_a, bytes_a = strides(64, 32, 1, "none", False)
    lead_b, stride_b, bytes_b = strides(32, 32, 1, "none", False)
    data = image(packed[0], "none", False, 0, lead_a, stride_a, bytes_a + bytes_b)
    data |= image(packed[1], "none", False, bytes_a, lead_b, stride_b, bytes_a + bytes_b)
    descriptors = descriptor(0, lead_a, stride_a, 0), descriptor(bytes_a, lead_b, stride_b, 0)
    code = kernel(32, ("s32", "b1", "b1"), 256, tail="", extra=".b1")
    run, words = launch(code, data, descriptors, 32, "s32")
    assert not run.findings
    np.testing.assert_array_equal(values(words, 32, "s32"), expected(a, b))


FRAGMENT = """
  // A in registers: row g or g + 8, of each half of K the elements from 4 bytes * (lane % 4) on, rows of {width} bytes
  mov.u32 %r1, %tid.x;
  and.b32 %r2, %r1, 31;
  shr.u32 %r3, %r1, 5;
  shr.u32 %r4, %r2, 2;
  and.b32 %r5, %r2, 3;
  mad.lo.u32 %r6, %r3, 16, %r4;
  mul.lo.u32 %r7, %r6, {width};
  mad.lo.u32 %r7, %r5, 4, %r7;
  mov.u32 %r8, tiles;
  add.u32 %r7, %r7, %r8;
  ld.shared.b32 %x0, [%r7];
  ld.shared.b32 %x1, [%r7+{eight}];
  ld.shared.b32 %x2, [%r7+{half}];
  ld.shared.b32 %x3, [%r7+{both}];
"""


@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k"), TYPES)
def test_from_registers(d, a_kind, b_kind, k):
    n, kinds = 64, (d, a_kind, b_kind)
    a, b, data, descriptors = tiles(4, n, k, kinds, "none", "none")
    raw = np.ascontiguousarray(a).view(np.uint8).reshape(64, 32)
    data[:2048] = raw.reshape(-1)
    first = FRAGMENT.format(width=32, eight=256, half=16, both=272)
    tail = "" if d == "s32" else "1, 1, 0" if k == 16 else "1, 1"
    code = kernel(n, kinds, k, a="{%x0, %x1, %x2, %x3}", tail=tail, first=first)
    run, words = launch(code, data, descriptors, n, d)
    assert not run.findings, run.findings
    assert_products(words, n, kinds, a, b)


META = """
  mov.u32 %r21, %tid.x;
  add.u32 %r22, %r20, -512;
  mad.lo.u32 %r22, %r21, 4, %r22;
  cvt.u64.u32 %rd8, %r22;
  add.u64 %rd8, %rd8, %rd1;
  ld.global.u32 %r23, [%rd8];
"""
SPARSE = [
    ("f32", "f16", "f16", 32, 1),
    ("f16", "f16", "f16", 32, 0),
    ("f32", "bf16", "bf16", 32, 0),
    ("f32", "tf32", "tf32", 16, 1),
    ("f32", "e4m3", "e5m2", 64, 0),
    ("s32", "s8", "u8", 64, 0),
]


def scattered(rng, values, kind, spread):
    """Numbers of a type with other fractions and exponents; zeros stay."""
    factors = rng.uniform(-1, 1, values.shape) * 2.0 ** rng.integers(-spread, spread + 1, values.shape)
    found = (values.astype(np.float64) * factors).astype(DTYPES[kind])
    # tf32 has ten bits of an f32's fraction
    return (found.view(np.uint32) & np.uint32(0xFFFF_E000)).view(np.float32) if kind == "tf32" else found


def sparse_tiles(n, k, kinds, selector, spread=0):
    """The whole A and B, the bytes that hold A's kept elements, B and the metadata, and descriptors.

    Elements are whole numbers, unless their exponents are to `spread`.
    """
    rng = np.random.default_rng(k + selector)
    wide = kinds[1] in ("f16", "bf16", "tf32")
    parts = [sparse_rows(rng, k, 2 if kinds[1] == "tf32" else 4, 1) for _ in range(4)]
    full = np.concatenate([rows for rows, _, _ in parts])
    if spread:
        full = scattered(rng, full, kinds[1], spread)
    kept = np.array([full[16 * w + r, places] for w, part in enumerate(parts) for r, places in enumerate(part[1])])
    kept = kept.astype(DTYPES[kinds[1]])
    b = rng.integers(0, 7, (n, k)).astype(DTYPES[kinds[2]])
    if spread:
        b = scattered(rng, b, kinds[2], spread)
    size = kept.dtype.itemsize
    lead_a, stride_a, start_b = strides(64, k // 2, size, "32B", False)
    lead_b, stride_b, bytes_b = strides(n, k, size, "64B", False)
    data = image(kept, "32B", False, 0, lead_a, stride_a, start_b + bytes_b)
    data |= image(b, "64B", False, start_b, lead_b, stride_b, start_b + bytes_b)
    words = np.concatenate([metadata(codes, wide, selector) for _, _, codes in parts])
    given = (
        descriptor(0, lead_a, stride_a, WGMMA_CODES["32B"]),
        descriptor(start_b, lead_b, stride_b, WGMMA_CODES["64B"]),
    )
    return full, kept, b, np.concatenate([data, words.view(np.uint8)]), given


def sparse_kernel(kinds, k, selector, registers, n=16, spread=0):
    """The kernel with the sparse instruction, then as `sparse_tiles` without A's kept elements."""
    full, kept, b, data, given = sparse_tiles(n, k, kinds, selector, spread)
    first, a = META, "%rd4"
    if registers:
        data[:2048] = np.ascontiguousarray(kept).view(np.uint8).reshape(-1)
        first, a = META + FRAGMENT.format(width=32, eight=256, half=16, both=272), "{%x0, %x1, %x2, %x3}"
    tail = "" if kinds[0] == "s32" else "1, 1" + (", 0" if k == 32 and registers else ", 0, 0" if k == 32 else "")
    text = kernel(n, kinds, k, a=a, tail=tail, first=first).module.source
    code = ptx.parse(text.replace("mma_async", "mma_async.sp").replace("%rd5, %p2", f"%rd5, %r23, {selector}, %p2"))
    return code.kernels["kernel"], full, b, data, given


@pytest.mark.sampled(6)
@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k", "selector"), SPARSE)
def test_sparse(d, a_kind, b_kind, k, selector, registers):
    code, full, b, data, given = sparse_kernel((d, a_kind, b_kind), k, selector, registers)
    run, words = launch(code, data, given, 16, d, grid=2)
    assert not run.findings, run.findings
    for block in range(2):
        np.testing.assert_array_equal(values(words[128 * block : 128 * (block + 1)], 16, d), expected(full, b))


CLEARED = "\n".join(f"  mov.b32 %d{number}, 0;" for number in range(32))
TWICE = "  setp.ne.b32 %p2, 0, 0;\n{one}\n  setp.eq.b32 %p2, 0, 0;\n{one}"


@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
@pytest.mark.parametrize("schedule", ["canonical", "eager", 3])
def test_scales_and_chains(signs, schedule):
    n, kinds = 16, ("f32", "bf16", "bf16")
    a, b, data, descriptors = tiles(5, n, 16, kinds, "32B", "32B")
    code = kernel(n, kinds, 16, tail=f"{signs[0]}, {signs[1]}, 0, 0", multiply=TWICE)
    run, words = launch(code, data, descriptors, n, "f32", grid=3, schedule=schedule)
    assert not run.findings
    for block in range(3):
        got = values(words[128 * block : 128 * (block + 1)], n, "f32")
        np.testing.assert_allclose(got, 2 * signs[0] * signs[1] * expected(a, b), atol=1e-4)


def test_advance_inside_the_atom():
    """The second 16 columns of K of a 128-byte swizzled tile, 32 bytes on."""
    n, kinds = 64, ("f32", "f16", "f16")
    a, b, data, descriptors = tiles(6, n, 64, kinds, "128B", "128B")
    code = kernel(n, kinds, 16, tail="1, 1, 0, 0")
    run, words = launch(code, data, [d + 2 for d in descriptors], n, "f32")
    assert not run.findings
    np.testing.assert_allclose(values(words, n, "f32"), expected(a[:, 16:32], b[:, 16:32]), atol=1e-4)


def planted(n=64, descriptors=None, mode="128B", change=("", ""), **more):
    kinds = ("f32", "f16", "f16")
    _, _, data, given = tiles(7, n, 16, kinds, mode, mode)
    text = kernel(n, kinds, 16, tail="1, 1, 0, 0", **more).module.source
    code = ptx.parse(text.replace(*change)).kernels["kernel"]
    return launch(code, data, descriptors(given) if descriptors else given, n, "f32")[0]


def only(run, kind):
    assert {f.kind for f in run.findings} == {kind}, run.findings
    return run.findings[0].message


def test_clean():
    assert not planted().findings


def test_missing_proxy_fence():
    assert "no proxy fence" in only(planted(proxy=""), "missing-fence")


def test_accumulator_read_before_its_wait():
    message = only(planted(last=""), "in-flight")
    assert "thread (0, 0, 0) of block (0, 0, 0) reads %d0, which line" in message
    assert "writes as part of D and nobody has waited for" in message


def test_one_group_left_in_flight():
    run = planted(last="  wgmma.wait_group.sync.aligned 1;")
    assert {f.kind for f in run.findings} == {"in-flight"}


def test_accumulator_set_after_the_fence():
    late = "  setp.eq.b32 %p2, 0, 0;\n  mov.b32 %d5, 0;\n{one}"
    message = only(planted(multiply=late, first=CLEARED), "in-flight")
    assert "this uses %d5, and no wgmma.fence came after thread (0, 0, 0) of block (0, 0, 0)" in message


def test_a_compiler_that_moved_what_sets_the_accumulator_past_the_fence():
    late = "  setp.eq.b32 %p2, 0, 0;\n  mov.b32 %d5, 0;\n{one}"
    signed = (".version", "// Generated by NVIDIA NVVM Compiler\n.version")
    assert not planted(multiply=late, first=CLEARED, change=signed).findings
    fence = ("  wgmma.fence.sync.aligned;\n", "")
    assert "no wgmma.fence came after" in only(planted(change=fence), "in-flight")


def test_a_compiler_sets_accumulators_behind_a_branch_and_behind_another_operation():
    """The fence covers what is set after it, up to the first operation that uses it; then another one is due."""
    branch = "  setp.eq.b32 %p2, 0, 0;\n  @%p2 bra ON;\n  ret;\nON:\n  mov.b32 %d5, 0;\n"
    signed = (".version", "// Generated by NVIDIA NVVM Compiler\n.version")
    assert not planted(multiply=branch + "{one}", first=CLEARED, change=signed).findings
    assert planted(multiply=branch + "{one}", first=CLEARED).findings
    again = branch + "{one}  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n"
    message = only(planted(multiply=again + "  mov.b32 %d5, 0;\n{one}", first=CLEARED, change=signed), "in-flight")
    assert "this uses %d5, and no wgmma.fence came after" in message


def test_a_compiler_reads_accumulators_and_uses_them_again():
    """ptxas puts that fence in; between operations by hand it is due."""
    again = "  setp.eq.b32 %p2, 0, 0;\n{one}  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n"
    again += "  mov.b32 %r3, %d5;\n{one}"
    signed = (".version", "// Generated by NVIDIA NVVM Compiler\n.version")
    assert not planted(multiply=again, first=CLEARED, change=signed).findings
    assert "this uses %d5, and no wgmma.fence came after" in only(planted(multiply=again, first=CLEARED), "in-flight")


ADDING = "  setp.eq.b32 %p2, 0, 0;\n{one}"


@pytest.mark.parametrize(
    ("set_", "multiply", "names", "count"),
    [
        (CLEARED, ADDING, "", 0),
        ("", ADDING, "%d0 (and 31 more)", 128),
        (CLEARED.replace("  mov.b32 %d17, 0;", ""), ADDING, "%d17", 128),
        # one warp of four adds
        ("", "  mov.u32 %r1, %tid.x;\n  setp.lt.u32 %p2, %r1, 32;\n{one}", "%d0 (and 31 more)", 32),
        # set by a first operation that does not add
        ("", TWICE, "", 0),
        # in some lanes
        (CLEARED.replace("  mov.b32 %d3,", "  mov.u32 %r1, %tid.x;\n  setp.lt.u32 %p1, %r1, 100;\n  @%p1 mov.b32 %d3,"),
         ADDING, "%d3", 28),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sign", ["", "// Generated by NVIDIA NVVM Compiler\n"])
def test_accumulators_that_were_never_set(set_, multiply, names, count, sign):
    """An operation that adds reads D; one that does not may find anything there."""
    run = planted(multiply=multiply, first=set_, change=(".version", sign + ".version"))
    found = [one for one in run.findings if one.kind == "uninitialised-read"]
    assert [one.count for one in found] == ([count] if count else [])
    assert [one.kind for one in run.findings] == ["uninitialised-read"] * len(found)
    if found:
        assert f"{names} is added to by a product, and was never set in thread (" in found[0].message
        assert "wgmma.mma_async" in found[0].message


def test_no_fence_before_the_first_operation():
    run = planted(change=("  wgmma.fence.sync.aligned;\n", ""))
    assert "no wgmma.fence came after" in only(run, "in-flight")


def test_descriptor_outside_shared_memory():
    message = only(planted(descriptors=lambda d: (d[0], d[1] + (4096 << 32))), "descriptor")
    assert "the descriptor of B that thread (0, 0, 0) of block (0, 0, 0) gives reaches to byte" in message


def test_descriptors_differ_in_a_warpgroup():
    late = "  mov.u32 %r3, %tid.x;\n  and.b32 %r3, %r3, 64;\n  shr.u32 %r3, %r3, 2;\n  cvt.u64.u32 %rd7, %r3;\n"
    late += "  add.u64 %rd5, %rd5, %rd7;\n  setp.ne.b32 %p2, 0, 0;\n{one}"
    run = planted(multiply=late, mode="none", n=32)
    assert any("differs from that of the first warp" in f.message for f in run.findings)


TENSOR = """.version 8.4
.target sm_90a
.address_size 64
.shared .align 8 .b64 full;
.extern .shared .align 1024 .b8 tiles[];
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 said)
{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  .reg .f32 %d<32>;
  mov.u32 %r0, %tid.x;
  setp.eq.u32 %p1, %r0, 0;
  ld.param.u64 %rd3, [out];
  ld.param.u64 %rd4, [said];
  mov.u32 %r1, tiles;
  cvt.u64.u32 %rd5, %r1;
  shr.u64 %rd5, %rd5, 4;
  add.u64 %rd4, %rd4, %rd5;
  mov.b64 %rd1, map;
  @%p1 mbarrier.init.shared::cta.b64 [full], 1;
  @%p1 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 8192;
  @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {0, 0}], [full];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [full], 0;
  @!%p2 bra WAIT;
  wgmma.fence.sync.aligned;
  setp.ne.b32 %p3, 0, 0;
ONCE
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  mul.wide.u32 %rd6, %r0, 128;
  add.u64 %rd6, %rd6, %rd3;
STORES
  ret;
}
"""


def from_tensor_copy(swizzle, code, base=0):
    n, steps = 64, []
    d = ", ".join(f"%d{i}" for i in range(32))
    for step in range(4):
        name = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
        steps.append(f"  {name} {{{d}}}, %rd4, %rd4, %p3, 1, 1, 0, 0;\n  setp.eq.b32 %p3, 0, 0;")
        steps.append("  add.u64 %rd4, %rd4, 2;" if step < 3 else "")
    stores = "\n".join(f"  st.global.f32 [%rd6+{4 * i}], %d{i};" for i in range(32))
    kernel_ = ptx.parse(TENSOR.replace("ONCE", "\n".join(steps)).replace("STORES", stores)).kernels["kernel"]
    device = ptx.EmulatedDevice("sm_90a")
    x = np.random.default_rng(8).standard_normal((64, 64)).astype(np.float16)
    array, out = device.array(x), device.array(np.zeros((128, 32), np.float32))
    inner = 64 if swizzle == "128B" else 32
    made = device.tensor_map(array, dims=(64, 64), strides=(128,), box=(inner, 64 * 64 // inner), swizzle=swizzle)
    said = descriptor(0, 16, 1024, code) | base << 49
    run = device.launch(kernel_, 1, 128, [made, out, said], shared_bytes=8192)
    return run, values(out.numpy().view(np.uint32), n, "f32"), expected(x, x)


def test_tile_of_a_tensor_copy():
    run, got, want = from_tensor_copy("128B", 1)
    assert not run.findings, run.findings
    np.testing.assert_allclose(got, want, atol=1e-3)


@pytest.mark.parametrize(("swizzle", "code", "base"), [("64B", 1, 0), ("128B", 2, 0), ("128B", 0, 0), ("128B", 1, 1)])
def test_descriptor_states_another_swizzle(swizzle, code, base):
    run, _, _ = from_tensor_copy(swizzle, code, base)
    message = next(f.message for f in run.findings if f.kind == "descriptor")
    assert f"laid the tile out with {swizzle}, in the pattern of the addresses" in message


SIGNED = (".version", "// Generated by LLVM NVPTX Back-End\n.version")
COMMIT = "  wgmma.commit_group.sync.aligned;\n"
# twice A B, summed in ordinary registers between operations and behind a branch, with no wait anywhere
SUMS = "\n".join(
    [
        "  setp.ne.b32 %p2, 0, 0;\n  setp.eq.b32 %p3, 0, 0;\n{one}",
        *(f"  add.f32 %s{i}, %d{i}, 0f00000000;" for i in range(32)),
        "{one}\n  @%p3 bra ON;\n  ret;\nON:",
        *(f"  add.f32 %s{i}, %s{i}, %d{i};" for i in range(32)),
        *(f"  mov.b32 %d{i}, %s{i};" for i in range(32)),
    ]
)
IN_REGISTERS = "  .reg .b32 %d<32>;\n  .reg .f32 %s<32>;"


def unwaited(signed, multiply=SUMS, **options):
    """The run of a kernel that leaves out its waits, the product, and what it stores."""
    kinds = ("f32", "f16", "f16")
    a, b, data, given = tiles(7, 64, 16, kinds, "128B", "128B")
    text = kernel(64, kinds, 16, tail="1, 1, 0, 0", multiply=multiply, last="").module.source
    text = text.replace("  .reg .b32 %d<32>;", IN_REGISTERS).replace(*(SIGNED if signed else ("", "")))
    run, words = launch(ptx.parse(text).kernels["kernel"], data, given, 64, "f32", **options)
    return run, expected(a, b), values(words, 64, "f32")


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("schedule", ["canonical", "eager", 3])
def test_ptxas_waits_where_a_compiler_reads_accumulators_in_flight(checks, schedule):
    """C7517: "warpgroup.wait is injected by compiler to allow use of registers defined by GMMA"."""
    run, product, found = unwaited(True, checks=checks, schedule=schedule)
    assert not run.findings
    np.testing.assert_allclose(found, 2 * product, atol=1e-4)


def test_accumulators_in_flight_read_in_code_by_hand():
    run, product, found = unwaited(False)
    assert {f.kind for f in run.findings} == {"in-flight"}
    assert not np.allclose(found, 2 * product, atol=1e-4)


def test_a_wait_before_a_label_is_met_by_those_who_jump_there():
    """Accumulators are read at a label: in the first round of the loop nothing is in flight, in the second it is."""
    loop = "\n".join(
        [
            "  setp.ne.b32 %p2, 0, 0;\n  mov.u32 %r4, 0;",
            *(f"  mov.f32 %s{i}, 0f00000000;\n  mov.b32 %d{i}, 0;" for i in range(32)),
            "  wgmma.fence.sync.aligned;\nAGAIN:",
            *(f"  add.f32 %s{i}, %s{i}, %d{i};" for i in range(32)),
            "{one}\n  add.u32 %r4, %r4, 1;\n  setp.lt.u32 %p3, %r4, 3;\n  @%p3 bra AGAIN;",
            *(f"  mov.b32 %d{i}, %s{i};" for i in range(32)),
        ]
    )
    run, product, found = unwaited(True, loop)
    assert not run.findings
    np.testing.assert_allclose(found, 2 * product, atol=1e-4)


A_IN_REGISTERS = """  setp.ne.b32 %p2, 0, 0;
  mov.b32 %x0, 0x3c003c00;
  mov.b32 %x1, 0x3c003c00;
  mov.b32 %x2, 0x3c003c00;
  mov.b32 %x3, 0x3c003c00;
  wgmma.fence.sync.aligned;
{one}
"""


def multiplied_by(a, after, signed):
    """A product with A in registers, then more instructions: findings, and what the accumulators hold."""
    kinds = ("f32", "f16", "f16")
    _, b, data, given = tiles(9, 64, 16, kinds, "128B", "128B")
    text = kernel(64, kinds, 16, a=a, tail="1, 1, 0", multiply=A_IN_REGISTERS + after).module.source
    text = text.replace(*(SIGNED if signed else ("", "")))
    run, words = launch(ptx.parse(text).kernels["kernel"], data, given, 64, "f32")
    return run, expected(np.ones((64, 16)), b), values(words, 64, "f32")


def test_registers_of_a_set_again_while_an_operation_reads_them():
    a, after = "{%x0, %x1, %x2, %x3}", "  mov.b32 %x1, 0;\n"
    run, product, found = multiplied_by(a, after, True)
    assert not run.findings
    np.testing.assert_allclose(found, product, atol=1e-4)
    assert {f.kind for f in multiplied_by(a, after, False)[0].findings} == {"in-flight"}


def test_accumulators_in_flight_are_no_operand_of_the_next_operation():
    """As A they are read like any register: of an operation in flight only its accumulators may be D again."""
    kinds = ("f32", "f16", "f16")
    one = "  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%x0, %x1, %x2, %x3}, "
    chain = "  setp.ne.b32 %p2, 0, 0;\n" + one + "%rd4, %rd5, %p2, 1, 1, 0, 0;\n"
    chain += (
        kernel(64, kinds, 16, a="{%x0, %x1, %x2, %x3}", tail="1, 1, 0", multiply="{one}")
        .module.source.split("  wgmma.fence.sync.aligned;\n")[1]
        .split(COMMIT)[0]
    )
    _, _, data, given = tiles(9, 64, 16, kinds, "128B", "128B")
    text = kernel(64, kinds, 16, multiply=chain).module.source
    run = launch(ptx.parse(text).kernels["kernel"], data, given, 64, "f32")[0]
    assert "reads %x3, which line" in only(run, "in-flight")
    run = launch(ptx.parse(text.replace(*SIGNED)).kernels["kernel"], data, given, 64, "f32")[0]
    assert not run.findings


def test_a_product_that_adds_to_nothing_reads_no_accumulators():
    kinds, n = ("f32", "f16", "f16"), 16
    a, b, data, descriptors = tiles(3, n, 16, kinds, "128B", "128B")
    text = kernel(n, kinds, 16, tail="1, 1, 0, 0", multiply="{one}").module.source
    code = ptx.parse(text.replace("%rd5, %p2,", "%rd5, 0,")).kernels["kernel"]
    run, words = launch(code, data, descriptors, n, "f32")
    assert not run.findings
    np.testing.assert_allclose(values(words, n, "f32"), expected(a, b), atol=1e-5)
    # so there is nothing undefined to follow
    assert program_of(code).undefined_registers == ()
    adding = ptx.parse(text.replace("%rd5, %p2,", "%rd5, 1,")).kernels["kernel"]
    assert len(program_of(adding).undefined_registers) == n // 2
