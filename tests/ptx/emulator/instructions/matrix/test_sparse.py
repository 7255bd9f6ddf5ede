"""mma.sp and products of elements smaller than a byte, against matrices written out in full."""

import numpy as np
import pytest

from kernbench import ptx

# shape, type, elements of a chunk, elements that go together, encoder of whole numbers
KINDS = {
    "f16": (4, 1, lambda v: v.astype(np.float16).view(np.uint16), 16),
    "bf16": (4, 1, lambda v: (v.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), 16),
    "tf32": (2, 1, lambda v: v.astype(np.float32).view(np.uint32), 32),
    "s8": (4, 1, lambda v: v.astype(np.int8).view(np.uint8), 8),
    "s4": (8, 2, lambda v: (v & 15).astype(np.uint8), 4),
}
CASES = [("f16", 16, 2), ("f16", 32, 1), ("bf16", 16, 3), ("tf32", 8, 1), ("tf32", 16, 0), ("s8", 32, 1), ("s8", 64, 0)]
CASES += [("s4", 64, 1), ("s4", 128, 0)]


def words_of(elements, bits):
    """Elements of a register, the lowest first, as a number."""
    return sum(int(e) << bits * i for i, e in enumerate(elements))


def sparse_rows(rng, k, chunk, together):
    """A [16, k] with half of each chunk, the kept places, and the metadata of each chunk."""
    full = np.zeros((16, k), np.int64)
    kept, codes = [], np.zeros((16, k // chunk), np.int64)
    for row in range(16):
        places = []
        for number in range(k // chunk):
            first, second = sorted(rng.choice(4, 2, replace=False).tolist())
            if chunk == 2:
                first, second = ((0, 1), (2, 3))[int(rng.integers(2))]
                inside = [first // 2]
            else:
                inside = [together * n + i for n in (first, second) for i in range(together)]
            codes[row, number] = first | second << 2
            places += [chunk * number + n for n in inside]
        full[row, places] = rng.integers(1, 7, len(places)) * rng.choice((-1, 1), len(places))
        kept.append(places)
    return full, kept, codes


def metadata(codes, wide, selector):
    """The word of each lane: lane / 4 is the row, and selected lanes hold it and the row eight below."""
    count = codes.shape[1]
    words = np.full(32, 0x44444444, np.uint32)
    for group in range(8):
        rows = (codes[group], codes[group + 8])
        for holder in range(count // 4):
            if wide:
                parts = [code for row in rows for code in row[4 * holder : 4 * holder + 4]]
            else:
                parts = rows[holder % 2][8 * (holder // 2) : 8 * (holder // 2) + 8]
            words[4 * group + selector * (count // 4) + holder] = words_of(parts, 4)
    return words


def fragment(matrix, encode, bits):
    """Words [registers, 32] of a [rows, k] operand: 8 rows a register, then on to the next columns."""
    per, halves = max(1, 32 // bits), matrix.shape[0] // 8
    coded = encode(matrix)
    count = matrix.size // 32 // per
    out = np.zeros((count, 32), np.uint32)
    for register in range(count):
        for lane in range(32):
            row = lane // 4 + 8 * (register % halves)
            start = (lane % 4) * per + 4 * per * (register // halves)
            out[register, lane] = words_of(coded[row, start : start + per], bits)
    return out


@pytest.mark.parametrize(("kind", "k", "selector"), CASES)
def test_sparse_products(kind, k, selector):
    rng = np.random.default_rng(k)
    chunk, together, encode, bits = KINDS[kind]
    full, kept, codes = sparse_rows(rng, k, chunk, together)
    held = np.array([full[row, places] for row, places in enumerate(kept)])
    right = rng.integers(-6, 7, (8, k))
    a, b = fragment(held, encode, bits), fragment(right, encode, bits)
    acc = "s32" if kind in ("s8", "s4") else "f32"
    text = kernel(
        f"mma.sp::ordered_metadata.sync.aligned.m16n8k{k}.row.col.{acc}.{kind}.{kind}.{acc}", len(a), len(b), selector
    )
    device = ptx.EmulatedDevice("sm_90a")
    out = device.empty((4, 32), np.uint32, "out")
    arrays = [device.array(x) for x in (a, b, metadata(codes, kind in ("f16", "bf16", "tf32"), selector))]
    run = device.launch(ptx.parse(text).kernels["k"], 1, 32, [*arrays, out])
    assert run.findings == []
    lane, i = np.arange(32), np.arange(4)[:, None]
    wanted = (full @ right.T)[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2]
    found = out.numpy().view(np.int32 if acc == "s32" else np.float32)
    assert np.array_equal(found, wanted)
    ptx.validate(ptx.parse(text.replace("}, %e0, ", "}, {%e0}, ")))


def kernel(name, a, b, selector):
    def loads(letter, count, pointer):
        return "".join(f"ld.global.b32 %{letter}{n}, [%rd{pointer}+{128 * n}];\n" for n in range(count))

    def vector(letter, count):
        return "{" + ", ".join(f"%{letter}{n}" for n in range(count)) + "}"

    pointers = "".join(f"ld.param.u64 %rd{n}, [p{n}]; mad.wide.u32 %rd{n}, %t, 4, %rd{n};\n" for n in range(4))
    stores = "".join(f"st.global.b32 [%rd3+{128 * n}], %c{n};\n" for n in range(4))
    return f""".version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) {{
.reg .b32 %a<4>, %b<4>, %c<4>, %e<1>, %t; .reg .b64 %rd<4>;
mov.u32 %t, %tid.x;
{pointers}{loads("a", a, 0)}{loads("b", b, 1)}{loads("e", 1, 2)}
mov.b32 %c0, 0; mov.b32 %c1, 0; mov.b32 %c2, 0; mov.b32 %c3, 0;
{name} {vector("c", 4)}, {vector("a", a)}, {vector("b", b)}, {vector("c", 4)}, %e0, {selector};
{stores}ret;
}}
"""


@pytest.mark.parametrize(("kind", "k"), [("s4", 32), ("u4", 32), ("b1", 128)])
def test_wmma_of_elements_smaller_than_a_byte(kind, k):
    rng = np.random.default_rng(3)
    bits = 1 if kind == "b1" else 4
    stride = 2 * k
    a, b = (rng.integers(0, 256, 8 * stride * bits // 8, dtype=np.uint8) for _ in range(2))
    c = rng.integers(-99, 99, (8, 8), dtype=np.int32)
    multiply = "wmma.mma.xor.popc" if kind == "b1" else "wmma.mma"
    types = f"m8n8k{k}.s32.{kind}.{kind}.s32"
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) {{
.reg .b32 %a, %b, %c<2>; .reg .b64 %rd<4>;
ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; ld.param.u64 %rd3, [p3];
wmma.load.a.sync.aligned.row.m8n8k{k}.global.{kind} {{%a}}, [%rd0], {stride};
wmma.load.b.sync.aligned.col.m8n8k{k}.global.{kind} {{%b}}, [%rd1], {stride};
wmma.load.c.sync.aligned.row.m8n8k{k}.global.s32 {{%c0, %c1}}, [%rd2], 8;
{multiply}.sync.aligned.row.col.{types} {{%c0, %c1}}, {{%a}}, {{%b}}, {{%c0, %c1}};
wmma.store.d.sync.aligned.row.m8n8k{k}.global.s32 [%rd3], {{%c0, %c1}}, 8;
ret;
}}
"""
    device = ptx.EmulatedDevice("sm_90")
    out = device.empty((8, 8), np.int32, "out")
    run = device.launch(ptx.parse(text).kernels["k"], 1, 32, [device.array(a), device.array(b), device.array(c), out])
    assert run.findings == []
    x, y = (taken(m, kind, bits, stride)[:, :k] for m in (a, b))
    products = (x[:, None] != y[None]).sum(axis=2) if kind == "b1" else x @ y.T
    assert np.array_equal(out.numpy(), products + c)


def taken(octets, kind, bits, stride):
    """Rows of a packed matrix as whole numbers."""
    parts = np.stack([octets >> bits * n & (1 << bits) - 1 for n in range(8 // bits)], axis=-1).reshape(8, stride)
    values = parts.astype(np.int64)
    return np.where(values > 7, values - 16, values) if kind == "s4" else values
