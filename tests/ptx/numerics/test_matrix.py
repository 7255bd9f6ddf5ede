import ml_dtypes
import numpy as np
import pytest

from kernbench.common.errors import MisuseError
from kernbench.ptx.numerics import matrix
from kernbench.ptx.numerics.matrix import tensor_memory
from kernbench.ptx.numerics.matrix.layout import ELEMENT_BITS, LANES, quad_accumulator, quad_operand

WARPS = 3
SHAPES = [
    ("m16n8k8", "f16"),
    ("m16n8k16", "f16"),
    ("m16n8k16", "bf16"),
    ("m16n8k4", "tf32"),
    ("m16n8k8", "tf32"),
    ("m8n8k4", "f64"),
    ("m16n8k16", "f64"),
    ("m8n8k16", "s8"),
    ("m16n8k32", "u8"),
    ("m16n8k32", "e4m3"),
    ("m8n8k32", "s4"),
    ("m16n8k64", "u4"),
    ("m16n8k256", "b1"),
]


def registers(bits, layout, kind):
    """Registers that hold matrices of element bits."""
    width = ELEMENT_BITS[kind]
    elements = bits.reshape(len(bits), -1)[:, layout.scatter].reshape(len(bits), LANES, -1).astype(np.uint64)
    word = max(32, width)
    per = word // width
    grouped = elements.reshape(len(bits), LANES, -1, per)
    words = (grouped << (np.arange(per) * width).astype(np.uint64)).sum(axis=-1, dtype=np.uint64)
    return [np.ascontiguousarray(words[:, :, r]).reshape(-1).astype(f"uint{word}") for r in range(words.shape[2])]


@pytest.mark.parametrize(("shape", "kind"), SHAPES)
def test_every_element_has_one_place(shape, kind):
    for layout in (matrix.operand_a(shape, kind), matrix.operand_b(shape, kind), matrix.accumulator(shape)):
        places = sorted(zip(layout.rows.ravel().tolist(), layout.columns.ravel().tolist(), strict=True))
        assert places == [(r, c) for r in range(layout.shape[0]) for c in range(layout.shape[1])]


def test_layouts_as_the_isa_draws_them():
    a = matrix.operand_a("m16n8k16", "f16")
    # Lane 5 is the second of group 1: a0, a2 (eight rows down), a4 (eight columns on), a7.
    assert [(a.rows[5, i], a.columns[5, i]) for i in (0, 2, 4, 7)] == [(1, 2), (9, 2), (1, 10), (9, 11)]
    b = matrix.operand_b("m16n8k16", "f16")
    assert [(b.rows[5, i], b.columns[5, i]) for i in (0, 1, 2)] == [(2, 1), (3, 1), (10, 1)]
    c = matrix.accumulator("m16n8k16")
    assert [(c.rows[5, i], c.columns[5, i]) for i in (0, 1, 2)] == [(1, 2), (1, 3), (9, 2)]
    d = matrix.wgmma_accumulator(64)
    assert [(d.rows[5, i], d.columns[5, i]) for i in (0, 2, 4, 31)] == [(1, 2), (9, 2), (1, 10), (9, 59)]


@pytest.mark.parametrize(("shape", "kind"), [case for case in SHAPES if case[1] in ("s8", "u8", "s4", "u4", "b1")])
def test_integer_products_are_exact(shape, kind):
    m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
    random = np.random.default_rng(1)
    width = ELEMENT_BITS[kind]
    a, b = (random.integers(0, 1 << width, (WARPS, *s), dtype=np.uint8) for s in ((m, k), (k, n)))
    c = random.integers(-(1 << 31), 1 << 31, (WARPS, m, n)).astype(np.int32)
    left = registers(a, matrix.operand_a(shape, kind), kind)
    right = registers(b, matrix.operand_b(shape, kind), kind)
    addend = registers(c.view(np.uint32), matrix.accumulator(shape), "s32")
    out = [np.empty_like(row) for row in addend]
    matrix.mma(shape, ("s32", kind, kind, "s32"), left, right, addend, out)
    value = (lambda x: (x.astype(np.int64) ^ 1 << (width - 1)) - (1 << (width - 1))) if kind[0] == "s" else np.int64
    want = np.matmul(value(a), value(b)) + c
    got = matrix.from_fragments(out, matrix.accumulator(shape), "s32")
    assert (got.view(np.int32) == want.astype(np.int32)).all()
    matrix.mma(shape, ("s32", kind, kind, "s32"), left, right, addend, out, satfinite=True)
    got = matrix.from_fragments(out, matrix.accumulator(shape), "s32")
    assert (got.view(np.int32) == np.clip(want, -(1 << 31), (1 << 31) - 1)).all()


def half_operands(kind, seed=0):
    random = np.random.default_rng(seed)
    dtype = np.float16 if kind == "f16" else ml_dtypes.bfloat16
    a, b = (random.standard_normal((WARPS, *s)).astype(np.float32).astype(dtype) for s in ((16, 16), (16, 8)))
    return a, b, random.standard_normal((WARPS, 16, 8)).astype(np.float32)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_products_of_halves_are_cut_not_rounded(kind):
    a, b, c = half_operands(kind)
    bits = matrix.multiply(a.view(np.uint16), b.view(np.uint16), c.view(np.uint32), ("f32", kind, kind, "f32"))
    want = np.matmul(a.astype(np.float64), b.astype(np.float64)) + c
    got = bits.view(np.float32).astype(np.float64)
    largest = np.abs(a.astype(np.float64)).max() * np.abs(b.astype(np.float64)).max()
    assert np.abs(got - want).max() <= 18 * largest * 2.0**-24


def sum_of(products, c, kind="f16"):
    """D[0, 0] for given pairs of operands and an addend."""
    a, b = np.zeros((1, 16, 16), np.float16), np.zeros((1, 16, 8), np.float16)
    for k, (x, y) in enumerate(products):
        a[0, 0, k], b[0, k, 0] = x, y
    addend = np.zeros((1, 16, 8), np.float32)
    addend[0, 0, 0] = c
    bits = matrix.multiply(a.view(np.uint16), b.view(np.uint16), addend.view(np.uint32), ("f32", kind, kind, "f32"))
    return bits.view(np.float32)[0, 0, 0]


def test_the_rules_of_the_tensor_core():
    assert sum_of([(2.0**-12, 2.0**-12)], 1.0) == 1.0
    assert sum_of([(2.0**-12, 2.0**-12)] * 2, 1.0) == 1.0 + 2.0**-23
    # Cut toward zero, from both sides.
    assert sum_of([(2.0**-12, -(2.0**-12))], 1.0) == np.float32(1.0 - 2.0**-24)
    assert sum_of([(2.0**-13, -(2.0**-13))], 1.0) == 1.0
    # Terms more than 25 places below the largest are gone before they are added.
    assert sum_of([(2.0**-13, 2.0**-13)] * 16, 1.0) == 1.0
    assert sum_of([], 1e-40) == np.float32(1e-40)
    assert sum_of([(1.0, -0.0)], -0.0).view(np.uint32) == 0
    assert np.isnan(sum_of([(np.inf, 0.0)], 1.0))
    assert sum_of([(np.inf, 1.0)], 1.0) == np.inf


def test_terms_below_the_least_exponent_are_cut_by_it():
    """A row and a column of tf32 whose products are all far below 2^-126, and what an H200 gave."""
    row = [0x8414E000, 0, 0x81808000, 0, 0x81FF8000, 0x8001A000, 0x801B6000, 0x8370A000]
    column = [0x34390000, 0x3614E000, 0x37ED2000, 0, 0x3347A000, 0xAE018000, 0xB4922000, 0]
    a, b, c = np.zeros((1, 16, 8), np.uint32), np.zeros((1, 8, 8), np.uint32), np.zeros((1, 16, 8), np.uint32)
    a[0, 0], b[0, :, 0] = row, column
    assert matrix.multiply(a, b, c, ("f32", "tf32", "tf32", "f32"))[0, 0, 0] == 0x80000491


def test_double_products_are_a_chain_of_fused_steps():
    random = np.random.default_rng(2)
    a, b, c = (random.standard_normal((WARPS, *s)) for s in ((8, 4), (4, 8), (8, 8)))
    got = matrix.multiply(*(x.view(np.uint64) for x in (a, b, c)), ("f64",) * 4).view(np.float64)
    assert np.abs(got - (np.matmul(a, b) + c)).max() < 1e-15 * 8


def test_quads_multiply_four_small_matrices():
    random = np.random.default_rng(4)
    a, b = (random.integers(-4, 5, (WARPS, 4, *s)).astype(np.float16) for s in ((8, 4), (4, 8)))
    c = random.integers(-9, 9, (WARPS, 4, 8, 8)).astype(np.float32)

    def rows(matrices, layout):
        lane = np.arange(LANES)
        elements = matrices[:, (lane % 16 // 4)[:, None], layout.rows, layout.columns]
        words = np.ascontiguousarray(elements).view(np.uint32).reshape(WARPS, LANES, -1)
        return [np.ascontiguousarray(words[:, :, r]).reshape(-1) for r in range(words.shape[2])]

    accumulated = rows(c, quad_accumulator("f32"))
    out = [np.empty_like(row) for row in accumulated]
    operands = rows(a, quad_operand("a", "row")), rows(b, quad_operand("b", "col"))
    matrix.mma_quads(("row", "col"), ("f32", "f16", "f16", "f32"), *operands, accumulated, out)
    want = np.matmul(a.astype(np.float32), b.astype(np.float32)) + c
    assert all((x == y).all() for x, y in zip(out, rows(want, quad_accumulator("f32")), strict=True))


@pytest.mark.parametrize(
    ("shape", "kind", "registers_a"), [("m16n16k16", "f16", 8), ("m32n8k16", "bf16", 8), ("m8n32k16", "s8", 1)]
)
def test_wmma_fragments_have_the_isa_s_register_counts(shape, kind, registers_a):
    layout = matrix.wmma(shape, "a", kind)
    assert layout.elements * ELEMENT_BITS[kind] // 32 == registers_a


def test_wmma_multiplies():
    a, b = (np.random.default_rng(s).integers(-3, 4, (WARPS, 16, 16)).astype(np.float16) for s in (0, 1))
    c = np.zeros((WARPS, 16, 16), np.float32)
    left, right, addend = (
        registers(x.view(f"uint{8 * x.itemsize}"), matrix.wmma("m16n16k16", which, kind), kind)
        for x, which, kind in ((a, "a", "f16"), (b, "b", "f16"), (c, "c", "f32"))
    )
    out = [np.empty_like(row) for row in addend]
    assert (len(left), len(addend)) == (8, 8)
    matrix.wmma_mma("m16n16k16", ("f32", "f16", "f16", "f32"), left, right, addend, out)
    got = matrix.from_fragments(out, matrix.wmma("m16n16k16", "c", "f32"), "f32").view(np.float32)
    assert (got == np.matmul(a.astype(np.float32), b.astype(np.float32))).all()


def test_matrices_are_loaded_stored_and_turned():
    tiles = np.arange(WARPS * 4 * 64, dtype=np.uint16).reshape(WARPS, 32, 8)
    plain, turned = ([np.empty(WARPS * LANES, np.uint32) for _ in range(4)] for _ in range(2))
    matrix.load_matrices(tiles, False, plain)
    matrix.load_matrices(tiles, True, turned)
    # Lane 9 of warp 1, tile 2: row 2, columns 2 and 3; transposed, column 2, rows 2 and 3.
    tile = tiles[1, 16:24]
    assert plain[2][32 + 9] == tile[2, 2] | np.uint32(tile[2, 3]) << 16
    assert turned[2][32 + 9] == tile[2, 2] | np.uint32(tile[3, 2]) << 16
    assert (matrix.store_matrices(plain, False) == tiles).all()
    assert (matrix.store_matrices(turned, True) == tiles).all()
    out = np.empty_like(plain[0])
    matrix.transpose_matrix(plain[0], out)
    assert (out == turned[0]).all()


def test_wrong_names_are_told():
    with pytest.raises(MisuseError, match="'m16n8' is no matrix shape; write it like m16n8k16"):
        matrix.accumulator("m16n8")
    with pytest.raises(MisuseError, match="unknown type of a matrix operand 'f8'"):
        matrix.multiply(None, None, None, ("f32", "f8", "f8", "f32"))


@pytest.mark.parametrize(("shape", "lanes"), [("32x32b", 32), ("16x64b", 16), ("16x128b", 16), ("16x256b", 16)])
def test_tensor_memory_accesses_cover_a_block_once(shape, lanes):
    layout = tensor_memory.registers(shape, 4)
    places = set(zip(layout.rows.ravel().tolist(), layout.columns.ravel().tolist(), strict=True))
    assert len(places) == layout.rows.size
    assert layout.shape == (lanes, layout.rows.size // lanes)


def test_split_accesses():
    layout = tensor_memory.registers("16x32bx2", 2, split=8)
    assert [(layout.rows[t, 1], layout.columns[t, 1]) for t in (3, 19)] == [(3, 1), (3, 9)]
