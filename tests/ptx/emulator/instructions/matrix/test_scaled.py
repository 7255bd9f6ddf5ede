"""mma.sync of narrow floats and block scales, and the ldmatrix forms that unpack them, against matrices in full."""

import ml_dtypes
import numpy as np
import pytest

from kernbench import ptx

TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}


def coded(rng, shape, kind):
    """Small numbers of a type: their bits and their values."""
    numbers = rng.choice((-3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0), shape)
    return numbers.astype(TYPES[kind]).view(np.uint8), numbers


def fragment(octets, packed):
    """Words [registers, 32] of a [rows, k] operand of bytes, or of packed halves of bytes."""
    bits = 4 if packed else 8
    per, halves = 32 // bits, octets.shape[0] // 8
    out = np.zeros((octets.size // 32 // per, 32), np.uint32)
    for register in range(len(out)):
        for lane in range(32):
            row = lane // 4 + 8 * (register % halves)
            start = (lane % 4) * per + 4 * per * (register // halves)
            out[register, lane] = sum(int(v) << bits * i for i, v in enumerate(octets[row, start : start + per]))
    return out


def run_mma(instruction, arrays, operands, results=4):
    """Load arrays of [registers, 32] words into %x0_0.., run the instruction, and give back D."""
    loads, params = [], []
    for number, array in enumerate(arrays):
        params.append(f".param .u64 p{number}")
        loads.append(f"ld.param.u64 %rd1, [p{number}]; mad.wide.u32 %rd1, %t, 4, %rd1;")
        loads += [f"ld.global.b32 %x{number}_{n}, [%rd1+{128 * n}];" for n in range(len(array))]
    names = ", ".join(f"%x{i}_{n}" for i, array in enumerate(arrays) for n in range(len(array)))
    stores = "\n".join(f"st.global.b32 [%rd1+{128 * n}], %d{n};" for n in range(results))
    text = f""".version 8.8
.target sm_120a
.address_size 64
.visible .entry k({", ".join(params)}, .param .u64 out) {{
.reg .b32 %t, %d<4>, {names}; .reg .b64 %rd<2>; .reg .b16 %h<4>;
mov.u32 %t, %tid.x; mov.b16 %h0, 0; mov.b16 %h1, 1; mov.b16 %h2, 2; mov.b16 %h3, 3;
{" ".join(loads)}
{instruction} {operands};
ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %t, 4, %rd1;
{stores}
ret;
}}
"""
    device = ptx.EmulatedDevice("sm_120a")
    out = device.empty((results, 32), np.uint32, "out")
    run = device.launch(ptx.parse(text).kernels["k"], 1, 32, [*map(device.array, arrays), out])
    assert run.findings == []
    return out.numpy()


def vector(letter, count):
    return "{" + ", ".join(f"%{letter}{n}" for n in range(count)) + "}"


def placed(matrix):
    """D [16, 8] as its fragment."""
    lane, i = np.arange(32), np.arange(4)[:, None]
    return matrix[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2]


@pytest.mark.parametrize(("a_kind", "b_kind"), [("e4m3", "e2m1"), ("e2m1", "e3m2"), ("e2m3", "e5m2")])
def test_mixed_narrow_types(a_kind, b_kind):
    rng = np.random.default_rng(4)
    (a, x), (b, y) = coded(rng, (16, 32), a_kind), coded(rng, (8, 32), b_kind)
    a, b = (m << 2 if kind == "e2m1" else m for m, kind in ((a, a_kind), (b, b_kind)))
    c = rng.integers(-9, 9, (16, 8)).astype(np.float32)
    name = f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.{a_kind}.{b_kind}.f32"
    arrays = [fragment(a, False), fragment(b, False), placed(c).view(np.uint32)]
    operands = f"{vector('d', 4)}, {vector('x0_', 4)}, {vector('x1_', 2)}, {vector('x2_', 4)}"
    assert np.array_equal(run_mma(name, arrays, operands).view(np.float32), placed(x @ y.T + c))


@pytest.mark.parametrize(
    ("kind", "vectors", "count", "scales", "place_a", "place_b"),
    [
        ("mxf8f6f4", "", 1, "ue8m0", (2, 1), (3, 2)),
        ("mxf8f6f4", ".scale_vec::1X", 1, "ue8m0", (0, 0), (1, 3)),
        ("mxf4", ".scale_vec::2X", 2, "ue8m0", (2, 0), (0, 1)),
        ("mxf4nvf4", ".scale_vec::4X", 4, "ue4m3", (0, 1), (0, 3)),
    ],
)
def test_block_scales(kind, vectors, count, scales, place_a, place_b):
    rng = np.random.default_rng(count)
    packed = kind != "mxf8f6f4"
    k, element = (64, "e2m1") if packed else (32, "e4m3")
    (a, x), (b, y) = coded(rng, (16, k), element), coded(rng, (8, k), element)
    codes = (120, 134) if scales == "ue8m0" else (0x28, 0x50)
    scale_a, scale_b = rng.integers(*codes, (16, count)), rng.integers(*codes, (8, count))
    words_a, words_b = rng.integers(0, 1 << 32, (2, 1, 32), dtype=np.uint32)
    for row in range(16):
        lane = 4 * (row % 8) + 2 * place_a[1] + row // 8
        words_a[0, lane] = put(words_a[0, lane], place_a[0], scale_a[row])
    for column in range(8):
        lane = 4 * column + place_b[1]
        words_b[0, lane] = put(words_b[0, lane], place_b[0], scale_b[column])
    name = f"mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.block_scale{vectors}.f32.{element}.{element}.f32.{scales}"
    arrays = [fragment(a, packed), fragment(b, packed), np.zeros((4, 32), np.uint32), words_a, words_b]
    operands = (
        f"{vector('d', 4)}, {vector('x0_', 4)}, {vector('x1_', 2)}, {vector('x2_', 4)}, "
        f"%x3_0, {{%h{place_a[0]}, %h{place_a[1]}}}, %x4_0, {{%h{place_b[0]}, %h{place_b[1]}}}"
    )
    left, right = x * spread(scale_a, scales, k), y * spread(scale_b, scales, k)
    found = run_mma(name, arrays, operands)
    assert np.array_equal(found.view(np.float32), placed(left @ right.T).astype(np.float32))
    braced = operands.replace("%x3_0,", "{%x3_0},").replace("%x4_0,", "{%x4_0},")
    assert np.array_equal(run_mma(name, arrays, braced), found)


def put(word, byte, values):
    for number, value in enumerate(values):
        shift = 8 * (byte + number)
        word = (int(word) & ~(0xFF << shift)) | int(value) << shift
    return word


def spread(codes, kind, k):
    numbers = 2.0 ** (codes - 127) if kind == "ue8m0" else codes.astype(np.uint8).view(TYPES["e4m3"]).astype(float)
    return np.repeat(numbers, k // codes.shape[1], axis=1)


@pytest.mark.parametrize(
    ("name", "bits", "matrices", "transposed"),
    [
        ("m8n16.x4.shared.b8x16.b4x16_p64", 4, 4, False),
        ("m8n16.x2.shared.b8x16.b6x16_p32", 6, 2, False),
        ("m16n16.x2.trans.shared.b8", 8, 2, True),
        ("m16n16.x1.trans.shared.b8x16.b6x16_p32", 6, 1, True),
        ("m16n16.x2.trans.shared.b8x16.b4x16_p64", 4, 2, True),
    ],
)
def test_ldmatrix_of_narrow_elements(name, bits, matrices, transposed):
    rng = np.random.default_rng(bits)
    rows = 16 if transposed else 8
    elements = rng.integers(0, 1 << bits, (matrices, rows, 16))
    memory = np.zeros((matrices * rows, 16), np.uint8)
    for number, row in enumerate(elements.reshape(-1, 16)):
        packed = sum(int(v) << bits * i for i, v in enumerate(row))
        memory[number] = np.frombuffer(packed.to_bytes(16, "little"), np.uint8)
    registers = matrices * (2 if transposed else 1)
    stores = "".join(f"st.global.b32 [%rd2+{128 * n}], %d{n}; " for n in range(registers))
    text = f""".version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 p, .param .u64 q) {{
.shared .align 16 .b8 s[512]; .reg .b32 %t, %a, %d<4>, %w<4>; .reg .b64 %rd<3>;
mov.u32 %t, %tid.x; ld.param.u64 %rd1, [p]; mad.wide.u32 %rd1, %t, 16, %rd1; mov.u32 %a, s; mad.lo.u32 %a, %t, 16, %a;
ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%rd1]; st.shared.v4.b32 [%a], {{%w0, %w1, %w2, %w3}};
bar.sync 0;
ldmatrix.sync.aligned.{name} {vector("d", registers)}, [%a];
ld.param.u64 %rd2, [q]; mad.wide.u32 %rd2, %t, 4, %rd2; {stores}
ret;
}}
"""
    device = ptx.EmulatedDevice("sm_100a")
    out = device.empty((registers, 32), np.uint32, "out")
    given = device.array(np.concatenate([memory, np.zeros((32 - len(memory), 16), np.uint8)]))
    run = device.launch(ptx.parse(text).kernels["k"], 1, 32, [given, out])
    assert run.findings == []
    found = out.numpy().view(np.uint8).reshape(registers, 32, 4)
    for register in range(registers):
        for lane in range(32):
            for part in range(4):
                down, across = 4 * (lane % 4) + part, lane // 4
                if transposed:
                    wanted = elements[register // 2, down, across + 8 * (register % 2)]
                else:
                    wanted = elements[register, across, down]
                assert found[register, lane, part] == wanted
